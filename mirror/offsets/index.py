"""An index over the runs of one partition that stays small, however many they are.

Main type: `Track`. The newest runs are kept as they are; of the older ones only every
n-th is known, with the place in the offset map where reading on finds the others. No
I/O: where a question needs them, the answer is a `Place` to read.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from mirror.offsets.runs import COUNT, DOWNSTREAM, UPSTREAM, RunArray

if TYPE_CHECKING:
    import uuid

Offsets = npt.NDArray[np.int64]

_AT = 2
"""The third column of an epoch's starts: an offset in the map."""
_MOST_STARTS = 4096
_MOST_EPOCHS = 32


@dataclass(frozen=True, slots=True)
class Place:
    """Where the map holds the runs around an offset: from `at`, below `until`."""

    at: int
    until: int | None
    """None: up to the map's end."""
    after: int | None
    """The answer if the offset is behind all that stands there; None if that is the
    end of the epoch."""


@dataclass(frozen=True, slots=True)
class Found:
    """What stands at an offset of the other side, or first behind it."""

    offset: int
    sure: bool = True
    """Off: it is a floor's, and the record itself may stand somewhere behind it."""


class Epoch:
    """Runs that ascend on both sides: of one topic id, without a rewind."""

    __slots__ = (
        *("_closed_at", "_due", "_starts", "_stride", "_tail"),
        *("starts", "tail", "topic_id"),
    )

    def __init__(self, topic_id: uuid.UUID) -> None:
        self.topic_id = topic_id
        self.starts = 0
        """How many starts are known."""
        self.tail = 0
        """How many runs are kept; they are the newest."""
        self._starts = np.empty((4, 3), np.int64)
        self._tail = np.empty((4, 3), np.int64)
        self._stride = 1
        self._due = 0
        self._closed_at: int | None = None

    @property
    def nbytes(self) -> int:
        """What the arrays take."""
        return self._starts.nbytes + self._tail.nbytes

    def first(self, column: int) -> int:
        """The first offset known, upstream or downstream."""
        return int(self._starts[0, column])

    def end(self, column: int) -> int:
        """Behind the last offset."""
        last = self._tail[self.tail - 1]
        return int(last[column] + last[COUNT])

    def follows(self, runs: RunArray) -> bool:
        """Whether these runs go on where the epoch ends, or later."""
        return bool(
            runs[0, UPSTREAM] >= self.end(UPSTREAM)
            and runs[0, DOWNSTREAM] >= self.end(DOWNSTREAM)
        )

    @property
    def kept(self) -> RunArray:
        """The newest runs, up to the end."""
        return self._tail[: self.tail]

    def add(self, runs: RunArray, at: int, *, keep: int) -> None:
        """Runs that stand at the map's offset `at`; `keep` the newest at least."""
        if self._due == 0:
            self._add_start(runs, at)
        self._due -= 1
        if self.tail and _continues(self._tail[self.tail - 1], runs[0]):
            self._tail[self.tail - 1, COUNT] += runs[0, COUNT]
            runs = runs[1:]
        needed = self.tail + len(runs)
        if needed > len(self._tail):
            kept = self._tail[max(0, self.tail - keep) : self.tail]
            size = min(2 * len(self._tail), 2 * keep)
            grown = np.empty((max(size, len(kept) + len(runs)), 3), np.int64)
            grown[: len(kept)] = kept
            self._tail, self.tail = grown, len(kept)
        self._tail[self.tail : self.tail + len(runs)] = runs
        self.tail += len(runs)

    def close(self, at: int) -> None:
        """Another epoch begins at this offset of the map."""
        self._closed_at = at

    def forget(self, before: int) -> None:
        """The map no longer holds what stood below this offset."""
        gone = int(np.searchsorted(self._starts[: self.starts, _AT], before))
        # Kept in memory is kept: the newest runs need no map.
        gone = min(gone, self.starts - 1)
        if gone > 0:
            self._starts[: self.starts - gone] = self._starts[gone : self.starts].copy()
            self.starts -= gone

    def find(self, offset: int, column: int) -> Found | Place | None:
        """What stands at an offset of the other side, or first behind it.

        `column`: UPSTREAM to go downstream, DOWNSTREAM for the way back. A `Place` has
        to be read and asked instead; None if the offset is behind the end.
        """
        if offset >= self.end(column):
            return None
        tail = self.kept
        if offset >= tail[0, column]:
            return locate(tail, offset, column)
        starts = self._starts[: self.starts]
        index = int(np.searchsorted(starts[:, column], offset, "right")) - 1
        if index < 0:
            return Found(int(starts[0, 1 - column]))
        if index + 1 == len(starts):
            return Place(int(starts[index, _AT]), self._closed_at, None)
        following = starts[index + 1]
        return Place(
            int(starts[index, _AT]), int(following[_AT]), int(following[1 - column])
        )

    def _add_start(self, runs: RunArray, at: int) -> None:
        if self.starts == _MOST_STARTS:
            self.starts //= 2
            self._starts[: self.starts] = self._starts[::2].copy()
            self._stride *= 2
        elif self.starts == len(self._starts):
            grown = np.empty((2 * self.starts, 3), np.int64)
            grown[: self.starts] = self._starts
            self._starts = grown
        self._starts[self.starts] = (runs[0, UPSTREAM], runs[0, DOWNSTREAM], at)
        self.starts += 1
        self._due = self._stride


