"""The log of one partition: batches, producers' states, transactions.

Main type: `PartitionLog`, which takes v2 batches as a leader does: it checks checksum,
epoch and sequence, gives offsets, knows the last stable offset and the aborted
transactions. Source: Kafka's `UnifiedLog` and `ProducerStateManager`, as far as clients
can tell.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
import functools
import struct
from typing import TYPE_CHECKING, NamedTuple

from crc32c import crc32c
from kafka.record.memory_records import MemoryRecords

if TYPE_CHECKING:
    from collections.abc import Sequence

NONE, CORRUPT, OUT_OF_ORDER, INVALID_EPOCH = 0, 2, 45, 47
_HEAD = struct.Struct(">qiibIhiqqqhii")
"""Base offset, length, leader epoch, magic, CRC, attributes, last offset delta, first
and largest timestamp, producer id and epoch, first sequence, count of records."""
HEAD_SIZE = _HEAD.size
_TRANSACTIONAL, _CONTROL = 0x10, 0x20
_REMEMBERED = 5
_SEQUENCES = 1 << 31


class Batch(NamedTuple):
    """A batch in a log."""

    base: int
    last: int
    epoch: int
    """The leader's epoch that took it."""
    data: bytes
    producer: int
    producer_epoch: int
    sequence: int
    count: int
    transactional: bool
    control: bool
    at: float
    commits: bool = False
    """Of a control batch."""


@dataclass(slots=True)
class _Producer:
    epoch: int
    batches: list[tuple[int, int, int]] = field(default_factory=list)
    """First and last sequence and the base offset of the last few."""
    open_since: int = -1
    """The first offset of its open transaction."""
    newest: int = -1
    """The largest timestamp of its last batch, epoch ms."""


class Appended(NamedTuple):
    """What came of an append."""

    error: int
    base: int = -1


class Aborted(NamedTuple):
    """A transaction that ended in an abort."""

    producer: int
    first: int
    last: int
    """The offset of its marker."""


