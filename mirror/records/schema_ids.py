"""Compiled loops that look for ids of schemas in records of a registry's wire format.

`find_ids` looks at keys and values (magic 0 and an id) and at the headers
`__key_schema_id` and `__value_schema_id` (the same, or magic 1 and a GUID), and says
which of them are in neither of two tables. Records that a flow leaves out (`looped`)
have none. A table is open addressing over numbers: an id is its own number, a GUID
gives 63 bits and the highest one; 0, which no registry issues, is an empty place. Bytes
in, numbers out: no allocation, no I/O. `Numbers` holds one table.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numba
import numpy as np

from mirror.records.compiled import (
    called,
    compiled,
    equals,
    prefetch,
    sized,
    varint,
    word,
)
from mirror.records.looped import find_loop, first_of
from mirror.records.merge_loop import (
    FIRST_OFFSET,
    LAST_DELTA,
    RECORDS,
    SOURCE_AT,
    SOURCE_END,
    next_record,
)

if TYPE_CHECKING:
    from collections.abc import Collection

    import numpy.typing as npt

# Slots of `find_ids`' result.
UNKNOWN, IN_ROW, BEFORE, STARTS_AT, DELTA, STRANGE, BROKEN = range(7)
RESULTS = 7

# Columns of the unknown ones: the number, and where its 16 bytes are; -1: it is an id.
NUMBER, GUID_AT = range(2)

KEY_HEADER = np.frombuffer(bytearray(b"__key_schema_id"), np.uint8)
VALUE_HEADER = np.frombuffer(bytearray(b"__value_schema_id"), np.uint8)
GUID_SIZE = 16

ID_SIZE = 5  # with its magic byte
_FACTOR = 0x9FB21C651E98DF25
_HIGHEST = 1 << 63
_LEAST_PLACES = 1 << 10
_FULL = 0.8
"""The share of its places above which a table grows."""
_AHEAD = 8
"""How many records ahead memory is asked for."""


@numba.njit(inline="always")
def _place(table, number):
    """Where a number is, or the empty place where it would be."""
    last = np.uint64(table.size - 1)
    at = ((number * np.uint64(_FACTOR)) >> np.uint64(32)) & last
    while table[at] != 0 and table[at] != number:
        at = (at + np.uint64(1)) & last
    return at


@numba.njit(inline="always")
def _id(buffer, at, size):
    """The number of what begins like a registry's record; 0: it does not."""
    if size < ID_SIZE or buffer[at] != 0:
        return np.uint64(0)
    return (
        (np.uint64(buffer[at + 1]) << np.uint64(24))
        | (np.uint64(buffer[at + 2]) << np.uint64(16))
        | (np.uint64(buffer[at + 3]) << np.uint64(8))
        | np.uint64(buffer[at + 4])
    )


@numba.njit(inline="always")
def _guid(buffer, at, size):
    """The number of a GUID after its magic byte; 0: there is none."""
    if size < GUID_SIZE + 1 or buffer[at] != 1:
        return np.uint64(0)
    mixed = word(buffer, at + 1) * np.uint64(_FACTOR)
    return (mixed ^ word(buffer, at + 9)) | np.uint64(_HIGHEST)


@numba.njit(inline="always")
def _judged(known, strange, number):
    """0: it says nothing; 1: known; 2: strange; 3: in neither table."""
    if number == 0:
        return 0
    if known[_place(known, number)] == number:
        return 1
    if strange[_place(strange, number)] == number:
        return 2
    return 3


@numba.njit(inline="always")
def _noted(unknown, count, number, guid_at):
    """Add an unknown one once, if there is room; returns how many there are."""
    for i in range(count):
        if np.uint64(unknown[i, NUMBER]) == number:
            return count
    if count < unknown.shape[0]:
        unknown[count, NUMBER] = np.int64(number)
        unknown[count, GUID_AT] = guid_at
        count += 1
    return count


@called
def _left_out(
    buffer, at, end, headers, key_at, key_size, via, target_suffix, feeders, homes
):
    """Whether the flow leaves a record out (see `merge_loop.merge`)."""
    if target_suffix.size == 0:
        return False
    _, is_looped, _, hops, _, _ = find_loop(
        buffer, at, end, headers, via, target_suffix, feeders
    )
    return is_looped or (
        homes.size > 0 and hops == 0 and first_of(buffer, key_at, key_size, homes) != 0
    )


