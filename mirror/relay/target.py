"""The target side of a slot: transactions overlap and commit in order.

Main type: `TargetWriter`. Several transactional ids take turns, so that one transaction
is filled while another is written and a third commits; each follows its own
`transaction_path`, and is used again once that one has ended everywhere (`endings`). An
event (`take_events`) reports each commit. Without exactly-once there is one idempotent
producer. This module repairs nothing: after an error the slot takes over again.
"""

from __future__ import annotations

from collections import defaultdict, deque
from dataclasses import dataclass
from itertools import cycle
import math
import time
from typing import TYPE_CHECKING

from mirror import patience
from mirror.clusters import hanging
from mirror.clusters.hanging import HangingLook
from mirror.clusters.transactions import Producer
from mirror.clusters.wire import write
from mirror.errors import ClusterError, MirrorError, UnreachableError
from mirror.relay.copies import Copies
from mirror.relay.endings import Endings
from mirror.relay.quota import Quota
from mirror.relay.transaction_path import Destination, PathStage, TransactionPath
from mirror.relay.waiting import wait

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Mapping, Sequence

    from mirror.clusters.cluster import Cluster
    from mirror.clusters.hanging import OutcomeSearch
    from mirror.clusters.topics import Topic, TopicPartition
    from mirror.clusters.wire.connection import Connection
    from mirror.config.schema import FlowConfig
    from mirror.relay.pending_transaction import PendingTransaction
    from mirror.relay.transaction_records import TransactionRecords

MAX_IN_FLIGHT = 3
"""The most transactions in flight, not counting the one being filled: one opening, one
writing, one committing."""
_HELD_SECONDS = 1.0
_ASK_SECONDS = 0.1
"""How soon `finish` and `let_go` notice that they need not wait."""
_WORTH_OVERLAPPING = 256 << 10
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

    transaction: PendingTransaction
    seconds: float
    """Time since it was started."""


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

    def let_go(self, unless: Callable[[], bool]) -> None:
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

    @property
    def room(self) -> bool:
        """Whether it is time to fill one more transaction.

        After a small one that still waits for its answer, the next would only queue up.
        What arrives meanwhile goes into fewer and fuller transactions.
        """
        return self.ready or (
            bool(self._under_way) and self._under_way[-1].size >= _WORTH_OVERLAPPING
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
        self.advance()

    def _worth_dividing(
        self, producer: Producer, transaction: PendingTransaction
    ) -> bool:
        """Whether to send two requests at a time to a broker: each channel costs
        another round trip to open.
        """
        if producer.transactional_id is not None and not producer.v2:
            return False
        return transaction.size >= _WORTH_OVERLAPPING and not self._cluster.high_latency

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
        most = MAX_IN_FLIGHT - 1 if one_more else 0
        while not (self.held_up or unless()):
            if len(self._under_way) <= most and not (one_more and self._next_is_open):
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


def _in_turn() -> defaultdict[TopicPartition, int]:
    """The channel of each partition: assigned in turn on first use, then fixed."""
    return defaultdict(cycle(range(write.CHANNELS)).__next__)
