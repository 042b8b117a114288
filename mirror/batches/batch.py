"""The record batches of one fetched partition: found, checked, the visible ones.

Main type: `Batches`, rows over the connection's buffer in the order of the log.
Aborted and control batches are left out here, by Kafka's rule for read_committed
consumers; what is inside the others is not changed (see `rewrite`).
"""

from __future__ import annotations

from dataclasses import dataclass
import struct
from typing import TYPE_CHECKING

from crc32c import crc32c
import numpy as np
import numpy.typing as npt

from mirror.batches import kernels, scan
from mirror.clusters.wire.produce import HEADER_SIZE
from mirror.errors import CorruptBatchError

if TYPE_CHECKING:
    from collections.abc import Sequence

Rows = npt.NDArray[np.int64]
Buffer = npt.NDArray[np.uint8]

CODEC_MASK = 0x07
LOG_APPEND_TIME = 0x08
TRANSACTIONAL = 0x10
CONTROL = 0x20
DELETE_HORIZON = 0x40
"""The log cleaner's mark: the header's base time is when it may remove markers and
tombstones, and no record's time; records count theirs from it all the same."""

_MOST_BATCHES = 1 << 16
_SMALL_BATCH = 1 << 10
"""Up to here a compiled sum is quicker than calling the library's."""
_CRC_TABLES = scan.crc_tables()
_OFFSET = struct.Struct(">q")
_CRC = struct.Struct(">I")
_EPOCH = struct.Struct(">i")
_CONTROL_KEY = struct.Struct(">hh")
_ABORT_MARKER = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Batches:
    """What one Fetch answer brought for a partition."""

    rows: Rows
    """The batches to copy, one row each (columns: `scan.AT` and so on)."""
    next_offset: int
    """Where to read on: behind the last batch seen, copied or not."""
    skipped: int
    """Records of aborted transactions and markers that were left out."""
    leader_epoch: int = -1
    """Under which leader the last batch was written."""
    seen: Rows | None = None
    """All batches, those that are not copied too."""

    def until(self, buffer: Buffer, offset: int) -> tuple[int, int]:
        """Where to read on if only what stands before `offset` is done, and under which
        leader the batch before was written; epoch -1 if none was seen.

        That is the end of this batch if `offset` is behind it: what once stood between
        may have been of other leaders.
        """
        if self.seen is None or offset <= self.seen[0, scan.BASE]:
            return offset, -1
        before = self.seen[self.seen[:, scan.BASE] < offset]
        end, epoch = _behind(buffer, before)
        return min(offset, end), epoch


