"""How far a partition was copied, seen from the last records of its copy.

Main function: `compare`, which is pure. Unless it runs exactly-once, MirrorMaker 2
writes its position after the records: only the copy shows what it has copied since. It
copies in order, and restarts at its position or before. So the records from the
position on that are in the copy are done, up to the first one that is missing. If that
is unclear the answer errs on the safe side: records are copied again rather than left
out.
"""

from __future__ import annotations

from dataclasses import dataclass, field
import itertools
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from mirror.adoption.window import Window

if TYPE_CHECKING:
    from mirror.offsets.runs import RunArray

Longs = npt.NDArray[np.int64]

_NO_RUNS = np.empty((0, 3), np.int64)


@dataclass(frozen=True, slots=True, kw_only=True)
class CopyTail:
    """What a copy's last records say."""

    offset: int
    """The next source offset to copy."""
    copied: int = 0
    """How many records from the position on are in the copy already."""
    anchored: bool = False
    """Whether any record was found on both sides."""
    certain: bool = False
    """Whether everything in the copy after the last record found is explained."""
    unexplained: int = 0
    """How many records of the copy are not: they may be copied again."""
    missing: int = 0
    """How many records before the position come after the last one found: they
    should be in the copy, and are not at its end."""
    complete: bool = True
    """Whether the source's window went far enough to see where the copy ends."""
    runs: RunArray = field(default_factory=lambda: _NO_RUNS)
    """The offsets of the last records on both sides, with floors where those of single
    records are not known."""


def compare(
    source: Window, target: Window, position: int, *, from_first: bool = False
) -> CopyTail:
    """`source`: records from before the position on; `target`: the last of the copy.

    `from_first`: the source never had a record before its window.
    """
    begin = int(np.searchsorted(source.offsets, position))
    if not len(target.marks):
        return CopyTail(offset=position, certain=True)
    if not from_first:
        target = _within(target, begin)
    where = _places(source, target)
    anchor = _last_copied(source, where, begin)
    if anchor < 0:
        return CopyTail(offset=position, unexplained=len(target.marks), missing=begin)
    at = int(np.flatnonzero(where == anchor)[-1])
    rest = target.marks[at + 1 :]
    following = source.marks[anchor + 1 : anchor + 1 + len(rest)]
    walked = 0
    if len(rest) == len(following) and bool((rest == following).all()):
        # Records like others, which alone would prove nothing, but in this order do.
        walked = len(rest)
    last = anchor + walked
    end = max(begin, last + 1)
    unknown = rest[walked:]
    # Begun again, it repeats what it had copied before.
    unexplained = int((~np.isin(unknown, source.marks[:end])).sum())
    return CopyTail(
        offset=position if end == begin else int(source.offsets[end - 1]) + 1,
        copied=end - begin,
        anchored=True,
        certain=unexplained == 0,
        unexplained=unexplained,
        missing=max(begin - last - 1, 0),
        complete=end < len(source.marks) or unexplained == 0,
        runs=_runs(source, target, where, at, walked),
    )


def _within(target: Window, count: int) -> Window:
    """The part of the copy without records from before the source's window, which might
    look like those in it.
    """
    first = max(len(target.marks) - count, 0)
    return Window(offsets=target.offsets[first:], marks=target.marks[first:])


def _places(source: Window, target: Window) -> Longs:
    """Which record of the source each one of the copy is; -1 where that is not known,
    or where the source has several that are the same.
    """
    known, first, count = np.unique(source.marks, return_index=True, return_counts=True)
    known, first = known[count == 1], first[count == 1]
    if not len(known):
        return np.full(len(target.marks), -1, np.int64)
    at = np.minimum(np.searchsorted(known, target.marks), len(known) - 1)
    return np.where(known[at] == target.marks, first[at], -1).astype(np.int64)


def _last_copied(source: Window, where: Longs, begin: int) -> int:
    """The last record of which it is proven that all before it are copied; -1: none."""
    there = np.zeros(len(source.marks), np.bool_)
    there[where[where >= 0]] = True
    _, places, count = np.unique(source.marks, return_inverse=True, return_counts=True)
    single = np.flatnonzero(count[places] == 1)
    ahead = single[single >= begin]
    missing = np.flatnonzero(~there[ahead])
    proven = ahead[: missing[0]] if len(missing) else ahead
    if len(proven):
        return int(proven[-1])
    before = np.flatnonzero(there[:begin])
    return int(before[-1]) if len(before) else -1


def _runs(
    source: Window, target: Window, where: Longs, at: int, walked: int
) -> RunArray:
    """What is known about the stretch with the last record copied: back to where
    MirrorMaker 2 restarted, if it did.
    """
    down = np.flatnonzero(where[: at + 1] >= 0)
    up = where[down]
    steps = np.flatnonzero(np.diff(up) <= 0)
    since = int(steps[-1]) + 1 if len(steps) else 0
    up, down = _filled(source, target, up[since:], down[since:])
    if walked:
        more = np.arange(1, walked + 1)
        up, down = np.append(up, up[-1] + more), np.append(down, down[-1] + more)
    upstream, downstream = source.offsets[up], target.offsets[down]
    cuts = np.flatnonzero((np.diff(upstream) != 1) | (np.diff(downstream) != 1)) + 1
    rows: list[tuple[int, int, int]] = []
    edges = [0, *cuts.tolist(), len(up)]
    for first, end in itertools.pairwise(edges):
        rows.append((int(upstream[first]), int(downstream[first]), end - first))
        if end < len(up) and up[end] - up[end - 1] > 1:
            # There are source records in between, whose copies are unknown.
            rows.append((int(upstream[end - 1]) + 1, int(downstream[end - 1]) + 1, 0))
    return np.array(rows, np.int64).reshape(-1, 3)


def _filled(
    source: Window, target: Window, up: Longs, down: Longs
) -> tuple[Longs, Longs]:
    """With the records between two known ones that are the same on both sides, one by
    one.
    """
    ups, downs = [up[:1]], [down[:1]]
    gaps = np.flatnonzero((np.diff(up) > 1) & (np.diff(up) == np.diff(down)))
    taken = 1
    for gap in gaps.tolist():
        between = np.arange(1, up[gap + 1] - up[gap])
        us, ds = up[gap] + between, down[gap] + between
        if (source.marks[us] == target.marks[ds]).all():
            ups += [up[taken : gap + 1], us]
            downs += [down[taken : gap + 1], ds]
            taken = gap + 1
    ups.append(up[taken:])
    downs.append(down[taken:])
    return np.concatenate(ups), np.concatenate(downs)
