"""The logs of copies on the target now: topic id, first offset and end.

Main function: `look`, for many partitions at once. What the offset map knows about a
deleted copy does not apply to a new one with the same name; `offset_map` compares.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from mirror.clusters import codes
from mirror.clusters.admin import topic_admin
from mirror.offsets.progress import NO_ID

if TYPE_CHECKING:
    from collections.abc import Collection
    import uuid

    from mirror.clusters.cluster import Cluster
    from mirror.clusters.topics import Topic, TopicPartition


_LOOKS = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class Log:
    """One partition of a copy."""

    topic_id: uuid.UUID | None = NO_ID
    """None: there is no such partition. NO_ID: brokers have no ids (before 2.8)."""
    start: int = 0
    """Its first offset."""
    end: int | None = None
    """After its last record; None while it has no leader to ask."""

    def within(self, offset: int) -> int:
        """The offset, or the nearest one that a reader can start at."""
        return max(self.below_end(offset), self.start)

    def below_end(self, offset: int) -> int:
        """The offset, or the log's end if that is lower."""
        return offset if self.end is None else min(offset, self.end)


def look(
    target: Cluster, partitions: Collection[TopicPartition]
) -> dict[TopicPartition, Log]:
    """The logs of these partitions; without those that we may not ask about.

    Raises:
        ClusterError: the target does not answer.
    """
    names = {topic for topic, _ in partitions}
    topics = target.topics(names)
    for _ in range(_LOOKS):
        there = [key for key in partitions if key[1] in topics[key[0]].leaders]
        starts, ends = (
            topic_admin.list_offsets(
                target, there, timestamp=timestamp, committed=False, topics=topics
            )
            for timestamp in (topic_admin.EARLIEST, topic_admin.LATEST)
        )
        before, topics = topics, target.topics(names)
        if _ids(before) == _ids(topics):
            break
    else:  # re-created at every look: unclear which topic the offsets belong to
        starts, ends = {}, {}
    return {
        key: _log(topics[key[0]], key, starts, ends)
        for key in partitions
        if topics[key[0]].error in (codes.NONE, codes.UNKNOWN_TOPIC_OR_PARTITION)
    }


def _ids(topics: dict[str, Topic]) -> dict[str, uuid.UUID]:
    return {name: topic.topic_id for name, topic in topics.items()}


def _log(
    topic: Topic,
    key: TopicPartition,
    starts: dict[TopicPartition, int],
    ends: dict[TopicPartition, int],
) -> Log:
    if key[1] not in topic.leaders:
        return Log(topic_id=None)
    return Log(topic_id=topic.topic_id, start=starts.get(key, 0), end=ends.get(key))
