"""Transactions that are open now: what leaders and coordinators say about them.

Main function: `find`. Leaders know which producer ids have records that are not
decided; coordinators know whose ids these are, and transactions that have not written
yet. Without DESCRIBE on a transactional id its name stays unknown.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from kafka.protocol.admin import DescribeTransactionsRequest, ListTransactionsRequest

from mirror.clusters import codes, hanging
from mirror.errors import UnsupportedBrokerError

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Mapping

    from mirror.clusters.cluster import Cluster
    from mirror.clusters.topics import Topic, TopicPartition

_OPEN = ("Ongoing", "PrepareCommit", "PrepareAbort", "PrepareEpochFence")


@dataclass(frozen=True, slots=True, kw_only=True, order=True)
class OpenTransaction:
    """A transaction that is open in some partitions."""

    transactional_id: str
    """Empty: no coordinator knows it, or we may not see whose it is."""
    producer_id: int
    partitions: tuple[TopicPartition, ...]
    began: float = 0.0
    """Epoch seconds; 0: not known."""
    timeout_seconds: float = 0.0
    """How long after it began its coordinator aborts it; 0: not known."""


@dataclass(frozen=True, slots=True, kw_only=True)
class OpenTransactions:
    """What is open in some partitions."""

    open: tuple[OpenTransaction, ...]
    unseen: Mapping[TopicPartition, str] = field(default_factory=dict)
    """Partitions whose leader did not tell, with the reason."""


def find(cluster: Cluster, topics: Mapping[str, Topic]) -> OpenTransactions:
    """What is open in these topics' partitions; `topics` names the leaders.

    Raises:
        ClusterError: a broker does not answer, or refuses.
    """
    where: defaultdict[int, set[TopicPartition]] = defaultdict(set)
    unseen: dict[TopicPartition, str] = {}
    keys = [(name, n) for name, topic in topics.items() for n in topic.leaders]
    left_open, unseen = hanging.open_in(cluster, hanging.by_leader(topics, keys))
    for (producer_id, _), partitions in left_open.items():
        where[producer_id].update(partitions)
    known = {
        each.producer_id: each
        for each in _coordinated(cluster)
        if each.producer_id in where or {t for t, _ in each.partitions} & topics.keys()
    }
    for producer_id, each in known.items():
        where[producer_id].update(p for p in each.partitions if p[0] in topics)
    return OpenTransactions(
        open=tuple(
            sorted(
                OpenTransaction(
                    transactional_id=of.transactional_id if of else "",
                    producer_id=producer_id,
                    partitions=tuple(sorted(partitions)),
                    began=of.began if of else 0.0,
                    timeout_seconds=of.timeout_seconds if of else 0.0,
                )
                for producer_id, partitions in where.items()
                for of in [known.get(producer_id)]
            )
        ),
        unseen=unseen,
    )


def _coordinated(cluster: Cluster) -> Iterator[OpenTransaction]:
    """Those that coordinators know, with all partitions; none from old brokers."""
    for node in cluster.nodes:
        try:
            listed = cluster.call(_LIST, node=node)
            _check(cluster, listed)
            ids = [each.transactional_id for each in listed.transaction_states]
            yield from _described(cluster, node, ids)
        except UnsupportedBrokerError:  # before 3.0
            return


def _described(
    cluster: Cluster, node: int, ids: Collection[str]
) -> Iterator[OpenTransaction]:
    if not ids:
        return
    request = DescribeTransactionsRequest(transactional_ids=list(ids))
    for state in cluster.call(request, node=node).transaction_states:
        if state.error_code == codes.NONE and state.transaction_state in _OPEN:
            yield OpenTransaction(
                transactional_id=state.transactional_id,
                producer_id=state.producer_id,
                partitions=tuple(
                    (topic.topic, number)
                    for topic in state.topics
                    for number in topic.partitions
                ),
                began=max(state.transaction_start_time_ms, 0) / 1000,
                timeout_seconds=state.transaction_timeout_ms / 1000,
            )


def _check(cluster: Cluster, answer: Any) -> None:
    if answer.error_code != codes.NONE:
        what = f"cluster {cluster.alias}: listing transactions"
        raise codes.error_for(answer.error_code, what)


_LIST = ListTransactionsRequest(
    state_filters=list(_OPEN), producer_id_filters=[], duration_filter=-1
)
