"""Fills the transaction that a slot writes next with what leaders answer.

Main type: `Filling`, which fills at most one `PendingTransaction` at a time. It decides
how much goes into a transaction and how much to fetch, and owns one rewriter for every
transaction being filled or written (`rewriters_for`). It writes nothing.
"""

from __future__ import annotations

import math
import time
from typing import TYPE_CHECKING

from mirror.batches import codecs
from mirror.relay import provenance
from mirror.relay.fetch_channel import LINGER_BYTES, longest_linger_ms
from mirror.relay.pending_transaction import PendingTransaction
from mirror.relay.rewrite import Rewriter
from mirror.relay.target import MAX_IN_FLIGHT

if TYPE_CHECKING:
    from collections.abc import Callable
    from collections.abc import Set as AbstractSet

    from mirror.clusters.cluster import Cluster
    from mirror.clusters.wire.connection import Connection
    from mirror.relay.intake import Intake
    from mirror.relay.lease import LeasePlan
    from mirror.relay.schemas import SchemaBarrier
    from mirror.relay.source import SourceReader
    from mirror.relay.target import TargetWriter

FETCH_BYTES = 16 << 20
PARTITION_BYTES = 4 << 20
_HIGH_LATENCY_FACTOR = 4
"""How many times larger transactions are if the target is far away: they commit one
after the other, each at least a round trip behind the last.
"""
_LEAST_BYTES = 1 << 20
_TELLING_BYTES = 64 << 10
_LOOK_BYTES = 1 << 20
_GROWTH_WEIGHT = 0.3
_ANSWER_MS = 1
"""What an answer of a near leader takes, beyond the time for which it lingers."""


class Filling:
    """The next transaction of a slot, and the rewriters for all of them."""

    def __init__(
        self,
        plan: LeasePlan,
        reader: SourceReader,
        intake: Intake,
        writer: TargetWriter,
        target: Cluster,
        *,
        schemas: SchemaBarrier | None = None,
    ) -> None:
        self._reader = reader
        self._intake = intake
        self._writer = writer
        self._target = target
        self._rewriters = rewriters_for(plan, MAX_IN_FLIGHT + 1, schemas)
        self._free = list(self._rewriters)
        self._growth = 1.0
        self._apart_seconds = (longest_linger_ms(plan.flow) + _ANSWER_MS) / 1000
        self._taken = -math.inf
        self.transaction: PendingTransaction | None = None
        """The one being filled, until it can be written."""

    @property
    def room(self) -> bool:
        """Whether one more answer can be taken into a transaction."""
        if self.transaction is not None:
            most = self._most_bytes
            enough = min(max(most - FETCH_BYTES, _LEAST_BYTES), most)
            return self.transaction.worked_bytes < enough
        return self._writer.room and bool(self._free)

    @property
    def _most_bytes(self) -> int:
        """The approximate largest size of one transaction."""
        times = _HIGH_LATENCY_FACTOR if self._target.high_latency else 1
        return min(FETCH_BYTES, self._writer.quota.most_bytes) * times

    def fill(
        self, ready: AbstractSet[Connection], meanwhile: Callable[[], None]
    ) -> None:
        """Put what leaders answered into the next transaction, and ask for more.

        Calls `meanwhile` now and then, so that transactions in flight make progress.
        """
        if self.transaction is None:
            self.transaction = PendingTransaction(self._free.pop())
            self.transaction.rewriter.begin()
        transaction = self.transaction
        self._intake.open(transaction)
        for answer in self._reader.read(ready):
            looked = transaction.worked_bytes
            self._reader.ask_ahead(self._intake.foresee(answer))
            for _ in self._intake.take(answer, transaction):
                if transaction.worked_bytes - looked >= _LOOK_BYTES:
                    looked = transaction.worked_bytes
                    meanwhile()
            self._measure(transaction)
            # Ask now, not after the next answer: a leader may be far away.
            self._reader.ask(together=self._is_small)
            if transaction.worked_bytes >= self._most_bytes:
                break
        if not transaction.moved:
            self.transaction = None
            self.give_back(transaction)

    @property
    def again_in(self) -> float:
        """Seconds until the transaction being filled is to be written; infinite if it
        cannot be, or there is none. A small one waits for the leaders that linger.
        """
        if self.transaction is None or not self._writer.ready:
            return math.inf
        if not (self._is_small and self._reader.lingers):
            return 0.0
        return max(0.0, self._taken + self._apart_seconds - time.monotonic())

    @property
    def _is_small(self) -> bool:
        filled = self.transaction
        return filled is not None and filled.fetched_bytes < LINGER_BYTES

    def ask(self) -> None:
        """Ask leaders for more. Those that linger are asked at the same time, when what
        they sent is being written.

        Raises:
            LeaderError: as `SourceReader.ask`.
        """
        self._reader.ask(together=0 < self.again_in < math.inf)

    def take(self) -> PendingTransaction | None:
        """Hand over the filled transaction, to write it now."""
        self._taken = time.monotonic()
        transaction, self.transaction = self.transaction, None
        return transaction

    def give_back(self, transaction: PendingTransaction) -> None:
        """Reclaim the rewriter and buffers of a transaction, committed or empty."""
        self._free.append(transaction.rewriter)
        self._reader.give_back(transaction.buffers)

    def drop_all(self) -> int:
        """Drop all transactions that were not given back, and return how many of them
        were taken for writing. Do not fill again while any of these is being sent.
        """
        dropped = len(self._rewriters) - len(self._free)
        dropped -= self.transaction is not None
        self._free = list(self._rewriters)
        self.transaction = None
        return dropped

    def _measure(self, transaction: PendingTransaction) -> None:
        """Fetch less of data that grows when unpacked, so that no transaction takes
        long and no busy partition holds up the others.
        """
        if transaction.fetched_bytes >= _TELLING_BYTES:
            growth = transaction.worked_bytes / transaction.fetched_bytes
            self._growth += _GROWTH_WEIGHT * (growth - self._growth)
        share = max(int(PARTITION_BYTES / self._growth), _LEAST_BYTES // 4)
        allowed = self._writer.quota.most_bytes
        self._reader.pace.ask_for(
            min(max(int(FETCH_BYTES / self._growth), _LEAST_BYTES), allowed),
            min(share, allowed),
        )


def rewriters_for(
    plan: LeasePlan, count: int, schemas: SchemaBarrier | None = None
) -> list[Rewriter]:
    """One rewriter for each transaction that is being filled or in flight.

    Raises:
        TransformError: the flow's own function cannot be used.
    """
    flow = plan.flow
    stamp = provenance.of_flow(
        flow, source_id=plan.source_id, target_id=plan.target_id, feeders=plan.feeders
    )
    codec = codecs.BY_NAME.get(flow.compression)
    if flow.transform is None:
        most = flow.max_unpacked_bytes
        return [
            Rewriter(stamp, codec=codec, most_unpacked=most, schemas=schemas)
            for _ in range(count)
        ]

    # Flows without a transform need not wait for these loops to compile.
    from mirror.relay.transforming import rewriters  # noqa: PLC0415

    return rewriters(flow, stamp, codec=codec, count=count, schemas=schemas)
