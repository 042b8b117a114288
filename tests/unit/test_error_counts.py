"""Errors that brokers answer: found in any answer, added up over processes."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

from kafka.protocol.admin import DescribeAclsResponse
from kafka.protocol.metadata import MetadataResponse
from kafka.protocol.producer import AddPartitionsToTxnResponse, ProduceResponse
import pytest

from mirror.clusters import error_counts
from mirror.errors import AuthenticationError, UnreachableError
from mirror.status.store import ErrorTotals

if TYPE_CHECKING:
    from collections.abc import Callable

pytestmark = pytest.mark.unit


def news(do: Callable[[], None]) -> dict[tuple[str, ...], int]:
    """What a call adds to this process's counts."""
    before = error_counts.counted()
    do()
    return {
        key: count - before.get(key, 0)
        for key, count in error_counts.counted().items()
        if count != before.get(key, 0)
    }


def produced(*codes: int) -> Any:
    topic = ProduceResponse.TopicProduceResponse
    part = topic.PartitionProduceResponse
    parts = [
        part(index=n, error_code=code, base_offset=-1, version=8)
        for n, code in enumerate(codes)
    ]
    return ProduceResponse(
        responses=[topic(name="t", partition_responses=parts, version=8)], version=8
    )


def test_every_partition_s_error_counts():
    """An answer on many partitions counts each error, and nothing for those that went
    well.
    """
    answer = produced(0, 29, 29, 10)

    assert news(lambda: error_counts.note_answer("X", answer)) == {
        ("X", "Produce", "TOPIC_AUTHORIZATION_FAILED"): 2,
        ("X", "Produce", "MESSAGE_SIZE_TOO_LARGE"): 1,
    }


def test_errors_are_found_wherever_an_answer_keeps_them():
    """At the top, in lists of lists, and under the other name that one API has."""
    top = DescribeAclsResponse(error_code=54, resources=[], version=1)
    listed = MetadataResponse.MetadataResponseTopic
    inner = listed.MetadataResponsePartition(error_code=5, version=8)
    deep = MetadataResponse(
        topics=[listed(error_code=0, name="t", partitions=[inner], version=8)],
        version=8,
    )
    of_topic = AddPartitionsToTxnResponse.AddPartitionsToTxnTopicResult
    of_partition = of_topic.AddPartitionsToTxnPartitionResult
    odd = AddPartitionsToTxnResponse(
        results_by_topic_v3_and_below=[
            of_topic(
                name="t",
                results_by_partition=[of_partition(partition_error_code=53, version=3)],
                version=3,
            )
        ],
        version=3,
    )

    def note() -> None:
        for answer in (top, deep, odd):
            error_counts.note_answer("X", answer)

    assert news(note) == {
        ("X", "DescribeAcls", "SECURITY_DISABLED"): 1,
        ("X", "Metadata", "LEADER_NOT_AVAILABLE"): 1,
        ("X", "AddPartitionsToTxn", "TRANSACTIONAL_ID_AUTHORIZATION_FAILED"): 1,
    }


def test_connections_that_fail_count():
    """A connection that does not come about, or ends while an answer is due, counts
    under a name of ours.
    """

    def fail() -> None:
        for error in (UnreachableError(), AuthenticationError()):
            with pytest.raises(type(error)), error_counts.connecting("X"):
                raise error
        error_counts.broke("X", "Fetch", TimeoutError())
        error_counts.broke("X", "Produce", ConnectionResetError())

    assert news(fail) == {
        ("X", "Connect", "UNREACHABLE"): 1,
        ("X", "Connect", "TLS"): 1,
        ("X", "Fetch", "TIMEOUT"): 1,
        ("X", "Produce", "DISCONNECTED"): 1,
    }


def test_a_forked_process_counts_for_itself():
    """A worker that is forked reports its own errors only, under a name of its own."""
    error_counts.note("X", "Fetch", 1)
    read, write = os.pipe()
    if not (child := os.fork()):
        try:
            told = f"{error_counts.process()} {len(error_counts.named())}"
            os.write(write, told.encode())
        finally:
            os._exit(0)
    os.waitpid(child, 0)
    name, count = os.read(read, 100).decode().split()
    os.close(read)
    os.close(write)

    assert name != error_counts.process()
    assert count == "0"


def totals(errors: ErrorTotals) -> dict[str, int]:
    return {f"{e.cluster} {e.api} {e.error}": e.count for e in errors.read()}


def test_a_lost_report_costs_nothing():
    """Processes report all that they have counted: the next report brings what one of
    a failed lease would have brought, and a new process adds to the old one's.
    """
    errors = ErrorTotals()
    errors.add("one", [("A Fetch X", 2)])
    errors.add("one", [("A Fetch X", 5), ("B Produce Y", 1)])
    errors.add("one", [("A Fetch X", 5), ("B Produce Y", 1)])
    errors.add("two", [("A Fetch X", 1)])

    assert totals(errors) == {"A Fetch X": 6, "B Produce Y": 1}


def test_the_driver_s_own_errors_are_among_them():
    """What the process counted itself is added when the totals are read."""
    errors = ErrorTotals()
    errors.also(lambda: {("A", "Metadata", "X"): 3})
    errors.add("one", [("A Metadata X", 1)])

    assert totals(errors) == {"A Metadata X": 4}
