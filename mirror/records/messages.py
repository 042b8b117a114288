"""A compiled loop over messages as brokers before Kafka 0.11 stored them: lists them.

`find` checks every size and checksum, since any producer may have written the bytes.
Bytes in, numbers out: no allocation, no I/O. `former` makes batches of the messages.
Format: Kafka's message formats v0 and v1.
"""

from __future__ import annotations

import numpy as np

from mirror.records import to_columns
from mirror.records.compiled import compiled
from mirror.records.scan import crc, int32, int64

FORMAT, ATTRIBUTES = to_columns.HEADERS_AT, to_columns.HIDDEN
"""Columns of what messages have and records have not."""


@compiled("UniTuple(int64, 2)(uint8[::1], int64, int64, uint32[:, ::1], int64[:, ::1])")
def find(buffer, at, end, tables, places):
    """List the whole messages of formats v0 and v1 between at and end, as
    `to_columns.find` lists records.

    Returns (messages listed, where it stopped); it stops before one that is damaged or
    of a newer format.
    """
    count = 0
    while at + 26 <= end and count < places.shape[0]:
        magic = buffer[at + 16]
        stop = at + 12 + np.int64(int32(buffer, at + 8))
        key_at = at + (30 if magic == 1 else 22)
        if magic > 1 or stop > end or stop < key_at + 4:
            break
        key_size = np.int64(int32(buffer, key_at - 4))
        value_at = key_at + max(key_size, 0) + 4
        if key_size < -1 or value_at > stop:
            break
        value_size = np.int64(int32(buffer, value_at - 4))
        if value_size < -1 or value_at + max(value_size, 0) != stop:
            break
        if crc(buffer, at + 16, stop, tables) != np.uint32(int32(buffer, at + 12)):
            break
        places[count, to_columns.OFFSET] = int64(buffer, at)
        places[count, to_columns.TIME] = int64(buffer, at + 18) if magic == 1 else -1
        places[count, to_columns.KEY_AT] = key_at
        places[count, to_columns.KEY_SIZE] = key_size
        places[count, to_columns.VALUE_AT] = value_at
        places[count, to_columns.VALUE_SIZE] = value_size
        places[count, FORMAT] = magic
        places[count, to_columns.HEADERS] = 0
        places[count, ATTRIBUTES] = buffer[at + 17]
        places[count, to_columns.END] = 0
        count += 1
        at = stop
    return count, at
