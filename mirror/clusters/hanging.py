"""Transactions that their coordinator has ended, and some partition has not.

Brokers 4.x leave a partition out that has no leader at the moment when a transaction
ends: its marker never comes. The transaction stays open there for good, hides all that
comes behind it from `read_committed`, and its producer cannot write there any more.
`end` has the missing markers written: once a producer's id is taken over, an open
transaction of it is such a one. Ordinary rights to write are enough, since the missed
partitions become part of one more transaction, which ends as the first one did.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from typing import TYPE_CHECKING

from kafka.protocol.admin import DescribeProducersRequest

from mirror.clusters import codes

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

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


def end(
    cluster: Cluster,
    producers: Sequence[Producer],
    topics: Mapping[str, Topic],
    partitions: Iterable[TopicPartition],
) -> list[Hanging]:
    """End what transactions of these producers, which are taken over, left open in
    these partitions. Those that have no leader now, or that we may not read, are left
    alone.

    Raises:
        ClusterError: a broker does not answer, or refuses.
    """
    left_open = _open(cluster, topics, partitions)
    found = []
    for producer in producers:
        if not (where := sorted(left_open.get(producer.producer_id, ()))):
            continue
        if producer.committed_last is not None:
            producer.end_again(where)
        found.append(
            Hanging(
                transactional_id=producer.transactional_id or "",
                partitions=tuple(where),
                committed=producer.committed_last,
            )
        )
    return found


def _open(
    cluster: Cluster,
    topics: Mapping[str, Topic],
    partitions: Iterable[TopicPartition],
) -> dict[int, set[TopicPartition]]:
    """Where each producer has a transaction open."""
    pending = []
    for node, names in _by_leader(topics, partitions).items():
        connection = cluster.connection(node)
        if DescribeProducersRequest.API_KEY in connection.versions:
            wanted = [
                DescribeProducersRequest.TopicRequest(
                    name=topic, partition_indexes=numbers
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
