"""Switches of clusters of three brokers, of which one dies on each side meanwhile."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from tests.harness.switching import Played

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = [pytest.mark.integration, pytest.mark.full]

STEPS = ("fence", "drain", "consumers", "positions", "open")
NODES = 3


@pytest.mark.parametrize("step", STEPS)
def test_a_broker_of_each_dies(
    make_clusters: Any, topic_name: str, tmp_path: Path, step: str
) -> None:
    """A broker of each cluster is killed as a step begins, another one each time (so
    also the controller and the coordinators): the switch goes through, or says why it
    was undone and goes through once more; three times there and back the group reads
    every record once.
    """
    clusters = make_clusters("a", "b", nodes=NODES)
    made = tuple(clusters.values())
    with Played(clusters, topic_name, f"N{step[0]}", tmp_path) as played:
        for node in range(1, NODES + 1):
            played.application.write(played.ends[played.active], 20)
            switch = played.switch()
            switch.reaches(played.ends[played.other], step)
            for cluster in made:
                cluster.kill(node)
            if switch.ends():
                played.switch().succeeds()
            for cluster in made:
                cluster.start(node)
            assert played.shown()["active"] == played.other
            played.go_on()
