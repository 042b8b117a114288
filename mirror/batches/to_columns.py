"""Compiled loops from the records of batches to columns of values.

`find` lists the records of unpacked batches, `fill` gathers them into the buffers of
Arrow arrays. Bytes in, bytes out: no allocation, no Python object, no I/O. What the
arrays are is `arrow`'s to know; records that nobody looks into never come this way
(see `kernels`).
"""

from __future__ import annotations

import numba
import numpy as np

from mirror.batches.kernels import (
    DONE,
    FIRST_OFFSET,
    FIRST_TIME,
    FIXED_TIME,
    POSITION,
    RECORDS,
    ROW,
    SOURCE_AT,
    _copy,
    _ends_with,
    _equals,
    _varint,
)

# Columns of the rows that `find` writes, one row per record.
OFFSET, TIME, KEY_AT, KEY_SIZE, VALUE_AT, VALUE_SIZE = range(6)
HEADERS_AT, HEADERS, HIDDEN = range(6, 9)
PLACE_COLUMNS = 9

# Slots of `find`'s result.
FOUND, LOOPING, BROKEN, KEY_BYTES, VALUE_BYTES, SHOWN, NAME_BYTES, CONTENT_BYTES = (
    range(8)
)

_HEADER = 61
_LEAST_RECORD = 6


@numba.njit(inline="always")
def _sized(buffer, at, end):
    """Size and place of a value behind its varint, and what follows; -2: broken."""
    if at >= end:
        return -2, at, at
    size, start = _varint(buffer, at)
    if size < -1 or start > end or size > end - start:
        return -2, at, at
    return size, start, start + max(size, 0)


# Signatures are spelled out: a call with anything else fails at once instead of
# compiling a second version in the middle of a flow.
@numba.njit(
    "void(uint8[::1], int64, int64[:, ::1], int64[::1], int64, uint8[::1],"
    " uint8[::1], int64, int64[:, ::1], int64[::1])",
    cache=True,
    nogil=True,
)
def find(
    buffer, limit_in, rows, state, first_offset, via, home, most_bytes, places, result
):
    """List records of the batches in `rows` (see `kernels.merge`, also for `state`).

    Headers called `via` are counted as hidden, and a record with one whose value ends
    in `home` is left out (both empty: nothing is hidden, nothing left out).
    Stops before more than `most_bytes` are listed, but lists one record.
    """
    found = 0
    looping = 0
    key_bytes = value_bytes = shown = name_bytes = content_bytes = np.int64(0)
    row = state[ROW]
    position = state[POSITION]
    done = state[DONE]
    result[BROKEN] = 1
    full = False
    while row < rows.shape[0]:
        if done == 0:
            position = rows[row, SOURCE_AT]
        while done < rows[row, RECORDS]:
            listed = key_bytes + value_bytes + name_bytes + content_bytes
            if found == places.shape[0] or (found > 0 and listed >= most_bytes):
                full = True
                break
            if position >= limit_in:
                state[ROW] = row
                return
            size, body = _varint(buffer, position)
            if size < _LEAST_RECORD or body > limit_in or size > limit_in - body:
                state[ROW] = row
                return
            end = body + size
            delta_time, p = _varint(buffer, body + 1)
            delta_offset, p = _varint(buffer, p)
            position = end
            done += 1
            offset = rows[row, FIRST_OFFSET] + delta_offset
            if offset < first_offset:
                continue
            key_size, key_at, p = _sized(buffer, p, end)
            value_size, value_at, p = _sized(buffer, p, end)
            broken = key_size == -2 or value_size == -2 or p >= end
            headers = np.int64(0)
            if not broken:
                headers, p = _varint(buffer, p)
                broken = headers < 0 or headers > end - p
            headers_at = p
            hidden = 0
            loops = False
            names = contents = np.int64(0)
            if not broken:
                for _ in range(headers):
                    name_size, name_at, p = _sized(buffer, p, end)
                    content_size, content_at, p = _sized(buffer, p, end)
                    if name_size < 0 or content_size == -2:
                        broken = True
                        break
                    if via.size > 0 and _equals(buffer, name_at, name_size, via):
                        hidden += 1
                        if home.size > 0 and _ends_with(
                            buffer, content_at, content_size, home
                        ):
                            loops = True
                    else:
                        names += name_size
                        contents += max(content_size, 0)
            if broken or p != end:
                state[ROW] = row
                return
            if loops:
                looping += 1
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
            found += 1
            key_bytes += max(key_size, 0)
            value_bytes += max(value_size, 0)
            shown += headers - hidden
            name_bytes += names
            content_bytes += contents
        if full:
            break
        row += 1
        done = 0
    state[ROW] = row
    state[POSITION] = position
    state[DONE] = done
    result[FOUND] = found
    result[LOOPING] = looping
    result[BROKEN] = 0
    result[KEY_BYTES] = key_bytes
    result[VALUE_BYTES] = value_bytes
    result[SHOWN] = shown
    result[NAME_BYTES] = name_bytes
    result[CONTENT_BYTES] = content_bytes


@numba.njit(inline="always")
def _gather(buffer, start, size, index, ends, data, there):
    """Value number `index` of a binary column; a size of -1 is null."""
    at = np.int64(ends[index])
    there[index] = size >= 0
    if size > 0:
        _copy(data, at, buffer, start, size)
        at += size
    ends[index + 1] = at


@numba.njit(
    "void(uint8[::1], int64[:, ::1], uint8[::1],"
    " int32[::1], uint8[::1], uint8[::1], int32[::1], uint8[::1], uint8[::1],"
    " int32[::1], int32[::1], uint8[::1], uint8[::1],"
    " int32[::1], uint8[::1], uint8[::1])",
    cache=True,
    nogil=True,
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
    bytes, and whether each is there (1) or null (0). Sizes are those that `find` told.
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
            name_size, name_at = _varint(buffer, p)
            content_size, content_at = _varint(buffer, name_at + name_size)
            p = content_at + max(content_size, 0)
            if via.size > 0 and _equals(buffer, name_at, name_size, via):
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
