"""Transactions of one slot that are under way at the same time.

Slow commits make sure that there always are several; then one of them meets what
could put its records behind the next one's, or commit the next one without it.
"""

from __future__ import annotations

from collections import defaultdict
import contextlib
import struct
import threading
import time
from typing import TYPE_CHECKING

from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaError, TopicPartition
import pytest

from tests.harness.admin import copied_records, create_topic
from tests.harness.load import keys, producer, send
from tests.harness.mishaps import Mishap, Rule
from tests.harness.proxy import BrokerProxy
from tests.harness.slots import SparklessFlow, copy_until
from tests.harness.waiting import wait_for
from tests.harness.witness import Witness

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from mirror.playground.cluster import PlaygroundCluster

pytestmark = pytest.mark.integration

_PARTITIONS = 2
_EACH = 350
_SLOW_COMMIT_SECONDS = 0.15
COPY, PROGRESS = "its copy", "the progress"
_POSITION = struct.Struct(">hq")


def _refused(*, code: int, topic: str) -> Rule:
    """The answer comes late, so that the next transaction has its chance."""
    return Rule(
        api="Produce",
        mishap=Mishap.REFUSED,
        code=code,
        topic=topic,
        partition=0,
        seconds=0.6,
        times=1,
    )


@contextlib.contextmanager
def trickling(bootstrap: str, topic: str, copies: Callable[[], int]) -> Iterator[None]:
    """Records come one after another, so that every Fetch brings a few: all but the
    first once there are copies, as a slot that begins late would find all at once.
    """

    def trickle() -> None:
        client = producer(bootstrap)
        for number in range(_EACH):
            send(client, topic, keys(_PARTITIONS, 1, first=number), b"v" * 50)
            if number == 0:
                wait_for(copies)
            time.sleep(0.005)

    thread = threading.Thread(target=trickle)
    thread.start()
    try:
        yield
    finally:
        thread.join()


def committed_positions(bootstrap: str, topic: str) -> dict[bytes, list[int]]:
    """The positions of each partition in the progress topic, in log order."""
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": "overlapping",
            "enable.auto.commit": False,
            "enable.partition.eof": True,
            "fetch.wait.max.ms": 50,
            "isolation.level": "read_committed",
        }
    )
    found: dict[bytes, list[int]] = defaultdict(list)
    consumer.assign([TopicPartition(topic, 0, OFFSET_BEGINNING)])
    while True:
        for message in consumer.consume(5000, 0.05):
            if (error := message.error()) is not None:
                assert error.code() == KafkaError._PARTITION_EOF
                consumer.close()
                return found
            key, value = message.key(), message.value()
            assert key is not None
            if not key.startswith(b"\0\0"):  # else the generation, or a proof
                assert value is not None
                found[key].append(_POSITION.unpack_from(value)[1])


@pytest.mark.parametrize(
    "rule",
    [
        _refused(code=51, topic=PROGRESS),
        _refused(code=51, topic=COPY),
        _refused(code=7, topic=COPY),
        Rule(api="Produce", code=7, topic=PROGRESS, partition=0),
        Rule(api="Produce", mishap=Mishap.LATE_ANSWER, seconds=0.5, topic=COPY),
        Rule(api="EndTxn", mishap=Mishap.REFUSED, code=51, times=3),
        Rule(api="EndTxn", mishap=Mishap.REFUSED, code=48),
        Rule(api="EndTxn", mishap=Mishap.LOST),
        Rule(api="EndTxn", mishap=Mishap.ANSWER_LOST),
    ],
    ids=lambda rule: f"{rule.api}-{rule.mishap.name}-{rule.code}-{rule.topic}",
)
def test_one_of_several_transactions_fails(
    clusters: dict[str, PlaygroundCluster], topic_name: str, rule: Rule
) -> None:
    """Whatever happens to one of them, everything is copied exactly once and in order,
    and the positions in the progress topic only ever grow.
    """
    source, target = clusters["a"].bootstrap, clusters["b"].bootstrap
    create_topic(source, topic_name, _PARTITIONS)
    with BrokerProxy(target) as proxy, Witness(target) as witness:
        flow = SparklessFlow(
            source=source,
            target=proxy.bootstrap,
            topic=topic_name,
            timeout=2.0,
        ).own()
        names = {COPY: flow.copy, PROGRESS: flow.progress}
        rule.topic = names.get(rule.topic or "", rule.topic)
        rule.skip = 12
        slow = Rule(
            api="EndTxn",
            mishap=Mishap.LATE_ANSWER,
            seconds=_SLOW_COMMIT_SECONDS,
            times=None,
        )
        with (
            flow.slot() as slot,
            proxy.rules(rule, slow),
            trickling(source, topic_name, lambda: copied_records(target, flow.copy)),
        ):
            witness.begin(flow.copy)
            copy_until(
                witness, slot, flow.lease(60), count=_PARTITIONS * _EACH, timeout=60
            )
        assert rule.hits, "the rule never struck"
        assert slow.hits > rule.skip // 2
        witness.assert_exactly(flow.copy, keys(_PARTITIONS, _EACH))
        positions = committed_positions(target, flow.progress)
    assert len(positions) == _PARTITIONS
    for seen in positions.values():
        assert seen == sorted(set(seen))
        assert seen[-1] == _EACH
