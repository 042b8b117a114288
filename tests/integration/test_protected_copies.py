"""Copies to which only mirror may write (`protect: acl`): others are refused.

Witnesses are producers of confluent-kafka. Mirror is no super user of the target: it
has the rights that `mirror config acls` lists, and no others.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

from mirror.checks.check import check
from mirror.checks.permissions.rights import rights
from mirror.clusters.admin import acls
from mirror.playground.brokers import playground
from mirror.playground.secured import PASSWORDS, USER
from mirror.service.protecting import ProtectJob
from mirror.topics.acl_notes import TOPIC as NOTES
from tests.harness.admin import create_topic, delete_topic, end_offsets, topic_exists
from tests.harness.application import Application
from tests.harness.configurations import configuration
from tests.harness.few_rights import grant, revoke_all
from tests.harness.metadata import Sides, acls_of, allow, revoke
from tests.harness.producers import add_users, scram, write
from tests.harness.service import RunningMirror
from tests.harness.waiting import wait_for

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from mirror.playground.cluster import PlaygroundCluster

pytestmark = pytest.mark.integration

DENIED = "TOPIC_AUTHORIZATION_FAILED"
DENY = ("WRITE", "DENY")
LOGIN = (USER, PASSWORDS[USER])


@pytest.fixture(scope="module")
def target(
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[PlaygroundCluster]:
    """A cluster on which alice and bob may do what ACLs allow."""
    root = tmp_path_factory.mktemp("protected")
    with playground(("b",), root=root, given=False, secured=True) as made:
        add_users(made["b"], ["alice", "bob"])
        yield made["b"]


def section(cluster: PlaygroundCluster) -> dict[str, Any]:
    """Mirror's own: a user without rights until some are granted."""
    assert cluster.sasl is not None
    return {"bootstrap_servers": cluster.sasl.bootstrap, **cluster.sasl.client_config}


@pytest.mark.full
def test_only_mirror_may_write(
    clusters: dict[str, PlaygroundCluster],
    target: PlaygroundCluster,
    topic_name: str,
    tmp_path: Path,
) -> None:
    """With `protect: acl` a producer that an ACL lets write to a copy is refused there,
    and so is one that gets an ACL later. Mirror goes on copying; another topic is as it
    was. With `none` both may write again, and the ACLs are those from before.
    """
    source, there = clusters["a"].admin_bootstrap, target.admin_bootstrap
    copy, other = f"PA.{topic_name}", f"{topic_name}-other"
    create_topic(source, topic_name)
    create_topic(there, other)
    document: dict[str, Any] = {
        "clusters": {
            "PA": {"bootstrap_servers": clusters["a"].bootstrap},
            "PB": section(target),
        },
        "flows": {
            "PA->PB": {
                "topics": [topic_name], "tasks": 1, "protect": "acl",
                "groups": [], "emit_heartbeats": False, "heartbeats_replication": False,
            }
        },
        "service": {"group": None, "reload_seconds": 0.2},
    }  # fmt: skip
    config = configuration(document)
    grant(there, [each for each in rights(config) if each.cluster == "PB"])
    for topic in (copy, other):
        allow(there, "alice", "WRITE", topic)
    before = acls_of(there)
    alice, bob = (scram(target, user, user) for user in ("alice", "bob"))
    application = Application(topic_name, 1, "none")
    with RunningMirror(document, tmp_path) as mirror:
        mirror.wait_running()
        wait_for(lambda: write(alice, copy) == DENIED)
        assert write(alice, other) == ""
        allow(there, "bob", "WRITE", copy)
        wait_for(lambda: write(bob, copy) == DENIED)
        written = end_offsets(there, copy)
        application.write(source, 5)
        wait_for(lambda: end_offsets(there, copy)[0] >= written[0] + 5)
        assert mirror.flow()["problems"] == []
        found = [each for each in check(config).findings if each.check == "protection"]
        assert ["super users may still write" in each.detail for each in found] == [
            True
        ]

        document["flows"]["PA->PB"]["protect"] = "none"
        service = json.loads((tmp_path / "mirror.yaml").read_text())["service"]
        text = json.dumps({**document, "service": service})
        (tmp_path / "mirror.yaml").write_text(text)
        wait_for(lambda: write(alice, copy) == "")
        wait_for(lambda: write(bob, copy) == "")
        revoke(there, "bob", "WRITE", copy)
        assert acls_of(there) == before
        mirror.assert_never_failed()
    revoke_all(there)


