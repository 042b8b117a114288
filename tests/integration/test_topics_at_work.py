"""Topics that appear, grow, compact, refuse or stamp while a service mirrors them."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

import pytest

from tests.harness.admin import add_partitions, alter_topic, create_topic
from tests.harness.load import NumberedLoad, producer
from tests.harness.slot_processes import SlotProcess
from tests.harness.slots import SparklessFlow
from tests.harness.waiting import wait_for
from tests.harness.witness import assert_exactly_once, eventually, keys_of, read_topic

if TYPE_CHECKING:
    from collections.abc import Callable

    from confluent_kafka import Message

    from mirror.playground.cluster import PlaygroundCluster
    from tests.harness.service import RunningMirror

pytestmark = pytest.mark.integration


def test_topic_created_and_grown_while_running(
    clusters: dict[str, PlaygroundCluster],
    shared_mirror: RunningMirror,
    shared_topic: str,
) -> None:
    """A topic created while the service runs, and partitions added to it later, are
    copied from their first record, after the next look for topics.
    """
    source, target = clusters["a"].bootstrap, clusters["b"].bootstrap
    create_topic(source, shared_topic, 1)
    load = NumberedLoad(source, shared_topic, 1, seed=8)
    load.send(500)  # before anyone can have discovered it
    found = eventually(target, f"A.{shared_topic}", load.total)
    assert_exactly_once(keys_of(found), load.order)

    add_partitions(source, shared_topic, 3)
    load.add_partition()
    load.add_partition()
    load.send(500)
    found = eventually(target, f"A.{shared_topic}", load.total)
    assert_exactly_once(keys_of(found), load.order)


def test_too_large_record_holds_up_its_partition_only(
    clusters: dict[str, PlaygroundCluster],
    shared_mirror: RunningMirror,
    shared_topic: str,
) -> None:
    """A record that the target refuses as too large leaves its partition FAULTED with a
    reason that names it; the others continue, and raising the limit is enough to
    resume.
    """
    source, target = clusters["a"].bootstrap, clusters["b"].bootstrap
    topic, copy = shared_topic, f"A.{shared_topic}"
    create_topic(target, copy, 2, max_message_bytes="10000")
    create_topic(source, topic, 2)
    client = producer(source)

    def put(partition: int, key: str, size: int = 10) -> None:
        client.produce(topic, partition=partition, key=key.encode(), value=b"x" * size)
        assert client.flush(30) == 0

    put(0, "0:before")
    put(0, "0:large", 20_000)
    put(0, "0:after")
    put(1, "1:first")

    def partition_0(document: dict[str, Any]) -> dict[str, Any]:
        return next(
            (
                p
                for p in document["flows"][0]["partitions"]
                if (p["topic"], p["partition"]) == (topic, 0)
            ),
            {"state": ""},
        )

    status = shared_mirror.wait_until(
        lambda document: partition_0(document)["state"] == "FAULTED"
    )
    reason = partition_0(status)["reason"]
    assert f"{copy}-0" in reason, reason
    assert "large" in reason.lower(), reason
    put(1, "1:meanwhile")
    found = eventually(target, copy, 2)
    wait_for(
        lambda: (
            [m.key() for m in read_topic(target, copy)[1]]
            == [b"1:first", b"1:meanwhile"]
        ),
        pause=0.5,
    )
    assert b"0:large" not in keys_of(found)[0]
    assert shared_mirror.flow()["state"] == "RUNNING"

    alter_topic(target, copy, max_message_bytes="100000")
    found = eventually(target, copy, 5)
    assert keys_of(found) == {
        0: [b"0:before", b"0:large", b"0:after"],
        1: [b"1:first", b"1:meanwhile"],
    }
    status = shared_mirror.wait_until(
        lambda document: partition_0(document)["state"] == "RUNNING"
    )
    assert partition_0(status)["reason"] == ""


def test_log_append_time(
    clusters: dict[str, PlaygroundCluster],
    shared_mirror: RunningMirror,
    shared_topic: str,
) -> None:
    """Records of a LogAppendTime topic have the time on the copy that consumers of the
    source see, not the one that the producer sent.
    """
    source, target = clusters["a"].bootstrap, clusters["b"].bootstrap
    create_topic(source, shared_topic, message_timestamp_type="LogAppendTime")
    for codec in ("none", "zstd"):
        client = producer(source, compression_type=codec)
        for batch in range(5):
            for number in range(20):
                client.produce(
                    shared_topic,
                    key=f"{codec}-{batch}-{number}".encode(),
                    value=b"v" * 100,
                    timestamp=1000 + number,
                )
            assert client.flush(30) == 0
            time.sleep(0.02)
    wanted = read_topic(source, shared_topic)[0]
    found = eventually(target, f"A.{shared_topic}", len(wanted))[0]
    assert [(m.key(), m.timestamp()[1]) for m in found] == [
        (m.key(), m.timestamp()[1]) for m in wanted
    ]
    assert len({m.timestamp()[1] for m in found}) > 2


def test_compacted_topic(
    make_clusters: Callable[..., dict[str, PlaygroundCluster]],
    clusters: dict[str, PlaygroundCluster],
    topic_name: str,
) -> None:
    """What the cleaner left of a compacted topic, tombstones and gaps between offsets
    included, arrives once each and in order.
    """
    (made,) = make_clusters("a", settings={"log.cleaner.backoff.ms": "100"}).values()
    source, target = made.bootstrap, clusters["b"].bootstrap
    create_topic(
        source,
        topic_name,
        cleanup_policy="compact",
        min_cleanable_dirty_ratio="0.01",
        segment_ms="300",
    )
    create_topic(target, f"CLEANED.{topic_name}")
    written = 0
    for codec in ("none", "gzip", "snappy", "lz4", "zstd"):
        client = producer(source, compression_type=codec, linger_ms=20)
        for version in range(40):
            for key in range(30):
                gone = key % 10 == 0 and version > 20
                client.produce(
                    topic_name,
                    key=f"{codec if key % 3 else 'any'}-{key}".encode(),
                    value=None if gone else f"{codec}-{version}".encode() * 20,
                )
                written += 1
            if version % 10 == 9:
                assert client.flush(30) == 0
        time.sleep(0.4)  # the next record opens a new segment
    client.produce(topic_name, key=b"last", value=b"of an active segment")
    assert client.flush(30) == 0

    def survivors() -> list[Message]:
        return read_topic(source, topic_name)[0]

    wanted: list[Message] = []

    def cleaned() -> bool:
        """Nothing goes any more: the cleaner has passed all that it can."""
        before = len(wanted)
        wanted[:] = survivors()
        return len(wanted) == before < written / 10

    wait_for(cleaned, pause=1)
    assert any(message.value() is None for message in wanted)
    flow = SparklessFlow(
        source=source, target=target, topic=topic_name, alias="CLEANED"
    )
    with SlotProcess(flow.own()) as slot:
        found = eventually(target, f"CLEANED.{topic_name}", len(wanted))[0]
        assert slot.end() == "done"
    assert [(m.key(), m.value(), m.timestamp()) for m in found] == [
        (m.key(), m.value(), m.timestamp()) for m in wanted
    ]
