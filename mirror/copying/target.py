"""The target side of a slot: transactions overlap and commit in order.

Main type: `TargetWriter`. Several transactional ids take turns, so that one transaction
is filled while another is written and a third commits; each follows its own
`TransactionPath`, and is used again once that one has ended everywhere (`Endings`). An
event (`take_events`) reports each commit. Without exactly-once there is one idempotent
producer. This module repairs nothing: after an error the slot takes over again.
"""

from __future__ import annotations

from collections import defaultdict, deque
from dataclasses import dataclass, field
from enum import IntEnum
from itertools import cycle
import math
import time
from typing import TYPE_CHECKING

from mirror import patience
from mirror.clusters import codes, hanging, unended
from mirror.clusters.hanging import HangingLook
from mirror.clusters.transactions import Producer
from mirror.clusters.wire import write
from mirror.clusters.wire.write import Write
from mirror.copying.waiting import wait
from mirror.errors import ClusterError, MirrorError, UnreachableError

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Mapping, Sequence

    from mirror.clusters.cluster import Cluster
    from mirror.clusters.hanging import OutcomeSearch
    from mirror.clusters.topics import Topic, TopicPartition
    from mirror.clusters.wire.connection import Connection
    from mirror.clusters.wire.pending_response import Pending
    from mirror.clusters.wire.write import Placed, Stamping
    from mirror.config.schema import FlowConfig
    from mirror.copying.lease import Assignment
    from mirror.copying.transaction import (
        Batches,
        PendingTransaction,
        TransactionContent,
        TransactionRecords,
    )
    from mirror.offsets.progress import Position
    from mirror.offsets.terms import CopyEnd

MAX_IN_FLIGHT = 3
"""The most transactions in flight, not counting the one being filled: one opening, one
writing, one committing."""
_HELD_SECONDS = 1.0
_ASK_SECONDS = 0.1
"""How soon `finish` and `abort_failed` notice that they need not wait."""
WORTH_OVERLAPPING = 256 << 10
"""From this size on, fill the next transaction while this one is in flight."""


def transactional_ids(flow: str, slot: int) -> tuple[str, ...]:
    """All ids of a slot: its next owner must fence every one of them."""
    return tuple(f"mirror.{flow}.{slot}.{turn}" for turn in range(MAX_IN_FLIGHT))


def owner_id(flow: str) -> str:
    """The id of the driver that owns the flow. No slot writes under it."""
    return f"mirror.{flow}.owner"


@dataclass(frozen=True, slots=True, kw_only=True)
class Committed:
    """A transaction is committed."""

    transaction: TransactionContent
    seconds: float
    """Time since it was started."""


@dataclass(frozen=True, slots=True, kw_only=True)
class KnownCopies:
    """What a slot that takes over knows before it asks where copies end."""

    source: Cluster | None
    """None: it is gone, so copies are not held against it."""
    wanted: Collection[Assignment]
    positions: Mapping[TopicPartition, Position]
    running: Mapping[TopicPartition, bytes]
    """What was noted, by source partition."""
    source_topics: Mapping[str, Topic]
    target_topics: Mapping[str, Topic]


