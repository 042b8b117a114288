"""Cuts what was copied of a partition into ranges that tasks compare one by one.

Main function: `ranges_of`, which is pure. From the runs of the offset map it takes
those that still hold, tells first copies from repeats, and cuts both logs at offsets
that belong together, so that each record of either side is in one range.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from mirror.offsets.runs import COUNT, DOWNSTREAM, UPSTREAM, between, falls, joined
from mirror.proofs.packed_runs import PackedRuns
from mirror.proofs.run_stream import RunStream

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from mirror.offsets.runs import RunArray
    from mirror.proofs.copied_partition import CopiedPartition

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
_NO_RUNS = np.empty((0, 3), np.int64)


@dataclass(frozen=True, slots=True, kw_only=True)
class Range:
    """Records of a partition and of its copy, compared in one go."""

    of: CopiedPartition
    source_first: int
    source_end: int
    target_first: int
    target_end: int
    packed: PackedRuns = field(repr=False)
    """The `runs`: there may be one per record."""
    repeats: RunArray = field(default_factory=lambda: _NO_RUNS, repr=False)
    """Copies of records that were copied before."""
    older: RunArray = field(default_factory=lambda: _NO_RUNS, repr=False)
    """Copies of a deleted topic that had the same name."""
    gone: RunArray = field(default_factory=lambda: _NO_RUNS, repr=False)
    """Records whose copies stood before the first offset that the copy's log has."""
    late: RunArray = field(default_factory=lambda: _NO_RUNS, repr=False)
    """Records that a repair appended (`offset_map.LateRuns`), for other ranges."""
    is_late: bool = False
    """Whether it is such a range: only records in `runs` count."""
    unknown: str = ""
    """Why it is not known which record stands where; empty if it is."""

    @property
    def runs(self) -> RunArray:
        """First copies: which offsets stand at which; columns as in `offsets.runs`.
        Each call unpacks them.
        """
        return self.packed.unpacked


def ranges_of(  # noqa: PLR0913  what the map says, and how to cut it
    partition: CopiedPartition,
    runs: RunArray | Iterable[RunArray],
    of_older: RunArray = _NO_RUNS,
    *,
    late: RunArray = _NO_RUNS,
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
                packed=PackedRuns.of(part),
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
