"""A compiled loop that compares the records of a log with those of its copy.

`align` walks through both in the order of their logs, with the offset map's runs, which
say which records belong together. It compares pairs byte by byte, and writes a row for
each record that is not equal to its copy or has none, or is none. `to_columns.find`
lists the records. Bytes in, numbers out: no allocation, no I/O. What is needed only
for rows is called instead of inlined: half the time that compiling takes.
"""

from __future__ import annotations

import numba
import numpy as np

from mirror.records import to_columns
from mirror.records.compiled import called, compiled, same_bytes, sized
from mirror.records.marks import begun, mixed, with_value

# Slots of the state: the next record of either side, and the next run.
UP, DOWN, RUN = range(3)
STATES = 3

# Bits of `flags`.
TIMED, UP_ENDS, DOWN_ENDS, BY_CONTENT, BARE, CAME_HOME = 1, 2, 4, 8, 16, 32

# Columns of the rows about records that are not equal pairs.
WHAT, SOURCE, TARGET, FIELD, BYTE, OF, SOURCE_MARK, TARGET_MARK, KEY_MARK = range(9)
TIME, KEY_SIZE, VALUE_SIZE = range(9, 12)
ODD_COLUMNS = 12

# Values of WHAT.
UNEQUAL, ONLY_SOURCE, ONLY_TARGET = range(3)

# Values of FIELD.
NO_FIELD, KEY, VALUE, HEADERS, TIMESTAMP, STAMP = range(6)

# Slots of the result.
EQUAL, ODD, FOREIGN = range(3)
RESULTS = 3

NO_STAMP = np.int64(-1)
"""In BYTE, if FIELD is STAMP: there is none, and all else is the same."""

NOWHERE = -1
"""Instead of an offset: the map does not say where the other record is."""

_LAST = np.int64((1 << 63) - 1)
_UPSTREAM, _DOWNSTREAM, _COUNT = range(3)


@numba.njit(inline="always")
def _first_difference(one, at, other, start, size):
    for i in range(size):
        if one[at + i] != other[start + i]:
            return np.int64(i)
    return np.int64(size)


@numba.njit(inline="always")
def _value_differs(source, at, size, target, start, length):
    """The first byte that differs, -1 if none does."""
    if size == length and (size <= 0 or same_bytes(source, at, target, start, size)):
        return np.int64(-1)
    return _first_difference(source, at, target, start, max(min(size, length), 0))


@numba.njit(inline="always")
def _is_stamped(buffer, place, stamp):
    """Whether a record ends with the header that our copies get."""
    at = place[to_columns.END] - stamp.size
    return (
        stamp.size > 0
        and place[to_columns.HEADERS] > 0
        and at >= place[to_columns.HEADERS_AT]
        and same_bytes(buffer, at, stamp, 0, stamp.size)
    )


@numba.njit(inline="always")
def _headers_differ(source, up, target, down, stamp):
    """(field, which header or byte, of how many), NO_FIELD if they are as they must be:
    those of the source, and then our stamp once.
    """
    count = up[to_columns.HEADERS]
    there = down[to_columns.HEADERS]
    at = up[to_columns.HEADERS_AT]
    to = down[to_columns.HEADERS_AT]
    size = up[to_columns.END] - at
    stamped = 1 if stamp.size > 0 else 0
    if (
        there == count + stamped
        and down[to_columns.END] - to == size + stamp.size
        and same_bytes(source, at, target, to, size)
        and (stamp.size == 0 or same_bytes(target, to + size, stamp, 0, stamp.size))
    ):
        return NO_FIELD, np.int64(0), np.int64(0)
    for i in range(min(count, there)):
        name_size, name_at, at = sized(source, at, source.size)
        value_size, value_at, at = sized(source, at, source.size)
        copy_size, copy_at, to = sized(target, to, target.size)
        content_size, content_at, to = sized(target, to, target.size)
        if (
            name_size != copy_size
            or value_size != content_size
            or not same_bytes(source, name_at, target, copy_at, name_size)
            or (
                value_size > 0
                and not same_bytes(source, value_at, target, content_at, value_size)
            )
        ):
            return HEADERS, np.int64(i), count
    if there < count:
        return HEADERS, there, count
    if there == count:
        return (STAMP if stamped else NO_FIELD), NO_STAMP, count
    if not stamped:
        return HEADERS, count, count
    ours_size, ours_at, p = sized(stamp, np.int64(0), stamp.size)
    content_size, content_at, p = sized(stamp, p, stamp.size)
    # A replay names the clusters that have the record already (`recovery.tails`).
    for _ in range(there - count - 1):
        name_size, name_at, to = sized(target, to, target.size)
        value_size, value_at, to = sized(target, to, target.size)
        if (
            name_size != ours_size
            or not same_bytes(target, name_at, stamp, ours_at, name_size)
            or (
                value_size == content_size
                and same_bytes(target, value_at, stamp, content_at, value_size)
            )
        ):
            return HEADERS, count, count
    name_size, name_at, to = sized(target, to, target.size)
    value_size, value_at, to = sized(target, to, target.size)
    if (
        name_size == ours_size
        and value_size == content_size
        and same_bytes(target, name_at, stamp, ours_at, name_size)
        and same_bytes(target, value_at, stamp, content_at, value_size)
    ):
        return NO_FIELD, np.int64(0), np.int64(0)
    return STAMP, count, count


