"""The target side of a slot: transactions that overlap, and commit in order.

Main type: `TargetWriter`. Several transactional ids take turns, so that one
transaction is filled while another is written and a third commits. What the next
one writes is sent only when all of the last one's is on its way, first the data with
the progress, then the notes on where it stands, and its commit is asked for only when
the last one's is acknowledged.
Without exactly-once there is one idempotent producer. Nothing is repaired here: after
an error the slot takes over anew.
"""

from __future__ import annotations

from collections import defaultdict, deque
from itertools import cycle
import math
import time
from typing import TYPE_CHECKING

from mirror.clusters import hanging
from mirror.clusters.hanging import Looked
from mirror.clusters.transactions import Producer
from mirror.clusters.wire import write
from mirror.clusters.wire.write import Write
from mirror.errors import ClusterError, MirrorError, UnreachableError
from mirror.relay.copies import Copies
from mirror.relay.quota import Quota
from mirror.relay.waiting import wait

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from mirror.clusters.cluster import Cluster
    from mirror.clusters.topics import Topic
    from mirror.clusters.wire.connection import Connection
    from mirror.clusters.wire.pending import Pending
    from mirror.relay.pending_transaction import Work
    from mirror.relay.transaction_records import Batches, Notes

TopicPartition = tuple[str, int]
MAX_IN_FLIGHT = 3
"""Transactions under way at most, beside the one that is filled: one that is opened,
one written, one committing."""
_WORTH_OVERLAPPING = 256 << 10
"""Bytes of a transaction beside which the next one is better filled already."""
_ASK_AGAIN_SECONDS = 0.002
_PATIENCE_SECONDS = 30.0


def transactional_ids(flow: str, slot: int) -> tuple[str, ...]:
    """All ids of a slot: whoever replaces it must fence every one of them."""
    return tuple(f"mirror.{flow}.{slot}.{turn}" for turn in range(MAX_IN_FLIGHT))


def owner_id(flow: str) -> str:
    """The id of a driver that is the flow's owner, under which no slot writes."""
    return f"mirror.{flow}.owner"


