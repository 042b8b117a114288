"""Record batches as bytes: valid, or wrong in a chosen place.

`record` and `stored` encode Kafka's message format v2, and let a test replace a size, a
count or an offset by another number. Checksums are always valid, since the sender
computes them. It does not use mirror's own encoder.
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING
import zlib

from crc32c import crc32c
from hypothesis import strategies as st
import lz4.frame
import snappy
import zstandard

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

NONE, GZIP, SNAPPY, LZ4, ZSTD = range(5)
TRANSACTIONAL, CONTROL, DELETE_HORIZON = 0x10, 0x20, 0x40
HEADER_SIZE = 61
_HEADER = struct.Struct(">qiibIhiqqqhii")
_zstd = zstandard.ZstdCompressor()
_MASK = (1 << 64) - 1

Header = tuple[bytes, bytes | None]

WRONG_SIZES = st.dictionaries(
    st.sampled_from(["size", "key_size", "value_size", "count", "name_size"]),
    st.integers(-(2**63), 2**63 - 1) | st.integers(-3, 300),
    max_size=3,
)
"""For `record`."""


def varint(value: int) -> bytes:
    """Zigzag, of up to 64 bits."""
    rest = ((value << 1) ^ (value >> 63)) & _MASK
    out = bytearray()
    while rest >= 0x80:
        out.append(rest & 0x7F | 0x80)
        rest >>= 7
    out.append(rest)
    return bytes(out)


def record(
    key: bytes | None = b"key",
    value: bytes | None = b"value",
    headers: Sequence[Header] = (),
    *,
    delta: int = 0,
    time: int = 0,
    size: int | None = None,
    key_size: int | None = None,
    value_size: int | None = None,
    count: int | None = None,
    name_size: int | None = None,
) -> bytes:
    """One record; the sizes and the count replace the right ones, `name_size` that of
    the first header's name.
    """
    body = bytearray(b"\0" + varint(time) + varint(delta))
    for data, wrong in ((key, key_size), (value, value_size)):
        right = -1 if data is None else len(data)
        body += varint(right if wrong is None else wrong) + (data or b"")
    body += varint(len(headers) if count is None else count)
    for number, (name, content) in enumerate(headers):
        told = name_size if number == 0 and name_size is not None else len(name)
        body += varint(told) + name
        body += varint(-1 if content is None else len(content)) + (content or b"")
    return varint(len(body) if size is None else size) + bytes(body)


def stored(
    section: bytes,
    *,
    count: int = 1,
    base: int = 0,
    last_delta: int | None = None,
    attributes: int = 0,
    base_time: int = 1000,
    newest: int = 1000,
    producer: int = -1,
    leader_epoch: int = 0,
    length: int | None = None,
) -> bytes:
    """A batch as a broker stores it; attributes say whether its records are packed."""
    delta = count - 1 if last_delta is None else last_delta
    whole = bytearray(HEADER_SIZE) + section
    _HEADER.pack_into(
        whole, 0, base, len(whole) - 12 if length is None else length, leader_epoch, 2,
        0, attributes, delta, base_time, newest, producer, 0 if producer >= 0 else -1,
        -1, count,
    )  # fmt: skip
    return bytes(sealed(whole))


def empty_control(offset: int, producer: int, *, leader_epoch: int = 0) -> bytes:
    """What the log cleaner leaves of a producer's last marker (KAFKA-7467)."""
    return stored(
        b"", count=0, base=offset, last_delta=0, attributes=TRANSACTIONAL | CONTROL,
        base_time=-1, newest=-1, producer=producer, leader_epoch=leader_epoch,
    )  # fmt: skip


def marker(offset: int, producer: int, *, commit: bool, leader_epoch: int = 0) -> bytes:
    """The end of a transaction."""
    return stored(
        record(struct.pack(">hh", 0, int(commit)), bytes(6)),
        base=offset,
        attributes=TRANSACTIONAL | CONTROL,
        producer=producer,
        leader_epoch=leader_epoch,
    )


def sealed(whole: bytearray) -> bytearray:
    """With the checksum that a broker accepts."""
    struct.pack_into(">I", whole, 17, crc32c(bytes(whole[21:])))
    return whole


def _streamed_zstd(data: bytes) -> bytes:
    """As Java's client does it: its frames do not contain their size."""
    packer = _zstd.compressobj()
    return packer.compress(data) + packer.flush()


def _gzipped(data: bytes) -> bytes:
    packer = zlib.compressobj(wbits=31)
    return packer.compress(data) + packer.flush()


def _xerial(data: bytes) -> bytes:
    out = bytearray(b"\x82SNAPPY\0" + struct.pack(">ii", 1, 1))
    for at in range(0, len(data), 32 << 10):
        block = snappy.compress(data[at : at + (32 << 10)])
        out += struct.pack(">i", len(block)) + block
    return bytes(out)


PACK: dict[int, Callable[[bytes], bytes]] = {
    GZIP: _gzipped,
    SNAPPY: _xerial,
    LZ4: lambda data: bytes(lz4.frame.compress(data, store_size=False)),
    ZSTD: _streamed_zstd,
}
"""How producers compress a section of records."""


def packed(data: bytes, codec: int) -> bytes:
    """A section of records, compressed or not."""
    return PACK[codec](data) if codec else data
