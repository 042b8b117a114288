"""A compiled loop from listed records to the records of a batch.

`put` writes records that `to_columns.find` has listed, as `from_columns` does with
records that a function has changed. It serves those who choose among records and append
them. Bytes in, bytes out: no allocation, no Python object, no I/O.
"""

from __future__ import annotations

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
from mirror.records.merge_loop import RESULTS as MERGE_RESULTS
from mirror.records.to_columns import END as RECORD_END
from mirror.records.to_columns import (
    HEADERS,
    HEADERS_AT,
    KEY_AT,
    KEY_SIZE,
    OFFSET,
    TIME,
    VALUE_AT,
    VALUE_SIZE,
)

REFUSED = MERGE_RESULTS
"""Slot of the result: the index of the record at which `put` stopped because it has the
unwanted header, counted from 1."""
RESULTS = MERGE_RESULTS + 1

_HEADER = 61


@compiled(
    "void(uint8[::1], int64[:, ::1], uint8[::1], int64, uint8[::1], uint8[::1],"
    " int64[::1], uint8[::1], int64, int64[:, ::1], int64[::1])"
)
def put(
    buffer,
    places,
    stamp,
    stamps,
    plain,
    unwanted,
    state,
    out,
    limit_out,
    runs,
    result,
):
    """Write the records in `places`, which are in `buffer`, into `out` from byte 61 on.

    stamp: encoded headers to append to every record, and stamps, how many.
    plain: 1 for each record that gets none all the same (empty: none is so).
    unwanted: the name of a header at which to stop (empty: none); see REFUSED.
    state: the record to begin with; updated, so that the next call continues there.
    runs and result: as by `merge_loop.merge`.
    Stops before the output exceeds limit_out bytes, but writes at least one record if
    `out` has room for it.
    """
    at = np.int64(_HEADER)
    copied = np.int64(0)
    newest = base_time = np.int64(0)
    index = state[0]
    run = np.int64(-1)
    result[REFUSED] = 0
    while index < places.shape[0]:
        headers_at = places[index, HEADERS_AT]
        headers = places[index, HEADERS]
        if unwanted.size > 0:
            p = headers_at
            for _ in range(headers):
                size, start, p = sized(buffer, p, buffer.size)
                _, _, p = sized(buffer, p, buffer.size)
                if equals(buffer, start, size, unwanted):
                    result[REFUSED] = index + 1
                    return
        time = places[index, TIME]
        delta = time - base_time if copied > 0 else np.int64(0)
        key_size = places[index, KEY_SIZE]
        value_size = places[index, VALUE_SIZE]
        tail = places[index, RECORD_END] - headers_at
        stamp_size = stamp.size
        if plain.size > 0 and plain[index]:
            stamp_size = 0
        else:
            headers += stamps
        content = (
            1
            + varint_size(delta)
            + varint_size(copied)
            + varint_size(key_size)
            + max(key_size, 0)
            + varint_size(value_size)
            + max(value_size, 0)
            + varint_size(headers)
            + tail
            + stamp_size
        )
        end = at + varint_size(content) + content
        if end > out.size or (copied > 0 and end > limit_out):
            break
        if copied == 0 or places[index, OFFSET] != places[index - 1, OFFSET] + 1:
            if run + 1 == runs.shape[0]:
                break
            run += 1
            runs[run, 0] = places[index, OFFSET]
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
        at = put_varint(out, at, key_size)
        if key_size > 0:
            copy_bytes(out, at, buffer, places[index, KEY_AT], key_size)
            at += key_size
        at = put_varint(out, at, value_size)
        if value_size > 0:
            copy_bytes(out, at, buffer, places[index, VALUE_AT], value_size)
            at += value_size
        at = put_varint(out, at, headers)
        if tail > 0:
            copy_bytes(out, at, buffer, headers_at, tail)
            at += tail
        if stamp_size > 0:
            copy_bytes(out, at, stamp, 0, stamp_size)
            at += stamp_size
        copied += 1
        index += 1
    state[0] = index
    result[END] = at
    result[COPIED] = copied
    result[NEWEST] = newest
    result[OLDEST] = base_time
    result[RUNS] = run + 1