class PartitionLog:
    """One replica's log; the leader's, unless it is said otherwise."""

    def __init__(self) -> None:
        self.batches: list[Batch] = []
        self.start = 0
        self.end = 0
        self.epoch = 0
        """The leader epoch of what is appended now."""
        self.epochs: list[tuple[int, int]] = [(0, 0)]
        """Epochs with records, and the offset where each begins."""
        self.aborted: list[Aborted] = []
        self.replicated: int | None = None
        """Up to where followers have it, while they are slow; None: they have all."""
        self._producers: dict[int, _Producer] = {}

    def copy(self) -> PartitionLog:
        """As it is now."""
        made = PartitionLog()
        made.batches, made.start, made.end = list(self.batches), self.start, self.end
        made.epoch, made.epochs = self.epoch, list(self.epochs)
        made.aborted = list(self.aborted)
        made._producers = {
            pid: replace(each, batches=list(each.batches))
            for pid, each in self._producers.items()
        }
        return made

    @property
    def high(self) -> int:
        """The high watermark."""
        return self.end if self.replicated is None else min(self.replicated, self.end)

    @property
    def stable(self) -> int:
        """The last stable offset."""
        since = [p.open_since for p in self._producers.values() if p.open_since >= 0]
        return min([*since, self.high])

    def open_producers(self) -> list[tuple[int, int, int]]:
        """Id, epoch and transaction's first offset (-1: none) of each producer."""
        return [(pid, p.epoch, p.open_since) for pid, p in self._producers.items()]

    def last_sequence(self, producer: int) -> int:
        """-1 if it is not known here, or has only written markers."""
        known = self._producers.get(producer)
        return known.batches[-1][1] if known and known.batches else -1

    def newest_of(self, producer: int) -> int:
        """The largest timestamp in a producer's last batch, epoch ms."""
        return self._producers[producer].newest

    def expire(self, before: int) -> None:
        """Forget producers whose last batch has no record as new as this (epoch ms), as
        leaders do every ten minutes and when they load a log.
        """
        for pid, each in list(self._producers.items()):
            if each.open_since < 0 and each.newest < before:
                del self._producers[pid]

    def epoch_of(self, producer: int) -> int:
        """-1 if it is not known here."""
        known = self._producers.get(producer)
        return -1 if known is None else known.epoch

    def is_open(self, producer: int) -> bool:
        known = self._producers.get(producer)
        return known is not None and known.open_since >= 0

    def append(self, data: bytes, at: float, *, strict: bool = False) -> Appended:
        """Take a producer's batch, or refuse it. `strict`: a producer that is not known
        here begins with sequence 0 (KIP-890).
        """
        (_, size, _, magic, crc, attributes, delta, _, _, producer, epoch, sequence,
         count) = _HEAD.unpack_from(data)  # fmt: skip
        if size + 12 != len(data) or magic != 2 or crc32c(data[21:]) != crc:
            return Appended(CORRUPT)
        transactional = bool(attributes & _TRANSACTIONAL)
        if producer >= 0:
            known = self._producers.get(producer)
            if known is not None and epoch < known.epoch:
                return Appended(INVALID_EPOCH)
            last = (sequence + count - 1) % _SEQUENCES
            if known is not None and epoch == known.epoch:
                for first, its_last, base in known.batches:
                    if (first, its_last) == (sequence, last):
                        return Appended(NONE, base)  # it is here already
                if known.batches:
                    expected = (known.batches[-1][1] + 1) % _SEQUENCES
                    if sequence != expected:
                        return Appended(OUT_OF_ORDER)
                elif sequence != 0 and (strict or known.open_since >= 0):
                    return Appended(OUT_OF_ORDER)
            elif (known is not None or strict) and sequence != 0:
                return Appended(OUT_OF_ORDER)
        batch = Batch(
            base=self.end,
            last=self.end + delta,
            epoch=self.epoch,
            data=struct.pack(">q", self.end)
            + data[8:12]
            + struct.pack(">i", self.epoch)
            + data[16:],
            producer=producer,
            producer_epoch=epoch,
            sequence=sequence,
            count=count,
            transactional=transactional,
            control=False,
            at=at,
        )
        self._add(batch)
        return Appended(NONE, batch.base)

    def end_transaction(
        self, producer: int, epoch: int, *, commit: bool, at: float
    ) -> bool:
        """Append a marker; False if a newer epoch of the producer forbids it."""
        known = self._producers.get(producer)
        if known is not None and epoch < known.epoch:
            return False
        data = bytearray(_marker(producer, epoch, commit=commit, at=at))
        struct.pack_into(">q", data, 0, self.end)
        struct.pack_into(">i", data, 12, self.epoch)
        self._add(
            Batch(
                base=self.end,
                last=self.end,
                epoch=self.epoch,
                data=bytes(data),
                producer=producer,
                producer_epoch=epoch,
                sequence=-1,
                count=1,
                transactional=True,
                control=True,
                at=at,
                commits=commit,
            )
        )
        return True

    def _add(self, batch: Batch) -> None:
        if not self.epochs or self.epochs[-1][0] < batch.epoch:
            self.epochs.append((batch.epoch, batch.base))  # of a log built up again
        self.batches.append(batch)
        self.end = batch.last + 1
        if batch.producer < 0:
            return
        state = self._producers.get(batch.producer)
        if state is None or state.epoch < batch.producer_epoch:
            since = -1 if state is None else state.open_since
            state = self._producers[batch.producer] = _Producer(
                batch.producer_epoch, open_since=since
            )
        if batch.control:
            if state.open_since >= 0 and not batch.commits:
                self.aborted.append(
                    Aborted(batch.producer, state.open_since, batch.base)
                )
            state.open_since = -1
            return
        last = (batch.sequence + batch.count - 1) % _SEQUENCES
        state.newest = _HEAD.unpack_from(batch.data)[8]
        state.batches.append((batch.sequence, last, batch.base))
        del state.batches[:-_REMEMBERED]
        if batch.transactional and state.open_since < 0:
            state.open_since = batch.base

    def truncate(self, end: int) -> None:
        """Lose everything from this offset on, as a log does whose new leader has less;
        a batch goes as a whole.
        """
        kept = [batch for batch in self.batches if batch.last < end]
        gone = self.batches[len(kept) :]
        end = min(end, gone[0].base if gone else self.end)
        self._become(kept)
        self.end = max(self.end, end)  # the cleaner may have taken what was before

    def _become(self, batches: list[Batch]) -> None:
        """Build everything up again from these batches."""
        start, epoch = self.start, self.epoch
        self.batches, self.epochs, self.aborted = [], [], []
        self._producers, self.end = {}, start
        for batch in batches:
            self._add(batch)
        self.start, self.epoch = start, epoch

    def delete_before(self, offset: int) -> None:
        """Retention: older batches go, the states of producers stay."""
        self.start = min(max(offset, self.start), self.end)
        self.batches = [batch for batch in self.batches if batch.last >= self.start]
        self.aborted = [each for each in self.aborted if each.last >= self.start]
        ended = [at for _, at in self.epochs[1:]] + [self.end + 1]
        self.epochs = [
            (epoch, max(at, self.start))
            for (epoch, at), end in zip(self.epochs, ended, strict=True)
            if end > self.start
        ]

    def read(self, offset: int, *, limit: int, max_bytes: int) -> bytes:
        """Whole batches from the one with this offset, below `limit`."""
        found = bytearray()
        for batch in self.batches:
            if batch.last < offset:
                continue
            if batch.base >= limit or (
                found and len(found) + len(batch.data) > max_bytes
            ):
                break
            found += batch.data
        return bytes(found)

    def aborted_in(self, first: int, end: int) -> list[Aborted]:
        """The aborted transactions that reach into a range."""
        return [
            each for each in self.aborted if each.last >= first and each.first < end
        ]

    def begin_epoch(self, epoch: int) -> None:
        """A leader begins; an epoch without a record is forgotten."""
        self.epoch = epoch
        self.epochs = [each for each in self.epochs if each[1] < self.end]
        self.epochs.append((epoch, self.end))

    def end_of_epoch(self, epoch: int) -> tuple[int, int]:
        """The newest epoch up to this one, and where it ends; -1 and -1 if unknown.

        Source: Kafka's `LeaderEpochFileCache.endOffsetFor`.
        """
        if self.epochs and epoch == self.epochs[-1][0]:
            return epoch, self.end
        higher = [at for known, at in self.epochs if known > epoch]
        if not higher or epoch < 0:
            return -1, -1
        lower = [known for known, _ in self.epochs if known <= epoch]
        return (lower[-1] if lower else epoch), higher[0]


