"""Brokers close idle connections (`connections.max.idle.ms`); no record waits for that.

Slots run without Spark, against brokers that wait for only five seconds. The system's
view of its sockets says when a connection has been closed.
"""

from __future__ import annotations

import contextlib
from dataclasses import dataclass
import time
from typing import TYPE_CHECKING

import psutil
import pytest
import structlog

from mirror.playground.brokers import playground
from tests.harness.admin import create_topic
from tests.harness.load import keys, producer, send
from tests.harness.slots import RunningLease, SparklessFlow
from tests.harness.waiting import deadline_in
from tests.harness.witness import Witness

if TYPE_CHECKING:
    from collections.abc import Iterator, MutableMapping
    from typing import Any

    from confluent_kafka import Producer

    from mirror.clusters.cluster import Cluster
    from mirror.copying.slot import Slot

pytestmark = pytest.mark.integration

_IDLE = {"connections.max.idle.ms": "5000"}
_PARTITIONS = 3
_FIRST = 10
_AT_ONCE_SECONDS = 4.0


@dataclass(frozen=True, kw_only=True)
class _Quiet:
    """A slot that copied something, and then nothing for longer than brokers keep its
    connections.
    """

    flow: SparklessFlow
    slot: Slot
    lease: RunningLease
    producer: Producer
    witness: Witness
    said: list[MutableMapping[str, Any]]
    """What was logged."""


@pytest.fixture(scope="module")
def impatient(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[str, str]]:
    """Source and target, whose brokers soon end idle connections."""
    root = tmp_path_factory.mktemp("impatient")
    with (
        playground(("a",), root=root, given=False, settings=_IDLE) as one,
        playground(("b",), root=root, given=False, settings=_IDLE, nodes=3) as three,
    ):
        yield one["a"].bootstrap, three["b"].bootstrap


@pytest.fixture
def quiet(impatient: tuple[str, str], topic_name: str) -> Iterator[_Quiet]:
    source, target = impatient
    create_topic(source, topic_name, _PARTITIONS)
    flow = SparklessFlow(
        source=source,
        target=target,
        topic=topic_name,
    ).own()
    client = producer(source)
    with (
        structlog.testing.capture_logs() as said,
        Witness(target) as witness,
        flow.slot() as slot,
    ):
        witness.begin(flow.copy)
        running = RunningLease(slot, flow.lease(120))
        with contextlib.ExitStack() as stack:
            stack.callback(running.end)
            send(client, topic_name, keys(_PARTITIONS, _FIRST), b"v")
            witness.wait(_PARTITIONS * _FIRST, 30, running)
            _wait_until_ended(slot._target, witness)
            yield _Quiet(
                flow=flow, slot=slot, lease=running, producer=client,
                witness=witness, said=said,
            )  # fmt: skip


def _wait_until_ended(cluster: Cluster, witness: Witness) -> None:
    """Until every broker has closed every connection of ours."""
    end = deadline_in(60)
    ours = {connection.fileno() for connection in cluster._connections.values()}
    assert len(ours) > 3
    while True:
        states = {
            each.status
            for each in psutil.Process().net_connections("tcp")
            if each.fd in ours
        }
        if states == {psutil.CONN_CLOSE_WAIT}:
            return
        assert time.monotonic() < end, f"some are not ended: {states}"
        witness._look()  # it must not be idle itself


def test_the_first_record_after_a_quiet_time_is_copied_at_once(quiet: _Quiet) -> None:
    """A record that arrives after brokers have closed all connections of its slot to
    the target is copied at once, without an error or a take-over.
    """
    topic = quiet.flow.topic
    send(quiet.producer, topic, keys(_PARTITIONS, 1, first=_FIRST), b"v")
    quiet.witness.wait(_PARTITIONS * (_FIRST + 1), _AT_ONCE_SECONDS, quiet.lease)
    reports = quiet.lease.end()
    assert [each for each in quiet.said if each["log_level"] != "info"] == []
    assert {report.slot_takeovers for report in reports} == {1}
    quiet.witness.assert_exactly(quiet.flow.copy, keys(_PARTITIONS, _FIRST + 1))


def test_a_take_over_after_a_quiet_time_begins_at_once(quiet: _Quiet) -> None:
    """A slot that takes over when all its connections have been closed copies at once,
    without an error.
    """
    quiet.lease.end()
    topic = quiet.flow.topic
    send(quiet.producer, topic, keys(_PARTITIONS, 1, first=_FIRST), b"v")
    quiet.flow.lease(0)  # somebody else's, so that the next one takes over
    running = RunningLease(quiet.slot, quiet.flow.lease(60))
    try:
        quiet.witness.wait(_PARTITIONS * (_FIRST + 1), _AT_ONCE_SECONDS, running)
    finally:
        reports = running.end()
    assert [each for each in quiet.said if each["log_level"] != "info"] == []
    assert {report.slot_takeovers for report in reports} == {1}
    quiet.witness.assert_exactly(quiet.flow.copy, keys(_PARTITIONS, _FIRST + 1))
