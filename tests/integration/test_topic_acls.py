"""ACLs of copies on real brokers: refused, without authorizer, given, taken back."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

from confluent_kafka.admin import ResourceType
import pytest

from mirror.playground.secured import USER
from mirror.status.states import AclState
from mirror.topics import acls
from mirror.topics.acl_notes import AclOwnership
from tests.harness.admin import alter_topic, create_topic, topic_exists
from tests.harness.metadata import Sides, acls_of, allow, of, overrides, revoke, sides
from tests.harness.waiting import deadline_in

if TYPE_CHECKING:
    from mirror.playground.cluster import PlaygroundCluster

pytestmark = pytest.mark.integration

Ends = dict[str, Any]


@pytest.fixture
def ends(secured_pair: dict[str, PlaygroundCluster]) -> Ends:
    """Both clusters as a super user sees them."""
    return {
        "A": secured_pair["a"].admin_bootstrap,
        "B": secured_pair["b"].admin_bootstrap,
    }


def as_user(cluster: PlaygroundCluster) -> dict[str, str]:
    return {"bootstrap_servers": cluster.bootstrap, **cluster.client_config}


def settle(made: Sides, flow: str = "A->B") -> None:
    """Turns until there is nothing to do: brokers learn of ACLs a moment later."""
    deadline = deadline_in()
    while (result := made.sync_acls(flow)).added or result.removed:
        assert time.monotonic() < deadline, result
        time.sleep(0.1)
    assert result.state is AclState.SYNCED
    assert result.problems == ()


def test_without_an_authorizer(
    clusters: dict[str, PlaygroundCluster], ends: Ends, topic_name: str
) -> None:
    """A cluster without an authorizer, on either side, is a state with a reason that
    names it, and nothing is written anywhere.
    """
    plain = clusters["a"].bootstrap
    with Sides({"P": plain, **ends}, {"P->A": {}, "A->P": {}}) as made:
        for flow in ("P->A", "A->P"):
            result = made.sync_acls(flow)
            assert result.state is AclState.NO_AUTHORIZER
            assert "cluster P" in result.reason
    assert not topic_exists(ends["A"], "mirror-acls.P.internal")
    assert not topic_exists(plain, "mirror-acls.A.internal")


def test_without_permission(
    secured_pair: dict[str, PlaygroundCluster], ends: Ends, topic_name: str
) -> None:
    """Without the right to list ACLs there is a state that names the cluster; with it
    but without the right to create any, each refusal is a problem, and mirror claims no
    ACL.
    """
    create_topic(ends["A"], topic_name)
    create_topic(ends["B"], f"A.{topic_name}")
    allow(ends["A"], "alice", "READ", topic_name)
    user = {"A": ends["A"], "B": as_user(secured_pair["b"])}
    everything = {"kind": ResourceType.BROKER}
    with sides(user, topics=[topic_name]) as made:
        result = made.sync_acls()
        assert result.state is AclState.NOT_PERMITTED
        assert "cluster B" in result.reason
    rights: list[tuple[str, str, dict[str, Any]]] = [
        ("DESCRIBE", "kafka-cluster", everything),
        ("CREATE", "kafka-cluster", everything),
        ("ALL", "mirror-acls.A.internal", {}),
        ("IDEMPOTENT_WRITE", "kafka-cluster", everything),
    ]
    for operation, name, more in rights:
        allow(ends["B"], USER, operation, name, **more)
    try:
        with sides(user, topics=[topic_name]) as made:
            result = made.sync_acls()
            assert result.state is AclState.SYNCED
            assert result.added == ()
            (problem,) = result.problems
            assert "User:alice READ" in problem
            assert "AUTHORIZATION_FAILED" in problem
            owned = AclOwnership(made.reach("B")).of_source("A")
            assert not any(topic_name in binding.topic for binding in owned)
    finally:
        for operation, name, more in rights:
            revoke(ends["B"], USER, operation, name, **more)
        revoke(ends["A"], "alice", "READ", topic_name)
    assert acls_of(ends["B"], about=topic_name) == set()


def test_configs_without_permission(
    secured_pair: dict[str, PlaygroundCluster], ends: Ends, topic_name: str
) -> None:
    """Without the right to see a topic's configs there is still a copy, and a problem;
    without the right to change those of one copy there is a problem for this one, and
    the other is corrected.
    """
    names = [f"{topic_name}-{n}" for n in range(2)]
    for name in names:
        create_topic(ends["A"], name, retention_ms="1000000")
    user = {alias: as_user(secured_pair[alias.lower()]) for alias in "AB"}
    for name in names:
        allow(ends["A"], USER, "DESCRIBE", name)
        allow(ends["B"], USER, "DESCRIBE", f"A.{name}")
        allow(ends["B"], USER, "CREATE", f"A.{name}")
    with sides(user, topics=[f"{topic_name}-.*"]) as made:
        found = made.sync_topics()
        assert set(found.created) == {f"A.{name}" for name in names}
        assert len(found.problems) == 2
        assert names[0] in found.problems[0]
        assert "AUTHORIZATION_FAILED" in found.problems[0]
        result = made.sync_configs()
        assert len(result.problems) == 2
        assert result.corrected == ()

        for name in names:
            allow(ends["A"], USER, "DESCRIBE_CONFIGS", name)
            allow(ends["B"], USER, "DESCRIBE_CONFIGS", f"A.{name}")
        allow(ends["B"], USER, "ALTER_CONFIGS", f"A.{names[0]}")
        result = made.sync_configs()
    assert not of(result, names[0]).differs
    refused = of(result, names[1])
    assert [each.name for each in refused.configs] == ["retention.ms"]
    assert "AUTHORIZATION_FAILED" in refused.problem
    assert overrides(ends["B"], f"A.{names[0]}") == {"retention.ms": "1000000"}
    assert overrides(ends["B"], f"A.{names[1]}") == {}
    alter_topic(ends["B"], f"A.{names[1]}", retention_ms="1000000")


def test_rules(ends: Ends, topic_name: str) -> None:
    """Copies get what MirrorMaker 2 gives them: no right to write, READ for ALL,
    everything else as it is; no PREFIXED ACLs, and none of topics that are not copied.
    A second turn has nothing to do.
    """
    create_topic(ends["A"], topic_name)
    for principal, operation, permission in (
        ("reader", "READ", "ALLOW"),
        ("writer", "WRITE", "ALLOW"),
        ("owner", "ALL", "ALLOW"),
        ("admin", "ALTER_CONFIGS", "ALLOW"),
        ("enemy", "WRITE", "DENY"),
        ("stranger", "ALL", "DENY"),
    ):
        allow(ends["A"], principal, operation, topic_name, permission=permission)
    allow(ends["A"], "team", "READ", topic_name[:-1], pattern="PREFIXED")
    allow(ends["A"], "reader", "READ", f"other-{topic_name}")
    with sides(ends, topics=[topic_name]) as made:
        looked = made.look_at_acls()
        assert acls_of(ends["B"], about=topic_name[:-1]) == set()
        result = made.sync_acls()
        assert set(result.added) == set(looked.added) == set(result.wanted)
        settle(made)
    copy = f"A.{topic_name}"
    assert acls_of(ends["B"], about=topic_name[:-1]) == {
        ("User:reader", "READ", "ALLOW", copy, "LITERAL"),
        ("User:owner", "READ", "ALLOW", copy, "LITERAL"),
        ("User:admin", "ALTER_CONFIGS", "ALLOW", copy, "LITERAL"),
        ("User:enemy", "WRITE", "DENY", copy, "LITERAL"),
        ("User:stranger", "ALL", "DENY", copy, "LITERAL"),
    }
    reasons = {(s.binding.principal, s.reason) for s in looked.skipped}
    assert ("User:writer", "copies are read-only") in reasons
    assert ("User:team", "PREFIXED, and sync_prefixed_acls is off") in reasons


def test_prefixed(ends: Ends, topic_name: str) -> None:
    """With sync_prefixed_acls an ACL for a prefix of topics becomes one for their
    copies, and is removed with it.
    """
    create_topic(ends["A"], topic_name)
    start = topic_name[:-2]
    allow(ends["A"], "team", "READ", start, pattern="PREFIXED")
    with sides(ends, topics=[topic_name], sync_prefixed_acls=True) as made:
        settle(made)
        assert acls_of(ends["B"], about=start) == {
            ("User:team", "READ", "ALLOW", f"A.{start}", "PREFIXED")
        }
        revoke(ends["A"], "team", "READ", start, pattern="PREFIXED")
        settle(made)
    assert acls_of(ends["B"], about=start) == set()


def test_all_topics(ends: Ends) -> None:
    """A right to all topics becomes one to all copies of that source, and to nothing
    else on the target, and is removed with it.
    """
    places = {"W": ends["A"], "B": ends["B"]}
    allow(ends["A"], "auditor", "READ", "*")
    with sides(places, "W->B") as made:
        settle(made, "W->B")
        given = {acl for acl in acls_of(ends["B"]) if acl[0] == "User:auditor"}
        assert given == {("User:auditor", "READ", "ALLOW", "W.", "PREFIXED")}
        revoke(ends["A"], "auditor", "READ", "*")
        settle(made, "W->B")
    assert not {acl for acl in acls_of(ends["B"]) if acl[0] == "User:auditor"}


def test_revoked_is_taken_back_and_nothing_else(ends: Ends, topic_name: str) -> None:
    """What is revoked on the source is removed from the copy; an ACL that a person gave
    the copy stays, even if it is the very same; so does what was given to a topic that
    the flow no longer copies.
    """
    copy, other = f"A.{topic_name}", f"{topic_name}-other"
    for topic in (topic_name, other):
        create_topic(ends["A"], topic)
        allow(ends["A"], "alice", "READ", topic)
        allow(ends["A"], "bob", "READ", topic)
    allow(ends["B"], "bob", "READ", copy)
    allow(ends["B"], "carol", "WRITE", copy)
    with sides(ends, topics=[f"{topic_name}.*"]) as made:
        settle(made)
    revoke(ends["A"], "alice", "READ", topic_name)
    revoke(ends["A"], "bob", "READ", topic_name)
    with sides(ends, topics=[topic_name]) as made:
        assert len(made.look_at_acls().removed) == 1
        settle(made)
    assert acls_of(ends["B"], about=topic_name) == {
        ("User:bob", "READ", "ALLOW", copy, "LITERAL"),
        ("User:carol", "WRITE", "ALLOW", copy, "LITERAL"),
        ("User:alice", "READ", "ALLOW", f"A.{other}", "LITERAL"),
        ("User:bob", "READ", "ALLOW", f"A.{other}", "LITERAL"),
    }


def test_a_crash_after_the_note(
    ends: Ends, topic_name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A service that dies between claiming an ACL and adding it, or between removing it
    and withdrawing the claim, leaves nothing that the next turn does not put right.
    """
    create_topic(ends["A"], topic_name)
    allow(ends["A"], "alice", "READ", topic_name)

    class CrashError(Exception):
        pass

    def crash(*_: object) -> None:
        raise CrashError

    given = {("User:alice", "READ", "ALLOW", f"A.{topic_name}", "LITERAL")}
    with sides(ends, topics=[topic_name]) as made:
        with monkeypatch.context() as patch:
            patch.setattr(acls.acls, "create", crash)
            with pytest.raises(CrashError):
                made.sync_acls()
        assert acls_of(ends["B"], about=topic_name) == set()
        settle(made)
        assert acls_of(ends["B"], about=topic_name) == given
        revoke(ends["A"], "alice", "READ", topic_name)
        with monkeypatch.context() as patch:
            patch.setattr(AclOwnership, "remove", crash)
            with pytest.raises(CrashError):
                made.sync_acls()
        settle(made)
        assert acls_of(ends["B"], about=topic_name) == set()
        owned = AclOwnership(made.reach("B")).of_source("A")
        assert not any(topic_name in binding.topic for binding in owned)