@dataclass(slots=True)
class Track:
    """All that is known of one source partition."""

    target_topic: str
    epochs: list[Epoch]
    """Oldest first. A topic made anew begins one, and so does a source that was
    truncated, or a flow without exactly-once that copied records again."""

    def add(self, topic_id: uuid.UUID, runs: RunArray, at: int, *, keep: int) -> None:
        newest = self.epochs[-1] if self.epochs else None
        if newest is None or newest.topic_id != topic_id or not newest.follows(runs):
            if newest is not None:
                newest.close(at)
            newest = Epoch(topic_id)
            self.epochs.append(newest)
            del self.epochs[:-_MOST_EPOCHS]
        newest.add(runs, at, keep=keep)

    def forget(self, before: int) -> None:
        for epoch in self.epochs:
            epoch.forget(before)

    def current(self) -> list[Epoch]:
        """Those of the newest topic id, oldest first."""
        topic_id = self.epochs[-1].topic_id
        return [epoch for epoch in self.epochs if epoch.topic_id == topic_id]


def locate(runs: RunArray, offset: int, column: int) -> Found | None:
    """What stands at an offset of the other side, or first behind it; None if it is
    behind all the runs, which ascend.
    """
    index = int(np.searchsorted(runs[:, column], offset, "right")) - 1
    if index >= 0:
        beyond = int(offset - runs[index, column])
        if beyond < runs[index, COUNT]:
            return Found(int(runs[index, 1 - column]) + beyond)
        if runs[index, COUNT] == 0:
            return Found(int(runs[index, 1 - column]), sure=beyond == 0)
    if index + 1 < len(runs):
        return Found(int(runs[index + 1, 1 - column]))
    return None


def locate_all(
    runs: RunArray, offsets: Offsets, column: int
) -> tuple[Offsets, npt.NDArray[np.bool_]]:
    """As `locate`, for many offsets, none of which is behind all the runs or before:
    the answers, and whether each is sure.
    """
    index = np.searchsorted(runs[:, column], offsets, "right") - 1
    found = runs[index]
    into = offsets - found[:, column]
    following = runs[np.minimum(index + 1, len(runs) - 1), 1 - column]
    floors = found[:, COUNT] == 0
    beyond = np.where(into < found[:, COUNT], found[:, 1 - column] + into, following)
    return (
        np.where(floors, found[:, 1 - column], beyond),
        ~floors | (into == 0),
    )


def _continues(last: RunArray, following: RunArray) -> bool:
    return bool(
        last[UPSTREAM] + last[COUNT] == following[UPSTREAM]
        and last[DOWNSTREAM] + last[COUNT] == following[DOWNSTREAM]
    )
