"""Reads the runs of one partition in bounded pieces, however many there are.

Main type: `RunStream`. It passes over the runs to learn what only all of them say, then
once more beside the ranges: in memory are those of one range, packed. Runs ascend on
the target once those that no longer hold are gone; first copies ascend on both sides.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from mirror.offsets.runs import COUNT, DOWNSTREAM, UPSTREAM, between, joined
from mirror.proofs.packed_runs import PackedRuns

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from mirror.offsets.runs import RunArray
    from mirror.proofs.copied_partition import CopiedPartition

_NO_RUNS = np.empty((0, 3), np.int64)
_NEVER = int(np.iinfo(np.int64).max)


class RunStream:
    """First copies, repeats and gone copies, as far as they were read and are kept."""

    def __init__(
        self,
        pieces: Iterable[RunArray],
        of: CopiedPartition,
        late: RunArray,
        *,
        fenced: bool,
        whole: bool,
    ) -> None:
        """`pieces` are passed over a few times; the rest as for `ranges_of`."""
        self._pieces = pieces if fenced else _Ascending(pieces)
        self._of, self._late, self._fenced = of, late, fenced
        self.first = PackedRuns()
        self.repeats = self.gone = _NO_RUNS
        self.floors: list[tuple[int, int]] = []
        """From where to where, on the source, the map does not know what stands where.
        """
        self.target_end = of.target_end
        self._ends = False
        self.target_first = of.target_first
        """Where the copies of what precedes the proof end on the target."""
        self._look_at_all(whole=whole)
        self._rest = self._parts()
        self._up = self._down = -1
        """Up to where it has read."""

    def read(self, source: int, target: int) -> None:
        """Read on, past these offsets of both sides."""
        again, lost = [self.repeats], [self.gone]
        while self._up <= source or self._down < target:
            part = next(self._rest, None)
            if part is None:
                self._up = self._down = _NEVER
                break
            valid, first, repeats, gone = part
            if not self._of.continues:
                repeats = repeats[repeats[:, DOWNSTREAM] >= self.target_first]
            self.first.add(first)
            again.append(repeats)
            lost.append(gone)
            if len(first):
                self._up = int(first[-1, UPSTREAM])
            if len(valid):
                self._down = int(valid[-1, DOWNSTREAM])
        if len(again) > 1:
            self.repeats = np.concatenate(again)
            self.gone = np.concatenate(lost)

    def drop(self, source: int, target: int) -> None:
        """Forget what precedes these offsets, but for the last run: it says where the
        copies of what follows it go on.
        """
        self.first.drop(source)
        self.repeats = between(self.repeats, target, _NEVER, DOWNSTREAM)
        self.gone = between(self.gone, source, _NEVER, UPSTREAM)

    def _look_at_all(self, *, whole: bool) -> None:
        of = self._of
        before = -1
        lows = []
        for piece in self._pieces:
            lows.append(_lowest(piece))
            room = of.source_first - piece[:, UPSTREAM]
            ends = piece[:, DOWNSTREAM] + np.minimum(piece[:, COUNT], room)
            before = max(before, int(ends[room > 0].max(initial=-1)))
        self._lows = _after(lows)
        begins: list[int] = []
        again: list[int] = []
        lowest = None
        reached = -1
        floor = None
        for valid, first, repeats, below in self._parts():
            if len(valid):
                row = valid[np.argmin(valid[:, UPSTREAM])]
                if lowest is None or row[UPSTREAM] < lowest[UPSTREAM]:
                    lowest = row
                # What went back on the source comes late for its range.
                ends = below[:, UPSTREAM] + below[:, COUNT]
                most = np.maximum.accumulate(np.append(reached, ends))
                self.gone = np.concatenate(
                    [self.gone, below[below[:, UPSTREAM] < most[:-1]]]
                )
                reached = int(most[-1])
            again = (
                again
                or repeats[repeats[:, UPSTREAM] >= of.source_first][
                    :1, DOWNSTREAM
                ].tolist()
            )
            begins = begins or first[:1, DOWNSTREAM].tolist()
            if floor is not None and len(first):
                self.floors.append((floor, int(first[0, UPSTREAM])))
                floor = None
            for at in np.flatnonzero(first[:, COUNT] == 0).tolist():
                floor = int(first[at, UPSTREAM])
                if at + 1 < len(first):
                    self.floors.append((floor, int(first[at + 1, UPSTREAM])))
                    floor = None
        if floor is not None:
            self.floors.append((floor, of.source_end))
        if before >= 0 and not of.continues:
            again = [each for each in again if each < self.target_end]
            place = min([before, *begins, *again])
            self.target_first = max(self.target_first, place)
        self._add_unknown(lowest, whole=whole)

    def _add_unknown(self, lowest: RunArray | None, *, whole: bool) -> None:
        """If the map has lost its oldest part, records whose copies are gone include
        what precedes all that it knows, provided that this stood there.
        """
        of = self._of
        if whole or not of.target_start:
            return
        up, down = of.source_end, of.target_end
        if lowest is not None:
            up, down, _ = lowest.tolist()
        if down <= of.target_start and up > of.source_first:
            unknown = np.array([[of.source_first, 0, up - of.source_first]], np.int64)
            self.gone = np.concatenate([unknown, self.gone])

    def _parts(self) -> Iterator[tuple[RunArray, RunArray, RunArray, RunArray]]:
        """What holds, first copies, repeats, and copies that the log has lost."""
        end = self._of.source_end
        reached = self._of.source_first
        carry = _NO_RUNS
        for valid in self._valid():
            first, repeats, reached = self._split(valid, reached)
            first = joined(np.concatenate([carry, first]))
            first, carry = first[:-1], first[-1:]
            yield valid, self._until(first, end), repeats, self._below(valid)
        yield _NO_RUNS, self._until(carry, end), _NO_RUNS, _NO_RUNS

    def _until(self, first: RunArray, end: int) -> RunArray:
        """Without what was copied since the proof began, maybe in one go with the last
        ones, and without late records.
        """
        if not len(first) or first[-1, UPSTREAM] + first[-1, COUNT] < end:
            return without(first, self._late)  # they ascend
        ups, ends = first[:, UPSTREAM], first[:, UPSTREAM] + first[:, COUNT]
        beyond = np.flatnonzero((ups >= end) | (ends > end))
        if len(beyond) and not self._ends:
            self._ends = True
            up, down, _ = first[beyond[0]].tolist()
            self.target_end = min(self.target_end, down + max(end - up, 0))
        return without(between(first, -1, end, UPSTREAM), self._late)

    def _valid(self) -> Iterator[RunArray]:
        """Those that still hold. Where a copy lost its end, the map goes back on the
        target, and what it said before of those offsets is void.
        """
        for piece, later in zip(self._pieces, self._lows, strict=True):
            valid = piece
            if self._fenced and len(piece):
                downs = piece[:, DOWNSTREAM]
                lowest = np.minimum.accumulate(np.append(downs, later)[::-1])[::-1]
                room = lowest[1:] - downs
                if (room < np.maximum(piece[:, COUNT], 1)).any():
                    valid = piece[room > 0]
                    valid[:, COUNT] = np.minimum(valid[:, COUNT], room[room > 0])
            if len(self._late):
                # A floor where late records begin only says what the copy had lost
                # behind.
                floors = valid[:, COUNT] == 0
                late = np.isin(valid[:, DOWNSTREAM], self._late[:, DOWNSTREAM])
                valid = valid[~(floors & late)]
            yield valid

    def _below(self, valid: RunArray) -> RunArray:
        """The records whose copies the log has lost at its beginning."""
        of = self._of
        if valid[:, DOWNSTREAM].min(initial=_NEVER) >= of.target_start:
            return _NO_RUNS
        below = between(valid, -1, of.target_start, DOWNSTREAM)
        return between(below, of.source_first, of.source_end, UPSTREAM)

    def _split(self, runs: RunArray, reached: int) -> tuple[RunArray, RunArray, int]:
        """First copies, and repeats of what was copied before; how far that was."""
        reaching = runs[:, DOWNSTREAM] + runs[:, COUNT] >= self._of.target_first
        if not reaching.all():
            runs = runs[reaching]
        ends = runs[:, UPSTREAM] + runs[:, COUNT]
        most = np.maximum.accumulate(np.append(reached, ends))
        before = most[:-1]
        if (before <= runs[:, UPSTREAM]).all():
            return runs, _NO_RUNS, int(most[-1])
        known = np.clip(before - runs[:, UPSTREAM], 0, runs[:, COUNT])
        floors = runs[:, COUNT] == 0
        repeats = runs[known > 0].copy()
        repeats[:, COUNT] = known[known > 0]
        first = runs.copy()
        first[:, UPSTREAM] += known
        first[:, DOWNSTREAM] += known
        first[:, COUNT] -= known
        kept = (first[:, COUNT] > 0) | (floors & (runs[:, UPSTREAM] >= before))
        return first[kept], repeats, int(most[-1])


class _Ascending:
    """The same runs in the order of the target; without fencing, the map's records may
    come late. It holds a run back only while a later piece has one that precedes it.
    """

    def __init__(self, pieces: Iterable[RunArray]) -> None:
        self._pieces = pieces
        self._lows = _after([_lowest(piece) for piece in pieces])

    def __iter__(self) -> Iterator[RunArray]:
        kept = _NO_RUNS
        for piece, later in zip(self._pieces, self._lows, strict=True):
            runs = np.concatenate([kept, piece])
            runs = runs[np.argsort(runs[:, DOWNSTREAM], kind="stable")]
            ready = int(np.searchsorted(runs[:, DOWNSTREAM], later))
            yield runs[:ready]
            kept = runs[ready:]


def _lowest(piece: RunArray) -> int:
    return int(piece[:, DOWNSTREAM].min(initial=_NEVER))


def _after(lows: list[int]) -> list[int]:
    """For each piece, the lowest target offset of all that come after it."""
    after = [_NEVER, *lows[:0:-1]][: len(lows)]
    found: list[int] = np.minimum.accumulate(after)[::-1].tolist()
    return found


def without(runs: RunArray, late: RunArray) -> RunArray:
    """The runs without the source offsets of late records, which stand elsewhere."""
    if not len(late):
        return runs
    late = late[np.argsort(late[:, UPSTREAM])]
    begins, ends = late[:, UPSTREAM], late[:, UPSTREAM] + late[:, COUNT]
    first = np.searchsorted(ends, runs[:, UPSTREAM], "right")
    after = np.searchsorted(begins, runs[:, UPSTREAM] + runs[:, COUNT])
    kept = [runs[first >= after]]
    for row in np.flatnonzero(first < after).tolist():
        up, down, count = runs[row].tolist()
        at = up
        holes = late[first[row] : after[row], [UPSTREAM, COUNT]].tolist()
        for begin, size in [*holes, (up + count, 0)]:
            if begin > at:
                kept.append(np.array([[at, down + at - up, begin - at]], np.int64))
            at = begin + size
    whole = np.concatenate(kept)
    return whole[np.argsort(whole[:, UPSTREAM], kind="stable")]
