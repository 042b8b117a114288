"""Records as Arrow: the input of a user's function, and the output to write.

Main types: `Decoder`, which reads unpacked records into `Chunk`s of bounded size, and
`Columns`, the values to write, in the order of `from_columns.put`. No array shares its
buffers, so a function may keep them. `copying.transform` decides what a function may
return.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from mirror.records import merge_loop, to_columns
from mirror.records.batch import damaged_records
from mirror.records.schema import HEADERS, SCHEMA

if TYPE_CHECKING:
    from collections.abc import Iterator

    from mirror.records.batch import Buffer, Rows

Longs = npt.NDArray[np.int64]

_MOST_RECORDS = 1 << 16
_MOST_BYTES = 8 << 20
_NOTHING = np.empty(0, np.uint8)


@dataclass(frozen=True, slots=True, kw_only=True)
class Chunk:
    """Consecutive records. `source` and `places` are valid until the next read."""

    batch: pa.RecordBatch
    source: Buffer
    """The bytes that contain the records."""
    places: Rows
    """One row per record (columns: `to_columns.OFFSET` and so on)."""
    looped: int
    """Records left out because they already came through the target."""
    unexplained: int
    """How many of these did not come from one of the `feeders`."""
    away: int
    """Records left out because they were written away from their key's home."""

    @property
    def offsets(self) -> Longs:
        return self.places[:, to_columns.OFFSET]


