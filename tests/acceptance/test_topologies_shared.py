"""Topics that several clusters write to: merged on a hub, or shared in a ring."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

import pytest

from tests.harness.admin import copied_records
from tests.harness.topologies import Stage, example, via
from tests.harness.waiting import wait_for

if TYPE_CHECKING:
    from mirror.playground.cluster import PlaygroundCluster
    from tests.harness.standing import StandingMirror

pytestmark = pytest.mark.acceptance


@pytest.mark.full
def test_merging_survives_killed_workers_and_takes_on_one_more_source(
    four_clusters: list[PlaygroundCluster], standing: StandingMirror
) -> None:
    """A topic that two clusters are merged into, to which local producers write and
    which a third cluster joins later, has each record once, with its origin and in the
    order of its source partition, although workers are killed.
    """
    stage = Stage(four_clusters, "berlin", "madrid", "paris", "hub")
    everyone = [(alias, "orders") for alias in ("berlin", "madrid", "paris", "hub")]
    stage.create("hub", "orders", partitions=3)
    stage.create("berlin", "orders", partitions=3)
    stage.create("madrid", "orders", partitions=2)
    stage.create("paris", "orders", partitions=3)
    for origin in everyone:
        stage.send(*origin)
    hub = stage.bootstrap["hub"]
    expected = {"hub": {"orders": [everyone[0], everyone[1], everyone[3]]}}
    without_paris = example("merge.yaml", stage)
    without_paris["flows"]["paris->hub"]["enabled"] = False
    with standing.hosting(without_paris) as mirror:
        stage.wait_for(mirror, expected)
        before = copied_records(hub, "orders")
        killed = threading.Event()

        def keep_sending(alias: str, topic: str) -> None:
            while not killed.wait(0.5):
                stage.send(alias, topic, 50)

        senders = [
            threading.Thread(target=keep_sending, args=origin)
            for origin in expected["hub"]["orders"]
        ]
        for sender in senders:
            sender.start()
        try:
            wait_for(lambda: copied_records(hub, "orders") > before)
            mirror.fail_lease("berlin->hub")
        finally:
            killed.set()
        for sender in senders:
            sender.join()
        stage.wait_for(mirror, expected)
        stage.assert_topics(mirror, {alias: ["orders"] for alias in stage.bootstrap})
    stage.assert_holds(expected)
    expected = {"hub": {"orders": everyone}}
    with standing.hosting(example("merge.yaml", stage)) as mirror:
        for origin in everyone:
            stage.send(*origin)
        stage.wait_for(mirror, expected)
        assert stage.rests()
    stage.assert_holds(expected)
    for message in stage.messages("hub", "orders"):
        origin = message.key().decode().partition(":")[0]
        assert via(message) == ([] if origin == "hub" else [origin])


def test_a_ring_gives_everyone_everything_once(
    four_clusters: list[PlaygroundCluster], standing: StandingMirror
) -> None:
    """Under one name, records of three clusters go round once and stop: each cluster
    has each record once, with the way it took.
    """
    ring = ("tokyo", "berlin", "austin")
    stage = Stage(four_clusters, *ring)
    for alias in ring:
        stage.create(alias, "orders")
        stage.send(alias, "orders")
    everyone = [(alias, "orders") for alias in ring]
    expected = {alias: {"orders": everyone} for alias in ring}
    with standing.hosting(example("ring.yaml", stage)) as mirror:
        stage.wait_for(mirror, expected)
        for alias in ring:
            stage.send(alias, "orders")
        stage.wait_for(mirror, expected)
        # Each flow has left out what came from its target, at the end of its lease.
        stage.send("tokyo", "orders", each=1)
        stage.wait_for(mirror, expected)
        assert stage.rests()
        stage.assert_topics(mirror, expected)
    stage.assert_holds(expected)
    for place, alias in enumerate(ring):
        before = [ring[place - 2], ring[place - 1]]
        ways = {alias: [], before[0]: before, before[1]: before[1:]}
        for message in stage.messages(alias, "orders"):
            assert via(message) == ways[message.key().decode().partition(":")[0]]


@pytest.mark.full
def test_a_ring_of_different_policies(
    four_clusters: list[PlaygroundCluster], standing: StandingMirror
) -> None:
    """Whatever copies are called on the way, a record that would come back to a cluster
    is stopped by its header, and no other topics are created.
    """
    ring = {"tokyo": "orders", "berlin": "eu.orders", "austin": "berlin.eu.orders"}
    stage = Stage(four_clusters, *ring)
    for alias, topic in ring.items():
        stage.create(alias, topic)
        stage.send(alias, topic)
    back = {"policy": "rename", "rename": [{"match": r"berlin\.eu\.(.*)", "to": "$1"}]}
    there = {"policy": "rename", "rename": [{"match": "(orders)", "to": r"eu.\1"}]}
    config = {
        "clusters": {
            alias: {"bootstrap_servers": bootstrap}
            for alias, bootstrap in stage.bootstrap.items()
        },
        "flows": {
            "tokyo->berlin": {**there, "topics": ["orders"]},
            "berlin->austin": {"policy": "default", "topics": [r"eu\..*"]},
            "austin->tokyo": {**back, "topics": [r"berlin\..*"]},
        },
    }
    expected = {alias: {topic: list(ring.items())} for alias, topic in ring.items()}
    with standing.hosting(config) as mirror:
        stage.wait_for(mirror, expected)
        for origin in ring.items():
            stage.send(*origin)
        stage.wait_for(mirror, expected)
        assert stage.rests(4)
        stage.assert_topics(mirror, expected)
    stage.assert_holds(expected)
