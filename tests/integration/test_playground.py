"""The playground's clusters are real, and break and recover as real ones do."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from kafka import KafkaAdminClient, KafkaConsumer, KafkaProducer
from kafka.admin import ConfigResource, ConfigResourceType, NewTopic
import pytest

from mirror.playground.cluster import PlaygroundCluster

pytestmark = pytest.mark.integration

Make = Callable[..., dict[str, PlaygroundCluster]]


@contextmanager
def admin_of(bootstrap: str, **settings: Any) -> Iterator[KafkaAdminClient]:
    admin = KafkaAdminClient(bootstrap_servers=bootstrap, **settings)
    try:
        yield admin
    finally:
        admin.close()


def create_topic(bootstrap: str, topic: str, *, copies: int = 1) -> None:
    with admin_of(bootstrap) as admin:
        admin.create_topics([NewTopic(topic, 1, copies)])
        admin.wait_for_topics([topic])


def produce(bootstrap: str, topic: str, values: list[bytes], **settings: Any) -> None:
    """Returns when every record is acknowledged."""
    producer = KafkaProducer(bootstrap_servers=bootstrap, acks="all", **settings)
    try:
        sent = [producer.send(topic, value) for value in values]
        for each in sent:
            each.get(timeout=60)
    finally:
        producer.close()


def consume(bootstrap: str, topic: str, count: int, **settings: Any) -> list[bytes]:
    consumer = KafkaConsumer(
        topic,
        bootstrap_servers=bootstrap,
        auto_offset_reset="earliest",
        enable_auto_commit=False,
        consumer_timeout_ms=30_000,
        **settings,
    )
    values: list[bytes] = []
    try:
        for record in consumer:
            values.append(record.value)
            if len(values) == count:
                break
    finally:
        consumer.close()
    return values


VALUES = [b"record %d" % number for number in range(500)]


def test_record_goes_in_and_out(
    clusters: dict[str, PlaygroundCluster], topic_name: str
) -> None:
    """Both session clusters serve clients, and each has only its own records."""
    for name, cluster in clusters.items():
        create_topic(cluster.bootstrap, topic_name)
        produce(cluster.bootstrap, topic_name, [name.encode()])

    read = {
        name: consume(cluster.bootstrap, topic_name, 1)
        for name, cluster in clusters.items()
    }

    assert read == {"a": [b"a"], "b": [b"b"]}


def test_kill_and_restart_loses_nothing(make_clusters: Make, topic_name: str) -> None:
    """Every acknowledged record is there after SIGKILL and a restart."""
    cluster = make_clusters("a")["a"]
    create_topic(cluster.bootstrap, topic_name)
    produce(cluster.bootstrap, topic_name, VALUES)

    cluster.kill()
    assert cluster.pids() == {}
    cluster.start()

    assert consume(cluster.bootstrap, topic_name, len(VALUES)) == VALUES


def test_settings_reach_the_broker(make_clusters: Make) -> None:
    """Settings of the caller stand over the playground's own."""
    cluster = make_clusters("a", settings={"message.max.bytes": "2000000"})["a"]
    broker = ConfigResource(ConfigResourceType.BROKER, "1", ["message.max.bytes"])

    with admin_of(cluster.bootstrap) as admin:
        found = admin.describe_configs([broker])

    assert "2000000" in str(found)
