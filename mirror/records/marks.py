"""Compiled loops that compute marks: hashes by which equal records are recognised.

`mark` hashes each record's time, key, value and headers to 64 bits; `begun`, `mixed`
and `with_value` are its parts, for other loops. Bytes in, numbers out: no allocation,
no I/O. `listing` locates the records; the caller decides what equal marks mean.
"""

from __future__ import annotations

import numba
import numpy as np

from mirror.records import to_columns
from mirror.records.compiled import compiled, equals, sized, word

_BASIS = 0xCBF29CE484222325
_FACTOR = 0x9FB21C651E98DF25
_SHIFT = 29
_STEP = 0x9E3779B97F4A7C15
"""Sets the four lanes of a long value apart."""
_LONG = 64
"""Bytes; for shorter values one chain is as fast."""


@numba.njit(inline="always")
def begun():
    return np.uint64(_BASIS)


@numba.njit(inline="always")
def mixed(mark, value):
    mark = (mark ^ np.uint64(value)) * np.uint64(_FACTOR)
    return mark ^ (mark >> np.uint64(_SHIFT))


@numba.njit(inline="always")
def with_value(mark, buffer, at, size):
    """Add a value of `size` bytes; -1 is null, which differs from empty."""
    mark = mixed(mark, size)
    i = np.int64(0)
    if size >= _LONG:
        # Four chains of multiplications, of which none waits for another.
        one = mark
        two = mark + np.uint64(_STEP)
        three = two + np.uint64(_STEP)
        four = three + np.uint64(_STEP)
        while i < size - 31:
            one = mixed(one, word(buffer, at + i))
            two = mixed(two, word(buffer, at + i + 8))
            three = mixed(three, word(buffer, at + i + 16))
            four = mixed(four, word(buffer, at + i + 24))
            i += 32
        mark = mixed(mixed(mixed(one, two), three), four)
    while i < size - 7:
        mark = mixed(mark, word(buffer, at + i))
        i += 8
    if i < size:
        rest = np.uint64(0)
        for j in range(i, size):
            rest = (rest << np.uint64(8)) | np.uint64(buffer[at + j])
        mark = mixed(mark, rest)
    return mark


@compiled("void(uint8[::1], int64[:, ::1], uint8[::1], int64, uint64[::1])")
def mark(buffer, places, without, timed, marks):
    """Write one mark per record. Records with the same key, value and headers in the
    same order get the same mark; headers called `without` are ignored. Unless `timed`
    is 0, the time counts too.
    """
    for i in range(places.shape[0]):
        made = begun()
        if timed != 0:
            made = mixed(made, places[i, to_columns.TIME])
        made = with_value(made, buffer, places[i, to_columns.KEY_AT],
                          places[i, to_columns.KEY_SIZE])  # fmt: skip
        made = with_value(made, buffer, places[i, to_columns.VALUE_AT],
                          places[i, to_columns.VALUE_SIZE])  # fmt: skip
        p = places[i, to_columns.HEADERS_AT]
        for _ in range(places[i, to_columns.HEADERS]):
            name_size, name_at, p = sized(buffer, p, buffer.size)
            content_size, content_at, p = sized(buffer, p, buffer.size)
            if without.size > 0 and equals(buffer, name_at, name_size, without):
                continue
            made = with_value(made, buffer, name_at, name_size)
            made = with_value(made, buffer, content_at, content_size)
        marks[i] = made
