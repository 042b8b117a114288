"""Slots and their preferred executors."""

from __future__ import annotations

import threading
from types import SimpleNamespace
from typing import Any, cast

import pytest

from mirror.driver import executors
from mirror.driver.executors import place

pytestmark = pytest.mark.unit

A0, A1, A2, B0 = ("A->C", 0), ("A->C", 1), ("A->C", 2), ("B->C", 0)


def test_slots_are_spread_over_executors() -> None:
    """New slots go where there is most room, one after the other."""
    assert place({}, [A0, A1, A2], {"0": 1, "1": 2}) == {A0: "1", A1: "0", A2: "1"}


def test_slots_stay_where_they_are() -> None:
    """Another executor moves nothing, but the next slot goes there."""
    preferred = {A0: "0", A1: "0"}

    assert place(preferred, [A0, A1, A2], {"0": 4, "1": 4}) == {**preferred, A2: "1"}


def test_slots_of_other_flows_take_room() -> None:
    """Two flows of one session do not prefer the same core."""
    assert place({A0: "0"}, [B0], {"0": 1, "1": 1}) == {A0: "0", B0: "1"}


def test_slot_of_a_lost_executor_gets_another_one() -> None:
    """A slot whose executor is gone prefers the one that replaced it."""
    assert place({A0: "0", A1: "1"}, [A0, A1], {"0": 1, "2": 1}) == {A0: "0", A1: "2"}


def test_no_executor_without_room() -> None:
    """With more slots than cores, some slots have no preferred executor."""
    assert place({}, [A0, A1], {"0": 1}) == {A0: "0"}
    assert place({A0: "0"}, [A0], {}) == {}


def test_slots_are_started_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """A run that begins while an earlier one starts the slots' processes waits for that
    and starts none; one with more slots does. A failure is left to the lease.
    """
    started: list[int] = []
    begun, may_go_on = threading.Event(), threading.Event()

    def warm_up(_spark: Any, _flow: str, places: list[None]) -> None:
        begun.set()
        assert may_go_on.wait(10)
        started.append(len(places))
        raise OSError("no Python there")

    context = SimpleNamespace(_jsc=SimpleNamespace(sc=lambda: None), master="local[4]")
    spark = cast("Any", SimpleNamespace(sparkContext=context))
    monkeypatch.setattr(executors, "cores", lambda _spark: 4)
    monkeypatch.setattr(executors, "warm_up", warm_up)
    preferred = executors.PreferredExecutors(spark)
    preferred.start_processes("A->B", 2)
    assert begun.wait(10)
    preferred.start_processes("A->B", 2)
    threading.Timer(0.2, may_go_on.set).start()
    preferred.await_processes("A->B", 10)
    assert started == [2]
    preferred.of("A->B", 1)  # a run with fewer between them
    preferred.start_processes("A->B", 2)
    preferred.start_processes("A->B", 3)
    preferred.await_processes("A->B", 10)
    assert started == [2, 3]
