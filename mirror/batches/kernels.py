"""Compiled loops over the records of batches.

`merge` copies records into one output, leaving out those that already came through the
target (`_looped` knows them), adding the provenance header, and renumbering;
`fields` finds keys and values.
Bytes in, bytes out: no allocation, no Python object, no I/O. Any producer may have
made the bytes, so every number is read by `_varint` or `_sized`, which never look
behind the end that they are given. Which batches there are is `scan`'s to tell.
Format: Kafka's message format v2.
"""

from __future__ import annotations

from typing import Any

from llvmlite import ir
import numba
from numba.core import cgutils, types
from numba.extending import intrinsic
import numpy as np

# Columns of the rows that `merge` reads.
SOURCE_AT, SOURCE_END, RECORDS, FIRST_TIME, FIRST_OFFSET, LAST_DELTA, FIXED_TIME = (
    range(7)
)
MERGE_COLUMNS = 7

# Slots of `merge`'s state: where it stands in the rows, so that it can be resumed.
ROW, POSITION, DONE, REACHED = range(4)
STATES = 4

# Slots of `merge`'s result.
END, COPIED, NEWEST, LOOPED, BROKEN, OLDEST, RUNS, UNEXPLAINED = range(8)
RESULTS = 8

_HEADER = 61
_SLACK = 32  # varints of a record may grow by this much when it is renumbered
_NO_NUMBER = -2  # neither a size nor null

LEAST_RECORD = 6
"""Bytes of a record behind its own size: attributes, two deltas, and the sizes of
key, value and headers."""


def _memcpy(_context, out, _at, source, _start, _size):
    """Copy bytes with memcpy: numba's own slices do so one by one."""
    signature = types.void(out, types.int64, source, types.int64, types.int64)

    def build(context, builder, signature, values):
        to, at, come_from, start, size = values
        to = context.make_array(signature.args[0])(context, builder, to).data
        come_from = context.make_array(signature.args[2])(
            context, builder, come_from
        ).data
        byte = ir.IntType(8)
        cgutils.raw_memcpy(
            builder,
            builder.gep(to, [at], source_etype=byte),
            builder.gep(come_from, [start], source_etype=byte),
            size,
            1,
        )
        return context.get_dummy_value()

    return signature, build


_copy: Any = intrinsic(_memcpy)


@numba.njit(inline="always")
def _varint(buffer, at, end):
    """A number and what follows it. If it does not end before `end`, that is `end + 1`,
    and so is what follows all that is read there: to look once, at last, will do.
    """
    value = np.uint64(0)
    shift = np.uint64(0)
    while at < end and shift < np.uint64(70):
        byte = np.uint64(buffer[at])
        at += 1
        value |= (byte & np.uint64(0x7F)) << shift
        if byte < np.uint64(0x80):
            return np.int64(value >> np.uint64(1)) ^ -np.int64(value & np.uint64(1)), at
        shift += np.uint64(7)
    return np.int64(_NO_NUMBER), end + 1


@numba.njit(inline="always")
def _sized(buffer, at, end):
    """Size (-1: null) and place of a value behind its size, and what follows; a size of
    -2, and `end + 1`, if it does not end before `end`.
    """
    size, start = _varint(buffer, at, end)
    if size < -1 or size > end - start:
        return np.int64(_NO_NUMBER), end + 1, end + 1
    return size, start, start + max(size, 0)


@numba.njit(inline="always")
def _put_varint(out, at, value):
    rest = np.uint64((value << 1) ^ (value >> 63))
    while rest >= np.uint64(0x80):
        out[at] = np.uint8((rest & np.uint64(0x7F)) | np.uint64(0x80))
        at += 1
        rest >>= np.uint64(7)
    out[at] = np.uint8(rest)
    return at + 1


@numba.njit(inline="always")
def _varint_size(value):
    rest = np.uint64((value << 1) ^ (value >> 63))
    size = 1
    while rest >= np.uint64(0x80):
        size += 1
        rest >>= np.uint64(7)
    return size


