"""Partitions that are set aside are retried in time, even if the clock is changed."""

from __future__ import annotations

import pytest

from mirror.copying import faults
from mirror.copying.faults import Faults
from tests.harness.clocks import HOUR, NOON, Clocks, clocks_of

pytestmark = pytest.mark.unit

_KEY, _OTHER = ("t", 0), ("t", 1)


@pytest.fixture
def clocks(monkeypatch: pytest.MonkeyPatch) -> Clocks:
    return clocks_of(faults, monkeypatch)


@pytest.mark.parametrize("change", [-HOUR, HOUR])
def test_pauses_do_not_go_by_the_time_of_day(clocks: Clocks, change: float) -> None:
    """Setting the clock back or forward by an hour neither prolongs a pause nor ends
    it.
    """
    held = Faults()
    held.set_aside(_KEY, "too large")
    clocks.of_day += change
    assert not held.due()
    assert held.start_retry(after_error=True) == {_KEY}
    clocks.run(1.0)
    assert held.due()
    assert held.start_retry(after_error=True) == set()


def test_people_read_since_when(clocks: Clocks) -> None:
    """The status shows the time of day at which a partition was first set aside."""
    held = Faults()
    held.set_aside(_KEY, "too large")
    clocks.run(10)
    held.set_aside(_KEY, "still too large")
    assert (fault := held.get(_KEY)) is not None
    assert fault.since == NOON
    assert fault.reason == "still too large"


def test_pauses_grow_to_a_minute(clocks: Clocks) -> None:
    """Each pause in a row is twice as long, up to a minute; after the partition was
    copied in between, it starts at one second again.
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
    """After errors, partitions are retried once per pause; the others stay aside."""
    held = Faults()
    held.set_aside(_KEY, "too large")
    clocks.run(0.5)
    held.set_aside(_OTHER, "too large")
    clocks.run(0.5)
    assert held.start_retry(after_error=True) == {_OTHER}
    assert not held.due()
    assert held.start_retry(after_error=True) == {_KEY, _OTHER}
    clocks.run(0.5)
    assert held.start_retry(after_error=True) == {_KEY}


def test_retries_do_not_end_each_other(clocks: Clocks) -> None:
    """While no error says that it failed, a retry goes on when another partition's
    turn comes.
    """
    held = Faults()
    held.set_aside(_KEY, "too large")
    clocks.run(0.5)
    held.set_aside(_OTHER, "too large")
    clocks.run(0.5)
    assert held.start_retry(after_error=False) == {_OTHER}
    clocks.run(0.5)
    assert held.due()
    assert held.start_retry(after_error=False) == set()
    held.set_aside(_KEY, "too large")
    assert held.start_retry(after_error=False) == {_KEY}


def test_retries_get_longer(clocks: Clocks) -> None:
    """A retry that neither failed nor copied anything is followed by a longer one."""
    held = Faults()
    held.set_aside(_KEY, "its leader is being asked")
    lasted = []
    for _ in range(4):
        began = clocks.running
        while not held.due():
            clocks.run(0.5)
        lasted.append(clocks.running - began)
        assert held.start_retry(after_error=False) == set()
    assert lasted == [1, 1, 2, 4]


def test_what_has_changed_is_retried_at_once(clocks: Clocks) -> None:
    """A partition that is hastened is due, and no other one; if it fails again, its
    pause is the one that it would have been. One that is not set aside stays so.
    """
    held = Faults()
    held.set_aside(_KEY, "its leader is gone")
    held.set_aside(_OTHER, "too large")
    held.hasten([_KEY, ("t", 2)])
    assert held.due()
    assert held.start_retry(after_error=True) == {_OTHER}
    held.set_aside(_KEY, "the next one is gone, too")
    assert (fault := held.get(_KEY)) is not None
    assert fault.pause == 2
    assert held.get(("t", 2)) is None
