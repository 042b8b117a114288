"""Which commits count, as a partition of `__consumer_offsets` is read.

Main type: `CommitLog`, which takes a partition's batches in order and keeps the newest
commit of each key until it is taken. A transaction's commits count with its commit
marker, unless the group has committed again behind them. It is Kafka's own rule: see
`OffsetMetadataManager.replay` and `replayEndTransactionMarker`. `decode_key` and
`decode_value` read a record.
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from mirror.batches import batch, scan, to_columns
from mirror.batches.listing import listed
from mirror.clusters.admin.group_offsets import CommittedOffset
from mirror.errors import CorruptBatchError
from mirror.offsets.mm2_records import read_string

if TYPE_CHECKING:
    from collections.abc import Iterator

    from mirror.batches.batch import Buffer, Rows


_MOST_OPEN = 100_000
"""Commits of open transactions; with more, all are left to the next survey."""

Record = tuple[int, bytes, bytes | None]
"""Offset, key and value; null is a tombstone."""


class CommitLog:
    """One partition, from some offset on."""

    def __init__(self) -> None:
        self._fresh: dict[bytes, bytes | None] = {}
        self._open: dict[int, dict[bytes, tuple[int, bytes | None]]] = {}
        """By producer id: commits of its open transaction, with their offsets."""

    def take(self) -> dict[bytes, bytes | None]:
        """What has changed since the last call: values, or null if the commit is gone,
        by key.
        """
        fresh, self._fresh = self._fresh, {}
        return fresh

    def read(self, buffer: Buffer, seen: Rows, position: int) -> None:
        """The next batches, all of them, from `position` on.

        Raises:
            CorruptBatchError: records do not fit their batch, or a marker is damaged.
        """
        rows = seen[seen[:, scan.COUNT] > 0]
        control = (rows[:, scan.ATTRIBUTES] & batch.CONTROL) != 0
        data = rows[~control]
        plain = not (data[:, scan.ATTRIBUTES] & batch.TRANSACTIONAL).any()
        if plain and not self._open:
            for _, key, value in _records(buffer, data, position):
                self._fresh[key] = value
            return
        ended = batch.markers(buffer, rows[control]).tolist()
        markers = list(zip(rows[control].tolist(), ended, strict=True))
        for (offset, key, value), producer in _with_producers(buffer, data, position):
            while markers and markers[0][0][scan.BASE] < offset:
                self._end(*markers.pop(0))
            if producer < 0:
                self._count(offset, key, value)
            else:
                self._open.setdefault(producer, {})[key] = offset, value
        for each in markers:
            self._end(*each)
        if sum(map(len, self._open.values())) > _MOST_OPEN:
            self._open.clear()

    def _count(self, offset: int, key: bytes, value: bytes | None) -> None:
        self._fresh[key] = value
        for waiting in self._open.values():
            if key in waiting and waiting[key][0] < offset:
                del waiting[key]

    def _end(self, row: list[int], ended: int) -> None:
        if ended == batch.UNREADABLE:
            raise CorruptBatchError(f"the marker at offset {row[scan.BASE]} is damaged")
        waiting = self._open.pop(row[scan.PRODUCER], {})
        if ended != batch.ABORT_MARKER:
            for key, (offset, value) in waiting.items():
                self._count(offset, key, value)


def _with_producers(
    buffer: Buffer, rows: Rows, position: int
) -> Iterator[tuple[Record, int]]:
    """Records with the producer id of their transaction; -1 if there is none."""
    transactional = (rows[:, scan.ATTRIBUTES] & batch.TRANSACTIONAL) != 0
    producers = np.where(transactional, rows[:, scan.PRODUCER], -1).tolist()
    lasts = rows[:, scan.LAST].tolist()
    row = 0
    for record in _records(buffer, rows, position):
        while lasts[row] < record[0]:
            row += 1
        yield record, producers[row]


def _records(buffer: Buffer, rows: Rows, position: int) -> Iterator[Record]:
    """Those with a key."""
    columns = [
        to_columns.OFFSET, to_columns.KEY_AT, to_columns.KEY_SIZE,
        to_columns.VALUE_AT, to_columns.VALUE_SIZE,
    ]  # fmt: skip
    for part in listed(buffer, rows, position):
        data = part.buffer.data
        for offset, key, key_size, at, size in part.places[:, columns].tolist():
            if key_size >= 0:
                yield (
                    offset,
                    bytes(data[key : key + key_size]),
                    bytes(data[at : at + size]) if size >= 0 else None,
                )


# ---- records of `__consumer_offsets`: which group has committed which offset ----
#
# Main functions: `decode_key` and `decode_value`. Coordinators write many other
# types of records there, told apart by the key's first INT16; their keys are None
# here. `commits` knows which records count.
#
# Source: Kafka's `CoordinatorRecordType`, `OffsetCommitKey`,
# `LegacyOffsetCommitKey` and `OffsetCommitValue`
# (group-coordinator/src/main/resources/common/message). Layout, big-endian: key
# type INT16 = 0 or 1, group STRING, topic STRING, partition INT32; value version
# INT16 = 0 to 4, offset INT64, from version 3 on leader epoch INT32, metadata
# STRING, from version 4 on COMPACT_STRING, then times and tagged fields.


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
