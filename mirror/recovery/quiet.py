"""Proves that no one writes to some topics, or says who does.

Main functions: `look`, which takes a second and changes nothing; `wait`, until it is
so; and `abort`, for transactions that do not end. ACLs do not stop super users, so a
fence is no proof. Quiet means, twice: each partition's log ends where its high
watermark and its last stable offset are, and no transaction is open; and in between the
ends did not move. Consumers are not shown where a log ends, so the leader is asked as
by a debugging replica. Any broker answers that, so the same broker must then answer as
the leader of the same epoch.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum
import time
from typing import TYPE_CHECKING

from mirror.clusters.admin import topic_admin
from mirror.clusters.admin.transactions import fence, find_open
from mirror.errors import AuthorizationError, UnreachableError

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

    from mirror.clusters.admin.transactions import OpenTransaction
    from mirror.clusters.cluster import Cluster
    from mirror.clusters.topics import Topic, TopicPartition


PAUSE_SECONDS = 1.0


class ActivityReason(StrEnum):
    """Why a partition is not quiet."""

    WRITES = "records are still being written: no fence stops a super user"
    REPLICAS = "replicas have not caught up with the leader"
    TRANSACTION = "a transaction is open"
    UNKNOWN = "its leader does not tell"


@dataclass(frozen=True, slots=True, kw_only=True)
class QuiesceCheck:
    """What one look found: quiet, if there is nothing active."""

    cuts: Mapping[TopicPartition, int]
    """By quiet partition, where its log ends: the offset of the next record."""
    active: Mapping[TopicPartition, ActivityReason] = field(default_factory=dict)
    """The partitions that are not quiet."""
    open: tuple[OpenTransaction, ...] = ()
    """The transactions that are open in them."""
    last: LogEnds | None = None
    """What brokers said the second time, if all was quiet then: the next look goes on
    from there."""

    @property
    def text(self) -> str:
        """For a person: what is not quiet, and why; empty if all is."""
        parts = []
        for each in ActivityReason:
            where = [
                f"{topic}-{number}" if number >= 0 else topic
                for (topic, number), found in self.active.items()
                if found is each
            ]
            if where:
                more = f" and {len(where) - 1} more" if len(where) > 1 else ""
                parts.append(f"{where[0]}{more}: {each.value}")
        if names := {_name(each) for each in self.open}:
            parts.append(f"open transactions: {', '.join(sorted(names))}")
        return "; ".join(parts)


@dataclass(frozen=True, slots=True, kw_only=True)
class LogEnds:
    """One look at brokers: where logs end, and what is not as it must be."""

    at: float
    """When the brokers had said where they end, monotonic."""
    ends: Mapping[TopicPartition, int]
    active: Mapping[TopicPartition, ActivityReason]
    open: tuple[OpenTransaction, ...]


def look(
    cluster: Cluster,
    topics: Collection[str],
    *,
    pause: float = PAUSE_SECONDS,
    after: QuiesceCheck | None = None,
) -> QuiesceCheck:
    """Look twice, with so many seconds between the ends of the logs. `after`: what an
    earlier look at these topics found, whose last ends may be the first of this one.

    Raises:
        ClusterError: the cluster does not answer, or refuses.
    """
    first = after.last if after is not None else None
    if first is None:
        first = _read_ends(cluster, topics)
    time.sleep(max(first.at + pause - time.monotonic(), 0.0))
    last = _read_ends(cluster, topics)
    active = {**first.active, **last.active}
    for key in first.ends.keys() | last.ends.keys():
        if key not in active and first.ends.get(key) != last.ends.get(key):
            active[key] = ActivityReason.WRITES
    # One that ended in between moved the ends of its partitions.
    return QuiesceCheck(
        cuts={key: end for key, end in last.ends.items() if key not in active},
        active=dict(sorted(active.items())),
        open=last.open,
        last=None if last.active else last,
    )


def wait(
    cluster: Cluster,
    topics: Collection[str],
    *,
    seconds: float,
    pause: float = PAUSE_SECONDS,
) -> QuiesceCheck:
    """Look until all is quiet, or time is up: open transactions may end by themselves,
    and brokers that died are known to be gone after some seconds. Raises as `look`.
    """
    deadline = time.monotonic() + seconds
    while True:
        try:
            found = look(cluster, topics, pause=pause)
        except UnreachableError:
            if time.monotonic() > deadline:
                raise
            time.sleep(pause)
            continue
        if not found.active or time.monotonic() > deadline:
            return found


def abort(
    cluster: Cluster, transactions: Collection[OpenTransaction]
) -> tuple[tuple[str, ...], Mapping[str, str]]:
    """Fence the producers of these transactions, which aborts them. Returns the
    transactional ids that were fenced, and those that were not, with the reason.

    What was written is lost, also what another system counts on: Flink commits after
    its own checkpoint, and cannot once its id is fenced.

    Raises:
        ClusterError: the cluster does not answer.
    """
    fenced, refused = [], {}
    for each in transactions:
        if not each.transactional_id:
            refused[_name(each)] = (
                "no transactional id is known: DESCRIBE on it is not allowed, or a "
                "broker left it open; then `kafka-transactions.sh abort` ends it"
            )
            continue
        try:
            fence(cluster, each.transactional_id)
        except AuthorizationError as error:
            refused[each.transactional_id] = str(error)
        else:
            fenced.append(each.transactional_id)
    return tuple(sorted(fenced)), refused


def _read_ends(cluster: Cluster, names: Collection[str]) -> LogEnds:
    views = cluster.views(names)
    topics = {t: topic for t in names if (topic := views.agreed(t)) is not None}
    active = {(t, -1): ActivityReason.UNKNOWN for t in names if t not in topics}
    keys = [(t, n) for t, topic in topics.items() for n in topic.leaders]
    # The log's end first: who answers the others leads, and did so before.
    ends = _offsets(cluster, keys, topics, replica=topic_admin.DEBUGGING)
    at = time.monotonic()
    high = _offsets(cluster, keys, topics)
    stable = _offsets(cluster, keys, topics, committed=True)
    found = find_open(cluster, topics)
    open_in = {key for each in found.open for key in each.partitions}
    quiet = {}
    for key in keys:
        if key in found.unseen or not (key in ends and key in high and key in stable):
            active[key] = ActivityReason.UNKNOWN
        elif key in open_in or stable[key] < high[key]:
            active[key] = ActivityReason.TRANSACTION
        elif high[key] > ends[key]:
            active[key] = ActivityReason.WRITES  # between the two questions
        elif high[key] < ends[key]:
            active[key] = ActivityReason.REPLICAS
        else:
            quiet[key] = ends[key]
    return LogEnds(at=at, ends=quiet, active=active, open=found.open)


def _offsets(
    cluster: Cluster,
    keys: Collection[TopicPartition],
    topics: Mapping[str, Topic],
    *,
    committed: bool = False,
    replica: int = topic_admin.CONSUMER,
) -> dict[TopicPartition, int]:
    return topic_admin.list_offsets(
        cluster,
        keys,
        timestamp=topic_admin.LATEST,
        committed=committed,
        topics=topics,
        replica=replica,
    )


def _name(each: OpenTransaction) -> str:
    return each.transactional_id or f"producer id {each.producer_id}"
