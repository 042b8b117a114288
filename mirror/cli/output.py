"""What commands print: tables for people, JSON for programs, one-line errors.

Main functions: `table`, `document` and `complain`. Only data goes to stdout; columns
are upper case with hyphens; a JSON document has a `format_version`. The exit codes of
all commands are here.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from enum import StrEnum
import json
import sys
from typing import TYPE_CHECKING, Annotated, Any

from rich.console import Console
from rich.table import Table
from rich.text import Text
import typer

from mirror.checks.finding import State
from mirror.status import wording
from mirror.status.states import FlowState, PartitionState

if TYPE_CHECKING:
    from collections.abc import Iterable

EXIT_OK = 0
EXIT_FAILED = 1
"""Something failed although the command and its files were right."""
EXIT_USAGE = 2
"""The command line or the configuration is wrong."""

NOTHING = wording.NOTHING
moment = wording.moment
milliseconds = wording.milliseconds
remaining = wording.remaining
duration = wording.duration
rate = wording.rate
_UNLIMITED = 10_000
_FORMAT_VERSION = 1
_STATE_STYLES: dict[str, str] = {
    PartitionState.RUNNING: "green",
    PartitionState.PAUSED: "yellow",
    PartitionState.FAULTED: "red",
    FlowState.FAILED: "red",
    State.OK: "green",
    State.WARN: "yellow",
    State.FAIL: "red",
}


class Form(StrEnum):
    """The output format."""

    TABLE = "table"
    JSON = "json"


Output = Annotated[
    Form, typer.Option("--output", "-o", help="A table, or JSON for programs.")
]


Row = Sequence[object] | Mapping[str, object]
"""The cells of a table, in its order, or a document with fields of its columns' names.
None is an empty cell."""


def grid(columns: Sequence[str], rows: Iterable[Row]) -> Table:
    """Rows under upper-case headings; numbers are right-aligned."""
    names = [column.lower().replace("-", "_") for column in columns]
    listed = [
        [row[name] for name in names] if isinstance(row, Mapping) else list(row)
        for row in rows
    ]
    made = Table(box=None, pad_edge=False, header_style="bold", padding=(0, 2, 0, 0))
    for number, column in enumerate(columns):
        numeric = bool(listed) and all(isinstance(row[number], int) for row in listed)
        made.add_column(
            column,
            justify="right" if numeric else "left",
            # A terminal wraps long reasons; nothing is ever cut off.
            no_wrap=number < len(columns) - 1,
            overflow="fold",
        )
    for row in listed:
        made.add_row(*(_cell(value) for value in row))
    return made


def table(columns: Sequence[str], rows: Iterable[Row]) -> None:
    """Print a grid."""
    made = grid(columns, rows)
    console = Console(file=sys.stdout, highlight=False)
    if not console.is_terminal:
        console.width = _UNLIMITED
    with console.capture() as captured:
        console.print(made)
    for line in captured.get().splitlines():
        sys.stdout.write(line.rstrip() + "\n")


def shown(text: str) -> str:
    """Foreign text, such as a group's name, made unable to break a line or control the
    terminal.
    """
    return "".join(
        each if each.isprintable() else each.encode("unicode_escape").decode()
        for each in text
    )


def _cell(value: object) -> Text:
    text = "" if value is None else shown(str(value))
    return Text(text or NOTHING, style=_STATE_STYLES.get(text, ""))


def blank_line() -> None:
    """Separate two tables."""
    sys.stdout.write("\n")


def json_line(values: Any) -> None:
    """Print one JSON document as a line, at once."""
    sys.stdout.write(json.dumps(values, ensure_ascii=False) + "\n")
    sys.stdout.flush()


def document(values: dict[str, Any]) -> None:
    """Print one JSON document of ours."""
    print_json({"format_version": _FORMAT_VERSION, **values})


def print_json(values: Any) -> None:
    """Print one JSON document, which says itself in what format it is."""
    sys.stdout.write(json.dumps(values, indent=2, ensure_ascii=False) + "\n")


def complain(*lines: str) -> None:
    """Print a message for people, on stderr."""
    for line in lines:
        sys.stderr.write("\n".join(map(shown, line.split("\n"))) + "\n")
    sys.stderr.flush()


def end(failures: Sequence[str] = (), *, well: bool = True) -> None:
    """Tell what went wrong, and end the command with exit code 1 unless all is well."""
    complain(*failures)
    if failures or not well:
        raise typer.Exit(EXIT_FAILED)
