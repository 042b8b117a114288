"""Transactions that their coordinator has ended, and some partition has not.

Brokers 4.x leave a partition out that has no leader at the moment when a transaction
ends: its marker never comes. The transaction stays open there for good and hides all
that comes behind it from `read_committed`, until the next end of a transaction of the
same producer there ends it as well, whatever had become of it.
Main type: `Endings`, which has the missing markers written: once a producer's id is
taken over, an open transaction of it is such a one. The missed partitions become part
of one more transaction, which ends as the first one did; so rights to write suffice.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from typing import TYPE_CHECKING

from kafka.protocol.admin import DescribeProducersRequest

from mirror.clusters import codes

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping, Sequence

    from mirror.clusters.cluster import Cluster
    from mirror.clusters.topics import Topic
    from mirror.clusters.transactions import Producer

TopicPartition = tuple[str, int]


@dataclass(frozen=True, slots=True, kw_only=True)
class Hanging:
    """A transaction that was open in partitions after its end."""

    transactional_id: str
    partitions: tuple[TopicPartition, ...]
    committed: bool | None
    """How it ended, now in these partitions, too; None: that is not known any more,
    and it is still open."""

    @property
    def text(self) -> str:
        """For a log: which, where, and what has become of it."""
        where = ", ".join(f"{topic}-{number}" for topic, number in self.partitions)
        which = f"a transaction of {self.transactional_id} was left open in {where}"
        if self.committed is None:
            return (
                f"{which}, and the brokers no longer know whether it was committed. "
                "It hides what comes behind it, and nothing is written there until you "
                "end it with `kafka-transactions.sh abort`; if it was committed, "
                "`mirror flow reset` to before it copies its records again"
            )
        return f"{which}; it is {'committed' if self.committed else 'aborted'} there"


class Endings:
    """How transactions of some producers ended, until all partitions know."""

    def __init__(self, cluster: Cluster, producers: Sequence[Producer]) -> None:
        self._cluster = cluster
        self._producers = producers
        self._missed: dict[tuple[Producer, TopicPartition], bool | None] = {}
        """What partitions without a leader have yet to be asked for."""

    def complete(
        self, topics: Mapping[str, Topic], partitions: Collection[TopicPartition]
    ) -> list[Hanging]:
        """Right after the producers were taken over, end what their transactions left
        open in these partitions. What has no leader now waits for the next call; what
        we may not read is left alone.

        Raises:
            ClusterError: a broker does not answer, or refuses.
        """
        asked = _by_leader(topics, partitions)
        reached = {
            (topic, number)
            for names in asked.values()
            for topic, numbers in names.items()
            for number in numbers
        }
        for key in set(partitions) - reached:
            for producer in self._producers:
                self._missed.setdefault((producer, key), producer.committed_last)
        left_open = _open(self._cluster, asked)
        found = []
        for producer in self._producers:
            known = producer.committed_last
            ends: defaultdict[bool | None, list[TopicPartition]] = defaultdict(list)
            for key in sorted(left_open.get(producer.producer_id, ())):
                ends[self._missed.get((producer, key), known)].append(key)
            for committed, where in ends.items():
                if committed is not None:
                    producer.end_also(where, committed=committed)
                found.append(
                    Hanging(
                        transactional_id=producer.transactional_id or "",
                        partitions=tuple(where),
                        committed=committed,
                    )
                )
        for key in reached:
            for producer in self._producers:
                self._missed.pop((producer, key), None)
        return found


def _open(
    cluster: Cluster, asked: Mapping[int, Mapping[str, Sequence[int]]]
) -> dict[int, set[TopicPartition]]:
    """Where each producer has a transaction open, of the partitions by leader."""
    pending = []
    for node, names in asked.items():
        connection = cluster.connection(node)
        if DescribeProducersRequest.API_KEY in connection.versions:
            wanted = [
                DescribeProducersRequest.TopicRequest(
                    name=topic, partition_indexes=list(numbers)
                )
                for topic, numbers in names.items()
            ]
            pending.append(connection.send(DescribeProducersRequest(topics=wanted)))
    found: defaultdict[int, set[TopicPartition]] = defaultdict(set)
    for answer in pending:
        for topic in answer.result().topics:
            for part in topic.partitions:
                if part.error_code == codes.NOT_LEADER_OR_FOLLOWER:
                    where = f"cluster {cluster.alias}: {topic.name}"
                    raise codes.error_for(part.error_code, where)
                # One that we may not read names none.
                for producer in part.active_producers:
                    if producer.current_txn_start_offset >= 0:
                        found[producer.producer_id].add(
                            (topic.name, part.partition_index)
                        )
    return found


def _by_leader(
    topics: Mapping[str, Topic], partitions: Iterable[TopicPartition]
) -> dict[int, dict[str, list[int]]]:
    """Numbers of partitions by leader and topic."""
    found: dict[int, dict[str, list[int]]] = {}
    for topic, number in partitions:
        leader = topics[topic].leaders.get(number)
        if leader is not None and leader.node >= 0:
            found.setdefault(leader.node, {}).setdefault(topic, []).append(number)
    return found
