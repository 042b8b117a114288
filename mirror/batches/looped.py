"""Looped records: the one rule for whether a record already came through the target.

`find_loop` reads a record's headers and is inlined into the loops that drop looped
records: `merge_loop.merge` and `to_columns.find`. `relay.provenance` defines the
headers.
"""

from __future__ import annotations

import numba
import numpy as np

from mirror.batches.compiled import ends_with, equals, sized


@numba.njit(inline="always")
def _begins_with_one(buffer, start, size, prefixes):
    """Whether a value begins with one of the prefixes, each after a size byte."""
    at = np.int64(0)
    while at < prefixes.size:
        length = np.int64(prefixes[at])
        same = length <= size
        for i in range(length):
            if same and buffer[start + i] != prefixes[at + 1 + i]:
                same = False
        if same:
            return True
        at += 1 + length
    return False


@numba.njit(inline="always")
def find_loop(buffer, at, end, headers, via, target_suffix, feeders):
    """The one rule that stops loops, applied to a record's headers.

    A record *looped* if a header called `via` has a value that ends in
    `target_suffix`: it already came through the target. That is *unexplained* if the
    value of the last `via` header does not begin with one of the `feeders`, each of
    which follows a size byte. Returns whether the headers end at `end` as they must,
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
    unexplained = looped and not _begins_with_one(buffer, last_at, last_size, feeders)
    return at == end, looped, unexplained, hidden, names, values
