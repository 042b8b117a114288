"""Drills in the journal of the cluster that would take over.

Main functions: `keep`, and `read`, over a journal's entries. A drill is an entry
(`rehearsal_entries`) under the key `drill/<pair>`. Its `details` have the verdict and
the most serious findings.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from mirror.recovery import rehearsal_entries
from mirror.recovery.journal import Kind

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from mirror.clusters.cluster import Cluster
    from mirror.recovery.journal import Entry

_KEY = "drill/"


@dataclass(frozen=True, slots=True, kw_only=True)
class KeptDrill:
    """What the journal says about one."""

    source: str
    target: str
    at: float
    """When it began, epoch seconds."""
    by: str
    verdict: str
    text: str
    ratio: float
    seconds: float
    findings: tuple[str, ...]
    """The most serious ones, in words."""


def keep(
    cluster: Cluster,
    pair: str,
    source: str,
    *,
    epoch: int,
    at: float,
    by: str,
    details: Mapping[str, Any],
) -> None:
    """Add a drill of a failover from `source` to this cluster.

    Raises:
        ClusterError: it does not answer, or refuses.
    """
    rehearsal_entries.keep(
        [cluster],
        f"{_KEY}{pair}",
        Kind.FAILOVER,
        source=source,
        target=cluster.alias,
        epoch=epoch,
        at=at,
        by=by,
        details=details,
    )


def read(entries: Iterable[Entry], pair: str) -> tuple[KeptDrill, ...]:
    """The drills of a pair, oldest first; `entries` of one journal or both."""
    return tuple(map(_kept, rehearsal_entries.read(entries, f"{_KEY}{pair}")))


def _kept(entry: Entry) -> KeptDrill:
    said = entry.details
    return KeptDrill(
        source=entry.source,
        target=entry.target,
        at=entry.at,
        by=entry.by,
        verdict=str(said.get("verdict", "")),
        text=str(said.get("text", "")),
        ratio=float(said.get("ratio", 0.0)),
        seconds=float(said.get("seconds", 0.0)),
        findings=tuple(
            f"{each['level']} {each['subject']}: {each['reason']}"
            for each in said.get("findings", ())
        ),
    )
