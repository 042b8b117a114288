"""Fetch requests as bytes, read back by kafka-python's own schema."""

from __future__ import annotations

from kafka.protocol.consumer import FetchRequest
import pytest

from mirror.clusters.wire import fetch

pytestmark = pytest.mark.unit


def encoded(**changes: object) -> FetchRequest:
    settings: dict[str, object] = {
        "isolation": fetch.READ_COMMITTED,
        "max_wait_ms": 500,
        "max_bytes": 1000,
        "partition_max_bytes": 100,
        **changes,
    }
    wanted = settings.pop("wanted", [])
    request = fetch.encode(wanted, **settings)
    decoded: FetchRequest = FetchRequest.decode(request, version=fetch.VERSION)
    return decoded


def test_partitions_are_asked_for_in_the_order_given() -> None:
    """The partition served last is asked for last, even if its topic comes twice."""
    order = [("orders", 1, 7), ("payments", 0, 3), ("orders", 0, 5)]
    request = encoded(
        wanted=[
            fetch.Wanted(
                topic=topic, partition=partition, offset=offset, leader_epoch=4
            )
            for topic, partition, offset in order
        ]
    )
    assert [
        (topic.topic, partition.partition, partition.fetch_offset)
        for topic in request.topics
        for partition in topic.partitions
    ] == order
    assert request.topics[0].partitions[0].current_leader_epoch == 4
    assert request.topics[0].partitions[0].partition_max_bytes == 100
    assert (request.isolation_level, request.max_wait_ms) == (1, 500)


def test_a_rack_is_named() -> None:
    """A leader learns where we are, or that it is to answer itself."""
    assert encoded(rack="zone-1").rack_id == "zone-1"
    assert encoded().rack_id == ""


def test_without_a_session_none_is_asked_for() -> None:
    """A Fetch outside sessions carries Kafka's final epoch, -1."""
    request = encoded()
    assert (request.session_id, request.session_epoch) == (0, -1)
    assert request.forgotten_topics_data == []


def test_a_session_goes_on_and_forgets() -> None:
    """Within a session a request has its epoch and the partitions to leave out."""
    request = encoded(
        session=fetch.Session(17, 3),
        forgotten=[("orders", 1), ("payments", 0), ("orders", 2)],
    )
    assert (request.session_id, request.session_epoch) == (17, 3)
    assert [
        (topic.topic, list(topic.partitions)) for topic in request.forgotten_topics_data
    ] == [("orders", [1, 2]), ("payments", [0])]
