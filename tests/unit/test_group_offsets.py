"""Offsets of groups that are set from outside."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from mirror.clusters import codes
from mirror.clusters.admin import group_offsets
from mirror.clusters.admin.group_offsets import CommittedOffset

pytestmark = pytest.mark.unit

OFFSETS = {
    "app": {("t", 0): CommittedOffset(5), ("t", 1): CommittedOffset(7)},
    "other": {("t", 0): CommittedOffset(9)},
}


class Coordinators:
    """A cluster that keeps what it is sent, and refuses some partitions, some times."""

    def __init__(self, refusals: dict[tuple[str, int], list[int]]) -> None:
        self.sent: list[tuple[str, int]] = []
        self._refusals = refusals

    def group_coordinators(self, groups: Any) -> dict[str, int]:
        return dict.fromkeys(groups, 1)

    def connection(self, _node: int) -> Coordinators:
        return self

    def send(self, group: str, offsets: Any) -> Any:
        answers = []
        for _, partition in offsets:
            self.sent.append((group, partition))
            left = self._refusals.get((group, partition), [])
            code = left.pop(0) if left else codes.NONE
            answers.append(SimpleNamespace(partition_index=partition, error_code=code))
        topic = SimpleNamespace(name="t", partitions=answers)
        return SimpleNamespace(result=lambda: SimpleNamespace(topics=[topic]))


@pytest.fixture(autouse=True)
def sent_there(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(group_offsets, "send", Coordinators.send)


def test_a_coordinator_that_moves_is_asked_again() -> None:
    """Only for what it refused, until it takes it; what a group with members refuses
    is reported at once.
    """
    moving = [codes.NOT_COORDINATOR, codes.NOT_COORDINATOR]
    members = 25  # UNKNOWN_MEMBER_ID
    cluster: Any = Coordinators({("app", 1): moving, ("other", 0): [members]})

    refused = group_offsets.commit(cluster, OFFSETS)

    assert refused == {"other": {("t", 0): members}}
    assert cluster.sent == [
        ("app", 0), ("app", 1), ("other", 0), ("app", 1), ("app", 1),
    ]  # fmt: skip


def test_one_that_stays_away_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    """After some seconds, with its code."""
    monkeypatch.setattr(group_offsets, "_PATIENCE_SECONDS", 0.1)
    gone = codes.NOT_COORDINATOR
    cluster: Any = Coordinators({("other", 0): [gone] * 100})

    assert group_offsets.commit(cluster, OFFSETS) == {"other": {("t", 0): gone}}
