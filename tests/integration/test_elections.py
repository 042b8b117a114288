"""Partitions that lost their leader go on as soon as they have one."""

from __future__ import annotations

from typing import TYPE_CHECKING
import uuid

from confluent_kafka.admin import AdminClient, NewTopic
import pytest

from mirror import retry
from mirror.retry import Backoff
from tests.harness.load import keys, producer, send
from tests.harness.slots import RunningLease, SparklessFlow
from tests.harness.waiting import wait_for
from tests.harness.witness import Witness

if TYPE_CHECKING:
    from collections.abc import Callable

    from mirror.playground.cluster import PlaygroundCluster

pytestmark = pytest.mark.integration

_EACH = 10


def test_the_retry_comes_with_the_election(
    clusters: dict[str, PlaygroundCluster],
    make_clusters: Callable[..., dict[str, PlaygroundCluster]],
    topic_name: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A broker of the source dies, and leads two of three partitions, which are not due
    for ten minutes. One has another replica: it goes on once that one leads. The other
    goes on once the broker is back. Each record is copied once and in order.
    """
    monkeypatch.setattr(retry, "PARTITION", Backoff(600.0, 600.0))
    cluster, target = make_clusters("a", nodes=3)["a"], clusters["b"].bootstrap
    new = NewTopic(
        topic_name,
        num_partitions=3,
        replica_assignment=[[1], [3, 1], [3]],
        config={"min.insync.replicas": "1"},
    )
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap})
    admin.create_topics([new])[topic_name].result(30)
    first, later = keys(3, _EACH), keys(3, _EACH, first=_EACH)
    send(producer(cluster.bootstrap), topic_name, first, b"v")
    flow = SparklessFlow(
        source=cluster.bootstrap,
        target=target,
        topic=topic_name,
        alias=f"L{uuid.uuid4().hex[:6]}",
    ).own()
    with Witness(target) as witness, flow.slot() as slot:
        witness.begin(flow.copy)
        lease = RunningLease(slot, flow.lease(300))
        try:
            witness.wait(3 * _EACH, 60, lease)
            cluster.kill(3)
            wait_for(lambda: len(slot._elections._lost) == 2)
            for partition in (0, 1):
                some = {partition: later[partition]}
                send(producer(cluster.bootstrap), topic_name, some, b"v")
            witness.wait(5 * _EACH, 60, lease)
            cluster.start(3)
            send(producer(cluster.bootstrap), topic_name, {2: later[2]}, b"v")
            witness.wait(6 * _EACH, 60, lease)
        finally:
            lease.end()
    witness.assert_exactly(flow.copy, {p: first[p] + later[p] for p in range(3)})
