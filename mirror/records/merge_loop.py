"""Compiled loops over the records of batches.

`merge` copies records into one output, leaving out those that `looped` names, adding
the provenance header, and renumbering; `fields` finds keys and values, and `newest`
those that no later record replaces. Bytes in, bytes out: no allocation, no Python
object, no I/O. Any producer may have written the bytes, so every number is read by
`varint` or `sized` of `compiled`. `scan` lists the batches. Format: Kafka's message
format v2.
"""

from __future__ import annotations

import numba
import numpy as np

from mirror.records.compiled import (
    compiled,
    copy_bytes,
    put_varint,
    same_bytes,
    sized,
    varint,
    varint_size,
)
from mirror.records.looped import find_loop, first_of

# Columns of the rows that `merge` reads.
SOURCE_AT, SOURCE_END, RECORDS, FIRST_TIME, FIRST_OFFSET, LAST_DELTA, FIXED_TIME = (
    range(7)
)
MERGE_COLUMNS = 7

# Columns that `fields` writes.
SECTION, KEY_AT, KEY_SIZE, VALUE_AT, VALUE_SIZE = range(5)
PLACES = 5

# Slots of `merge`'s state: its position in the rows, so that it can be resumed.
ROW, POSITION, DONE, REACHED, FILLED, TIME = range(6)
STATES = 6

# Slots of `merge`'s result.
END, COPIED, NEWEST, LOOPED, BROKEN, OLDEST, RUNS, UNEXPLAINED, AWAY = range(9)
FILLERS = 9
RESULTS = 10

_HEADER = 61
_BASIS, _PRIME, _BITS = 0x811C9DC5, 0x01000193, 0xFFFFFFFF  # FNV-1a
_SLACK = 32  # varints of a record may grow by this much when it is renumbered

LEAST_RECORD = 6
"""The fewest bytes of a record after its own size: attributes, two deltas, and the
sizes of key, value and headers."""


@numba.njit(inline="always")
def next_record(buffer, at, limit, reached, last_delta):
    """The next record of a batch: its offset and time after the batch's first ones,
    where its key is, and its end. An end of -1: it does not fit, or its offset is not
    behind `reached`, or behind the batch's last.
    """
    size, body = varint(buffer, at, limit)
    if size < LEAST_RECORD or size > limit - body:
        return np.int64(0), np.int64(0), at, np.int64(-1)
    end = body + size
    delta_time, p = varint(buffer, body + 1, end)
    delta, p = varint(buffer, p, end)
    if delta <= reached or delta > last_delta:
        return np.int64(0), np.int64(0), at, np.int64(-1)
    return delta, delta_time, p, end


@compiled(
    "void(uint8[::1], int64[:, ::1], int64[::1], int64, uint8[::1], int64,"
    " uint8[::1], uint8[::1], uint8[::1], uint8[::1], uint8[::1], uint8[::1],"
    " int64[:, ::1], int64[::1])"
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
    homes,
    filler,
    runs,
    result,
):
    """Copy records of the listed batches into `out`, from byte 61 on.

    buffer: contains the uncompressed record sections.
    rows: one per batch (see MERGE_COLUMNS); a FIXED_TIME >= 0 is the time of all
      its records (LogAppendTime), no offset is above FIRST_OFFSET + LAST_DELTA.
    state: where to begin; updated, so that the next call continues there. With a
      filler, FILLED is the next offset that has no record yet, and TIME that of a
      filler there.
    first_offset: records below it are left out (a fetch inside a batch).
    via: the key of the provenance header (empty: none is looked for).
    stamp: such a header, encoded, to append to each record (empty: none).
    target_suffix, feeders: records that looped are left out (see `find_loop`;
      empty: none).
    homes: records that no header `via` names are left out as well if `first_of` says so
      of their keys (empty: none; else there is a target_suffix).
    filler: `fillers.tail`, for a record at each offset before one that has none (empty:
      offsets need no records).
    runs: receives a row per run of records with consecutive source offsets: the first
      one's source offset, its index in `out`, and their number.
    Stops before the output exceeds limit_out bytes, but copies at least one record; and
    when there is no room for another run.
    `result` receives the end, records copied, newest time, records looped, those away
    from home, the number of runs, and how many of the records are fillers. If records
    do not fit their batch, BROKEN is that batch's row, counted from 1, and the rest of
    `result` is invalid.
    """
    at = _HEADER
    copied = 0
    looped = 0
    unexplained = 0
    away = 0
    newest = np.int64(-1)
    base_time = np.int64(0)
    row = state[ROW]
    position = state[POSITION]
    done = state[DONE]
    reached = state[REACHED]
    filled = state[FILLED]
    before = state[TIME]
    fillers = 0
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
            size, body = varint(buffer, position, section_end)
            if size < LEAST_RECORD or size > section_end - body:
                return
            end = body + size
            attributes = buffer[body]
            delta_time, p = varint(buffer, body + 1, end)
            delta_offset, p = varint(buffer, p, end)
            if delta_offset <= reached or delta_offset > last_delta:
                return
            offset = rows[row, FIRST_OFFSET] + delta_offset
            time = fixed if fixed >= 0 else batch_time + delta_time
            may_fill = filler.size > 0 and offset >= first_offset
            while True:
                fills = may_fill and filled < offset
                need = (filler.size if fills else size + stamp.size) + _SLACK
                if copied > 0 and at + need > limit_out:
                    full = True
                if at + need > out.size or run + 1 == runs.shape[0]:
                    full = True
                if full or not fills:
                    break
                if copied == 0:
                    base_time = before
                newest = max(newest, before)
                if filled != next_offset or run < 0:
                    run += 1
                    runs[run, 0] = filled
                    runs[run, 1] = copied
                    runs[run, 2] = 0
                runs[run, 2] += 1
                delta = before - base_time
                head = varint_size(delta) + varint_size(np.int64(copied))
                at = put_varint(out, at, 1 + head + filler.size)
                out[at] = 0
                at = put_varint(out, at + 1, delta)
                at = put_varint(out, at, np.int64(copied))
                copy_bytes(out, at, filler, 0, filler.size)
                at += filler.size
                copied += 1
                fillers += 1
                filled += 1
                next_offset = filled
            if full:
                break
            if may_fill:
                filled = offset + 1
                before = time
            reached = delta_offset
            start = p
            position = end
            done += 1
            if offset < first_offset:
                continue
            count_at = p
            headers = np.int64(0)
            headers_at = end
            if looking:
                key_size, key_at, p = sized(buffer, p, end)
                _, _, count_at = sized(buffer, p, end)
                headers, headers_at = varint(buffer, count_at, end)
                if headers < 0 or headers > end - headers_at:
                    return
                if target_suffix.size > 0:
                    fit, is_looped, is_unexplained, hops, _, _ = find_loop(
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
                        and hops == 0
                        and first_of(buffer, key_at, key_size, homes) != 0
                    ):
                        away += 1
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
                    (count_at - start) + varint_size(headers + 1) + tail + stamp.size
                )
            else:
                content = end - start
            at = put_varint(
                out,
                at,
                1 + varint_size(delta) + varint_size(np.int64(copied)) + content,
            )
            out[at] = attributes
            at = put_varint(out, at + 1, delta)
            at = put_varint(out, at, np.int64(copied))
            if stamp.size > 0:
                part = count_at - start
                copy_bytes(out, at, buffer, start, part)
                at = put_varint(out, at + part, headers + 1)
                if tail > 0:
                    copy_bytes(out, at, buffer, headers_at, tail)
                    at += tail
                copy_bytes(out, at, stamp, 0, stamp.size)
                at += stamp.size
            else:
                copy_bytes(out, at, buffer, start, content)
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
    state[FILLED] = filled
    state[TIME] = before
    result[END] = at
    result[COPIED] = copied
    result[FILLERS] = fillers
    result[NEWEST] = newest
    result[LOOPED] = looped
    result[UNEXPLAINED] = unexplained
    result[AWAY] = away
    result[BROKEN] = 0
    result[OLDEST] = base_time
    result[RUNS] = run + 1


