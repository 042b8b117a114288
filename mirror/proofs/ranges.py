"""Cuts what was copied of a partition into ranges that tasks compare one by one.

Main function: `ranges_of`, which is pure. From the runs of the offset map it takes
those that still hold, tells first copies from repeats, and cuts both logs at offsets
that belong together, so that each record of either side is in one range. There may be
millions of runs, so they are never all in memory: `RunFiles` keeps those of many
partitions on disk, `RunStream` reads those of one in pieces, and in a `Range` they
travel to tasks as `PackedRuns`.
"""

from __future__ import annotations

import contextlib
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
import tempfile
from typing import TYPE_CHECKING, Any, Self
import zlib

import numpy as np
import numpy.typing as npt

from mirror.offsets.runs import COUNT, DOWNSTREAM, UPSTREAM, between, falls, joined

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from mirror.clusters.topics import TopicPartition
    from mirror.offsets.runs import RunArray
    from mirror.proofs.account import CopiedPartition


Longs = npt.NDArray[np.int64]
Mismatches = npt.NDArray[np.int64]
"""Rows about records that are no equal pairs; columns: `alignment.WHAT` and so on."""
LAST_OFFSET = (1 << 63) - 1
MOST_OFFSETS = 1_000_000
"""Source offsets in one range: some seconds of work for a task."""
MOST_OF_COPY = 500_000
"""Offsets of the copy in one range where records of other writers are looked at: a task
keeps some 100 bytes for each of them, a few times while it returns them."""
MM2_COPIED = (
    "MirrorMaker 2 copied it, so the offset map does not know which record stands "
    "where; use --by content"
)
_FAR = 20_000
"""Offsets between late records that are read apart."""
NO_RUNS = np.empty((0, 3), np.int64)
_RUNS_IN_PIECE = 50_000
_QUICK = 1
"""A level of zlib; a better one takes more time than small steps are worth."""
_RUNS_IN_MEMORY = 500_000
_RUNS_READ_AT_ONCE = 50_000
_RUN_BYTES = 24


# ---- runs as they wait in the driver and travel to tasks ----
#
# Where compaction left a hole after each record, a range has as many runs as records:
# 24 bytes each in an array, 3 as steps from one to the next, and less where steps
# repeat. They ascend on the source, so what is cut out of them unpacks only the pieces
# at its ends.


@dataclass(frozen=True, slots=True)
class _PackedPiece:
    """Some runs."""

    begins: int
    """The first source offset."""
    ends: int
    """After the last one."""
    count: int
    first: RunArray
    """The first run, as an array of one."""
    kind: np.dtype[Any]
    """Of the steps."""
    steps: bytes = field(repr=False)

    @classmethod
    def packing(cls, runs: RunArray) -> Self:
        steps = np.diff(runs.T, prepend=runs[:1].T)  # by column: zlib likes it
        most = max(int(steps.max()), -int(steps.min()))
        steps = steps.astype(np.min_scalar_type(-most - 1))
        return cls(
            begins=int(runs[0, UPSTREAM]),
            ends=int(runs[-1, UPSTREAM] + runs[-1, COUNT]),
            count=len(runs),
            first=runs[:1].copy(),
            kind=steps.dtype,
            steps=zlib.compress(steps.tobytes(), _QUICK),
        )

    def unpacked(self) -> RunArray:
        steps = np.frombuffer(zlib.decompress(self.steps), self.kind).reshape(3, -1)
        runs = np.empty((self.count, 3), np.int64)
        np.cumsum(steps.T, axis=0, out=runs)
        runs += self.first
        return runs


