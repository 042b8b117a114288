"""A compiled loop over a log and its copy side by side, as far as they are the same.

`walk` compares records with their copies in the batches, without lists of either side:
half the work of `alignment`, which judges the first pair that stops it. Bytes in,
numbers out: no allocation, no I/O.
"""

from __future__ import annotations

import numba
import numpy as np

from mirror.records.compiled import compiled, same_bytes, sized, varint
from mirror.records.looped import find_loop
from mirror.records.marks import begun, mixed, with_value
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

# Slots of the result; RUN is read as well.
EQUAL, BYTES, FIRST, UP_END, DOWN_END, RUN = range(6)
RESULTS = 6

_UPSTREAM, _DOWNSTREAM, _COUNT = range(3)


@numba.njit(inline="always")
def _next(buffer, rows, state, first):
    """The next record of one side, from offset `first` on: its offset and time, where
    its key is, its end, and its offset in its batch. An end of -1: there is none, or it
    does not fit.
    """
    while state[ROW] < rows.shape[0]:
        row = state[ROW]
        if state[DONE] == 0:
            state[POSITION] = rows[row, SOURCE_AT]
            state[REACHED] = -1
        if state[DONE] == rows[row, RECORDS]:
            state[ROW] += 1
            state[DONE] = 0
            continue
        delta, time, at, end = next_record(
            buffer, state[POSITION], rows[row, SOURCE_END], state[REACHED],
            rows[row, LAST_DELTA],
        )  # fmt: skip
        is_last = state[DONE] + 1 == rows[row, RECORDS]
        if end < 0 or (is_last and end != rows[row, SOURCE_END]):
            break
        offset = rows[row, FIRST_OFFSET] + delta
        if offset >= first:
            fixed = rows[row, FIXED_TIME]
            time = fixed if fixed >= 0 else rows[row, FIRST_TIME] + time
            return offset, time, at, end, delta
        _pass(state, end, delta)
    zero = np.int64(0)
    return zero, zero, zero, np.int64(-1), zero


@numba.njit(inline="always")
def _pass(state, end, delta):
    state[POSITION] = end
    state[REACHED] = delta
    state[DONE] += 1


@compiled(
    "void(uint8[::1], int64[:, ::1], int64[::1], int64, int64,"
    " uint8[::1], int64[:, ::1], int64[::1], int64, int64, int64[:, ::1],"
    " uint8[::1], uint8[::1], uint8[::1], int64, uint64[::1], int64[::1])"
)
def walk(
    source, ups, up, up_first, up_end,
    target, downs, down, down_first, down_end, runs,
    via, target_suffix, stamp, timed, marks, result,
):  # fmt: skip
    """Compare records with their copies while each is followed by its copy. It stops
    at a damaged record, and before the last one of a batch that does not end with it:
    listing the batch tells what is wrong.

    source, ups, up: bytes and batches of the source's records, and the state (as for
      `merge_loop.merge`); only offsets from `up_first` on, below `up_end`, count.
      target, downs, ...: of the copy's.
    runs: which offsets stand at which, as for `alignment.align`.
    via, target_suffix: it stops at records that looped (see `looped.find_loop`).
    stamp: the header that each copy has besides its record's (empty: none).
    timed: whether times count. marks: receives one of each pair, as `align` makes it.
    `result` receives the number of pairs, the bytes of keys, values and headers in the
    records, the first one's source offset, and the offsets behind the last one on both
    sides; RUN is where to begin in `runs`, and where it ended.
    """
    run = result[RUN]
    equal = 0
    size = np.int64(0)
    first = np.int64(-1)
    while equal < marks.size:
        s, time, at, end, delta = _next(source, ups, up, up_first)
        if end < 0 or s >= up_end:
            break
        t, to_time, to, to_end, to_delta = _next(target, downs, down, down_first)
        if to_end < 0 or t >= down_end:
            break
        while (
            run < runs.shape[0]
            and runs[run, _UPSTREAM] + runs[run, _COUNT] <= s
            and runs[run, _DOWNSTREAM] + runs[run, _COUNT] <= t
        ):
            run += 1
        if (
            run == runs.shape[0]
            or not 0 <= s - runs[run, _UPSTREAM] < runs[run, _COUNT]
            or s - runs[run, _UPSTREAM] != t - runs[run, _DOWNSTREAM]
            or (timed and time != to_time)
        ):
            break
        key_size, key_at, p = sized(source, at, end)
        value_size, value_at, p = sized(source, p, end)
        headers, headers_at = varint(source, p, end)
        if headers < 0 or headers > end - headers_at:
            break
        same = p - at
        if to + same >= to_end or not same_bytes(source, at, target, to, same):
            break
        there, to = varint(target, to + same, to_end)
        tail = end - headers_at
        if (
            there != headers + (stamp.size > 0)
            or to_end - to != tail + stamp.size
            or not same_bytes(target, to + tail, stamp, 0, stamp.size)
        ):
            break
        if headers > 0 or tail > 0:
            fits, looped, _, _, _, _ = find_loop(
                source, headers_at, end, headers, via, target_suffix, via[:0]
            )
            if (
                not fits
                or looped
                or not same_bytes(source, headers_at, target, to, tail)
            ):
                break
        mark = begun()
        if timed:
            mark = mixed(mark, time)
        mark = with_value(mark, source, key_at, key_size)
        mark = with_value(mark, source, value_at, value_size)
        marks[equal] = with_value(mark, source, headers_at, tail)
        if equal == 0:
            first = s
        equal += 1
        size += end - key_at
        result[UP_END], result[DOWN_END] = s + 1, t + 1
        _pass(up, end, delta)
        _pass(down, to_end, to_delta)
    result[EQUAL] = equal
    result[BYTES] = size
    result[FIRST] = first
    result[RUN] = run
