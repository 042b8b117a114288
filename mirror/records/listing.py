"""Lists the records of fetched batches one by one, undecoded.

Main function: `listed`, which unpacks batches and locates the parts of their records,
many batches at a time. It serves those who inspect records without copying them (see
`marks` and `alignment`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import numpy.typing as npt

from mirror.clusters.wire.produce import HEADER_SIZE
from mirror.errors import CorruptBatchError
from mirror.records import codecs, merge_loop, scan, to_columns
from mirror.records.batch import CODEC_MASK, damaged_records, sections
from mirror.records.compiled import sized

if TYPE_CHECKING:
    from collections.abc import Iterator

    from mirror.records.batch import Buffer, Rows

_NOTHING = np.empty(0, np.uint8)
_MOST_BYTES = 1 << 62
_AT_ONCE = 1 << 16
_UNPACKED_AT_ONCE = 4 << 20


class Loops(NamedTuple):
    """Which records a flow leaves out; for the arguments see `merge_loop.merge`."""

    via: Buffer = _NOTHING
    target_suffix: Buffer = _NOTHING
    homes: Buffer = _NOTHING


NO_LOOPS = Loops()


class Listed(NamedTuple):
    """Some records."""

    buffer: Buffer
    """The bytes that contain them."""
    places: Rows
    """A row per record (columns: `to_columns.OFFSET` and so on)."""
    looped: int
    """How many records between them were left out."""
    came_home: bool = False
    """Whether their copies are the originals, without our stamp."""
    stamp: Buffer | None = None
    """The stamp that they have as copies of a source before it was rebuilt."""


def listed(
    buffer: Buffer,
    rows: Rows,
    position: int = 0,
    end: int = to_columns.ALL,
    *,
    loops: Loops = NO_LOOPS,
    most_unpacked: int = codecs.MOST_UNPACKED,
) -> Iterator[Listed]:
    """The records of batches from `position` on, below `end`. What precedes a damaged
    batch comes before the error.

    Raises:
        CorruptBatchError: records do not fit their batch, or unpack to more than
            `most_unpacked` bytes.
    """
    result = np.zeros(to_columns.RESULTS, np.int64)
    for source, found in unpacked(buffer, rows, most_unpacked):
        state = np.zeros(merge_loop.STATES, np.int64)
        whole = len(found)
        while (row := int(state[merge_loop.ROW])) < whole:
            left = int(found[row:whole, merge_loop.RECORDS].sum())
            places = np.empty((min(left, _AT_ONCE), to_columns.PLACE_COLUMNS), np.int64)
            to_columns.find(
                source, found[:whole], state, position, end,
                loops.via, loops.target_suffix, _NOTHING, loops.homes, _MOST_BYTES,
                places, result,
            )  # fmt: skip
            broken = int(result[to_columns.BROKEN]) - 1
            if broken > row:
                whole = broken  # what precedes it comes first
                continue
            if broken == row:
                raise damaged_records(found[row, merge_loop.FIRST_OFFSET])
            yield Listed(
                source,
                places[: result[to_columns.FOUND]],
                int(result[to_columns.LOOPED] + result[to_columns.AWAY]),
            )
        if whole < len(found):
            raise damaged_records(found[whole, merge_loop.FIRST_OFFSET])


def headers_of(buffer: Buffer, place: Rows) -> list[tuple[bytes, bytes | None]]:
    """The headers of one record, in order: for the few whose headers matter."""
    found = []
    at = int(place[to_columns.HEADERS_AT])
    for _ in range(int(place[to_columns.HEADERS])):
        name, at = _sized(buffer, at)
        value, at = _sized(buffer, at)
        found.append((name or b"", value))
    return found


def are_fillers(buffer: Buffer, places: Rows, header: bytes) -> npt.NDArray[np.bool_]:
    """Which records have a null value and headers that begin with these bytes: those of
    `fillers.header_of` a source, or `fillers.NAMED`.
    """
    found: npt.NDArray[np.bool_] = (
        (places[:, to_columns.VALUE_SIZE] < 0)
        & (places[:, to_columns.HEADERS] > 0)
        & (places[:, to_columns.HEADERS_AT] + len(header) <= places[:, to_columns.END])
    )
    begins = places[found, to_columns.HEADERS_AT]
    same = np.ones(len(begins), np.bool_)
    for index, byte in enumerate(header):
        same &= buffer[begins + index] == byte
    found[found] = same
    return found


def _sized(buffer: Buffer, at: int) -> tuple[bytes | None, int]:
    size, start, end = sized(buffer, at, buffer.size)
    return (None if size < 0 else buffer[start:end].tobytes()), int(end)


def unpacked(buffer: Buffer, rows: Rows, most: int) -> Iterator[tuple[Buffer, Rows]]:
    """Some batches at a time: the bytes that contain their records, and where.

    Raises:
        CorruptBatchError: a batch cannot be unpacked, or only to more than `most`.
    """
    codec = rows[:, scan.ATTRIBUTES] & CODEC_MASK
    cuts = np.flatnonzero(np.diff(codec != codecs.NONE)) + 1
    for part in np.split(rows, cuts):
        if not len(part):
            continue
        if int(part[0, scan.ATTRIBUTES]) & CODEC_MASK == codecs.NONE:
            yield buffer, sections(part)
        else:
            yield from _decompressed(buffer, part, most)


def _decompressed(
    buffer: Buffer, rows: Rows, most: int
) -> Iterator[tuple[Buffer, Rows]]:
    found = sections(rows)
    columns = [scan.AT, scan.SIZE, scan.ATTRIBUTES, scan.BASE]
    parts: list[bytes] = []
    first = at = 0
    for row, (start, size, attributes, base) in enumerate(rows[:, columns].tolist()):
        section = buffer.data[start + HEADER_SIZE : start + size]
        try:
            part = codecs.decompress(attributes & CODEC_MASK, section, most=most)
        except CorruptBatchError as error:
            if parts:
                yield _joined(parts), found[first:row]
            raise CorruptBatchError(f"the batch at offset {base}: {error}") from error
        if parts and at + len(part) > _UNPACKED_AT_ONCE:
            yield _joined(parts), found[first:row]
            parts, first, at = [], row, 0
        parts.append(part)
        found[row, merge_loop.SOURCE_AT] = at
        at += len(part)
        found[row, merge_loop.SOURCE_END] = at
    yield _joined(parts), found[first:]


def _joined(parts: list[bytes]) -> Buffer:
    return np.frombuffer(bytearray().join(parts), np.uint8)
