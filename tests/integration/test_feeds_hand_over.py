"""One flow goes on for another: what its driver does, on real brokers, without Spark.

The third cluster is the first one under another alias: nothing is copied to it here.
"""

from __future__ import annotations

from contextlib import closing
import time
from typing import TYPE_CHECKING, Any
import uuid

from confluent_kafka import Consumer, TopicPartition
import pytest

from mirror.clusters.cluster import Cluster
from mirror.config.schema import MirrorConfig
from mirror.driver import feeding
from mirror.driver.generation import Generation
from mirror.driver.ownership import rewrite_progress, take_ownership
from mirror.driver.pairs import PairFollower
from mirror.driver.rewriting import Rewriting
from mirror.errors import OutdatedRoleError
from mirror.offsets import handed_over, progress
from mirror.offsets.progress import Position
from mirror.recovery import roles
from mirror.recovery.journal import Entry, JournalWriter, Kind, StepState
from mirror.status.store import StatusStore
from tests.harness.admin import create_topic
from tests.harness.load import NumberedLoad
from tests.harness.slots import SparklessFlow, copy_until
from tests.harness.waiting import wait_for
from tests.harness.witness import Witness

if TYPE_CHECKING:
    from mirror.config.schema import FlowConfig
    from mirror.playground.cluster import PlaygroundCluster

pytestmark = pytest.mark.integration

_COPIED, _LEFT = 40, 10
_READ = {0: 30, 1: 50}
"""How far the third cluster has the first one's partitions: less than the second one,
and more than that."""


def document(one: str, other: str, topic: str) -> dict[str, Any]:
    ends = {"XA": one, "XB": other, "XC": one}
    names = ("XA->XB", "XB->XA", "XA->XC", "XB->XC")
    return {
        "clusters": {a: {"bootstrap_servers": b} for a, b in ends.items()},
        "defaults": {"topics": [topic], "policy": "identity"},
        "flows": {name: {} for name in names},
        "recovery": {"XA<->XB": {"active": "XA", "feeds": ["XC"]}},
    }


def fail_over(config: MirrorConfig, journal: Cluster) -> None:
    """Note that XB is active, since XA is gone."""
    (pair,) = config.recovery
    writer = JournalWriter(journal, pair)
    for number, step in enumerate((roles.ROLE, roles.END)):
        writer.write(
            Entry(
                pair=pair, run=uuid.uuid4().hex, number=number, kind=Kind.FAILOVER,
                epoch=2, source="XA", target="XB", step=step, state=StepState.DONE,
                at=time.time(), by="test",
            )
        )  # fmt: skip


def positions(target: Cluster, flow: FlowConfig) -> dict[int, int]:
    known = progress.read(target, progress.topic_name(flow.source)).positions
    return {partition: each.offset for (_, partition), each in known.items()}


def epoch(target: Cluster, flow: FlowConfig) -> int:
    found = progress.read(target, progress.topic_name(flow.source)).generation
    return Generation.parse(found).epoch


def key_at(bootstrap: str, topic: str, partition: int, offset: int) -> bytes | None:
    """The key of the first record from an offset on; None at the log's end."""
    reader = Consumer({"bootstrap.servers": bootstrap, "group.id": "key-at"})
    try:
        place = TopicPartition(topic, partition, offset)
        if reader.get_watermark_offsets(place, timeout=30)[1] == offset:
            return None
        reader.assign([place])
        found: list[bytes | None] = []

        def read() -> bool:
            if (message := reader.poll(0.2)) is not None and not message.error():
                found.append(message.key())
            return bool(found)

        wait_for(read)
        return found[0]
    finally:
        reader.close()


def test_a_driver_hands_over_once(
    clusters: dict[str, PlaygroundCluster],
    topic_name: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The driver dies after it has stopped the flow that rests, before it has committed
    where the other one begins; then it is run again. That flow begins with the very
    record that the third cluster has not got, or behind all that is there, and stays
    there when the map becomes longer. A service that is behind may not begin the flow
    that rests.
    """
    one, other = clusters["a"].bootstrap, clusters["b"].bootstrap
    for bootstrap in (one, other):
        create_topic(bootstrap, topic_name, 2)
    config = MirrorConfig(**document(one, other, topic_name))
    flows, load = config.flows, NumberedLoad(one, topic_name, 2)
    copying = SparklessFlow(
        source=one, target=other, topic=topic_name, alias="XA", into="XB",
        settings={"policy": "identity"},
    ).own()  # fmt: skip
    with Witness(other) as witness, copying.slot() as slot:
        witness.begin(topic_name)
        for count in (_COPIED // 2, _COPIED):  # so there are markers among the copies
            for number in _READ:
                load.send(_COPIED // 2, partition=number)
            copy_until(witness, slot, copying.lease(60), count=2 * count, timeout=60)
        for number in _READ:
            load.send(_LEFT, partition=number)

        with (
            closing(Cluster(config.clusters["XB"]).connect()) as source,
            closing(Cluster(config.clusters["XC"]).connect()) as target,
        ):
            topic_id = target.topics()[topic_name].topic_id
            read = {
                (topic_name, n): Position(offset=offset, topic_id=topic_id)
                for n, offset in _READ.items()
            }
            rewrite_progress(
                flows["XA->XC"], target, lambda _: Rewriting(positions=read)
            )
            fail_over(config, source)
            pairs = PairFollower(config, StatusStore(tuple(flows)))
            pairs.start()
            try:
                pair = config.recovery["XA<->XB"]
                wait_for(lambda: pairs.role(pair).epoch == 2)
                assert pairs.may_copy("XA", "XC") is False
                wait_for(lambda: pairs.may_copy("XB", "XC"))

                def hand_over() -> int | None:
                    return feeding.take_turn(
                        *(config, flows["XB->XC"], source, target, pairs),
                        over=lambda: False,
                    )

                with monkeypatch.context() as patch:
                    patch.setattr(handed_over, "places", _die)
                    with pytest.raises(_DiedError):
                        hand_over()
                assert epoch(target, flows["XA->XC"]) == 2
                assert target.topic(progress.topic_name("XB")) is None
                with pytest.raises(OutdatedRoleError):
                    take_ownership(
                        *(flows["XA->XC"], target, target),
                        slots=1, partitions={}, epoch=1,
                    )  # fmt: skip

                assert hand_over() == 2
                begins = positions(target, flows["XB->XC"])
                keys = {n: key_at(other, topic_name, n, begins[n]) for n in begins}
                assert keys == {0: b"0:30", 1: None}

                count = 2 * (_COPIED + _LEFT)
                copy_until(witness, slot, copying.lease(60), count=count, timeout=60)
                assert hand_over() == 2
                assert positions(target, flows["XB->XC"]) == begins
            finally:
                pairs.close()


class _DiedError(Exception):
    """Stands for the end of the process."""


def _die(*_: object, **__: object) -> None:
    raise _DiedError
