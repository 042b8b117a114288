"""The topics in which a flow keeps its state, and those that it writes for others.

Main function: `internal_topics`, with name, side, replicas and configs of each. The
writers create them; a test checks that a run creates exactly these. The topic for
pauses is not in the list: the first `mirror pause` creates it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from mirror.clusters.admin.topic_admin import NewTopic
from mirror.metadata import acl_ownership, schema_claims
from mirror.offsets import mm2_records, progress, runs, standby
from mirror.policy.names import HEARTBEATS
from mirror.recovery import losses

if TYPE_CHECKING:
    from collections.abc import Mapping

    from mirror.config.schema import FlowConfig


@dataclass(frozen=True, slots=True, kw_only=True)
class InternalTopic:
    """One of them, as it would be created."""

    alias: str
    """The alias of its cluster."""
    purpose: str
    new: NewTopic


def internal_topics(flow: FlowConfig) -> tuple[InternalTopic, ...]:
    """All that a run of the flow creates, whatever there is to copy."""
    found = [
        _on(flow.target, "progress", progress.topic_name(flow.source),
            flow.replication_factor, progress.TOPIC_CONFIGS),
        _on(flow.target, "offset map", runs.topic_name(flow.source, flow.separator),
            flow.replication_factor, runs.TOPIC_CONFIGS),
        _on(flow.target, "loss ledger", losses.topic_name(flow.source),
            flow.replication_factor, losses.TOPIC_CONFIGS),
        _on(flow.target, "standby", standby.topic_name(flow.source),
            flow.replication_factor, standby.TOPIC_CONFIGS),
    ]  # fmt: skip
    if flow.emit_checkpoints:
        name = mm2_records.checkpoints_topic(flow.source, flow.separator)
        replicas = _chosen(flow.checkpoints_replication_factor, flow)
        found.append(_on(flow.target, "checkpoints", name, replicas, _MM2))
    beating = (
        *([flow.target] if flow.emit_heartbeats else []),
        *([flow.source] if flow.heartbeats_on_source else []),
    )
    replicas = _chosen(flow.heartbeats_replication_factor, flow)
    found += [_on(each, "heartbeats", HEARTBEATS, replicas, _MM2) for each in beating]
    if flow.emit_offset_syncs:
        ends = (flow.source, flow.target)
        here, there = ends if flow.offset_syncs_location == "source" else ends[::-1]
        name = mm2_records.offset_syncs_topic(there, flow.separator)
        replicas = _chosen(flow.offset_syncs_replication_factor, flow)
        found.append(_on(here, "offset syncs", name, replicas, _MM2))
    if flow.dead_letter_topic is not None:
        found.append(
            _on(flow.target, "dead letters", flow.dead_letter_topic,
                flow.replication_factor, {})
        )  # fmt: skip
    return tuple(found)


def acl_ownership_topic(flow: FlowConfig) -> InternalTopic:
    """Where the flow notes which ACLs it added; created with the first of them."""
    return _on(
        flow.target,
        "ACLs added",
        acl_ownership.topic_name(flow.source),
        flow.replication_factor,
        acl_ownership.TOPIC_CONFIGS,
    )


def schema_claims_topic(flow: FlowConfig) -> InternalTopic:
    """Where the flow notes which schemas it wrote; created with the first of them."""
    return _on(
        flow.target,
        "schemas copied",
        schema_claims.topic_name(flow.source),
        flow.replication_factor,
        schema_claims.TOPIC_CONFIGS,
    )


_MM2 = mm2_records.TOPIC_CONFIGS


def _on(
    alias: str, purpose: str, name: str, replicas: int, configs: Mapping[str, str]
) -> InternalTopic:
    new = NewTopic(
        name=name, partitions=1, replication_factor=replicas, configs=dict(configs)
    )
    return InternalTopic(alias=alias, purpose=purpose, new=new)


def _chosen(replicas: int | None, flow: FlowConfig) -> int:
    return flow.replication_factor if replicas is None else replicas
