"""`mirror lag`: how far behind each partition is, once or as a live table.

It shows the service's answer at `/status`, the partitions furthest behind first.
"""

from __future__ import annotations

import contextlib
from functools import partial
import time
from typing import Annotated, Any

from rich.console import Console
from rich.live import Live
import typer

from mirror.cli.asking import CaFile, OfConfig, TokenFile, Url, ask
from mirror.cli.output import Form, Output, document, duration, grid, table

FORMAT_VERSION = 1
COLUMNS = (
    *("FLOW", "TOPIC", "PARTITION", "STATE", "LAG", "BEHIND", "SLA", "RECORDS"),
    "REASON",
)


def lag(
    *,
    watch: Annotated[
        bool, typer.Option("--watch", "-w", help="Refresh until Ctrl-C.")
    ] = False,
    seconds: Annotated[
        float, typer.Option(min=0.2, help="Seconds between refreshes, with --watch.")
    ] = 2.0,
    most: Annotated[
        int, typer.Option("--limit", "-n", min=0, help="Number of rows; 0 shows all.")
    ] = 20,
    url: Url = None,
    config: OfConfig = None,
    token_file: TokenFile = None,
    ca_file: CaFile = None,
    output: Output = Form.TABLE,
) -> None:
    """Show how far behind each partition is, the furthest behind first.

    LAG counts source offsets that are not copied yet; BEHIND is the age of the oldest
    of these records, SLA the limit from the flow's sla_seconds. LAG and BEHIND are as
    of the last lease; BEHIND grows while the next report is overdue.

    \b
    Examples:
      mirror lag
      mirror lag --watch -n 0
      mirror lag -o json | jq '.partitions[] | select(.lag_seconds > 60)'
    """
    if watch and output is Form.JSON:
        raise typer.BadParameter("--watch and -o json cannot be used together")
    look = partial(ask, url, config, token_file=token_file, ca_file=ca_file)
    if not watch:
        rows = _rows(look())
        if output is Form.JSON:
            document({"format_version": FORMAT_VERSION, "partitions": rows})
        else:
            table(COLUMNS, map(_cells, _first(rows, most)))
        return
    with (
        contextlib.suppress(KeyboardInterrupt),
        Live(console=Console(highlight=False), auto_refresh=False) as live,
    ):
        while True:
            rows = _first(_rows(look()), most)
            live.update(grid(COLUMNS, map(_cells, rows)), refresh=True)
            time.sleep(seconds)


def _first(rows: list[dict[str, Any]], most: int) -> list[dict[str, Any]]:
    return rows[:most] if most else rows


def _rows(answer: dict[str, Any]) -> list[dict[str, Any]]:
    found = [
        {
            "flow": flow["name"],
            "topic": partition["topic"],
            "partition": partition["partition"],
            "state": partition["state"],
            "lag": partition["lag"],
            "lag_seconds": partition.get("lag_seconds", -1.0),
            "sla_seconds": flow.get("sla_seconds", -1.0),
            "records": partition["records"],
            "reason": partition["reason"],
        }
        for flow in answer["flows"]
        for partition in flow["partitions"]
    ]
    return sorted(
        found,
        key=lambda row: (
            -row["lag_seconds"],
            -row["lag"],
            row["flow"],
            row["topic"],
            row["partition"],
        ),
    )


def _cells(row: dict[str, Any]) -> tuple[object, ...]:
    return (
        row["flow"],
        row["topic"],
        row["partition"],
        row["state"],
        row["lag"],
        duration(row["lag_seconds"]),
        duration(row["sla_seconds"]),
        row["records"],
        row["reason"],
    )
