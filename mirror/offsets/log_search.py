"""Looks for what one producer wrote to a log in one of its transactions.

Main types: `LogSearch`, and the `LogEntry`s that it finds: batches and markers, decided
or not. Each v2 transaction (KIP-890) has an epoch of its own, so producer id and epoch
name it. The end of a log is looked through first.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from mirror.batches import records
from mirror.batches.reading import TopicReader
from mirror.batches.writing import prove_leader
from mirror.clusters.admin import topic_admin
from mirror.clusters.wire.produce import PRODUCER, PRODUCER_AT
from mirror.errors import AuthorizationError, NoLeaderError
from mirror.offsets.progress import PROOF_KEY

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from mirror.clusters.cluster import Cluster

TopicPartition = tuple[str, int]

_FIRST_OFFSETS = 10_000
"""How far back to look at first; each further time twice as far."""
_MOST_OFFSETS = 2_000_000
"""How far back at most: a take-over waits meanwhile."""


class LogEntry(NamedTuple):
    """A batch in a log, or a marker."""

    offset: int
    producer_id: int
    epoch: int
    committed: bool | None
    """Of a marker; None: it is a batch."""
    records: tuple[tuple[bytes, bytes], ...] = ()
    """Keys and values of a batch, if they were to be read."""

    @property
    def transaction(self) -> tuple[int, int]:
        return self.producer_id, self.epoch


class LogSearch:
    """Looks for one transaction in logs."""

    def __init__(self, target: Cluster, producer_id: int, epoch: int) -> None:
        self._target = target
        self._producer_id = producer_id
        self._epoch = epoch

    def back(
        self, where: TopicPartition, *, proven: bool = False, reading: bool = False
    ) -> list[LogEntry] | None:
        """What the producer wrote from this transaction on, as it stands in the log;
        empty if the transaction is not there, None if it may be further back, or we may
        not read. `proven`: by a leader that is not cut off, and shows what came last.
        """
        try:
            return self._back(where, proven=proven, reading=reading)
        except AuthorizationError:
            return None

    def _back(
        self, where: TopicPartition, *, proven: bool, reading: bool
    ) -> list[LogEntry] | None:
        proof = prove_leader(self._target, where[0], PROOF_KEY) if proven else -1
        end = max(proof + 1, self._offset(where, topic_admin.LATEST))
        start = self._offset(where, topic_admin.EARLIEST)
        least, offsets = max(start, end - _MOST_OFFSETS), _FIRST_OFFSETS
        found: list[LogEntry] = []
        first: int | None = None
        while end > least and not first:  # of several batches, the first one
            begin = max(least, end - offsets)
            found = [*self._ours(where, begin, end, reading=reading), *found]
            first = next((n for n, e in enumerate(found) if self._is_part(e)), None)
            if first is None and any(self._is_earlier(entry) for entry in found):
                return []
            end, offsets = begin, 2 * offsets
        if first is not None:
            return found[first:]
        return [] if least == start else None

    def on(self, where: TopicPartition, offset: int) -> Iterator[LogEntry]:
        """What the producer wrote to a partition from this offset on, if it exists."""
        if self._target.topic(where[0]) is None:
            return iter(())
        return self._ours(where, offset, self._offset(where, topic_admin.LATEST))

    def of_all(
        self, where: TopicPartition, entries: Sequence[LogEntry]
    ) -> Iterator[LogEntry]:
        """What all producers wrote from these entries on, of which there are some."""
        end = max(entries[-1].offset + 1, self._offset(where, topic_admin.LATEST))
        return self._entries(where, entries[0].offset, end, reading=True)

    def _is_part(self, entry: LogEntry) -> bool:
        return entry.committed is None and entry.epoch == self._epoch

    def _is_earlier(self, entry: LogEntry) -> bool:
        return entry.committed is None and entry.epoch < self._epoch

    def _offset(self, where: TopicPartition, timestamp: int) -> int:
        found = topic_admin.list_offsets(
            self._target, [where], timestamp=timestamp, committed=False
        )
        if where not in found:
            name = f"{where[0]}-{where[1]}"
            raise NoLeaderError(f"cluster {self._target.alias}: {name} has no leader")
        return found[where]

    def _ours(
        self, where: TopicPartition, begin: int, end: int, *, reading: bool = False
    ) -> Iterator[LogEntry]:
        return self._entries(
            *(where, begin, end), reading=reading, producer_id=self._producer_id
        )

    def _entries(
        self,
        where: TopicPartition,
        begin: int,
        end: int,
        *,
        reading: bool,
        producer_id: int | None = None,
    ) -> Iterator[LogEntry]:
        """What this producer, or all, wrote there, in the order of the log."""
        from mirror.batches import batch, scan  # noqa: PLC0415  kernels, and it is rare

        topic, partition = where
        reader = TopicReader(
            self._target, topic, partition=partition, position=begin, committed=False
        )
        columns = [scan.BASE, scan.PRODUCER, scan.AT]
        for buffer, answer in reader.seen(end):
            rows = answer.rows if answer.seen is None else answer.seen
            # An answer has whole batches, of which more may stand outside. The cleaner
            # leaves empty ones, whose markers may be gone.
            base = rows[:, scan.BASE]
            wanted = (base >= begin) & (base < end) & (rows[:, scan.COUNT] > 0)
            if producer_id is not None:
                wanted &= rows[:, scan.PRODUCER] == producer_id
            rows = rows[wanted]
            is_marker = (rows[:, scan.ATTRIBUTES] & batch.CONTROL) != 0
            ends = iter(batch.markers(buffer, rows[is_marker]).tolist())
            for n, (offset, pid, at) in enumerate(rows[:, columns].tolist()):
                _, epoch, _ = PRODUCER.unpack_from(buffer.data, at + PRODUCER_AT)
                if is_marker[n]:
                    committed = next(ends) != batch.ABORT_MARKER
                    yield LogEntry(offset, pid, epoch, committed)
                    continue
                decoded = records.decode(buffer, rows[n : n + 1]) if reading else ()
                found = tuple((key, value) for _, key, value in decoded)
                yield LogEntry(offset, pid, epoch, None, found)
