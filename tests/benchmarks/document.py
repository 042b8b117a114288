"""Reads the files of `report.save` and merges them.

Main types: `Document`, one or several files merged, and `Comparison`, one scenario of
it. A scenario in several files is taken from the latest, with all its peers: ratios
are only valid within one run.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
import json
from typing import TYPE_CHECKING, Any

from tests.benchmarks.columns import Column
from tests.benchmarks.quiet import LOUD_CORES

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path


class DocumentError(ValueError):
    """A file is not a report, or has an older format."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Value:
    median: float
    min: float
    max: float
    ratio: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Session:
    """One start of the benchmark."""

    date: str
    command: str
    machine: Mapping[str, str]


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparison:
    """What the peers did in one scenario."""

    scenario: str
    title: str
    kind: str
    columns: tuple[Column, ...]
    yardstick: str | None
    peers: Mapping[str, Mapping[str, Value]]
    """Values by peer and field."""
    runs: Mapping[str, int]
    """How many of a peer's runs count."""
    remarks: tuple[str, ...]
    """Doubts about the figures."""
    session: Session

    def contests(self) -> list[Column]:
        return [column for column in self.columns if column.better]


@dataclass(frozen=True, slots=True, kw_only=True)
class Document:
    comparisons: tuple[Comparison, ...]
    peers: Mapping[str, str]
    """What each peer is."""

    def kinds(self) -> dict[str, list[Comparison]]:
        kinds: dict[str, list[Comparison]] = {}
        for comparison in self.comparisons:
            kinds.setdefault(comparison.kind, []).append(comparison)
        return kinds

    def sessions(self) -> list[Session]:
        """Those still used by a comparison, the latest first."""
        found = {each.session.date: each.session for each in self.comparisons}
        return [found[date] for date in sorted(found, reverse=True)]


def read(paths: Sequence[Path]) -> Document:
    """Merge the files, in the order of their dates.

    Raises:
        DocumentError: one of them cannot be read.
    """
    comparisons: dict[str, Comparison] = {}
    peers: dict[str, str] = {}
    for raw in sorted(map(_load, paths), key=lambda raw: raw["date"]):
        peers |= raw["peers"]
        for name in raw["results"]:
            comparisons[name] = _comparison(raw, name)
    return Document(comparisons=tuple(comparisons.values()), peers=peers)


def _load(path: Path) -> dict[str, Any]:
    try:
        raw = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise DocumentError(f"{path}: {error}") from error
    if not isinstance(raw, dict) or "results" not in raw:
        raise DocumentError(f"{path} is not a report in the current format")
    return raw


def _comparison(raw: dict[str, Any], name: str) -> Comparison:
    result = raw["results"][name]
    runs = [run for run in raw["runs"] if run["scenario"] == name]
    return Comparison(
        scenario=name,
        title=raw["scenarios"][name]["title"],
        kind=result["kind"],
        columns=tuple(Column(**each) for each in result["columns"]),
        yardstick=result["yardstick"],
        peers={
            peer: {field: Value(**value) for field, value in values.items()}
            for peer, values in result["peers"].items()
        },
        runs=Counter(run["peer"] for run in runs if not run["error"]),
        remarks=tuple(_remarks(runs)),
        session=Session(
            date=raw["date"], command=raw["command"], machine=raw["machine"]
        ),
    )


def _remarks(runs: list[dict[str, Any]]) -> list[str]:
    remarks = []
    for run in runs:
        which = f"{run['peer']}, run {run['repeat']}"
        if run["error"]:
            remarks.append(f"{which} failed: {run['error'].splitlines()[0]}")
        elif run["other_cores"] > LOUD_CORES:
            remarks.append(
                f"{which}: other processes used {run['other_cores']:.1f} cores"
            )
    return remarks
