"""What a leader says of an epoch whose batches compaction took, all of them."""

from __future__ import annotations

import shutil
from typing import TYPE_CHECKING

from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic
import pytest

from mirror.copying import gaps
from mirror.copying.gaps import Gap, Suspect
from mirror.offsets.progress import Position
from mirror.pairs.losses import Cause
from tests.harness.connections import connected
from tests.harness.waiting import wait_for
from tests.harness.witness import read_topic

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from mirror.clusters.topics import Leader
    from mirror.playground.cluster import PlaygroundCluster

pytestmark = pytest.mark.integration


def put(bootstrap: str, topic: str, numbers: Iterable[int]) -> None:
    # Not idempotent: the cleaner keeps the last batch of a producer that it knows.
    client = Producer({"bootstrap.servers": bootstrap, "enable.idempotence": False})
    for number in numbers:
        client.produce(topic, key=b"%d" % number, value=b"v", partition=0)
    assert client.flush(30) == 0


def leader_of(bootstrap: str, topic: str) -> Leader:
    with connected(bootstrap) as cluster:
        return cluster.topics([topic])[topic].leaders[0]


def gap_at(bootstrap: str, topic: str, position: Position) -> Gap | None:
    with connected(bootstrap) as cluster:
        suspect = Suspect(topic=topic, partition=0, position=position)
        (found,) = gaps.look(cluster, [suspect])
    return found.gap


@pytest.mark.full
def test_an_epoch_that_compaction_took_is_told_of_rather_than_hidden(
    make_clusters: Callable[..., dict[str, PlaygroundCluster]], topic_name: str
) -> None:
    """A replica that was rebuilt from a compacted log does not know an epoch of which
    no batch is left. Its log is the one that two unclean elections may leave, so the
    record before the position counts as lost, and copying goes on where it was; the
    replica that was not rebuilt knows better.
    """
    settings = {"log.cleaner.backoff.ms": "100", "log.cleaner.threads": "1"}
    source = make_clusters("a", nodes=3, settings=settings)["a"]
    assert source.folder is not None
    a, topic = source.bootstrap, topic_name
    new = NewTopic(
        topic, num_partitions=1, replica_assignment=[[1, 2]],
        config={
            "cleanup.policy": "compact", "segment.ms": "100",
            "min.cleanable.dirty.ratio": "0.0001", "min.insync.replicas": "1",
        },
    )  # fmt: skip
    client = AdminClient({"bootstrap.servers": a})
    client.create_topics([new])[topic].result(30)

    def both_in_sync() -> bool:
        seen = client.list_topics(topic, 30).topics[topic]
        return len(seen.partitions[0].isrs) == 2

    put(a, topic, range(100, 110))  # keys that stay
    source.kill(1)
    wait_for(lambda: leader_of(a, topic).node == 2)
    put(a, topic, range(10))
    position = Position(offset=20, leader_epoch=leader_of(a, topic).epoch)
    source.start(1)
    wait_for(both_in_sync)
    source.kill(2)
    wait_for(lambda: leader_of(a, topic).node == 1)

    def epoch_is_gone() -> bool:
        put(a, topic, range(10))  # a segment ends with the next write
        offsets = [message.offset() for message in read_topic(a, topic)[0]]
        return not any(10 <= offset < 20 for offset in offsets)

    wait_for(epoch_is_gone)
    shutil.rmtree(source.folder / "node-2" / "data" / f"{topic}-0")
    source.start(2)
    wait_for(both_in_sync)
    assert gap_at(a, topic, position) is None
    source.kill(1)
    wait_for(lambda: leader_of(a, topic).node == 2)
    to = Position(offset=20, oldest_leader=leader_of(a, topic).epoch)
    assert gap_at(a, topic, position) == Gap(
        cause=Cause.TRUNCATED, first=19, last=19, to=to
    )
