"""The clusters and the flows between them as a picture, in text.

Main type: `Edge`, one flow. Functions draw edges for a terminal, for Mermaid and for
Graphviz; all show source, target, state and lag.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from mirror.status.states import FlowState

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

_GOOD = frozenset({FlowState.RUNNING})
_WIDEST = 40
_CALM = frozenset(
    {
        FlowState.STANDBY,
        FlowState.RESTING,
        FlowState.STOPPED,
        FlowState.STARTING,
    }
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Edge:
    """One flow between two clusters."""

    source: str
    target: str
    state: str
    note: str
    """Further labels: lag and throughput."""

    @property
    def label(self) -> str:
        return f"{self.state}, {self.note}" if self.note else self.state


def terminal(edges: Iterable[Edge]) -> list[str]:
    """Lines: each source cluster, below it the targets of its flows, and below each
    of these where its flows go.
    """
    by_source: dict[str, list[Edge]] = {}
    for edge in edges:
        by_source.setdefault(edge.source, []).append(edge)
    targets = {edge.target for flows in by_source.values() for edge in flows}
    done: set[str] = set()
    lines: list[str] = []
    for source in sorted(by_source, key=targets.__contains__):
        if source not in done:
            lines += [source, *_below(source, by_source, done)]
    return lines


def _below(
    source: str, by_source: Mapping[str, list[Edge]], done: set[str], indent: str = ""
) -> Iterator[str]:
    done.add(source)
    flows = by_source[source]
    width = max(len(edge.target) for edge in flows)
    for edge in flows:
        is_last = edge is flows[-1]
        corner = "└" if is_last else "├"
        yield f"{indent}{corner}──► {edge.target:{width}}  {edge.label}"
        # What is too far to the right begins again at the left.
        goes_on = edge.target in by_source and len(indent) < _WIDEST
        if goes_on and edge.target not in done:
            further = indent + (" " if is_last else "│") + "    "
            yield from _below(edge.target, by_source, done, further)


def mermaid(edges: Sequence[Edge]) -> list[str]:
    """A Mermaid flowchart, for Markdown."""
    names = _names(edges)
    lines = ["flowchart LR"]
    lines += [f'  {node}["{_plain(name)}"]' for name, node in names.items()]
    for edge in edges:
        ends = names[edge.source], names[edge.target]
        lines.append(f'  {ends[0]} -->|"{_plain(edge.label)}"| {ends[1]}')
    lines += [
        f"  linkStyle {number} stroke:{_colour(edge.state)}"
        for number, edge in enumerate(edges)
    ]
    return lines


def dot(edges: Sequence[Edge]) -> list[str]:
    """A Graphviz graph."""
    names = _names(edges)
    lines = ["digraph mirror {", "  rankdir=LR;", "  node [shape=box];"]
    lines += [f'  {node} [label="{_plain(name)}"];' for name, node in names.items()]
    lines += [
        f"  {names[edge.source]} -> {names[edge.target]} "
        f'[label="{_plain(edge.label)}", color="{_colour(edge.state)}"];'
        for edge in edges
    ]
    return [*lines, "}"]


def _names(edges: Iterable[Edge]) -> dict[str, str]:
    """Node names by alias: these languages do not allow every alias."""
    aliases = dict.fromkeys(
        name for edge in edges for name in (edge.source, edge.target)
    )
    return {name: f"c{number}" for number, name in enumerate(aliases)}


def _plain(text: str) -> str:
    return text.replace("\\", "/").replace('"', "'").replace("\n", " ")


def _colour(state: str) -> str:
    if state in _GOOD:
        return "green"
    return "gray" if state in _CALM else "red"
