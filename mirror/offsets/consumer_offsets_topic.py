"""Which commits count, as a partition of `__consumer_offsets` is read.

Main type: `CommitLog`, which takes a partition's batches in order and keeps the newest
commit of each key until it is taken. A transaction's commits count with its commit
marker, unless the group has committed again behind them. It is Kafka's own rule: see
`OffsetMetadataManager.replay` and `replayEndTransactionMarker`. `groups`
decodes keys and values.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from mirror.errors import CorruptBatchError
from mirror.records import batch, scan, to_columns
from mirror.records.listing import listed

if TYPE_CHECKING:
    from collections.abc import Iterator

    from mirror.records.batch import Buffer, Rows

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
