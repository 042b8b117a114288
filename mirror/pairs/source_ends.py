"""Asks the source where its partitions end.

Main type: `SourceEnds`: one request per leader and look, and one for the topics' ids.
Offsets are asked for by name, so an answer counts only if the name meant the same topic
before and after, and not if a newer leader has answered before.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from mirror.clusters.admin import topic_admin
from mirror.errors import NoLeaderError, UnreachableError
from mirror.pairs.ends import UNHEARD, PartitionEnd, TopicEnds

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping

    from mirror.clusters.cluster import Cluster
    from mirror.clusters.topics import Leader, Topic, TopicPartition


@dataclass(frozen=True, slots=True, kw_only=True)
class Details:
    """More about partitions that are not completely copied."""

    stable: Mapping[TopicPartition, int]
    starts: Mapping[TopicPartition, int]


class SourceEnds:
    """The ends of some topics' partitions, look by look. Not thread-safe."""

    def __init__(self, known: Mapping[str, TopicEnds] | None = None) -> None:
        """`known`: from earlier looks, for partitions that do not answer."""
        self._known = dict(known or {})
        self._topics: Mapping[str, Topic] = {}

    def look(
        self, source: Cluster, names: Collection[str], *, at: float
    ) -> dict[str, TopicEnds]:
        """The ends now, `at` this time or later. Partitions that do not answer are as
        they last were.

        Raises:
            ClusterError: the source does not answer.
        """
        before, self._topics = self._topics, {}
        if not before.keys() >= set(names):
            before = source.topics(names)
        there = [
            (name, partition) for name in names for partition in before[name].leaders
        ]
        ends, refusals = _ask(
            source, there, before, topic_admin.LATEST, committed=False
        )
        if there and not ends:
            raise (
                refusals[0]
                if refusals
                else NoLeaderError(
                    f"{source.alias}: no leader says where its partitions end"
                )
            )
        self._topics = source.topics(names)
        self._known = {
            name: found
            for name in names
            if (found := self._of_topic(name, before[name], ends, at)) is not None
        }
        return dict(self._known)

    def improve(
        self, changed: Mapping[str, Mapping[int, PartitionEnd]]
    ) -> dict[str, TopicEnds]:
        """Take these instead of what the look found; returns all."""
        for name, by_number in changed.items():
            found = self._known[name]
            self._known[name] = replace(
                found,
                partitions=tuple(
                    by_number.get(number, each)
                    for number, each in enumerate(found.partitions)
                ),
            )
        return dict(self._known)

    def details(
        self,
        source: Cluster,
        incomplete: Iterable[TopicPartition],
        far: Iterable[TopicPartition],
    ) -> Details:
        """The last stable offsets of partitions that are not completely copied, and the
        first ones of those `far` behind, as far as their leaders answer.
        """
        topics = self._topics
        stable, _ = _ask(source, incomplete, topics, topic_admin.LATEST)
        starts, _ = _ask(source, far, topics, topic_admin.EARLIEST)
        return Details(stable=stable, starts=starts)

    def _of_topic(
        self, name: str, topic: Topic, ends: Mapping[TopicPartition, int], at: float
    ) -> TopicEnds | None:
        known = self._known.get(name)
        if topic.error or topic.topic_id != self._topics[name].topic_id:
            return known
        last: tuple[PartitionEnd, ...] = ()
        if known is not None and known.topic_id == topic.topic_id.hex:
            last = known.partitions
        count = max(topic.leaders, default=-1) + 1
        last += (UNHEARD,) * (count - len(last))
        return TopicEnds(
            topic_id=topic.topic_id.hex,
            partitions=tuple(
                _newest(before, ends.get((name, number)), topic.leaders.get(number), at)
                for number, before in enumerate(last)
            ),
        )


def _ask(
    source: Cluster,
    partitions: Iterable[TopicPartition],
    topics: Mapping[str, Topic],
    timestamp: int,
    *,
    committed: bool = True,
) -> tuple[dict[TopicPartition, int], list[UnreachableError]]:
    """Offsets from the leaders that answer, and why others do not."""
    by_node: dict[int, list[TopicPartition]] = {}
    for topic, number in partitions:
        leader = topics[topic].leaders.get(number)
        if leader is not None and leader.node >= 0:
            by_node.setdefault(leader.node, []).append((topic, number))
    found: dict[TopicPartition, int] = {}
    refusals = []
    for asked in by_node.values():
        try:
            found |= topic_admin.list_offsets(
                source, asked, timestamp=timestamp, committed=committed, topics=topics
            )
        except UnreachableError as error:
            refusals.append(error)
    return found, refusals


def _newest(
    last: PartitionEnd, end: int | None, leader: Leader | None, at: float
) -> PartitionEnd:
    if end is None or leader is None or leader.epoch < last.epoch:
        return last
    return PartitionEnd(
        end=end, stable=end, start=last.start, epoch=leader.epoch, at=at
    )
