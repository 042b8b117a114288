"""Which answers of the source count: what no broker can be made to do at will."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any
import uuid

import pytest

from mirror.clusters import codes
from mirror.clusters.admin import topic_admin
from mirror.clusters.topics import Leader, Topic
from mirror.errors import NoLeaderError, UnreachableError
from mirror.offsets.progress import Position, Progress
from mirror.pairs.risk import RiskTracker, SourceEnds

if TYPE_CHECKING:
    from collections.abc import Iterable

pytestmark = pytest.mark.unit

OLD, NEW = uuid.UUID(int=1), uuid.UUID(int=2)


def topic(topic_id: uuid.UUID, *epochs: int, error: int = 0) -> dict[str, Topic]:
    """Partition n is led by broker n."""
    leaders = {n: Leader(node=n, epoch=epoch) for n, epoch in enumerate(epochs)}
    made = Topic(
        name="t", topic_id=topic_id, leaders=leaders, error=error, replication_factor=1
    )
    return {"t": made}


class Source:
    """What the source says, in this order: topics, then ends by partition."""

    alias = "A"

    def __init__(self, patch: pytest.MonkeyPatch) -> None:
        self.shown: list[dict[str, Topic]] = []
        self.ends: dict[int, int | None] = {}
        self.silent = False
        patch.setattr(topic_admin, "list_offsets", self._listed)

    def topics(self, _names: Iterable[str]) -> dict[str, Topic]:
        return self.shown.pop(0)

    def _listed(
        self, _: Any, asked: Iterable[tuple[str, int]], *, timestamp: int, **__: Any
    ) -> dict[tuple[str, int], int]:
        found: dict[tuple[str, int], int] = {}
        if self.silent:  # as where no partition has a leader
            return found
        for name, number in asked:
            if (end := self.ends[number]) is None:
                raise UnreachableError(f"broker {number}")
            found[name, number] = end if timestamp == topic_admin.LATEST else 0
        return found


@pytest.fixture
def source(monkeypatch: pytest.MonkeyPatch) -> Any:
    return Source(monkeypatch)


def seen(ends: SourceEnds, source: Any, at: float) -> list[tuple[int, int, float]]:
    found = ends.look(source, {"t"}, at=at)["t"]
    return [(each.end, each.epoch, each.at) for each in found.partitions]


def test_created_again_between_two_answers(source: Any) -> None:
    """Offsets asked for by name count only if the name meant one topic all the time;
    the next look has the new topic, and nothing of the old one.
    """
    ends = SourceEnds()
    source.shown = [topic(OLD, 4), topic(OLD, 4), topic(NEW, 0), topic(NEW, 0)]
    source.ends = {0: 50}
    assert seen(ends, source, 1.0) == [(50, 4, 1.0)]
    source.ends = {0: 3}
    assert seen(ends, source, 2.0) == [(50, 4, 1.0)]
    assert seen(ends, source, 3.0) == [(3, 0, 3.0)]


def test_a_leader_of_before(source: Any) -> None:
    """A broker that is cut off names an older epoch, and is not believed; a newer
    leader may name a lower end.
    """
    ends = SourceEnds()
    source.shown = [topic(OLD, epoch) for epoch in (4, 3, 5, 5)]
    source.ends = {0: 50}
    assert seen(ends, source, 1.0) == [(50, 4, 1.0)]
    source.ends = {0: 40}
    assert seen(ends, source, 2.0) == [(50, 4, 1.0)]
    source.ends = {0: 45}
    assert seen(ends, source, 3.0) == [(45, 5, 3.0)]


def test_what_does_not_answer(source: Any) -> None:
    """One broker of two, then both, then a topic that is hidden: what was known stays,
    with its time; with no answer at all, or no leader, the look fails, and the next one
    asks again.
    """
    ends = SourceEnds()
    source.shown = [topic(OLD, 1, 1)] * 3
    source.ends = {0: 5, 1: None}
    assert seen(ends, source, 1.0) == [(5, 1, 1.0), (-1, -1, 0.0)]
    source.ends = {0: None, 1: 7}
    assert seen(ends, source, 2.0) == [(5, 1, 1.0), (7, 1, 2.0)]
    source.ends = {0: None, 1: None}
    with pytest.raises(UnreachableError):
        ends.look(source, {"t"}, at=3.0)
    source.shown = [topic(OLD, 1, 1)] * 2
    source.silent = True
    with pytest.raises(NoLeaderError, match="A: no leader says"):
        ends.look(source, {"t"}, at=3.5)
    source.silent = False

    source.shown = [topic(OLD, error=codes.TOPIC_AUTHORIZATION_FAILED)] * 2
    assert seen(ends, source, 4.0) == [(5, 1, 1.0), (7, 1, 2.0)]
    source.shown = [topic(OLD, 1, 1)]
    source.ends = {0: 8, 1: 9}
    ends.look(source, {"t"}, at=5.0)
    source.shown = [topic(OLD, 1, 1)]
    assert seen(ends, source, 6.0) == [(8, 1, 6.0), (9, 1, 6.0)]


def test_since_when_is_what_looks_saw(source: Any) -> None:
    """How old a backlog is that was there at the first look is not known, and records'
    times are not asked. Where the log was empty, nothing is older than that look, also
    if nothing is copied yet.
    """
    copied = Progress(positions={("t", 0): Position(offset=40, topic_id=OLD)})
    tracker = RiskTracker({}, lambda: copied)
    source.shown = [topic(OLD, 1, 1)] * 3
    source.ends = {0: 50, 1: 0}
    first = tracker.look(source, {"t"}, at=1000.0)
    source.ends = {0: 60, 1: 7}
    second = tracker.look(source, {"t"}, at=1005.0)

    assert [each.seconds for each in first.risk.partitions] == [-1]
    assert [each.seconds for each in second.risk.partitions] == [-1, 5]
