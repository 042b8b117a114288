"""Whether a pair has become less ready for a failover, by its drills. Pure.

Main function: `fallen`, an event for each drill that is worse than the one before.
"""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING

from mirror.status.events import Event, EventKind

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from mirror.status.pairs import DrillStatus

_VERDICTS = ("READY", "DEGRADED", "NOT READY")
_MOST_FINDINGS = 5


def fallen(
    pair: str, drills: Sequence[DrillStatus], *, since: float
) -> Iterator[Event]:
    """`drills`: the newest first; `since`: epoch seconds, those before are known."""
    for now, before in itertools.pairwise(drills):
        if now.at > since and _rank(now) > _rank(before):
            yield Event(
                kind=EventKind.READINESS_FELL,
                flow=f"{now.source}->{now.target}",
                subject=pair,
                text=f"was {before.verdict}; {now.text}",
                details={"findings": list(now.findings[:_MOST_FINDINGS])},
            )


def _rank(drill: DrillStatus) -> int:
    return _VERDICTS.index(drill.verdict) if drill.verdict in _VERDICTS else 0
