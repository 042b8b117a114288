"""An index over ascending runs that stays small however many there are.

Main type: `Epoch`. It keeps the newest runs in full, and of the older ones every n-th
with its place in the offset map, from which the others can be read. No I/O: if a
question needs those, the answer is a `MapPlace` to read. `track` has the epochs of one
partition.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any
from uuid import UUID

import numpy as np
import numpy.typing as npt

from mirror.offsets.progress import NO_ID
from mirror.offsets.runs import COUNT, DOWNSTREAM, UPSTREAM, RunArray, cut_at, falls

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

Offsets = npt.NDArray[np.int64]

_AT = 2
"""The third column of an epoch's starts: an offset in the map."""
_MOST_STARTS = 4096


@dataclass(frozen=True, slots=True)
class MapPlace:
    """Where the map has the runs around an offset: from `at`, below `until`."""

    at: int
    until: int | None
    """None: up to the map's end."""
    after: int | None
    """The answer if the offset is after everything there; None if that is the end of
    the epoch."""
    first: tuple[int, int]
    """The first run of the place: its offsets on the source and on the target."""
    below: int | None = None
    """The copy lost everything from this target offset on; None: nothing."""

    def of(self, found: RunArray) -> RunArray:
        """Those of the runs found there that belong to it. Where a copy was re-created
        in the middle of a transaction, one record of the map has runs of both.
        """
        at = found[:, (UPSTREAM, DOWNSTREAM)]
        (begins,) = np.nonzero((at == self.first).all(axis=1))
        if not len(begins):
            return found[:0]
        mine = found[begins[0] :]
        if len(others := np.flatnonzero(falls(mine))):
            mine = mine[: others[0] + 1]
        return mine if self.below is None else cut_at(mine, self.below)


@dataclass(frozen=True, slots=True)
class FoundOffset:
    """The offset on the other side, or the first one after it."""

    offset: int
    sure: bool = True
    """Off: it is a floor's, and the record itself may be anywhere after it."""


