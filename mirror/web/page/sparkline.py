"""A series as a small curve: the points of an SVG polyline, and the same in words.

Main type: `Sparkline`. The curve has a gap where a value is not known. It knows nothing
about what the numbers mean.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import groupby
from typing import TYPE_CHECKING

from mirror.status.history import POINTS

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

WIDTH = 120
HEIGHT = 24
_EDGE = 2


@dataclass(frozen=True, slots=True, kw_only=True)
class Sparkline:
    """A curve in a box of `WIDTH` by `HEIGHT`."""

    lines: tuple[str, ...]
    """Segments without a gap, each as the points of a polyline."""
    words: str
    """A description for screen readers."""


def sparkline(
    values: Sequence[float], words: Callable[[float], str], *, least: float
) -> Sparkline:
    """`words` formats a value; a curve that stays below `least` is not scaled up."""
    known = [value for value in values if value >= 0]
    if not known:
        return Sparkline(lines=(), words="not known yet")
    top = max(*known, least)
    step = (WIDTH - 2 * _EDGE) / (POINTS - 1)
    start = WIDTH - _EDGE - step * (len(values) - 1)
    places = [
        None
        if value < 0
        else (
            round(start + step * number),
            round(HEIGHT - _EDGE - (HEIGHT - 2 * _EDGE) * value / top),
        )
        for number, value in enumerate(values)
    ]
    pieces = [
        list(piece)
        for there, piece in groupby(places, key=lambda place: place is not None)
        if there
    ]
    last = words(values[-1]) if values[-1] >= 0 else "not known"
    return Sparkline(
        lines=tuple(_points(piece) for piece in pieces),
        words=f"now {last}, at most {words(max(known))}, at least {words(min(known))}",
    )


def _points(piece: Sequence[tuple[int, int] | None]) -> str:
    places = [place for place in piece if place is not None]
    if len(places) == 1:  # a polyline of one point draws nothing
        x, y = places[0]
        places = [(x - 1, y), (x, y)]
    # Of points on one level, the ends suffice.
    kept = [
        place
        for number, place in enumerate(places)
        if number in (0, len(places) - 1)
        or not places[number - 1][1] == place[1] == places[number + 1][1]
    ]
    return " ".join(f"{x},{y}" for x, y in kept)
