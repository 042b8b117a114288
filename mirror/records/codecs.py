"""Compression of record sections: Kafka's five codecs, each from its library.

`decompress` and `compress` work on whole sections (all records of one batch). Any
producer may have packed them, and a kilobyte may unpack to gigabytes, so every codec
stops at a limit. Kafka frames snappy like the xerial library; the other codecs use
their usual frames. This module knows no batch headers.
"""

from __future__ import annotations

import struct
import threading
from typing import TYPE_CHECKING
import zlib

from kafka.codec import snappy_encode
import lz4.frame
import snappy
from snappy.snappy import UncompressError
import zstandard

from mirror.errors import CorruptBatchError

if TYPE_CHECKING:
    from collections.abc import Callable

NONE, GZIP, SNAPPY, LZ4, ZSTD = range(5)
BY_NAME = {"none": NONE, "gzip": GZIP, "snappy": SNAPPY, "lz4": LZ4, "zstd": ZSTD}

MOST_UNPACKED = 128 << 20
"""The most bytes that a section may unpack to by default."""
_LARGEST_WINDOW = 128 << 20
"""The window of zstd at its highest level; Java's client accepts no larger one."""
_WORTH_KEEPING = 16 << 20
"""The most memory in bytes that an idle unpacker may keep."""
_LEAST_ROOM = 16 << 10
_USUAL_GROWTH = 4
_XERIAL = b"\x82SNAPPY\0"
_XERIAL_HEAD = 16
_LZ4_HEAD = 15
_LZ4_TELLS_SIZE = 0x08
_INT32 = struct.Struct(">i")
_UINT64_LITTLE = struct.Struct("<Q")

_of_thread = threading.local()
_zstd_compressor = zstandard.ZstdCompressor(level=3)


def decompress(codec: int, section: memoryview, *, most: int = MOST_UNPACKED) -> bytes:
    """The uncompressed record section, at most `most` bytes.

    Raises:
        CorruptBatchError: the codec is unknown, the bytes are not of this codec, or
            they unpack to more than `most`.
    """
    unpack = _UNPACK.get(codec)
    if unpack is None:
        raise CorruptBatchError(f"unknown compression codec {codec}")
    try:
        return unpack(section, most)
    except _BROKEN as error:
        raise CorruptBatchError(f"cannot decompress ({_NAMES[codec]}): {error}") from (
            error
        )


def compress(codec: int, section: memoryview) -> bytes:
    return _PACK[codec](section)


def _ungzip(section: memoryview, most: int) -> bytes:
    unpacker = zlib.decompressobj(wbits=31)
    out = unpacker.decompress(section, most + 1)
    if len(out) > most:
        raise _too_large(most)
    if not unpacker.eof:
        raise CorruptBatchError("the gzip stream does not end")
    return out


def _gzip(section: memoryview) -> bytes:
    packer = zlib.compressobj(level=6, wbits=31)
    return packer.compress(section) + packer.flush()


def _unzstd(section: memoryview, most: int) -> bytes:
    # Java's client streams, so its frames do not state their size.
    told = zstandard.frame_content_size(section) if section else 0
    unpacker = getattr(_of_thread, "zstd", None)
    if unpacker is None:
        unpacker = zstandard.ZstdDecompressor(max_window_size=_LARGEST_WINDOW)
    _of_thread.zstd = None
    with unpacker.stream_reader(section, read_across_frames=True) as stream:
        out = _joined(stream.read, len(section), told, most)
    if unpacker.memory_size() <= _WORTH_KEEPING:
        _of_thread.zstd = unpacker
    return out


def _unlz4(section: memoryview, most: int) -> bytes:
    packed = bytes(section)
    unpacker = lz4.frame.LZ4FrameDecompressor()

    def read(size: int) -> bytes:
        nonlocal packed
        if unpacker.eof:
            return b""
        part: bytes = unpacker.decompress(packed, max_length=size)
        packed = b""
        if not unpacker.eof and unpacker.needs_input:
            raise CorruptBatchError("the lz4 frame does not end")
        return part

    told = 0
    if len(packed) >= _LZ4_HEAD and packed[4] & _LZ4_TELLS_SIZE:
        told = _UINT64_LITTLE.unpack_from(packed, 6)[0]
    return _joined(read, len(packed), told, most)


def _joined(read: Callable[[int], bytes], packed: int, told: int, most: int) -> bytes:
    """Everything that `read` returns, joined. The first request is for the size that
    the frame states, or else for a usual size, so there is rarely more than one part.
    """
    room = told + 1 if told > 0 else packed * _USUAL_GROWTH + _LEAST_ROOM
    parts: list[bytes] = []
    total = 0
    while part := read(min(room, most + 1 - total)):
        parts.append(part)
        total += len(part)
        if total > most:
            raise _too_large(most)
        room = max(room, total)
    return parts[0] if len(parts) == 1 else b"".join(parts)


def _unsnappy(section: memoryview, most: int) -> bytes:
    if section[: len(_XERIAL)] != _XERIAL:
        if _told_by_snappy(section) > most:
            raise _too_large(most)
        return bytes(snappy.uncompress(section))
    parts: list[bytes] = []
    at, total = _XERIAL_HEAD, 0
    while at < len(section):
        size = _INT32.unpack_from(section, at)[0]
        at += _INT32.size
        if not 0 < size <= len(section) - at:
            raise CorruptBatchError(f"a snappy block of {size} bytes does not fit")
        block = section[at : at + size]
        total += _told_by_snappy(block)
        if total > most:
            raise _too_large(most)
        parts.append(snappy.uncompress(block))
        at += size
    return b"".join(parts)


def _told_by_snappy(block: memoryview) -> int:
    """The unpacked size, which is at the start of a block."""
    length = shift = 0
    for byte in block[:5]:
        length |= (byte & 0x7F) << shift
        shift += 7
        if byte < 0x80:
            break
    return length


def _too_large(most: int) -> CorruptBatchError:
    return CorruptBatchError(
        f"it unpacks to more than max_unpacked_bytes, which is {most}: raise that if "
        "the batch is legitimate"
    )


_UNPACK: dict[int, Callable[[memoryview, int], bytes]] = {
    GZIP: _ungzip,
    SNAPPY: _unsnappy,
    LZ4: _unlz4,
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
