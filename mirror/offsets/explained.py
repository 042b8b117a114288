"""What of a copy's log the map of its flow explains, and which holes it leaves.

Main type: `Cover`, one partition of a copy from an offset on. Pure: it takes the map's
blocks in their order. An offset of the log is a copy that a run names, the marker that
each transaction of the flow leaves in each partition it wrote, or anything else: a
record of another flow or of a producer, another marker, an aborted record. Markers are
counted here, not placed: `reverse_start` tells them from records.
"""

from __future__ import annotations

from array import array
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import numpy.typing as npt

from mirror.offsets.progress import NO_ID
from mirror.offsets.runs import COUNT, DOWNSTREAM

if TYPE_CHECKING:
    import uuid

    from mirror.offsets.runs import Block

Offsets = npt.NDArray[np.int64]

_MOST_ROWS = 8_000
"""A transaction with more runs of one partition may have split them over records of the
map; it leaves one marker all the same. See `runs.encode`."""


class Holes(NamedTuple):
    """The offsets below a cut that no run names."""

    firsts: Offsets
    ends: Offsets
    """After the last offset of each."""
    markers: Offsets
    """For each transaction whose copies all stand below the cut, where they end: one of
    the offsets from there on is its marker."""


class Cover:
    """One partition of a copy, from an offset on. It needs 24 bytes per transaction."""

    def __init__(self, begin: int = 0, column: int = DOWNSTREAM) -> None:
        """`column` UPSTREAM: of the source's log, what the flow copied from it."""
        self._column = column
        self.begin = begin
        """What is below it is of no interest."""
        self.topic_id = NO_ID
        """The log's topic, as far as the map names it."""
        self._last_at = -1
        self._clear(begin)

    def _clear(self, begin: int) -> None:
        self.begin = self.end = begin
        self._firsts, self._ends = array("q"), array("q")
        self._markers = array("q")

    def add(self, block: Block, at: int, *, late: bool = False) -> None:
        """A block of the map's record at the offset `at`. `late`: of late records."""
        topic_id = block.copy_id if self._column == DOWNSTREAM else block.topic_id
        if topic_id not in (NO_ID, self.topic_id):
            if self.topic_id != NO_ID:  # it was deleted: its offsets begin again
                self._clear(0)
            self.topic_id = topic_id
        # `mirror adopt` names no copy's id, and its copies left no marker of ours.
        # What a repair appended late may be in one transaction with other records.
        leaves_marker = block.copy_id != NO_ID and not late and at != self._last_at
        leaves_marker &= self._column == DOWNSTREAM
        self._last_at = at
        floors = not block.runs[:, COUNT].all()
        runs = block.runs[block.runs[:, COUNT] > 0] if floors else block.runs
        if not len(runs):
            return
        firsts = runs[:, self._column]
        ends = firsts + runs[:, COUNT]
        last = int(ends[-1])
        if int(firsts[0]) < self.end:
            if late:
                return
            self._cut(int(firsts[0]))
        if last <= self.begin:
            return
        self._note(firsts, ends)
        if leaves_marker and not floors and len(runs) <= _MOST_ROWS:
            self._markers.append(last)

    def _note(self, firsts: Offsets, ends: Offsets) -> None:
        begun = self.end
        self.end = int(ends[-1])
        if len(firsts) == 1:  # as most have it
            if firsts[0] > begun:
                self._firsts.append(begun)
                self._ends.append(int(firsts[0]))
            return
        before = np.maximum(np.concatenate(([begun], ends[:-1])), begun)
        is_hole = firsts > before
        self._firsts.extend(before[is_hole].tolist())
        self._ends.extend(firsts[is_hole].tolist())

    def _cut(self, offset: int) -> None:
        """The copy lost everything from this offset on, or it lies before the first."""
        while self._firsts and self._firsts[-1] >= offset:
            self._firsts.pop()
            self._ends.pop()
        if self._ends and self._ends[-1] > offset:
            self._ends[-1] = offset
        while self._markers and self._markers[-1] > offset:
            self._markers.pop()
        self.end = max(self.begin, min(self.end, offset))

    def begin_at(self, offset: int) -> None:
        """Forget what is below an offset: it is known to be explained, or gone."""
        if offset <= self.begin:
            return
        holes = self.holes(max(self.end, offset))
        kept = holes.ends > offset
        self.begin, self.end = offset, max(self.end, offset)
        firsts = np.maximum(holes.firsts[kept], offset)
        self._firsts = array("q", firsts.tolist())
        self._ends = array("q", holes.ends[kept].tolist())
        left = [end for end in self._markers if end > offset]
        self._markers = array("q", left)

    def holes(self, cut: int) -> Holes:
        """Those between `begin` and the cut."""
        firsts = np.array(self._firsts, np.int64)
        ends = np.array(self._ends, np.int64)
        if cut > self.end:
            firsts, ends = np.append(firsts, self.end), np.append(ends, cut)
        below = firsts < cut
        markers = np.array(self._markers, np.int64)
        return Holes(
            firsts=firsts[below],
            ends=np.minimum(ends[below], cut),
            markers=markers[markers <= cut],
        )


def end_of_copies(cover: Cover, offset: int) -> int:
    """The first offset at or after one that no run names."""
    holes = cover.holes(max(cover.end, offset) + 1)
    index = int(np.searchsorted(holes.ends, offset, "right"))
    return max(offset, int(holes.firsts[index]))


def is_same(cover: Cover, topic_id: uuid.UUID | None) -> bool:
    """Whether a topic may be the copy whose log it describes."""
    return NO_ID in (cover.topic_id, topic_id) or cover.topic_id == topic_id
