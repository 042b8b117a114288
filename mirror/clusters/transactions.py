"""A producer identity that can be fenced: transactional or idempotent.

Main type: `Producer`. With a transactional id its transactions are v2 (KIP-890)
where the cluster has them, else v1. It never repairs: after any error its owner
calls `take_over` again, which aborts an open transaction, and continues from committed
progress; or `retake`, which never fences another owner. `write` gets batches to their
leaders.
"""

from __future__ import annotations

import contextlib
import struct
import time
from typing import TYPE_CHECKING, Any

from kafka.protocol.admin import DescribeTransactionsRequest
from kafka.protocol.producer import (
    AddPartitionsToTxnRequest,
    EndTxnRequest,
    EndTxnResponse,
    InitProducerIdRequest,
)

from mirror.clusters import codes, unended
from mirror.clusters.wire.fields import Fields
from mirror.errors import BrokerError, FencedError, UnreachableError
from mirror.retry import patiently

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from mirror.clusters.cluster import Cluster
    from mirror.clusters.topics import TopicPartition
    from mirror.clusters.wire.connection import Connection
    from mirror.clusters.wire.pending_response import Pending
    from mirror.clusters.wire.produce import EncodedBatch


_PURPOSE = "commit"
_PATIENCE_SECONDS = 30.0
_SEQUENCES = 1 << 31
_ENDING = struct.Struct(">qh?")
_V1_AT_MOST = 3
_INIT_AT_MOST = 4


