"""What the demo shows: a live table on a terminal, plain lines elsewhere.

Main type: `Screen`, a context. `say` prints a step of the demo, `show` the newest
status of the service.
"""

from __future__ import annotations

import sys
import time
from typing import TYPE_CHECKING, Any, Self

from rich.console import Console, Group
from rich.live import Live
from rich.table import Table
from rich.text import Text

if TYPE_CHECKING:
    from collections.abc import Mapping
    from types import TracebackType

_COLUMNS = ("FLOW", "TOPIC", "PARTITION", "LAG", "RECORDS", "LATENCY")
_LINE_EVERY_SECONDS = 2.0


class Screen:
    """stdout, in the form that fits it."""

    def __init__(self) -> None:
        self._console = Console(file=sys.stdout, highlight=False, soft_wrap=True)
        self._started = time.monotonic()
        self._line_at = 0.0
        self._live: Live | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        _type: type[BaseException] | None,
        _error: BaseException | None,
        _traceback: TracebackType | None,
    ) -> None:
        self.freeze()

    def say(self, text: str) -> None:
        """Print a line with the seconds since the start; above a live table."""
        passed = time.monotonic() - self._started
        self._console.print(f"{passed:6.1f}s  {text}", markup=False)
        sys.stdout.flush()

    def count(self, figures: Mapping[str, object]) -> None:
        """Print figures below each other, by name."""
        for name, figure in figures.items():
            self.say(f"  {name:<22}{figure:>8}")

    def show(self, status: dict[str, Any]) -> None:
        """Show this status instead of the last one."""
        if self._console.is_terminal:
            self._draw(status)
        elif time.monotonic() - self._line_at >= _LINE_EVERY_SECONDS:
            self._line_at = time.monotonic()
            for flow in status["flows"]:
                self.say(_line(flow))

    def freeze(self) -> None:
        """Leave the live table as it is; lines go below it from now on."""
        if self._live is not None:
            self._live.stop()
            self._live = None

    def _draw(self, status: dict[str, Any]) -> None:
        if self._live is None:
            self._live = Live(console=self._console, refresh_per_second=5)
            self._live.start()
        parts: list[Table | Text] = [_table(status)]
        parts += [Text(_line(flow), style="dim") for flow in status["flows"]]
        self._live.update(Group(*parts))


def _table(status: dict[str, Any]) -> Table:
    table = Table(box=None, pad_edge=False, padding=(0, 3, 0, 0))
    for column in _COLUMNS:
        table.add_column(column, justify="left" if column in _COLUMNS[:2] else "right")
    for flow in status["flows"]:
        for partition in flow["partitions"]:
            table.add_row(
                flow["name"],
                partition["topic"],
                str(partition["partition"]),
                str(partition["lag"]),
                str(partition["records"]),
                _milliseconds(partition["latency_p50_ms"]),
            )
    return table


def _line(flow: dict[str, Any]) -> str:
    latencies = sorted(
        partition["latency_p50_ms"]
        for partition in flow["partitions"]
        if partition["latency_p50_ms"] >= 0
    )
    latency = _milliseconds(latencies[len(latencies) // 2] if latencies else -1)
    line = (
        f"{flow['name']} {flow['state']}, lag {flow['lag']}, records "
        f"{flow['records']}, latency {latency}"
    )
    return f"{line}: {flow['reason']}" if flow["reason"] else line


def _milliseconds(value: float) -> str:
    return f"{value:.0f} ms" if value >= 0 else "-"
