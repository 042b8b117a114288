"""Canaries in the journals of both clusters: rehearsals that really switched.

Main functions: `keep`, and `read`, over journals' entries. A canary is an entry
(`rehearsal_entries`) under the key `canary/<pair>`. What its switches did step by step
is in runs of the pair `<pair>/mirror-canary`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from mirror.recovery import rehearsal_entries
from mirror.recovery.journal import Kind, StepState

if TYPE_CHECKING:
    from collections.abc import Iterable

    from mirror.clusters.cluster import Cluster
    from mirror.recovery.journal import Entry

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
    rehearsal_entries.keep(
        clusters,
        f"{_KEY}{pair}",
        Kind.SWITCH,
        source=source,
        target=target,
        epoch=epoch,
        at=at,
        by=by,
        details=details,
        state=StepState.DONE if details["passed"] else StepState.FAILED,
    )


def read(entries: Iterable[Entry], pair: str) -> tuple[KeptCanary, ...]:
    """The canaries of a pair, oldest first; `entries` of one journal or both."""
    return tuple(map(_kept, rehearsal_entries.read(entries, f"{_KEY}{pair}")))


def _kept(entry: Entry) -> KeptCanary:
    # The service reads it too: a damaged entry counts as far as it can be read.
    switches = entry.details.get("switches")
    legs = switches if isinstance(switches, list | tuple) else ()

    def longest(name: str) -> float:
        found = (each.get(name) for each in legs if isinstance(each, Mapping))
        numbers = (float(each) for each in found if isinstance(each, int | float))
        return max(numbers, default=0.0)

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
