"""Compiled loops over record batches as they were stored: list them, check them.

`index` lists the batches of a buffer without touching records; `first_damaged` checks
the checksums of small ones; `before_hole` counts those that follow each other, and
`marks` ors their attributes. Bytes in, numbers out: no allocation, no I/O. `merge_loop`
reads the records. Format: Kafka's message format v2.
"""

from __future__ import annotations

import numba
import numpy as np

from mirror.records.compiled import compiled

# Columns of the rows that `index` writes.
AT, SIZE, BASE, LAST, COUNT, ATTRIBUTES, BASE_TIME, MAX_TIME, PRODUCER = range(9)
COLUMNS = 9

# What `index` returns instead of a count.
UNKNOWN_FORMAT, DAMAGED = -2, -3

_HEADER = 61
_LEAST_RECORD = 7  # with its own size
_LAST_OFFSET = (1 << 63) - (1 << 32)
"""Above it, the offsets in a batch might wrap."""


@numba.njit(inline="always")
def int32(buffer, at):
    return np.int32(
        (np.uint32(buffer[at]) << np.uint32(24))
        | (np.uint32(buffer[at + 1]) << np.uint32(16))
        | (np.uint32(buffer[at + 2]) << np.uint32(8))
        | np.uint32(buffer[at + 3])
    )


@numba.njit(inline="always")
def int64(buffer, at):
    value = np.uint64(0)
    for i in range(8):
        value = (value << np.uint64(8)) | np.uint64(buffer[at + i])
    return np.int64(value)


CASTAGNOLI, ZIP = 0x82F63B78, 0xEDB88320
"""The polynomials of CRC-32C, and of the CRC-32 in formats v0 and v1."""


def crc_tables(polynomial: int = CASTAGNOLI) -> np.ndarray:
    """Tables for a CRC over eight bytes at a time."""
    tables = np.zeros((8, 256), np.uint32)
    for byte in range(256):
        value = byte
        for _ in range(8):
            value = (value >> 1) ^ (polynomial if value & 1 else 0)
        tables[0, byte] = value
    for table in range(1, 8):
        last = tables[table - 1]
        tables[table] = tables[0, last & 0xFF] ^ (last >> 8)
    return tables


@compiled("UniTuple(int64, 2)(uint8[::1], int64, int64, int64[:, ::1])")
def index(buffer, start, end, rows):
    """List the whole batches between start and end.

    Returns (rows written, where it stopped). If it wrote none, the first number is
    UNKNOWN_FORMAT if the first batch has an old format (v0, v1) or an unknown one, and
    DAMAGED if the sizes, counts and offsets in its header cannot all be right. A batch
    cut off by the fetch limit at the end is left out.
    """
    count = 0
    at = start
    reached = np.int64(-1)
    while at + _HEADER <= end and count < rows.shape[0]:
        if buffer[at + 16] != 2:
            break
        size = np.int64(int32(buffer, at + 8)) + 12
        base = int64(buffer, at)
        delta = np.int64(int32(buffer, at + 23))
        records = np.int64(int32(buffer, at + 57))
        attributes = (np.int64(buffer[at + 21]) << 8) | buffer[at + 22]
        if (
            size < _HEADER
            or base <= reached
            or base > _LAST_OFFSET
            or delta < 0
            or records < 0
            or records > delta + 1
            or (attributes & 7 == 0 and records * _LEAST_RECORD > size - _HEADER)
        ):
            return (DAMAGED if count == 0 else count), at
        if at + size > end:
            break
        reached = base + delta
        rows[count, AT] = at
        rows[count, SIZE] = size
        rows[count, BASE] = base
        rows[count, LAST] = reached
        rows[count, COUNT] = records
        rows[count, ATTRIBUTES] = attributes
        rows[count, BASE_TIME] = int64(buffer, at + 27)
        rows[count, MAX_TIME] = int64(buffer, at + 35)
        rows[count, PRODUCER] = int64(buffer, at + 43)
        count += 1
        at += size
    # A short answer may end within an old-format entry, too small for our header.
    if count == 0 and at + 17 <= end and buffer[at + 16] != 2:
        return UNKNOWN_FORMAT, at
    return count, at


@numba.njit(inline="always")
def crc(buffer, at, end, tables):
    """The CRC of these bytes; `tables`: see `crc_tables`."""
    found = np.uint32(0xFFFFFFFF)
    while at + 8 <= end:
        low = found ^ (
            np.uint32(buffer[at])
            | (np.uint32(buffer[at + 1]) << np.uint32(8))
            | (np.uint32(buffer[at + 2]) << np.uint32(16))
            | (np.uint32(buffer[at + 3]) << np.uint32(24))
        )
        found = (
            tables[7, low & np.uint32(0xFF)]
            ^ tables[6, (low >> np.uint32(8)) & np.uint32(0xFF)]
            ^ tables[5, (low >> np.uint32(16)) & np.uint32(0xFF)]
            ^ tables[4, low >> np.uint32(24)]
            ^ tables[3, buffer[at + 4]]
            ^ tables[2, buffer[at + 5]]
            ^ tables[1, buffer[at + 6]]
            ^ tables[0, buffer[at + 7]]
        )
        at += 8
    while at < end:
        found = tables[0, (found ^ buffer[at]) & np.uint32(0xFF)] ^ (
            found >> np.uint32(8)
        )
        at += 1
    return np.uint32(~found)


@compiled("int64(uint8[::1], int64[:, ::1], uint32[:, ::1], int64)")
def first_damaged(buffer, rows, tables, largest):
    """The first row of at most `largest` bytes whose CRC-32C is wrong, or their count.

    For many small batches, where calling a library for each would cost more than the
    checksum itself. `tables`: see `crc_tables`.
    """
    for row in range(rows.shape[0]):
        size = rows[row, SIZE]
        if size > largest:
            continue
        at = rows[row, AT]
        if crc(buffer, at + 21, at + size, tables) != np.uint32(int32(buffer, at + 17)):
            return row
    return rows.shape[0]


@compiled("int64(int64[:, ::1], int64)")
def before_hole(rows, position):
    """How many rows come before the first hole from a position on."""
    for row in range(rows.shape[0]):
        base, last = rows[row, BASE], rows[row, LAST]
        if base > position or rows[row, COUNT] != last - base + 1:
            return row
        position = last + 1
    return rows.shape[0]


@compiled("UniTuple(int64, 2)(int64[:, ::1])")
def marks(rows):
    """How many rows have no records, and the attributes of the others, or-ed."""
    emptied = attributes = 0
    for row in range(rows.shape[0]):
        if rows[row, COUNT]:
            attributes |= rows[row, ATTRIBUTES]
        else:
            emptied += 1
    return emptied, attributes