class TargetWriter:
    """Writes what a slot copied, together with its progress."""

    def __init__(
        self,
        cluster: Cluster,
        notes: Notes,
        *,
        flow: str,
        slot: int,
        exactly_once: bool,
        transaction_timeout_ms: int,
    ) -> None:
        ids: Sequence[str | None] = (
            transactional_ids(flow, slot) if exactly_once else (None,)
        )
        self._cluster = cluster
        self._notes = notes
        self._producers = [
            Producer(
                cluster,
                transactional_id=transactional_id,
                transaction_timeout_ms=transaction_timeout_ms,
            )
            for transactional_id in ids
        ]
        self.quota = Quota()
        """How much to write at a time."""
        self._next = 0
        self._under_way: deque[_Transaction] = deque()
        self._channels = _in_turn()
        self._divided = False
        self._copies = Copies(cluster)

    def take_over(self) -> None:
        """Fence whoever held this slot's ids; abort what it left open."""
        self._under_way.clear()
        self._copies.begin()
        for purpose in write.PURPOSES:
            self._cluster.drop(purpose)
        self._channels = _in_turn()
        for producer in self._producers:
            producer.take_over()

    def complete(
        self, topics: Mapping[str, Topic], partitions: Iterable[TopicPartition]
    ) -> Looked:
        """After a take-over, end what earlier transactions left open in partitions; see
        `clusters.hanging`.
        """
        if self._producers[0].transactional_id is None:
            return Looked()
        return hanging.complete(self._cluster, self._producers, topics, partitions)

    @property
    def ready(self) -> bool:
        """Whether one more transaction would be on its way at once."""
        if len(self._under_way) == MAX_IN_FLIGHT:
            return False
        return not self._under_way or self._under_way[-1].sent

    @property
    def room(self) -> bool:
        """Whether it is time to fill one more transaction.

        Behind a small one that still waits for its answer it would only queue up: what
        comes in meanwhile goes with the next, in fewer and fuller transactions.
        """
        return self.ready or self._under_way[-1].size >= _WORTH_OVERLAPPING

    @property
    def again_in(self) -> float | None:
        """Seconds until `advance` has something to do without any answer."""
        pauses = [t.again_in for t in self._under_way if t.again_in is not None]
        return min(pauses, default=None)

    def connections(self) -> list[Connection]:
        """Those on which answers are waited for."""
        return list(
            dict.fromkeys(
                pending.connection
                for transaction in self._under_way
                for pending in transaction.outstanding
            )
        )

    def write(self, work: Work, topics: Mapping[str, Topic]) -> list[Work]:
        """Begin a transaction; call it with fewer than `MAX_IN_FLIGHT` under way.

        Returns what is committed by now, as `advance`, which has to be called until all
        is committed.

        Raises:
            ClusterError: as `advance`, or a topic is not the one of the take-over.
        """
        self._copies.before(work.batches, topics)
        producer = self._producers[self._next]
        self._next = (self._next + 1) % len(self._producers)
        # What goes another way than what is under way could overtake it.
        if not self._under_way:
            self._divided = self._worth_dividing(producer, work)
        self._under_way.append(
            _Transaction(
                self._cluster,
                producer,
                work,
                self._notes,
                topics,
                copies=self._copies,
                channels=self._channels if self._divided else None,
            )
        )
        return self.advance()

    def _worth_dividing(self, producer: Producer, work: Work) -> bool:
        """Whether two requests at a time are worth it for the broker: channels open
        one after the other, which takes a round trip each.
        """
        if producer.transactional_id is not None and not producer.v2:
            return False
        return work.size >= _WORTH_OVERLAPPING and not self._cluster.high_latency

    def receive(self, connections: Iterable[Connection]) -> None:
        """Read one answer each from connections that have something to read."""
        for connection in connections:
            try:
                connection.read_answer()
            except ClusterError:
                self._forget()
                raise

    def advance(self) -> list[Work]:
        """Do all that can be done without waiting: what is committed by now.

        Raises:
            FencedError: another owner took over; nothing was committed by us.
            PartitionError: one partition refuses what we sent.
            ClusterError: anything else.
        """
        try:
            return self._advance()
        except MirrorError:
            self._forget()
            raise

    def settle(self, within: float = math.inf, *, left: int = 0) -> list[Work]:
        """Wait until at most `left` are under way. Raises as `advance` does, and

        Raises:
            UnreachableError: something is under way after so many seconds.
        """
        done = self.advance()
        end = time.monotonic() + within
        while len(self._under_way) > left:
            if time.monotonic() > end:
                self._forget()
                raise UnreachableError(
                    f"cluster {self._cluster.alias}: a transaction was not committed "
                    f"within {within:.0f} s after its lease"
                )
            ready, _ = wait(self.connections(), None, min(self.again_in or 1.0, within))
            self.receive(ready)
            done += self.advance()
        return done

    def _advance(self) -> list[Work]:
        done: list[Work] = []
        while True:
            before: _Transaction | None = None
            for transaction in self._under_way:
                # Behind batches that may be sent once more nothing else may go.
                if before is not None and not before.sent:
                    break
                transaction.advance(
                    first=before is None, may_note=before is None or before.noted
                )
                before = transaction
            for transaction in self._under_way:
                transaction.tell(self.quota)
            if not self._under_way or not self._under_way[0].done:
                for connection in self.connections():
                    connection.require_answer(connection.timeout_seconds)
                return done
            done.append(self._under_way.popleft().work)

    def _forget(self) -> None:
        """Keep only a transaction whose commit was asked for: it may be committed."""
        self._under_way = deque(t for t in self._under_way if t.committing)


