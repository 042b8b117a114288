"""The statuses of a flow's groups, from one look at them.

Main functions: `status_of`, one group's; `trouble`, by which they are sorted; and
`positioned`, since when their positions on the target have been as old as they are.
Pure.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from mirror.offsets.translation import Exactness
from mirror.status.values import GroupStatus

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from mirror.offsets.groups import GroupPosition

_WORST = (
    Exactness.UNKNOWN,
    Exactness.BEFORE,
    Exactness.EARLIER,
    Exactness.BEHIND,
    Exactness.TIP,
    Exactness.EXACT,
)


def status_of(
    name: str,
    kind: str,
    places: tuple[GroupPosition, ...],
    *,
    reason: str,
    active: bool,
    ends: Mapping[tuple[str, int], int],
) -> GroupStatus:
    """A group's status; `positioned` adds the time. `ends`: where source partitions
    end, as far as they are known.
    """
    ahead = [
        max(ends[place.topic, place.partition] - place.upstream, 0)
        for place in places
        if (place.topic, place.partition) in ends
    ]
    kinds = [place.translated.exactness for place in places]
    return GroupStatus(
        group=name,
        type=str(kind),
        partitions=len(places),
        source_offset=sum(place.upstream for place in places),
        target_offset=sum(max(place.downstream, 0) for place in places),
        behind=sum(place.behind for place in places),
        unknown=kinds.count(Exactness.UNKNOWN),
        exactness=str(min(kinds, key=_WORST.index, default=Exactness.UNKNOWN)),
        active_on_target=active,
        reason=reason,
        lag=sum(ahead) if places and len(ahead) == len(places) else -1,
    )


def positioned(
    shown: Sequence[GroupStatus], before: Sequence[GroupStatus], at: float
) -> tuple[GroupStatus, ...]:
    """With the time of this look, or of an earlier one if it says nothing new."""
    last = {each.group: each.position_at for each in before}
    return tuple(
        replace(
            each,
            position_at=last.get(each.group, 0.0)
            if each.reason or each.unknown == each.partitions
            else at,
        )
        for each in shown
    )


def trouble(status: GroupStatus) -> tuple[bool, int, int, str]:
    """A key by which groups in trouble come first."""
    worst = _WORST.index(Exactness(status.exactness))
    return (not status.reason, worst, -status.behind, status.group)
