"""Compression of record sections: Kafka's five codecs, each from its library.

`decompress` and `compress` work on whole sections (all records of one batch).
Kafka's snappy is framed as the xerial library does it; the rest are the usual
frames. Batch headers are not known here.
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING
import zlib

from kafka.codec import snappy_decode, snappy_encode
import lz4.frame
from snappy.snappy import UncompressError
import zstandard

from mirror.errors import CorruptBatchError

if TYPE_CHECKING:
    from collections.abc import Callable

NONE, GZIP, SNAPPY, LZ4, ZSTD = range(5)
BY_NAME = {"none": NONE, "gzip": GZIP, "snappy": SNAPPY, "lz4": LZ4, "zstd": ZSTD}

_MOST = 512 << 20
"""A section that unpacks to more than this is taken for damaged, not for data."""

_zstd_decompressor = zstandard.ZstdDecompressor()
_zstd_compressor = zstandard.ZstdCompressor(level=3)


def decompress(codec: int, section: memoryview) -> bytes:
    """The uncompressed record section.

    Raises:
        CorruptBatchError: the codec is unknown or the bytes are not of this codec.
    """
    unpack = _UNPACK.get(codec)
    if unpack is None:
        raise CorruptBatchError(f"unknown compression codec {codec}")
    try:
        return unpack(section)
    except _BROKEN as error:
        raise CorruptBatchError(f"cannot decompress ({_NAMES[codec]}): {error}") from (
            error
        )


def compress(codec: int, section: memoryview) -> bytes:
    return _PACK[codec](section)


def _ungzip(section: memoryview) -> bytes:
    unpacker = zlib.decompressobj(wbits=31)
    out = unpacker.decompress(section, _MOST)
    if not unpacker.eof:
        raise CorruptBatchError("the gzip stream does not end, or is far too large")
    return out


def _gzip(section: memoryview) -> bytes:
    packer = zlib.compressobj(level=6, wbits=31)
    return packer.compress(section) + packer.flush()


def _unzstd(section: memoryview) -> bytes:
    # Java's client streams: its frames do not say how large they will be.
    unpacker = _zstd_decompressor.decompressobj(read_across_frames=True)
    return unpacker.decompress(section)


_UNPACK: dict[int, Callable[[memoryview], bytes]] = {
    GZIP: _ungzip,
    SNAPPY: lambda section: bytes(snappy_decode(bytes(section))),
    LZ4: lambda section: bytes(lz4.frame.decompress(section)),
    ZSTD: _unzstd,
}
_PACK: dict[int, Callable[[memoryview], bytes]] = {
    GZIP: _gzip,
    SNAPPY: lambda section: bytes(snappy_encode(section)),
    LZ4: lambda section: bytes(lz4.frame.compress(section, block_linked=False)),
    ZSTD: _zstd_compressor.compress,
}
_NAMES = {code: name for name, code in BY_NAME.items()}
# lz4 and kafka-python's framing of snappy raise plain errors for bad input.
_BROKEN = (
    *(zlib.error, zstandard.ZstdError, UncompressError),
    *(RuntimeError, ValueError, EOFError, IndexError, struct.error),
)
