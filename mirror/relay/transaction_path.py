"""The path of one transaction: filled, written, recorded, committed.

Main type: `TransactionPath`, whose `advance` reads from top to bottom. A slot's
transactions overlap, and each one waits only for the one before it:

- It sends its data (and its positions, with exactly-once) when that one's is `sent`.
- It sends its other records when that one's are on their way (`recorded`).
- It requests its commit when that one is committed. `target` reports the commit as an
  event, and the slot counts it.

Without exactly-once there is no commit and the positions go last: a crash in between
makes records appear twice, but loses none.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from enum import IntEnum
import time
from typing import TYPE_CHECKING

from mirror.clusters import codes, unended
from mirror.clusters.wire.write import Write
from mirror.errors import UnreachableError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from mirror.clusters.cluster import Cluster
    from mirror.clusters.topics import Topic, TopicPartition
    from mirror.clusters.transactions import Producer
    from mirror.clusters.wire.pending_response import Pending
    from mirror.relay.copies import Copies
    from mirror.relay.endings import Endings
    from mirror.relay.pending_transaction import PendingTransaction
    from mirror.relay.quota import Quota
    from mirror.relay.transaction_records import Batches, TransactionRecords


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
        transaction: PendingTransaction,
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
