"""Reads some kilobytes of record batches in plain Python.

Main function: `read`, for a process that has loaded no compiled kernels: that takes
half a second of CPU, and a command that reads a few notes need not wait for it. It
knows the usual only, whole and uncompressed batches of format v2; of all else, also of
damage, it says nothing, so that what judges bytes stays in `batch` and `records`.
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING

from crc32c import crc32c

if TYPE_CHECKING:
    from collections.abc import Sequence

_HEADER = struct.Struct(">qiibIhiqqqhii")
_FORMAT = 2
_CODEC, _TRANSACTIONAL, _CONTROL = 0x07, 0x10, 0x20
_CONTROL_KEY = struct.Struct(">hh")
_ABORT = 0
_LEAST_RECORD = 6
_MOST_BYTES = 10
"""Of a varint."""
_LAST_OFFSET = (1 << 63) - (1 << 32)

Record = tuple[bytes | None, bytes | None]
Seen = tuple[list[tuple[int, bytes, bytes]], int]
"""What a reader may see of an answer: the base offset of the batch, key and value, none
with a null among them; and the offset after the last batch."""


class _UnusualError(Exception):
    """Something that only the kernels judge."""


def read(
    view: memoryview,
    start: int,
    end: int,
    *,
    position: int,
    aborted: Sequence[tuple[int, int]],
) -> Seen | None:
    """What `batch.read` and `records.decode` find between start and end; None if that
    takes more than this module knows.
    """
    try:
        return _read(view, start, end, position, aborted)
    except _UnusualError:
        return None


def _read(
    view: memoryview,
    at: int,
    end: int,
    position: int,
    aborted: Sequence[tuple[int, int]],
) -> Seen:
    waiting = sorted(((first, producer) for producer, first in aborted), reverse=True)
    hidden: set[int] = set()
    found: list[tuple[int, bytes, bytes]] = []
    reached, next_offset = -1, position
    if at == end:
        return [], position
    while at + _HEADER.size <= end:
        (
            base, length, _, form, checksum, attributes, delta, _, _, producer, _, _,
            count,
        ) = _HEADER.unpack_from(view, at)  # fmt: skip
        size = length + 12
        last = base + delta
        _require(
            form == _FORMAT
            and size >= _HEADER.size
            and reached < base <= _LAST_OFFSET
            and delta >= 0
            and 0 <= count <= delta + 1
            and count * (_LEAST_RECORD + 1) <= size - _HEADER.size
            and not attributes & _CODEC
        )
        if at + size > end:
            break  # cut off by the fetch limit
        _require(crc32c(view[at + 21 : at + size]) == checksum)
        first, at, reached = at + _HEADER.size, at + size, last
        if last < position:
            continue
        next_offset = last + 1
        if not count:
            continue
        while waiting and waiting[-1][0] <= last:
            hidden.add(waiting.pop()[1])
        if attributes & _CONTROL:
            ((key, _),) = _records(view, first, at, 1)
            if _ended(key) == _ABORT:
                hidden.discard(producer)
        elif not (attributes & _TRANSACTIONAL and producer in hidden):
            found += [
                (base, key, value)
                for key, value in _records(view, first, at, count)
                if key is not None and value is not None
            ]
    _require(reached >= 0)
    return found, next_offset


def _ended(key: bytes | None) -> int:
    """How a transaction ended, by the key of its marker."""
    _require(key is not None and len(key) >= _CONTROL_KEY.size)
    return int(_CONTROL_KEY.unpack_from(key or b"")[1])


def _records(view: memoryview, at: int, limit: int, count: int) -> list[Record]:
    found: list[Record] = []
    for _ in range(count):
        size, body = _varint(view, at, limit)
        _require(_LEAST_RECORD <= size <= limit - body)
        end = body + size
        _, place = _varint(view, body + 1, end)
        _, place = _varint(view, place, end)
        key, place = _sized(view, place, end)
        value, place = _sized(view, place, end)
        _require(place < end)  # the number of headers
        found.append((key, value))
        at = end
    return found


def _sized(view: memoryview, at: int, end: int) -> tuple[bytes | None, int]:
    size, at = _varint(view, at, end)
    if size == -1:
        return None, at
    _require(0 <= size <= end - at)
    return bytes(view[at : at + size]), at + size


def _varint(view: memoryview, at: int, end: int) -> tuple[int, int]:
    """A number, and the position after it."""
    value = shift = 0
    for byte in view[at : min(end, at + _MOST_BYTES)]:
        value |= (byte & 0x7F) << shift
        at += 1
        if byte < 0x80:
            return (value >> 1) ^ -(value & 1), at
        shift += 7
    raise _UnusualError


def _require(usual: bool) -> None:
    if not usual:
        raise _UnusualError
