"""The model that histories run against answers as real brokers do."""

from __future__ import annotations

import contextlib
from functools import partial
import random
from typing import TYPE_CHECKING, Any

from kafka.protocol.admin import (
    ACLOperation,
    ACLPermissionType,
    ACLResourcePatternType,
    ACLResourceType,
)
from pydantic import SecretStr
import pytest

from mirror.clusters.admin import acls, allowed
from mirror.clusters.cluster import Cluster
from tests.harness.admin import create_topic
from tests.harness.configurations import configuration
from tests.harness.producers import add_users
from tests.harness.waiting import wait_for
from tests.simulation import administration, scripts, serving
from tests.simulation.model import ModelCluster
from tests.simulation.network import Network, simulated
from tests.simulation.world import Process, World

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from mirror.config.cluster_settings import ClusterConfig
    from mirror.playground.cluster import PlaygroundCluster

pytestmark = pytest.mark.integration

_SEEDS = range(12)


def _config(bootstrap: str | Sequence[str]) -> ClusterConfig:
    section = {"bootstrap_servers": bootstrap}
    return configuration(
        {
            "clusters": {"A": section, "B": section},
            "flows": {"A->B": {"topics": ["t"]}},
        }
    ).clusters["A"]


def _of_model(
    play: Callable[[Cluster], list[Any]],
    *,
    v2: bool = True,
    topic: str = "",
    secured: bool = False,
) -> list[Any]:
    """What a model with this topic answers."""
    world = World(0)
    network = Network(world)
    answers: list[Any] = []
    with simulated(network):
        model = ModelCluster(network, "m", brokers=1, v2=v2, by_id=True)
        ModelCluster.serve = staticmethod(serving.serve)
        model.acls = set() if secured else None
        if topic:
            model.create(topic, 2, {})
        model.spread()

        def body() -> None:
            with contextlib.closing(Cluster(_config(model.bootstrap)).connect()) as c:
                answers.extend(play(c))

        world.start(Process("client"), body)
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
            play = partial(scripts.play, topic=topic, seed=seed, v2=v2)
            answers = _of_model(play, v2=v2, topic=topic)
            for mine, theirs in zip(answers, play(cluster), strict=True):
                assert mine == theirs, f"seed {seed}"


def _require_same(cluster: Cluster, topic_name: str, *, secured: bool) -> None:
    for seed in _SEEDS:
        topic = f"{topic_name}-{seed}"
        play = partial(scripts.administer, topic=topic, seed=seed)
        answers = _of_model(play, secured=secured)
        for mine, theirs in zip(answers, play(cluster), strict=True):
            assert mine == theirs, f"seed {seed}"


def test_the_model_is_administered_as_brokers_are(
    clusters: dict[str, PlaygroundCluster], topic_name: str
) -> None:
    """Random scripts of topics, partitions, configs and groups, also of topics that are
    not there, and of ACLs where there is no authorizer: every answer is the same.
    """
    config = _config(clusters["a"].bootstrap)
    with contextlib.closing(Cluster(config).connect()) as cluster:
        _require_same(cluster, topic_name, secured=False)


def test_members_of_a_group_in_the_model(
    clusters: dict[str, PlaygroundCluster], topic_name: str
) -> None:
    """A group that divides work: joining, generations, a leader's shares, leaving and
    sessions that end are answered as brokers do.
    """
    play = partial(scripts.divide, group=topic_name)
    with contextlib.closing(
        Cluster(_config(clusters["a"].bootstrap)).connect()
    ) as cluster:
        assert _of_model(play) == play(cluster)


def test_acls_of_the_model(
    secured_pair: dict[str, PlaygroundCluster], topic_name: str
) -> None:
    """Where there is an authorizer, ACLs are as on brokers; and who may write by random
    ones is who may write by the model's.
    """
    made = secured_pair["a"]
    with contextlib.closing(
        Cluster(_config(made.admin_bootstrap)).connect()
    ) as cluster:
        _require_same(cluster, topic_name, secured=True)
        add_users(made, ["alice"])
        assert made.sasl is not None
        as_alice = _config(made.sasl.bootstrap).model_copy(
            update={
                **made.sasl.client_config,
                "sasl_username": "alice",
                "sasl_password": SecretStr("alice"),
            }
        )
        with contextlib.closing(Cluster(as_alice).connect()) as alice:
            choice = random.Random(0).choice
            present: set[acls.Acl] = set()
            for _ in range(40):
                each = acls.Acl(
                    kind="TOPIC", name=choice((topic_name, topic_name[:-1], "*")),
                    pattern=choice(("LITERAL", "PREFIXED")), host="*",
                    principal=choice(("User:alice", "User:*", "User:bob")),
                    operation=choice(("WRITE", "ALL", "READ")),
                    permission=choice(("ALLOW", "ALLOW", "DENY")),
                )  # fmt: skip
                change = acls.delete if each in present else acls.create
                assert not change(cluster, [each])
                present ^= {each}
                _await_rights(
                    alice,
                    topic_name,
                    may_write=_may_write(present, "User:alice", topic_name),
                )


def _await_rights(user: Cluster, topic: str, *, may_write: bool) -> None:
    wait_for(
        lambda: (
            ("WRITE" in (allowed.of_topics(user, [topic])[topic] or ())) is may_write
        ),
        timeout=10,
    )


def _may_write(present: set[acls.Acl], principal: str, topic: str) -> bool:
    """By the model."""
    network = Network(World(0))
    broker = ModelCluster(network, "m", brokers=1, v2=True, by_id=True).brokers[0]
    broker.acls = {
        (
            ACLResourceType[each.kind], each.name, ACLResourcePatternType[each.pattern],
            each.principal, each.host, ACLOperation[each.operation],
            ACLPermissionType[each.permission],
        )
        for each in present
    }  # fmt: skip
    return administration.may_write(broker, principal, topic)
