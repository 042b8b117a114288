"""Fetch by topic id as bytes, read back by kafka-python's own schema."""

from __future__ import annotations

import uuid

from kafka.protocol.consumer import FetchRequest, FetchResponse
import pytest

from mirror.clusters.wire import fetch, fetch_by_id

pytestmark = pytest.mark.unit

_ORDERS, _PAYMENTS = uuid.uuid4(), uuid.uuid4()
_IDS = {"orders": _ORDERS, "payments": _PAYMENTS}


def test_request() -> None:
    """Topics by id in the order given, each offset with the epoch of the record before
    it, and the partitions to leave out of the session.
    """
    body = fetch_by_id.encode(
        [
            fetch.Wanted(
                topic=topic,
                partition=partition,
                offset=9,
                leader_epoch=-1,
                last_epoch=4,
            )
            for topic, partition in (("orders", 1), ("payments", 0), ("orders", 0))
        ],
        ids=_IDS,
        isolation=fetch.READ_COMMITTED,
        max_wait_ms=500,
        max_bytes=1000,
        partition_max_bytes=100,
        session=fetch.Session(17, 3),
        forgotten=[("payments", 7), ("payments", 8)],
        rack="zone-1",
    )
    request = FetchRequest.decode(body, version=fetch_by_id.VERSION)
    assert [
        (topic.topic_id, part.partition, part.fetch_offset, part.last_fetched_epoch)
        for topic in request.topics
        for part in topic.partitions
    ] == [(_ORDERS, 1, 9, 4), (_PAYMENTS, 0, 9, 4), (_ORDERS, 0, 9, 4)]
    assert [
        (topic.topic_id, list(topic.partitions))
        for topic in request.forgotten_topics_data
    ] == [(_PAYMENTS, [7, 8])]
    assert (request.session_id, request.session_epoch) == (17, 3)
    assert request.rack_id == "zone-1"
    assert (request.isolation_level, request.max_wait_ms, request.max_bytes) == (
        *(1, 500, 1000),
    )


def test_answer() -> None:
    """Records are found where they are, besides errors, aborted transactions, and the
    offset at which the leader's log differs.
    """
    topic = FetchResponse.FetchableTopicResponse
    partition = topic.PartitionData
    aborted = partition.AbortedTransaction
    epochs = partition.EpochEndOffset
    answer = FetchResponse[fetch_by_id.VERSION](
        throttle_time_ms=250,
        error_code=0,
        session_id=17,
        responses=[
            topic(
                topic_id=_ORDERS,
                partitions=[
                    partition(
                        partition_index=3,
                        error_code=0,
                        high_watermark=20,
                        last_stable_offset=19,
                        log_start_offset=2,
                        aborted_transactions=[aborted(producer_id=5, first_offset=6)],
                        preferred_read_replica=-1,
                        records=b"abc" * 100,
                    ),
                    partition(
                        partition_index=4,
                        error_code=0,
                        high_watermark=20,
                        last_stable_offset=19,
                        log_start_offset=2,
                        diverging_epoch=epochs(epoch=1, end_offset=12),
                        aborted_transactions=None,
                        preferred_read_replica=5,
                        records=b"",
                    ),
                ],
            ),
            topic(
                topic_id=_PAYMENTS,
                partitions=[
                    partition(
                        partition_index=0,
                        error_code=100,
                        high_watermark=-1,
                        last_stable_offset=-1,
                        log_start_offset=-1,
                        aborted_transactions=[],
                        preferred_read_replica=-1,
                        records=None,
                    )
                ],
            ),
        ],
    )
    body = memoryview(b"\0" + bytes(answer.encode()))  # behind the header's tags
    assert fetch_by_id.head(body) == (250, 0, 17)
    names = {each.bytes: name for name, each in _IDS.items()}
    first, second, third = fetch_by_id.decode(body, names)
    assert bytes(body[first.start : first.end]) == b"abc" * 100
    assert (first.topic, first.partition, first.aborted) == ("orders", 3, ((5, 6),))
    assert (first.high_watermark, first.last_stable_offset, first.diverging) == (
        *(20, 19, -1),
    )
    assert (second.partition, second.diverging, second.start) == (4, 12, second.end)
    assert (first.nearer, second.nearer) == (-1, 5)
    assert (third.topic, third.error, third.start) == ("payments", 100, third.end)
