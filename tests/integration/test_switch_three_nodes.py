"""Switches of clusters of three brokers, of which one dies or hangs on each side."""

from __future__ import annotations

from contextlib import closing
import os
import signal
import threading
import time
from typing import TYPE_CHECKING, Any

from confluent_kafka.admin import ResourceType
import pytest

from mirror.clusters.admin import acls
from mirror.clusters.cluster import Cluster
from mirror.config.cluster_settings import ClusterConfig
from mirror.errors import MirrorError, UnreachableError
from mirror.pairs import roles
from tests.harness.admin import create_topic
from tests.harness.application import Application
from tests.harness.metadata import allow, revoke
from tests.harness.producers import add_users, all_acls, scram, write
from tests.harness.rehearsal import Rehearsal
from tests.harness.strikes import active_controller
from tests.harness.switching import Played, secured_pair_of
from tests.harness.waiting import wait_for

if TYPE_CHECKING:
    from pathlib import Path

    from mirror.playground.cluster import PlaygroundCluster

pytestmark = [pytest.mark.integration, pytest.mark.full]

STEPS = ("fence", "drain", "consumers", "positions", "open")
NODES = 3
SLOW_SECONDS, HUNG_SECONDS = 2.0, 12.0
"""The first is shorter than a broker may be silent before it counts as dead."""


@pytest.mark.parametrize("step", STEPS)
def test_a_broker_of_each_dies(
    make_clusters: Any, topic_name: str, tmp_path: Path, step: str
) -> None:
    """A broker of each cluster is killed as a step begins, first the controller, then
    one after the other (so also the coordinators): the switch goes through, or says why
    it was undone and goes through once more; three times there and back the group reads
    every record once.
    """
    clusters = make_clusters("a", "b", nodes=NODES)
    made = tuple(clusters.values())
    with Played(clusters, topic_name, f"N{step[0]}", tmp_path) as played:
        rounds = zip(*(controller_first(each) for each in made), strict=True)
        for nodes in rounds:
            struck = tuple(zip(made, nodes, strict=True))
            played.application.write(played.ends[played.active], 20)
            switch = played.switch()
            switch.reaches(played.ends[played.other], step)
            for cluster, node in struck:
                cluster.kill(node)
            if switch.ends():
                played.switch().succeeds()
            for cluster, node in struck:
                cluster.start(node)
            assert played.shown()["active"] == played.other
            played.go_on()


def controller_first(cluster: PlaygroundCluster) -> list[int]:
    """Its nodes, in the order in which they die."""
    controller = active_controller(cluster)
    return sorted(cluster.nodes, key=lambda node: node != controller)


def stop(pid: int, seconds: float) -> threading.Timer:
    """The process answers nothing for so long."""
    os.kill(pid, signal.SIGSTOP)
    goes_on = threading.Timer(seconds, os.kill, (pid, signal.SIGCONT))
    goes_on.start()
    return goes_on


@pytest.mark.parametrize("step", ["fence", "positions", "open"])
def test_a_broker_of_each_hangs(
    make_clusters: Any, topic_name: str, tmp_path: Path, step: str
) -> None:
    """A broker of each cluster stops answering as a step begins, for two seconds or
    until long after it counts as dead: the switch, which fences by ACLs, goes through,
    or says why it was undone and goes through once more, and the group reads every
    record once.
    """
    clusters = make_clusters("a", "b", nodes=NODES, secured=True)
    tag = f"H{step[0]}"
    with Played(clusters, topic_name, tag, tmp_path, secured=True) as played:
        for node, seconds in enumerate((SLOW_SECONDS, HUNG_SECONDS), 1):
            played.application.write(played.ends[played.active], 20)
            switch = played.switch()
            switch.reaches(played.ends[played.other], step)
            hung = [stop(each.pids()[node], seconds) for each in clusters.values()]
            ended = switch.ends()
            for each in hung:
                each.join()
            if ended:
                played.switch().succeeds()
            assert played.shown()["active"] == played.other
            played.go_on()


def test_brokers_are_asked_side_by_side(make_clusters: Any) -> None:
    """Two of three brokers hang: what each knows of ACLs is there as soon as one has
    been waited for.
    """
    made = make_clusters("a", nodes=NODES, secured=True)["a"]
    config = ClusterConfig(
        alias="A", bootstrap_servers=tuple(made.admin_bootstrap.split(","))
    )
    with closing(Cluster(config).connect()) as cluster:
        awake, *hung = cluster.nodes
        assert all(
            isinstance(f, frozenset) for f in acls.describe_by_broker(cluster).values()
        )
        timers = [stop(made.pids()[node], 60.0) for node in hung]
        try:
            for node in hung:
                cluster.doubt(node)  # or the question for brokers may go there
            began = time.monotonic()
            found = acls.describe_by_broker(cluster)
            took = time.monotonic() - began
        finally:
            for node, timer in zip(hung, timers, strict=True):
                timer.cancel()
                os.kill(made.pids()[node], signal.SIGCONT)
        assert isinstance(found[awake], frozenset)
        assert all(isinstance(found[node], UnreachableError) for node in hung)
        assert took < acls.ANSWER_SECONDS * 1.8


