"""What the log cleaner leaves of transactions can be read."""

from __future__ import annotations

from contextlib import closing
import struct
import time
from typing import TYPE_CHECKING

from confluent_kafka import Producer
import pytest

from mirror.clusters.cluster import Cluster
from mirror.clusters.wire import fetch
from mirror.records.reading import TopicReader
from tests.harness.admin import create_topic
from tests.harness.slots import SparklessFlow, copy_until
from tests.harness.waiting import deadline_in
from tests.harness.witness import Witness

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from mirror.playground.cluster import PlaygroundCluster

pytestmark = pytest.mark.integration

_HEADER = struct.Struct(">qiibIhiqqqhii")
_CONTROL = 0x20


def batches(cluster: Cluster, topic: str) -> Iterator[tuple[int, int, int]]:
    """Base offset, attributes and number of records of each batch, as stored."""
    offset = 0
    leader = cluster.topics([topic])[topic].leaders[0].node
    while True:
        request = fetch.encode(
            [fetch.Wanted(topic=topic, partition=0, offset=offset, leader_epoch=-1)],
            isolation=fetch.READ_UNCOMMITTED,
            max_wait_ms=10,
            max_bytes=8 << 20,
            partition_max_bytes=8 << 20,
        )
        body = (
            cluster.connection(leader, "looking")
            .send_buffers(fetch.API_KEY, fetch.VERSION, [request], flexible=False)
            .result()
        )
        (part,) = fetch.decode(body)
        if part.start == part.end:
            return
        at = part.start
        while at + _HEADER.size <= part.end:
            base, length, *_, count = found = _HEADER.unpack_from(body, at)
            yield base, found[5], count
            offset, at = base + found[6] + 1, at + 12 + length


def aborted_by_its_successor(bootstrap: str, topic: str, transactional_id: str) -> None:
    """A transaction of a producer that is replaced: the marker has the new epoch, of
    which there is no record, so the cleaner keeps it.
    """
    settings = {"bootstrap.servers": bootstrap, "transactional.id": transactional_id}
    first = Producer(settings)
    first.init_transactions(30)
    first.begin_transaction()
    first.produce(topic, key=b"aborted", value=b"v", partition=0)
    first.flush(30)
    Producer(settings).init_transactions(30)


def test_a_control_batch_without_records_ends_no_flow(
    make_clusters: Callable[..., dict[str, PlaygroundCluster]], topic_name: str
) -> None:
    """A compacted topic is cleaned until its log has a control batch without records: a
    slot copies what follows it, each record once, and the reader of progress and offset
    map passes it too.
    """
    made = make_clusters(
        "a", "b", settings={"log.cleaner.backoff.ms": "100", "log.cleaner.threads": "1"}
    )
    source, target = made["a"].bootstrap, made["b"].bootstrap
    create_topic(
        source,
        topic_name,
        1,
        cleanup_policy="compact",
        delete_retention_ms="0",
        segment_ms="100",
        segment_bytes=str(1 << 20),
        min_cleanable_dirty_ratio="0.0001",
    )
    flow = SparklessFlow(source=source, target=target, topic=topic_name).own()
    client = Producer({"bootstrap.servers": source})
    sent: list[bytes] = []

    def send(value: bytes) -> None:
        sent.append(b"%d" % len(sent))
        client.produce(topic_name, key=sent[-1], value=value, partition=0)
        assert client.flush(30) == 0

    # The cleaner joins segments up to 1 MiB, and an answer ends with a segment: so the
    # marker between these two is the last thing in its answer.
    send(bytes(700_000))
    aborted_by_its_successor(source, topic_name, f"x-{topic_name}")
    time.sleep(0.11)  # a segment ends by the clock
    send(bytes(700_000))
    deadline = deadline_in(60)
    with closing(Cluster(flow.plan.source).connect()) as cluster:
        # Each record is a segment of its own, and work for the cleaner.
        while not any(
            attributes & _CONTROL and count == 0
            for _, attributes, count in batches(cluster, topic_name)
        ):
            assert time.monotonic() < deadline, list(batches(cluster, topic_name))
            time.sleep(0.11)
            send(b"v")
        send(b"behind")

        with flow.slot() as slot, Witness(target) as witness:
            witness.begin(flow.copy)
            copy_until(witness, slot, flow.lease(300), count=len(sent))
            witness.assert_exactly(flow.copy, {0: sent})
        found = [key for _, key, _ in TopicReader(cluster, topic_name).read()]
        assert found == sent
        assert any(
            attributes & _CONTROL and count == 0
            for _, attributes, count in batches(cluster, topic_name)
        )
