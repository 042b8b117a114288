"""Entries of journals about rehearsals, which change no role.

Main functions: `keep`, and `read`, over journals' entries. Each rehearsal is an entry
of its own run that ends at once, under a key that is no pair: readers of roles and
runs pass over it, versions of mirror that do not know it too. `drills` and `canaries`
say what is in one.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any
import uuid

from mirror.recovery import journal, roles
from mirror.recovery.journal import Entry, Kind, StepState

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from mirror.clusters.cluster import Cluster


def keep(  # noqa: PLR0913  what an entry has
    clusters: Iterable[Cluster],
    key: str,
    kind: Kind,
    *,
    source: str,
    target: str,
    epoch: int,
    at: float,
    by: str,
    details: Mapping[str, Any],
    state: StepState = StepState.DONE,
) -> None:
    """Add one to the journal of each cluster.

    Raises:
        ClusterError: a cluster does not answer, or refuses.
    """
    entry = Entry(
        pair=key,
        run=uuid.uuid4().hex,
        number=0,
        kind=kind,
        epoch=epoch,
        source=source,
        target=target,
        step=roles.END,
        state=state,
        at=at,
        by=by,
        details=details,
    )
    for cluster in clusters:
        journal.copy(cluster, [entry])


def read(entries: Iterable[Entry], key: str) -> list[Entry]:
    """Those under a key, oldest first; `entries` of one journal or both."""
    found = {each.identity: each for each in entries if each.pair == key}
    return sorted(found.values(), key=lambda each: each.at)