def test_one_broker_answers_otherwise_about_acls(
    make_clusters: Any, topic_name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One of A's three brokers refuses to list ACLs: a switch is undone before it adds
    any. It refuses only once the fence's are created: the switch does not take the
    fence for laid and names the broker; alice may write to A again, and once that
    broker tells, an abort leaves the ACLs as before, one by one. Then it shows earlier
    ACLs for a while: the switch waits for it, and goes through.
    """
    made = make_clusters("a", "b", nodes=NODES, secured=True)
    one, two = (made[name].admin_bootstrap for name in "ab")
    add_users(made["a"], ["alice"])
    alice = scram(made["a"], "alice", "alice")
    create_topic(one, topic_name, NODES)
    assert Application(topic_name, NODES, "app").write(one, 10)
    allow(one, "alice", "WRITE", topic_name)
    # Only there is mirror no super user, and ACLs say what it may do.
    hit = NODES
    properties = made["a"].folder / f"node-{hit}" / "server.properties"
    text = properties.read_text()
    assert "User:admin;" in text
    made["a"].kill(hit)
    properties.write_text(text.replace("User:admin;", ""))
    made["a"].start(hit)
    for kind in (ResourceType.TOPIC, ResourceType.GROUP, ResourceType.TRANSACTIONAL_ID):
        allow(one, "admin", "ALL", "*", kind=kind)
    right = ("admin", "ALL", "kafka-cluster")
    allow(one, *right, kind=ResourceType.BROKER)
    secured = secured_pair_of(
        *zip(("OA", "OB"), made.values(), strict=True), topic_name
    )
    with Rehearsal(
        ("OA", ""), ("OB", ""), topic_name, clusters=secured["clusters"],
        pair={"fence": "acl"}, sync_topic_acls=False,
    ) as rehearsal:  # fmt: skip
        rehearsal.copy(two, f"OA.{topic_name}", 10)
        before = all_acls(one)
        create = acls.create

        def created(_: Cluster, wanted: Any) -> Any:
            raise AssertionError(wanted)

        def refuse() -> None:
            revoke(one, *right, kind=ResourceType.BROKER)

        with monkeypatch.context() as patch:
            patch.setattr(acls, "create", created)
            with pytest.raises(MirrorError) as told:
                rehearsal.carry_out({"fence": refuse})
        assert "CLUSTER_AUTHORIZATION_FAILED" in str(told.value)
        assert "Everything was undone" in str(told.value)
        allow(one, *right, kind=ResourceType.BROKER)

        def create_and_refuse(cluster: Cluster, wanted: Any) -> Any:
            refused = create(cluster, wanted)
            if any(acl.permission == "DENY" for acl in wanted):
                refuse()
            return refused

        with monkeypatch.context() as patch:
            patch.setattr(acls, "create", create_and_refuse)
            with pytest.raises(MirrorError) as told:
                rehearsal.carry_out(step_seconds=5)
        said = str(told.value)
        assert said.startswith("step fence failed: cluster OA: ")
        assert f"broker {hit}: " in said
        assert "CLUSTER_AUTHORIZATION_FAILED" in said
        assert "run the same command with --abort" in said
        wait_for(lambda: write(alice, topic_name) == "")
        allow(one, *right, kind=ResourceType.BROKER)
        rehearsal.abort()
        assert all_acls(one) == before

        ask = acls.describe_by_broker
        earlier = ask(rehearsal.cluster("OA"))[hit]
        shows = iter([earlier] * 5)

        def late(cluster: Cluster) -> Any:
            found = ask(cluster)
            return found | {hit: next(shows, found[hit])}

        def require_all_shown() -> None:
            assert next(shows, None) is None
            assert write(alice, topic_name) == "TOPIC_AUTHORIZATION_FAILED"

        rehearsal.copy(two, f"OA.{topic_name}", 11)
        monkeypatch.setattr(acls, "describe_by_broker", late)
        rehearsal.carry_out({"drain": require_all_shown})
        assert rehearsal.run is not None
        assert rehearsal.run.state(roles.ROLE) == "DONE"