def _marker(producer: int, epoch: int, *, commit: bool, at: float) -> bytes:
    """A control batch with one record (KIP-98)."""
    key = struct.pack(">hh", 0, int(commit))
    value = struct.pack(">hi", 0, 0)
    record = (
        b"\0\0\0"  # attributes, time and offset as deltas
        + bytes([len(key) << 1])
        + key
        + bytes([len(value) << 1])
        + value
        + b"\0"
    )
    record = bytes([len(record) << 1]) + record
    when = int(at * 1000)
    head = bytearray(
        _HEAD.pack(
            0,
            49 + len(record),
            0,
            2,
            0,
            _TRANSACTIONAL | _CONTROL,
            0,
            when,
            when,
            producer,
            epoch,
            -1,
            1,
        )
    )
    struct.pack_into(">I", head, 17, crc32c(bytes(head[21:]) + record))
    return bytes(head) + record


def records_of(batch: Batch) -> Sequence[tuple[int, bytes | None, bytes | None]]:
    """Offset, key and value of a batch's records."""
    return _records_in(batch.data)


@functools.lru_cache(maxsize=8192)  # judges look at the same logs all the time
def _records_in(data: bytes) -> Sequence[tuple[int, bytes | None, bytes | None]]:
    found: list[tuple[int, bytes | None, bytes | None]] = []
    records = MemoryRecords(data)
    while (each := records.next_batch()) is not None:
        found += [(r.offset, r.key, r.value) for r in each]
    return found


def is_filler(log: PartitionLog, offset: int) -> bool:
    """Whether the record there has the header of one without a counterpart."""
    for batch in log.batches:
        if batch.base <= offset <= batch.last:
            records = MemoryRecords(batch.data)
            while (each := records.next_batch()) is not None:
                for record in each:
                    if record.offset == offset:
                        return "mirror.filler" in [name for name, _ in record.headers]
    return False


def committed(
    log: PartitionLog, at: int
) -> list[tuple[int, bytes | None, bytes | None]]:
    """What `read_committed` shows from an offset on."""
    end = log.stable
    aborted = log.aborted_in(at, end)
    return [
        record
        for batch in log.batches
        if at <= batch.last
        and batch.base < end
        and not batch.control
        and not (
            batch.transactional
            and any(
                a.producer == batch.producer and a.first <= batch.base < a.last
                for a in aborted
            )
        )
        for record in records_of(batch)
        if record[0] >= at
    ]
