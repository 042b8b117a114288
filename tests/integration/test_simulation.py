"""The model that histories run against answers as real brokers do."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Any

import pytest

from mirror.clusters.cluster import Cluster
from mirror.config.schema import MirrorConfig
from tests.harness.admin import create_topic
from tests.simulation import scripts, serving
from tests.simulation.model import ModelCluster
from tests.simulation.network import Network, simulated
from tests.simulation.world import Process, World

if TYPE_CHECKING:
    from collections.abc import Sequence

    from mirror.config.cluster_settings import ClusterConfig
    from mirror.playground.cluster import PlaygroundCluster

pytestmark = pytest.mark.integration

_SEEDS = range(12)


def _config(bootstrap: str | Sequence[str]) -> ClusterConfig:
    section = {"bootstrap_servers": bootstrap}
    return MirrorConfig.model_validate(
        {
            "clusters": {"A": section, "B": section},
            "flows": {"A->B": {"topics": ["t"]}},
        }
    ).clusters["A"]


def _of_model(topic: str, seed: int, *, v2: bool) -> list[Any]:
    world = World(seed)
    network = Network(world)
    answers: list[Any] = []
    with simulated(network):
        model = ModelCluster(network, "m", brokers=1, v2=v2, by_id=True)
        ModelCluster.serve = staticmethod(serving.serve)
        model.create(topic, 2, {})

        def body() -> None:
            with contextlib.closing(Cluster(_config(model.bootstrap)).connect()) as c:
                answers.extend(scripts.play(c, topic, seed, v2=v2))

        world.start(Process("client"), body, "client")
        world.run(600)
    return answers


@pytest.mark.parametrize("v2", [False, True], ids=["v1", "v2"])
def test_the_model_answers_as_brokers_do(
    clusters: dict[str, PlaygroundCluster], topic_name: str, v2: bool
) -> None:
    """Random scripts of producers, transactions, readers and groups, with batches out
    of sequence, old epochs and repeated ends: every answer is the same from both.
    """
    bootstrap = clusters["a"].bootstrap
    with contextlib.closing(Cluster(_config(bootstrap)).connect()) as cluster:
        for seed in _SEEDS:
            topic = f"{topic_name}-{seed}"
            create_topic(bootstrap, topic, 2)
            real = scripts.play(cluster, topic, seed, v2=v2)
            for mine, theirs in zip(_of_model(topic, seed, v2=v2), real, strict=True):
                assert mine == theirs, f"seed {seed}"
