"""Lists records of a source that came home to its copy, besides those that were copied.

Main type: `Homecomers`. A flow leaves out records that came through its target before,
but `mirror failback --restore` writes them back there without their stamp, and to the
offset map. So looped records that the map names are records like others, less the
header that is gone from their copies. And what it leaves out by key, it may have copied
while it was configured otherwise: the map says so.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from mirror.batches import home_stamps, scan, to_columns
from mirror.batches.listing import Listed, Loops, listed
from mirror.offsets.runs import COUNT, UPSTREAM, between
from mirror.proving.ranges import covered

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from mirror.batches.batch import Buffer, Rows
    from mirror.offsets.runs import RunArray
    from mirror.proving.log_stream import Lister

_NOTHING = np.empty((0, to_columns.PLACE_COLUMNS), np.int64)


class Homecomers:
    """For one range of a source."""

    def __init__(
        self,
        runs: RunArray,
        loops: Loops,
        *,
        most_unpacked: int,
        former: Sequence[Loops] = (),
    ) -> None:
        """`loops`: which records a flow leaves out. `former`: as these, of the target
        before it was rebuilt; the flow leaves none of them out.
        """
        self._former = former
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
                yield from self._of_former(part)
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
            buffer, rows, position, until,
            loops=Loops(self._loops.via), most_unpacked=self._most_unpacked,
        ):  # fmt: skip
            offsets = part.places[:, to_columns.OFFSET]
            named = covered(offsets, self._runs, UPSTREAM)
            left_out = ~np.isin(offsets, copied[:, to_columns.OFFSET])
            born_here = part.places[:, to_columns.HIDDEN] == 0
            was_copied = ~left_out | (named & born_here)
            home = ~was_copied & named
            home[home] = _take(part.buffer, part.places, home, self._loops)
            places, home = part.places[was_copied | home], home[was_copied | home]
            for some, is_home in _split(places, home):
                # They have been counted as left out.
                came = int(np.isin(some[:, to_columns.OFFSET], offsets[left_out]).sum())
                found = Listed(part.buffer, some, -came, came_home=is_home)
                yield from (found,) if is_home else self._of_former(found)

    def _of_former(self, part: Listed) -> Iterator[Listed]:
        """The same records; in parts of their own those that came home to a target
        that was rebuilt.
        """
        if not self._former:
            yield part
            return
        offsets = part.places[:, to_columns.OFFSET]
        named = covered(offsets, self._runs, UPSTREAM)
        home = np.zeros(len(offsets), np.bool_)
        for loops in self._former:
            home[named] |= _take(part.buffer, part.places, named, loops)
        looped = part.looped
        for some, is_home in _split(part.places, home):
            yield Listed(part.buffer, some, looped, came_home=is_home)
            looped = 0
        if looped:
            yield Listed(part.buffer, _NOTHING, looped)


def _take(
    buffer: Buffer, places: Rows, which: npt.NDArray[np.bool_], loops: Loops
) -> npt.NDArray[np.bool_]:
    """Take the stamp off some records; returns of which of these it was there."""
    chosen = np.ascontiguousarray(places[which])
    taken = np.zeros(len(chosen), np.uint8)
    home_stamps.take(buffer, chosen, loops.via, loops.target_suffix, taken)
    places[which] = chosen
    return taken > 0


def _split(places: Rows, which: npt.NDArray[np.bool_]) -> Iterator[tuple[Rows, bool]]:
    """The records in parts that are so, or not."""
    cuts = np.flatnonzero(np.diff(which)) + 1
    parts = zip(np.split(places, cuts), np.split(which, cuts), strict=True)
    return ((some, bool(flags[0])) for some, flags in parts if len(some))


def by_stamp(stamps: Sequence[Buffer], *, most_unpacked: int) -> Lister:
    """Lists copies; in parts of their own those with one of these stamps."""

    def lister(buffer: Buffer, rows: Rows, position: int, end: int) -> Iterator[Listed]:
        for part in listed(buffer, rows, position, end, most_unpacked=most_unpacked):
            which = np.zeros(len(part.places), np.int64)
            for number, stamp in enumerate(stamps, 1):
                which[_end_with(part.buffer, part.places, stamp)] = number
            cuts = np.flatnonzero(np.diff(which)) + 1
            for some, flags in zip(
                np.split(part.places, cuts), np.split(which, cuts), strict=True
            ):
                number = int(flags[0]) if len(flags) else 0
                stamp_of = stamps[number - 1] if number else None
                yield part._replace(places=some, stamp=stamp_of)

    return lister


def _end_with(buffer: Buffer, places: Rows, stamp: Buffer) -> npt.NDArray[np.bool_]:
    """Which records end with the bytes of this header."""
    at = places[:, to_columns.END] - stamp.size
    fits = (at >= places[:, to_columns.HEADERS_AT]) & (
        places[:, to_columns.HEADERS] > 0
    )
    found = np.zeros(len(places), np.bool_)
    begins = at[fits]
    same = np.ones(len(begins), np.bool_)
    for i, byte in enumerate(stamp.tolist()):
        same &= buffer[begins + i] == byte
    found[fits] = same
    return found