@compiled("int64(uint8[::1], int64[:, ::1], int64[::1], int64[:, ::1])")
def fields(buffer, sections, state, places):
    """Find keys and values of the records in these sections.

    state: where to begin (ROW, POSITION, DONE); updated, so that the next call
      continues there.
    places: receives a row per record (see PLACES), a size of -1 for null, as many as
      there is room for.
    Returns how many; n below zero: after ~n of them, a record of the section at ROW
    does not fit.
    """
    row, at, done = state[ROW], state[POSITION], state[DONE]
    count = 0
    while row < sections.shape[0]:
        state[ROW] = row
        if done == 0:
            at = sections[row, SOURCE_AT]
        while done < sections[row, RECORDS]:
            if count == places.shape[0]:
                state[POSITION], state[DONE] = at, done
                return count
            size, body = varint(buffer, at, sections[row, SOURCE_END])
            if size < LEAST_RECORD or size > sections[row, SOURCE_END] - body:
                return ~count
            end = body + size
            _, p = varint(buffer, body + 1, end)
            _, p = varint(buffer, p, end)
            places[count, SECTION] = row
            places[count, KEY_SIZE], places[count, KEY_AT], p = sized(buffer, p, end)
            places[count, VALUE_SIZE], places[count, VALUE_AT], p = sized(
                buffer, p, end
            )
            if p >= end:
                return ~count
            at = end
            done += 1
            count += 1
        row += 1
        done = 0
    state[ROW], state[POSITION], state[DONE] = row, at, done
    return count


@compiled("int64(uint8[::1], int64[:, ::1], int64, uint8[::1], int64, int64[::1])")
def newest(buffer, places, count, mark, mark_at, table):
    """Keep the last record of each key, and none with a null key or value.

    places: `count` rows of `fields`. Those that are kept move to the end, in order.
    mark, mark_at: records whose values have these bytes at this place only replace each
      other, and no other record replaces them.
    table: room to work in: a power of two, more than `count`.
    Returns the first row that is kept.
    """
    table[:] = -1
    last = table.size - 1
    first = count
    for index in range(count - 1, -1, -1):
        key_at, size = places[index, KEY_AT], places[index, KEY_SIZE]
        if size < 0 or places[index, VALUE_SIZE] < 0:
            continue
        marked = 0
        if places[index, VALUE_SIZE] >= mark_at + mark.size and same_bytes(
            buffer, places[index, VALUE_AT] + mark_at, mark, 0, mark.size
        ):
            marked = 1
        place = _BASIS
        for at in range(key_at, key_at + size):
            place = ((place ^ buffer[at]) * _PRIME) & _BITS
        place &= last
        while table[place] >= 0:
            later = table[place] >> 1
            if (
                table[place] & 1 == marked
                and places[later, KEY_SIZE] == size
                and same_bytes(buffer, places[later, KEY_AT], buffer, key_at, size)
            ):
                break
            place = (place + 1) & last
        if table[place] < 0:
            first -= 1
            table[place] = first << 1 | marked
            for column in range(PLACES):
                places[first, column] = places[index, column]
    return first
