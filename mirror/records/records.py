"""Small record batches of our own: writes a few records, reads them back.

For topics whose records mirror itself writes (such as progress) and for tests; also the
only place that lays out a batch header. Bulk data never passes through here (see
`copying.rewrite`). Writing takes no compiled kernels, so a command that reads nothing
large does not wait for them. Format: Kafka's message format v2.
"""

from __future__ import annotations

import struct
import time
from typing import TYPE_CHECKING

from mirror.clusters import cpu_share
from mirror.clusters.wire.produce import HEADER_SIZE, EncodedBatch

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from mirror.records.batch import Buffer, Rows

BATCH_BYTES = 256 << 10
"""The size of one of our batches: well below any sensible `max.message.bytes`."""

_INT16 = struct.Struct(">h")
_LONGEST = 0x7FFF
_HEADER = struct.Struct(">qiibIhiqqqhii")
_FORMAT = 2
_NO_ATTRIBUTES_NO_TIME_DELTA = b"\0\0"
_NULL = b"\1"
_NO_HEADERS = b"\0"
_OVERHEAD = 32
"""The most bytes that a record takes besides key and value."""
Mark = tuple[int, bytes]
"""A place in a value, and what is there."""

_AT_ONCE = 1 << 11
"""Records to look for at a time: a batch may claim more than fit in memory, and work
that gives way rests in between."""


def header(
    *, size: int, attributes: int, count: int, base_time: int, newest: int
) -> bytearray:
    """The 61 bytes before the records: base offset 0, no producer, no checksum yet.

    `size` is the size of the whole batch; times are epoch milliseconds.
    """
    out = bytearray(HEADER_SIZE)
    _HEADER.pack_into(
        out, 0, 0, size - 12, -1, _FORMAT, 0, attributes, count - 1, base_time, newest,
        -1, -1, -1, count,
    )  # fmt: skip
    return out


def encode(records: Sequence[tuple[bytes, bytes | None]]) -> EncodedBatch:
    """A batch of (key, value) records with the current time; None is a tombstone."""
    now = int(time.time() * 1000)
    body = bytearray()
    for index, (key, value) in enumerate(records):
        record = b"".join(
            (
                _NO_ATTRIBUTES_NO_TIME_DELTA,
                varint(index),
                varint(len(key)),
                key,
                _NULL if value is None else varint(len(value)) + value,
                _NO_HEADERS,
            )
        )
        body += varint(len(record))
        body += record
    return EncodedBatch(
        header=header(
            size=HEADER_SIZE + len(body),
            attributes=0,
            count=len(records),
            base_time=now,
            newest=now,
        ),
        body=bytes(body),
        count=len(records),
    )


def encode_all(
    records: Iterable[tuple[bytes, bytes]], max_bytes: int = BATCH_BYTES
) -> list[EncodedBatch]:
    """As few batches as possible of (key, value) records, in this order.

    Each has at most `max_bytes`, unless a single record is larger.
    """
    batches: list[EncodedBatch] = []
    part: list[tuple[bytes, bytes]] = []
    size = HEADER_SIZE
    for key, value in records:
        more = len(key) + len(value) + _OVERHEAD
        if part and size + more > max_bytes:
            batches.append(encode(part))
            part, size = [], HEADER_SIZE
        part.append((key, value))
        size += more
    if part:
        batches.append(encode(part))
    return batches


def decode(
    buffer: Buffer, rows: Rows, *, newest: Mark | None = None
) -> Iterator[tuple[int, bytes, bytes]]:
    """The base offset of the batch, the key and the value of each record in the listed
    batches; records with a null key or value are left out.

    With `newest`, so are most that a later one with their key replaces; records with
    this mark only replace each other.

    Raises:
        CorruptBatchError: records do not fit their batch.
    """
    import numpy as np  # noqa: PLC0415  see the module's first lines

    from mirror.records import codecs, merge_loop, scan  # noqa: PLC0415
    from mirror.records.batch import CODEC_MASK, sections  # noqa: PLC0415

    found = sections(rows)
    if not (rows[:, scan.ATTRIBUTES] & CODEC_MASK).any():
        yield from _decode(buffer, found, newest)
        return
    for row, section in zip(rows, found, strict=True):
        codec, source = int(row[scan.ATTRIBUTES]) & CODEC_MASK, buffer
        if codec != codecs.NONE:  # a topic's own compression.type may say so
            at, end = section[[merge_loop.SOURCE_AT, merge_loop.SOURCE_END]].tolist()
            unpacked = bytearray(codecs.decompress(codec, buffer.data[at:end]))
            source = np.frombuffer(unpacked, np.uint8)
            section[[merge_loop.SOURCE_AT, merge_loop.SOURCE_END]] = 0, len(unpacked)
        yield from _decode(source, section[np.newaxis], newest)


def _decode(
    source: Buffer, found: Rows, newest: Mark | None
) -> Iterator[tuple[int, bytes, bytes]]:
    """The same of sections that are not compressed."""
    import numpy as np  # noqa: PLC0415

    from mirror.records import merge_loop  # noqa: PLC0415
    from mirror.records.batch import damaged_records  # noqa: PLC0415

    data, bases = source.data, found[:, merge_loop.FIRST_OFFSET].tolist()
    places = np.empty((_AT_ONCE, merge_loop.PLACES), np.int64)
    state = np.zeros(merge_loop.STATES, np.int64)
    while True:
        count = merge_loop.fields(source, found, state, places)
        whole = count if count >= 0 else ~count
        first = 0 if newest is None else _first_kept(source, places, whole, newest)
        for row, key_at, key_size, value_at, value_size in places[first:whole].tolist():
            if key_size >= 0 and value_size >= 0:
                yield (
                    bases[row],
                    bytes(data[key_at : key_at + key_size]),
                    bytes(data[value_at : value_at + value_size]),
                )
        if count < 0:
            raise damaged_records(bases[state[merge_loop.ROW]])
        if count < _AT_ONCE:
            return
        cpu_share.rest()


def _first_kept(source: Buffer, places: Rows, count: int, mark: Mark) -> int:
    import numpy as np  # noqa: PLC0415

    from mirror.records import merge_loop  # noqa: PLC0415

    at, what = mark[0], np.array(list(mark[1]), np.uint8)
    table = np.empty(2 * _AT_ONCE, np.int64)
    return int(merge_loop.newest(source, places, count, what, at, table))


def varint(value: int) -> bytes:
    """A length or index as a zigzag varint."""
    rest = value << 1
    out = bytearray()
    while rest >= 0x80:
        out.append(rest & 0x7F | 0x80)
        rest >>= 7
    out.append(rest)
    return bytes(out)


def encode_string(text: str) -> bytes:
    """A STRING: INT16 length + UTF-8, as Kafka and MirrorMaker 2 have it in keys and
    values of their own topics.
    """
    encoded = text.encode()
    if len(encoded) > _LONGEST:
        # Commit metadata may be as long as a broker allows; Java reads no more.
        encoded = encoded[:_LONGEST].decode(errors="ignore").encode()
    return _INT16.pack(len(encoded)) + encoded


def read_string(data: bytes, at: int) -> tuple[str, int]:
    """A STRING, and where it ends. Raises struct.error or UnicodeDecodeError."""
    size = _INT16.unpack_from(data, at)[0]
    begin, end = at + _INT16.size, at + _INT16.size + size
    if size < 0 or end > len(data):
        raise struct.error("a string runs past the end")
    return data[begin:end].decode(), end
