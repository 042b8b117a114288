"""The page around the charts: tables, and what was measured how and on what.

Main function: `write`, the text of `docs/benchmarks/README.md`. Nobody edits that
page: it is made from the same files as the pictures.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from tests.benchmarks.columns import Column
    from tests.benchmarks.document import Comparison, Document, Session, Value

_OURS = "mirror"
_INTRODUCTION = """\
# Measured

Made by `make bench-chart` from what `make bench` measured; not edited by hand.
[How to measure it yourself](../howto/benchmark.md) says what each figure means. Source,
target, load and peers share one machine, so ratios say more than the figures.
"""
_COSTS = """\
The CPU of all processes of a peer for 10^9 bytes of payload: a rate of 1 GB/s takes as
many cores. The start is the time from the start of the process to the first record on
the target: so long nothing is copied when a single instance is restarted.
"""


def write(document: Document) -> str:
    parts = [_INTRODUCTION, *_beside(document)]
    parts += _costs(document)
    for kind, comparisons in document.kinds().items():
        parts += [f"## {kind.capitalize()}\n", f"![{kind}]({kind}.svg)\n"]
        parts += [part for each in comparisons for part in _scenario(each)]
    parts += ["## Peers\n", table(("Peer", "What it is"), document.peers.items())]
    parts += ["## Measured with\n", *_sessions(document)]
    return "\n".join(parts)


def _beside(document: Document) -> Iterator[str]:
    """How many times each peer's figure ours is."""
    rows = [
        row
        for comparison in document.comparisons
        for column in comparison.contests()
        for row in _ratios(comparison, column)
    ]
    if not rows:
        return
    strangers = [peer for peer in document.peers if not is_ours(peer)]
    yield f"## {_OURS} beside each peer\n"
    yield "How many times the peer's figure; medians of one run of the benchmark.\n"
    yield table(
        ("Scenario", "Figure", "Better", "Of", *(f"to {peer}" for peer in strangers)),
        ((*head, *(cells.get(peer, "") for peer in strangers)) for head, cells in rows),
    )


def _costs(document: Document) -> Iterator[str]:
    """CPU by bytes, and the time of a start: where other pages lead to."""
    rows = []
    for comparison in document.comparisons:
        columns = [
            column
            for column in comparison.columns
            if column.field in {"cpu_seconds_per_gb", "start_seconds"}
        ]
        if len(columns) < 2:
            continue
        for ours in filter(is_ours, comparison.peers):
            shown = [
                _cell(comparison.peers[peer].get(column.field), column, base=True)
                for peer in (ours, "mm2")
                if peer in comparison.peers
                for column in columns
            ]
            rows.append((comparison.title, ours, *shown, *[""] * (4 - len(shown))))
    if rows:
        yield "## What a gigabyte and a start cost\n"
        yield _COSTS
        titles = ("CPU s/GB", "start s", "mm2's CPU s/GB", "mm2's start s")
        yield table(("Scenario", "Of", *titles), rows)


def _ratios(
    comparison: Comparison, column: Column
) -> Iterator[tuple[tuple[str, ...], dict[str, str]]]:
    figures = {
        peer: values[column.field].median
        for peer, values in comparison.peers.items()
        if column.field in values
    }
    for ours in filter(is_ours, figures):
        cells = {
            peer: f"{figures[ours] / figure:.2f}"
            for peer, figure in figures.items()
            if figure and not is_ours(peer)
        }
        if cells:
            head = (comparison.title, column.title, column.better or "", ours)
            yield head, cells


def is_ours(peer: str) -> bool:
    """`mirror` and its variants."""
    return peer.partition("-")[0] == _OURS


def _scenario(comparison: Comparison) -> Iterator[str]:
    yield f"### {comparison.scenario}: {comparison.title}\n"
    yield table(
        ("Peer", "Runs", *(column.title for column in comparison.columns)),
        (_row(comparison, peer) for peer in comparison.peers),
    )
    if comparison.remarks:
        yield "".join(f"- {remark}\n" for remark in comparison.remarks)


def _row(comparison: Comparison, peer: str) -> list[str]:
    values = comparison.peers[peer]
    return [
        peer,
        str(comparison.runs.get(peer, 0)),
        *(
            _cell(values.get(column.field), column, base=peer == comparison.yardstick)
            for column in comparison.columns
        ),
    ]


def _cell(value: Value | None, column: Column, *, base: bool) -> str:
    if value is None:
        return ""
    text = column.show(value.median)
    if value.min != value.max:
        text += f" ({column.show(value.min)} - {column.show(value.max)})"
    if value.ratio is not None and column.better and not base:
        text += f" **x {value.ratio:.2f}**"
    return text


def _sessions(document: Document) -> Iterator[str]:
    for session in document.sessions():
        names = [
            each.scenario
            for each in document.comparisons
            if each.session.date == session.date
        ]
        yield _session(session, names)


def _session(session: Session, scenarios: Sequence[str]) -> str:
    facts = table(
        ("", ""),
        [
            ("date", session.date),
            ("scenarios", ", ".join(scenarios)),
            *session.machine.items(),
        ],
    )
    return f"```sh\n{session.command}\n```\n\n{facts}"


def table(titles: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Markdown's; bars within cells stay bars."""
    lines = [titles, ["---"] * len(titles), *rows]
    return "".join(
        f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in line)} |\n"
        for line in lines
    )
