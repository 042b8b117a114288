"""Lists records of a source that came home to its copy, besides those that were copied.

Main type: `Homecomers`. A flow leaves out records that came through its target before,
but `mirror failback --restore` writes them back there without their stamp, and to the
offset map. So looped records that the map names are records like others, less the
header that is gone from their copies.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from mirror.batches import scan, to_columns
from mirror.batches.listing import Listed, Loops, listed, take_stamp
from mirror.offsets.runs import COUNT, UPSTREAM, between
from mirror.proving.ranges import covered

if TYPE_CHECKING:
    from collections.abc import Iterator

    from mirror.batches.batch import Buffer, Rows
    from mirror.offsets.runs import RunArray

_NOTHING = np.empty((0, to_columns.PLACE_COLUMNS), np.int64)


class Homecomers:
    """For one range of a source."""

    def __init__(self, runs: RunArray, loops: Loops, *, most_unpacked: int) -> None:
        """`loops`: which records a flow leaves out."""
        self._runs = runs
        self._loops = loops
        self._most_unpacked = most_unpacked

    def listed(
        self, buffer: Buffer, rows: Rows, position: int, end: int
    ) -> Iterator[Listed]:
        """As `listing.listed`; records that came home are in parts of their own.

        Raises:
            CorruptBatchError: records do not fit their batch.
        """
        looped = False
        for part in listed(
            buffer, rows, position, end,
            loops=self._loops, most_unpacked=self._most_unpacked,
        ):  # fmt: skip
            looped = looped or part.looped > 0
            until = position
            if len(part.places):
                until = int(part.places[-1, to_columns.OFFSET]) + 1
            if looped and self._lacks(part.places, position, until):
                yield Listed(part.buffer, _NOTHING, part.looped)
                yield from self._both(buffer, rows, part.places, position, until)
            else:
                yield part
            position = until
        if looped:  # behind the last record that was copied
            until = min(end, int(rows[-1, scan.LAST]) + 1)
            if self._lacks(_NOTHING, position, until):
                yield from self._both(buffer, rows, _NOTHING, position, until)

    def _lacks(self, places: Rows, position: int, until: int) -> bool:
        """Whether the map names more offsets than these; seldom, so the records are
        listed twice only then.
        """
        named = between(self._runs, position, until, UPSTREAM)[:, COUNT].sum()
        here = covered(places[:, to_columns.OFFSET], self._runs, UPSTREAM)
        return bool(named > here.sum())

    def _both(
        self, buffer: Buffer, rows: Rows, copied: Rows, position: int, until: int
    ) -> Iterator[Listed]:
        """What was copied and what came home, from `position` on, below `until`."""
        rows = rows[rows[:, scan.LAST] >= position]
        for part in listed(
            buffer, rows, position, until, most_unpacked=self._most_unpacked
        ):
            offsets = part.places[:, to_columns.OFFSET]
            was_copied = np.isin(offsets, copied[:, to_columns.OFFSET])
            home = ~was_copied & covered(offsets, self._runs, UPSTREAM)
            for row in np.flatnonzero(home).tolist():
                home[row] = take_stamp(part.buffer, part.places[row], self._loops)
            places, home = part.places[was_copied | home], home[was_copied | home]
            cuts = np.flatnonzero(np.diff(home)) + 1
            for some, is_home in zip(
                np.split(places, cuts), np.split(home, cuts), strict=True
            ):
                if not len(some):
                    continue
                # They have been counted as looped.
                came = len(some) if is_home[0] else 0
                yield Listed(part.buffer, some, -came, came_home=came > 0)