class TargetWriter:
    """Writes what a slot copies, together with its progress."""

    def __init__(
        self,
        cluster: Cluster,
        records: TransactionRecords,
        flow: FlowConfig,
        *,
        slot: int,
    ) -> None:
        ids: Sequence[str | None] = (None,)
        if flow.exactly_once:
            ids = transactional_ids(flow.name, slot)
        self._cluster = cluster
        self._timeout_ms = int(flow.transaction_timeout_seconds * 1000)
        self._producers = [self._producer(each) for each in ids]
        self.quota = Quota()
        """How much to write at a time."""
        self._copies = Copies(cluster)
        self._endings = Endings(cluster)
        self._destination = Destination(
            cluster=cluster, records=records, copies=self._copies, quota=self.quota
        )
        self._next = 0
        self._under_way: deque[TransactionPath] = deque()
        self._left_open: list[Producer] = []
        """Of transactions that failed."""
        self._events: list[Committed] = []
        self._channels = _in_turn()
        self._divided = False

    def take_over(self) -> None:
        """Fence earlier owners of this slot's ids and abort what they left open."""
        self._give_up()
        self._copies.begin()
        self._endings.begin()
        for purpose in write.PURPOSES:
            self._cluster.drop(purpose)
        self._channels = _in_turn()
        for producer in self._producers:
            producer.take_over()
        self._left_open.clear()

    def abort_failed(self, unless: Callable[[], bool]) -> None:
        """Abort what failed, until the slot may take over instead, which `unless` says:
        those who read progress would wait for it. It fences no other owner.

        Raises:
            MirrorError: another owner took over, or a broker refuses.
        """
        self._give_up()
        while self._left_open and not unless():
            try:
                with patience.until(time.monotonic()):  # the next lease may come
                    self._left_open[0].retake()
            except ClusterError as error:
                if not error.retriable:
                    raise
                time.sleep(_ASK_SECONDS)
            else:
                del self._left_open[0]

    def _give_up(self, *, but: PathStage | None = None) -> None:
        """Go no further with what is under way, `but` for what has come so far."""
        paths, self._under_way = self._under_way, deque()
        for path in paths:
            if path.stage == but:
                self._under_way.append(path)
            elif path.exactly_once and path.producer not in self._left_open:
                self._left_open.append(path.producer)

    def complete(
        self,
        topics: Mapping[str, Topic],
        partitions: Collection[TopicPartition],
        search: OutcomeSearch,
    ) -> HangingLook:
        """After a take-over, end transactions left open in these partitions; see
        `clusters.hanging`.
        """
        if self._producers[0].transactional_id is None:
            return HangingLook()
        looked = hanging.complete(
            self._cluster, self._producers, topics, partitions, search=search
        )
        ids = {each.transactional_id: each.producer_id for each in self._producers}
        for each in looked.hanging:
            if each.ended:
                name = each.transactional_id
                self._endings.expect(name, ids[name], each.partitions, topics)
        return looked

    def find_ends(self, _known: KnownCopies) -> Mapping[TopicPartition, CopyEnd]:
        """Where copies end that have the source's offsets: here are none."""
        return {}

    def _producer(self, transactional_id: str | None) -> Producer:
        return Producer(
            self._cluster,
            transactional_id=transactional_id,
            transaction_timeout_ms=self._timeout_ms,
        )

    @property
    def ready(self) -> bool:
        """Whether one more transaction could be sent at once."""
        if len(self._under_way) == MAX_IN_FLIGHT or self._next_is_open:
            return False
        return not self._under_way or self._under_way[-1].sent

    @property
    def _next_is_open(self) -> bool:
        """Whether the next id's last transaction may still be open somewhere."""
        return self._endings.awaits(self._next_id)

    @property
    def _next_id(self) -> str | None:
        return self._producers[self._next].transactional_id

    def is_seeding(self, _key: TopicPartition) -> bool:
        """Whether a partition is written one batch at a time: its records are old."""
        return False

    @property
    def room(self) -> bool:
        """Whether it is time to fill one more transaction.

        After a small one that still waits for its answer, the next would only queue up.
        What arrives meanwhile goes into fewer and fuller transactions.
        """
        return self.ready or (
            bool(self._under_way) and self._under_way[-1].size >= WORTH_OVERLAPPING
        )

    @property
    def held_up(self) -> bool:
        """Whether a quota delays an answer by more than a second from now."""
        return any(each.held_seconds > _HELD_SECONDS for each in self.connections())

    @property
    def again_in(self) -> float | None:
        """Seconds until `advance` has something to do even without an answer."""
        pauses = [path.again_in for path in self._under_way]
        pauses.append(self._endings.again_in(self._next_id))
        return min((pause for pause in pauses if pause is not None), default=None)

    def connections(self) -> list[Connection]:
        """Connections with outstanding answers."""
        return list(
            dict.fromkeys(
                pending.connection
                for path in self._under_way
                for pending in path.outstanding
            )
            | dict.fromkeys(self._endings.connections())
        )

    def write(
        self, transaction: PendingTransaction, topics: Mapping[str, Topic]
    ) -> None:
        """Begin a transaction when `ready`, or after `finish`; call `advance` until it
        is committed. Raises as `advance` does.
        """
        self._begin(transaction, topics)
        self.advance()

    def _begin(
        self, transaction: TransactionContent, topics: Mapping[str, Topic]
    ) -> None:
        producer = self._producers[self._next]
        self._next = (self._next + 1) % len(self._producers)
        # Changing connections could let this one overtake those in flight.
        if not self._under_way:
            self._divided = self._worth_dividing(producer, transaction)
        self._under_way.append(
            TransactionPath(
                transaction,
                producer,
                self._destination,
                topics,
                channels=self._channels if self._divided else None,
            )
        )

    def _worth_dividing(
        self, producer: Stamping, transaction: TransactionContent
    ) -> bool:
        """Whether to send two requests at a time to a broker: each channel costs
        another round trip to open.
        """
        if producer.transactional_id is not None and not producer.v2:
            return False
        return transaction.size >= WORTH_OVERLAPPING and not self._cluster.high_latency

    def advance(self, ready: Iterable[Connection] = ()) -> None:
        """Read one answer from each ready connection, and do all that is possible
        without waiting.

        Raises:
            MirrorError: as `TransactionPath.advance`. Only a transaction whose commit
                was requested is still in flight then.
        """
        try:
            for connection in ready:
                connection.read_answer()
            self._advance_each()
            self._endings.advance(self._next_id)
            for connection in self.connections():
                connection.require_answer(connection.timeout_seconds)
        except MirrorError:
            self.drop_uncommitted()
            raise

    def _advance_each(self) -> None:
        before: TransactionPath | None = None
        for path in tuple(self._under_way):
            # Send nothing after batches that may still need a resend.
            if before is not None and not before.sent:
                return
            path.advance(before)
            before = path
            if path.committed:
                self._under_way.popleft()
                seconds = time.monotonic() - path.transaction.begun
                path.expect_ending(self._endings)
                self._events.append(
                    Committed(transaction=path.transaction, seconds=seconds)
                )

    def drop_uncommitted(self) -> None:
        """Commit nothing more of what is under way."""
        self._give_up(but=PathStage.COMMITTING)

    def take_events(self) -> list[Committed]:
        """The commits since the last call, in order."""
        events, self._events = self._events, []
        return events

    def finish(
        self,
        within: float = math.inf,
        *,
        one_more: bool = False,
        unless: Callable[[], bool] = lambda: False,
    ) -> bool:
        """Wait until nothing is in flight; with `one_more`, until one more transaction
        could be sent. Returns False if a quota delays that, or `unless` says that the
        slot may go on: it does so in its next lease, if that has the same partitions.

        Raises:
            UnreachableError: it is not so far after `within` seconds.
            MirrorError: as `advance`.
        """
        self.advance()
        end = time.monotonic() + patience.left(within)
        while not (self.held_up or unless()):
            if self._is_finished(one_more=one_more):
                return True
            if time.monotonic() > end:
                self.drop_uncommitted()
                raise UnreachableError(
                    f"cluster {self._cluster.alias}: a transaction did not end "
                    f"within {within:.0f} s after its lease"
                )
            pause = min(self.again_in or _ASK_SECONDS, _ASK_SECONDS, within)
            ready, _ = wait(self.connections(), None, pause)
            self.advance(ready)
        return False

    def _is_finished(self, *, one_more: bool) -> bool:
        if one_more:
            return len(self._under_way) < MAX_IN_FLIGHT and not self._next_is_open
        return not self._under_way


