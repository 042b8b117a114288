"""Medians of the runs, as tables for people and as JSON for comparing later.

Main functions: `summarise`, `tables` and `save`. Each median is shown with the smallest
and the largest run, and as a multiple of the yardstick's. The result classes declare
the quantities.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from datetime import UTC, datetime
import json
from statistics import median
from typing import TYPE_CHECKING, Any

from rich import box
from rich.table import Table

from tests.benchmarks.columns import Column
from tests.benchmarks.machine import command, describe
from tests.benchmarks.peers.known import PEERS, YARDSTICKS

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from tests.benchmarks.bench import Scenario
    from tests.benchmarks.runner import Run


@dataclass(frozen=True, slots=True, kw_only=True)
class Figure:
    """One quantity of one peer over all its runs."""

    column: Column | None
    """None: not for tables."""
    median: float
    min: float
    max: float
    ratio: float | None
    """To the yardstick's median; None when that was not measured, or is zero."""


Summary = dict[str, dict[str, dict[str, Figure]]]
"""Figures by scenario, peer and name of the quantity."""


def summarise(runs: Sequence[Run]) -> Summary:
    # Peers in a fixed order, the yardstick first, whatever the order of the runs.
    values: dict[str, dict[str, dict[str, list[float]]]] = {}
    for run in sorted(runs, key=lambda run: list(PEERS).index(run.peer)):
        if run.result is None or run.error:
            continue
        figures = values.setdefault(run.scenario, {}).setdefault(run.peer, {})
        for name, value in _numbers(run.result):
            figures.setdefault(name, []).append(value)
    columns = _columns(runs)
    return {
        scenario: {
            peer: {
                name: _figure(
                    measured,
                    column=columns[scenario].get(name),
                    yardstick=peers.get(yardstick_of(peers) or "", {}).get(name),
                )
                for name, measured in figures.items()
            }
            for peer, figures in peers.items()
        }
        for scenario, peers in values.items()
    }


def yardstick_of(peers: Sequence[str] | dict[str, Any]) -> str | None:
    """The peer that the others of the same measurement are compared with."""
    return next((name for name in YARDSTICKS if name in peers), None)


def _numbers(result: Any) -> list[tuple[str, float]]:
    """The most important ones, in order."""
    shown = [each[0] for each in type(result).COLUMNS]
    names = dict.fromkeys([*shown, *asdict(result)])
    values = ((name, getattr(result, name)) for name in names)
    return [(name, value) for name, value in values if isinstance(value, int | float)]


def _columns(runs: Sequence[Run]) -> dict[str, dict[str, Column]]:
    """By scenario and field, in the order in which they are read."""
    return {
        run.scenario: {each[0]: Column(*each) for each in type(run.result).COLUMNS}
        for run in runs
        if run.result is not None
    }


def _figure(
    values: list[float], *, column: Column | None, yardstick: list[float] | None
) -> Figure:
    middle = median(values)
    base = median(yardstick) if yardstick else 0
    return Figure(
        column=column,
        median=middle,
        min=min(values),
        max=max(values),
        ratio=middle / base if base else None,
    )


def tables(summary: Summary, scenarios: Sequence[Scenario]) -> list[Table]:
    return [
        _table(scenario, summary[scenario.name])
        for scenario in scenarios
        if scenario.name in summary
    ]


def _table(scenario: Scenario, peers: dict[str, dict[str, Figure]]) -> Table:
    table = Table(
        title=f"{scenario.name}: {scenario.title}",
        title_justify="left",
        box=box.SIMPLE_HEAD,
        show_lines=True,
    )
    table.add_column("peer", no_wrap=True)
    columns = _shown(peers)
    for column in columns:
        table.add_column(column.title, justify="right", no_wrap=True)
    base = yardstick_of(peers)
    for peer, figures in peers.items():
        cells = [
            _cell(figures[each.field], each, with_ratio=peer != base)
            if each.field in figures
            else ""
            for each in columns
        ]
        table.add_row(peer, *cells)
    return table


def _shown(peers: dict[str, dict[str, Figure]]) -> list[Column]:
    ordered = dict.fromkeys(
        figure.column for figures in peers.values() for figure in figures.values()
    )
    return [column for column in ordered if column is not None]


def _cell(figure: Figure, column: Column, *, with_ratio: bool) -> str:
    text = (
        f"{column.show(figure.median)}"
        f"\n[dim]{column.show(figure.min)} - {column.show(figure.max)}[/dim]"
    )
    if figure.ratio is None or column.better is None or not with_ratio:
        return text
    return f"{text}\n[bold]x {figure.ratio:.2f}[/bold]"


def save(
    folder: Path,
    *,
    runs: Sequence[Run],
    summary: Summary,
    scenarios: Sequence[Scenario],
    data: Path | None = None,
) -> Path:
    """Write everything into a new file of the folder.

    `data` is the brokers' data folder: the report names its kind of disk.
    """
    folder.mkdir(parents=True, exist_ok=True)
    now = datetime.now(UTC)
    used = {run.peer for run in runs}
    kinds = {run.scenario: _kind(run.result) for run in runs if run.result}
    columns = _columns(runs)
    document = {
        "date": now.isoformat(timespec="seconds"),
        "command": command(),
        "machine": describe(data or folder),
        "peers": {name: PEERS[name].about for name in PEERS if name in used},
        "scenarios": {each.name: _settings(each) for each in scenarios},
        "results": {
            scenario: {
                "kind": kinds[scenario],
                "columns": [each._asdict() for each in columns[scenario].values()],
                "yardstick": yardstick_of(peers),
                "peers": {
                    peer: {name: _plain(figure) for name, figure in figures.items()}
                    for peer, figures in peers.items()
                },
            }
            for scenario, peers in summary.items()
        },
        "runs": [asdict(run) for run in runs],
    }
    path = folder / f"{now:%Y%m%dT%H%M%SZ}.json"
    path.write_text(json.dumps(document, indent=2) + "\n", encoding="utf-8")
    return path


def _kind(result: Any) -> str:
    """`throughput` of a ThroughputResult: scenarios of a kind are drawn together."""
    return type(result).__name__.removesuffix("Result").lower()


def _plain(figure: Figure) -> dict[str, float | None]:
    return {
        "median": figure.median,
        "min": figure.min,
        "max": figure.max,
        "ratio": figure.ratio,
    }


def _settings(scenario: Scenario) -> dict[str, str | int | float]:
    return {
        name: value
        for name, value in asdict(scenario).items()
        if isinstance(value, str | int | float)
    }
