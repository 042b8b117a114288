"""Batches of format v2 from what brokers before Kafka 0.11 stored: formats v0 and v1.

Main function: `modern`. Old logs hold single messages, and messages that contain packed
ones (wrappers); both become batches with the same offsets, so that nothing that reads
batches needs to know. It is slower than relaying: Python runs once per wrapper, and per
hole between offsets. No size is trusted. Rules: Kafka's AbstractLegacyRecordBatch.
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING

import lz4.frame
import numpy as np

from mirror.clusters.wire.produce import HEADER_SIZE, EncodedBatch
from mirror.errors import CorruptBatchError
from mirror.records import (
    codecs,
    from_places,
    merge_loop,
    messages,
    records,
    scan,
    to_columns,
)
from mirror.records.batch import CODEC_MASK, LOG_APPEND_TIME

if TYPE_CHECKING:
    from collections.abc import Iterator

    from mirror.records.batch import Buffer, Rows

_LEAST = 17
"""Up to and with the format's number, which is in the same place in all formats."""
_AT_ONCE = 1 << 14
_ENOUGH_UNPACKED = 64 << 20
"""How much is unpacked at a time: a few kilobytes may unpack to gigabytes."""
_BATCH_BYTES = 1 << 20
_TABLES = scan.crc_tables(scan.ZIP)
_NOTHING = np.empty(0, np.uint8)
_OFFSET = struct.Struct(">q")
_HEAD = struct.Struct(">qi")
_LZ4_TELLS_SIZE = 0x08


def modern(
    buffer: Buffer, start: int, end: int, *, most: int = codecs.MOST_UNPACKED
) -> tuple[Buffer, int, int]:
    """The batches between start and end, where they begin with an old format, as ones
    of format v2 in a buffer of their own, up to the first newer one; as they are
    otherwise. Two numbers say where they are. `most`: what a wrapper may unpack to.

    Raises:
        CorruptBatchError: the first message is damaged, unpacks to more, or is not
            there as a whole. If this applies to a later one, what precedes it is
            returned.
    """
    if end - start < _LEAST or buffer[start + _LEAST - 1] > 1:
        return buffer, start, end
    made: list[bytes] = []
    size = 0
    try:
        for each, unpacked in _batches(buffer, start, end, most):
            made.append(each)
            size += unpacked
            if size > _ENOUGH_UNPACKED:
                break
    except CorruptBatchError:
        if not made:
            raise
    if not made:
        raise CorruptBatchError(
            f"no whole message in the {end - start} bytes that the broker sent"
        )
    joined = np.frombuffer(bytearray().join(made), np.uint8)
    return joined, 0, len(joined)


def _batches(
    buffer: Buffer, at: int, end: int, most: int
) -> Iterator[tuple[bytes, int]]:
    """The batches of some single messages, or those of one wrapper, at a time, and
    their size when unpacked.
    """
    places = np.empty((_AT_ONCE, to_columns.PLACE_COLUMNS), np.int64)
    while at + _LEAST <= end and buffer[at + _LEAST - 1] <= 1:
        count, stopped = messages.find(buffer, at, end, _TABLES, places)
        if not count:
            offset, size = _HEAD.unpack_from(buffer.data, at)
            if at + _HEAD.size + size <= end:
                raise _damaged(offset)
            return  # cut off by the fetch limit
        at = stopped
        found = places[:count]
        wraps = found[:, messages.ATTRIBUTES] & CODEC_MASK != codecs.NONE
        for part in np.split(found, np.flatnonzero(wraps[1:] | wraps[:-1]) + 1):
            if part[0, messages.ATTRIBUTES] & CODEC_MASK:
                yield _unwrapped(buffer, part[0], most)
            else:
                made = b"".join(_written(buffer, part, codecs.NONE))
                yield made, len(made)


