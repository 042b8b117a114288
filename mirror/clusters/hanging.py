"""Transactions that have ended at their coordinator but not in some partition.

Brokers 4.x skip a partition that has no leader when a transaction ends: its marker is
never written. The transaction stays open there and hides everything after it from
`read_committed`, until the next commit or abort of the same producer decides on its
records as well.
Main function: `complete`, which gets the missing markers written. A transaction that is
still open after its producer id was taken over is such a one. Its partitions are added
to one more transaction, which writes nothing and ends as the first one did: the
producer knows how, or an `OutcomeSearch` finds out. `has_ended` asks about one of
another producer; `ask` and `read` look for what is open without waiting.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
import struct
from typing import TYPE_CHECKING, Any, Protocol

from kafka.protocol.admin import (
    DescribeProducersRequest,
    DescribeProducersResponse,
    DescribeTransactionsRequest,
)

from mirror.clusters import codes
from mirror.clusters.wire.fields import Fields
from mirror.errors import NoLeaderError, PartitionError, UnreachableError

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator

    from mirror.clusters.cluster import Cluster
    from mirror.clusters.topics import Topic, TopicPartition
    from mirror.clusters.transactions import Producer
    from mirror.clusters.wire.pending_response import Pending

Numbers = Mapping[str, Sequence[int]]
"""Numbers of partitions by topic."""

_SAY_NOTHING = frozenset({codes.NONE, codes.TOPIC_AUTHORIZATION_FAILED})
"""With these answers, nothing is open as far as we can tell."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Hanging:
    """A transaction that was open in partitions after its end."""

    transactional_id: str
    partitions: tuple[TopicPartition, ...]
    committed: bool | None
    """Whether it was committed, and now is in these partitions; None if unknown: it
    stays open."""
    refused: str = ""
    """Why it stays open although its outcome is known."""

    @property
    def ended(self) -> bool:
        """Whether these partitions may be written to again."""
        return self.committed is not None and not self.refused

    @property
    def text(self) -> str:
        """For a log: which transaction, where, and how it ends."""
        where = ", ".join(f"{topic}-{number}" for topic, number in self.partitions)
        which = f"a transaction of {self.transactional_id} was left open in {where}"
        if self.ended:
            return (
                f"{which}; it is {'committed' if self.committed else 'aborted'} there"
            )
        why = self.refused or "the brokers no longer know whether it was committed"
        return (
            f"{which}, and {why}. End it with `kafka-transactions.sh abort`; if it was "
            "committed, use `mirror flow reset` to copy again from before it"
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class HangingLook:
    """What `complete` found."""

    hanging: tuple[Hanging, ...] = ()
    unseen: Mapping[TopicPartition, str] = field(default_factory=dict)
    """Partitions whose leader did not tell what is open there, with the reason."""
    others: Mapping[tuple[int, int], Sequence[TopicPartition]] = field(
        default_factory=dict
    )
    """What other producers have open there, by producer id and epoch."""


class OutcomeSearch(Protocol):
    """Tells how a transaction ended that its own producer does not know about."""

    def was_committed(
        self, producer_id: int, epoch: int, left_open: Collection[TopicPartition]
    ) -> bool | None:
        """Of a v2 transaction, whose epoch is its own; None if unknown."""


def complete(
    cluster: Cluster,
    producers: Sequence[Producer],
    topics: Mapping[str, Topic],
    partitions: Iterable[TopicPartition],
    *,
    search: OutcomeSearch | None = None,
    aborts_unknown: bool = False,
) -> HangingLook:
    """End what the producers' transactions left open in these partitions; call it right
    after taking over. Partitions that we may not read are left out, and so are
    transactions of an owner that took over after us. `aborts_unknown`: where no one
    knows how one ended, abort it, since what it wrote counts only once it is shown.

    Raises:
        ClusterError: a coordinator does not answer, or refuses, or the search cannot
            look.
    """
    left_open, unseen = open_in(cluster, by_leader(topics, partitions))
    found = []
    for producer in producers:
        ends: defaultdict[bool | None, list[TopicPartition]] = defaultdict(list)
        for (pid, epoch), where in left_open.items():
            if pid in producer.ids and not producer.is_later(pid, epoch):
                known = _outcome(
                    producer, pid, epoch, where, search, aborts_unknown=aborts_unknown
                )
                ends[known] += where
        for committed, where in ends.items():
            refused = ""
            if committed is not None:
                try:
                    producer.end_also(where, committed=committed)
                except PartitionError as error:
                    refused = str(error)
            found.append(
                Hanging(
                    transactional_id=producer.transactional_id or "",
                    partitions=tuple(sorted(where)),
                    committed=committed,
                    refused=refused,
                )
            )
    ids = {each for producer in producers for each in producer.ids}
    return HangingLook(
        hanging=tuple(found),
        unseen=unseen,
        others={of: where for of, where in left_open.items() if of[0] not in ids},
    )


def _outcome(
    producer: Producer,
    producer_id: int,
    epoch: int,
    left_open: Collection[TopicPartition],
    search: OutcomeSearch | None,
    *,
    aborts_unknown: bool,
) -> bool | None:
    """Whether to commit there; None if unknown, or if we cannot end it."""
    if producer_id != producer.producer_id:
        # Markers of the current id do not end what an earlier id left open.
        return None
    known = producer.was_committed(producer_id, epoch)
    if known is None and search is not None and producer.v2:
        known = search.was_committed(producer_id, epoch, left_open)
    return False if known is None and aborts_unknown else known


def has_ended(cluster: Cluster, name: str, producer_id: int, epoch: int) -> bool:
    """Whether the coordinator has done with a transaction, so that what is open of it
    stays so; without transactions v2 perhaps only once it has none under way.

    Raises:
        ClusterError: the coordinator does not answer, or refuses.
    """
    if not cluster.speaks(DescribeTransactionsRequest.API_KEY, 0):
        return False
    answer = cluster.call(
        DescribeTransactionsRequest(transactional_ids=[name]),
        node=cluster.transaction_coordinator(name),
    )
    (shown,) = answer.transaction_states
    if shown.error_code == codes.TRANSACTIONAL_ID_NOT_FOUND:
        return True
    if shown.error_code != codes.NONE:
        what = f"cluster {cluster.alias}: asking about {name}"
        raise codes.error_for(shown.error_code, what)
    if shown.producer_id != producer_id:
        return True
    ends = shown.transaction_state.startswith("Prepare")
    if ends or shown.transaction_state == "Ongoing":
        # The end of a transaction may have raised its epoch already.
        return bool(shown.producer_epoch > epoch + ends)
    return bool(shown.producer_epoch >= epoch)


def ask(cluster: Cluster, leader: int, names: Numbers) -> Pending | None:
    """Ask a leader what is open in its partitions; None if the broker is too old.

    Raises:
        UnreachableError: it cannot be reached, or there is none (-1).
    """
    if leader < 0:
        topic, number = _keys(names)[0]
        raise NoLeaderError(f"cluster {cluster.alias}: {topic}-{number} has no leader")
    connection = cluster.connection(leader)
    if DescribeProducersRequest.API_KEY not in connection.versions:
        return None
    fields = Fields(flexible=True)
    fields.array(len(names))
    for topic, numbers in names.items():
        fields.string(topic)
        fields.array(len(numbers))
        fields.raw(struct.pack(f">{len(numbers)}i", *numbers))
        fields.tags()
    fields.tags()
    return fields.send(
        connection, DescribeProducersRequest.API_KEY, 0, DescribeProducersResponse
    )


def read(
    answer: Any,
) -> tuple[dict[tuple[int, int], list[TopicPartition]], dict[TopicPartition, int]]:
    """A leader's answer: the partitions with an open transaction, by its producer id
    and epoch, and the error codes of those that it does not tell about.
    """
    found: defaultdict[tuple[int, int], list[TopicPartition]] = defaultdict(list)
    errors = {}
    for topic in answer.topics:
        for part in topic.partitions:
            key = (topic.name, part.partition_index)
            if part.error_code not in _SAY_NOTHING:
                errors[key] = part.error_code
            for producer in part.active_producers:
                if producer.current_txn_start_offset >= 0:
                    of = (producer.producer_id, producer.producer_epoch)
                    found[of].append(key)
    return found, errors


def by_leader(
    topics: Mapping[str, Topic], partitions: Iterable[TopicPartition]
) -> dict[int, dict[str, list[int]]]:
    """Numbers of partitions by leader, -1 if there is none, and topic."""
    found: dict[int, dict[str, list[int]]] = {}
    for topic, number in partitions:
        leader = topics[topic].leaders.get(number)
        node = -1 if leader is None else leader.node
        found.setdefault(node, {}).setdefault(topic, []).append(number)
    return found


def open_in(
    cluster: Cluster, asked: Mapping[int, Numbers]
) -> tuple[dict[tuple[int, int], list[TopicPartition]], dict[TopicPartition, str]]:
    """As `read`, of all leaders, with reasons instead of codes. `asked` are the
    partitions by leader.
    """
    found: defaultdict[tuple[int, int], list[TopicPartition]] = defaultdict(list)
    unseen: dict[TopicPartition, str] = {}
    for names, answer in _answers(cluster, asked):
        if isinstance(answer, UnreachableError):
            unseen |= dict.fromkeys(_keys(names), str(answer))
            continue
        left_open, errors = read(answer)
        for of, where in left_open.items():
            found[of] += where
        unseen |= {
            key: f"{key[0]}: {codes.name_of(error)}" for key, error in errors.items()
        }
    return found, unseen


def _answers(
    cluster: Cluster, asked: Mapping[int, Numbers]
) -> Iterator[tuple[Numbers, Any]]:
    """Each leader's answer, or why there is none; old brokers are left out."""
    pending = []
    for leader, names in asked.items():
        try:
            if (sent := ask(cluster, leader, names)) is not None:
                pending.append((names, sent))
        except UnreachableError as error:
            yield names, error
    for names, sent in pending:
        try:
            yield names, sent.result()
        except UnreachableError as error:
            yield names, error


def _keys(names: Numbers) -> list[TopicPartition]:
    return [(topic, number) for topic, numbers in names.items() for number in numbers]