class Decoder:
    """Reads unpacked records, one partition at a time."""

    def __init__(
        self, *, via: Buffer, target_suffix: Buffer, feeders: Buffer = _NOTHING,
        homes: Buffer = _NOTHING,
    ) -> None:  # fmt: skip
        """`via`: the key of headers to hide. `target_suffix`, `feeders`, `homes`: as
        for `merge_loop.merge`. All may be empty.
        """
        self._via = via
        self._target_suffix = target_suffix
        self._feeders = feeders
        self._homes = homes
        self._places = np.empty((_MOST_RECORDS, to_columns.PLACE_COLUMNS), np.int64)
        self._result = np.zeros(to_columns.RESULTS, np.int64)

    def read(
        self,
        source: Buffer,
        sections: Rows,
        *,
        at: tuple[str, int],
        position: int,
    ) -> Iterator[Chunk]:
        """Chunks of the listed sections (see `merge_loop.merge`), from `position` on.

        A chunk is empty if all its records are left out.

        Raises:
            CorruptBatchError: records do not fit their batch.
        """
        state = np.zeros(merge_loop.STATES, np.int64)
        found = self._result
        whole = len(sections)
        while (row := state[merge_loop.ROW]) < whole:
            to_columns.find(
                source,
                sections[:whole],
                state,
                position,
                to_columns.ALL,
                self._via,
                self._target_suffix,
                self._feeders,
                self._homes,
                _MOST_BYTES,
                self._places,
                found,
            )
            if (broken := int(found[to_columns.BROKEN]) - 1) >= 0:
                whole = broken  # the function gets what precedes it first
                if broken > row:
                    continue
                break
            places = self._places[: found[to_columns.FOUND]]
            yield Chunk(
                batch=self._batch(source, places, at),
                source=source,
                places=places,
                looped=int(found[to_columns.LOOPED]),
                unexplained=int(found[to_columns.UNEXPLAINED]),
                away=int(found[to_columns.AWAY]),
            )
        if whole < len(sections):
            raise damaged_records(sections[whole, merge_loop.FIRST_OFFSET])

    def _batch(
        self, source: Buffer, places: Rows, at: tuple[str, int]
    ) -> pa.RecordBatch:
        count = len(places)
        sizes = self._result
        shown = int(sizes[to_columns.SHOWN])
        key = _Binary(count, int(sizes[to_columns.KEY_BYTES]))
        value = _Binary(count, int(sizes[to_columns.VALUE_BYTES]))
        name = _Binary(shown, int(sizes[to_columns.NAME_BYTES]))
        content = _Binary(shown, int(sizes[to_columns.CONTENT_BYTES]))
        header_ends = np.empty(count + 1, np.int32)
        to_columns.fill(
            source,
            places,
            self._via,
            *key.buffers,
            *value.buffers,
            header_ends,
            *name.buffers,
            *content.buffers,
        )
        pairs = pa.StructArray.from_arrays(
            [name.array(pa.string()), content.array(pa.binary())],
            fields=list(HEADERS.value_type),
        )
        # Not through numpy's times, where one value means "not a time".
        times = pa.array(places[:, to_columns.TIME].copy()).view(pa.timestamp("ms"))
        return pa.RecordBatch.from_arrays(
            [
                pa.repeat(pa.scalar(at[0]), count),
                pa.repeat(pa.scalar(at[1], pa.int32()), count),
                pa.array(places[:, to_columns.OFFSET].copy()),
                times,
                key.array(pa.binary()),
                value.array(pa.binary()),
                pa.ListArray.from_arrays(pa.array(header_ends), pairs, type=HEADERS),
            ],
            schema=SCHEMA,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Columns:
    """Records to write: those kept from a chunk, with their new values."""

    count: int
    records: tuple[npt.NDArray[np.generic], ...]
    """The first parameters of `from_columns.put`, up to the places of the chunk."""

    @classmethod
    def of(cls, chunk: Chunk, kept: pa.RecordBatch) -> Columns:
        """`kept` has the schema `KEPT`; its offsets are some of the chunk's."""
        offsets = _numbers(kept.column("offset"))
        headers = kept.column("headers")
        pairs = headers.values
        return cls(
            count=len(offsets),
            records=(
                offsets,
                _numbers(kept.column("timestamp").cast(pa.int64())),
                _origin(chunk.offsets, offsets),
                *_binary(kept.column("key")),
                *_binary(kept.column("value")),
                _ends(headers),
                *_binary(pairs.field("key")),
                *_binary(pairs.field("value")),
                chunk.source,
                chunk.places,
            ),
        )


class _Binary:
    """A binary column under construction."""

    def __init__(self, count: int, size: int) -> None:
        self.buffers = (
            np.empty(count + 1, np.int32),
            np.empty(size, np.uint8),
            np.empty(count, np.uint8),
        )

    def array(self, kind: pa.DataType) -> pa.Array:
        ends, data, there = self.buffers
        missing = len(there) - int(np.count_nonzero(there))
        valid = np.packbits(there, bitorder="little") if missing else None
        return pa.Array.from_buffers(
            kind,
            len(there),
            [
                None if valid is None else pa.py_buffer(valid),
                pa.py_buffer(ends),
                pa.py_buffer(data),
            ],
            missing,
        )


def _origin(offered: Longs, kept: Longs) -> Longs:
    """The index of each kept record among those offered."""
    if len(kept) == len(offered):
        return np.arange(len(kept))
    return np.searchsorted(offered, kept)


def _numbers(column: pa.Array) -> Longs:
    return np.require(
        column.to_numpy(zero_copy_only=False), np.int64, requirements=["A", "C"]
    )


def _ends(column: pa.Array) -> npt.NDArray[np.int32]:
    """The offsets of a binary or list column: each value's start, then the last end."""
    if not len(column):
        return np.zeros(1, np.int32)
    ends = np.frombuffer(column.buffers()[1], np.int32)
    part = ends[column.offset : column.offset + len(column) + 1]
    return np.require(part, requirements=["A", "C"])


def _binary(
    column: pa.Array,
) -> tuple[npt.NDArray[np.int32], Buffer, Buffer]:
    data = column.buffers()[2]
    there = _NOTHING
    if column.null_count:
        there = column.is_valid().to_numpy(zero_copy_only=False).view(np.uint8)
    return (
        _ends(column),
        _NOTHING if data is None else np.frombuffer(data, np.uint8),
        there,
    )