@numba.njit(inline="always")
def _ends_with(buffer, start, size, suffix):
    if size < suffix.size:
        return False
    first = start + size - suffix.size
    for i in range(suffix.size):
        if buffer[first + i] != suffix[i]:
            return False
    return True


@numba.njit(inline="always")
def _equals(buffer, start, size, wanted):
    return size == wanted.size and _ends_with(buffer, start, size, wanted)


@numba.njit(inline="always")
def _begins_with_one(buffer, start, size, prefixes):
    """Whether a value begins with one of the prefixes, each behind a byte of size."""
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
def _looped(buffer, at, end, headers, via, target_suffix, feeders):
    """The one rule that stops loops, applied to a record's headers.

    A record *looped* if a header called `via` has a value that ends in
    `target_suffix`: it came through the target before. That is *unexplained* if the
    last such header does not begin with one of the `feeders`, a byte of size before
    each. Returns whether the headers end at `end` as they must, then looped and
    unexplained, how many headers are called `via`, and of the others the bytes of
    names and of values.
    """
    hidden = 0
    looped = False
    last_at = last_size = names = values = np.int64(0)
    for _ in range(headers):
        name_size, name_at, at = _sized(buffer, at, end)
        value_size, value_at, at = _sized(buffer, at, end)
        if name_size < 0 or at > end:
            at = end + 1
            break
        if via.size > 0 and _equals(buffer, name_at, name_size, via):
            hidden += 1
            last_at, last_size = value_at, value_size
            if target_suffix.size > 0 and _ends_with(
                buffer, value_at, value_size, target_suffix
            ):
                looped = True
        else:
            names += name_size
            values += max(value_size, 0)
    unexplained = looped and not _begins_with_one(buffer, last_at, last_size, feeders)
    return at == end, looped, unexplained, hidden, names, values


def compiled(signature: str) -> Any:
    """A decorator. The signature is spelled out: a call with anything else fails at
    once instead of compiling a second version in the middle of a flow. No kernel makes
    an array, so none counts references to those that it is given, which would take
    longer than all that a record with headers needs.
    """
    njit: Any = numba.njit
    return njit(signature, cache=True, nogil=True, _nrt=False)


