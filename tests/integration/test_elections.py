"""Partitions that lost their leader go on as soon as they have one."""

from __future__ import annotations

from contextlib import closing
from typing import TYPE_CHECKING

from confluent_kafka.admin import AdminClient, NewTopic
from kafka import KafkaAdminClient, TopicPartition
import pytest

from mirror import retry
from mirror.retry import Backoff
from tests.harness.admin import create_topic
from tests.harness.load import keys, producer, send
from tests.harness.slots import RunningLease, SparklessFlow
from tests.harness.strikes import place
from tests.harness.waiting import wait_for
from tests.harness.witness import Witness

if TYPE_CHECKING:
    from collections.abc import Callable

    from mirror.playground.cluster import PlaygroundCluster

pytestmark = pytest.mark.integration

_EACH = 10


@pytest.mark.parametrize("side", ["source", "target"])
@pytest.mark.parametrize(
    "replicas", [[[1, 2], [3, 1]], [[1], [3]]], ids=["another leads", "it is back"]
)
def test_the_retry_comes_with_the_election(
    clusters: dict[str, PlaygroundCluster],
    make_clusters: Callable[..., dict[str, PlaygroundCluster]],
    topic_name: str,
    replicas: list[list[int]],
    side: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A broker dies, and the partition that it leads, or whose copy, is not due for ten
    minutes: it goes on as soon as its other replica leads, or the broker is back. Each
    record is copied once and in order.
    """
    monkeypatch.setattr(retry, "PARTITION", Backoff(600.0, 600.0))
    name = {"source": "a", "target": "b"}[side]
    cluster = make_clusters(name, nodes=3)[name]
    source, target = (
        (cluster if each == name else clusters[each]).bootstrap for each in "ab"
    )
    flow = SparklessFlow(source=source, target=target, topic=topic_name)
    if side == "target":
        create_topic(source, topic_name, 2)
    new = NewTopic(
        topic_name if side == "source" else flow.copy,
        num_partitions=2,
        replica_assignment=replicas,
        config={"min.insync.replicas": "1"},
    )
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap})
    admin.create_topics([new])[new.topic].result(30)
    first, later = keys(2, _EACH), keys(2, _EACH, first=_EACH)
    send(producer(source), topic_name, first, b"v")
    flow.own()
    with Witness(target) as witness, flow.slot() as slot:
        witness.begin(flow.copy)
        lease = RunningLease(slot, flow.lease(300))
        try:
            witness.wait(2 * _EACH, 60, lease)
            if side == "target":
                _keep_away(cluster, flow.copy)
            cluster.kill(3)
            if side == "target":  # a slot meets the dead leader as it writes
                send(producer(source), topic_name, later, b"v")
            wait_for(lambda: slot._faults.get((topic_name, 1)), 30)
            if len(replicas[1]) == 1:
                cluster.start(3)
            if side == "source":
                send(producer(source), topic_name, later, b"v")
            witness.wait(4 * _EACH, 60, lease)
        finally:
            lease.end()
        witness.assert_exactly(flow.copy, {p: first[p] + later[p] for p in range(2)})


def _keep_away(cluster: PlaygroundCluster, copy: str) -> None:
    """The node that dies has nothing but the copy: all else is written without it."""
    with closing(KafkaAdminClient(bootstrap_servers=cluster.bootstrap)) as admin:
        places = {
            TopicPartition(found["name"], each["partition_index"]): [1, 2]
            for found in admin.describe_topics()
            if found["name"] != copy
            for each in found["partitions"]
        }
    place(cluster, places)
