"""Transactions of a cluster: which are open, whose they are, and fencing them.

Main functions: `find_open`, what leaders and coordinators say about transactions that
are open now; `find_ids`, the transactional ids of all brokers, and `fence`, which shuts
out a producer that still uses one and aborts its open transaction (for taking over from
other programs; for our own see `clusters.transactions`); `find_writers`, which topics
transactional producers write to, as far as brokers remember.

Leaders know the producer ids that wrote to their partitions lately (a day, unless
`producer.id.expiration.ms` says otherwise) and which of these have records that are not
decided; coordinators know whose transactional ids these are, and transactions that have
not written yet. Without DESCRIBE on a transactional id its name stays unknown.
"""

from __future__ import annotations

from collections import defaultdict
import contextlib
from dataclasses import dataclass, field
import re
from typing import TYPE_CHECKING, Any

from kafka.protocol.admin import DescribeTransactionsRequest, ListTransactionsRequest

from mirror.clusters import codes, hanging
from mirror.clusters.transactions import Producer
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


def find_open(cluster: Cluster, topics: Mapping[str, Topic]) -> OpenTransactions:
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


# ---- transactional ids ----

_WITHOUT_PATTERNS = 1
_TIMEOUT_MS = 60_000


def find_ids(cluster: Cluster, pattern: str) -> tuple[str, ...]:
    """The ids that match `pattern` as a whole.

    Raises:
        UnsupportedBrokerError: brokers before 3.0 do not list them.
        ClusterError: a broker does not answer, or refuses.
    """
    wanted = re.compile(pattern)
    names = {each.transactional_id for each in _listed(cluster)}
    return tuple(sorted(name for name in names if wanted.fullmatch(name)))


def _listed(cluster: Cluster) -> Iterator[Any]:
    """What all coordinators list, in any state."""
    cluster.refresh()
    request = ListTransactionsRequest(
        state_filters=[], producer_id_filters=[], duration_filter=-1
    )
    for node in cluster.nodes:
        answer = cluster.connection(node).call(request, at_most=_WITHOUT_PATTERNS)
        _check(cluster, answer)
        yield from answer.transaction_states


def fence(cluster: Cluster, transactional_id: str) -> None:
    """Abort the open transaction of an id and fence the producers that used it.

    Raises:
        ClusterError: the cluster refuses.
    """
    Producer(
        cluster,
        transactional_id=transactional_id,
        transaction_timeout_ms=_TIMEOUT_MS,
    ).take_over()


# ---- which topics transactional producers write to ----


@dataclass(frozen=True, slots=True, kw_only=True)
class Writers:
    """What one look found."""

    topics: Mapping[str, frozenset[str]]
    """By transactional id, the topics that its producer wrote to."""
    unseen: Mapping[str, str]
    """Topics of which some leader did not tell, with the reason."""


def find_writers(
    cluster: Cluster,
    topics: Mapping[str, Topic],
    ids: Mapping[int, str] | None = None,
) -> Writers:
    """Look at these topics. Brokers that are too old to tell have no writers. `ids`: an
    answer of `ids_by_producer`, or the part of it that counts.

    Raises:
        ClusterError: a broker does not answer, or refuses.
    """
    keys = [
        (name, number) for name, topic in topics.items() for number in topic.leaders
    ]
    wrote: dict[int, set[str]] = {}
    unseen: dict[str, str] = {}
    sent = [
        hanging.ask(cluster, leader, names)
        for leader, names in hanging.by_leader(topics, keys).items()
    ]
    for each in sent:
        for topic in each.result().topics if each is not None else ():
            for part in topic.partitions:
                if part.error_code != codes.NONE:
                    unseen[topic.name] = codes.name_of(part.error_code)
                for producer in part.active_producers:
                    wrote.setdefault(producer.producer_id, set()).add(topic.name)
    if ids is None:
        ids = {}
        with contextlib.suppress(UnsupportedBrokerError):
            ids = ids_by_producer(cluster) if wrote else {}
    return Writers(
        topics={
            name: frozenset(wrote[producer_id])
            for producer_id, name in ids.items()
            if producer_id in wrote
        },
        unseen=unseen,
    )


def ids_by_producer(cluster: Cluster) -> dict[int, str]:
    """The transactional ids that we may see, by producer id.

    Raises:
        UnsupportedBrokerError: brokers before 3.0 do not tell.
        ClusterError: a broker does not answer, or refuses.
    """
    return {each.producer_id: each.transactional_id for each in _listed(cluster)}
