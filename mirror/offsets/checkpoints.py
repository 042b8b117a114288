"""Checkpoints: where groups stand on both sides, kept on the target for everybody.

Main type: `Checkpoints`, which writes what moved since its last round, and remembers
what it wrote; after a restart it reads that from the topic. A group that is gone from
the source leaves this memory and is not written again. Its records stay: a tombstone
would break Java's client. Outside the data's transactions, since Java reads
uncommitted records. Setting groups' offsets on the target is `group_sync`'s duty.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import structlog

from mirror.batches.reading import TopicReader
from mirror.batches.writing import TopicWriter, ensure_topic
from mirror.clusters import codes
from mirror.errors import CorruptBatchError
from mirror.offsets.mm2_records import TOPIC_CONFIGS, Checkpoint, checkpoints_topic

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    import uuid

    from mirror.clusters.cluster import Cluster
    from mirror.offsets.groups import Place, Standing

log = structlog.get_logger()

TopicPartition = tuple[str, int]
Known = dict[str, dict[TopicPartition, Checkpoint]]
"""Per group, the checkpoint of each target partition."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckpointsResult:
    """What one round did."""

    written: int
    known: Mapping[str, Mapping[TopicPartition, Checkpoint]]
    """What holds now, of the groups that the source has."""
    found: tuple[str, ...] = ()
    """Groups that have their first checkpoints."""
    gone: tuple[str, ...] = ()
    """Groups that were there in the round before, and are not any more."""
    withdrawn: Mapping[str, Mapping[TopicPartition, int]] = field(default_factory=dict)
    """Target offsets of earlier checkpoints that no longer hold, since the copy was
    re-created or lost its end."""


class Checkpoints:
    """The checkpoints of one flow. Not thread-safe."""

    def __init__(
        self, source_alias: str, *, separator: str = ".", replication_factor: int = -1
    ) -> None:
        """`replication_factor`: of the topic, if it has to be made."""
        self._topic = checkpoints_topic(source_alias, separator)
        self._replication_factor = replication_factor
        self._target: Cluster | None = None
        self._writer: TopicWriter | None = None
        self._topic_id: uuid.UUID | None = None
        self._known: Known = {}

    def sync(self, target: Cluster, standing: Standing) -> CheckpointsResult:
        """Write the checkpoints that are due.

        Raises:
            MirrorError: they are not written, or only some: the next round goes on.
        """
        first = self._writer is None or self._target is not target
        if first or self._topic_id != self._present_id(target):
            ensure_topic(
                target,
                self._topic,
                replication_factor=self._replication_factor,
                configs=TOPIC_CONFIGS,
            )
            self._topic_id = self._present_id(target)
            self._known = read(target, self._topic)
            self._target, self._writer = target, TopicWriter(target, self._topic)
        assert self._writer is not None
        changed, known = decide(self._known, standing)
        self._writer.write([checkpoint.encode() for checkpoint in changed])
        last, self._known = self._known, known
        return CheckpointsResult(
            written=len(changed),
            known=known,
            found=tuple(sorted(g for g in known if known[g] and not last.get(g))),
            # What the topic holds from earlier runs may have been gone for long.
            gone=() if first else tuple(sorted(last.keys() - known.keys())),
            withdrawn=_withdrawn(changed, last),
        )

    def _present_id(self, target: Cluster) -> uuid.UUID:
        return target.topics([self._topic])[self._topic].topic_id


def decide(before: Known, standing: Standing) -> tuple[list[Checkpoint], Known]:
    """The checkpoints that are due, and what holds when they are written."""
    changed: list[Checkpoint] = []
    known: Known = {}
    for group, places in standing.places.items():
        last = before.get(group, {})
        known[group] = {}
        for place in places:
            if place.downstream < 0:
                continue
            key = (place.target_topic, place.partition)
            previous = last.get(key)
            if previous is not None and _same(previous, place):
                known[group][key] = previous
                continue
            now = _checkpoint(group, place)
            if due(previous, now, renewed=place.translated.renewed):
                changed.append(now)
                known[group][key] = now
            elif previous is not None:
                known[group][key] = previous
    return changed, known


def _withdrawn(
    changed: Iterable[Checkpoint], before: Known
) -> dict[str, dict[TopicPartition, int]]:
    """Where checkpoints stood that went back although their groups did not."""
    found: dict[str, dict[TopicPartition, int]] = {}
    for now in changed:
        key = (now.topic, now.partition)
        last = before.get(now.group, {}).get(key)
        if (
            last is not None
            and now.downstream < last.downstream
            and now.upstream >= last.upstream
        ):
            found.setdefault(now.group, {})[key] = last.downstream
    return found


def due(previous: Checkpoint | None, now: Checkpoint, *, renewed: bool = False) -> bool:
    """Whether a checkpoint has to be written: the first one, a group that moved on, or
    one that was rewound on the source, or whose copy is another one (`renewed`).
    Nothing else moves it backwards.
    """
    if previous is None or now.upstream < previous.upstream:
        return True
    if now.downstream == previous.downstream:
        return now.upstream > previous.upstream
    return renewed or now.downstream > previous.downstream


def _same(known: Checkpoint, place: Place) -> bool:
    return known.upstream == place.upstream and known.downstream == place.downstream


def read(target: Cluster, topic: str) -> Known:
    """All that a checkpoints topic holds; nothing, if there is no such topic.

    Raises:
        ClusterError: the target does not answer, or refuses.
    """
    shown = target.topics([topic])[topic]
    if shown.error == codes.UNKNOWN_TOPIC_OR_PARTITION:
        return {}
    if shown.error != codes.NONE:
        raise codes.error_for(shown.error, f"cluster {target.alias}: reading {topic}")
    known: Known = {}
    for _, key, value in TopicReader(target, topic, committed=False).read():
        try:
            found = Checkpoint.decode(key, value)
        except CorruptBatchError as error:
            # Java's client passes over such a record, too.
            log.warning("checkpoint passed over", topic=topic, error=str(error))
            continue
        known.setdefault(found.group, {})[found.topic, found.partition] = found
    return known


def _checkpoint(group: str, place: Place) -> Checkpoint:
    return Checkpoint(
        group=group,
        topic=place.target_topic,
        partition=place.partition,
        upstream=place.upstream,
        downstream=place.downstream,
        metadata=place.metadata,
    )
