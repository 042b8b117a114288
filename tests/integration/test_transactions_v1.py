"""Brokers without transactions v2: every write path again, on transactions v1.

The target's broker is real; the proxy lets it look like Kafka 2.8, so that partitions
are added to each transaction by a request of their own.
"""

from __future__ import annotations

import signal
from typing import TYPE_CHECKING
import uuid

import pytest

from mirror.clusters import codes
from tests.harness.admin import create_topic
from tests.harness.copying import Copying, RunningLease, SlotAlone, Witness, keys, send
from tests.harness.load import producer
from tests.harness.proxy import KAFKA_2_8, BrokerProxy, Mishap, Rule
from tests.harness.slots import Ambush, Point
from tests.harness.waiting import wait_for

if TYPE_CHECKING:
    from collections.abc import Iterator

    from mirror.playground.cluster import PlaygroundCluster

pytestmark = pytest.mark.integration

_PARTITIONS = 2
_EACH = 500


class Lab:
    """Clusters that look old, and one copying after the other."""

    def __init__(
        self, source: BrokerProxy, target: BrokerProxy, real: str, witness: Witness
    ) -> None:
        self.source, self.target = source, target
        self._real_source = real
        self._producer = producer(real)
        self._alias = f"V{uuid.uuid4().hex[:6]}"
        self.witness = witness

    def copying(self, topic: str) -> Copying:
        create_topic(self._real_source, topic, _PARTITIONS)
        self.send(topic, first=0)
        return Copying(
            source=self.source.bootstrap,
            target=self.target.bootstrap,
            topic=topic,
            alias=self._alias,
            timeout=2.0,
        ).own()

    def send(self, topic: str, *, first: int) -> None:
        send(self._producer, topic, keys(_PARTITIONS, _EACH, first=first), b"v" * 50)

    def copy(self, copying: Copying, *rules: Rule) -> None:
        """A lease under rules copies all there is, and what comes meanwhile."""
        total = 2 * _PARTITIONS * _EACH
        self.witness.begin(copying.copy)
        with copying.slot() as slot, self.target.rules(*rules):
            lease = RunningLease(slot, copying.lease(40))
            try:
                self.witness.wait(total // 2, 25, lease)
                self.send(copying.topic, first=_EACH)
                self.witness.wait(total, 25, lease)
            finally:
                reports = lease.end()
        self.witness.assert_exactly(copying.copy, keys(_PARTITIONS, 2 * _EACH))
        assert {report.state for report in reports} == {"RUNNING"}


@pytest.fixture(scope="module")
def lab(clusters: dict[str, PlaygroundCluster]) -> Iterator[Lab]:
    real_source, real_target = clusters["a"].bootstrap, clusters["b"].bootstrap
    with (
        BrokerProxy(real_source, newest=KAFKA_2_8) as source,
        BrokerProxy(real_target, newest=KAFKA_2_8) as target,
        Witness(real_target) as witness,
    ):
        yield Lab(source, target, real_source, witness)


def test_copies(lab: Lab, topic_name: str) -> None:
    """With brokers that speak no version newer than Kafka 2.8's everything is copied
    in transactions to which partitions were added explicitly.
    """
    seen = Rule(api="AddPartitionsToTxn", mishap=Mishap.LATE_ANSWER, times=None)
    lab.copy(lab.copying(topic_name), seen)
    assert seen.hits >= 2


@pytest.mark.parametrize(
    "code", [14, 15, 16, 47, 48, 49, 51, 53, 90, -1], ids=codes.name_of
)
@pytest.mark.parametrize("mishap", [Mishap.ERROR, Mishap.REFUSED])
def test_partition_is_not_added(
    lab: Lab, topic_name: str, code: int, mishap: Mishap
) -> None:
    """A partition that could not be added to a transaction, or is said not to have
    been, costs no record.
    """
    copying = lab.copying(topic_name)
    rule = Rule(
        api="AddPartitionsToTxn",
        mishap=mishap,
        code=code,
        topic=copying.copy,
        partition=0,
        skip=1,
    )
    lab.copy(copying, rule)
    assert rule.hits


@pytest.mark.parametrize("code", [3, 29], ids=codes.name_of)
def test_partition_is_set_aside(lab: Lab, topic_name: str, code: int) -> None:
    """A partition that may not be added to a transaction is faulted, with the reason,
    the other is copied; when it may be, it is copied too.
    """
    copying = lab.copying(topic_name)
    rule = Rule(
        api="AddPartitionsToTxn",
        mishap=Mishap.REFUSED,
        code=code,
        topic=copying.copy,
        partition=0,
        times=None,
    )
    lab.witness.begin(copying.copy)
    with copying.slot() as slot:
        with lab.target.rules(rule):
            lease = RunningLease(slot, copying.lease(20))
            try:
                lab.witness.wait(_EACH, 10, lease)
            finally:
                guilty, other = lease.end()
        assert (guilty.state, guilty.records) == ("FAULTED", 0)
        assert codes.name_of(code) in guilty.reason
        assert (other.state, other.position) == ("RUNNING", _EACH)
        lease = RunningLease(slot, copying.lease(20))
        try:
            lab.witness.wait(2 * _EACH, 15, lease)
        finally:
            guilty, _ = lease.end()
    assert (guilty.state, guilty.position) == ("RUNNING", _EACH)
    lab.witness.assert_exactly(copying.copy, keys(_PARTITIONS, _EACH))


@pytest.mark.parametrize("api", ["Produce", "EndTxn", "AddPartitionsToTxn"])
@pytest.mark.parametrize(
    "mishap",
    [Mishap.LOST, Mishap.ANSWER_LOST, Mishap.NO_ANSWER, Mishap.LATE_REQUEST],
)
def test_answers_lost_or_late(
    lab: Lab, topic_name: str, api: str, mishap: Mishap
) -> None:
    """What is lost, or comes after the slot took over again, changes nothing: epochs
    alone keep a late request of v1 out.
    """
    rule = Rule(
        api=api, mishap=mishap, seconds=3 if mishap is Mishap.LATE_REQUEST else 0
    )
    lab.copy(lab.copying(topic_name), rule)
    assert rule.hits


@pytest.mark.parametrize("code", [14, 16, 47, 48, 51, 90, -1], ids=codes.name_of)
@pytest.mark.parametrize("api", ["Produce", "EndTxn"])
@pytest.mark.parametrize("mishap", [Mishap.ERROR, Mishap.REFUSED])
def test_write_or_commit_fails(
    lab: Lab, topic_name: str, mishap: Mishap, api: str, code: int
) -> None:
    """A write or commit that is said to have failed, rightly or not, loses and
    repeats nothing.
    """
    copying = lab.copying(topic_name)
    where = {"topic": copying.copy, "partition": 0} if api == "Produce" else {}
    rule = Rule(api=api, mishap=mishap, code=code, **where)
    lab.copy(copying, rule)
    assert rule.hits


@pytest.mark.parametrize(
    "point", [Point.AFTER_WRITE, Point.AFTER_COMMIT_REQUEST], ids=lambda p: p.name
)
def test_owner_is_killed_in_mid_transaction(
    lab: Lab, topic_name: str, point: Point
) -> None:
    """The successor of a slot that died with records written, but not or only just
    committed, copies each record exactly once.
    """
    copying = lab.copying(topic_name)
    dying = SlotAlone(copying, ambush=Ambush(point=point, number=signal.SIGKILL))
    try:
        wait_for(lambda: not dying.process.is_alive())
        assert dying.process.exitcode == -signal.SIGKILL
    finally:
        dying.kill()
    lab.copy(copying)
