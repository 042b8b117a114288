"""A compiled loop that computes marks: hashes by which equal records are recognised.

`mark` hashes each record's time, key, value and headers to 64 bits. Bytes in, numbers
out: no allocation, no I/O. `listing` locates the records; the caller decides what equal
marks mean.
"""

from __future__ import annotations

import numba
import numpy as np

from mirror.batches import to_columns
from mirror.batches.compiled import compiled, equals, sized

_BASIS = 0xCBF29CE484222325
_PRIME = 0x100000001B3


@numba.njit(inline="always")
def _mix(mark, value):
    return (mark ^ np.uint64(value)) * np.uint64(_PRIME)


@numba.njit(inline="always")
def _add(mark, buffer, at, size):
    """Add a value of `size` bytes; -1 is null, which differs from empty."""
    mark = _mix(mark, size)
    for i in range(size):
        mark = _mix(mark, buffer[at + i])
    return mark


@compiled("void(uint8[::1], int64[:, ::1], uint8[::1], int64, uint64[::1])")
def mark(buffer, places, without, timed, marks):
    """Write one mark per record. Records with the same key, value and headers in the
    same order get the same mark; headers called `without` are ignored. Unless `timed`
    is 0, the time counts too.
    """
    for i in range(places.shape[0]):
        made = np.uint64(_BASIS)
        if timed != 0:
            made = _mix(made, places[i, to_columns.TIME])
        made = _add(made, buffer, places[i, to_columns.KEY_AT],
                    places[i, to_columns.KEY_SIZE])  # fmt: skip
        made = _add(made, buffer, places[i, to_columns.VALUE_AT],
                    places[i, to_columns.VALUE_SIZE])  # fmt: skip
        p = places[i, to_columns.HEADERS_AT]
        for _ in range(places[i, to_columns.HEADERS]):
            name_size, name_at, p = sized(buffer, p, buffer.size)
            content_size, content_at, p = sized(buffer, p, buffer.size)
            if without.size > 0 and equals(buffer, name_at, name_size, without):
                continue
            made = _add(made, buffer, name_at, name_size)
            made = _add(made, buffer, content_at, content_size)
        # One more round, so that the last bytes affect all bits.
        made = (made ^ (made >> np.uint64(33))) * np.uint64(0xFF51AFD7ED558CCD)
        marks[i] = made ^ (made >> np.uint64(33))
