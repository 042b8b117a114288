"""One flow goes on for another: what its driver does, without Spark."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager
import time
from typing import TYPE_CHECKING, Any
import uuid

from confluent_kafka import Consumer, TopicPartition
import pytest

from mirror.clusters.cluster import Cluster
from mirror.errors import OutdatedRoleError
from mirror.offsets import progress
from mirror.offsets.progress import Position
from mirror.pairs import roles
from mirror.pairs.journal import Entry, JournalWriter, Kind, StepState
from mirror.service import beginning
from mirror.service.ownership import (
    Generation,
    PositionUpdate,
    rewrite_progress,
    take_ownership,
)
from mirror.service.pairs import PairFollower
from mirror.status.store import StatusStore
from tests.harness.admin import create_topic
from tests.harness.configurations import configuration
from tests.harness.load import NumberedLoad, producer, send
from tests.harness.rehearsal import Rehearsal
from tests.harness.slots import RunningLease, SparklessFlow, copy_until
from tests.harness.waiting import wait_for
from tests.harness.witness import Witness

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from mirror.config.schema import FlowConfig, MirrorConfig
    from mirror.playground.cluster import PlaygroundCluster

pytestmark = pytest.mark.integration

_COPIED, _LEFT = 40, 10
_READ = {0: 30, 1: 50}
"""How far the third cluster has the first one's partitions: less than the second one,
and more than that."""


def document(one: str, other: str, topic: str) -> dict[str, Any]:
    """The third cluster is the first one under another alias: it gets no copies."""
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
    config = configuration(document(one, other, topic_name))
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
                flows["XA->XC"], target, lambda _: PositionUpdate(positions=read)
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
                    return beginning.take_turn(
                        *(config, flows["XB->XC"], source, target, pairs),
                        over=lambda: False,
                    )

                with monkeypatch.context() as patch:
                    patch.setattr(beginning, "handed_over", _die)
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


class Fed:
    """A pair that feeds a third cluster, which is away from when a topic is new on the
    first one until the second one is active.
    """

    def __init__(self, a: str, b: str, c: str, topic: str, start: str) -> None:
        tag = topic[-6:]
        self.one, self.other, self.third = f"WA{tag}", f"WB{tag}", f"WC{tag}"
        self.ends = {self.one: a, self.other: b, self.third: c}
        self.topics = [topic, f"{topic}-new", f"{topic}-there"]
        self.written: dict[str, list[bytes]] = {each: [] for each in self.topics}
        self._settings = {"policy": "identity", "start": start}
        self.pair = Rehearsal(
            (self.one, a), (self.other, b), f"{topic}.*",
            clusters={self.third: {"bootstrap_servers": c}},
            flows={f"{self.one}->{self.third}": {}, f"{self.other}->{self.third}": {}},
            pair={"feeds": [self.third]}, **self._settings,
        )  # fmt: skip

    def feeds(self, alias: str) -> SparklessFlow:
        """The flow out of this cluster to the third one."""
        return SparklessFlow(
            source=self.ends[alias], target=self.ends[self.third], alias=alias,
            into=self.third, topic=f"{self.topics[0]}.*", settings=self._settings,
        )  # fmt: skip

    def write(self, alias: str, topic: str) -> None:
        written = self.written[topic]
        more = [b"%d" % n for n in range(len(written), len(written) + _LEFT)]
        send(producer(self.ends[alias]), topic, {0: more}, b"v")
        written += more

    def turn(self, alias: str) -> int | None:
        """The flow out of this cluster, which is active, begins or goes on."""
        config = self.pair.config
        (pair,) = config.recovery.values()
        with closing(PairFollower(config, StatusStore(tuple(config.flows)))) as pairs:
            pairs.start()
            wait_for(
                lambda: pairs.role(pair).epoch and pairs.role(pair).active == alias
            )
            return beginning.take_turn(
                *(config, config.flows[f"{alias}->{self.third}"]),
                *(self.pair.cluster(alias), self.pair.cluster(self.third), pairs),
                over=lambda: False,
            )

    def all_there(self, alias: str, flow: SparklessFlow, topics: list[str]) -> None:
        """Copy with a flow that has begun, until a cluster has every record, once."""
        with Witness(self.ends[alias]) as witness, copying(flow):
            for topic in topics:
                witness.begin(topic)
                witness.wait(len(self.written[topic]), 60)
        with Witness(self.ends[alias]) as witness:
            for topic in topics:
                witness.assert_exactly(topic, {0: self.written[topic]})

    def switch(self, kind: Kind) -> None:
        """The third cluster goes away before a topic is new, and the second one gets
        records, and a topic of its own, before it is back.
        """
        old, new, there = self.topics
        feeds, between = self.feeds(self.one), self.pair.copying()
        create_topic(self.ends[self.one], old, 1)
        assert self.turn(self.one) == 1
        for flow in (feeds, between):
            flow.own()
        self.write(self.one, old)
        self.all_there(self.third, feeds, [old])
        create_topic(self.ends[self.one], new, 1)
        for topic in (old, new):
            self.write(self.one, topic)
        self.all_there(self.other, between.own(), [old, new])
        self.pair.see()
        self.pair.carry_out(kind=kind)
        create_topic(self.ends[self.other], there, 1)
        for topic in self.topics:
            self.write(self.other, topic)


@contextmanager
def copying(flow: SparklessFlow) -> Iterator[None]:
    with flow.slot() as slot:
        running = RunningLease(slot, flow.lease(120))
        try:
            yield
        finally:
            running.end()


@pytest.mark.parametrize(
    ("kind", "start"),
    [
        (Kind.SWITCH, "latest"),
        pytest.param(Kind.SWITCH, "earliest", marks=pytest.mark.full),
        pytest.param(Kind.FAILOVER, "latest", marks=pytest.mark.full),
    ],
)
def test_what_the_other_flow_never_met_comes_whole(
    clusters: dict[str, PlaygroundCluster],
    make_clusters: Callable[..., dict[str, PlaygroundCluster]],
    topic_name: str,
    monkeypatch: pytest.MonkeyPatch,
    kind: Kind,
    start: str,
) -> None:
    """A topic is made and the pair changes sides while the third cluster is away, and
    nobody runs the flow that fed it any more. Whatever `start` says, the other flow,
    which has never run, brings each record that came since the pair feeds that cluster.
    """
    monkeypatch.setattr(beginning, "_PATIENCE_SECONDS", 1.0)
    third = make_clusters("c")["c"].bootstrap
    ends_of = [clusters[name].bootstrap for name in "ab"]
    fed = Fed(*ends_of, third, topic_name, start)
    with fed.pair:
        fed.switch(kind)
        assert fed.turn(fed.other) == 2
        fed.all_there(fed.third, fed.feeds(fed.other).own(), fed.topics)


def test_the_other_flow_gets_time_for_what_it_never_met(
    clusters: dict[str, PlaygroundCluster],
    make_clusters: Callable[..., dict[str, PlaygroundCluster]],
    topic_name: str,
) -> None:
    """While the flow that fed the third cluster may still copy up to the cut, the other
    one waits also for a topic of which nothing was copied yet, and goes on behind it.
    """
    third = make_clusters("c")["c"].bootstrap
    ends_of = [clusters[name].bootstrap for name in "ab"]
    fed = Fed(*ends_of, third, topic_name, "latest")
    with fed.pair as pair:
        fed.switch(Kind.SWITCH)
        with ThreadPoolExecutor(1) as pool:
            turn = pool.submit(fed.turn, fed.other)
            with copying(fed.feeds(fed.one).own()):
                assert turn.result(60) == 2
        name = progress.topic_name(fed.one)
        copied = progress.read(pair.cluster(fed.third), name).positions
        assert copied[fed.topics[1], 0].offset == _LEFT
        fed.all_there(fed.third, fed.feeds(fed.other).own(), fed.topics)


class _DiedError(Exception):
    """Stands for the end of the process."""


def _die(*_: object, **__: object) -> None:
    raise _DiedError
