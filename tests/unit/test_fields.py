"""Requests that are laid out field by field, and the headers of their answers."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

from kafka.protocol.admin import DescribeProducersRequest
from kafka.protocol.metadata import ApiVersionsResponse
from kafka.protocol.producer import EndTxnRequest, EndTxnResponse
import pytest

from mirror.clusters import hanging
from mirror.clusters.transactions import Producer
from mirror.clusters.wire.pending_response import Pending

pytestmark = pytest.mark.unit


class _Recording:
    """A connection that keeps what is sent over it."""

    alias = "B"

    def __init__(self, speaks: int) -> None:
        self.versions = {DescribeProducersRequest.API_KEY: (0, speaks)}
        self._speaks = speaks
        self.sent = b""
        self.flexible = False

    def version(self, request_class: Any, *, at_most: int | None = None) -> int:
        return min(
            self._speaks, request_class.max_version if at_most is None else at_most
        )

    def send_buffers(
        self,
        api_key: int,
        version: int,
        buffers: list[bytes],
        *,
        flexible: bool,
        answer_class: Any,
    ) -> None:
        assert api_key == answer_class[version].API_KEY
        self.sent, self.flexible = b"".join(buffers), flexible


def _cluster(connection: _Recording) -> Any:
    return SimpleNamespace(alias="B", connection=lambda *_: connection)


@pytest.mark.parametrize("version", range(6))
def test_a_commit_is_sent_as_kafka_python_would(version: int) -> None:
    """In each version that brokers speak, a commit has the bytes of kafka-python's."""
    connection = _Recording(version)
    producer = Producer(
        _cluster(connection),
        transactional_id="mirror.A->B.0.ä",
        transaction_timeout_ms=1,
    )
    producer.v2 = True
    producer._id, producer._epoch = 1 << 40, 77

    producer.begin_commit()

    expected = EndTxnRequest(
        transactional_id="mirror.A->B.0.ä",
        producer_id=1 << 40,
        producer_epoch=77,
        committed=True,
    )
    assert connection.sent == expected.encode(version=version)
    assert connection.flexible == EndTxnRequest.flexible_version_q(version)


def test_leaders_are_asked_as_kafka_python_would() -> None:
    """The question for open transactions has the bytes of kafka-python's, with more
    partitions than one byte counts.
    """
    names = {"A.t": list(range(200)), "mirror-progress.A.internal": [0]}
    connection = _Recording(0)

    hanging.ask(_cluster(connection), 1, names)

    entry = DescribeProducersRequest.TopicRequest
    expected = DescribeProducersRequest(
        topics=[entry(name=n, partition_indexes=parts) for n, parts in names.items()]
    )
    assert connection.sent == expected.encode(version=0)
    assert connection.flexible


def _answered(answer_class: Any, frame: bytes) -> Any:
    pending = Pending(cast("Any", _Recording(0)), 7, answer_class)
    pending.resolve(memoryview(frame))
    return pending.result()


@pytest.mark.parametrize("version", [1, 5])
@pytest.mark.parametrize("tags", [b"\0", b"\1\5\3abc"])
def test_a_header_with_tagged_fields_is_passed_over(version: int, tags: bytes) -> None:
    """An answer is decoded right behind its header, whatever that has."""
    answer = EndTxnResponse(
        version=version, throttle_time_ms=3, error_code=51, producer_id=9,
        producer_epoch=2,
    )  # fmt: skip
    flexible = EndTxnResponse.flexible_version_q(version)
    frame = b"\0\0\0\7" + (tags if flexible else b"") + answer.encode()

    found = _answered(EndTxnResponse[version], frame)

    assert (found.throttle_time_ms, found.error_code) == (3, 51)


def test_the_first_answer_has_no_tagged_fields_in_its_header() -> None:
    """What a broker speaks is read although its answer is flexible behind a header
    that is not.
    """
    answer = ApiVersionsResponse(version=3, error_code=0, throttle_time_ms=0)
    answer.api_keys = [
        ApiVersionsResponse.ApiVersion(api_key=1, min_version=4, max_version=17)
    ]

    found = _answered(ApiVersionsResponse[3], b"\0\0\0\7" + answer.encode())

    assert [each.max_version for each in found.api_keys] == [17]