class Producer:
    """One producer identity on one cluster."""

    def __init__(
        self,
        cluster: Cluster,
        *,
        transactional_id: str | None,
        transaction_timeout_ms: int,
    ) -> None:
        self.transactional_id = transactional_id
        self.v2 = False
        self._cluster = cluster
        self._transaction_timeout_ms = transaction_timeout_ms
        self._coordinator = -1
        self._id = self._epoch = -1
        self._sequences: dict[TopicPartition, int] = {}
        self._asked: int | None = None
        """The epoch that a `retake` replaces whose answer did not come."""
        self._taken_over = 0
        """Our first epoch. With v2, every transaction from it up to the current epoch
        is committed."""
        self._waits = ""
        self._known = KnownEnds()

    @property
    def ids(self) -> set[int]:
        """The producer id, and earlier ones whose transactions we know about."""
        return {self._id, *self._known.ids}

    @property
    def producer_id(self) -> int:
        """-1 before the first take-over."""
        return self._id

    def was_committed(self, producer_id: int, epoch: int) -> bool | None:
        """Whether the transaction with this epoch was committed; None if unknown."""
        known = self._known.was_committed(producer_id, epoch)
        if known is None and producer_id == self._id and epoch in self._committed:
            return True
        return known

    def is_later(self, producer_id: int, epoch: int) -> bool:
        """Whether a transaction with this epoch is one of a later owner of our id."""
        return producer_id == self._id and epoch > self._epoch

    @property
    def _committed(self) -> range:
        """The epochs of our id in which we committed."""
        return range(self._taken_over, self._epoch if self.v2 else 0)

    def take_over(self) -> None:
        """Become the only owner of this id: fence earlier owners, abort an open
        transaction, wait for one that is committing.
        """
        if self.transactional_id is not None:
            self.v2 = self._cluster.feature("transaction.version") >= 2
            self._find_coordinator()
        answer = self._ask(
            self._init(), "taking over", at_most=_INIT_AT_MOST, state=True
        )
        self._begin(answer.producer_id, answer.producer_epoch)
        self._sequences = {}

    def retake(self) -> None:
        """As `take_over`, but only if no other owner did since: for one that
        lost an answer, or whose coordinator moved.

        Raises:
            FencedError: another owner took over.
            ClusterError: the coordinator does not answer, or refuses.
        """
        self._find_coordinator()
        answer = patiently(self._retake)
        self._asked = None
        self._begin(answer.producer_id, answer.producer_epoch)
        self._sequences = {}

    def _retake(self) -> Any:
        """Replace the epoch that the coordinator shows, if it is one of ours. Brokers
        refuse if another owner came in between.
        """
        doing = "taking over again"
        epoch = self._shown_epoch(doing)
        with self._doubting():
            connection = self._connection()
            self._asked = epoch
            answer = connection.send(
                self._init(self._id, epoch), at_most=_INIT_AT_MOST
            ).result()
        self._check(answer.error_code, doing)
        return answer

    @property
    def tells_owner(self) -> bool:
        """Whether `require_owner` finds out: brokers before 3.0 do not tell."""
        return self._cluster.speaks(DescribeTransactionsRequest.API_KEY, 0)

    def require_owner(self) -> None:
        """Raises as `retake`; see `tells_owner`."""
        patiently(lambda: self._shown_epoch("asking for the owner of"))

    def _shown_epoch(self, doing: str) -> int:
        """Which epoch to replace. Raises as `_replaces`."""
        with self._doubting():
            asked = self._ask_for_state(self._connection())
            answer = None if asked is None else asked.result()
        if answer is None:
            return self._epoch
        (shown,) = answer.transaction_states
        self._check(shown.error_code, doing)
        self._learn_state(answer)
        return self._replaces(
            shown.producer_id, shown.producer_epoch, shown.transaction_state
        )

    def _replaces(self, producer_id: int, epoch: int, state: str) -> int:
        """Which epoch to replace, by what the coordinator shows.

        Raises:
            FencedError: what it shows is another owner's.
        """
        # Our transaction's end may have raised it; another owner begins as Empty.
        raises = self.v2 or not COMMITTED.get(state, True)
        ours = epoch == self._epoch or (
            epoch == self._epoch + 1 and raises and state in COMMITTED
        )
        if producer_id == self._id and ours:
            return epoch
        if producer_id == self._id and epoch - 1 == self._asked and state == "Empty":
            return epoch - 1  # brokers tell our last attempt from another owner's
        raise FencedError(
            f"cluster {self._cluster.alias}: another owner took over "
            f"{self.transactional_id}"
        )

    def _init(self, producer_id: int = -1, epoch: int = -1) -> InitProducerIdRequest:
        return InitProducerIdRequest(
            transactional_id=self.transactional_id,
            transaction_timeout_ms=self._transaction_timeout_ms,
            producer_id=producer_id,
            producer_epoch=epoch,
        )

    def _begin(self, producer_id: int, epoch: int) -> None:
        if self._id >= 0:
            self._known.add_committed(self._id, self._committed)
        self._id, self._epoch, self._taken_over = producer_id, epoch, epoch

    def stamp(self, key: TopicPartition, batch: EncodedBatch) -> None:
        """Make a batch this producer's next one for a partition."""
        sequence = self._sequences.get(key, 0)
        batch.stamp(
            self._id,
            self._epoch,
            sequence,
            transactional=self.transactional_id is not None,
        )
        self._sequences[key] = (sequence + batch.count) % _SEQUENCES

    def begin_commit(self) -> Pending:
        """Ask for the commit without waiting; `committed` reads the answer."""
        return self._end(self._cluster.connection(self._coordinator, _PURPOSE))

    def _end(self, connection: Connection) -> Pending:
        version = connection.version(
            EndTxnRequest, at_most=None if self.v2 else _V1_AT_MOST
        )
        fields = Fields(flexible=EndTxnRequest.flexible_version_q(version))
        fields.string(self.transactional_id or "")
        fields.raw(_ENDING.pack(self._id, self._epoch, True))
        fields.tags()
        return fields.send(connection, EndTxnRequest.API_KEY, version, EndTxnResponse)

    def committed(self, answer: Any) -> bool:
        """Whether the transaction is committed; if not, ask again in a moment.

        Raises:
            FencedError: another owner took over; we committed nothing.
            ClusterError: the outcome is unknown: take over and read the progress to
                find out.
        """
        if answer.error_code in codes.COORDINATOR_MOVED:
            self._find_another_coordinator()
        if answer.error_code in codes.WAIT_AND_ASK_AGAIN:
            return False
        if answer.error_code != codes.NONE:
            raise codes.error_for(
                answer.error_code, f"committing {self.transactional_id}"
            )
        self._go_on_as(
            getattr(answer, "producer_id", -1), getattr(answer, "producer_epoch", -1)
        )
        return True

    def _go_on_as(self, producer_id: int, epoch: int) -> None:
        """Take the id and epoch that a v2 commit gives us; -1: it gives none."""
        if (
            not self.v2
            or producer_id < 0
            or (producer_id, epoch) == (self._id, self._epoch)
        ):
            return
        if producer_id == self._id:
            self._epoch = epoch
        else:  # all epochs of the old id are used up
            self._epoch += 1
            self._begin(producer_id, epoch)
        self._sequences = {}

    def commit(self, begun: Pending | None = None) -> None:
        """Commit, or continue a commit that `begin_commit` started, and wait for it.
        Raises as `committed` does.
        """
        end = time.monotonic() + _PATIENCE_SECONDS
        pending = begun or self.begin_commit()
        while not self.committed(pending.result()):
            if time.monotonic() > end:
                raise codes.error_for(
                    codes.CONCURRENT_TRANSACTIONS, f"committing {self.transactional_id}"
                )
            time.sleep(0.002)
            pending = self.begin_commit()

    def add_partitions(self, keys: Iterable[TopicPartition]) -> None:
        """Tell the coordinator which partitions a v1 transaction will write to."""
        self._ask(self._adding(keys), "adding partitions", at_most=_V1_AT_MOST)

    def _adding(self, keys: Iterable[TopicPartition]) -> AddPartitionsToTxnRequest:
        names: dict[str, list[int]] = {}
        for topic, partition in keys:
            names.setdefault(topic, []).append(partition)
        entry = AddPartitionsToTxnRequest.AddPartitionsToTxnTopic
        return AddPartitionsToTxnRequest(
            v3_and_below_transactional_id=self.transactional_id or "",
            v3_and_below_producer_id=self._id,
            v3_and_below_producer_epoch=self._epoch,
            v3_and_below_topics=[
                entry(name=topic, partitions=partitions)
                for topic, partitions in names.items()
            ],
        )

    def end_also(self, keys: Iterable[TopicPartition], *, committed: bool) -> None:
        """End an earlier transaction in partitions that missed its marker, by way of
        one more transaction that writes nothing.

        Raises:
            PartitionError: one of them refuses us; none of them got the marker.
            FencedError: another owner took over.
            ClusterError: the outcome is unknown: look again.
        """
        if not committed:
            self.add_partitions(keys)
            self.retake()
            return
        connection = self._cluster.connection(self._coordinator, _PURPOSE)
        # If we died in between, the transaction would abort.
        connection.together = True
        try:
            added = connection.send(self._adding(keys), at_most=_V1_AT_MOST)
        finally:
            connection.together = False
        ending = self._end(connection)
        try:
            if (error := codes.worst_of(added.result())) != codes.NONE:
                raise codes.error_for(error, f"ending {self.transactional_id}")
            self.commit(ending)
        except (BrokerError, UnreachableError):
            # Perhaps they are added: a take-over would abort what was committed.
            patiently(self._commit_again, also=UnreachableError)
            raise

    def _commit_again(self) -> None:
        self._find_another_coordinator()
        self.commit()

    def _ask_for_state(self, connection: Connection) -> Pending | None:
        """Ask how the last transaction ended; after the take-over it is forgotten."""
        if (
            self.transactional_id is None
            or DescribeTransactionsRequest.API_KEY not in connection.versions
        ):
            return None
        ids = [self.transactional_id]
        return connection.send(DescribeTransactionsRequest(transactional_ids=ids))

    def _learn_state(self, answer: Any) -> None:
        (shown,) = answer.transaction_states
        self._waits = unended.where(shown)
        self._known.learn(shown, v2=self.v2)

    def _ask(
        self, request: Any, doing: str, *, at_most: int | None, state: bool = False
    ) -> Any:
        """Ask the coordinator until it no longer answers "wait", for a limited time.
        With `state`, each attempt first asks how the last transaction ended.
        """

        def ask() -> Any:
            with self._doubting():
                connection = self._connection()
                shown = self._ask_for_state(connection) if state else None
                asked = connection.send(request, at_most=at_most)
                if shown is not None:
                    self._learn_state(shown.result())
                answer = asked.result()
            self._check(codes.worst_of(answer), doing)
            return answer

        return patiently(ask)

    @contextlib.contextmanager
    def _doubting(self) -> Iterator[None]:
        """A coordinator that does not answer is asked last from now on."""
        try:
            yield
        except UnreachableError:
            self._cluster.doubt(self._coordinator)
            raise

    def _check(self, error: int, doing: str) -> None:
        if error in codes.COORDINATOR_MOVED and self.transactional_id is not None:
            self._find_another_coordinator()
        if error != codes.NONE:
            who = f"{doing} {self.transactional_id or ''}".rstrip()
            who += unended.hint(error, self._waits)
            raise codes.error_for(error, f"cluster {self._cluster.alias}: {who}")

    def _connection(self) -> Connection:
        if self.transactional_id is None:
            return self._cluster.any_connection()
        return self._cluster.connection(self._coordinator, _PURPOSE)

    def _find_another_coordinator(self) -> None:
        """Ask a broker other than the one that refused: it knows better."""
        self._cluster.doubt(self._coordinator)
        self._find_coordinator()

    def _find_coordinator(self) -> None:
        self._coordinator = self._cluster.transaction_coordinator(
            self.transactional_id or ""
        )