class Epoch:
    """Runs that ascend on both sides: of one topic and one copy, without a rewind."""

    __slots__ = (
        *("_added_at", "_closed_at", "_cut", "_due", "_starts", "_stride", "_tail"),
        *("copy_id", "starts", "tail", "topic_id"),
    )

    def __init__(self, topic_id: UUID, copy_id: UUID = NO_ID) -> None:
        self.topic_id = topic_id
        self.copy_id = copy_id
        self.starts = 0
        """How many starts are known."""
        self.tail = 0
        """How many runs are kept; they are the newest."""
        self._starts = np.empty((4, 3), np.int64)
        self._tail = np.empty((4, 3), np.int64)
        self._stride = 1
        self._due = 0
        self._added_at = -1
        self._closed_at: int | None = None
        self._cut: tuple[int, int] | None = None

    @property
    def nbytes(self) -> int:
        """The memory of the arrays."""
        return self._starts.nbytes + self._tail.nbytes

    def first(self, column: int) -> int:
        """The first offset known, upstream or downstream."""
        return int(self._starts[0, column])

    def end(self, column: int) -> int:
        """After the last offset."""
        if self._cut is not None:
            return self._cut[column]
        last = self._tail[self.tail - 1]
        return int(last[column] + last[COUNT])

    def follows(self, runs: RunArray) -> bool:
        """Whether these runs start where the epoch ends, or later."""
        return bool(
            runs[0, UPSTREAM] >= self.end(UPSTREAM)
            and runs[0, DOWNSTREAM] >= self.end(DOWNSTREAM)
        )

    @property
    def kept(self) -> RunArray:
        """The newest runs, up to the end."""
        return self._tail[: self.tail]

    def add(self, runs: RunArray, at: int, *, keep: int) -> None:
        """Runs at the map's offset `at`; `keep` at least the newest."""
        if self._due == 0:
            self._add_start(runs, at)
        self._due -= 1
        self._added_at = at
        if self.tail and _continues(self._tail[self.tail - 1], runs[0]):
            self._tail[self.tail - 1, COUNT] += runs[0, COUNT]
            runs = runs[1:]
        if len(runs) > keep:
            self.tail, runs = 0, runs[-keep:]
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
        """Another epoch begins at this offset of the map, perhaps in the record with
        the last runs of this one.
        """
        self._closed_at = max(at, self._added_at + 1)

    def cut(self, downstream: int) -> None:
        """The copy lost its end, and continued at this offset."""
        starts = self._starts[: self.starts]
        tail = cut_at(self.kept, downstream)
        left = int(np.searchsorted(starts[:, DOWNSTREAM], downstream))
        if len(tail) and tail[-1, COUNT]:
            upstream = int(tail[-1, UPSTREAM] + tail[-1, COUNT])
        else:  # at the first that is lost for certain, perhaps before
            gone = [*self.kept[len(tail) :, UPSTREAM][:1], *starts[left:, UPSTREAM][:1]]
            upstream = int(min([self.end(UPSTREAM), *gone]))
        self.starts = left
        self._tail, self.tail = tail.copy(), len(tail)
        self._cut = (upstream, downstream)

    def forget(self, before: int) -> None:
        """The map no longer has what was below this offset."""
        gone = int(np.searchsorted(self._starts[: self.starts, _AT], before))
        # Kept in memory is kept: the newest runs need no map.
        gone = min(gone, self.starts - 1)
        if gone > 0:
            self._starts[: self.starts - gone] = self._starts[gone : self.starts].copy()
            self.starts -= gone

    def find(self, offset: int, column: int) -> FoundOffset | MapPlace | None:
        """The offset on the other side, or the first one after it.

        `column`: UPSTREAM to go downstream, DOWNSTREAM for the way back. If the answer
        is a `MapPlace`, read that and ask it instead; None: it is beyond the end.
        """
        if offset >= self.end(column):
            return None
        tail = self.kept
        if len(tail) and offset >= tail[0, column]:
            return locate(tail, offset, column)
        starts = self._starts[: self.starts]
        index = int(np.searchsorted(starts[:, column], offset, "right")) - 1
        if index < 0:
            return FoundOffset(int(starts[0, 1 - column]))
        up, down, at = starts[index].tolist()
        below = self._cut[DOWNSTREAM] if self._cut is not None else None
        if index + 1 == len(starts):
            return MapPlace(at, self._closed_at, None, (up, down), below)
        following = starts[index + 1]
        until, after = max(int(following[_AT]), at + 1), int(following[1 - column])
        return MapPlace(at, until, after, (up, down), below)

    def around(self, windows: Iterable[tuple[int, int]]) -> RunArray | list[MapPlace]:
        """The runs of these windows of source offsets, with one before and one behind
        each of them at least, if there are any; if they are not kept, where the map has
        them.
        """
        windows = list(windows)
        tail, starts = self.kept, self._starts[: self.starts]
        low = min((first for first, _ in windows), default=self.end(UPSTREAM))
        if len(tail) and tail[0, UPSTREAM] < low:
            return tail[int(np.searchsorted(tail[:, UPSTREAM], low)) - 1 :].copy()
        ups, ats = starts[:, UPSTREAM], starts[:, _AT]
        # A start that stands in one record of the map with the next ends behind it.
        ends = np.maximum(np.append(ats[1:], -1), ats + 1).tolist()
        chosen: list[tuple[int, int]] = []
        for first, end in sorted(windows):
            begin = max(int(np.searchsorted(ups, first)) - 1, 0)
            last = min(int(np.searchsorted(ups, end)), len(ups) - 1)
            if chosen and ats[begin] < ends[chosen[-1][1]]:
                chosen[-1] = chosen[-1][0], max(chosen[-1][1], last)
            else:
                chosen.append((begin, last))
        return [
            MapPlace(
                at=int(ats[begin]),
                until=ends[last] if last + 1 < len(starts) else self._closed_at,
                after=None,
                first=(int(ups[begin]), int(starts[begin, DOWNSTREAM])),
            )
            for begin, last in chosen
        ]

    def document(self, most: int) -> dict[str, Any]:
        """What JSON can say of it, with at most `most` starts and as many runs."""
        starts = self._starts[: self.starts]
        step = -(-self.starts // most) or 1
        return {
            "topic_id": self.topic_id.hex,
            "copy_id": self.copy_id.hex,
            "starts": _differences(starts[::step]),
            "runs": _differences(self.kept[-most:]),
            "stride": self._stride * step,
            "due": self._due,
            "added_at": self._added_at,
            "closed_at": self._closed_at,
            "cut": self._cut,
        }

    @classmethod
    def of(cls, document: Mapping[str, Any]) -> Epoch:
        """The reverse. Raises one of `errors.MALFORMED` if it is damaged."""
        made = cls(UUID(document["topic_id"]), UUID(document["copy_id"]))
        made._starts, made._tail = (
            _sums(document[name]) for name in ("starts", "runs")
        )
        made.starts, made.tail = len(made._starts), len(made._tail)
        made._stride, made._due = int(document["stride"]), int(document["due"])
        made._added_at = int(document["added_at"])
        if (closed_at := document["closed_at"]) is not None:
            made._closed_at = int(closed_at)
        if (cut := document["cut"]) is not None:
            upstream, downstream = map(int, cut)
            made._cut = upstream, downstream
        elif not made.tail:
            raise ValueError("an epoch without runs has no end")
        if not made.starts:
            raise ValueError("an epoch without starts")
        return made

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


def _differences(rows: Offsets) -> list[list[int]]:
    """By column, each value as what it has more than the one before: that is short."""
    found: list[list[int]] = np.diff(rows, axis=0, prepend=0).T.tolist()
    return found


def _sums(columns: list[list[int]]) -> Offsets:
    rows = np.array(columns, np.int64)
    if rows.ndim != 2 or len(rows) != 3:
        raise ValueError("these are not rows of three offsets")
    return np.ascontiguousarray(rows.cumsum(axis=1).T)


def locate(runs: RunArray, offset: int, column: int) -> FoundOffset | None:
    """The offset on the other side, or the first one after it; None if it is
    after all the runs, which ascend.
    """
    index = int(np.searchsorted(runs[:, column], offset, "right")) - 1
    if index >= 0:
        beyond = int(offset - runs[index, column])
        if beyond < runs[index, COUNT]:
            return FoundOffset(int(runs[index, 1 - column]) + beyond)
        if runs[index, COUNT] == 0:
            return FoundOffset(int(runs[index, 1 - column]), sure=beyond == 0)
    if index + 1 < len(runs):
        return FoundOffset(int(runs[index + 1, 1 - column]))
    return None


def locate_all(
    runs: RunArray, offsets: Offsets, column: int
) -> tuple[Offsets, npt.NDArray[np.bool_]]:
    """As `locate`, for many offsets, none of which is before or after all the runs: the
    answers, and whether each is sure.
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
