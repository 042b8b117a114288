"""The clusters and the flows between them as a drawing: places, curves, labels.

Main type: `Picture`, made by `draw` from edges; pure. Clusters are in columns, sources
to the left; a flow in the reverse direction curves the other way. The page's template
writes it as SVG; `status.topology` draws the same in text.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

NODE_WIDTH = 112
NODE_HEIGHT = 44
_GAP = 148
_MARGIN = 10
_ROW = 84
_ROW_BOTH_WAYS = 124
_BOW = 26
_LONG_BOW = 140
"""The curve of a flow that passes a column: it leaves room for the labels below."""
LINE = 15
_LABEL_WIDTH = 110
_LONGEST = 14
MOST_EDGES = 60


@dataclass(frozen=True, slots=True, kw_only=True)
class Flowing:
    """One flow to draw."""

    source: str
    target: str
    state: str
    notes: tuple[str, ...]
    """Short lines: throughput, lag."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterBox:
    """A cluster, with the upper left corner of its box."""

    name: str
    label: str
    x: int
    y: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Arrow:
    """A flow."""

    flow: Flowing
    path: str
    x: int
    y: int
    """The middle of its label's first line."""

    @property
    def label_bottom(self) -> int:
        return self.y + len(self.flow.notes) * LINE + _MARGIN


@dataclass(frozen=True, slots=True, kw_only=True)
class Picture:
    """The whole drawing."""

    left: int = 0
    top: int = 0
    """The upper left corner; curves may rise above the first row."""
    width: int
    height: int
    nodes: tuple[ClusterBox, ...]
    arrows: tuple[Arrow, ...]
    left_out: int = 0
    """Number of flows without room in the drawing."""

    @property
    def words(self) -> str:
        """A description for screen readers."""
        return "; ".join(
            f"{a.flow.source} to {a.flow.target}: "
            + ", ".join((a.flow.state, *a.flow.notes))
            for a in self.arrows
        )


def draw(flows: Iterable[Flowing]) -> Picture:
    """Place all clusters, and draw curves for the first flows."""
    wanted = list(flows)
    drawn = wanted[:MOST_EDGES]
    columns = _columns([(each.source, each.target) for each in drawn])
    pairs = {(each.source, each.target) for each in drawn}
    both = any((target, source) in pairs for source, target in pairs)
    row = _ROW_BOTH_WAYS if both else _ROW
    most = max(map(len, columns), default=0)
    nodes = {
        name: ClusterBox(
            name=name,
            label=_short(name),
            x=number * (NODE_WIDTH + _GAP),
            y=(most - len(names)) * row // 2 + place * row,
        )
        for number, names in enumerate(columns)
        for place, name in enumerate(names)
    }
    arrows = tuple(
        _arrow(each, nodes, drawn, both=(each.target, each.source) in pairs)
        for each in drawn
    )
    half = _LABEL_WIDTH // 2
    left = min([0, *(a.x - half for a in arrows)]) - _MARGIN
    top = min([0, *(a.y - LINE for a in arrows)]) - _MARGIN
    right = max([n.x + NODE_WIDTH for n in nodes.values()] or [0])
    right = max([right, *(a.x + half for a in arrows)]) + _MARGIN
    bottom = max([n.y + NODE_HEIGHT for n in nodes.values()] or [0]) + _MARGIN
    bottom = max([bottom, *(a.label_bottom for a in arrows)])
    return Picture(
        left=left,
        top=top,
        width=right - left,
        height=bottom - top,
        nodes=tuple(nodes.values()),
        arrows=arrows,
        left_out=len(wanted) - len(drawn),
    )