def _in_turn() -> defaultdict[TopicPartition, int]:
    """The channel of each partition: assigned in turn on first use, then fixed."""
    return defaultdict(cycle(range(write.CHANNELS)).__next__)


# ---- the path of one transaction: filled, written, recorded, committed ----
#
# Main type: `TransactionPath`, whose `advance` reads from top to bottom. A slot's
# transactions overlap, and each one waits only for the one before it:
#
# - It sends its data (and its positions, with exactly-once) when that one's is `sent`.
# - It sends its other records when that one's are on their way (`recorded`).
# - It requests its commit when that one is committed. `TargetWriter` reports the commit
#   as an event, and the slot counts it.
#
# Without exactly-once there is no commit and the positions go last: a crash in
# between makes records appear twice, but loses none.


_ASK_AGAIN_SECONDS = 0.002
_PATIENCE_SECONDS = 30.0


class PathStage(IntEnum):
    """How far a transaction is on its path."""

    FILLED = 0
    """Nothing has been sent."""
    WRITING = 1
    """The data is on its way."""
    WRITTEN = 2
    """The data is acknowledged."""
    RECORDING = 3
    """The transaction records are on their way."""
    RECORDED = 4
    """The transaction records are acknowledged."""
    COMMITTING = 5
    """The commit is requested: whatever goes wrong now, it may take effect."""
    COMMITTED = 6