@numba.njit(inline="always")
def _difference(source, up, target, down, stamp, timed, bare):
    """(field, first byte or header that differs, of how many); `bare`: a copy may be
    without our stamp.
    """
    at = _value_differs(
        source, up[to_columns.KEY_AT], up[to_columns.KEY_SIZE],
        target, down[to_columns.KEY_AT], down[to_columns.KEY_SIZE],
    )  # fmt: skip
    if at >= 0:
        return KEY, at, up[to_columns.KEY_SIZE]
    at = _value_differs(
        source, up[to_columns.VALUE_AT], up[to_columns.VALUE_SIZE],
        target, down[to_columns.VALUE_AT], down[to_columns.VALUE_SIZE],
    )  # fmt: skip
    if at >= 0:
        return VALUE, at, up[to_columns.VALUE_SIZE]
    field, at, of = _headers_differ(source, up, target, down, stamp)
    unstamped = field == STAMP and at == NO_STAMP
    if field != NO_FIELD and not unstamped:
        return field, at, of
    if timed and up[to_columns.TIME] != down[to_columns.TIME]:
        return TIMESTAMP, down[to_columns.TIME] - up[to_columns.TIME], np.int64(0)
    if unstamped and not bare:
        return field, at, of
    return NO_FIELD, np.int64(0), np.int64(0)


@numba.njit(inline="always")
def _mark(buffer, place, ours, timed):
    """A mark of what a record says, without the last `ours` bytes of its headers: the
    same for a record and its copy.
    """
    made = begun()
    if timed:
        made = mixed(made, place[to_columns.TIME])
    made = with_value(made, buffer, place[to_columns.KEY_AT],
                      place[to_columns.KEY_SIZE])  # fmt: skip
    made = with_value(made, buffer, place[to_columns.VALUE_AT],
                      place[to_columns.VALUE_SIZE])  # fmt: skip
    at = place[to_columns.HEADERS_AT]
    return with_value(made, buffer, at, place[to_columns.END] - at - ours)


@called
def _record_mark(buffer, place, timed):
    return np.int64(_mark(buffer, place, 0, timed))


@called
def _copy_mark(buffer, place, stamp, timed):
    ours = stamp.size if _is_stamped(buffer, place, stamp) else 0
    return np.int64(_mark(buffer, place, ours, timed))


@numba.njit(inline="always")
def _key_mark(buffer, place):
    key_at, key_size = place[to_columns.KEY_AT], place[to_columns.KEY_SIZE]
    return np.int64(with_value(begun(), buffer, key_at, key_size))


@called
def _put(odd, row, what, s, t, buffer, place):
    """A row about the record at `place`, without marks and differences."""
    odd[row, WHAT] = what
    odd[row, SOURCE] = s
    odd[row, TARGET] = t
    odd[row, FIELD] = NO_FIELD
    odd[row, BYTE] = odd[row, OF] = 0
    odd[row, SOURCE_MARK] = odd[row, TARGET_MARK] = 0
    odd[row, KEY_MARK] = _key_mark(buffer, place)
    odd[row, TIME] = place[to_columns.TIME]
    odd[row, KEY_SIZE] = place[to_columns.KEY_SIZE]
    odd[row, VALUE_SIZE] = place[to_columns.VALUE_SIZE]


