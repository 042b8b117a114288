"""The record batches of one fetched partition: finds, checks and filters them.

Main type: `Batches`, rows over the connection's buffer in log order. This module leaves
out aborted and control batches by Kafka's rule for read_committed consumers, and does
not change what is inside the others (see `copying.rewrite`).
"""

from __future__ import annotations

from dataclasses import dataclass
import struct
from typing import TYPE_CHECKING

from crc32c import crc32c
import numpy as np
import numpy.typing as npt

from mirror.clusters.wire.produce import HEADER_SIZE
from mirror.errors import CorruptBatchError
from mirror.records import merge_loop, scan

if TYPE_CHECKING:
    from collections.abc import Sequence

Rows = npt.NDArray[np.int64]
Buffer = npt.NDArray[np.uint8]

CODEC_MASK = 0x07
LOG_APPEND_TIME = 0x08
TRANSACTIONAL = 0x10
CONTROL = 0x20
DELETE_HORIZON = 0x40
"""Set by the log cleaner: the header's base time says when it may remove markers and
tombstones. It is no record's time, but record times are still relative to it."""

_MOST_BATCHES = 1 << 16
_SMALL_BATCH, _SMALL_ANSWER = 1 << 10, 8 << 10
"""Up to this size of a batch, or of all of an answer's, a compiled checksum is faster
than calling the library."""
_CRC_TABLES = scan.crc_tables()
_OFFSET = struct.Struct(">q")
_CRC = struct.Struct(">I")
_EPOCH = struct.Struct(">i")
_MARKER_KEY = 4
"""Bytes."""
ABORT_MARKER = 0
UNREADABLE = -1
"""What `markers` has for others."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Batches:
    """A partition's batches in one Fetch answer."""

    rows: Rows
    """The batches to copy, one row each (columns: `scan.AT` and so on)."""
    next_offset: int
    """Where to continue reading: after the last batch seen, copied or not."""
    skipped: int
    """Records of aborted transactions, and markers, that were left out."""
    leader_epoch: int = -1
    """The leader epoch of the last batch."""
    seen: Rows | None = None
    """All batches, including those that are not copied."""

    def until(self, buffer: Buffer, offset: int) -> tuple[int, int]:
        """Where to continue reading if only what precedes `offset` is done, and the
        leader epoch of the batch before; -1 if none was seen.

        If `offset` is after that batch's end, the end is returned: records once in
        between may have had other leaders.
        """
        if self.seen is None or offset <= self.seen[0, scan.BASE]:
            return offset, -1
        before = self.seen[self.seen[:, scan.BASE] < offset]
        end, epoch = _behind(buffer, before)
        return min(offset, end), epoch


def scratch() -> Rows:
    """A reusable array for the rows of one answer."""
    return np.empty((_MOST_BATCHES, scan.COLUMNS), np.int64)


def read(
    buffer: Buffer,
    start: int,
    end: int,
    *,
    position: int,
    aborted: Sequence[tuple[int, int]],
    scratch: Rows,
) -> Batches:
    """List the batches between start and end that a reader at `position` may see.

    `aborted`: (producer id, first offset) of aborted transactions, as in the answer.

    Raises:
        CorruptBatchError: the first batch has a wrong checksum or a contradictory
            header, is an unreadable marker, is not of message format v2, or is not
            there as a whole. If this applies to a later one, the list ends before it.
    """
    count, at = scan.index(buffer, start, end, scratch)
    if count == scan.UNKNOWN_FORMAT:
        raise CorruptBatchError(
            f"message format v{buffer[at + 16]} at offset {position}: mirror reads "
            "v0, v1 and v2"
        )
    if count == scan.DAMAGED:
        base = _OFFSET.unpack_from(buffer.data, at)[0]
        raise CorruptBatchError(
            f"the batch at offset {base} is damaged: the sizes, counts "
            "and offsets in its header cannot all be right"
        )
    if not count and end > start:
        # Since Fetch v3, the first batch is sent whole, or nothing is.
        raise CorruptBatchError(
            f"no whole batch in the {end - start} bytes that the broker sent for "
            f"offset {position}"
        )
    # Check this first: nothing in a damaged header can be trusted, not even offsets.
    rows = _undamaged(buffer, scratch[:count].copy())
    if len(rows) and rows[0, scan.LAST] < position:  # they ascend
        rows = rows[rows[:, scan.LAST] >= position]
    if not len(rows):
        return Batches(rows=rows, next_offset=position, skipped=0)
    # The log cleaner leaves empty batches, even markers: those mark nothing.
    emptied, attributes = scan.marks(rows)
    kept = rows[rows[:, scan.COUNT] > 0] if emptied else rows
    if attributes & (TRANSACTIONAL | CONTROL):
        visible = _visible(buffer, kept, aborted)
        if len(visible) < len(kept):
            rows = rows[rows[:, scan.BASE] < kept[len(visible), scan.BASE]]
            if not len(rows):
                raise CorruptBatchError(
                    f"the control batch at offset {kept[0, scan.BASE]} is damaged: it "
                    "ends no transaction"
                )
        kept = kept[: len(visible)][visible]
    next_offset, leader_epoch = _behind(buffer, rows)
    skipped = 0
    if kept is not rows:
        skipped = int(rows[:, scan.COUNT].sum() - kept[:, scan.COUNT].sum())
    return Batches(
        rows=kept,
        next_offset=next_offset,
        skipped=skipped,
        leader_epoch=leader_epoch,
        seen=rows,
    )