class PackedRuns:
    """Runs that ascend on the source, in order."""

    def __init__(
        self, runs: RunArray | None = None, *, pieces: Iterable[_PackedPiece] = ()
    ) -> None:
        self._pieces = list(pieces)
        if runs is not None:
            self.add(runs)
        self._open: tuple[_PackedPiece, RunArray] | None = None
        """The piece that was unpacked last: short ranges share one."""

    def __len__(self) -> int:
        return sum(piece.count for piece in self._pieces)

    def __reduce__(self) -> tuple[Any, ...]:
        return partial(PackedRuns, pieces=self._pieces), ()

    @property
    def unpacked(self) -> RunArray:
        """All of them."""
        return np.concatenate([NO_RUNS, *(each.unpacked() for each in self._pieces)])

    def add(self, runs: RunArray) -> None:
        """Append runs that follow."""
        for first in range(0, len(runs), _RUNS_IN_PIECE):
            self._pieces.append(
                _PackedPiece.packing(runs[first : first + _RUNS_IN_PIECE])
            )

    def drop(self, offset: int) -> None:
        """Forget pieces before a source offset, but not the last run before it."""
        while len(self._pieces) > 1 and self._pieces[1].begins <= offset:
            del self._pieces[0]

    def around(self, offset: int) -> RunArray:
        """Some of them, with the last one that begins at a source offset or before it,
        if there is one.
        """
        last = None
        for piece in self._pieces:
            if piece.begins > offset:
                break
            last = piece
        return NO_RUNS if last is None else self._unpack(last)

    def between(self, first: int, end: int) -> PackedRuns:
        """Those, and parts of those, from `first` up to `end` on the source."""
        found = PackedRuns()
        for piece in self._pieces:
            if first < piece.begins and piece.ends < end:
                found._pieces.append(piece)
            elif piece.begins < end and piece.ends > first:
                found.add(between(self._unpack(piece), first, end, UPSTREAM))
        return found

    def _unpack(self, piece: _PackedPiece) -> RunArray:
        if self._open is None or self._open[0] is not piece:
            self._open = piece, piece.unpacked()
        return self._open[1]


# ---- ranges ----


@dataclass(frozen=True, slots=True, kw_only=True)
class Range:
    """Records of a partition and of its copy, compared in one go."""

    of: CopiedPartition
    source_first: int
    source_end: int
    target_first: int
    target_end: int
    packed: PackedRuns = field(default_factory=PackedRuns, repr=False)
    """The `runs`: there may be one per record."""
    repeats: RunArray = field(default_factory=lambda: NO_RUNS, repr=False)
    """Copies of records that were copied before."""
    older: RunArray = field(default_factory=lambda: NO_RUNS, repr=False)
    """Copies of a deleted topic that had the same name."""
    gone: RunArray = field(default_factory=lambda: NO_RUNS, repr=False)
    """Records whose copies stood before the first offset that the copy's log has."""
    late: RunArray = field(default_factory=lambda: NO_RUNS, repr=False)
    """Records that a repair appended (`offset_map.LateRuns`), for other ranges."""
    is_late: bool = False
    """Whether it is such a range: only records in `runs` count."""
    unknown: str = ""
    """Why it is not known which record stands where, or not tried; empty if it is."""

    @property
    def runs(self) -> RunArray:
        """First copies: which offsets stand at which; columns as in `offsets.runs`.
        Each call unpacks them.
        """
        return self.packed.unpacked


def whole_range(of: CopiedPartition, runs: RunArray = NO_RUNS) -> Range:
    """All of a partition; `runs`: what its map says."""
    return Range(
        of=of, source_first=of.source_first, source_end=of.source_end,
        target_first=of.target_first, target_end=of.target_end,
        packed=PackedRuns(runs),
    )  # fmt: skip


def ranges_of(  # noqa: PLR0913  what the map says, and how to cut it
    partition: CopiedPartition,
    runs: RunArray | Iterable[RunArray],
    of_older: RunArray = NO_RUNS,
    *,
    late: RunArray = NO_RUNS,
    fenced: bool = True,
    whole: bool = True,
    most: int = MOST_OFFSETS,
    unknown_as: str = MM2_COPIED,
    picked: Callable[[], bool] = lambda: True,
) -> Iterator[Range]:
    """`runs`: of this topic and this copy, in the order of the map, or pieces of them
    that can be passed over again; `of_older`: copies
    of deleted topics; `late`: what repairs appended. Without fencing (at least once),
    the map's records may come late. Ranges of late records come first. `whole`: the
    map still has its oldest part.
    `unknown_as`: why nothing is known of what follows a floor. `picked` is asked for
    each range but the last whether to make it.
    """
    late = _last_copies(late)
    yield from _late_ranges(partition, late, most)
    pieces = [runs] if isinstance(runs, np.ndarray) else runs
    stream = RunStream(pieces, partition, late, fenced=fenced, whole=whole)
    source, target = partition.source_first, stream.target_first
    for end, unknown in _cuts(partition, stream.floors, most):
        last = end >= partition.source_end
        stream.read(end, target)
        # Where the copy has lost its end, the map names places behind it.
        until = stream.target_end
        if not last:
            until = min(until, translated(stream.first.around(end), end))
        until = max(until, target)
        stream.read(end, until)
        if last or picked():
            yield Range(
                of=partition,
                source_first=source,
                source_end=end,
                target_first=target,
                target_end=until,
                packed=stream.first.between(source, end),
                repeats=between(stream.repeats, target, until, DOWNSTREAM),
                older=between(of_older, target, until, DOWNSTREAM),
                gone=between(stream.gone, source, end, UPSTREAM),
                late=late,
                unknown=unknown_as if unknown else "",
            )
        source, target = end, until
        stream.drop(source, target)


