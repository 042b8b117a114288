"""Canaries in the journals of both clusters: rehearsals that really switched.

Main functions: `keep`, and `read`, over journals' entries. Like a drill, a canary is an
entry of its own run that ends at once, under the key `canary/<pair>`, which is no pair.
What its switches did step by step is in runs of the pair `<pair>/mirror-canary`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any
import uuid

from mirror.recovery import journal, roles
from mirror.recovery.journal import Entry, Kind, StepState

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from mirror.clusters.cluster import Cluster

_KEY = "canary/"


@dataclass(frozen=True, slots=True, kw_only=True)
class KeptCanary:
    """What the journals say about one."""

    source: str
    target: str
    at: float
    """When it began, epoch seconds."""
    by: str
    passed: bool
    text: str
    block_seconds: float
    """The longer one of both switches."""
    rto_seconds: float
    rpo_seconds: float


def keep(  # noqa: PLR0913  what an entry has
    clusters: Iterable[Cluster],
    pair: str,
    source: str,
    target: str,
    *,
    epoch: int,
    at: float,
    by: str,
    details: Mapping[str, Any],
) -> None:
    """Add a canary that went from `source` to `target` and back.

    Raises:
        ClusterError: a cluster does not answer, or refuses.
    """
    entry = Entry(
        pair=f"{_KEY}{pair}",
        run=uuid.uuid4().hex,
        number=0,
        kind=Kind.SWITCH,
        epoch=epoch,
        source=source,
        target=target,
        step=roles.END,
        state=StepState.DONE if details["passed"] else StepState.FAILED,
        at=at,
        by=by,
        details=details,
    )
    for cluster in clusters:
        journal.copy(cluster, [entry])


def read(entries: Iterable[Entry], pair: str) -> tuple[KeptCanary, ...]:
    """The canaries of a pair, oldest first; `entries` of one journal or both."""
    found = {e.identity: e for e in entries if e.pair == f"{_KEY}{pair}"}
    return tuple(
        _kept(each) for each in sorted(found.values(), key=lambda each: each.at)
    )


def _kept(entry: Entry) -> KeptCanary:
    legs = [dict(each) for each in entry.details.get("switches", ())]

    def longest(name: str) -> float:
        return max((float(each.get(name, 0.0)) for each in legs), default=0.0)

    return KeptCanary(
        source=entry.source,
        target=entry.target,
        at=entry.at,
        by=entry.by,
        passed=bool(entry.details.get("passed")),
        text=str(entry.details.get("text", "")),
        block_seconds=longest("block_seconds"),
        rto_seconds=longest("rto_seconds"),
        rpo_seconds=longest("rpo_seconds"),
    )
