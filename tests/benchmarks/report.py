"""Medians of the runs, as tables for people and as JSON for comparing later.

Main functions: `summarise`, `tables` and `save`. A median stands with the smallest
and the largest run, and beside the yardstick: how many times its speed, what part
of its CPU and its delay.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from datetime import UTC, datetime
import json
from statistics import median
from typing import TYPE_CHECKING

from rich import box
from rich.table import Table

from tests.benchmarks.machine import describe
from tests.benchmarks.peers.known import PEERS, YARDSTICK
from tests.benchmarks.scenarios import Latency, Scenario

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from tests.benchmarks.runner import Run


@dataclass(frozen=True, slots=True, kw_only=True)
class _Column:
    title: str
    figure: str
    scale: float = 1.0
    digits: int = 1


_THROUGHPUT = (
    _Column(title="k records/s", figure="records_per_second", scale=1e-3, digits=0),
    _Column(title="MB/s", figure="mb_per_second", digits=0),
    _Column(title="CPU s/M records", figure="cpu_seconds_per_million", digits=2),
    _Column(title="CPU s/GB", figure="cpu_seconds_per_gb", digits=2),
    _Column(title="start s", figure="start_seconds"),
    _Column(title="RSS MB", figure="resident_mb", digits=0),
)
_LATENCY = (
    _Column(title="p50 ms", figure="p50_ms"),
    _Column(title="p99 ms", figure="p99_ms"),
    _Column(title="max ms", figure="max_ms", digits=0),
    _Column(title="CPU cores", figure="cpu_cores", digits=2),
    _Column(title="RSS MB", figure="resident_mb", digits=0),
)
_WITHOUT_RATIO = {"start_seconds", "resident_mb", "max_ms", "mb_per_second"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Figure:
    """One quantity of one peer over all its runs."""

    median: float
    min: float
    max: float
    ratio: float | None
    """To the yardstick's median; None when that was not measured."""


Summary = dict[str, dict[str, dict[str, Figure]]]
"""Figures by scenario, peer and name of the quantity."""


def summarise(runs: Sequence[Run]) -> Summary:
    # Peers in a fixed order, the yardstick first, whatever the order of the runs.
    values: dict[str, dict[str, dict[str, list[float]]]] = {}
    for run in sorted(runs, key=lambda run: list(PEERS).index(run.peer)):
        if run.result is None or run.error:
            continue
        figures = values.setdefault(run.scenario, {}).setdefault(run.peer, {})
        for name, value in asdict(run.result).items():
            figures.setdefault(name, []).append(value)
    return {
        scenario: {
            peer: {
                name: _figure(measured, peers.get(YARDSTICK, {}).get(name))
                for name, measured in figures.items()
            }
            for peer, figures in peers.items()
        }
        for scenario, peers in values.items()
    }


def _figure(values: list[float], yardstick: list[float] | None) -> Figure:
    middle = median(values)
    base = median(yardstick) if yardstick else 0
    return Figure(
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
    columns = _LATENCY if isinstance(scenario, Latency) else _THROUGHPUT
    table = Table(
        title=f"{scenario.name}: {scenario.title}",
        title_justify="left",
        box=box.SIMPLE_HEAD,
        show_lines=True,
    )
    table.add_column("peer", no_wrap=True)
    for column in columns:
        table.add_column(column.title, justify="right", no_wrap=True)
    for peer, figures in peers.items():
        table.add_row(
            peer,
            *(_cell(figures[each.figure], each, peer=peer) for each in columns),
        )
    return table


def _cell(figure: Figure, column: _Column, *, peer: str) -> str:
    def show(value: float) -> str:
        return f"{value * column.scale:,.{column.digits}f}"

    text = f"{show(figure.median)}\n[dim]{show(figure.min)} - {show(figure.max)}[/dim]"
    if figure.ratio is None or peer == YARDSTICK or column.figure in _WITHOUT_RATIO:
        return text
    return f"{text}\n[bold]x {figure.ratio:.2f}[/bold]"


def save(
    folder: Path,
    *,
    runs: Sequence[Run],
    summary: Summary,
    scenarios: Sequence[Scenario],
) -> Path:
    """Write everything into a new file of the folder."""
    folder.mkdir(parents=True, exist_ok=True)
    now = datetime.now(UTC)
    used = {run.peer for run in runs}
    document = {
        "date": now.isoformat(timespec="seconds"),
        "machine": describe(),
        "peers": {name: PEERS[name].about for name in PEERS if name in used},
        "scenarios": {each.name: _settings(each) for each in scenarios},
        "summary": {
            scenario: {
                peer: {name: asdict(figure) for name, figure in figures.items()}
                for peer, figures in peers.items()
            }
            for scenario, peers in summary.items()
        },
        "runs": [asdict(run) for run in runs],
    }
    path = folder / f"{now:%Y%m%dT%H%M%SZ}.json"
    path.write_text(json.dumps(document, indent=2) + "\n", encoding="utf-8")
    return path


def _settings(scenario: Scenario) -> dict[str, str | int | float]:
    return {
        name: value
        for name, value in asdict(scenario).items()
        if isinstance(value, str | int | float)
    }
