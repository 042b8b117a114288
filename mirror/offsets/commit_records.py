"""Records of `__consumer_offsets`: which group has committed which offset.

Main functions: `decode_key` and `decode_value`. Coordinators write many other types of
records there, told apart by the key's first INT16; their keys are None here. `commits`
knows which records count.

Source: Kafka's `CoordinatorRecordType`, `OffsetCommitKey`, `LegacyOffsetCommitKey` and
`OffsetCommitValue` (group-coordinator/src/main/resources/common/message). Layout,
big-endian: key type INT16 = 0 or 1, group STRING, topic STRING, partition INT32; value
version INT16 = 0 to 4, offset INT64, from version 3 on leader epoch INT32, metadata
STRING, from version 4 on COMPACT_STRING, then times and tagged fields.
"""

from __future__ import annotations

import struct
from typing import NamedTuple

from mirror.clusters.admin.group_offsets import CommittedOffset
from mirror.errors import CorruptBatchError
from mirror.offsets.mm2_records import read_string

TOPIC = "__consumer_offsets"

_INT16 = struct.Struct(">h")
_INT32 = struct.Struct(">i")
_VALUE = struct.Struct(">hq")
_OFFSET_COMMITS = frozenset({0, 1})
_WITH_EPOCH, _FLEXIBLE, _NEWEST = 3, 4, 4
_LARGEST_VARINT = 35
"""In bits: five bytes of seven."""


class CommitKey(NamedTuple):
    """What an offset was committed for."""

    group: str
    topic: str
    partition: int


def decode_key(key: bytes) -> CommitKey | None:
    """None: a record of another type.

    Raises:
        CorruptBatchError: it has no type, or is no key of its type.
    """
    try:
        if _INT16.unpack_from(key)[0] not in _OFFSET_COMMITS:
            return None
        group, at = read_string(key, _INT16.size)
        topic, at = read_string(key, at)
        partition = _INT32.unpack_from(key, at)[0]
    except (struct.error, UnicodeDecodeError) as error:
        raise CorruptBatchError(f"not the key of a commit: {error}") from error
    if partition < 0:
        raise CorruptBatchError(f"a commit for partition {partition}")
    return CommitKey(group, topic, partition)


def decode_value(value: bytes) -> CommittedOffset:
    """The offset and its metadata.

    Raises:
        CorruptBatchError: it is no commit, or of a newer version.
    """
    try:
        version, offset = _VALUE.unpack_from(value)
        if not 0 <= version <= _NEWEST:
            raise CorruptBatchError(f"a commit of version {version}")
        at = _VALUE.size + (_INT32.size if version >= _WITH_EPOCH else 0)
        read = _compact_string if version >= _FLEXIBLE else read_string
        metadata, _ = read(value, at)
    except (struct.error, UnicodeDecodeError) as error:
        raise CorruptBatchError(f"not a commit: {error}") from error
    if offset < 0:
        raise CorruptBatchError(f"a commit of offset {offset}")
    return CommittedOffset(offset, metadata)


def _compact_string(data: bytes, at: int) -> tuple[str, int]:
    """Its length plus 1 is an unsigned varint."""
    length = shift = 0
    more = True
    while more:
        if at >= len(data) or shift >= _LARGEST_VARINT:
            raise struct.error("a length does not end")
        length |= (data[at] & 0x7F) << shift
        more = data[at] >= 0x80
        at, shift = at + 1, shift + 7
    end = at + length - 1
    if length == 0 or end > len(data):
        raise struct.error("a string runs past the end")
    return data[at:end].decode(), end