@dataclass(frozen=True, slots=True, kw_only=True)
class Destination:
    """Where a slot's transactions go, and what earlier ones revealed about it."""

    cluster: Cluster
    records: TransactionRecords
    copies: Copies
    quota: Quota


class TransactionPath:
    """Takes one transaction to its commit. After an error it goes no further."""

    def __init__(
        self,
        transaction: TransactionContent,
        producer: Producer,
        to: Destination,
        topics: Mapping[str, Topic],
        *,
        channels: Mapping[TopicPartition, int] | None,
    ) -> None:
        """Sends nothing before `advance`. For `channels` see `Write`."""
        self.transaction = transaction
        self.size = transaction.size
        self.stage = PathStage.FILLED
        # A commit may use it up and bring another one.
        self._producer_id = producer.producer_id
        self._partitions: set[TopicPartition] = set()
        self.producer = producer
        self._to = to
        self._topics = topics
        self._channels = channels
        self.exactly_once = producer.transactional_id is not None
        data: Batches = dict(transaction.batches)
        if self.exactly_once:
            data |= to.records.positions(transaction)
        self._write = self._writing(data)
        self._records: deque[Batches] = deque()
        self._commit: Pending | None = None
        self._commit_at = 0.0
        self._patience = time.monotonic() + _PATIENCE_SECONDS
        self._rest = 0.0
        """How long brokers throttled this transaction, as far as known."""

    def advance(self, before: TransactionPath | None) -> None:
        """Go as far as possible without waiting. `before`: the transaction before this
        one, None if that is already committed.

        Raises:
            FencedError: another owner took over; this one is not committed.
            PartitionError: a partition refuses what we sent.
            ClusterError: anything else; for example, a topic was re-created.
        """
        if self.stage == PathStage.FILLED:
            self._open()
        if self.stage == PathStage.WRITING:
            written = self._write.advance()
            self._learn_quota(written=written)
            if written:
                self.stage = PathStage.WRITTEN
        if self.stage == PathStage.WRITTEN and (before is None or before.recorded):
            self._begin_records()
        while self.stage == PathStage.RECORDING and self._write.advance():
            self._write_records()
        if self.stage == PathStage.RECORDED and (before is None or before.committed):
            self._ask_for_commit()
        if self._commit is not None and self._commit.answered:
            self._read_commit(self._commit)

    @property
    def sent(self) -> bool:
        """Whether all data is on its way, and none of it will be sent again."""
        return self.stage > PathStage.WRITING or self._write.sent

    @property
    def recorded(self) -> bool:
        """The same for the transaction records."""
        if self.stage == PathStage.RECORDING:
            return not self._records and self._write.sent
        return self.stage > PathStage.RECORDING

    @property
    def committed(self) -> bool:
        return self.stage == PathStage.COMMITTED

    def expect_ending(self, endings: Endings) -> None:
        """Once committed: find out when it has ended in all its partitions."""
        if (name := self.producer.transactional_id) is not None:
            endings.expect(name, self._producer_id, self._partitions, self._topics)

    @property
    def outstanding(self) -> Sequence[Pending]:
        """The answers it waits for."""
        return self._write.outstanding if self._commit is None else [self._commit]

    @property
    def again_in(self) -> float | None:
        """Seconds until `advance` has something to do even without an answer."""
        if self.stage == PathStage.RECORDED and self._commit_at:
            return max(0.0, self._commit_at - time.monotonic())
        return self._write.again_in

    def _writing(self, batches: Batches) -> Write:
        self._partitions.update(batches)
        return Write(
            self._to.cluster, self.producer, batches, self._topics, self._channels
        )

    def _open(self) -> None:
        """Add the partitions; in transactions v2 the first write to each does that."""
        if self.exactly_once and not self.producer.v2:
            records = self._to.records.written_by(self.transaction)
            self.producer.add_partitions([*self.transaction.batches, *records])
        self.stage = PathStage.WRITING

    def _learn_quota(self, *, written: bool) -> None:
        """At once when a broker throttles us: this transaction may not get further."""
        rest = self._write.throttled_seconds
        if written or rest > self._rest:
            self._to.quota.learn(self.size, rest)
        self._rest = rest

    def _begin_records(self) -> None:
        # Not earlier: `Copies` must see logs grow in the order of transactions.
        placed = self._write.placed
        self._to.copies.check(placed, self._topics)
        records = self._to.records
        self._records.append(records.placement(placed, self.transaction, self._topics))
        if not self.exactly_once:
            self._records.append(records.positions(self.transaction))
        self._write_records()

    def _write_records(self) -> None:
        """Start writing the next part of the records, if there is one."""
        if not self._records:
            self.stage = PathStage.RECORDED
            return
        self._write = self._writing(self._records.popleft())
        self.stage = PathStage.RECORDING

    def _ask_for_commit(self) -> None:
        if not self.exactly_once:
            self.stage = PathStage.COMMITTED
        elif time.monotonic() >= self._commit_at:
            self._commit = self.producer.begin_commit()
            self.stage = PathStage.COMMITTING

    def _read_commit(self, answer: Pending) -> None:
        if self.producer.committed(said := answer.result()):
            self.stage = PathStage.COMMITTED
            return
        if time.monotonic() > self._patience:
            raise UnreachableError(
                f"cluster {self._to.cluster.alias}: a transaction of "
                f"{self.producer.transactional_id}"
                f"{unended.hint(said.error_code, '')} was not committed: "
                f"{codes.name_of(said.error_code)}"
            )
        self._commit = None
        self._commit_at = time.monotonic() + _ASK_AGAIN_SECONDS
        self.stage = PathStage.RECORDED