def _unwrapped(buffer: Buffer, wrapper: Rows, most: int) -> tuple[bytes, int]:
    """The batches of a message that contains others, and what it unpacked to."""
    offset, form = int(wrapper[to_columns.OFFSET]), int(wrapper[messages.ATTRIBUTES])
    codec, version = form & CODEC_MASK, int(wrapper[messages.FORMAT])
    at, size = wrapper[[to_columns.VALUE_AT, to_columns.VALUE_SIZE]].tolist()
    section = buffer.data[at : at + max(size, 0)]
    if codec == codecs.LZ4 and version == 0:
        section = _right_frame(section)
    try:
        unpacked = codecs.decompress(codec, section, most=most)
    except CorruptBatchError as error:
        raise CorruptBatchError(f"the batch at offset {offset}: {error}") from error
    inner = np.frombuffer(bytearray(unpacked), np.uint8)
    last = -1
    for found in _inside(inner, offset):
        offsets = found[:, to_columns.OFFSET]
        packed = found[:, messages.ATTRIBUTES] & CODEC_MASK != codecs.NONE
        others = found[:, messages.FORMAT] != version
        rise = offsets[0] > last and (offsets[1:] > offsets[:-1]).all()  # no wrapping
        if not rise or (packed | others).any():
            raise _damaged(offset)
        last = int(offsets[-1])
    if last > offset or (version == 0 and last < offset):
        raise _damaged(offset)  # of v0, both are absolute: readers go on behind them
    made: list[bytes] = []
    for found in _inside(inner, offset):
        if version == 1:  # they count from the first; only the wrapper's is absolute
            found[:, to_columns.OFFSET] += offset - last
            found[:, messages.ATTRIBUTES] = form
            if form & LOG_APPEND_TIME:
                found[:, to_columns.TIME] = wrapper[to_columns.TIME]
        made += _written(inner, found, codec)
    return b"".join(made), len(inner)


def _inside(inner: Buffer, offset: int) -> Iterator[Rows]:
    """The messages in a wrapper, some at a time, in rows that are used again."""
    rows = np.empty((_AT_ONCE, to_columns.PLACE_COLUMNS), np.int64)
    at = 0
    while at < len(inner) or not at:
        count, at = messages.find(inner, at, len(inner), _TABLES, rows)
        if not count:
            raise _damaged(offset)
        yield rows[:count]


def _written(source: Buffer, found: Rows, codec: int) -> Iterator[bytes]:
    """Batches of these messages: their offsets follow one another in each, and a time
    that the broker gave is that of all of them.
    """
    given = found[:, messages.ATTRIBUTES] & LOG_APPEND_TIME != 0
    given &= found[:, messages.FORMAT] == 1
    times = np.where(given, found[:, to_columns.TIME], -1)
    cut = (np.diff(found[:, to_columns.OFFSET]) != 1) | (np.diff(times) != 0)
    cut |= given[1:] != given[:-1]
    found[:, to_columns.HEADERS_AT] = 0
    runs = np.empty((1, 3), np.int64)
    result = np.zeros(from_places.RESULTS, np.int64)
    out = np.empty(_BATCH_BYTES + HEADER_SIZE, np.uint8)
    ends = [*(np.flatnonzero(cut) + 1).tolist(), len(found)]
    first = 0
    for end in ends:
        part, appended = found[first:end], bool(given[first])
        first = end
        state = np.zeros(1, np.int64)
        while (begun := int(state[0])) < len(part):
            from_places.put(
                source, part, _NOTHING, 0, _NOTHING, _NOTHING, state, out,
                _BATCH_BYTES, runs, result,
            )  # fmt: skip
            if int(state[0]) == begun:  # a single one is larger than the buffer
                out = np.empty(2 * out.size, np.uint8)
                continue
            section = out.data[HEADER_SIZE : int(result[merge_loop.END])]
            base = int(part[begun, to_columns.OFFSET])
            yield _sealed(section, codec, base, result, appended=appended)


def _sealed(
    section: memoryview, codec: int, base: int, result: Rows, *, appended: bool
) -> bytes:
    """A batch as a broker would store it."""
    body = codecs.compress(codec, section) if codec else bytes(section)
    count = int(result[merge_loop.COPIED])
    header = records.header(
        size=HEADER_SIZE + len(body),
        attributes=codec | (LOG_APPEND_TIME if appended else 0),
        count=count,
        base_time=int(result[merge_loop.OLDEST]),
        newest=int(result[merge_loop.NEWEST]),
    )
    EncodedBatch(header, body, count).stamp(-1, -1, -1, transactional=False)
    _OFFSET.pack_into(header, 0, base)
    return bytes(header) + body


def _right_frame(section: memoryview) -> memoryview:
    """Java's client wrote wrong checksums into the heads of lz4 frames (KAFKA-3160),
    which readers of format v0 ignore; the message's own covers them.
    """
    frame = bytearray(section)
    at = 14 if len(frame) > 4 and frame[4] & _LZ4_TELLS_SIZE else 6
    if len(frame) > at:
        for byte in range(256):
            frame[at] = byte
            try:
                lz4.frame.get_frame_info(frame)
            except RuntimeError:
                continue
            break
    return memoryview(frame)


def _damaged(offset: int) -> CorruptBatchError:
    return CorruptBatchError(
        f"the message at offset {offset}, of an old format, is damaged: its checksum "
        "is wrong, or the sizes and offsets in it cannot all be right"
    )
