"""Compiled loops from the records of batches to columns of values.

`find` lists the records of unpacked batches, `fill` gathers them into the buffers of
Arrow arrays. Bytes in, bytes out: no allocation, no Python object, no I/O. `arrow`
builds the arrays. Records that are only copied never pass through here: see
`merge_loop`.
"""

from __future__ import annotations

import numba
import numpy as np

from mirror.records.compiled import compiled, copy_bytes, equals, sized, varint
from mirror.records.looped import find_loop, first_of
from mirror.records.merge_loop import (
    DONE,
    FIRST_OFFSET,
    FIRST_TIME,
    FIXED_TIME,
    LAST_DELTA,
    POSITION,
    REACHED,
    RECORDS,
    ROW,
    SOURCE_AT,
    SOURCE_END,
    next_record,
)

# Columns of the rows that `find` writes, one row per record.
OFFSET, TIME, KEY_AT, KEY_SIZE, VALUE_AT, VALUE_SIZE = range(6)
HEADERS_AT, HEADERS, HIDDEN, END = range(6, 10)
PLACE_COLUMNS = 10

ALL = (1 << 63) - 1
"""An `end_offset` beyond all offsets."""

# Slots of `find`'s result.
FOUND, LOOPED, BROKEN, KEY_BYTES, VALUE_BYTES, SHOWN, NAME_BYTES, CONTENT_BYTES = range(
    8
)
UNEXPLAINED, AWAY = 8, 9
RESULTS = 10

_HEADER_COST = 16
"""Bytes that a header takes in arrays, in addition to its own."""


@compiled(
    "void(uint8[::1], int64[:, ::1], int64[::1], int64, int64, uint8[::1],"
    " uint8[::1], uint8[::1], uint8[::1], int64, int64[:, ::1], int64[::1])"
)
def find(
    buffer,
    rows,
    state,
    first_offset,
    end_offset,
    via,
    target_suffix,
    feeders,
    homes,
    most_bytes,
    places,
    result,
):
    """List records of the batches in `rows` (see `merge_loop.merge`, also for `state`,
    `first_offset`, `target_suffix`, `feeders`, `homes` and BROKEN), below `end_offset`.

    Headers called `via` are counted as hidden, and records that looped or are away from
    home are left out (all empty: nothing is hidden, nothing left out).
    Stops before it lists more than `most_bytes`, but lists at least one record.
    """
    found = 0
    looped = unexplained = away = 0
    key_bytes = value_bytes = shown = name_bytes = content_bytes = np.int64(0)
    row = state[ROW]
    position = state[POSITION]
    done = state[DONE]
    reached = state[REACHED]
    full = False
    while row < rows.shape[0]:
        if done == 0:
            position = rows[row, SOURCE_AT]
            reached = np.int64(-1)
        section_end = rows[row, SOURCE_END]
        result[BROKEN] = row + 1
        while done < rows[row, RECORDS]:
            listed = key_bytes + value_bytes + name_bytes + content_bytes
            listed += shown * _HEADER_COST
            if found == places.shape[0] or (found > 0 and listed >= most_bytes):
                full = True
                break
            delta_offset, delta_time, p, end = next_record(
                buffer, position, section_end, reached, rows[row, LAST_DELTA]
            )
            if end < 0:
                return
            reached = delta_offset
            position = end
            done += 1
            offset = rows[row, FIRST_OFFSET] + delta_offset
            if offset < first_offset or offset >= end_offset:
                continue
            key_size, key_at, p = sized(buffer, p, end)
            value_size, value_at, p = sized(buffer, p, end)
            headers, headers_at = varint(buffer, p, end)
            if headers < 0 or headers > end - headers_at:
                return
            fit, is_looped, is_unexplained, hidden, names, contents = find_loop(
                buffer, headers_at, end, headers, via, target_suffix, feeders
            )
            if not fit:
                return
            if is_looped:
                looped += 1
                unexplained += is_unexplained
                continue
            if (
                homes.size > 0
                and hidden == 0
                and first_of(buffer, key_at, key_size, homes) != 0
            ):
                away += 1
                continue
            fixed = rows[row, FIXED_TIME]
            places[found, OFFSET] = offset
            places[found, TIME] = (
                fixed if fixed >= 0 else rows[row, FIRST_TIME] + delta_time
            )
            places[found, KEY_AT] = key_at
            places[found, KEY_SIZE] = key_size
            places[found, VALUE_AT] = value_at
            places[found, VALUE_SIZE] = value_size
            places[found, HEADERS_AT] = headers_at
            places[found, HEADERS] = headers
            places[found, HIDDEN] = hidden
            places[found, END] = end
            found += 1
            key_bytes += max(key_size, 0)
            value_bytes += max(value_size, 0)
            shown += headers - hidden
            name_bytes += names
            content_bytes += contents
        if full:
            break
        if position != section_end:
            return
        row += 1
        done = 0
    state[ROW] = row
    state[POSITION] = position
    state[DONE] = done
    state[REACHED] = reached
    result[FOUND] = found
    result[LOOPED] = looped
    result[UNEXPLAINED] = unexplained
    result[AWAY] = away
    result[BROKEN] = 0
    result[KEY_BYTES] = key_bytes
    result[VALUE_BYTES] = value_bytes
    result[SHOWN] = shown
    result[NAME_BYTES] = name_bytes
    result[CONTENT_BYTES] = content_bytes


@numba.njit(inline="always")
def _gather(buffer, start, size, index, ends, data, there):
    """Copy value number `index` of a binary column; a size of -1 is null."""
    at = np.int64(ends[index])
    there[index] = size >= 0
    if size > 0:
        copy_bytes(data, at, buffer, start, size)
        at += size
    ends[index + 1] = at


@compiled(
    "void(uint8[::1], int64[:, ::1], uint8[::1],"
    " int32[::1], uint8[::1], uint8[::1], int32[::1], uint8[::1], uint8[::1],"
    " int32[::1], int32[::1], uint8[::1], uint8[::1],"
    " int32[::1], uint8[::1], uint8[::1])"
)
def fill(
    buffer,
    places,
    via,
    key_ends,
    keys,
    key_there,
    value_ends,
    values,
    value_there,
    header_ends,
    name_ends,
    names,
    name_there,
    content_ends,
    contents,
    content_there,
):
    """Gather what `find` listed into columns: per column the ends of its values, the
    bytes, and whether each is present (1) or null (0). `find` returned the sizes.
    """
    key_ends[0] = value_ends[0] = header_ends[0] = 0
    name_ends[0] = content_ends[0] = 0
    header = np.int64(0)
    for i in range(places.shape[0]):
        _gather(
            buffer, places[i, KEY_AT], places[i, KEY_SIZE], i, key_ends, keys, key_there
        )
        _gather(
            buffer,
            places[i, VALUE_AT],
            places[i, VALUE_SIZE],
            i,
            value_ends,
            values,
            value_there,
        )
        p = places[i, HEADERS_AT]
        for _ in range(places[i, HEADERS]):
            name_size, name_at, p = sized(buffer, p, buffer.size)
            content_size, content_at, p = sized(buffer, p, buffer.size)
            if via.size > 0 and equals(buffer, name_at, name_size, via):
                continue
            _gather(buffer, name_at, name_size, header, name_ends, names, name_there)
            _gather(
                buffer,
                content_at,
                content_size,
                header,
                content_ends,
                contents,
                content_there,
            )
            header += 1
        header_ends[i + 1] = header