@compiled(
    "void(uint8[::1], int64[:, ::1], int64[::1], int64, uint8[::1], int64,"
    " uint8[::1], uint8[::1], uint8[::1], uint8[::1], int64[:, ::1], int64[::1])"
)
def merge(
    buffer,
    rows,
    state,
    first_offset,
    out,
    limit_out,
    via,
    stamp,
    target_suffix,
    feeders,
    runs,
    result,
):
    """Copy records of the listed batches into `out`, from byte 61 on.

    buffer: where the uncompressed record sections lie.
    rows: one per batch (see MERGE_COLUMNS); a FIXED_TIME >= 0 is the time of all
      its records (LogAppendTime), no offset is behind FIRST_OFFSET + LAST_DELTA.
    state: where to begin; written back, so the next call goes on behind.
    first_offset: records below it are left out (a fetch inside a batch).
    via: the key of the provenance header (empty: none is looked for).
    stamp: such a header, encoded, to append to each record (empty: none).
    target_suffix, feeders: records that looped are left out (see `_looped`;
      empty: none).
    runs: gets a row per run of records with consecutive source offsets: the first
      one's source offset, its index in `out`, and how many they are.
    Stops before an output of limit_out bytes is exceeded, but copies one record; and
    when there is no room for another run.
    `result` tells the end, records copied, newest time, records looped, and the number
    of runs; or else, if records do not fit their batch, as BROKEN its row, the first
    one being 1, and nothing counts.
    """
    at = _HEADER
    copied = 0
    looped = 0
    unexplained = 0
    newest = np.int64(-1)
    base_time = np.int64(0)
    row = state[ROW]
    position = state[POSITION]
    done = state[DONE]
    reached = state[REACHED]
    full = False
    run = np.int64(-1)
    next_offset = np.int64(-1)
    looking = via.size > 0 and (stamp.size > 0 or target_suffix.size > 0)
    while row < rows.shape[0]:
        if done == 0:
            position = rows[row, SOURCE_AT]
            reached = np.int64(-1)
        batch_time = rows[row, FIRST_TIME]
        fixed = rows[row, FIXED_TIME]
        section_end = rows[row, SOURCE_END]
        last_delta = rows[row, LAST_DELTA]
        result[BROKEN] = row + 1
        while done < rows[row, RECORDS]:
            size, body = _varint(buffer, position, section_end)
            if size < LEAST_RECORD or size > section_end - body:
                return
            end = body + size
            if copied > 0 and at + size + stamp.size + _SLACK > limit_out:
                full = True
                break
            if at + size + stamp.size + _SLACK > out.size or run + 1 == runs.shape[0]:
                full = True
                break
            attributes = buffer[body]
            delta_time, p = _varint(buffer, body + 1, end)
            delta_offset, p = _varint(buffer, p, end)
            if delta_offset <= reached or delta_offset > last_delta:
                return
            reached = delta_offset
            start = p
            position = end
            done += 1
            offset = rows[row, FIRST_OFFSET] + delta_offset
            if offset < first_offset:
                continue
            time = fixed if fixed >= 0 else batch_time + delta_time
            count_at = p
            headers = np.int64(0)
            headers_at = end
            if looking:
                _, _, p = _sized(buffer, p, end)
                _, _, count_at = _sized(buffer, p, end)
                headers, headers_at = _varint(buffer, count_at, end)
                if headers < 0 or headers > end - headers_at:
                    return
                if target_suffix.size > 0:
                    fit, is_looped, is_unexplained, _, _, _ = _looped(
                        buffer, headers_at, end, headers, via, target_suffix, feeders
                    )
                    if not fit:
                        return
                    if is_looped:
                        looped += 1
                        unexplained += is_unexplained
                        continue
            if copied == 0:
                base_time = time
            newest = max(newest, time)
            if offset != next_offset or run < 0:
                run += 1
                runs[run, 0] = offset
                runs[run, 1] = copied
                runs[run, 2] = 0
            runs[run, 2] += 1
            next_offset = offset + 1
            delta = time - base_time
            if stamp.size > 0:
                tail = end - headers_at
                content = (
                    (count_at - start) + _varint_size(headers + 1) + tail + stamp.size
                )
            else:
                content = end - start
            at = _put_varint(
                out,
                at,
                1 + _varint_size(delta) + _varint_size(np.int64(copied)) + content,
            )
            out[at] = attributes
            at = _put_varint(out, at + 1, delta)
            at = _put_varint(out, at, np.int64(copied))
            if stamp.size > 0:
                part = count_at - start
                _copy(out, at, buffer, start, part)
                at = _put_varint(out, at + part, headers + 1)
                if tail > 0:
                    _copy(out, at, buffer, headers_at, tail)
                    at += tail
                _copy(out, at, stamp, 0, stamp.size)
                at += stamp.size
            else:
                _copy(out, at, buffer, start, content)
                at += content
            copied += 1
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
    result[END] = at
    result[COPIED] = copied
    result[NEWEST] = newest
    result[LOOPED] = looped
    result[UNEXPLAINED] = unexplained
    result[BROKEN] = 0
    result[OLDEST] = base_time
    result[RUNS] = run + 1


@compiled("int64(uint8[::1], int64, int64, int64, int64[:, ::1])")
def fields(buffer, at, limit, count, rows):
    """Where the keys and values of `count` records lie that stand before `limit`.

    Writes (key start, key size, value start, value size) per record, a size of -1
    for null, and returns the end of the last record; -1 if one does not fit.
    """
    for i in range(count):
        size, body = _varint(buffer, at, limit)
        if size < LEAST_RECORD or size > limit - body:
            return -1
        end = body + size
        _, p = _varint(buffer, body + 1, end)
        _, p = _varint(buffer, p, end)
        rows[i, 1], rows[i, 0], p = _sized(buffer, p, end)
        rows[i, 3], rows[i, 2], p = _sized(buffer, p, end)
        if p >= end:
            return -1
        at = end
    return at
