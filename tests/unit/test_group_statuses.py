"""How old the positions of groups are, look by look."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from mirror.offsets.groups import GroupPosition
from mirror.offsets.translation import Exactness, Translated
from mirror.service.groups import group_status, positioned

if TYPE_CHECKING:
    from mirror.status.values import GroupStatus

pytestmark = pytest.mark.unit


def look(
    group: str,
    exactness: Exactness,
    reason: str = "",
    ends: dict[tuple[str, int], int] | None = None,
) -> GroupStatus:
    place = GroupPosition(
        topic="t", partition=0, target_topic="A.t", upstream=5,
        translated=Translated(offset=5, exactness=exactness),
    )  # fmt: skip
    return group_status(
        group, "classic", (place,), reason=reason, active=False, ends=ends or {}
    )


def test_lag_on_the_source() -> None:
    """A group's lag is how far its partitions' ends are ahead of it, never below zero,
    and not known as long as one end is not.
    """
    lags = [
        look("a", Exactness.EXACT, ends=ends).lag
        for ends in ({("t", 0): 12}, {("t", 0): 3}, {("t", 1): 12}, {("t", 0): -1})
    ]
    assert lags == [7, 0, -1, -1]


def test_a_position_is_as_old_as_the_last_look_that_found_it() -> None:
    """A group that cannot be read, or has no offset on the target, keeps the time of
    its last good look; one that never had one has none.
    """
    well = [look(name, Exactness.EXACT) for name in ("a", "b", "c")]
    first = positioned(well, (), 10.0)
    later = positioned(
        [
            look("a", Exactness.EXACT),
            look("b", Exactness.UNKNOWN),
            look("c", Exactness.EXACT, "not authorized"),
            look("new", Exactness.UNKNOWN),
        ],
        first,
        20.0,
    )

    assert {each.group: each.position_at for each in first} == dict.fromkeys("abc", 10)
    assert {each.group: each.position_at for each in later} == {
        "a": 20, "b": 10, "c": 10, "new": 0,
    }  # fmt: skip
