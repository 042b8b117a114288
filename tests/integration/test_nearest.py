"""Reading from the nearest replica: who serves, and what happens when it is gone."""

from __future__ import annotations

from contextlib import closing
from typing import TYPE_CHECKING

from confluent_kafka.admin import AdminClient, NewTopic
import pytest

from mirror.clusters.admin import brokers
from mirror.clusters.cluster import Cluster
from tests.harness.load import NumberedLoad, producer
from tests.harness.request_log import LOGGED, sent_bytes
from tests.harness.slots import RunningLease, SparklessFlow
from tests.harness.waiting import wait_for
from tests.harness.witness import Witness, assert_exactly_once, order_of

if TYPE_CHECKING:
    from collections.abc import Callable

    from mirror.playground.cluster import PlaygroundCluster

pytestmark = [pytest.mark.integration, pytest.mark.full]

RACKS = {
    "broker.rack": "rack-{node}",
    "replica.selector.class": "org.apache.kafka.common.replica."
    "RackAwareReplicaSelector",
}
_LEADER, _NEAR, _THIRD = 1, 2, 3
_ENOUGH = 2_000


def test_a_follower_in_the_rack_serves_until_it_dies(
    clusters: dict[str, PlaygroundCluster],
    make_clusters: Callable[..., dict[str, PlaygroundCluster]],
    topic_name: str,
) -> None:
    """With `rack`, the broker of that rack, which leads nothing, sends nearly all
    bytes, by the brokers' own request logs. What was aborted is not copied. The
    follower is killed and the leader serves; the follower comes back, the leader is
    killed and another broker leads: every record is copied once, in order, and the lag
    is known to be zero.
    """
    cluster = make_clusters("a", nodes=3, settings=RACKS, jvm=LOGGED)["a"]
    target = clusters["b"].bootstrap
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap})
    new = NewTopic(
        topic_name, num_partitions=2, replica_assignment=[[_LEADER, _NEAR, _THIRD]] * 2
    )
    admin.create_topics([new])[topic_name].result(30)
    for each in cluster.bootstrap.split(","):  # each broker knows of it
        alone = AdminClient({"bootstrap.servers": each})
        wait_for(lambda of=alone: _in_sync(of, topic_name) == {1, 2, 3})
    load = NumberedLoad(cluster.bootstrap, topic_name, 2, seed=1)
    flow = SparklessFlow(
        source=cluster.bootstrap,
        target=target,
        topic=topic_name,
        timeout=10.0,
        settings={"rack": f"rack-{_NEAR}"},
    ).own()

    def sent(node: int) -> int:
        return sent_bytes(cluster, node, topic_name, f"mirror.{flow.name}.")

    with closing(Cluster(flow.plan.source).connect()) as source:
        assert brokers.racks(source) == {"rack-1", "rack-2", "rack-3"}
    load.send(_ENOUGH)
    _abort(cluster.bootstrap, topic_name)
    load.send(_ENOUGH)
    with Witness(target) as witness, flow.slot() as slot:
        witness.begin(flow.copy)
        lease = RunningLease(slot, flow.lease(600))
        try:
            witness.wait(load.total, 90, lease)
            by_follower = sent(_NEAR)
            assert by_follower > 10 * (sent(_LEADER) + sent(_THIRD))
            assert by_follower > 100_000

            cluster.kill(_NEAR)
            load.send(_ENOUGH)
            witness.wait(load.total, 90, lease)
            wait_for(lambda: sent(_LEADER) > by_follower / 4)

            cluster.start(_NEAR)
            wait_for(lambda: _in_sync(admin, topic_name) == {1, 2, 3})
            cluster.kill(_LEADER)
            load.send(_ENOUGH)
            witness.wait(load.total, 90, lease)
        finally:
            reports = lease.end()
    assert [(each.state, each.lag) for each in reports] == [("RUNNING", 0)] * 2
    assert_exactly_once(order_of(target, flow.copy), load.order)


def _abort(bootstrap: str, topic: str) -> None:
    """Write records to both partitions that no one is to read."""
    client = producer(bootstrap, transactional_id=f"{topic}-aborted")
    client.init_transactions(60)
    client.begin_transaction()
    for partition in range(2):
        for number in range(50):
            client.produce(
                topic, key=b"aborted %d" % number, value=b"v", partition=partition
            )
    assert client.flush(60) == 0
    client.abort_transaction(60)


def _in_sync(admin: AdminClient, topic: str) -> set[int]:
    """The brokers that are in sync in every partition; none, while it is not known."""
    partitions = admin.list_topics(topic, 30).topics[topic].partitions.values()
    found = [set(each.isrs) for each in partitions]
    return set.intersection(*found) if found else set()
