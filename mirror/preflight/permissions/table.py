"""The rights that mirror needs, feature by feature, in one table.

Main name: `TABLE`, whose rows are `Need`s. It leaves out implied operations (READ and
WRITE imply DESCRIBE, ALTER_CONFIGS implies DESCRIBE_CONFIGS). `rights` applies it to a
whole configuration.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from mirror.metadata import acl_ownership
from mirror.offsets import progress, runs
from mirror.offsets.mm2_records import checkpoints_topic, offset_syncs_topic
from mirror.policy.names import HEARTBEATS
from mirror.preflight.permissions import names
from mirror.preflight.permissions.extent import beginning, extents, named
from mirror.preflight.permissions.need import Need, Operation, ResourceKind, Side, Who
from mirror.recovery import losses, pauses

if TYPE_CHECKING:
    from mirror.config.schema import FlowConfig, MirrorConfig
    from mirror.preflight.permissions.extent import Extent

_READ, _WRITE, _CREATE = Operation.READ, Operation.WRITE, Operation.CREATE
_DESCRIBE = Operation.DESCRIBE
_KEPT = (_CREATE, _READ, _WRITE)
"""For a topic that mirror creates, writes, and reads back."""


def _copied(flow: FlowConfig, config: MirrorConfig) -> tuple[Extent, ...]:
    return names.copied(flow, config.enabled_flows)


def _copies(flow: FlowConfig, config: MirrorConfig) -> tuple[Extent, ...]:
    return names.copies(flow, config.enabled_flows)


def _groups(flow: FlowConfig, _config: MirrorConfig) -> tuple[Extent, ...]:
    return extents(flow.groups)


def _cluster(_flow: FlowConfig, _config: MirrorConfig) -> tuple[Extent, ...]:
    return named(names.CLUSTER)


TABLE: tuple[Need, ...] = (
    Need(
        feature="records",
        side=Side.SOURCE,
        kind=ResourceKind.TOPIC,
        operations=(_READ,),
        names=_copied,
        called="mirrored topics",
    ),
    Need(
        feature="configs of copies",
        side=Side.SOURCE,
        kind=ResourceKind.TOPIC,
        operations=(Operation.DESCRIBE_CONFIGS,),
        names=_copied,
        called="mirrored topics",
    ),
    Need(
        feature="checkpoints",
        side=Side.SOURCE,
        kind=ResourceKind.GROUP,
        operations=(_DESCRIBE,),
        names=_groups,
        called="mirrored groups",
        when=lambda flow, _: flow.emit_checkpoints,
        setting="`emit_checkpoints`",
    ),
    Need(
        feature="ACLs of copies",
        side=Side.SOURCE,
        kind=ResourceKind.CLUSTER,
        operations=(_DESCRIBE,),
        names=_cluster,
        called="",
        when=lambda flow, _: flow.sync_topic_acls,
        setting="`sync_topic_acls`",
    ),
    Need(
        feature="ACLs that came from elsewhere",
        side=Side.SOURCE,
        kind=ResourceKind.TOPIC,
        operations=(_READ,),
        names=lambda *_: (
            beginning(acl_ownership.topic_name("").partition(".")[0] + "."),
        ),
        called="`mirror-acls.` as a prefix",
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
        side=Side.SOURCE,
        kind=ResourceKind.TOPIC,
        operations=(_CREATE, _WRITE),
        names=lambda *_: named(HEARTBEATS),
        called=f"`{HEARTBEATS}`",
        when=lambda flow, _: flow.heartbeats_on_source,
        setting="`heartbeats_on_source`",
    ),
    Need(
        feature="offset syncs",
        side=Side.SOURCE,
        kind=ResourceKind.TOPIC,
        operations=(_CREATE, _WRITE),
        names=lambda flow, _: named(offset_syncs_topic(flow.target, flow.separator)),
        called="`mm2-offset-syncs.<target>.internal`",
        when=lambda flow, _: (
            flow.emit_offset_syncs and flow.offset_syncs_location == "source"
        ),
        setting="`emit_offset_syncs`, `offset_syncs_location: source`",
    ),
    Need(
        feature="records",
        side=Side.TARGET,
        kind=ResourceKind.TOPIC,
        operations=(_CREATE, _WRITE, Operation.ALTER),
        names=_copies,
        called="the copies",
    ),
    Need(
        feature="configs of copies",
        side=Side.TARGET,
        kind=ResourceKind.TOPIC,
        operations=(Operation.ALTER_CONFIGS,),
        names=_copies,
        called="the copies",
        when=lambda flow, _: flow.sync_topic_configs,
        setting="`sync_topic_configs`",
    ),
    Need(
        feature="limits and drift of copies",
        side=Side.TARGET,
        kind=ResourceKind.TOPIC,
        operations=(Operation.DESCRIBE_CONFIGS,),
        names=_copies,
        called="the copies",
        when=lambda flow, _: not flow.sync_topic_configs,
        setting="`sync_topic_configs: false`",
    ),
    Need(
        feature="exactly once",
        side=Side.TARGET,
        kind=ResourceKind.TRANSACTIONAL_ID,
        operations=(_WRITE,),
        names=lambda flow, _: (beginning(names.transactional_ids(flow)),),
        called="`mirror.<source>-><target>.` as a prefix",
        when=lambda flow, _: flow.exactly_once,
        setting="`exactly_once`",
    ),
    Need(
        feature="transactions that brokers left open",
        side=Side.TARGET,
        kind=ResourceKind.TOPIC,
        operations=(_READ,),
        names=_copies,
        called="the copies",
        when=lambda flow, _: flow.exactly_once,
        setting="`exactly_once`",
    ),
    Need(
        feature="progress",
        side=Side.TARGET,
        kind=ResourceKind.TOPIC,
        operations=_KEPT,
        names=lambda flow, _: named(progress.topic_name(flow.source)),
        called=f"`{progress.topic_name('<source>')}`",
    ),
    Need(
        feature="offset map",
        side=Side.TARGET,
        kind=ResourceKind.TOPIC,
        operations=(*_KEPT, Operation.ALTER_CONFIGS),
        names=lambda flow, _: named(runs.topic_name(flow.source, flow.separator)),
        called=f"`{runs.topic_name('<source>', '.')}`",
    ),
    Need(
        feature="loss ledger",
        side=Side.TARGET,
        kind=ResourceKind.TOPIC,
        operations=(_CREATE, _WRITE),
        names=lambda flow, _: named(losses.topic_name(flow.source)),
        called=f"`{losses.topic_name('<source>')}`",
    ),
    Need(
        feature="pauses",
        side=Side.TARGET,
        kind=ResourceKind.TOPIC,
        operations=(_READ,),
        names=lambda flow, _: named(pauses.topic_name(flow.source)),
        called=f"`{pauses.topic_name('<source>')}`",
    ),
    Need(
        feature="leadership",
        side=Side.TARGET,
        kind=ResourceKind.GROUP,
        operations=(_READ,),
        names=lambda _, config: named(config.service.group or ""),
        called="`service.group`",
        when=lambda _, config: config.service.group is not None,
        setting="`service.group`",
    ),
    Need(
        feature="checkpoints",
        side=Side.TARGET,
        kind=ResourceKind.TOPIC,
        operations=_KEPT,
        names=lambda flow, _: named(checkpoints_topic(flow.source, flow.separator)),
        called=f"`{checkpoints_topic('<source>')}`",
        when=lambda flow, _: flow.emit_checkpoints,
        setting="`emit_checkpoints`",
    ),
    Need(
        feature="group offsets",
        side=Side.TARGET,
        kind=ResourceKind.GROUP,
        operations=(_READ,),
        names=_groups,
        called="mirrored groups",
        when=lambda flow, _: flow.sync_group_offsets,
        setting="`sync_group_offsets`",
    ),
    Need(
        feature="group offsets",
        side=Side.TARGET,
        kind=ResourceKind.TOPIC,
        operations=(_READ,),
        names=_copies,
        called="the copies",
        when=lambda flow, _: flow.sync_group_offsets,
        setting="`sync_group_offsets`",
    ),
    Need(
        feature="heartbeats",
        side=Side.TARGET,
        kind=ResourceKind.TOPIC,
        operations=(_CREATE, _WRITE),
        names=lambda *_: named(HEARTBEATS),
        called=f"`{HEARTBEATS}`",
        when=lambda flow, _: flow.emit_heartbeats,
        setting="`emit_heartbeats`",
    ),
    Need(
        feature="age of copied heartbeats",
        side=Side.TARGET,
        kind=ResourceKind.TOPIC,
        operations=(_READ,),
        names=lambda flow, _: named(flow.replication_policy.target_topic(HEARTBEATS)),
        called=f"`<source>.{HEARTBEATS}`",
        when=lambda flow, _: flow.emit_heartbeats or flow.heartbeats_on_source,
        setting="`emit_heartbeats` or `heartbeats_on_source`",
    ),
    Need(
        feature="offset syncs",
        side=Side.TARGET,
        kind=ResourceKind.TOPIC,
        operations=(_CREATE, _WRITE),
        names=lambda flow, _: named(offset_syncs_topic(flow.source, flow.separator)),
        called="`mm2-offset-syncs.<source>.internal`",
        when=lambda flow, _: (
            flow.emit_offset_syncs and flow.offset_syncs_location == "target"
        ),
        setting="`emit_offset_syncs`, `offset_syncs_location: target`",
    ),
    Need(
        feature="ACLs of copies",
        side=Side.TARGET,
        kind=ResourceKind.CLUSTER,
        operations=(Operation.ALTER,),
        names=_cluster,
        called="",
        when=lambda flow, _: flow.sync_topic_acls,
        setting="`sync_topic_acls`",
    ),
    Need(
        feature="ACLs of copies",
        side=Side.TARGET,
        kind=ResourceKind.TOPIC,
        operations=(_CREATE, _WRITE),
        names=lambda flow, _: named(acl_ownership.topic_name(flow.source)),
        called=f"`{acl_ownership.topic_name('<source>')}`",
        when=lambda flow, _: flow.sync_topic_acls,
        setting="`sync_topic_acls`",
    ),
    Need(
        feature="ACLs of copies",
        side=Side.TARGET,
        kind=ResourceKind.TOPIC,
        operations=(_READ,),
        names=lambda *_: (
            beginning(acl_ownership.topic_name("").partition(".")[0] + "."),
        ),
        called="`mirror-acls.` as a prefix",
        when=lambda flow, _: flow.sync_topic_acls,
        setting="`sync_topic_acls`",
    ),
    Need(
        feature="dead letters",
        side=Side.TARGET,
        kind=ResourceKind.TOPIC,
        operations=(_CREATE, _WRITE),
        names=lambda flow, _: named(flow.dead_letter_topic or ""),
        called="`dead_letter_topic`",
        when=lambda flow, _: flow.dead_letter_topic is not None,
        setting="`dead_letter_topic`",
    ),
    Need(
        feature="mirror pause, mirror resume",
        side=Side.TARGET,
        kind=ResourceKind.TOPIC,
        operations=(_CREATE, _WRITE),
        names=lambda flow, _: named(pauses.topic_name(flow.source)),
        called=f"`{pauses.topic_name('<source>')}`",
        who=Who.COMMANDS,
    ),
    Need(
        feature="mirror loss list",
        side=Side.TARGET,
        kind=ResourceKind.TOPIC,
        operations=(_READ,),
        names=lambda flow, _: named(losses.topic_name(flow.source)),
        called=f"`{losses.topic_name('<source>')}`",
        who=Who.COMMANDS,
    ),
    Need(
        feature="mirror group",
        side=Side.TARGET,
        kind=ResourceKind.GROUP,
        operations=(_DESCRIBE,),
        names=_groups,
        called="mirrored groups",
        who=Who.COMMANDS,
    ),
    Need(
        feature="where a group goes on",
        side=Side.TARGET,
        kind=ResourceKind.TOPIC,
        operations=(_READ,),
        names=lambda flow, _: named(checkpoints_topic(flow.source, flow.separator)),
        called=f"`{checkpoints_topic('<source>')}`",
        when=lambda flow, _: flow.emit_checkpoints,
        setting="`emit_checkpoints`",
        who=Who.CLIENTS,
    ),
    Need(
        feature="clusters and hops",
        side=Side.TARGET,
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
