"""Slots and their preferred executors."""

from __future__ import annotations

import threading
from types import SimpleNamespace
from typing import Any, cast

import pytest

from mirror.service import executors
from mirror.service.executors import place

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


def test_further_slots_are_started_ahead(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each slot's process is started once, and none of a slot that works: it would get
    a second one. A failure is left to the lease.
    """
    started: list[range] = []
    begun, may_go_on = threading.Event(), threading.Event()

    def warm_up(_spark: Any, _flow: str, places: list[None], *, first: int) -> None:
        begun.set()
        assert may_go_on.wait(10)
        started.append(range(first, len(places)))
        raise OSError("no Python there")

    context = SimpleNamespace(_jsc=SimpleNamespace(sc=lambda: None), master="local[4]")
    spark = cast("Any", SimpleNamespace(sparkContext=context))
    monkeypatch.setattr(executors, "cores", lambda _spark: 4)
    monkeypatch.setattr(executors, "warm_up", warm_up)
    preferred = executors.PreferredExecutors(spark)
    preferred.start_processes("A->B", 2)
    assert begun.wait(10)
    preferred.start_processes("A->B", 2)  # a run that failed before its first lease
    threading.Timer(0.2, may_go_on.set).start()
    preferred.await_processes("A->B", 10)
    assert started == [range(2)]
    preferred.places_of("A->B", 2)  # its leases

    preferred.start_processes("A->B", 3)
    preferred.places_of("A->B", 2)  # the run with fewer goes on meanwhile
    preferred.start_processes("A->B", 3)  # and the next one begins
    preferred.await_processes("A->B", 10)
    assert started == [range(2), range(2, 3)]
    preferred.places_of("A->B", 3)
    preferred.places_of("A->B", 1)
    preferred.start_processes("A->B", 2)
    preferred.await_processes("A->B", 10)
    assert started == [range(2), range(2, 3), range(1, 2)]


def test_places_are_kept_for_further_slots(monkeypatch: pytest.MonkeyPatch) -> None:
    """Until the run with more slots begins, no other flow gets the executor on which
    their processes were started.
    """
    executor = SimpleNamespace(
        id=lambda: "1", maxTasks=lambda: 2, hostPort=lambda: "h:1"
    )
    listed = SimpleNamespace(size=lambda: 1, apply=lambda _: executor)
    context = SimpleNamespace(
        getExecutorIds=lambda: SimpleNamespace(mkString=lambda _: "1"),
        statusStore=lambda: SimpleNamespace(executorList=lambda _: listed),
    )
    spark = SimpleNamespace(
        sparkContext=SimpleNamespace(
            _jsc=SimpleNamespace(sc=lambda: context), master="spark://h:1"
        )
    )
    monkeypatch.setattr(executors, "warm_up", lambda *_, **__: None)
    preferred = executors.PreferredExecutors(cast("Any", spark))
    assert preferred.places_of("A->B", 1) == ["executor_h_1"]
    preferred.start_processes("A->B", 2)
    assert preferred.places_of("A->B", 1) == ["executor_h_1"]
    assert preferred.places_of("B->C", 1) == [None]
    assert preferred.places_of("A->B", 2) == ["executor_h_1"] * 2
    preferred.places_of("A->B", 1)
    assert preferred.places_of("B->C", 1) == ["executor_h_1"]