@compiled(
    "void(uint8[::1], int64[:, ::1], uint8[::1], int64[:, ::1], int64[:, ::1],"
    " uint8[::1], int64, int64[::1], uint64[::1], int64[:, ::1], int64[::1])"
)
def align(source, ups, target, downs, runs, stamp, flags, state, marks, odd, result):
    """Compare records from `state` on, until one side has no more, or there is no room.

    source, ups: bytes and places of the source's records; target, downs: of the copy's.
    runs: which offsets stand at which (columns as in `offsets.runs`), ascending.
    stamp: the header that copies get, encoded (empty: none; then the map alone says
      which records are copies).
    flags: TIMED: times count; UP_ENDS, DOWN_ENDS: nothing follows on this side; BARE:
      copies may be without the stamp; BY_CONTENT: records without one get a row, like
      others (FIELD is STAMP in the rows of those that have it); CAME_HOME: copies of
      these records have no stamp.
    state: next record of either side, next run; the caller sets a side to 0 when it
      passes other records.
    marks: receives one of each equal pair, in order. odd: a row for each record that is
      no part of one: for UNEQUAL both offsets, the first FIELD that differs, and where;
      else the offset at which the map expects the other one (NOWHERE: none).
    `result` receives the numbers of equal pairs, of odd rows, and of records on the
    target that neither the map nor a stamp says are copies of this source.
    """
    up, down, run = state[UP], state[DOWN], state[RUN]
    timed = flags & TIMED != 0
    by_content = flags & BY_CONTENT != 0
    bare = flags & BARE != 0
    added = stamp[:0] if flags & CAME_HOME else stamp
    equal = 0
    strange = 0
    foreign = 0
    while equal < marks.size and strange < odd.shape[0]:
        if up == ups.shape[0] and not flags & UP_ENDS:
            break
        if down == downs.shape[0] and not flags & DOWN_ENDS:
            break
        there = down < downs.shape[0]
        here = up < ups.shape[0]
        if not here and not there:
            break
        s = ups[up, to_columns.OFFSET] if here else _LAST
        t = downs[down, to_columns.OFFSET] if there else _LAST
        while (
            run < runs.shape[0]
            and runs[run, _UPSTREAM] + runs[run, _COUNT] <= s
            and runs[run, _DOWNSTREAM] + runs[run, _COUNT] <= t
        ):
            run += 1
        into = of = np.int64(-1)
        first = first_copy = _LAST
        if run < runs.shape[0]:
            first, first_copy = runs[run, _UPSTREAM], runs[run, _DOWNSTREAM]
            if here and first <= s < first + runs[run, _COUNT]:
                into = s - first
            if there and first_copy <= t < first_copy + runs[run, _COUNT]:
                of = t - first_copy
        if into >= 0 and into == of:
            field, at, size = _difference(
                source, ups[up], target, downs[down], added, timed, bare
            )
            if field == NO_FIELD:
                marks[equal] = _mark(source, ups[up], 0, timed)
                equal += 1
            else:
                _put(odd, strange, UNEQUAL, s, t, source, ups[up])
                odd[strange, FIELD] = field
                odd[strange, BYTE] = at
                odd[strange, OF] = size
                odd[strange, SOURCE_MARK] = _record_mark(source, ups[up], timed)
                odd[strange, TARGET_MARK] = _copy_mark(
                    target, downs[down], stamp, timed
                )
                strange += 1
            up += 1
            down += 1
            continue
        # Without the other one: whichever the map puts first.
        if into >= 0 and of >= 0:
            alone = into < of
        elif here and s < first:
            alone = np.bool_(True)
        elif there and t < first_copy:
            alone = np.bool_(False)
        else:
            alone = into >= 0
        if alone:
            expected = first_copy + into if into >= 0 else NOWHERE
            _put(odd, strange, ONLY_SOURCE, s, expected, source, ups[up])
            odd[strange, SOURCE_MARK] = _record_mark(source, ups[up], timed)
            strange += 1
            up += 1
            continue
        stamped = _is_stamped(target, downs[down], stamp)
        if of < 0 and not stamped and not by_content:
            foreign += 1
        else:
            expected = first + of if of >= 0 else NOWHERE
            _put(odd, strange, ONLY_TARGET, expected, t, target, downs[down])
            if by_content and stamped:
                odd[strange, FIELD] = STAMP
            odd[strange, TARGET_MARK] = _copy_mark(target, downs[down], stamp, timed)
            strange += 1
        down += 1
    state[UP], state[DOWN], state[RUN] = up, down, run
    result[EQUAL] = equal
    result[ODD] = strange
    result[FOREIGN] = foreign


@compiled("void(uint8[::1], int64[:, ::1], uint8[::1], int64, int64[::1], int64[::1])")
def describe(buffer, places, stamp, flags, marks, keys):
    """Write the marks of records and of their keys, as `align` does; `stamp`, if it is
    the last header, is left out.
    """
    for i in range(places.shape[0]):
        marks[i] = _copy_mark(buffer, places[i], stamp, flags & TIMED != 0)
        keys[i] = _key_mark(buffer, places[i])
