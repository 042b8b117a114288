"""mirror's own topics: where it keeps state, and what it writes for others.

The one declaration of them. Main types: `Kind`, what all topics of a kind have in
common, and `OwnTopic`, one as a flow has it. `of_run` and `of_flow` list those of a
flow, `left_by` those that it may have left behind; whatever creates, examines, plans or
deletes such a topic goes by these. Pure; `topics.guarding` examines and corrects.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum, auto
from typing import TYPE_CHECKING

from mirror.policy.naming import HEARTBEATS as _HEARTBEATS

if TYPE_CHECKING:
    from collections.abc import Mapping

    from mirror.config.schema import FlowConfig, MirrorConfig

POLICY, RETENTION = "cleanup.policy", "retention.ms"
IN_SYNC, LARGEST = "min.insync.replicas", "max.message.bytes"
FOR_EVER = "-1"
_SAFE_REPLICAS, _SAFE_IN_SYNC = 3, "2"
"""From so many replicas on, so many must have a record before it counts."""

_COMPACTED = {POLICY: "compact"}
_READ_AS_A_WHOLE = {
    **_COMPACTED,
    # Small segments: a take-over reads the whole topic, so compaction must be quick.
    "segment.bytes": str(8 << 20),
    "min.cleanable.dirty.ratio": "0.1",
    # The markers of transactions outlive their records by this time, by a day if it is
    # not set: of 800 transactions a second that would be 5 GB to read.
    "delete.retention.ms": "600000",
    LARGEST: str(4 << 20),
}
TUNING = frozenset(
    {"segment.bytes", "min.cleanable.dirty.ratio", "delete.retention.ms", LARGEST}
)
"""What a topic can do without, where a service refuses it."""
_KEPT_FOR_EVER = {POLICY: "delete", RETENTION: FOR_EVER}


class Guard(Enum):
    """What happens to a topic whose configs may lose what mirror keeps there."""

    VITAL = auto()
    """Corrected; while it cannot be, no run of the flow copies."""
    KEPT = auto()
    """Corrected; while it cannot be, that is a problem of the flow."""
    NONE = auto()
    """Never examined: nothing is lost with it, or it is the user's own."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Kind:
    """What all topics of a kind have in common. They have one partition: mirror writes
    and reads partition 0, so more of them do no harm.
    """

    purpose: str
    pattern: str
    """Of the name, with `{alias}` and `{separator}` of the flow."""
    configs: Mapping[str, str]
    guard: Guard = Guard.KEPT
    as_copies: bool = False
    """Whether it is kept as long as the copies: `offsets.retention` sets for how
    long."""

    def named(self, alias: str = "", separator: str = ".") -> str:
        """The name for a flow, by the alias of its source, or of its other end."""
        return self.pattern.format(alias=alias, separator=separator)

    def alias_in(self, name: str) -> str | None:
        """The alias in the name of a topic of this kind, whose pattern has no
        separator; None: it is of no such topic.
        """
        start, end = self.pattern.split("{alias}")
        if not (name.startswith(start) and name.endswith(end)):
            return None
        return name.removeprefix(start).removesuffix(end)

    def created(self, replicas: int) -> dict[str, str]:
        """The configs of a new one. -1 replicas: how many there will be is not known
        yet; the guard sets the rest once it sees them.
        """
        return {**self.configs, **in_sync(replicas)}

    def of(self, flow: FlowConfig) -> OwnTopic:
        """On the flow's target, with as many replicas as its copies."""
        return self.on(
            flow.target,
            self.named(flow.source, flow.separator),
            flow.replication_factor,
        )

    def on(self, alias: str, name: str, replicas: int) -> OwnTopic:
        return OwnTopic(kind=self, alias=alias, name=name, replicas=replicas)


@dataclass(frozen=True, slots=True, kw_only=True)
class OwnTopic:
    """One of mirror's own topics."""

    kind: Kind
    alias: str
    """Of its cluster."""
    name: str
    replicas: int
    """-1: the brokers' default."""

    @property
    def configs(self) -> dict[str, str]:
        """Those that it is created with."""
        return self.kind.created(self.replicas)


PROGRESS = Kind(
    purpose="progress",
    pattern="mirror-progress.{alias}.internal",
    configs=_READ_AS_A_WHOLE,
    guard=Guard.VITAL,
)
OFFSET_MAP = Kind(
    purpose="offset map",
    pattern="{alias}{separator}offset-map{separator}internal",
    configs=_KEPT_FOR_EVER,
    guard=Guard.VITAL,
    as_copies=True,
)
LOSSES = Kind(
    purpose="loss ledger",
    pattern="mirror-losses.{alias}.internal",
    configs=_KEPT_FOR_EVER,
)
STANDBY = Kind(
    purpose="standby",
    pattern="mirror-standby.{alias}.internal",
    configs=_READ_AS_A_WHOLE,
)
CHECKPOINTS = Kind(
    purpose="checkpoints",
    pattern="{alias}{separator}checkpoints{separator}internal",
    configs=_COMPACTED,
)
HEARTBEATS = Kind(
    purpose="heartbeats", pattern=_HEARTBEATS, configs=_COMPACTED, guard=Guard.NONE
)
OFFSET_SYNCS = Kind(
    purpose="offset syncs",
    pattern="mm2-offset-syncs{separator}{alias}{separator}internal",
    configs=_COMPACTED,
)
DEAD_LETTERS = Kind(purpose="dead letters", pattern="", configs={}, guard=Guard.NONE)
CONTROL = Kind(
    purpose="pauses",
    pattern="mirror-control.{alias}.internal",
    configs=_COMPACTED,
)
PROOFS = Kind(
    purpose="proofs", pattern="mirror-proofs.{alias}.internal", configs=_COMPACTED
)
ACL_CLAIMS = Kind(
    purpose="ACLs added", pattern="mirror-acls.{alias}.internal", configs=_COMPACTED
)
ACL_NOTES = Kind(
    purpose="changes of ACLs", pattern="mirror-acls.internal", configs=_COMPACTED
)
SCHEMA_CLAIMS = Kind(
    purpose="schemas copied",
    pattern="mirror-schemas.{alias}.internal",
    configs=_COMPACTED,
)
JOURNAL = Kind(
    purpose="journal of pairs",
    pattern="mirror-journal.internal",
    # One entry may note many groups, partitions and ACLs.
    configs={**_KEPT_FOR_EVER, LARGEST: str(16 << 20)},
    guard=Guard.VITAL,
)
AUDIT = Kind(
    purpose="audit",
    pattern="",
    configs={POLICY: "delete", RETENTION: str(365 * 86_400_000)},
    guard=Guard.NONE,
)


