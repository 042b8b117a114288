"""Says which records of two logs belong together, by their marks and their order.

Main function: `matched`, which is pure. Both logs keep the order, so records whose
marks occur once hold the others in place (as in a patience diff). Of several copies of
one record the first counts. Where records are alike, and their numbers differ, nothing
says which belong together: they stay without a partner.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from mirror.offsets.runs import COUNT, DOWNSTREAM, UPSTREAM
from mirror.records import alignment, chains

if TYPE_CHECKING:
    from collections.abc import Iterable

    from mirror.proofs.log_stream import Damage
    from mirror.proofs.ranges import Range


Longs = npt.NDArray[np.int64]

_NO_PAIRS = np.empty((0, 2), np.int64)


def matched(source: Longs, target: Longs) -> Longs:
    """Pairs of indexes, ascending on both sides; marks are in order of their logs."""
    found = [_NO_PAIRS]
    blocks = [(0, len(source), 0, len(target))]
    while blocks:
        up, up_end, down, down_end = blocks.pop()
        pairs, inner = _in_block(source[up:up_end], target[down:down_end])
        found.append(pairs + np.array([up, down]))
        blocks += (inner + np.array([up, up, down, down])).tolist()
    every = np.concatenate(found)
    return every[np.argsort(every[:, 0], kind="stable")]


def anchors(source: Longs, target: Longs) -> Longs:
    """The pairs of records whose mark the source has once; as `matched`."""
    marks, first, counts = np.unique(source, return_index=True, return_counts=True)
    marks, first = marks[counts == 1], first[counts == 1]
    if not len(marks) or not len(target):
        return _NO_PAIRS
    index = np.minimum(np.searchsorted(marks, target), len(marks) - 1)
    downs = np.flatnonzero(marks[index] == target)
    ups = first[index[downs]]
    # Of the same record's copies the first ones come last, so that they replace others.
    order = np.lexsort((-downs, ups))
    ups, downs = ups[order], downs[order]
    room = np.empty((3, len(downs)), np.int64)
    size = np.zeros(1, np.int64)
    chains.chain(downs, room[0], room[1], room[2], size)
    chosen = room[2, : size[0]]
    return np.stack([ups[chosen], downs[chosen]], axis=1)


def _in_block(source: Longs, target: Longs) -> tuple[Longs, Longs]:
    """Pairs, and blocks (first and end on either side) to look into once more."""
    nothing = np.empty((0, 4), np.int64)
    if np.array_equal(source, target):
        return np.repeat(np.arange(len(source))[:, None], 2, axis=1), nothing
    # What only one side has belongs to nothing.
    ups = np.flatnonzero(np.isin(source, target))
    downs = np.flatnonzero(np.isin(target, source))
    mine, theirs = source[ups], target[downs]
    held = anchors(mine, theirs)
    if not len(held) and not np.array_equal(mine, theirs):
        return _NO_PAIRS, nothing
    pairs = np.empty((min(len(mine), len(theirs)), 2), np.int64)
    blocks = np.empty((len(held) + 1, 4), np.int64)
    result = np.zeros(chains.RESULTS, np.int64)
    chains.between(mine, theirs, np.ascontiguousarray(held), pairs, blocks, result)
    pairs = pairs[: result[chains.PAIRS]]
    blocks = blocks[: result[chains.BLOCKS]]
    return (
        np.stack([ups[pairs[:, 0]], downs[pairs[:, 1]]], axis=1),
        np.stack(
            [
                ups[blocks[:, 0]], ups[blocks[:, 1] - 1] + 1,
                downs[blocks[:, 2]], downs[blocks[:, 3] - 1] + 1,
            ],
            axis=1,
        ),
    )  # fmt: skip


# ---- where the other one of a lone record would be ----
#
# Main function: `place`, which is pure. Both logs keep the order: the other one
# stood between its neighbours' copies. The latest of these places counts, so that
# compaction is believed only if a later record of the key proves it.


Odd = npt.NDArray[np.int64]
"""Records of one side that have no equal on the other; columns: `alignment.WHAT` and
so on."""


def place(
    odd: Odd,
    work: Range,
    *,
    source_damages: Iterable[Damage] = (),
    target_damages: Iterable[Damage] = (),
) -> None:
    """Write into rows without the other offset where it would be.

    If something between the neighbours' copies cannot be read, it may be that. What
    precedes the first pair of a partition counts as expired if the other log has lost
    its beginning, since the proof that this one continues: nothing can show that it was
    never there.
    """
    of = work.of
    leading = work.source_first == of.source_first or (
        work.target_first == of.target_first
    )
    whole = of.target_lost > 0 and of.target_first == of.target_start
    expired_before = of.target_start if leading and whole else 0
    _place(odd, work, alignment.ONLY_SOURCE, expired_before, target_damages)
    whole = of.source_lost > 0 and of.source_first == of.source_start
    expired_before = of.source_start if leading and whole else 0
    _place(odd, work, alignment.ONLY_TARGET, expired_before, source_damages)


def _place(
    odd: Odd, work: Range, what: int, expired_before: int, damages: Iterable[Damage]
) -> None:
    here, there, begins, others, end = (
        (alignment.SOURCE, alignment.TARGET, UPSTREAM, DOWNSTREAM, work.target_end)
        if what == alignment.ONLY_SOURCE
        else (alignment.TARGET, alignment.SOURCE, DOWNSTREAM, UPSTREAM, work.source_end)
    )
    rows = np.flatnonzero(
        (odd[:, alignment.WHAT] == what) & (odd[:, there] == alignment.NOWHERE)
    )
    runs = work.runs
    runs = runs[runs[:, COUNT] > 0]
    following = np.searchsorted(runs[:, begins], odd[rows, here], "right")
    places = np.append(runs[:, others], end)[following] - 1
    if expired_before:
        places[following == 0] = expired_before - 1
    for each in damages:
        places[following == np.searchsorted(runs[:, others], each.first)] = each.first
    odd[rows, there] = places
