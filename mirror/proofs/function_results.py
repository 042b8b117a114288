"""The results of a flow's function, made again, as records to compare with the copy.

Main type: `Results`, which a `LogStream` uses instead of listing the source's records.
A function must give the same result for the same record, as it must for at-least-once
delivery: if it does not, its copies differ. Records on which it fails are listed too:
the map has no place for them, and only the dead-letter topic explains that.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from mirror.copying import dead_letters
from mirror.copying.transforming import rewriters
from mirror.records import codecs, scan, to_columns
from mirror.records.listing import Listed, Loops, headers_of, listed

if TYPE_CHECKING:
    from collections.abc import Iterator

    from mirror.config.schema import FlowConfig
    from mirror.copying.provenance import Provenance
    from mirror.copying.rewrite import Rewritten
    from mirror.records.batch import Buffer, Rows

_BATCH_BYTES = 1 << 20
LETTER = f"{dead_letters.PREFIX}offset".encode()
"""The header of a dead letter with the offset of its record."""
_NO_PLACES = np.empty((0, to_columns.PLACE_COLUMNS), np.int64)
_PLACES_IN_BUFFER = [
    *(to_columns.KEY_AT, to_columns.VALUE_AT),
    *(to_columns.HEADERS_AT, to_columns.END),
]


class Results:
    """Calls the function for one partition."""

    def __init__(
        self, flow: FlowConfig, key: tuple[str, int], seen: Provenance
    ) -> None:
        """`seen`: which records the flow leaves out.

        Raises:
            TransformError: the function cannot be imported or called.
        """
        self.removed = 0
        """How many records the function left out."""
        self._key = key
        self._loops = Loops(seen.key, seen.target_suffix, seen.homes)
        self._most_unpacked = flow.max_unpacked_bytes
        # The stamp is not part of the result: it is compared on its own.
        nothing = np.empty(0, np.uint8)
        without_stamp = replace(seen, stamp=nothing, feeders=nothing)
        (self._rewriter,) = rewriters(flow, without_stamp, codec=codecs.NONE, count=1)

    def listed(
        self, buffer: Buffer, rows: Rows, position: int, end: int
    ) -> Iterator[Listed]:
        """What the function makes of the records from `position` on, below `end`, with
        the offsets of the source.

        Raises:
            TransformError: it fails, and the flow has no dead-letter topic.
            CorruptBatchError: records do not fit their batch.
        """
        looped = given = 0
        for part in listed(
            buffer, rows, position, end,
            loops=self._loops, most_unpacked=self._most_unpacked,
        ):  # fmt: skip
            looped += part.looped
            given += len(part.places)
        while len(rows):
            self._rewriter.begin()
            done = self._rewriter.rewrite(
                buffer, rows, position=position, max_bytes=_BATCH_BYTES, at=self._key
            )
            made = _joined(done, end)
            given -= len(made.places)
            yield made
            if done.stopped_at < 0:
                break
            position = done.stopped_at
            rows = rows[rows[:, scan.LAST] >= position]
        self.removed += given
        yield Listed(buffer, _NO_PLACES, looped)


def _joined(done: Rewritten, end: int) -> Listed:
    """Results and dead letters, in the order of the source."""
    buffers: list[bytes] = []
    places: list[Rows] = [_NO_PLACES]
    size = 0
    for batch in [*done.batches, *done.dead_batches]:
        buffer = np.frombuffer(bytearray(batch.header) + batch.body, np.uint8)
        rows = np.empty((1, scan.COLUMNS), np.int64)
        scan.index(buffer, 0, len(buffer), rows)
        found = np.concatenate([each.places for each in listed(buffer, rows)])
        if batch.runs is None:  # letters say where their records stood
            found[:, to_columns.OFFSET] = [
                int(dict(headers_of(buffer, place))[LETTER] or b"") for place in found
            ]
        else:
            runs = batch.runs[:, [0, 2]].tolist()
            found[:, to_columns.OFFSET] = np.concatenate(
                [np.arange(first, first + size) for first, size in runs]
            )
        found[:, _PLACES_IN_BUFFER] += size
        buffers.append(buffer.tobytes())
        size += len(buffer)
        places.append(found)
    whole = np.concatenate(places)
    whole = whole[np.argsort(whole[:, to_columns.OFFSET], kind="stable")]
    count = np.searchsorted(whole[:, to_columns.OFFSET], end)
    joined = np.frombuffer(bytearray().join(buffers), np.uint8)
    return Listed(joined, np.ascontiguousarray(whole[:count]), 0)
