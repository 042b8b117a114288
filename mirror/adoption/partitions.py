"""Where each partition that MirrorMaker 2 has copied continues.

Main types: `Adopted`, what happens to one partition, and `AdoptionSurvey`, one look at
all of them: their logs, their copies, MirrorMaker 2's positions and its offset syncs.
It changes nothing; `resume_point` finds the place of one partition.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum
from typing import TYPE_CHECKING
import uuid

from mirror.adoption import initial_runs, resume_point
from mirror.adoption.resume_point import SideLog
from mirror.clusters import codes
from mirror.clusters.admin import topic_admin
from mirror.errors import MirrorError
from mirror.offsets import starting
from mirror.offsets.progress import Position

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from mirror.adoption.connect_offsets import KeptPositions
    from mirror.adoption.initial_runs import Pair
    from mirror.clusters.cluster import Cluster
    from mirror.config.schema import FlowConfig
    from mirror.metadata.topics import MirroredTopic
    from mirror.offsets.runs import RunArray

TopicPartition = tuple[str, int]


class Action(StrEnum):
    """The verdict on a partition."""

    CONTINUE = "CONTINUE"
    """Continue at MirrorMaker 2's position."""
    AHEAD = "AHEAD"
    """Continue after the records that it copied since it wrote its position."""
    UNSURE = "UNSURE"
    """As CONTINUE or AHEAD, and some records may be copied again."""
    BEGIN = "BEGIN"
    """It has no position: begin where the flow's `start` says."""
    RECREATED = "RECREATED"
    """Its position is beyond the source's end: the topic was re-created."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Adopted:
    """What happens to one partition."""

    topic: str
    partition: int
    target_topic: str
    action: Action
    mm2: int | None
    """The next offset by MirrorMaker 2's position; None if it has none."""
    source_end: int
    position: Position
    copied: int = 0
    """Records after MirrorMaker 2's position that are already in the copy."""
    may_repeat: int = 0
    """Records at most that may be copied again."""
    missing: int = 0
    """Records before MirrorMaker 2's position that are not at the copy's end."""
    copy_end: int = 0
    """The end of the copy's log; 0 if it is empty, or not there."""
    lost: int = 0
    """Offsets that the source deleted before they were copied."""
    runs: RunArray | None = field(default=None, repr=False)
    """The first rows of the offset map."""


class AdoptionSurvey:
    """One look at both clusters."""

    def __init__(
        self,
        flow: FlowConfig,
        source: Cluster,
        target: Cluster,
        *,
        kept: KeptPositions,
        most_records: int,
        known: Mapping[TopicPartition, Pair],
    ) -> None:
        """`known`: what the flow has copied itself, its positions and their places
        in the copies.
        """
        self._flow = flow
        self._source, self._target = source, target
        self._kept = kept
        self._most_records = most_records
        self._known = known
        self._syncs = initial_runs.read_syncs(flow, source, target)

    def resume_points(self, topics: tuple[MirroredTopic, ...]) -> tuple[Adopted, ...]:
        keys = [(t.topic, p) for t in topics for p in range(t.partitions)]
        copies = self._copies(topics)
        edges = _edges(self._source, keys)
        if missing := [key for key in keys if key not in edges]:
            topic, partition = missing[0]
            raise MirrorError(
                f"cluster {self._source.alias}: {topic}-{partition} and "
                f"{len(missing) - 1} more have no leader that answers; try again"
            )
        ends = _edges(self._target, copies.values())
        if silent := [copy for copy in copies.values() if copy not in ends]:
            raise MirrorError(
                f"cluster {self._target.alias}: {silent[0][0]}-{silent[0][1]} has no "
                "leader that answers; try again"
            )
        ids = {(t.topic, p): t.topic_id for t in topics for p in range(t.partitions)}
        new = {key: ids[key] for key in keys if key not in self._kept.last}
        starts = starting.find(
            self._source, new, starting.start_point(self._flow.start)
        )
        return tuple(
            self._adopted(
                topic,
                partition,
                edges[topic.topic, partition],
                ends.get((topic.target_topic, partition)),
                starts.get((topic.topic, partition)),
            )
            for topic in topics
            for partition in range(topic.partitions)
        )

    def _copies(
        self, topics: tuple[MirroredTopic, ...]
    ) -> dict[TopicPartition, TopicPartition]:
        """The copy of each partition that has one."""
        shown = self._target.topics({topic.target_topic for topic in topics})
        return {
            (topic.topic, partition): (topic.target_topic, partition)
            for topic in topics
            if (there := shown[topic.target_topic]).error == codes.NONE
            for partition in range(topic.partitions)
            if partition in there.leaders
        }

    def _adopted(
        self,
        topic: MirroredTopic,
        partition: int,
        edges: _Edges,
        ends: _Edges | None,
        start: Position | None,
    ) -> Adopted:
        key = (topic.topic, partition)
        last = self._kept.last.get(key)
        mm2 = None if last is None else last + 1
        recreated = mm2 is not None and mm2 > edges.end
        known = mm2 is not None and not recreated
        position = mm2 if mm2 is not None and known else edges.first
        source = SideLog(
            cluster=self._source,
            topic=topic.topic,
            partition=partition,
            first=edges.first,
            end=edges.stable,
            committed=self._flow.isolation_level == "read_committed",
        )
        copy = None if ends is None else SideLog(
            cluster=self._target,
            topic=topic.target_topic,
            partition=partition,
            first=ends.first,
            end=ends.stable,
        )  # fmt: skip
        found = resume_point.find(
            source,
            None if recreated else copy,
            position,
            exact=known and key in self._kept.exact,
            most=self._most_records,
        )
        offset = found.tail.offset
        if not known and not recreated and not found.tail.copied and start is not None:
            offset = start.offset
        return Adopted(
            topic=topic.topic,
            partition=partition,
            target_topic=topic.target_topic,
            action=(
                Action.RECREATED if recreated
                else Action.UNSURE if found.may_repeat
                else Action.AHEAD if found.tail.copied
                else Action.CONTINUE if known
                else Action.BEGIN
            ),
            mm2=mm2,
            source_end=edges.end,
            position=Position(offset=offset, topic_id=uuid.UUID(topic.topic_id)),
            copied=found.tail.copied,
            may_repeat=found.may_repeat,
            missing=found.tail.missing,
            copy_end=0 if ends is None else ends.end,
            lost=max(edges.first - offset, 0),
            runs=None if ends is None or not ends.end else initial_runs.initial_runs(
                found.tail.runs,
                self._syncs.get(key, ()),
                begins=self._known.get(key, (0, ends.first)),
                ends=(offset, ends.end),
            ),
        )  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class _Edges:
    first: int
    stable: int
    """Records of open transactions follow it."""
    end: int


def _edges(
    cluster: Cluster, partitions: Iterable[TopicPartition]
) -> dict[TopicPartition, _Edges]:
    asked = list(partitions)
    firsts = topic_admin.list_offsets(cluster, asked, timestamp=topic_admin.EARLIEST)
    stable = topic_admin.list_offsets(cluster, asked, timestamp=topic_admin.LATEST)
    ends = topic_admin.list_offsets(
        cluster, asked, timestamp=topic_admin.LATEST, committed=False
    )
    return {
        key: _Edges(first=firsts[key], stable=stable[key], end=ends[key])
        for key in firsts.keys() & stable.keys() & ends.keys()
    }