# ---- whether transactions have ended in every partition that they wrote to ----
#
# Brokers 4.x skip a partition that has no leader when a transaction is committed
# (`clusters.hanging`), and a slot need not notice. If the same id wrote there again and
# then had to abort, the abort would take the committed records with it. So a slot uses
# an id again only when the leaders say that nothing of it is open. Small transactions
# are asked about together, once the next one needs the id of one of them. If that takes
# too long, the slot takes over, which gets the missing markers written.


_FIRST_SECONDS = 0.001
"""On a near cluster, markers usually arrive within this time."""
_COMPANY_SECONDS = 0.05
"""How long the ending of an id that is not needed yet waits to be asked with others."""
_LONGEST_SECONDS = 0.1
_ENDING_SECONDS = 5.0
"""A take-over before all markers are written waits for them, so this may be short."""


@dataclass(slots=True, kw_only=True)
class _Ending:
    """A transaction, and where it may be open."""

    producer_id: int
    partitions: tuple[TopicPartition, ...]
    at: float
    """From when on to ask, monotonic; while `pending` is empty."""
    patience: float
    pause: float = _FIRST_SECONDS
    pending: list[Pending] = field(default_factory=list)


class Endings:
    """The transactions of a slot that may still be open in some partition."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._endings: dict[str, _Ending] = {}
        self._topics: Mapping[str, Topic] = {}

    def begin(self) -> None:
        """Forget them all: the slot is taking over."""
        self._endings.clear()

    def expect(
        self,
        transactional_id: str,
        producer_id: int,
        partitions: Iterable[TopicPartition],
        topics: Mapping[str, Topic],
    ) -> None:
        """Find out when this id's transaction has ended in these partitions. `topics`
        are those that the last take-over found.
        """
        now = time.monotonic()
        self._topics = topics
        self._endings[transactional_id] = _Ending(
            producer_id=producer_id,
            partitions=tuple(partitions),
            at=now + _FIRST_SECONDS,
            patience=now + _ENDING_SECONDS,
        )

    def awaits(self, transactional_id: str | None) -> bool:
        """Whether a transaction of this id may still be open somewhere."""
        return transactional_id in self._endings

    def connections(self) -> list[Connection]:
        """Connections with outstanding answers."""
        return [
            pending.connection
            for ending in self._endings.values()
            for pending in ending.pending
            if not pending.answered
        ]

    def again_in(self, next_id: str | None) -> float | None:
        """Seconds until `advance` has something to do even without an answer."""
        due = [
            each.at + (0 if name == next_id else _COMPANY_SECONDS)
            for name, each in self._endings.items()
            if not each.pending
        ]
        return max(0.0, min(due) - time.monotonic()) if due else None

    def advance(self, next_id: str | None) -> None:
        """Ask leaders, and read what they answered, without waiting. `next_id`: the id
        of the next transaction, which does not wait to be asked about with others.

        Raises:
            ClusterError: a leader cannot be asked or refuses, or a transaction stays
                open: take over.
        """
        for transactional_id, ending in tuple(self._endings.items()):
            if ending.pending and all(each.answered for each in ending.pending):
                self._read(transactional_id, ending)
        if self.again_in(next_id) == 0:
            self._ask()

    def finish(self) -> None:
        """Wait until all have ended. Raises as `advance` does."""
        while self._endings:
            first = next(iter(self._endings))
            time.sleep(self.again_in(first) or 0.0)
            self.advance(first)
            for ending in self._endings.values():
                for pending in ending.pending:
                    pending.result()

    def _ask(self) -> None:
        """Ask about all that may have ended, together."""
        now = time.monotonic()
        due = {
            name: each
            for name, each in self._endings.items()
            if not each.pending and now >= each.at
        }
        where = dict.fromkeys(key for each in due.values() for key in each.partitions)
        sent = [
            hanging.ask(self._cluster, leader, names)
            for leader, names in hanging.by_leader(self._topics, where).items()
        ]
        for name, ending in due.items():
            ending.pending = [each for each in sent if each is not None]
            if not ending.pending:
                del self._endings[name]

    def _read(self, transactional_id: str, ending: _Ending) -> None:
        left = []
        for pending in ending.pending:
            found, errors = hanging.read(pending.result())
            for (topic, partition), error in errors.items():
                raise codes.error_for(error, f"transactions in {topic}-{partition}")
            for (producer_id, _), where in found.items():
                left += where if producer_id == ending.producer_id else []
        if not left:
            del self._endings[transactional_id]
            return
        if time.monotonic() > ending.patience:
            topic, partition = left[0]
            raise ClusterError(
                f"cluster {self._cluster.alias}: a transaction of {transactional_id} "
                f"has ended, but not in {topic}-{partition}"
            )
        ending.pending = []
        ending.at = time.monotonic() + ending.pause
        ending.pause = min(2 * ending.pause, _LONGEST_SECONDS)


# ---- whether target topics are still those that the take-over found ----
#
# Produce requests name topics, so a re-created copy accepts records meant for the
# deleted one, and the offset map would attribute them to the old topic. A log that
# continues at a lower offset reveals this. The first write to a partition gives no such
# sign, so `Copies` then asks its leader which topic it wrote to: a leader knows a
# topic's id before it takes records for it. In both cases it fails the transaction, and
# the slot takes over.


class Copies:
    """What a slot knows about the logs it writes to."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._ends: dict[TopicPartition, int] = {}

    def begin(self) -> None:
        """Start over: the slot is taking over and asks for metadata itself."""
        self._ends.clear()

    def check(self, placed: Sequence[Placed], topics: Mapping[str, Topic]) -> None:
        """Check where batches were written; `topics` are those the take-over found.

        Raises:
            ClusterError: a topic was deleted or re-created, a log continued below an
                offset that was already in use, or a leader does not answer.
        """
        new = {each.where for each in placed if each.where not in self._ends}
        if new:
            self._check_ids(new, topics)
        for each in placed:
            if each.offset < 0:  # a duplicate: the broker does not name its offset
                continue
            end = self._ends.get(each.where, 0)
            if each.offset < end:
                topic, partition = each.where
                raise ClusterError(
                    f"target {topic}-{partition}: records were written at offset "
                    f"{each.offset}, although offsets up to {end - 1} were in use: the "
                    "topic was re-created or lost its end"
                )
            self._ends[each.where] = each.offset + each.batch.count

    def _check_ids(
        self, partitions: Iterable[TopicPartition], topics: Mapping[str, Topic]
    ) -> None:
        names: dict[int, set[str]] = {}
        for name, partition in partitions:
            leader = topics[name].leaders[partition].node
            names.setdefault(leader, set()).add(name)
        for leader, theirs in names.items():
            for name, topic in self._cluster.topics(theirs, node=leader).items():
                if topic.error:
                    raise codes.error_for(topic.error, f"target topic {name}")
                if topic.topic_id != topics[name].topic_id:
                    raise ClusterError(
                        f"target topic {name} was deleted or re-created: its id was "
                        f"{topics[name].topic_id} and is {topic.topic_id}"
                    )


# ---- how much to write at a time when the target's brokers throttle us ----
#
# A broker that receives more than a quota allows says for how long it will not read
# from that connection: the more at once, the longer. So `Quota` keeps a transaction to
# about one second of what the quota allows, and lets it grow again when no broker
# throttles. It is pure: the writer passes in what brokers said.

_LEAST_BYTES = 64 << 10
_MOST_BYTES = 16 << 20
_LONG_SECONDS = 1.0
"""After a longer throttle time, write less at a time."""
_SHORT_SECONDS = 0.2
"""After a shorter one, write more."""
_GROWTH = 1.25


class Quota:
    """What one slot has learned about the quotas on its target."""

    def __init__(self) -> None:
        self.most_bytes = _MOST_BYTES

    def learn(self, size: int, rest_seconds: float) -> None:
        """Adjust to how long a broker throttled a write of this size."""
        if rest_seconds > _LONG_SECONDS:
            fitting = int(min(size, self.most_bytes) / rest_seconds)
            self.most_bytes = max(fitting, _LEAST_BYTES)
        elif rest_seconds < _SHORT_SECONDS:
            self.most_bytes = min(int(self.most_bytes * _GROWTH), _MOST_BYTES)
