"""Who leads what: the rule by which instances share flows out."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st
import pytest

from mirror.leadership import Wish, share

pytestmark = pytest.mark.unit

FLOWS = ("A->B", "B->A", "C->B", "D->B", "E->B")


def _members(count: int, leads: dict[str, tuple[str, ...]]) -> dict[str, Wish]:
    return {
        f"id-{number}": Wish(
            name=f"host-{number}", flows=FLOWS, leads=leads.get(f"id-{number}", ())
        )
        for number in range(count)
    }


@given(
    st.integers(1, 7),
    st.lists(st.integers(0, 6), min_size=len(FLOWS), max_size=len(FLOWS)),
)
@settings(deadline=None)
def test_flows_are_spread_evenly(count: int, owners: list[int]) -> None:
    """Whoever led before, no instance leads more than its fair share, and each flow has
    one leader."""
    leads: dict[str, tuple[str, ...]] = {}
    for flow, owner in zip(FLOWS, owners, strict=True):
        leads[f"id-{owner}"] = (*leads.get(f"id-{owner}", ()), flow)
    leaders = share(_members(count, leads))
    assert set(leaders) == set(FLOWS)
    loads = [list(leaders.values()).count(f"id-{n}") for n in range(count)]
    assert max(loads) <= -(-len(FLOWS) // count)


def test_nothing_moves_without_need() -> None:
    """An instance that joins takes no more than evens it out; one that leaves moves
    only its own flows."""
    alone = _members(1, {})
    first = share(alone)
    assert set(first.values()) == {"id-0"}
    second = share(_members(2, {"id-0": FLOWS}))
    assert sum(leader == "id-1" for leader in second.values()) == 2
    leads = {
        member: tuple(flow for flow, leader in second.items() if leader == member)
        for member in ("id-0", "id-1")
    }
    assert share(_members(2, leads)) == second
    third = share(_members(3, leads))
    kept = [flow for flow in FLOWS if third[flow] == second[flow]]
    assert len(kept) == 4
    back = share({"id-1": _members(2, leads)["id-1"]})
    assert set(back.values()) == {"id-1"}


def test_only_who_has_a_flow_leads_it() -> None:
    """Instances with different configurations share what they have in common."""
    wishes = {
        "one": Wish(name="one", flows=("A->B", "C->B"), leads=("A->B", "C->B")),
        "two": Wish(name="two", flows=("A->B",)),
    }
    assert share(wishes) == {"A->B": "two", "C->B": "one"}


def test_who_is_not_ready_waits() -> None:
    """One that still starts takes nothing from one that runs; alone it leads."""
    starting = Wish(name="new", flows=FLOWS, ready=False)
    running = Wish(name="old", flows=FLOWS, leads=FLOWS)
    assert set(share({"new": starting, "old": running}).values()) == {"old"}
    assert set(share({"new": starting}).values()) == {"new"}