def in_sync(replicas: int) -> dict[str, str]:
    """What a topic with so many replicas needs so that a record that was acknowledged
    outlives a broker.
    """
    return {IN_SYNC: _SAFE_IN_SYNC} if replicas >= _SAFE_REPLICAS else {}


def of_run(flow: FlowConfig) -> tuple[OwnTopic, ...]:
    """All that a run of the flow creates, whatever there is to copy."""
    found = [kind.of(flow) for kind in (PROGRESS, OFFSET_MAP, LOSSES, STANDBY)]
    if flow.emit_checkpoints:
        found.append(checkpoints(flow))
    found += [heartbeats(flow, alias) for alias in heartbeats_on(flow)]
    if flow.emit_offset_syncs:
        found.append(offset_syncs(flow))
    if flow.dead_letter_topic is not None:
        found.append(
            DEAD_LETTERS.on(
                flow.target, flow.dead_letter_topic, flow.replication_factor
            )
        )
    return tuple(found)


def of_flow(config: MirrorConfig, flow: FlowConfig) -> tuple[OwnTopic, ...]:
    """All that there may be for the flow with its settings, on either cluster. The
    first record creates those that `of_run` leaves out.
    """
    found = [*of_run(flow), CONTROL.of(flow)]
    if flow.verify != "off":
        found.append(PROOFS.of(flow))
    if flow.sync_topic_acls:
        found.append(ACL_CLAIMS.of(flow))
    if flow.protect == "acl":
        replicas = config.clusters[flow.target].own_replicas
        found.append(ACL_NOTES.on(flow.target, ACL_NOTES.named(), replicas))
    if flow.schemas != "off":
        found.append(SCHEMA_CLAIMS.of(flow))
    pairs = config.pairs_of(flow.source, flow.target)
    shared = [JOURNAL] if pairs else []
    if any(pair.fence == "acl" for pair in pairs):
        shared.append(ACL_NOTES)
    found += [
        kind.on(alias, kind.named(), config.clusters[alias].own_replicas)
        for kind in shared
        for alias in (flow.source, flow.target)
    ]
    return tuple(found)


def left_by(flow: FlowConfig) -> tuple[OwnTopic, ...]:
    """All that the flow may have written, whatever its settings were, on either
    cluster; other flows may write some of it as well. Progress is the last one.
    """
    ends = (flow.source, flow.target)
    kinds = OFFSET_MAP, LOSSES, STANDBY, CONTROL, PROOFS, ACL_CLAIMS, SCHEMA_CLAIMS
    separators = dict.fromkeys((flow.mm2_separator, "."))
    of_mm2 = [
        CHECKPOINTS.on(flow.target, CHECKPOINTS.named(flow.source, each), -1)
        for each in separators
    ] + [
        OFFSET_SYNCS.on(here, OFFSET_SYNCS.named(there, each), -1)
        for each in separators
        for here, there in (ends, ends[::-1])
    ]
    beats = [heartbeats(flow, alias) for alias in ends]
    own = [kind.of(flow) for kind in kinds]
    return (*of_mm2, *beats, *own, PROGRESS.of(flow))


def checkpoints(flow: FlowConfig) -> OwnTopic:
    name = CHECKPOINTS.named(flow.source, flow.mm2_separator)
    replicas = _chosen(flow.checkpoints_replication_factor, flow)
    return CHECKPOINTS.on(flow.target, name, replicas)


def heartbeats(flow: FlowConfig, alias: str) -> OwnTopic:
    """On one of the flow's clusters."""
    replicas = _chosen(flow.heartbeats_replication_factor, flow)
    return HEARTBEATS.on(alias, HEARTBEATS.named(), replicas)


def heartbeats_on(flow: FlowConfig) -> tuple[str, ...]:
    """The clusters to which the flow writes heartbeats."""
    target = (flow.target,) if flow.emit_heartbeats else ()
    return (*target, flow.source) if flow.heartbeats_on_source else target


def offset_syncs(flow: FlowConfig) -> OwnTopic:
    """On the side that the flow's settings choose."""
    ends = (flow.source, flow.target)
    here, there = ends if flow.offset_syncs_location == "source" else ends[::-1]
    name = OFFSET_SYNCS.named(there, flow.mm2_separator)
    replicas = _chosen(flow.offset_syncs_replication_factor, flow)
    return OFFSET_SYNCS.on(here, name, replicas)


def _chosen(replicas: int | None, flow: FlowConfig) -> int:
    return flow.replication_factor if replicas is None else replicas
