"""Drills in the journal of the cluster that would take over.

Main functions: `keep`, and `read`, over a journal's entries. A drill is a run of its
own of one entry, under the key `drill/<pair>`: as that is no pair, readers of roles and
runs pass over it. Its `details` have the verdict and the most serious findings.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any
import uuid

from mirror.pairs import journal, roles
from mirror.pairs.journal import Entry, Kind, StepState

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from mirror.clusters.cluster import Cluster

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
    entry = Entry(
        pair=f"{_KEY}{pair}",
        run=uuid.uuid4().hex,
        number=0,
        kind=Kind.FAILOVER,
        epoch=epoch,
        source=source,
        target=cluster.alias,
        step=roles.END,
        state=StepState.DONE,
        at=at,
        by=by,
        details=details,
    )
    journal.copy(cluster, [entry])


def read(entries: Iterable[Entry], pair: str) -> tuple[KeptDrill, ...]:
    """The drills of a pair, oldest first; `entries` of one journal or both."""
    found = {e.identity: _kept(e) for e in entries if e.pair == f"{_KEY}{pair}"}
    return tuple(sorted(found.values(), key=lambda each: each.at))


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
