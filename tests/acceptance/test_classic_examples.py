"""A file as published guides write it, run as it is, on real clusters."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.harness.admin import end_offsets
from tests.harness.metadata import overrides
from tests.harness.topologies import RunningExample, Stage, via

if TYPE_CHECKING:
    from pathlib import Path

    from mirror.playground.cluster import PlaygroundCluster

pytestmark = [pytest.mark.acceptance, pytest.mark.full]

FILE = "from-mirrormaker2/three-into-one.properties"


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
