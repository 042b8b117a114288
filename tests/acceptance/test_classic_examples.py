"""Files as guides write them, run as they are, on real clusters."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.harness.admin import end_offsets, topic_exists
from tests.harness.group_moves import run_java
from tests.harness.metadata import overrides
from tests.harness.topologies import RunningExample, Stage, topics_of, via
from tests.harness.waiting import wait_for

if TYPE_CHECKING:
    from mirror.playground.cluster import PlaygroundCluster

pytestmark = [pytest.mark.acceptance, pytest.mark.full]

JAVA = Path(__file__).parents[1] / "java" / "AskMirrorClient.java"
FILE = "from-mirrormaker2/three-into-one.properties"
ONE_WAY = "from-mirrormaker2/one-way.properties"


def test_java_finds_the_source_of_a_one_way_file(
    four_clusters: list[PlaygroundCluster], tmp_path: Path
) -> None:
    """With the file of MirrorMaker 2's guide unchanged, the source has heartbeats of
    its own and the target copies of them, so Kafka's own client on the target names
    the source and how many hops away it is.
    """
    stage = Stage(four_clusters, "primary", "backup")
    stage.create("primary", "orders")
    stage.send("primary", "orders")
    expected = {"backup": {"primary.orders": [("primary", "orders")]}}
    one_broker = {"DEFAULTS__tasks": "1", "DEFAULTS__replication_factor": "1"}
    target = stage.bootstrap["backup"]
    with RunningExample(ONE_WAY, stage, tmp_path, **one_broker) as mirror:
        stage.wait_for(mirror, expected)
        wait_for(lambda: topic_exists(target, "primary.heartbeats"), timeout=60)
        wait_for(lambda: end_offsets(target, "primary.heartbeats")[0] > 0, timeout=60)
        assert mirror.terminate() == 0, mirror.log_tail()
    stage.assert_holds(expected)
    assert topics_of(stage.bootstrap["primary"]) == {"orders", "heartbeats"}
    said = run_java("mirror-client", JAVA, target, "primary").splitlines()
    assert [line for line in said if line.startswith("upstream")] == [
        "upstream\tprimary"
    ]
    assert "hops\tprimary\t1" in said
    assert "hops\tnobody\t-1" in said
    assert "heartbeat\tprimary.heartbeats" in said


def test_three_data_centres_are_merged_into_one(
    four_clusters: list[PlaygroundCluster], tmp_path: Path
) -> None:
    """Topics with one name become one, with the partitions that the file sets and the
    configs on which all three agree; every record is there once, in its order, with its
    origin. Only addresses, replicas and slots differ from the file, since these
    clusters have one broker.
    """
    stage = Stage(four_clusters, "dc1", "dc2", "dc3", "target")
    for alias in ("dc1", "dc2", "dc3"):
        stage.create(alias, "orders")
        stage.send(alias, "orders")
    stage.create("dc2", "payments.card")
    stage.send("dc2", "payments.card")
    origins = [(alias, "orders") for alias in ("dc1", "dc2", "dc3")]
    expected = {
        "target": {"orders": origins, "payments.card": [("dc2", "payments.card")]}
    }
    one_broker = {
        "DEFAULTS__tasks": "1",
        "DEFAULTS__replication_factor": "1",
        "DEFAULTS__min_insync_replicas": "1",
    }
    with RunningExample(FILE, stage, tmp_path, **one_broker) as mirror:
        stage.wait_for(mirror, expected)
        for origin in (*origins, ("dc2", "payments.card")):
            stage.send(*origin)
        stage.wait_for(mirror, expected)
        assert stage.rests()
        assert mirror.terminate() == 0, mirror.log_tail()
    stage.assert_holds(expected)
    stamps = {tuple(via(each)) for each in stage.messages("target", "orders")}
    assert stamps == {("dc1",), ("dc2",), ("dc3",)}
    target = stage.bootstrap["target"]
    assert overrides(target, "orders")["min.insync.replicas"] == "1"
    assert len(end_offsets(target, "orders")) == 6
