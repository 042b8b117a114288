"""Offsets as `kafka-consumer-groups --reset-offsets --from-file` reads them.

`OffsetsOutput` is the option that selects it; main function: `write`, which prints
`topic,partition,offset` for one group on one cluster. If several flows have an offset
for a partition, it prints the smallest, since the tool would pick any of them: nothing
is skipped, and a message says that records may be read again.
"""

from __future__ import annotations

import csv
from enum import StrEnum
import sys
from typing import TYPE_CHECKING, Annotated, NamedTuple

import typer

from mirror.cli.output import complain

if TYPE_CHECKING:
    from collections.abc import Iterable


class OffsetsForm(StrEnum):
    """The output format for a group's offsets."""

    TABLE = "table"
    JSON = "json"
    CSV = "csv"


OffsetsOutput = Annotated[
    OffsetsForm,
    typer.Option(
        "--output",
        "-o",
        help="A table, JSON for programs, or the CSV that "
        "kafka-consumer-groups --reset-offsets --from-file reads.",
    ),
]


class ResetLine(NamedTuple):
    """Where a group continues in one partition."""

    cluster: str
    """Its alias."""
    topic: str
    partition: int
    offset: int
    """-1 if not known."""
    name: str
    """The partition on the other side, for messages."""


def write(lines: Iterable[ResetLine]) -> None:
    """Print them, and on stderr those without an answer or with several.

    Raises:
        BadParameter: they are of several clusters, whose topics may have one name.
    """
    lines = list(lines)
    clusters = sorted({line.cluster for line in lines})
    if len(clusters) > 1:
        raise typer.BadParameter(
            f"-o csv is for one cluster; these flows lead to {', '.join(clusters)}: "
            "choose with --flow"
        )
    found: dict[tuple[str, int], int] = {}
    several = set()
    unknown = []
    for line in lines:
        key = (line.topic, line.partition)
        if line.offset < 0:
            unknown.append(line)
            continue
        if key in found and found[key] != line.offset:
            several.add(key)
        found[key] = min(line.offset, found.get(key, line.offset))
    writer = csv.writer(sys.stdout, lineterminator="\n")
    writer.writerows((*key, offset) for key, offset in found.items())
    complain(
        *(f"left out: {line.name} has no answer yet" for line in unknown),
        *(
            f"{topic}-{partition}: several flows have an offset, this is the smallest; "
            "records that other flows copied after it may be read again"
            for topic, partition in sorted(several)
        ),
    )
