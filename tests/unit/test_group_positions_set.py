"""How a switch sets the offsets of groups, without brokers."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from mirror.clusters.admin.group_offsets import CommittedOffset, GroupOffsets
from mirror.offsets.translation import Exactness
from mirror.recovery.stage import StepError
from mirror.recovery.steps import positions
from mirror.recovery.steps.positions import GroupPlace, GroupPlaces

pytestmark = pytest.mark.unit

KEY = ("copy", 0)
PLACES = GroupPlaces(
    places={
        "app": {
            KEY: GroupPlace(came_from="t-0", offset=7, exactness=Exactness.EXACT),
        }
    },
    on_target={},
)


class Coordinator:
    """Keeps the offsets of one group, and counts how often it was asked."""

    def __init__(self, offset: int, *, sticks: bool = False) -> None:
        self.offsets = {KEY: CommittedOffset(offset)}
        self.reads = 0
        self._sticks = sticks

    def fetch(self, _cluster: Any, _groups: Any) -> GroupOffsets:
        self.reads += 1
        return GroupOffsets(groups={"app": dict(self.offsets)})

    def commit(self, _cluster: Any, offsets: Any) -> dict[str, Any]:
        if not self._sticks:
            self.offsets.update(offsets.get("app", {}))
        return {}


def settle(monkeypatch: pytest.MonkeyPatch, coordinator: Coordinator) -> None:
    monkeypatch.setattr(positions.group_offsets, "fetch", coordinator.fetch)
    monkeypatch.setattr(positions.group_offsets, "commit", coordinator.commit)
    monkeypatch.setattr(positions, "places_of", lambda _stage: PLACES)
    stage: Any = SimpleNamespace(
        target=SimpleNamespace(alias="B"), planned=False, note=lambda _notes: None
    )
    positions.require_settled(stage)


def test_offsets_that_stand_right_are_read_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Right before the role moves nothing is asked twice of a coordinator that has
    nothing to set: producers wait.
    """
    coordinator = Coordinator(7)
    settle(monkeypatch, coordinator)
    assert coordinator.reads == 1


def test_an_offset_that_was_set_is_read_back(monkeypatch: pytest.MonkeyPatch) -> None:
    """What the step sets counts only once the coordinator shows it."""
    coordinator = Coordinator(3)
    settle(monkeypatch, coordinator)
    assert coordinator.offsets[KEY].offset == 7
    assert coordinator.reads == 2


def test_an_offset_that_does_not_stay_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    """A coordinator that accepts an offset and shows another one fails the step."""
    with pytest.raises(StepError, match="app in copy-0 on B is at 3, not at 7"):
        settle(monkeypatch, Coordinator(3, sticks=True))