def leads_to(buffer: Buffer, start: int, end: int, *, scratch: Rows) -> tuple[int, int]:
    """The next offset and leader epoch that `read` would return if nothing is damaged;
    (-1, -1) if there is no complete batch of our format at the start.
    """
    count, _ = scan.index(buffer, start, end, scratch)
    return _behind(buffer, scratch[:count]) if count > 0 else (-1, -1)


def sections(rows: Rows) -> Rows:
    """The record sections of uncompressed batches, a row per batch (see
    `merge_loop.merge`).
    """
    out = np.empty((len(rows), merge_loop.MERGE_COLUMNS), np.int64)
    out[:, merge_loop.SOURCE_AT] = rows[:, scan.AT] + HEADER_SIZE
    out[:, merge_loop.SOURCE_END] = rows[:, scan.AT] + rows[:, scan.SIZE]
    out[:, merge_loop.RECORDS] = rows[:, scan.COUNT]
    out[:, merge_loop.FIRST_TIME] = rows[:, scan.BASE_TIME]
    out[:, merge_loop.FIRST_OFFSET] = rows[:, scan.BASE]
    out[:, merge_loop.LAST_DELTA] = rows[:, scan.LAST] - rows[:, scan.BASE]
    appended = (rows[:, scan.ATTRIBUTES] & LOG_APPEND_TIME) != 0
    out[:, merge_loop.FIXED_TIME] = np.where(appended, rows[:, scan.MAX_TIME], -1)
    return out


def damaged_records(offset: int) -> CorruptBatchError:
    """The error for records that do not fit their batch, which begins at `offset`."""
    return CorruptBatchError(
        f"the batch at offset {offset} is damaged: the lengths, offsets and counts in "
        "its records cannot all be right"
    )


def _behind(buffer: Buffer, rows: Rows) -> tuple[int, int]:
    """The offset after the last batch, and that batch's leader epoch."""
    at, last = int(rows[-1, scan.AT]), int(rows[-1, scan.LAST])
    return last + 1, _EPOCH.unpack_from(buffer.data, at + 12)[0]


def _undamaged(buffer: Buffer, rows: Rows) -> Rows:
    """The rows before the first batch with a wrong checksum. Raises if that is the
    first row.
    """
    if not len(rows):
        return rows
    whole = int(rows[-1, scan.AT] + rows[-1, scan.SIZE] - rows[0, scan.AT])
    small = whole <= _SMALL_ANSWER
    damaged = scan.first_damaged(
        buffer, rows, _CRC_TABLES, whole if small else _SMALL_BATCH
    )
    if not small:
        damaged = _first_large_damaged(buffer, rows[:damaged])
    if damaged == 0:
        raise CorruptBatchError(
            f"the batch at offset {rows[0, scan.BASE]} is damaged: its checksum is "
            "wrong"
        )
    return rows[:damaged]


def _first_large_damaged(buffer: Buffer, rows: Rows) -> int:
    """The first row above `_SMALL_BATCH` with a wrong checksum, or their count."""
    view = buffer.data
    large = np.flatnonzero(rows[:, scan.SIZE] > _SMALL_BATCH)
    for row, (at, size) in zip(
        large.tolist(), rows[large, : scan.SIZE + 1].tolist(), strict=True
    ):
        if crc32c(view[at + 21 : at + size]) != _CRC.unpack_from(view, at + 17)[0]:
            return row
    return len(rows)


def _visible(
    buffer: Buffer, rows: Rows, aborted: Sequence[tuple[int, int]]
) -> npt.NDArray[np.bool_]:
    """Which batches a read_committed reader sees, up to the first damaged marker.

    A producer's batches are hidden from the first offset of its aborted transaction to
    its abort marker. Source: Kafka's `CompletedFetch`.
    """
    control = (rows[:, scan.ATTRIBUTES] & CONTROL) != 0
    ended = markers(buffer, rows[control])
    if (damaged := np.flatnonzero(ended == UNREADABLE)).size:
        rows = rows[: np.flatnonzero(control)[damaged[0]]]
        control = control[: len(rows)]
    visible: npt.NDArray[np.bool_] = ~control
    if not aborted:
        return visible
    endings = iter(ended.tolist())
    waiting = sorted(((first, producer) for producer, first in aborted), reverse=True)
    hidden: set[int] = set()
    columns = [scan.LAST, scan.ATTRIBUTES, scan.PRODUCER]
    for row, (last, attributes, producer) in enumerate(rows[:, columns].tolist()):
        while waiting and waiting[-1][0] <= last:
            hidden.add(waiting.pop()[1])
        if attributes & CONTROL:
            if next(endings) == ABORT_MARKER:
                hidden.discard(producer)
        elif attributes & TRANSACTIONAL and producer in hidden:
            visible[row] = False
    return visible


def markers(buffer: Buffer, rows: Rows) -> npt.NDArray[np.int64]:
    """How transactions ended, according to these control batches: a record's key is
    (version INT16, type INT16), with type 0 for abort. What follows a damaged one is
    not looked at.
    """
    first = sections(rows)
    first[:, merge_loop.RECORDS] = 1
    places = np.empty((len(rows), merge_loop.PLACES), np.int64)
    state = np.zeros(merge_loop.STATES, np.int64)
    count = merge_loop.fields(buffer, first, state, places)
    found = places[: count if count >= 0 else ~count]
    keyed = np.flatnonzero(found[:, 2] >= _MARKER_KEY)
    at = found[keyed, 1]
    ended = np.full(len(rows), UNREADABLE, np.int64)
    ended[keyed] = buffer[at + 2].astype(np.int64) << 8 | buffer[at + 3]
    ended[(rows[:, scan.ATTRIBUTES] & CODEC_MASK) != 0] = UNREADABLE
    return ended
