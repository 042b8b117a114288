"""Partitions set aside are tried again in time, whatever the time of day is."""

from __future__ import annotations

import pytest

from mirror.relay import faults
from mirror.relay.faults import Faults
from tests.harness.clocks import HOUR, NOON, Clocks, clocks_of

pytestmark = pytest.mark.unit

_KEY, _OTHER = ("t", 0), ("t", 1)


@pytest.fixture
def clocks(monkeypatch: pytest.MonkeyPatch) -> Clocks:
    return clocks_of(faults, monkeypatch)


@pytest.mark.parametrize("change", [-HOUR, HOUR])
def test_pauses_do_not_go_by_the_time_of_day(clocks: Clocks, change: float) -> None:
    """A clock that is set back or forth by an hour neither keeps a partition aside
    for longer nor brings it back sooner.
    """
    held = Faults()
    held.set_aside(_KEY, "too large")
    clocks.of_day += change
    assert not held.due()
    assert held.start_retry() == {_KEY}
    clocks.run(1.0)
    assert held.due()
    assert held.start_retry() == set()


def test_people_read_since_when(clocks: Clocks) -> None:
    """What is shown is the time of day at which a partition was first set aside."""
    held = Faults()
    held.set_aside(_KEY, "too large")
    clocks.run(10)
    held.set_aside(_KEY, "still too large")
    assert (fault := held.get(_KEY)) is not None
    assert fault.since == NOON
    assert fault.reason == "still too large"


def test_pauses_grow_to_a_minute(clocks: Clocks) -> None:
    """Each further pause is twice as long, up to a minute; one that was copied in
    between begins with a second again.
    """
    held = Faults()
    pauses = []
    for _ in range(8):
        held.set_aside(_KEY, "too large")
        began = clocks.running
        while not held.due():
            clocks.run(0.5)
        pauses.append(clocks.running - began)
    assert pauses == [1, 2, 4, 8, 16, 32, 60, 60]
    held.clear(_KEY)
    assert not held.due()
    held.set_aside(_KEY, "too large")
    clocks.run(1)
    assert held.due()


def test_a_chance_is_given_once_for_each_pause(clocks: Clocks) -> None:
    """Those that are due are tried, the others stay aside; a second try before the
    next pause is over is none.
    """
    held = Faults()
    held.set_aside(_KEY, "too large")
    clocks.run(0.5)
    held.set_aside(_OTHER, "too large")
    clocks.run(0.5)
    assert held.start_retry() == {_OTHER}
    assert not held.due()
    assert held.start_retry() == {_KEY, _OTHER}
    clocks.run(0.5)
    assert held.start_retry() == {_KEY}
