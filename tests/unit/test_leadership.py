"""Which instance leads which flow: the rule, and how instances take part."""

from __future__ import annotations

from contextlib import closing
from dataclasses import asdict
import json
import time
from typing import TYPE_CHECKING, Any

from hypothesis import given, settings
from hypothesis import strategies as st
import pytest

from mirror.service import leadership
from mirror.service.leadership import Leadership, Lifelines, MemberInfo, choose_leaders
from tests.harness.configurations import configuration
from tests.harness.waiting import deadline_in, wait_for

if TYPE_CHECKING:
    from collections.abc import Iterable

    from mirror.config.cluster_settings import ClusterConfig
    from mirror.config.schema import MirrorConfig

pytestmark = pytest.mark.unit

FLOWS = ("A->B", "B->A", "C->B", "D->B", "E->B")


def _members(count: int, leads: dict[str, tuple[str, ...]]) -> dict[str, MemberInfo]:
    return {
        f"id-{number}": MemberInfo(
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
    """Whatever was before, no instance leads more than its fair share, and each flow
    has one leader.
    """
    leads: dict[str, tuple[str, ...]] = {}
    for flow, owner in zip(FLOWS, owners, strict=True):
        leads[f"id-{owner}"] = (*leads.get(f"id-{owner}", ()), flow)
    leaders = choose_leaders(_members(count, leads))
    assert set(leaders) == set(FLOWS)
    loads = [list(leaders.values()).count(f"id-{n}") for n in range(count)]
    assert max(loads) <= -(-len(FLOWS) // count)


def test_nothing_moves_without_need() -> None:
    """An instance that joins takes only what makes it even; one that leaves moves only
    its own flows.
    """
    alone = _members(1, {})
    first = choose_leaders(alone)
    assert set(first.values()) == {"id-0"}
    second = choose_leaders(_members(2, {"id-0": FLOWS}))
    assert sum(leader == "id-1" for leader in second.values()) == 2
    leads = {
        member: tuple(flow for flow, leader in second.items() if leader == member)
        for member in ("id-0", "id-1")
    }
    assert choose_leaders(_members(2, leads)) == second
    third = choose_leaders(_members(3, leads))
    kept = [flow for flow in FLOWS if third[flow] == second[flow]]
    assert len(kept) == 4
    back = choose_leaders({"id-1": _members(2, leads)["id-1"]})
    assert set(back.values()) == {"id-1"}


def test_only_who_has_a_flow_leads_it() -> None:
    """Instances with different configurations share the flows that both have."""
    infos = {
        "one": MemberInfo(name="one", flows=("A->B", "C->B"), leads=("A->B", "C->B")),
        "two": MemberInfo(name="two", flows=("A->B",)),
    }
    assert choose_leaders(infos) == {"A->B": "two", "C->B": "one"}


def test_who_is_not_ready_waits() -> None:
    """An instance that is still starting takes nothing from a running one; alone it
    leads.
    """
    starting = MemberInfo(name="new", flows=FLOWS, ready=False)
    running = MemberInfo(name="old", flows=FLOWS, leads=FLOWS)
    assert set(choose_leaders({"new": starting, "old": running}).values()) == {"old"}
    assert set(choose_leaders({"new": starting}).values()) == {"new"}


class _Group:
    """Groups of one member each, without brokers: what was said in them, and how."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.said: list[tuple[str, dict[str, Any]]] = []
        """By the password of the connection, what each joining said."""
        self.left: list[str] = []
        self.others: dict[str, bytes] = {}
        """What other members say, by their ids."""
        self.removed: list[str] = []
        group = self

        class FakeCluster:
            def __init__(self, config: ClusterConfig, **_: Any) -> None:
                self.config = config
                self.alias = config.alias
                self.cluster_id = "id"

            def any_connection(self) -> None: ...

            def close(self) -> None: ...

        class FakeMembership:
            member_id = "me"

            def __init__(self, cluster: FakeCluster, _group: str, **how: Any) -> None:
                self.cluster, self.share = cluster, how["share"]

            def go_on(self, cluster: FakeCluster) -> None:
                self.cluster = cluster

            def join(self, says: bytes) -> bytes:
                password = self.cluster.config.sasl_password
                key = password.get_secret_value() if password else ""
                group.said.append((f"{self.cluster.alias}{key}", json.loads(says)))
                answers: dict[str, bytes] = self.share({"me": says, **group.others})
                return answers["me"]

            def heartbeat(self) -> bool:
                return True

            def remove(self, members: Iterable[str], *, reason: str) -> None:
                assert reason == "died"
                group.removed += members
                for each in members:
                    del group.others[each]

            def leave(self) -> None:
                group.left.append(self.cluster.alias)

        monkeypatch.setattr(leadership, "Cluster", FakeCluster)
        monkeypatch.setattr(leadership, "Membership", FakeMembership)
        monkeypatch.setattr(leadership, "host_towards", lambda _: "127.0.0.1")
        monkeypatch.setattr(leadership, "_HEARTBEAT_SECONDS", 0.01)
        monkeypatch.setattr(leadership, "_PAUSE_SECONDS", 0.5)


def _config(*flows: str, password: str = "one") -> MirrorConfig:
    sasl = {
        "security_protocol": "SASL_PLAINTEXT",
        "sasl_mechanism": "PLAIN",
        "sasl_username": "u",
        "sasl_password": password,
    }
    return configuration(
        {
            "clusters": {
                "A": {"bootstrap_servers": "a:1"},
                "B": {"bootstrap_servers": "b:1", **sasl},
                "C": {"bootstrap_servers": "c:1"},
            },
            "flows": {flow: {} for flow in flows},
        }
    )


def test_flows_and_logins_may_change(monkeypatch: pytest.MonkeyPatch) -> None:
    """An added flow is soon led, in a new group as well; the same member uses another
    login; a group without flows is left. Flows that are led stay so all the time.
    """
    group = _Group(monkeypatch)
    config = _config("A->B")
    found = Leadership(config.flows.values(), config.clusters, group="g")

    def now(config: MirrorConfig) -> None:
        found.change(config.flows.values(), config.clusters)

    def soon(*flows: str) -> None:
        deadline = deadline_in(5)
        while not all(found.leads(flow) for flow in flows):
            assert time.monotonic() < deadline
            time.sleep(0.005)

    found.start()
    try:
        found.ready()
        soon("A->B")
        now(_config("A->B", "C->B", "A->C"))
        assert found.leads("A->B")
        soon("C->B", "A->C")
        assert found.leader("A->C") == found.name
        joined = [said["flows"] for key, said in group.said if key == "Bone"][-1]
        assert joined == ["A->B", "C->B"]

        count = len(group.said)
        now(_config("A->B", "C->B", password="two"))
        assert group.left == ["C"]
        assert not found.leads("A->C")
        deadline = deadline_in(5)
        while not any(key == "Btwo" for key, _ in group.said[count:]):
            assert found.leads("A->B")
            assert time.monotonic() < deadline
            time.sleep(0.005)
        assert found.trouble("A->B") == ""

        count = len(group.said)
        now(_config("A->B", "C->B", password="two"))
        time.sleep(0.1)
        assert len(group.said) == count  # nothing changed, so nothing is sent
    finally:
        found.close()
    assert group.left == ["C", "B"]


def test_a_dead_instance_is_put_out_of_the_group(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Its flows are led here as soon as its connection ends, and is refused."""
    group = _Group(monkeypatch)
    config = _config("A->B")
    found = Leadership(config.flows.values(), config.clusters, group="g")
    with closing(Lifelines()) as other:
        lifeline = other.listen("127.0.0.1")
        wish = MemberInfo(name="a", flows=("A->B",), leads=("A->B",), lifeline=lifeline)
        group.others["other"] = json.dumps(asdict(wish)).encode()
        found.start()
        try:
            found.ready()
            wait_for(lambda: found.leader("A->B") == "a", pause=0.005)
            wait_for(lambda: other.dead() or other._held, pause=0.005)
            assert group.removed == []
            other.close()
            wait_for(lambda: found.leads("A->B"), pause=0.005)
            assert group.removed == ["other"]
        finally:
            found.close()


def test_each_flow_has_its_own_time_of_disagreement() -> None:
    """A flow on which instances disagree does not make a new rivalry of another flow
    an old one; one that is over is forgotten.
    """
    known = leadership._KnownFlows()
    known.note_others({"A->B": ["host-1"]})
    first = known.others_since["A->B"]
    while time.monotonic() == first:
        pass
    known.note_others({"A->B": ["host-1"], "B->A": ["host-1"]})
    assert known.others_since["A->B"] == first < known.others_since["B->A"]
    known.note_others({})
    assert not known.others_since
