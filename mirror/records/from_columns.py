"""A compiled loop from columns of values to the records of a batch.

`put` writes records from the buffers of Arrow arrays, the reverse of `to_columns`.
Bytes in, bytes out: no allocation, no Python object, no I/O. `copying.rewrite` adds the
batch's header and compression.
"""

from __future__ import annotations

import numba
import numpy as np

from mirror.records.compiled import (
    compiled,
    copy_bytes,
    equals,
    put_varint,
    sized,
    varint_size,
)
from mirror.records.merge_loop import COPIED, END, NEWEST, OLDEST, RUNS
from mirror.records.to_columns import HEADERS, HEADERS_AT, HIDDEN

_HEADER = 61

# Arrow's buffers are read-only.
_BYTES = "Array(uint8, 1, 'C', readonly=True)"
_ENDS = "Array(int32, 1, 'C', readonly=True)"
_LONGS = "Array(int64, 1, 'C', readonly=True)"
_TABLE = "Array(int64, 2, 'C', readonly=True)"
_BINARY = f"{_ENDS}, {_BYTES}, {_BYTES}"


@numba.njit(inline="always")
def _size_of(ends, there, index):
    """The size of a value in a column; -1 for null. An empty `there` means no nulls."""
    if there.size > 0 and there[index] == 0:
        return np.int64(-1)
    return np.int64(ends[index + 1]) - np.int64(ends[index])


@numba.njit(inline="always")
def _put_value(out, at, size, ends, data, index):
    at = put_varint(out, at, size)
    if size > 0:
        copy_bytes(out, at, data, np.int64(ends[index]), size)
        at += size
    return at


@numba.njit(inline="always")
def _hidden(buffer, places, record, via, out, at):
    """The size of a record's hidden headers; writes them to `at` unless it is -1."""
    total = np.int64(0)
    p = places[record, HEADERS_AT]
    for _ in range(places[record, HEADERS]):
        start = p
        name_size, name_at, p = sized(buffer, p, buffer.size)
        _, _, p = sized(buffer, p, buffer.size)
        if equals(buffer, name_at, name_size, via):
            if at >= 0:
                copy_bytes(out, at + total, buffer, start, p - start)
            total += p - start
    return total


@compiled(
    f"void({_LONGS}, {_LONGS}, {_LONGS}, {_BINARY}, {_BINARY}, {_ENDS}, {_BINARY},"
    f" {_BINARY}, {_BYTES}, {_TABLE}, {_BYTES}, {_BYTES}, int64[::1], uint8[::1],"
    " int64, int64[:, ::1], int64[::1])"
)
def put(
    offsets,
    times,
    origin,
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
    buffer,
    places,
    via,
    stamp,
    state,
    out,
    limit_out,
    runs,
    result,
):
    """Write records from columns (see `to_columns.fill`) into `out`, from byte 61 on.

    offsets: on the source; `runs` and `result` are set as by `merge_loop.merge`.
    origin: each record's index in `places`; it keeps the hidden headers found there.
    stamp: an encoded header to append to every record (empty: none).
    state: the record to begin with; updated, so that the next call continues there.
    Stops before the output exceeds limit_out bytes, but writes at least one record.
    """
    at = np.int64(_HEADER)
    copied = np.int64(0)
    newest = base_time = np.int64(0)
    index = state[0]
    run = np.int64(-1)
    while index < times.size:
        time = times[index]
        delta = time - base_time if copied > 0 else np.int64(0)
        key_size = _size_of(key_ends, key_there, index)
        value_size = _size_of(value_ends, value_there, index)
        first = np.int64(header_ends[index])
        last = np.int64(header_ends[index + 1])
        record = origin[index]
        hidden = places[record, HIDDEN]
        headers = last - first + hidden
        if stamp.size > 0:
            headers += 1
        content = (
            1
            + varint_size(delta)
            + varint_size(copied)
            + varint_size(key_size)
            + max(key_size, 0)
            + varint_size(value_size)
            + max(value_size, 0)
            + varint_size(headers)
            + stamp.size
        )
        for header in range(first, last):
            name_size = _size_of(name_ends, name_there, header)
            content_size = _size_of(content_ends, content_there, header)
            content += varint_size(name_size) + name_size
            content += varint_size(content_size) + max(content_size, 0)
        if hidden > 0:
            content += _hidden(buffer, places, record, via, out, -1)
        end = at + varint_size(content) + content
        if end > out.size or (copied > 0 and end > limit_out):
            break
        if copied == 0 or offsets[index] != offsets[index - 1] + 1:
            if run + 1 == runs.shape[0]:
                break
            run += 1
            runs[run, 0] = offsets[index]
            runs[run, 1] = copied
            runs[run, 2] = 0
        runs[run, 2] += 1
        if copied == 0:
            base_time = newest = time
        newest = max(newest, time)
        at = put_varint(out, at, content)
        out[at] = 0
        at = put_varint(out, at + 1, delta)
        at = put_varint(out, at, copied)
        at = _put_value(out, at, key_size, key_ends, keys, index)
        at = _put_value(out, at, value_size, value_ends, values, index)
        at = put_varint(out, at, headers)
        for header in range(first, last):
            name_size = _size_of(name_ends, name_there, header)
            at = _put_value(out, at, name_size, name_ends, names, header)
            content_size = _size_of(content_ends, content_there, header)
            at = _put_value(out, at, content_size, content_ends, contents, header)
        if hidden > 0:
            at += _hidden(buffer, places, record, via, out, at)
        if stamp.size > 0:
            copy_bytes(out, at, stamp, 0, stamp.size)
            at += stamp.size
        copied += 1
        index += 1
    state[0] = index
    result[END] = at
    result[COPIED] = copied
    result[NEWEST] = newest
    result[OLDEST] = base_time
    result[RUNS] = run + 1