def _late_ranges(
    partition: CopiedPartition, late: RunArray, most: int
) -> Iterator[Range]:
    """What no earlier proof has seen, in pieces that ascend on both sides."""
    ends = late[:, UPSTREAM] + late[:, COUNT]
    late = late[
        (ends > partition.source_first)
        | (late[:, DOWNSTREAM] >= partition.target_first)
    ]
    begins = falls(late) | (np.diff(late[:, UPSTREAM] // most) != 0)
    for side in (UPSTREAM, DOWNSTREAM):
        begins |= np.diff(late[:, side]) - late[:-1, COUNT] > _FAR
    for part in np.split(late, np.flatnonzero(begins) + 1):
        if len(part):
            (first, target, _), (last, end, count) = part[0].tolist(), part[-1].tolist()
            yield Range(
                of=partition,
                source_first=first,
                source_end=last + count,
                target_first=target,
                target_end=end + count,
                packed=PackedRuns(part),
                is_late=True,
            )


def _last_copies(late: RunArray) -> RunArray:
    """Of records that were appended more than once, the last copies."""
    counts = late[:, COUNT]
    within = np.arange(counts.sum()) - np.repeat(np.cumsum(counts) - counts, counts)
    pairs = np.repeat(late, counts, axis=0)
    pairs[:, UPSTREAM] += within
    pairs[:, DOWNSTREAM] += within
    pairs[:, COUNT] = 1
    _, lasts = np.unique(pairs[::-1, UPSTREAM], return_index=True)
    return joined(pairs[np.sort(len(pairs) - 1 - lasts)])


def narrowed(work: Range, most: int = MOST_OF_COPY) -> Iterator[Range]:
    """The same range in parts with at most `most` offsets of the copy."""
    runs = work.runs
    runs = runs[runs[:, COUNT] > 0]
    source, target = work.source_first, work.target_first
    while work.target_end - target > most and not work.unknown:
        until = target + most
        end = source
        index = int(np.searchsorted(runs[:, DOWNSTREAM], until, "right")) - 1
        if index >= 0:
            up, down, count = runs[index].tolist()
            end = max(source, up + min(until - down, count))
        yield replace(
            work, source_first=source, source_end=end, target_first=target,
            target_end=until, packed=work.packed.between(source, end),
        )  # fmt: skip
        source, target = end, until
    yield replace(
        work, source_first=source, target_first=target,
        packed=work.packed.between(source, work.source_end),
    )  # fmt: skip


def _cuts(
    partition: CopiedPartition, unknown: list[tuple[int, int]], most: int
) -> Iterator[tuple[int, bool]]:
    """Where ranges end on the source, and whether the map does not know what is in
    them: from a floor to the next run.
    """
    at, end = partition.source_first, partition.source_end
    if at >= end:  # the copy alone may have more than it should
        yield at, False
        return
    for first, until in [*unknown, (end, end)]:
        while at < first:
            at = min(at + most, first)
            yield at, False
        if until > at:
            at = until
            yield at, True


def translated(runs: RunArray, offset: int) -> int:
    """Where the target is cut: everything that precedes it is a copy of what precedes
    `offset`, or of nothing.
    """
    index = int(np.searchsorted(runs[:, UPSTREAM], offset, "right")) - 1
    if index < 0:
        return -1
    up, down, count = runs[index].tolist()
    return int(down + min(offset - up, count))


def covered(offsets: RunArray, runs: RunArray, column: int) -> npt.NDArray[np.bool_]:
    """Which offsets of one side are in any of the runs."""
    if not len(runs):
        return np.zeros(len(offsets), np.bool_)
    runs = runs[np.argsort(runs[:, column], kind="stable")]
    ends = np.maximum.accumulate(runs[:, column] + runs[:, COUNT])
    index = np.searchsorted(runs[:, column], offsets, "right") - 1
    found: npt.NDArray[np.bool_] = (index >= 0) & (offsets < ends[index])
    return found


# ---- the runs of one partition, read in bounded pieces ----
#
# `RunStream` passes over the runs to learn what only all of them say, then once more
# beside the ranges: in memory are those of one range, packed. Runs ascend on the
# target once those that no longer hold are gone; first copies ascend on both sides.


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
        self.repeats = self.gone = NO_RUNS
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
                self._up = self._down = LAST_OFFSET
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
        self.repeats = between(self.repeats, target, LAST_OFFSET, DOWNSTREAM)
        self.gone = between(self.gone, source, LAST_OFFSET, UPSTREAM)

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
        carry = NO_RUNS
        for valid in self._valid():
            first, repeats, reached = self._split(valid, reached)
            first = joined(np.concatenate([carry, first]))
            first, carry = first[:-1], first[-1:]
            yield valid, self._until(first, end), repeats, self._below(valid)
        yield NO_RUNS, self._until(carry, end), NO_RUNS, NO_RUNS

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
        if valid[:, DOWNSTREAM].min(initial=LAST_OFFSET) >= of.target_start:
            return NO_RUNS
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
            return runs, NO_RUNS, int(most[-1])
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
        kept = NO_RUNS
        for piece, later in zip(self._pieces, self._lows, strict=True):
            runs = np.concatenate([kept, piece])
            runs = runs[np.argsort(runs[:, DOWNSTREAM], kind="stable")]
            ready = int(np.searchsorted(runs[:, DOWNSTREAM], later))
            yield runs[:ready]
            kept = runs[ready:]


def _lowest(piece: RunArray) -> int:
    return int(piece[:, DOWNSTREAM].min(initial=LAST_OFFSET))


def _after(lows: list[int]) -> list[int]:
    """For each piece, the lowest target offset of all that come after it."""
    after = [LAST_OFFSET, *lows[:0:-1]][: len(lows)]
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


# ---- the runs of many partitions, in files ----
#
# The driver reads the map once, in its order, and then passes over the runs of one
# partition at a time, in pieces.


class RunFiles(contextlib.ExitStack):
    """Runs of many partitions, in the order in which they were added.

    A context manager: the files are gone after it.
    """

    def __init__(self) -> None:
        super().__init__()
        folder = tempfile.TemporaryDirectory(prefix="mirror-runs-")
        self._folder = Path(self.enter_context(folder))
        self._parts: dict[TopicPartition, bytearray] = {}
        self._kept = 0
        self._names: dict[TopicPartition, Path] = {}

    def add(self, key: TopicPartition, found: RunArray) -> None:
        # As bytes: many transactions name one run, for which an array takes 200.
        part = joined(found)
        self._parts.setdefault(key, bytearray()).extend(part.tobytes())
        self._kept += len(part)
        if self._kept > _RUNS_IN_MEMORY:
            for each in list(self._parts):
                self._write(each)

    def runs_of(self, key: TopicPartition) -> Pieces:
        """All runs of one partition, up to now."""
        if key in self._parts:
            self._write(key)
        return Pieces(self._names.get(key))

    def _write(self, key: TopicPartition) -> None:
        name = self._names.setdefault(key, self._folder / str(len(self._names)))
        part = self._parts.pop(key)
        self._kept -= len(part) // _RUN_BYTES
        with name.open("ab") as file:
            file.write(part)


class Pieces:
    """The runs of a file, in arrays of some megabytes; it can be passed over again."""

    def __init__(self, name: Path | None) -> None:
        self._name = name

    def __iter__(self) -> Iterator[RunArray]:
        if self._name is None:
            return
        last = NO_RUNS
        with self._name.open("rb") as file:
            while len(read := np.fromfile(file, np.int64, 3 * _RUNS_READ_AT_ONCE)):
                found = joined(np.concatenate([last, read.reshape(-1, 3)]))
                yield found[:-1]
                last = found[-1:].copy()
        yield last
