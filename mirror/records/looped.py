"""The rules by which a flow leaves records out.

`find_loop` says whether a record already came through the target, by its headers, and
`first_of` whether it was written away from its key's home, by its key. Both are inlined
into the loops that drop such records: `merge_loop.merge` and `to_columns.find`; `away`
applies the second one to listed records. `copying.provenance` makes what they look for.
"""

from __future__ import annotations

import numba
import numpy as np

from mirror.records.compiled import compiled, ends_with, equals, sized

_KEY_AT, _KEY_SIZE = 2, 3
"""Columns of `to_columns`, which imports this module."""


@numba.njit(inline="always")
def first_of(buffer, start, size, prefixes):
    """The byte of the first of the prefixes with which a value begins; 0: of none.
    Each stands behind its byte and two bytes of its size. Null begins with none.
    """
    at = np.int64(0)
    found = np.uint8(0)
    while at < prefixes.size:
        length = np.int64(prefixes[at + 1]) << 8 | np.int64(prefixes[at + 2])
        same = length <= size
        for i in range(length):
            if same and buffer[start + i] != prefixes[at + 3 + i]:
                same = False
        if same:
            found = prefixes[at]
            break
        at += 3 + length
    return found


@numba.njit(inline="always")
def find_loop(buffer, at, end, headers, via, target_suffix, feeders):
    """The one rule that stops loops, applied to a record's headers.

    A record *looped* if a header called `via` has a value that ends in
    `target_suffix`: it already came through the target. That is *unexplained* if the
    value of the last `via` header does not begin with one of the `feeders` (see
    `first_of`). Returns whether the headers end at `end` as they must,
    then looped and unexplained, the number of headers called `via`, and the bytes of
    names and of values of all other headers.
    """
    hidden = 0
    looped = False
    last_at = last_size = names = values = np.int64(0)
    for _ in range(headers):
        name_size, name_at, at = sized(buffer, at, end)
        value_size, value_at, at = sized(buffer, at, end)
        if name_size < 0 or at > end:
            at = end + 1
            break
        if via.size > 0 and equals(buffer, name_at, name_size, via):
            hidden += 1
            last_at, last_size = value_at, value_size
            if target_suffix.size > 0 and ends_with(
                buffer, value_at, value_size, target_suffix
            ):
                looped = True
        else:
            names += name_size
            values += max(value_size, 0)
    unexplained = looped and first_of(buffer, last_at, last_size, feeders) == 0
    return at == end, looped, unexplained, hidden, names, values


@compiled("void(uint8[::1], int64[:, ::1], uint8[::1], uint8[::1])")
def away(buffer, places, homes, found):
    """The byte of the first of the `homes` (see `first_of`) of each record's key."""
    for i in range(places.shape[0]):
        found[i] = first_of(buffer, places[i, _KEY_AT], places[i, _KEY_SIZE], homes)