def test_both_ways_nothing_allows_for_itself(ends: Ends, topic_name: str) -> None:
    """Two flows copy one topic both ways, and so each other's ACLs; still, an ACL that
    is revoked where it was made is revoked on both sides.
    """
    common = {"topics": [topic_name], "policy": "identity"}
    for bootstrap in ends.values():
        create_topic(bootstrap, topic_name)
    allow(ends["A"], "alice", "ALL", topic_name)
    with Sides(ends, {"A->B": common, "B->A": common}) as made:
        for _ in range(2):
            settle(made, "A->B")
            settle(made, "B->A")
        assert acls_of(ends["A"], about=topic_name) == {
            ("User:alice", "ALL", "ALLOW", topic_name, "LITERAL")
        }
        assert acls_of(ends["B"], about=topic_name) == {
            ("User:alice", "READ", "ALLOW", topic_name, "LITERAL")
        }
        revoke(ends["A"], "alice", "ALL", topic_name)
        for _ in range(2):
            settle(made, "B->A")
            settle(made, "A->B")
    assert acls_of(ends["A"], about=topic_name) == set()
    assert acls_of(ends["B"], about=topic_name) == set()


def test_two_sources_of_one_copy(ends: Ends, topic_name: str) -> None:
    """An ACL that two sources have stays until both have revoked it."""
    # Two aliases of one cluster stand for two sources with the same ACLs.
    places = {"A": ends["A"], "C": ends["A"], "B": ends["B"]}
    common = {"topics": [topic_name], "policy": "identity"}
    create_topic(ends["A"], topic_name)
    allow(ends["A"], "alice", "READ", topic_name)
    given = {("User:alice", "READ", "ALLOW", topic_name, "LITERAL")}
    with Sides(places, {"A->B": common, "C->B": common}) as made:
        settle(made, "A->B")
        settle(made, "C->B")
        assert acls_of(ends["B"], about=topic_name) == given
        revoke(ends["A"], "alice", "READ", topic_name)
        settle(made, "A->B")
        assert acls_of(ends["B"], about=topic_name) == given
        settle(made, "C->B")
    assert acls_of(ends["B"], about=topic_name) == set()
