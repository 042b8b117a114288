"""Small record batches of our own: write a few records, read them back.

For topics whose records mirror itself makes (progress) and for tests; also the one
place that lays out a batch header. Bulk data never comes this way (see `rewrite`).
Format: Kafka's message format v2.
"""

from __future__ import annotations

import struct
import time
from typing import TYPE_CHECKING

import numpy as np

from mirror.batches import codecs, kernels, scan
from mirror.batches.batch import CODEC_MASK
from mirror.clusters.produce import HEADER_SIZE, EncodedBatch
from mirror.errors import CorruptBatchError

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from mirror.batches.batch import Buffer, Rows

_HEADER = struct.Struct(">qiibIhiqqqhii")
_FORMAT = 2
_NO_ATTRIBUTES_NO_TIME_DELTA = b"\0\0"
_NO_HEADERS = b"\0"
_AT_ONCE = 1 << 13
"""Records that are looked for at a time: a batch may name more than memory holds."""


def header(
    *, size: int, attributes: int, count: int, base_time: int, newest: int
) -> bytearray:
    """The 61 bytes before the records: base offset 0, no producer, no checksum yet.

    `size` is that of the whole batch; times are epoch milliseconds.
    """
    out = bytearray(HEADER_SIZE)
    _HEADER.pack_into(
        out, 0, 0, size - 12, -1, _FORMAT, 0, attributes, count - 1, base_time, newest,
        -1, -1, -1, count,
    )  # fmt: skip
    return out


def encode(records: Sequence[tuple[bytes, bytes]]) -> EncodedBatch:
    """A batch of (key, value) records, all of this moment."""
    now = int(time.time() * 1000)
    body = bytearray()
    for index, (key, value) in enumerate(records):
        record = b"".join(
            (
                _NO_ATTRIBUTES_NO_TIME_DELTA,
                varint(index),
                varint(len(key)),
                key,
                varint(len(value)),
                value,
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


def decode(buffer: Buffer, rows: Rows) -> Iterator[tuple[int, bytes, bytes]]:
    """Base offset of the batch, key and value of each record in the listed batches;
    records with a null among them are left out.

    Raises:
        CorruptBatchError: records do not fit their batch.
    """
    places = np.empty((_AT_ONCE, 4), np.int64)
    for row in rows:
        at, end = int(row[scan.AT]) + HEADER_SIZE, int(row[scan.AT] + row[scan.SIZE])
        source = buffer
        codec = int(row[scan.ATTRIBUTES]) & CODEC_MASK
        if codec != codecs.NONE:  # a topic's own compression.type may say so
            unpacked = bytearray(codecs.decompress(codec, buffer.data[at:end]))
            source, at, end = np.frombuffer(unpacked, np.uint8), 0, len(unpacked)
        data, base = source.data, int(row[scan.BASE])
        for done in range(0, int(row[scan.COUNT]), _AT_ONCE):
            count = min(int(row[scan.COUNT]) - done, _AT_ONCE)
            at = kernels.fields(source, at, end, count, places)
            if at < 0:
                raise CorruptBatchError(
                    f"the batch at offset {base} is damaged: a record does not fit"
                )
            for key_at, key_size, value_at, value_size in places[:count].tolist():
                if key_size >= 0 and value_size >= 0:
                    yield (
                        base,
                        bytes(data[key_at : key_at + key_size]),
                        bytes(data[value_at : value_at + value_size]),
                    )


def varint(value: int) -> bytes:
    """A length or index as a zigzag varint."""
    rest = value << 1
    out = bytearray()
    while rest >= 0x80:
        out.append(rest & 0x7F | 0x80)
        rest >>= 7
    out.append(rest)
    return bytes(out)
