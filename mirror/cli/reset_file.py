"""Offsets as `kafka-consumer-groups --reset-offsets --from-file` reads them.

`OffsetsOutput` is the option that chooses it; main function: `write`, which prints
`topic,partition,offset` for one group on one cluster. A partition that several flows
speak of gets the smallest of their answers, since the tool would take any of two: so
nothing is left out, and it is said that something may come again.
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
    """How a group's offsets are printed."""

    TABLE = "table"
    JSON = "json"
    CSV = "csv"


OffsetsOutput = Annotated[
    OffsetsForm,
    typer.Option(
        "--output",
        "-o",
        help="A table to read, JSON for programs, or what "
        "kafka-consumer-groups --reset-offsets --from-file reads.",
    ),
]


class Line(NamedTuple):
    """Where a group shall go on in one partition."""

    cluster: str
    """Its alias."""
    topic: str
    partition: int
    offset: int
    """-1 if nobody knows."""
    name: str
    """The partition on the other side, for whoever has to be told of it."""


def write(lines: Iterable[Line]) -> None:
    """Print them, and on stderr what is left out or several answer.

    Raises:
        BadParameter: they are of several clusters, whose topics may have one name.
    """
    lines = list(lines)
    clusters = sorted({line.cluster for line in lines})
    if len(clusters) > 1:
        raise typer.BadParameter(
            f"-o csv is for one cluster, these flows lead to {', '.join(clusters)}: "
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
            f"{topic}-{partition}: several flows answer, this is the smallest; what "
            "others brought behind it may be read again"
            for topic, partition in sorted(several)
        ),
    )
