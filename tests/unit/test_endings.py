"""Whether a transaction has ended everywhere, without a broker.

That nothing is lost is proven in `integration/test_hanging_transactions`.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

import pytest

from mirror.clusters.topics import NO_ID, Leader, Topic
from mirror.copying import target
from mirror.copying.target import Endings
from mirror.errors import BrokerError, ClusterError, NoLeaderError

_PID = 1000


@dataclass
class Leaders:
    """What leaders answer: the producers with something open, and errors."""

    now: float = 50.0
    open_in: dict[tuple[str, int], int] = field(default_factory=dict)
    errors: dict[tuple[str, int], int] = field(default_factory=dict)
    asked: list[tuple[int, dict[str, list[int]]]] = field(default_factory=list)

    def ask(self, _: Any, leader: int, names: dict[str, list[int]]) -> Any:
        self.asked.append((leader, names))
        return SimpleNamespace(answered=True, connection=None, result=lambda: names)

    def read(self, names: dict[str, list[int]]) -> Any:
        theirs = {(name, number) for name, each in names.items() for number in each}
        found: dict[tuple[int, int], list[tuple[str, int]]] = {}
        for key in theirs & self.open_in.keys():
            found.setdefault((self.open_in[key], 3), []).append(key)
        return found, {key: self.errors[key] for key in theirs & self.errors.keys()}


@pytest.fixture
def leaders(monkeypatch: pytest.MonkeyPatch) -> Leaders:
    made = Leaders()
    monkeypatch.setattr(target.time, "monotonic", lambda: made.now)
    monkeypatch.setattr(target.hanging, "ask", made.ask)
    monkeypatch.setattr(target.hanging, "read", made.read)
    return made


def _topics(*nodes: int) -> dict[str, Topic]:
    led = {number: Leader(node=node, epoch=0) for number, node in enumerate(nodes)}
    topic = Topic(name="t", topic_id=NO_ID, leaders=led, error=0, replication_factor=1)
    return {"t": topic}


def _expecting(*nodes: int) -> Endings:
    made = Endings(SimpleNamespace(alias="B"))
    partitions = [("t", number) for number in range(len(nodes))]
    made.expect("id", _PID, partitions, _topics(*nodes))
    return made


def _pass(leaders: Leaders, made: Endings, next_id: str = "id") -> None:
    """Wait as long as it says, ask, and read."""
    leaders.now += made.again_in(next_id) or 0.0
    made.advance(next_id)
    made.advance(next_id)


def test_each_leader_is_asked_until_nothing_is_open(leaders: Leaders) -> None:
    """Markers need a moment; other producers' transactions do not matter."""
    leaders.open_in = {("t", 0): _PID, ("t", 2): _PID + 1}
    made = _expecting(1, 2, 1)
    made.advance("id")
    assert not leaders.asked

    _pass(leaders, made)
    assert leaders.asked == [(1, {"t": [0, 2]}), (2, {"t": [1]})]
    assert made.awaits("id")
    del leaders.open_in["t", 0]
    _pass(leaders, made)
    assert not made.awaits("id")
    assert not made.awaits("another")
    assert made.again_in("id") is None


def test_what_stays_open_needs_a_take_over(leaders: Leaders) -> None:
    """A marker that was never written does not come by waiting."""
    leaders.open_in = {("t", 1): _PID}
    made = _expecting(1, 1)
    end = leaders.now + 5
    while leaders.now + (made.again_in("id") or 0.0) <= end:
        _pass(leaders, made)
    assert len(leaders.asked) < 100
    with pytest.raises(ClusterError, match="of id has ended, but not in t-1"):
        _pass(leaders, made)


def test_a_leader_that_does_not_tell_needs_a_take_over(leaders: Leaders) -> None:
    """A partition that cannot be asked is not taken for one where all has ended."""
    leaders.errors = {("t", 0): 6}
    with pytest.raises(BrokerError, match="t-0: NOT_LEADER_FOR_PARTITION"):
        _pass(leaders, _expecting(1))


def test_a_partition_without_a_leader_needs_a_take_over() -> None:
    """It is the one that is skipped when a transaction ends."""
    made = _expecting(-1)
    with pytest.raises(NoLeaderError, match="t-0 has no leader"):
        made.finish()


def test_brokers_that_cannot_be_asked_skip_no_marker(
    leaders: Leaders, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Brokers before 2.8 know no such request, and retry until there is a leader."""
    monkeypatch.setattr(target.hanging, "ask", lambda *_: None)
    made = _expecting(1)
    _pass(leaders, made)
    assert not made.awaits("id")


def test_one_question_asks_about_several_transactions(leaders: Leaders) -> None:
    """Small transactions are asked about when the next one needs the id of one of them,
    all of them together; one that stays open does not keep the others.
    """
    made = _expecting(1, 1)
    made.expect("other", _PID + 1, [("t", 1), ("t", 2)], _topics(1, 1, 1))
    leaders.now += 0.01
    made.advance("third")
    assert not leaders.asked

    leaders.open_in = {("t", 1): _PID + 1}
    made.advance("id")
    made.advance("id")
    assert leaders.asked == [(1, {"t": [0, 1, 2]})]
    assert not made.awaits("id")
    assert made.awaits("other")


def test_an_id_that_is_not_needed_is_asked_about_all_the_same(leaders: Leaders) -> None:
    """A partition whose marker is missing hides what follows from its readers, however
    long the next transaction is away.
    """
    leaders.open_in = {("t", 0): _PID}
    made = _expecting(1)
    assert 0 < (made.again_in("another") or 0.0) < 0.1
    _pass(leaders, made, "another")
    assert leaders.asked == [(1, {"t": [0]})]
    assert made.awaits("id")