# ---- how transactions of one transactional id ended, as far as its owner knows ----
#
# Main type: `KnownEnds`. It holds what a coordinator said about an earlier owner's
# last transaction, and the epochs in which this owner committed. `hanging` needs it
# to end a transaction in partitions that missed its marker, which may be
# unreachable for weeks.


_MOST_IDS = 1_000
"""A producer id lasts for 32,767 transactions: at ten a second, these are 38 days."""

COMMITTED = {
    "PrepareCommit": True,
    "CompleteCommit": True,
    "PrepareAbort": False,
    "PrepareEpochFence": False,
    "CompleteAbort": False,
}
"""Whether the last transaction committed, by state; other states do not tell."""
_MEANS = (None, True, False)
"""What a byte of an epoch says."""


class KnownEnds:
    """By producer id and epoch. It holds all epochs of the last two ids, a byte each:
    the owner can end transactions of its present one alone (`hanging`), and only needs
    to recognize the earlier ones as its own.
    """

    def __init__(self) -> None:
        self._ends: dict[int, bytearray] = {}

    @property
    def ids(self) -> set[int]:
        """The producer ids of which something is known."""
        return set(self._ends)

    def was_committed(self, producer_id: int, epoch: int) -> bool | None:
        """Whether the transaction with this epoch was committed; None if unknown."""
        ends = self._ends.get(producer_id, b"")
        return _MEANS[ends[epoch]] if 0 <= epoch < len(ends) else None

    def add_committed(self, producer_id: int, epochs: range) -> None:
        """Every transaction with one of these epochs was."""
        self._add(producer_id, epochs, committed=True)

    def learn(self, shown: Any, *, v2: bool) -> None:
        """From how a coordinator describes the transactional id. A v2 transaction
        raises the epoch when it ends. Committed v1 transactions share one epoch;
        aborting the last one raises it. Only that one can be open anywhere, since no id
        is used again before (`copying.target`).
        """
        committed = COMMITTED.get(shown.transaction_state)
        if shown.error_code != codes.NONE or committed is None:
            return
        epoch = shown.producer_epoch - (v2 or not committed)
        self._add(
            shown.producer_id, range(max(0, epoch), epoch + 1), committed=committed
        )

    def _add(self, producer_id: int, epochs: range, *, committed: bool) -> None:
        if producer_id not in self._ends:
            for former in list(self._ends)[:-1]:
                self._ends[former] = bytearray()
            for oldest in list(self._ends)[: 1 - _MOST_IDS]:
                del self._ends[oldest]
        ends = self._ends.setdefault(producer_id, bytearray())
        if epochs:
            ends.extend(bytes(max(0, epochs.stop - len(ends))))
            ends[epochs.start : epochs.stop] = bytes(
                [_MEANS.index(committed)] * len(epochs)
            )