def scratch() -> Rows:
    """Room for the rows of one answer, to be used again and again."""
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

    `aborted`: (producer id, first offset) of aborted transactions, as answered.

    Raises:
        CorruptBatchError: of the first batch the checksum is wrong, the header
            contradicts itself, it is a marker that says nothing, or not of message
            format v2. Where that is another one, it ends what is listed.
    """
    count, at = scan.index(buffer, start, end, scratch)
    if count == scan.UNKNOWN_FORMAT:
        raise CorruptBatchError(
            f"message format v{buffer[at + 16]} at offset {position}: mirror copies "
            "format v2; rewrite the topic with a producer of Kafka 0.11 or newer"
        )
    if count == scan.DAMAGED:
        base = _OFFSET.unpack_from(buffer.data, at)[0]
        raise CorruptBatchError(
            f"the batch at offset {base} is damaged: the sizes, counts "
            "and offsets in its header cannot all be right"
        )
    # First of all: nothing in a damaged header can be believed, offsets included.
    rows = _undamaged(buffer, scratch[:count])
    rows = rows[rows[:, scan.LAST] >= position]
    if not len(rows):
        return Batches(rows=rows, next_offset=position, skipped=0)
    # The log cleaner leaves batches without records, markers too: these mark nothing.
    kept = rows[rows[:, scan.COUNT] > 0]
    if (kept[:, scan.ATTRIBUTES] & (TRANSACTIONAL | CONTROL)).any():
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
    skipped = int(rows[:, scan.COUNT].sum() - kept[:, scan.COUNT].sum())
    return Batches(
        rows=kept,
        next_offset=next_offset,
        skipped=skipped,
        leader_epoch=leader_epoch,
        seen=rows,
    )


def leads_to(buffer: Buffer, start: int, end: int, *, scratch: Rows) -> tuple[int, int]:
    """What `read` would give as next offset and leader epoch if nothing is damaged;
    (-1, -1) if no whole batch of our format comes first.
    """
    count, _ = scan.index(buffer, start, end, scratch)
    return _behind(buffer, scratch[:count]) if count > 0 else (-1, -1)


def sections(rows: Rows) -> Rows:
    """Where the records of batches lie that are not compressed, a row per batch (see
    `kernels.merge`).
    """
    out = np.empty((len(rows), kernels.MERGE_COLUMNS), np.int64)
    out[:, kernels.SOURCE_AT] = rows[:, scan.AT] + HEADER_SIZE
    out[:, kernels.SOURCE_END] = rows[:, scan.AT] + rows[:, scan.SIZE]
    out[:, kernels.RECORDS] = rows[:, scan.COUNT]
    out[:, kernels.FIRST_TIME] = rows[:, scan.BASE_TIME]
    out[:, kernels.FIRST_OFFSET] = rows[:, scan.BASE]
    out[:, kernels.LAST_DELTA] = rows[:, scan.LAST] - rows[:, scan.BASE]
    appended = (rows[:, scan.ATTRIBUTES] & LOG_APPEND_TIME) != 0
    out[:, kernels.FIXED_TIME] = np.where(appended, rows[:, scan.MAX_TIME], -1)
    return out


def _behind(buffer: Buffer, rows: Rows) -> tuple[int, int]:
    """The offset behind the last batch, and under which leader that was written."""
    at, last = int(rows[-1, scan.AT]), int(rows[-1, scan.LAST])
    return last + 1, _EPOCH.unpack_from(buffer.data, at + 12)[0]


def _undamaged(buffer: Buffer, rows: Rows) -> Rows:
    """The rows up to the first batch with a wrong checksum, which must not be the
    first of all.
    """
    view = buffer.data
    damaged = scan.first_damaged(buffer, rows, _CRC_TABLES, _SMALL_BATCH)
    large = np.flatnonzero(rows[:damaged, scan.SIZE] > _SMALL_BATCH)
    for row, (at, size) in zip(
        large.tolist(), rows[large, : scan.SIZE + 1].tolist(), strict=True
    ):
        if crc32c(view[at + 21 : at + size]) != _CRC.unpack_from(view, at + 17)[0]:
            damaged = row
            break
    if damaged == 0 and len(rows):
        raise CorruptBatchError(
            f"the batch at offset {rows[0, scan.BASE]} is damaged: its checksum is "
            "wrong"
        )
    return rows[:damaged]


def _visible(
    buffer: Buffer, rows: Rows, aborted: Sequence[tuple[int, int]]
) -> npt.NDArray[np.bool_]:
    """Which batches a read_committed reader sees, up to the first damaged marker.

    A producer's batches are hidden from its aborted transaction's first offset up
    to its abort marker. Source: Kafka's `CompletedFetch`.
    """
    waiting = sorted(((first, producer) for producer, first in aborted), reverse=True)
    hidden: set[int] = set()
    visible = np.ones(len(rows), np.bool_)
    columns = [scan.LAST, scan.ATTRIBUTES, scan.PRODUCER]
    for row, (last, attributes, producer) in enumerate(rows[:, columns].tolist()):
        while waiting and waiting[-1][0] <= last:
            hidden.add(waiting.pop()[1])
        if attributes & CONTROL:
            visible[row] = False
            ended = _marker(buffer, rows[row])
            if ended is None:
                return visible[:row]
            if ended == _ABORT_MARKER:
                hidden.discard(producer)
        elif attributes & TRANSACTIONAL and producer in hidden:
            visible[row] = False
    return visible


def _marker(buffer: Buffer, row: Rows) -> int | None:
    """How a control batch says that a transaction ended: its record's key is (version
    INT16, type INT16), type 0 for abort. None if it says nothing.
    """
    at, end = int(row[scan.AT]), int(row[scan.AT] + row[scan.SIZE])
    fields = np.empty((1, 4), np.int64)
    fitting = row[scan.ATTRIBUTES] & CODEC_MASK == 0 and (
        kernels.fields(buffer, at + HEADER_SIZE, end, 1, fields) >= 0
    )
    key_at, key_size = fields[0, :2].tolist() if fitting else (0, -1)
    if key_size < _CONTROL_KEY.size:
        return None
    return int(_CONTROL_KEY.unpack_from(buffer.data, key_at)[1])
