"""Slots and their preferred executors."""

from __future__ import annotations

import pytest

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
