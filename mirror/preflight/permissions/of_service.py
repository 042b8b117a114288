"""The rights that a running service needs, feature by feature.

Main name: `ROWS`, on the source first, then on the target. `of_tasks` has those of its
tasks, which may log in as another user.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from mirror.config import own_topics
from mirror.config.own_topics import Guard
from mirror.metadata import acl_notes, acl_ownership
from mirror.offsets import commit_records, progress, runs, standby
from mirror.offsets.mm2_records import checkpoints_topic, offset_syncs_topic
from mirror.policy.naming import HEARTBEATS
from mirror.preflight.permissions import names
from mirror.preflight.permissions.audit import of_audit
from mirror.preflight.permissions.extent import beginning, named
from mirror.preflight.permissions.need import (
    FlowSide,
    Need,
    Operation,
    ResourceKind,
    Who,
)
from mirror.recovery import journal, losses, pauses, proofs

if TYPE_CHECKING:
    from mirror.config.schema import FlowConfig, MirrorConfig
    from mirror.preflight.permissions.extent import Extent

_READ, _WRITE, _CREATE = Operation.READ, Operation.WRITE, Operation.CREATE
_DESCRIBE = Operation.DESCRIBE
_CONFIGS = Operation.DESCRIBE_CONFIGS
_KEPT = (_CREATE, _READ, _WRITE)
"""For a topic that mirror creates, writes, and reads back."""


def _guarded(side: FlowSide) -> Need:
    """The service examines what it keeps, and corrects configs that may lose it."""

    def names_of(flow: FlowConfig, config: MirrorConfig) -> tuple[Extent, ...]:
        alias = flow.source if side is FlowSide.SOURCE else flow.target
        return named(
            *(
                topic.name
                for topic in own_topics.of_flow(config, flow)
                if topic.alias == alias and topic.kind.guard is not Guard.NONE
            )
        )

    return Need(
        feature="guard of mirror's own topics",
        side=side,
        kind=ResourceKind.TOPIC,
        operations=(Operation.ALTER_CONFIGS,),
        names=names_of,
        called="[all that is guarded](formats.md#mirrors-own-topics)",
    )


ROWS: tuple[Need, ...] = (
    _guarded(FlowSide.SOURCE),
    _guarded(FlowSide.TARGET),
    *of_audit("audit", Who.SERVICE, _CREATE, _WRITE),
    Need(
        feature="topics",
        side=FlowSide.SOURCE,
        kind=ResourceKind.TOPIC,
        operations=(_DESCRIBE,),
        names=names.copied,
        called="mirrored topics",
    ),
    Need(
        feature="configs of copies",
        side=FlowSide.SOURCE,
        kind=ResourceKind.TOPIC,
        operations=(Operation.DESCRIBE_CONFIGS,),
        names=names.copied,
        called="mirrored topics",
    ),
    Need(
        feature="checkpoints",
        side=FlowSide.SOURCE,
        kind=ResourceKind.GROUP,
        operations=(_DESCRIBE,),
        names=names.groups,
        called="mirrored groups",
        when=lambda flow, _: flow.emit_checkpoints,
        setting="`emit_checkpoints`",
    ),
    Need(
        feature="checkpoints that follow commits",
        side=FlowSide.SOURCE,
        kind=ResourceKind.TOPIC,
        operations=(_READ,),
        names=lambda *_: named(commit_records.TOPIC),
        called=f"`{commit_records.TOPIC}`",
        when=lambda flow, _: flow.emit_checkpoints and flow.follow_commits == "on",
        setting="`follow_commits: on`; optional with `auto`",
    ),
    Need(
        feature="ACLs of copies",
        side=FlowSide.SOURCE,
        kind=ResourceKind.CLUSTER,
        operations=(_DESCRIBE,),
        names=names.cluster,
        called="",
        when=lambda flow, _: flow.sync_topic_acls,
        setting="`sync_topic_acls`",
    ),
    Need(
        feature="ACLs that came from elsewhere",
        side=FlowSide.SOURCE,
        kind=ResourceKind.TOPIC,
        operations=(_READ,),
        names=names.acl_topics,
        called=names.CALLED_ACL_TOPICS,
        when=lambda flow, config: (
            flow.sync_topic_acls
            and any(
                other.sync_topic_acls and other.target == flow.source
                for other in config.enabled_flows
            )
        ),
        setting="`sync_topic_acls`, also of a flow into this cluster",
    ),
    Need(
        feature="heartbeats on the source",
        side=FlowSide.SOURCE,
        kind=ResourceKind.TOPIC,
        operations=(_CREATE, _WRITE),
        names=lambda *_: named(HEARTBEATS),
        called=f"`{HEARTBEATS}`",
        when=lambda flow, _: flow.heartbeats_on_source,
        setting="`heartbeats_on_source`",
    ),
    Need(
        feature="offset syncs",
        side=FlowSide.SOURCE,
        kind=ResourceKind.TOPIC,
        operations=(_CREATE, _WRITE),
        names=lambda flow, _: named(
            offset_syncs_topic(flow.target, flow.mm2_separator)
        ),
        called="`mm2-offset-syncs.<target>.internal`",
        when=lambda flow, _: (
            flow.emit_offset_syncs and flow.offset_syncs_location == "source"
        ),
        setting="`emit_offset_syncs`, `offset_syncs_location: source`",
    ),
    Need(
        feature="records",
        side=FlowSide.TARGET,
        kind=ResourceKind.TOPIC,
        operations=(_CREATE, _WRITE, Operation.ALTER),
        names=names.copies,
        called="the copies",
    ),
    Need(
        feature="configs of copies",
        side=FlowSide.TARGET,
        kind=ResourceKind.TOPIC,
        operations=(Operation.ALTER_CONFIGS,),
        names=names.copies,
        called="the copies",
        when=lambda flow, _: flow.sync_topic_configs,
        setting="`sync_topic_configs`",
    ),
    Need(
        feature="limits and drift of copies",
        side=FlowSide.TARGET,
        kind=ResourceKind.TOPIC,
        operations=(Operation.DESCRIBE_CONFIGS,),
        names=names.copies,
        called="the copies",
        when=lambda flow, _: not flow.sync_topic_configs,
        setting="`sync_topic_configs: false`",
    ),
    Need(
        feature="exactly once",
        side=FlowSide.TARGET,
        kind=ResourceKind.TRANSACTIONAL_ID,
        operations=(_WRITE,),
        names=lambda flow, _: (beginning(names.transactional_ids(flow)),),
        called="`mirror.<source>-><target>.` as a prefix",
        when=lambda flow, _: flow.exactly_once,
        setting="`exactly_once`",
    ),
    Need(
        feature="transactions that brokers left open",
        side=FlowSide.TARGET,
        kind=ResourceKind.TOPIC,
        operations=(_READ,),
        names=names.copies,
        called="the copies",
        when=lambda flow, _: flow.exactly_once,
        setting="`exactly_once`",
    ),
    Need(
        feature="progress",
        side=FlowSide.TARGET,
        kind=ResourceKind.TOPIC,
        operations=_KEPT,
        names=lambda flow, _: named(progress.topic_name(flow.source)),
        called=f"`{progress.topic_name('<source>')}`",
    ),
    Need(
        feature="offset map",
        side=FlowSide.TARGET,
        kind=ResourceKind.TOPIC,
        operations=_KEPT,
        names=lambda flow, _: named(runs.topic_name(flow.source, flow.separator)),
        called=f"`{runs.topic_name('<source>', '.')}`",
    ),
    Need(
        feature="loss ledger",
        side=FlowSide.TARGET,
        kind=ResourceKind.TOPIC,
        operations=(_CREATE, _WRITE),
        names=lambda flow, _: named(losses.topic_name(flow.source)),
        called=f"`{losses.topic_name('<source>')}`",
    ),
    Need(
        feature="standby",
        side=FlowSide.TARGET,
        kind=ResourceKind.TOPIC,
        operations=_KEPT,
        names=lambda flow, _: named(standby.topic_name(flow.source)),
        called=f"`{standby.topic_name('<source>')}`",
    ),
    Need(
        feature="pauses",
        side=FlowSide.TARGET,
        kind=ResourceKind.TOPIC,
        operations=(_READ,),
        names=lambda flow, _: named(pauses.topic_name(flow.source)),
        called=f"`{pauses.topic_name('<source>')}`",
    ),
    *(
        Need(
            feature="roles of pairs",
            side=side,
            kind=ResourceKind.TOPIC,
            operations=_KEPT,
            names=lambda *_: named(journal.TOPIC),
            called=f"`{journal.TOPIC}`",
            when=names.is_paired,
            setting="`recovery`",
        )
        for side in (FlowSide.SOURCE, FlowSide.TARGET)
    ),
    Need(
        feature="tails of pairs",
        side=FlowSide.TARGET,
        kind=ResourceKind.TOPIC,
        operations=(_READ,),
        names=lambda flow, _: named(losses.topic_name(flow.source)),
        called=f"`{losses.topic_name('<source>')}`",
        when=names.is_paired,
        setting="`recovery`",
    ),
    *(
        Need(
            feature="fences of pairs",
            side=FlowSide.SOURCE,
            kind=kind,
            operations=operations,
            names=which,
            called=called,
            when=names.is_fenced,
            setting="`recovery` with `fence: acl`",
        )
        for kind, operations, which, called in (
            (ResourceKind.CLUSTER, (Operation.ALTER,), names.cluster, ""),
            (
                ResourceKind.TOPIC,
                (_CREATE, _WRITE),
                lambda *_: named(acl_notes.TOPIC),
                f"`{acl_notes.TOPIC}`",
            ),
            (
                ResourceKind.TOPIC,
                (_READ,),
                names.acl_topics,
                names.CALLED_ACL_TOPICS,
            ),
        )
    ),
    *(
        Need(
            feature="proofs in the service",
            side=side,
            kind=ResourceKind.TOPIC,
            operations=operations,
            names=which,
            called=called,
            when=lambda flow, _: flow.verify != "off",
            setting="`verify`",
        )
        for side, operations, which, called in (
            (FlowSide.SOURCE, (_CONFIGS,), names.copied, "mirrored topics"),
            (FlowSide.TARGET, (_READ, _CONFIGS), names.copies, "the copies"),
            (
                FlowSide.TARGET,
                _KEPT,
                lambda flow, _: named(proofs.topic_name(flow.source)),
                f"`{proofs.topic_name('<source>')}`",
            ),
        )
    ),
    Need(
        feature="leadership",
        side=FlowSide.TARGET,
        kind=ResourceKind.GROUP,
        operations=(_READ,),
        names=lambda _, config: named(config.service.group or ""),
        called="`service.group`",
        when=lambda _, config: config.service.group is not None,
        setting="`service.group`",
    ),
    Need(
        feature="checkpoints",
        side=FlowSide.TARGET,
        kind=ResourceKind.TOPIC,
        operations=_KEPT,
        names=lambda flow, _: named(checkpoints_topic(flow.source, flow.mm2_separator)),
        called=f"`{checkpoints_topic('<source>')}`",
        when=lambda flow, _: flow.emit_checkpoints,
        setting="`emit_checkpoints`",
    ),
    Need(
        feature="group offsets",
        side=FlowSide.TARGET,
        kind=ResourceKind.GROUP,
        operations=(_READ,),
        names=names.groups,
        called="mirrored groups",
        when=lambda flow, _: flow.sync_group_offsets,
        setting="`sync_group_offsets`",
    ),
    Need(
        feature="group offsets",
        side=FlowSide.TARGET,
        kind=ResourceKind.TOPIC,
        operations=(_READ,),
        names=names.copies,
        called="the copies",
        when=lambda flow, _: flow.sync_group_offsets,
        setting="`sync_group_offsets`",
    ),
    Need(
        feature="heartbeats",
        side=FlowSide.TARGET,
        kind=ResourceKind.TOPIC,
        operations=(_CREATE, _WRITE),
        names=lambda *_: named(HEARTBEATS),
        called=f"`{HEARTBEATS}`",
        when=lambda flow, _: flow.emit_heartbeats,
        setting="`emit_heartbeats`",
    ),
    Need(
        feature="age of copied heartbeats",
        side=FlowSide.TARGET,
        kind=ResourceKind.TOPIC,
        operations=(_READ,),
        names=lambda flow, _: named(flow.replication_policy.target_topic(HEARTBEATS)),
        called=f"`<source>.{HEARTBEATS}`",
        when=lambda flow, _: flow.emit_heartbeats or flow.heartbeats_on_source,
        setting="`emit_heartbeats` or `heartbeats_on_source`",
    ),
    Need(
        feature="offset syncs",
        side=FlowSide.TARGET,
        kind=ResourceKind.TOPIC,
        operations=(_CREATE, _WRITE),
        names=lambda flow, _: named(
            offset_syncs_topic(flow.source, flow.mm2_separator)
        ),
        called="`mm2-offset-syncs.<source>.internal`",
        when=lambda flow, _: (
            flow.emit_offset_syncs and flow.offset_syncs_location == "target"
        ),
        setting="`emit_offset_syncs`, `offset_syncs_location: target`",
    ),
    Need(
        feature="ACLs of copies",
        side=FlowSide.TARGET,
        kind=ResourceKind.CLUSTER,
        operations=(Operation.ALTER,),
        names=names.cluster,
        called="",
        when=lambda flow, _: flow.sync_topic_acls,
        setting="`sync_topic_acls`",
    ),
    Need(
        feature="ACLs of copies",
        side=FlowSide.TARGET,
        kind=ResourceKind.TOPIC,
        operations=(_CREATE, _WRITE),
        names=lambda flow, _: named(acl_ownership.topic_name(flow.source)),
        called=f"`{acl_ownership.topic_name('<source>')}`",
        when=lambda flow, _: flow.sync_topic_acls,
        setting="`sync_topic_acls`",
    ),
    Need(
        feature="ACLs of copies",
        side=FlowSide.TARGET,
        kind=ResourceKind.TOPIC,
        operations=(_READ,),
        names=names.acl_topics,
        called=names.CALLED_ACL_TOPICS,
        when=lambda flow, _: flow.sync_topic_acls,
        setting="`sync_topic_acls`",
    ),
    Need(
        feature="dead letters",
        side=FlowSide.TARGET,
        kind=ResourceKind.TOPIC,
        operations=(_CREATE, _WRITE),
        names=lambda flow, _: named(flow.dead_letter_topic or ""),
        called="`dead_letter_topic`",
        when=lambda flow, _: flow.dead_letter_topic is not None,
        setting="`dead_letter_topic`",
    ),
)
