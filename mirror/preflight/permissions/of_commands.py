"""The rights that commands and applications need beside the service's.

Main name: `ROWS`, command by command, then those of applications.
"""

from __future__ import annotations

from mirror.offsets.mm2_records import checkpoints_topic
from mirror.policy.naming import HEARTBEATS
from mirror.preflight.permissions import names
from mirror.preflight.permissions.audit import of_audit
from mirror.preflight.permissions.extent import named
from mirror.preflight.permissions.need import (
    FlowSide,
    Need,
    Operation,
    ResourceKind,
    Who,
)
from mirror.recovery import losses, pauses, proofs

_READ, _WRITE, _CREATE = Operation.READ, Operation.WRITE, Operation.CREATE
_DESCRIBE, _CONFIGS = Operation.DESCRIBE, Operation.DESCRIBE_CONFIGS


def _of_compare() -> tuple[Need, ...]:
    """It reads the same on both clusters; what it may not read, it says."""
    return tuple(
        Need(
            feature="mirror compare, drill, switch (optional)",
            side=side,
            kind=kind,
            operations=operations,
            names=which,
            called=called,
            who=Who.COMMANDS,
        )
        for side, topics, called_topics in (
            (FlowSide.SOURCE, names.copied, "mirrored topics"),
            (FlowSide.TARGET, names.copies, "the copies"),
        )
        for kind, operations, which, called in (
            (ResourceKind.TOPIC, (_CONFIGS,), topics, called_topics),
            (ResourceKind.GROUP, (_DESCRIBE,), names.groups, "mirrored groups"),
            (ResourceKind.CLUSTER, (_DESCRIBE, _CONFIGS), names.cluster, ""),
        )
    )


ROWS: tuple[Need, ...] = (
    Need(
        feature="mirror pause, resume, repair",
        side=FlowSide.TARGET,
        kind=ResourceKind.TOPIC,
        operations=(_CREATE, _WRITE),
        names=lambda flow, _: named(pauses.topic_name(flow.source)),
        called=f"`{pauses.topic_name('<source>')}`",
        who=Who.COMMANDS,
    ),
    Need(
        feature="mirror loss list, verify, trace, repair",
        side=FlowSide.TARGET,
        kind=ResourceKind.TOPIC,
        operations=(_READ,),
        names=lambda flow, _: named(losses.topic_name(flow.source)),
        called=f"`{losses.topic_name('<source>')}`",
        who=Who.COMMANDS,
    ),
    Need(
        feature="mirror verify, trace, repair",
        side=FlowSide.SOURCE,
        kind=ResourceKind.TOPIC,
        operations=(_CONFIGS,),
        names=names.copied,
        called="mirrored topics",
        who=Who.COMMANDS,
    ),
    Need(
        feature="mirror verify, trace, repair",
        side=FlowSide.TARGET,
        kind=ResourceKind.TOPIC,
        operations=(_READ, _CONFIGS),
        names=names.copies,
        called="the copies",
        who=Who.COMMANDS,
    ),
    Need(
        feature="mirror verify",
        side=FlowSide.TARGET,
        kind=ResourceKind.TOPIC,
        operations=(_CREATE, _READ, _WRITE),
        names=lambda flow, _: named(proofs.topic_name(flow.source)),
        called=f"`{proofs.topic_name('<source>')}`",
        who=Who.COMMANDS,
    ),
    Need(
        feature="mirror verify, trace, repair",
        side=FlowSide.TARGET,
        kind=ResourceKind.TOPIC,
        operations=(_READ,),
        names=lambda flow, _: named(flow.dead_letter_topic or ""),
        called="`dead_letter_topic`",
        when=lambda flow, _: flow.dead_letter_topic is not None,
        setting="`dead_letter_topic`",
        who=Who.COMMANDS,
    ),
    *of_audit("mirror events --config", Who.COMMANDS, _READ),
    *_of_compare(),
    Need(
        feature="mirror repair rebuild",
        side=FlowSide.TARGET,
        kind=ResourceKind.TOPIC,
        operations=(Operation.DELETE,),
        names=names.copies,
        called="the copies",
        who=Who.COMMANDS,
    ),
    Need(
        feature="mirror group, risk",
        side=FlowSide.TARGET,
        kind=ResourceKind.GROUP,
        operations=(_DESCRIBE,),
        names=names.groups,
        called="mirrored groups",
        who=Who.COMMANDS,
    ),
    Need(
        feature="where a group goes on",
        side=FlowSide.TARGET,
        kind=ResourceKind.TOPIC,
        operations=(_READ,),
        names=lambda flow, _: named(checkpoints_topic(flow.source, flow.mm2_separator)),
        called=f"`{checkpoints_topic('<source>')}`",
        when=lambda flow, _: flow.emit_checkpoints,
        setting="`emit_checkpoints`",
        who=Who.CLIENTS,
    ),
    Need(
        feature="clusters and hops",
        side=FlowSide.TARGET,
        kind=ResourceKind.TOPIC,
        operations=(_DESCRIBE,),
        names=lambda flow, config: names.heartbeats_on(
            flow.target, config.enabled_flows
        ),
        called=f"`{HEARTBEATS}` and its copies",
        when=lambda flow, _: flow.heartbeats_replication,
        setting="`heartbeats_replication`",
        who=Who.CLIENTS,
    ),
)