def _arrow(
    flow: Flowing, nodes: dict[str, ClusterBox], flows: Sequence[Flowing], *, both: bool
) -> Arrow:
    source, target = nodes[flow.source], nodes[flow.target]
    ahead = target.x > source.x
    if target.x == source.x:
        # In the same column: a curve on the right.
        x = source.x + NODE_WIDTH
        ends = (x, source.y + NODE_HEIGHT // 2, x, target.y + NODE_HEIGHT // 2)
        bends = (x + _GAP // 2, ends[1], x + _GAP // 2, ends[3])
    else:
        shift = (8 if both else 0) * (-1 if ahead else 1)
        span = abs(target.x - source.x) // (NODE_WIDTH + _GAP)
        bow = (_BOW if both else 0) + (span - 1) * _LONG_BOW
        bow *= -1 if ahead else 1
        ends = (
            source.x + (NODE_WIDTH if ahead else 0),
            source.y + NODE_HEIGHT // 2 + shift,
            target.x + (0 if ahead else NODE_WIDTH),
            target.y + NODE_HEIGHT // 2 + shift,
        )
        reach = (ends[2] - ends[0]) // 3
        bends = (ends[0] + reach, ends[1] + bow, ends[2] - reach, ends[3] + bow)
    x, y = _on_curve(ends, bends, _label_place(flow, flows))
    more = len(flow.notes) * LINE
    if both or source.y == target.y:  # next to the line, opposite the reverse flow's
        y += LINE if both and not ahead else -more - 6
    else:
        y += 4 - more // 2
    return Arrow(
        flow=flow,
        path=f"M{ends[0]},{ends[1]} C{bends[0]},{bends[1]} {bends[2]},{bends[3]} "
        f"{ends[2]},{ends[3]}",
        x=x,
        y=y,
    )


def _label_place(flow: Flowing, flows: Sequence[Flowing]) -> float:
    """Nearer to the end where fewer flows meet."""
    leave = sum(each.source == flow.source for each in flows)
    arrive = sum(each.target == flow.target for each in flows)
    if leave == arrive:
        return 0.5
    return 0.36 if arrive > leave else 0.62


def _on_curve(
    ends: tuple[int, int, int, int], bends: tuple[int, int, int, int], at: float
) -> tuple[int, int]:
    weights = ((1 - at) ** 3, 3 * at * (1 - at) ** 2, 3 * at**2 * (1 - at), at**3)
    points = (ends[:2], bends[:2], bends[2:], ends[2:])
    x, y = (
        sum(weight * point[axis] for weight, point in zip(weights, points, strict=True))
        for axis in (0, 1)
    )
    return round(x), round(y)


def _columns(edges: Sequence[tuple[str, str]]) -> list[list[str]]:
    """Clusters by their distance from pure sources; cycles are cut where they would
    close.
    """
    names = list(dict.fromkeys(name for edge in edges for name in edge))
    ahead: dict[str, list[str]] = {name: [] for name in names}
    for source, target in dict.fromkeys(edges):
        ahead[source].append(target)
    read_only = [n for n in names if all(target != n for _, target in edges)]
    forward: list[tuple[str, str]] = []
    done: set[str] = set()
    for start in [*read_only, *names]:
        if start not in done:
            _walk(start, ahead, done, forward)
    depth = dict.fromkeys(names, 0)
    for _ in names:
        for source, target in forward:
            depth[target] = max(depth[target], depth[source] + 1)
    columns: list[list[str]] = [[] for _ in range(max(depth.values(), default=-1) + 1)]
    for name in names:
        columns[depth[name]].append(name)
    return columns


def _walk(
    start: str,
    ahead: dict[str, list[str]],
    done: set[str],
    forward: list[tuple[str, str]],
) -> None:
    """Depth first from one cluster: the flows that close no cycle."""
    path = [start]
    left = {start: iter(ahead[start])}
    done.add(start)
    while path:
        here = path[-1]
        target = next(left[here], None)
        if target is None:
            path.pop()
        elif target not in path:
            forward.append((here, target))
            if target not in done:
                done.add(target)
                path.append(target)
                left[target] = iter(ahead[target])


def _short(name: str) -> str:
    return name if len(name) <= _LONGEST else name[: _LONGEST - 1] + "…"