@compiled(
    "void(uint8[::1], int64[:, ::1], int64, uint64[::1], uint64[::1], uint8[::1],"
    " uint8[::1], uint8[::1], uint8[::1], uint8[::1], uint8[::1], int64[:, ::1],"
    " int64[::1])"
)
def find_ids(
    buffer,
    rows,
    first_offset,
    known,
    strange,
    key_header,
    value_header,
    via,
    target_suffix,
    feeders,
    homes,
    unknown,
    result,
):
    """Look for ids in the records from `first_offset` on of the batches in `rows` (see
    `merge_loop.merge`, also for `via`, `target_suffix`, `feeders`, `homes` and BROKEN),
    up to the end, to damage, or until `unknown` is full.

    `unknown` gets each one once that is in neither table. `result`: how many these
    are; the row of the first record with one, how many records are before it in its
    row, where it starts, and its offset after the row's first; how many records before
    it have a strange one; and BROKEN.
    """
    count = 0
    passed = 0
    result[UNKNOWN] = 0
    result[STRANGE] = 0
    last = np.uint64(0)
    for row in range(rows.shape[0]):
        position = rows[row, SOURCE_AT]
        section_end = rows[row, SOURCE_END]
        reached = np.int64(-1)
        result[BROKEN] = row + 1
        for done in range(rows[row, RECORDS]):
            start = position
            delta, _, p, end = next_record(
                buffer, position, section_end, reached, rows[row, LAST_DELTA]
            )
            if end < 0:
                return
            reached = delta
            position = end
            # Only the beginnings of records are read here, so each would be waited for.
            # Where records differ in size, the guess is often near enough.
            prefetch(buffer, end + _AHEAD * (end - start))
            if rows[row, FIRST_OFFSET] + delta < first_offset:
                continue
            key_size, key_at, p = sized(buffer, p, end)
            value_size, value_at, p = sized(buffer, p, end)
            headers, headers_at = varint(buffer, p, end)
            if headers < 0 or headers > end - headers_at:
                return
            p = headers_at
            before = count
            is_strange = False
            number = _id(buffer, key_at, key_size)
            if number != last:
                judged = _judged(known, strange, number)
                if judged == 3:
                    count = _noted(unknown, count, number, np.int64(-1))
                is_strange = is_strange or judged == 2
            number = _id(buffer, value_at, value_size)
            if number != last:
                judged = _judged(known, strange, number)
                if judged == 1:
                    last = number
                elif judged == 3:
                    count = _noted(unknown, count, number, np.int64(-1))
                is_strange = is_strange or judged == 2
            for _ in range(headers):
                name_size, name_at, p = sized(buffer, p, end)
                size, at, p = sized(buffer, p, end)
                if name_size < 0 or p > end:
                    return
                if not equals(buffer, name_at, name_size, key_header) and not equals(
                    buffer, name_at, name_size, value_header
                ):
                    continue
                guid_at = np.int64(-1)
                number = _id(buffer, at, size)
                if number == 0:
                    number = _guid(buffer, at, size)
                    guid_at = at + 1
                judged = _judged(known, strange, number)
                if judged == 3:
                    count = _noted(unknown, count, number, guid_at)
                is_strange = is_strange or judged == 2
            if p != end:
                return
            if (count > before or is_strange) and _left_out(
                buffer,
                headers_at,
                end,
                headers,
                key_at,
                key_size,
                via,
                target_suffix,
                feeders,
                homes,
            ):
                count = before
                is_strange = False
            if count > 0 and before == 0:
                result[IN_ROW] = row
                result[BEFORE] = done
                result[STARTS_AT] = start
                result[DELTA] = delta
            result[UNKNOWN] = count
            if count == 0:
                passed += is_strange
                result[STRANGE] = passed
            elif count == unknown.shape[0]:
                result[BROKEN] = 0
                return
        if position != section_end:
            return
    result[BROKEN] = 0


@compiled("void(uint64[::1], uint64[::1])")
def _put(table, numbers):
    for number in numbers:
        table[_place(table, number)] = number


class Numbers:
    """A set of numbers for `find_ids`: 8 bytes per place, at most four fifths full."""

    def __init__(self) -> None:
        self.table: npt.NDArray[np.uint64] = np.zeros(_LEAST_PLACES, np.uint64)
        self._count = 0

    def add(self, numbers: Collection[int]) -> None:
        wanted = np.unique(np.fromiter(numbers, np.uint64, len(numbers)))
        new = wanted[~np.isin(wanted, self.table)]
        self._count += len(new)
        places = self.table.size
        while self._count > places * _FULL:
            places *= 2
        if places > self.table.size:
            old = self.table[self.table != 0]
            self.table = np.zeros(places, np.uint64)
            _put(self.table, old)
        _put(self.table, new)

    def __len__(self) -> int:
        return self._count
