"""Byte fidelity: the copy has everything that a record has, and one header more.

Witnesses are confluent-kafka and kafka-python, which share no code with each other.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

from confluent_kafka.admin import AdminClient
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from kafka import KafkaConsumer, KafkaProducer, TopicPartition
import pytest

from tests.harness.admin import create_topic
from tests.harness.load import CODECS, producer
from tests.harness.waiting import PATIENCE_SECONDS
from tests.harness.witness import eventually, read_topic

if TYPE_CHECKING:
    from mirror.playground.cluster import PlaygroundCluster
    from tests.harness.service import RunningMirror

pytestmark = pytest.mark.integration

_FOREVER = str((1 << 63) - 1)
_NOW = int(time.time() * 1000)
_CENTURIES_AHEAD = 32_503_680_000_000

Record = tuple[bytes | None, bytes | None, list[tuple[str, bytes | None]], int]

_bytes_or_null = st.none() | st.just(b"") | st.binary(max_size=300)
_headers = st.lists(
    st.tuples(
        st.sampled_from(["", "a", "a", "b", "mirror.via", "ünïcødé"])
        | st.text(
            st.characters(exclude_categories=["Cs"], min_codepoint=1), max_size=20
        ),
        _bytes_or_null,
    ),
    max_size=6,
)
_many_headers = st.integers(60, 200)  # a count
_records = st.tuples(
    _bytes_or_null,
    _bytes_or_null | st.integers(1000, 20_000),  # a size, for a large one
    _headers | _headers | _headers | _many_headers,
    st.sampled_from([1, _NOW - 1, _NOW, _NOW + 1, _CENTURIES_AHEAD]),
)


def _expand(key: Any, value: Any, headers: Any, timestamp: int) -> Record:
    """Numbers stand for what would make hypothesis' own reports too long."""
    if isinstance(value, int):
        value = b"\x00\xff" * value
    if isinstance(headers, int):
        headers = [(f"h{number % 7}", b"%d" % number) for number in range(headers)]
    return key, value, headers, timestamp


def _for_kafka_python(
    key: bytes | None, value: bytes | None, headers: list[Any], timestamp: int
) -> Record:
    """It refuses records without key and value, and null header values."""
    filled = [(name, content or b"") for name, content in headers]
    return key, b"" if key is value is None else value, filled, timestamp


def _send_confluent(bootstrap: str, topic: str, codec: str, records: list[Record]):
    client = producer(bootstrap, compression_type=codec)
    for key, value, headers, timestamp in records:
        client.produce(topic, key=key, value=value, headers=headers,
                       timestamp=timestamp)  # fmt: skip
    assert client.flush(30) == 0


def _send_kafka_python(bootstrap: str, topic: str, codec: str, records: list[Record]):
    client = KafkaProducer(
        bootstrap_servers=bootstrap,
        compression_type=None if codec == "none" else codec,
        acks="all",
    )
    try:
        for key, value, headers, timestamp in records:
            # librdkafka takes a timestamp of 0 for "now"; here it is one.
            stamp = 0 if timestamp == 1 else timestamp
            client.send(
                topic, key=key, value=value, headers=headers, timestamp_ms=stamp
            )
        client.flush(PATIENCE_SECONDS)
    finally:
        client.close()


def _by_confluent(bootstrap: str, topic: str) -> list[tuple[Any, ...]]:
    return [
        (m.key(), m.value(), m.headers() or [], m.timestamp())
        for m in read_topic(bootstrap, topic)[0]
    ]


def _by_kafka_python(bootstrap: str, topic: str, count: int) -> list[tuple[Any, ...]]:
    consumer = KafkaConsumer(
        bootstrap_servers=bootstrap,
        enable_auto_commit=False,
        isolation_level="read_committed",
        consumer_timeout_ms=int(PATIENCE_SECONDS * 1000),
    )
    found: list[tuple[Any, ...]] = []
    try:
        consumer.assign([TopicPartition(topic, 0)])
        consumer.seek_to_beginning()
        for m in consumer:
            found.append((m.key, m.value, list(m.headers), m.timestamp,
                          m.timestamp_type))  # fmt: skip
            if len(found) == count:
                return found
    finally:
        consumer.close()
    return found


def test_every_field_of_every_record(
    clusters: dict[str, PlaygroundCluster],
    shared_mirror: RunningMirror,
    shared_topic: str,
) -> None:
    """Keys, values and headers that are null, empty, repeated, many or large, and
    timestamps from 0 to the far future, are the same on the copy under every codec;
    only one header is added, at the end: where the record was read.
    """
    source, target = clusters["a"].bootstrap, clusters["b"].bootstrap
    topic, copy = shared_topic, f"A.{shared_topic}"
    eternal = {"retention_ms": "-1", "message_timestamp_after_max_ms": _FOREVER}
    create_topic(target, copy, **eternal)
    create_topic(source, topic, **eternal)
    cluster_id = AdminClient({"bootstrap.servers": source}).list_topics().cluster_id
    via = [("mirror.via", f"A/{cluster_id}".encode())]
    sent = 0

    @settings(
        max_examples=12,
        deadline=None,
        database=None,
        derandomize=True,
        phases=[Phase.explicit, Phase.generate],
        suppress_health_check=list(HealthCheck),
    )
    @given(
        send=st.sampled_from([_send_confluent, _send_kafka_python]),
        codec=st.sampled_from(CODECS),
        records=st.lists(_records, min_size=10, max_size=60),
    )
    def check(send: Any, codec: str, records: list[Any]) -> None:
        nonlocal sent
        records = [_expand(*drawn) for drawn in records]
        if send is _send_kafka_python:
            records = [_for_kafka_python(*record) for record in records]
        send(source, topic, codec, records)
        begin, sent = sent, sent + len(records)
        eventually(target, copy, sent)
        wanted = _by_confluent(source, topic)[begin:]
        assert len(wanted) == len(records)
        assert [(key, value, headers) for key, value, headers, _ in wanted] == [
            (key, value, headers) for key, value, headers, _ in records
        ]
        assert _by_confluent(target, copy)[begin:] == [
            (key, value, headers + via, timestamp)
            for key, value, headers, timestamp in wanted
        ]

    check()
    assert sent >= 120
    assert _by_kafka_python(target, copy, sent) == [
        (key, value, headers + via, *timestamp)
        for key, value, headers, *timestamp in _by_kafka_python(source, topic, sent)
    ]
