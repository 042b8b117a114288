"""Records that a copy has where the source has an offset without a record.

A filler has a null value and the header `mirror.filler`, whose value says which source
it is about, as `mirror.via` says it. Main functions: `tail`, the bytes that all fillers
of a partition share, and `batches`, for wide holes; into others `merge_loop.merge` puts
them, between records. `listing.are_fillers` finds them.
"""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING

import numpy as np

from mirror.clusters.wire.produce import HEADER_SIZE, EncodedBatch
from mirror.records import codecs, records
from mirror.records.records import varint

if TYPE_CHECKING:
    from collections.abc import Iterator

HEADER = "mirror.filler"
NAMED = varint(len(HEADER)) + HEADER.encode()
"""How the encoded header begins, whatever source it is about."""
KEY = b"\xff\xffmirror.filler"
"""Of fillers on compacted topics, whose brokers refuse null keys. No text begins with
these two bytes."""
CODEC = codecs.GZIP
"""What each client can unpack; slow to make, and bodies are made once."""
_NULL = b"\1"
_MOST_BYTES = 1 << 20
"""Of a batch before it is packed: who reads it unpacks all of it."""
_WORTH_PACKING = 1 << 10
_OVERHEAD = 12
"""The most bytes of a record besides its tail."""


def header_of(source: str) -> bytes:
    """The header, encoded; `source`: as in `mirror.via`."""
    return NAMED + varint(len(source.encode())) + source.encode()


def tail(header: bytes, stamp: bytes, *, keyed: bool) -> bytes:
    """A filler's bytes behind its offset: key, value and headers."""
    key = varint(len(KEY)) + KEY if keyed else _NULL
    count = varint(1 + bool(stamp)) if header else varint(0)
    return key + _NULL + count + header + stamp


def batches(
    first: int, end: int, behind: bytes, *, time: int, max_bytes: int
) -> Iterator[EncodedBatch]:
    """Fillers from one offset up to another. `behind`: their `tail`; `time`: of each,
    epoch ms.
    """
    # What brokers pack otherwise, or not at all, must fit as well.
    most = max((min(max_bytes, _MOST_BYTES) - HEADER_SIZE)
               // (len(behind) + _OVERHEAD), 1)  # fmt: skip
    for at in range(first, end, most):
        count = min(most, end - at)
        codec = CODEC if count * len(behind) >= _WORTH_PACKING else codecs.NONE
        section = body(count, behind, codec)
        yield EncodedBatch(
            header=records.header(
                size=HEADER_SIZE + len(section), attributes=codec, count=count,
                base_time=time, newest=time,
            ),
            body=section,
            count=count,
            runs=np.array([[at, 0, count]], np.int64),
            fillers=count,
        )  # fmt: skip


@functools.lru_cache(maxsize=32)
def body(count: int, behind: bytes, codec: int) -> bytes:
    """The packed records of a batch, whose times are all its first one."""
    first, parts = 0, []
    for size, end in ((1, 1 << 6), (2, 1 << 13), (3, 1 << 20)):
        numbers = np.arange(first, min(end, count), dtype=np.int64) << 1  # zigzag
        head = varint(2 + size + len(behind)) + bytes(2)
        rows = np.empty((len(numbers), len(head) + size + len(behind)), np.uint8)
        rows[:, : len(head)] = list(head)
        for index in range(size):
            rest = 0x80 if index < size - 1 else 0
            rows[:, len(head) + index] = (numbers >> (7 * index)) & 0x7F | rest
        rows[:, len(head) + size :] = list(behind)
        parts.append(rows.tobytes())
        first = max(first, min(end, count))
    section = b"".join(parts)
    if codec == codecs.NONE:
        return section
    return bytes(codecs.compress(codec, memoryview(section)))
