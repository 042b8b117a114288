"""Where the way back of a copy begins: at its first record that did not come that way.

Main function: `search`, which is pure. A flow back reads the log that the flow there
writes; what the flow there copied is not to be read again, however much it is. The map
explains most of the log (`explained`), and each transaction leaves one marker, so it is
enough to look into a few holes: where there are more offsets than markers, something
else stands. `holes` looks into them. Only if this does not account for everything does
the search look into one hole after the other.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Generator

    from mirror.offsets.explained import Holes

_BEFORE = 4
"""Holes to look into before one with too many offsets: as long as other markers are
still to come, a record takes their place in the count. Slots have three transactions
under way at once."""
_MOST_SUSPECTS = 2_000
_AT_ONCE = 64

Hole = tuple[int, int]
"""From an offset up to another."""


@dataclass(frozen=True, slots=True, kw_only=True)
class HoleLook:
    """What there is in a hole."""

    born: int = -1
    """The first record that readers of committed records see; -1 if there is none."""
    markers: int = 0
    """How many of its offsets may be markers of committed transactions."""


class Start(NamedTuple):
    """Where the flow back begins."""

    offset: int
    """Of the first record that was not copied by the flow there; else the cut."""
    sure: bool
    """Off: that record is there or later. Too many holes were left to look into."""


def search(
    holes: Holes, cut: int, *, outstanding: int | None, most: int | None = None
) -> Generator[list[Hole], list[HoleLook], Start]:
    """Yields holes to look into, wants to be sent what is in each, returns the answer.

    `outstanding`: of how many transactions whose records all stand below the cut the
    marker stands behind it, or more; None if that is not known: then each hole is
    looked into. `most`: the limit for holes that are not suspect.
    """
    sizes = holes.ends - holes.firsts
    expected = 0
    if outstanding is not None:
        expected = max(len(holes.markers) - outstanding, 0)
    if expected and expected == sizes.sum():
        return Start(cut, sure=True)
    left = np.ones(len(sizes), np.bool_)
    found = _Found()
    # Fewer offsets than markers: the map and the log do not belong together.
    if 0 < expected < sizes.sum():
        suspects = _suspects(holes)
        if len(suspects) <= _MOST_SUSPECTS:
            found.take((yield _asked(holes, suspects)))
            left[suspects] = False
            if sizes[left].sum() <= expected - found.markers:
                return found.start(cut)
    return (yield from _one_by_one(holes, cut, np.flatnonzero(left), found, most))


def _one_by_one(
    holes: Holes, cut: int, left: np.ndarray, found: _Found, most: int | None
) -> Generator[list[Hole], list[HoleLook], Start]:
    """Look into the holes that are left, up to the first record."""
    for at in range(0, len(left), _AT_ONCE):
        part = left[at : at + _AT_ONCE]
        if found.born >= 0:
            part = part[holes.firsts[part] < found.born]
        if not len(part):
            break
        if most is not None and at >= most:
            return Start(int(holes.firsts[part[0]]), sure=False)
        answers = yield _asked(holes, part)
        found.take(answers)
        if any(each.born >= 0 for each in answers):
            break
    return found.start(cut)


def _suspects(holes: Holes) -> np.ndarray:
    """Where the holes have more offsets than there were transactions: more than ever
    before, or than there will ever be fewer of again. The latter finds a record while
    some marker is always still to come.
    """
    markers = np.searchsorted(holes.markers, holes.firsts, "right")
    excess = np.cumsum(holes.ends - holes.firsts) - markers
    highest = np.maximum.accumulate(np.maximum(excess, 0))
    lowest = np.minimum.accumulate(excess[::-1])[::-1]
    rises = np.diff(highest, prepend=0) > 0
    rises |= np.diff(lowest, prepend=lowest[0]) > 0
    around = np.flatnonzero(rises)[:, None] - np.arange(_BEFORE + 1)
    return np.unique(around[around >= 0])


def _asked(holes: Holes, indexes: np.ndarray) -> list[Hole]:
    firsts, ends = holes.firsts[indexes].tolist(), holes.ends[indexes].tolist()
    return list(zip(firsts, ends, strict=True))


class _Found:
    """What was found so far."""

    def __init__(self) -> None:
        self.born = -1
        self.markers = 0

    def take(self, answers: list[HoleLook]) -> None:
        born = [each.born for each in answers if each.born >= 0]
        if self.born >= 0:
            born.append(self.born)
        self.born = min(born, default=-1)
        self.markers += sum(each.markers for each in answers)

    def start(self, cut: int) -> Start:
        return Start(cut if self.born < 0 else self.born, sure=True)
