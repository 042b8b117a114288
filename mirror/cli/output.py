"""What commands print: tables for people, JSON for programs, one-line errors.

Main functions: `table`, `document` and `complain`. Data go to stdout and nothing
else does; columns are upper case with hyphens; a JSON document carries its
`format_version`. The exit codes of all commands stand here.
"""

from __future__ import annotations

from datetime import UTC, datetime
from enum import StrEnum
import json
import sys
from typing import TYPE_CHECKING, Annotated, Any

from rich.console import Console
from rich.table import Table
from rich.text import Text
import typer

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

EXIT_OK = 0
EXIT_FAILED = 1
"""Something did not work, although the command and its files were right."""
EXIT_USAGE = 2
"""The command line or the configuration has to be changed."""

NOTHING = "-"
_UNLIMITED = 10_000
_STATE_STYLES = {
    "RUNNING": "green",
    "PAUSED": "yellow",
    "FAULTED": "red",
    "FAILED": "red",
}


class Form(StrEnum):
    """How data are printed."""

    TABLE = "table"
    JSON = "json"


Output = Annotated[
    Form,
    typer.Option("--output", "-o", help="A table to read, or JSON for programs."),
]


def grid(columns: Sequence[str], rows: Iterable[Sequence[object]]) -> Table:
    """Rows under upper-case headings; numbers stand to the right."""
    shown = [list(row) for row in rows]
    made = Table(box=None, pad_edge=False, header_style="bold", padding=(0, 2, 0, 0))
    for number, column in enumerate(columns):
        numeric = bool(shown) and all(isinstance(row[number], int) for row in shown)
        made.add_column(
            column,
            justify="right" if numeric else "left",
            # A long reason is folded on a terminal; nothing is ever cut off.
            no_wrap=number < len(columns) - 1,
            overflow="fold",
        )
    for row in shown:
        made.add_row(*(_cell(value) for value in row))
    return made


def table(columns: Sequence[str], rows: Iterable[Sequence[object]]) -> None:
    """Print a grid."""
    made = grid(columns, rows)
    console = Console(file=sys.stdout, highlight=False)
    if not console.is_terminal:
        console.width = _UNLIMITED
    with console.capture() as captured:
        console.print(made)
    for line in captured.get().splitlines():
        sys.stdout.write(line.rstrip() + "\n")


def _cell(value: object) -> Text:
    text = str(value)
    return Text(text or NOTHING, style=_STATE_STYLES.get(text, ""))


def blank_line() -> None:
    """Part two tables."""
    sys.stdout.write("\n")


def document(values: Any) -> None:
    """Print one JSON document."""
    sys.stdout.write(json.dumps(values, indent=2, ensure_ascii=False) + "\n")


def complain(*lines: str) -> None:
    """Tell what is wrong, on stderr."""
    for line in lines:
        sys.stderr.write(line + "\n")
    sys.stderr.flush()


def moment(epoch_seconds: float) -> str:
    """A point in time, to the second; nothing for zero."""
    if not epoch_seconds:
        return NOTHING
    return f"{datetime.fromtimestamp(epoch_seconds, UTC):%Y-%m-%dT%H:%M:%SZ}"


def milliseconds(value: float) -> str:
    """A duration; nothing for a negative one, which means not known."""
    return f"{value:.0f}ms" if value >= 0 else NOTHING


def remaining(seconds: float) -> str:
    """How long something will take; nothing for a negative time: not known."""
    for unit, size, most in (("s", 1, 90), ("min", 60, 90), ("h", 3600, 48)):
        if 0 <= seconds < most * size:
            return f"{max(round(seconds / size), 1)} {unit} left"
    return f"{seconds / 86400:.0f} d left" if seconds >= 0 else NOTHING


def duration(seconds: float) -> str:
    """A lag in time; nothing for a negative one, which means not known."""
    for unit, size, most in (("s", 1, 120), ("min", 60, 120), ("h", 3600, 48)):
        if 0 <= seconds < most * size:
            return f"{seconds / size:.0f} {unit}"
    return f"{seconds / 86400:.0f} d" if seconds >= 0 else NOTHING


def rate(bytes_per_second: float) -> str:
    """Bytes per second, in steps of a thousand."""
    for unit, size in (("GB", 1e9), ("MB", 1e6), ("kB", 1e3)):
        if bytes_per_second >= size:
            return f"{bytes_per_second / size:.1f} {unit}/s"
    return f"{bytes_per_second:.0f} B/s"
