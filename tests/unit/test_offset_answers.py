"""Translating what many groups have committed, without brokers."""

from __future__ import annotations

from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest

from mirror.clusters.admin.group_offsets import CommittedOffset
from mirror.config.schema import FlowConfig
from mirror.offsets import group_survey
from mirror.offsets.translation import UNKNOWN, Exactness, Translated

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

pytestmark = pytest.mark.unit

TopicPartition = tuple[str, int]
TOPIC, COPY = "t", "A.t"
PARTITIONS = 3
EMPTY = {(COPY, 2): 40}
"""Nothing is left in this partition, which ends there; nothing was copied to it."""


class Asked:
    """A cluster, a map and the ends of logs; counts who was asked how often."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.of_cluster = self.of_ends = self.of_map = 0
        monkeypatch.setattr(group_survey.topic_admin, "empty", self._empty)

    def topics(self, names: Iterable[str]) -> dict[str, Any]:
        self.of_cluster += 1
        topic = SimpleNamespace(leaders=dict.fromkeys(range(PARTITIONS)))
        return dict.fromkeys(names, topic)

    def _empty(
        self, _cluster: Any, partitions: Iterable[TopicPartition]
    ) -> dict[TopicPartition, int]:
        self.of_ends += 1
        return {key: EMPTY[key] for key in partitions if key in EMPTY}

    def followed(self) -> set[TopicPartition]:
        return {(TOPIC, number) for number in range(PARTITIONS)}

    def partitions(self) -> dict[TopicPartition, str]:
        return {(TOPIC, 0): COPY, (TOPIC, 1): COPY}

    def reverse(self, topic: str, partition: int, offset: int) -> Translated:
        assert topic == TOPIC
        self.of_map += 1
        if partition == 2:
            return UNKNOWN
        return Translated(offset=offset + 100, exactness=Exactness.EXACT)


def answered(
    asked: Any, committed: Mapping[str, Mapping[int, int]]
) -> dict[str, dict[int, int]]:
    """By group and partition, the offset on the source."""
    found = group_survey.of_groups(
        FlowConfig(source="A", target="B"),
        asked,
        asked,
        {
            group: {(COPY, number): CommittedOffset(at) for number, at in own.items()}
            for group, own in committed.items()
        },
        reverse=True,
    )
    return {
        group: {each.partition: each.translated.offset for each in of}
        for group, of in found.items()
    }


def test_many_groups_cost_as_many_questions_as_one(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A switch back asks while producers wait: about all groups at once, and the map
    once about an offset at which many of them stand.
    """
    asked = Asked(monkeypatch)
    groups = {f"app-{number}": {0: 5, 1: 7} for number in range(50)}
    found = answered(asked, groups)
    assert all(of == {0: 105, 1: 107, 2: 0} for of in found.values())
    assert (asked.of_cluster, asked.of_ends, asked.of_map) == (1, 1, 3)


def test_each_group_has_its_own_silent_partitions(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Where a group committed nothing and nothing is, it reads from the start; where
    another one committed in that partition, it is not known where that one goes on,
    even at the same offset; and a group that reads other topics gets no places there.
    """
    found = answered(
        Asked(monkeypatch), {"silent": {0: 5}, "at-end": {0: 5, 2: 40}, "elsewhere": {}}
    )
    assert found == {
        "silent": {0: 105, 2: 0},
        "at-end": {0: 105, 2: -1},
        "elsewhere": {},
    }
