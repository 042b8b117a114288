"""Counts what applications write to the passive cluster of a pair.

Main type: `PassiveWrites`, for one role. Only applications write to the topics that the
flow out of a cluster copies, so each offset behind the one at which the cluster became
passive is a record of theirs, or the marker of their transaction. That offset is the
cut of the switch; after a failover it is the first one with a later timestamp. Topics
that the flow back writes as well are left out: there ends alone do not tell who wrote.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from mirror.clusters.admin import topic_admin
from mirror.pairs import roles
from mirror.pairs.source_ends import SourceEnds
from mirror.topics.topics import select

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from mirror.clusters.cluster import Cluster
    from mirror.clusters.topics import TopicPartition
    from mirror.config.schema import FlowConfig
    from mirror.pairs.ends import TopicEnds
    from mirror.pairs.journal import Entry


class PassiveWrites:
    """Those since one role began. Not thread-safe."""

    def __init__(self, entries: Sequence[Entry]) -> None:
        """`entries` of the pair, with the role."""
        made = roles.newest_role(entries)
        assert made is not None, "a pair without a role has no passive cluster"
        self.epoch = made.epoch
        self._since_ms = round(made.at * 1000)
        self._cut = roles.cut(roles.run_of(made, entries).details("fence"))
        self._starts: dict[TopicPartition, int] = {}
        self._ends = SourceEnds()

    def look(
        self, passive: Cluster, flow: FlowConfig, back: FlowConfig, *, at: float
    ) -> int | None:
        """How many offsets there are so far; None if no topic tells. `flow` out of the
        passive cluster and the one `back`; `at`: now.

        Raises:
            ClusterError: the cluster does not answer.
        """
        matching = [each.topic for each in select(passive, flow).topics]
        names = of_applications(matching, back)
        if not names:
            return None
        found = ends(self._ends.look(passive, names, at=at))
        unknown = [key for key in found if key not in self._starts]
        if self._cut is not None:
            self._starts |= {key: self._cut.get(key, 0) for key in unknown}
        else:
            first = topic_admin.list_offsets(passive, unknown, timestamp=self._since_ms)
            self._starts |= {
                key: offset for key, offset in first.items() if offset >= 0
            }
        return written(self._starts, found)


def of_applications(topics: Iterable[str], back: FlowConfig) -> list[str]:
    """The topics to which neither mirror (heartbeats) nor the flow back writes."""
    policy = back.replication_policy
    return [
        name
        for name in topics
        if not back.is_heartbeats(name) and policy.upstream_topic(name) is None
    ]


def ends(found: dict[str, TopicEnds]) -> dict[TopicPartition, int]:
    """By partition, of those that are known."""
    return {
        (topic, number): partition.end
        for topic, each in found.items()
        for number, partition in enumerate(each.partitions)
        if partition.end >= 0
    }


def written(starts: dict[TopicPartition, int], found: dict[TopicPartition, int]) -> int:
    """The offsets between both; all of a topic that was deleted and is there again."""
    return sum(
        end - start if end >= start else end
        for key, end in found.items()
        if (start := starts.get(key)) is not None
    )
