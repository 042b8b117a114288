"""Reads the records of one side of a range, to be walked over or as lists.

Main type: `SideReader`. It goes on from a position on that side: `section` has the
unpacked batches there, which `pairing` compares without a list; `list_until` and
`advance` list records, which `alignment` compares one by one.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from mirror.batches import merge_loop, to_columns
from mirror.batches.listing import unpacked
from mirror.errors import CorruptBatchError

if TYPE_CHECKING:
    from collections.abc import Iterator

    import numpy.typing as npt

    from mirror.batches.batch import Buffer, Rows
    from mirror.batches.listing import Listed
    from mirror.proving.log_stream import LogStream, Stored

_NOTHING = np.empty((0, to_columns.PLACE_COLUMNS), np.int64)
_NO_BYTES = np.empty(0, np.uint8)


class RecordSection:
    """Records that can be walked over: unpacked, but not listed."""

    def __init__(self, buffer: Buffer, rows: Rows) -> None:
        self.buffer, self.rows = buffer, rows
        self._lasts = rows[:, merge_loop.FIRST_OFFSET] + rows[:, merge_loop.LAST_DELTA]
        self.state = np.zeros(merge_loop.STATES, np.int64)

    @property
    def end(self) -> int:
        return int(self._lasts[-1]) + 1

    def begin_at(self, position: int) -> None:
        self.state[:] = 0
        self.state[merge_loop.ROW] = np.searchsorted(self._lasts, position)


class SideReader:
    """The records of one side from a position on, first to be walked over, or the ones
    that the kernel has now.
    """

    def __init__(self, stream: LogStream, first: int, most_unpacked: int) -> None:
        self.position = first
        self._stream = stream
        self._stored = stream.stored()
        self._most_unpacked = most_unpacked
        self._part: Stored | None = None
        self._sections: Iterator[tuple[Buffer, Rows]] = iter(())
        self._section: RecordSection | None = None
        self._parts: Iterator[Listed] = iter(())
        self.buffer, self.places = _NO_BYTES, _NOTHING
        self.came_home = self.ended = False
        self.stamp: npt.NDArray[np.uint8] | None = None

    def _here(self) -> Stored | None:
        """The batches that have the next records; None: there are none."""
        while self._part is None or self._part.end <= self.position:
            self._part, self._section = next(self._stored, None), None
            if self._part is None:
                return None
            self.position = max(self.position, self._part.first)
            self._sections = unpacked(*self._part[:2], self._most_unpacked)
        return self._part

    def section(self) -> RecordSection | None:
        """The next records to walk over; None: there are none, or they are damaged."""
        if self._here() is None:
            return None
        while self._section is None or self._section.end <= self.position:
            try:
                found = next(self._sections, None)
            except CorruptBatchError:  # who lists the records says which
                found = None
            if found is None:
                return None
            self._section = RecordSection(*found)
            self._section.begin_at(self.position)
        return self._section

    def passes(self, section: RecordSection) -> bool:
        """Go on behind this section if all of it has been walked over."""
        if section.state[merge_loop.ROW] < len(section.rows):
            return False
        self.position = max(self.position, section.end)
        return True

    def list_until(self, end: int) -> None:
        """Have the records below this offset listed; `advance` takes them."""
        self._parts = self._listed(end)
        self.buffer, self.places = _NO_BYTES, _NOTHING
        self.ended = False

    def _listed(self, end: int) -> Iterator[Listed]:
        while self.position < end and (part := self._here()) is not None:
            yield from self._stream.records(part, self.position, end)
            self.position = min(part.end, end)
        self.position = max(self.position, end)
        if self._section is not None:
            self._section.begin_at(self.position)

    def take_next(self) -> npt.NDArray[np.int64]:
        """Take the next records, none at the end."""
        part = next(self._parts, None)
        if part is None:
            self.ended = True
            self.buffer, self.places = _NO_BYTES, _NOTHING
        else:
            self.buffer, self.places = part.buffer, part.places
            self.came_home = part.came_home
            self.stamp = part.stamp
        return self.places