class _Transaction:
    """One piece of work on its way: its data and progress, then the notes on where
    that stands, then the commit.

    Without exactly-once there is no commit, and one follows the other, the progress
    last: who dies in between shall copy records again, not lose where they went.
    """

    def __init__(
        self,
        cluster: Cluster,
        producer: Producer,
        work: Work,
        notes: Notes,
        topics: Mapping[str, Topic],
        *,
        copies: Copies,
        channels: Mapping[TopicPartition, int] | None,
    ) -> None:
        self.work = work
        self.size = work.size
        self.done = False
        self._cluster = cluster
        self._producer = producer
        self._notes = notes
        self._topics = topics
        self._copies = copies
        self._channels = channels
        first = dict(work.batches)
        if producer.transactional_id is not None:
            first |= notes.how_far(work)
        self._data = self._write = Write(cluster, producer, first, topics, channels)
        self._later: deque[Batches] | None = None
        self._adding: list[TopicPartition] | None = None
        if producer.transactional_id is not None and not producer.v2:
            self._adding = [*work.batches, *notes.takers(work)]
        self._commit: Pending | None = None
        self._commit_at = 0.0
        self._told = False
        self._patience = time.monotonic() + _PATIENCE_SECONDS

    def tell(self, quota: Quota) -> None:
        """Say once how long the data made a broker want to rest."""
        if not self._told and self.sent and not self._data.outstanding:
            self._told = True
            quota.learn(self.size, self._data.throttled_seconds)

    @property
    def sent(self) -> bool:
        """Whether all data is on its way, and none will be sent again."""
        return self._data.sent

    @property
    def noted(self) -> bool:
        """The same for the notes."""
        return self._later is not None and not self._later and self._write.sent

    @property
    def committing(self) -> bool:
        return self._commit is not None

    @property
    def outstanding(self) -> Iterable[Pending]:
        if self._commit is not None:
            return [self._commit]
        return self._write.outstanding

    @property
    def again_in(self) -> float | None:
        if self._commit_at and self._commit is None:
            return max(0.0, self._commit_at - time.monotonic())
        return self._write.resend_in

    def advance(self, *, first: bool, may_note: bool) -> None:
        """`first`: all before it is committed, so this may be; `may_note`: what is
        before it has written its notes.
        """
        if self._commit is not None:
            self._read_commit(self._commit)
        if self._adding is not None:
            self._producer.add_partitions(self._adding)
            self._adding = None
        if self.done or self._commit is not None or not self._written(may_note):
            return
        if not first:
            return
        if self._producer.transactional_id is None:
            self.done = True
        elif time.monotonic() >= self._commit_at:
            self._commit = self._producer.begin_commit()

    def _written(self, may_note: bool) -> bool:
        """Whether data and notes are written; begins the next part of them."""
        while self._write.advance():
            if self._later is None:
                if not may_note:
                    return False
                self._later = self._parts()
            if not self._later:
                return True
            self._write = Write(
                self._cluster,
                self._producer,
                self._later.popleft(),
                self._topics,
                self._channels,
            )
        return False

    def _parts(self) -> deque[Batches]:
        placed = self._data.placed
        self._copies.after(placed)
        where = self._notes.where(placed, self.work, self._topics)
        if self._producer.transactional_id is None:
            return deque((where, self._notes.how_far(self.work)))
        return deque((where,))

    def _read_commit(self, pending: Pending) -> None:
        if not pending.answered:
            return
        self.done = self._producer.committed(pending.result())
        if not self.done:
            if time.monotonic() > self._patience:
                raise UnreachableError(
                    f"cluster {self._cluster.alias}: a transaction of "
                    f"{self._producer.transactional_id} was not committed"
                )
            self._commit = None
            self._commit_at = time.monotonic() + _ASK_AGAIN_SECONDS


def _in_turn() -> defaultdict[TopicPartition, int]:
    """Which channel a partition takes: in turn, as they come, and ever the same."""
    return defaultdict(cycle(range(write.LANES)).__next__)
