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
from mirror.clusters.produce import HEADER_SIZE
from mirror.errors import CorruptBatchError

if TYPE_CHECKING:
    from collections.abc import Sequence

Rows = npt.NDArray[np.int64]
Buffer = npt.NDArray[np.uint8]

CODEC_MASK = 0x07
LOG_APPEND_TIME = 0x08
TRANSACTIONAL = 0x10
CONTROL = 0x20

_MOST_BATCHES = 1 << 16
_SMALL_BATCH = 1 << 10
"""Up to here a compiled sum is quicker than calling the library's."""
_CRC_TABLES = scan.crc_tables()
_CRC = struct.Struct(">I")
_EPOCH = struct.Struct(">i")
_INT16 = struct.Struct(">h")
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
        CorruptBatchError: a checksum is wrong or the message format is not v2.
    """
    count, at = scan.index(buffer, start, end, scratch)
    if count < 0:
        raise CorruptBatchError(
            f"message format v{buffer[at + 16]} at offset {position}: mirror copies "
            "format v2; rewrite the topic with a producer of Kafka 0.11 or newer"
        )
    # First of all: nothing in a damaged header can be believed, offsets included.
    rows = _undamaged(buffer, scratch[:count])
    rows = rows[rows[:, scan.LAST] >= position]
    if not len(rows):
        return Batches(rows=rows, next_offset=position, skipped=0)
    next_offset, leader_epoch = _behind(buffer, rows)
    kept = rows
    if (rows[:, scan.ATTRIBUTES] & (TRANSACTIONAL | CONTROL)).any():
        kept = rows[_visible(buffer, rows, aborted)]
    kept = kept[kept[:, scan.COUNT] > 0]
    skipped = int(rows[:, scan.COUNT].sum() - kept[:, scan.COUNT].sum())
    return Batches(
        rows=kept.copy(),
        next_offset=next_offset,
        skipped=skipped,
        leader_epoch=leader_epoch,
    )


def leads_to(buffer: Buffer, start: int, end: int, *, scratch: Rows) -> tuple[int, int]:
    """What `read` would give as next offset and leader epoch if nothing is damaged;
    (-1, -1) if no whole batch of our format comes first.
    """
    count, _ = scan.index(buffer, start, end, scratch)
    return _behind(buffer, scratch[:count]) if count > 0 else (-1, -1)


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
    """Which batches a read_committed reader sees.

    A producer's batches are hidden from its aborted transaction's first offset up
    to its abort marker. Source: Kafka's `CompletedFetch`.
    """
    waiting = sorted(((first, producer) for producer, first in aborted), reverse=True)
    hidden: set[int] = set()
    visible = np.ones(len(rows), np.bool_)
    columns = [scan.AT, scan.LAST, scan.ATTRIBUTES, scan.PRODUCER]
    for row, (at, last, attributes, producer) in enumerate(rows[:, columns].tolist()):
        while waiting and waiting[-1][0] <= last:
            hidden.add(waiting.pop()[1])
        if attributes & CONTROL:
            visible[row] = False
            if _is_abort(buffer, at):
                hidden.discard(producer)
        elif attributes & TRANSACTIONAL and producer in hidden:
            visible[row] = False
    return visible


def _is_abort(buffer: Buffer, at: int) -> bool:
    """Whether a control batch is an abort marker: its record's key is
    (version INT16, type INT16), type 0 for abort.
    """
    fields = np.empty((1, 4), np.int64)
    kernels.fields(buffer, at + HEADER_SIZE, 1, fields)
    key_at = int(fields[0, 0])
    return bool(_INT16.unpack_from(buffer.data, key_at + 2)[0] == _ABORT_MARKER)