@pytest.fixture
def trusting(
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[PlaygroundCluster]:
    """A cluster on which everyone may write to topics without ACLs."""
    root = tmp_path_factory.mktemp("trusting")
    settings = {"allow.everyone.if.no.acl.found": "true"}
    with playground(
        ("b",), root=root, given=False, secured=True, settings=settings
    ) as made:
        add_users(made["b"], ["alice"])
        yield made["b"]


class Turns:
    """Single turns of the job, without Spark."""

    def __init__(self, made: Sides, flow: str = "QA->QB") -> None:
        self._ends = made.clusters(flow)
        self._made, self._flow = made, flow
        self.problems: list[str] = []
        self._job = ProtectJob(made.flow(flow), made.config, tell=self._told)

    def _told(self, _whose: str, problems: Any) -> None:
        self.problems = list(problems)

    def turn(self, **settings: Any) -> list[str]:
        """One turn, with the flow's settings or others; returns the problems."""
        if settings:
            flow = self._made.flow(self._flow).model_copy(update=settings)
            flows = {**self._made.config.flows, flow.name: flow}
            config = self._made.config.model_copy(update={"flows": flows})
            self._job.adopt(flow, config)
        self._job.begin(self._ends[1])
        for each in self._job.jobs():
            each.work(*self._ends)
        return self.problems


def test_what_cannot_be_protected(
    clusters: dict[str, PlaygroundCluster],
    target: PlaygroundCluster,
    topic_name: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A copy that ACLs cannot protect is a problem, and the others are protected all
    the same; it goes once it can be. What stands is not written again. A copy that the
    flow leaves out, and one that is deleted, are given back.
    """
    source, there = clusters["a"].admin_bootstrap, target.admin_bootstrap
    names = [f"{topic_name}-{n}" for n in range(3)]
    copies = [f"QA.{each}" for each in names]
    for name in names:
        create_topic(source, name)
    for name in (*copies, f"{copies[0]}-mine"):
        create_topic(there, name)
    sections = {"QA": source, "QB": there}
    settings = {"topics": names, "protect": "acl"}
    for copy in copies[1:]:
        allow(there, "alice", "WRITE", copy)
    allow(there, "*", "WRITE", copies[0], pattern="PREFIXED")
    before = acls_of(there)

    def denied() -> set[str]:
        shown = acls_of(there, about=topic_name)
        return {name for _, what, how, name, _ in shown if (what, how) == DENY}

    plain = {"QA": source, "QB": clusters["b"].bootstrap}
    with Sides(plain, {"QA->QB": settings}) as made:
        (problem,) = Turns(made).turn()
        assert "QB has no authorizer" in problem
        assert "use `protect: none`" in problem
    with Sides(sections, {"QA->QB": settings}) as made:
        turns = Turns(made)
        (problem,) = turns.turn()
        assert f"also lets everyone write to {copies[0]}-mine" in problem
        assert denied() == {*copies[1:]}
        revoke(there, "*", "WRITE", copies[0], pattern="PREFIXED")
        allow(there, "alice", "WRITE", copies[0])
        before = {acl for acl in before if acl[0] != "User:*"}
        assert turns.turn() == []
        assert denied() == {*copies}

        noted = end_offsets(there, NOTES)
        with monkeypatch.context() as patched:
            patched.setattr(acls, "create", None)
            patched.setattr(acls, "delete", None)
            assert turns.turn() == []
        assert end_offsets(there, NOTES) == noted

        delete_topic(source, names[2])
        assert turns.turn() == []
        assert denied() == {*copies}
        delete_topic(there, copies[2])
        assert turns.turn(topics=(names[1],)) == []
        assert denied() == {copies[1]}
        delete_topic(there, copies[1])
        assert turns.turn(protect="none") == []
        revoke(there, "alice", "WRITE", copies[0])
        assert acls_of(there) == before
    assert not topic_exists(clusters["b"].bootstrap, NOTES)


def test_two_flows_protect_one_copy(
    clusters: dict[str, PlaygroundCluster],
    trusting: PlaygroundCluster,
    topic_name: str,
) -> None:
    """A copy without ACLs, to which everyone may write, is mirror's alone for as long
    as one of its flows protects it; then all is as it was.
    """
    there = trusting.admin_bootstrap
    sources = {"SA": clusters["a"].bootstrap, "SC": clusters["b"].bootstrap}
    for bootstrap in (*sources.values(), there):
        create_topic(bootstrap, topic_name)
    alice, own = scram(trusting, "alice", "alice"), scram(trusting, *LOGIN)
    assert write(alice, topic_name) == ""
    settings = {"topics": [topic_name], "policy": "identity", "protect": "acl"}
    names = [f"{alias}->SB" for alias in sources]
    with Sides(
        {**sources, "SB": section(trusting)}, dict.fromkeys(names, settings)
    ) as made:
        flows = [Turns(made, name) for name in names]
        for flow in flows:
            assert flow.turn() == []
        assert (write(alice, topic_name), write(own, topic_name)) == (DENIED, "")
        for flow in flows:
            assert flow.turn(protect="none") == []
            last = flow is flows[-1]
            assert write(own, topic_name) == ""
            assert write(alice, topic_name) == ("" if last else DENIED)
    assert acls_of(there) == set()
