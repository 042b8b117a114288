"""What a running service proves of its copies: step by step, without Spark."""

from __future__ import annotations

from dataclasses import replace
import time
from typing import TYPE_CHECKING, Any

import pytest

from mirror.pairs import proofs
from mirror.proofs.account import FindingKind
from mirror.proofs.in_service import FlowProofs, OneTask, catching_up
from mirror.proofs.runners import InProcess
from mirror.proofs.verification import keep
from mirror.status.events import EventKind
from mirror.status.states import PartitionState
from mirror.status.store import StatusStore
from mirror.status.values import Counts, PartitionStatus
from tests.harness.admin import create_topic
from tests.harness.load import keys, producer, send
from tests.harness.proofs import proven
from tests.harness.slots import SparklessFlow, copy_until
from tests.harness.witness import Witness, read_topic

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from mirror.clusters.cluster import Cluster
    from mirror.pairs.proofs import Proof
    from mirror.playground.cluster import PlaygroundCluster
    from mirror.proofs.comparing import Compared
    from mirror.status.values import VerifyStatus

pytestmark = pytest.mark.integration

_PARTITIONS = 3
_SIZE = 560
"""Bytes of a record in a log, at most."""
_MANY = 60_000
"""Records that take many ranges."""


class Watched(InProcess):
    """Notes which ranges were compared, and how often."""

    def __init__(self) -> None:
        self.compared: list[Compared] = []

    def results(self, tasks: Iterable[Callable[[], Any]]) -> Iterator[Any]:
        for result in super().results(tasks):
            self.compared.append(result[0])
            yield result

    def cancel(self) -> None:
        """Tasks here run to their end."""

    def offsets(self) -> list[tuple[int, int]]:
        """Partition and offset of each source record in the ranges."""
        return [
            (each.range.of.partition, offset)
            for each in self.compared
            for offset in range(each.range.source_first, each.range.source_end)
        ]


class Service:
    """The job of a flow, step by step, as in a service that started now."""

    def __init__(
        self, flow: SparklessFlow, source: Cluster, target: Cluster, **settings: Any
    ) -> None:
        self.flow = replace(flow, settings={**flow.settings, **settings})
        self.store = StatusStore((flow.name,))
        self.ran = Watched()
        self._ends = (source, target)
        tasks = OneTask(self.ran, lambda: catching_up(self.store))
        config = self.flow.config()
        self.proofs = FlowProofs(
            config.flows[flow.name], config, store=self.store, tasks=lambda: tasks
        )

    def copied(self, count: int, size: int) -> None:
        """Sets the flow's counters: `count` records of this size in all."""
        each = count // _PARTITIONS
        partitions = tuple(
            PartitionStatus(
                topic=self.flow.topic, partition=number, target_topic=self.flow.copy,
                slot=0, state=PartitionState.RUNNING, reason="", since=0.0,
                position=each, end_offset=each, lag=0, latency_p50_ms=-1.0,
                latency_p99_ms=-1.0, counts=Counts(records=each, bytes=each * size),
            )
            for number in range(_PARTITIONS)
        )  # fmt: skip
        self.store.update(
            self.flow.name, lambda flow: replace(flow, partitions=partitions)
        )

    def step(self) -> VerifyStatus:
        """One run of the job, however soon after the last one."""
        self.proofs._due = 0.0
        job = self.proofs.job()
        assert job is not None
        job.work(*self._ends)
        return self.status

    @property
    def status(self) -> VerifyStatus:
        return self.store.flow(self.flow.name).verify

    def kept(self) -> dict[tuple[str, int], Proof]:
        return proofs.read(self._ends[1], self.flow.alias)


@pytest.fixture
def flow(clusters: dict[str, PlaygroundCluster], topic_name: str) -> SparklessFlow:
    """A flow of one topic, of which nothing is copied yet."""
    a, b = clusters["a"].bootstrap, clusters["b"].bootstrap
    create_topic(a, topic_name, _PARTITIONS)
    flow = SparklessFlow(source=a, target=b, topic=topic_name, alias=topic_name[-8:])
    return flow.own()


def fill(flow: SparklessFlow, count: int, *, after: int = 0) -> None:
    """So many records are sent, and copied; `after`: how many there are before."""
    assert isinstance(flow.source, str)
    assert isinstance(flow.target, str)
    each = count // _PARTITIONS
    with Witness(flow.target) as witness, flow.slot() as slot:
        witness.begin(flow.copy)
        send(producer(flow.source), flow.topic, keys(_PARTITIONS, each), b"v" * 500)
        copy_until(witness, slot, flow.lease(60), count=after + count, timeout=60)


def test_new_copies_are_proven_once(flow: SparklessFlow) -> None:
    """With a share that is enough, each record is compared once, and no more is read
    than the share allows; the proof on the target is where the service goes on after a
    restart.
    """
    with flow.connected() as ends:
        service = Service(flow, *ends, verify="new", verify_share=5)
        fill(flow, 3000)
        service.copied(3000, _SIZE)
        before = time.time()
        first = service.step()
        assert (first.findings, first.waiting, first.share) == (0, "", 1.0)
        assert first.records["equal"] == 3000
        assert 0 < first.read_bytes <= 5 * 3000 * _SIZE
        assert before <= first.proven_at <= time.time()
        kept = service.kept()
        assert sum(each.records for each in kept.values()) == 3000

        service.step()
        offsets = service.ran.offsets()
        assert len(offsets) == len(set(offsets))

        fill(flow, 300, after=3000)
        after = Service(flow, *ends, verify="new", verify_share=5)
        after.copied(300, _SIZE)
        assert after.step().records["equal"] == 300
        assert isinstance(flow.target, str)
        assert sum(map(len, read_topic(flow.target, flow.copy).values())) == 3300


def test_a_share_that_is_too_small_is_spread(flow: SparklessFlow) -> None:
    """With a fraction of what is needed, ranges all over the logs are compared, no more
    is read than the share allows, and the rest is not taken for proven: `mirror verify`
    still compares every record.
    """
    with flow.connected() as ends:
        service = Service(flow, *ends, verify="new", verify_share=1)
        fill(flow, _MANY)
        service.copied(_MANY, _SIZE)
        status = service.step()
        assert 0.1 < status.share < 0.6
        assert status.read_bytes <= _MANY * _SIZE
        assert service.kept() == {}
        compared = service.ran.offsets()
        assert len(compared) == len(set(compared))
        assert {partition for partition, _ in compared} == set(range(_PARTITIONS))
        assert service.step().share == status.share  # nothing is new

        found = proven(flow, since=None)
        assert sum(each.account.equal for each in found.partitions) == _MANY


def test_a_budget_that_buys_nothing_is_saved(flow: SparklessFlow) -> None:
    """While a flow's budget does not pay for one range, no step reads the map, so none
    puts off the first one that can compare something.
    """
    with flow.connected() as ends:
        service = Service(flow, *ends, verify="new", verify_share=0.0001)
        fill(flow, _MANY)
        service.copied(_MANY, _SIZE)
        service.proofs.job()
        began = service.proofs._budget._now
        assert service.step().share == -1.0
        assert service.proofs._due == 0.0
        service.proofs._budget._began = began - 120  # two minutes' worth of the floor
        assert service.step().share > 0.0
        assert service.proofs._due > 0.0


def test_a_round_compares_every_record_once(flow: SparklessFlow) -> None:
    """Rolling, in many small steps: each record is compared once in a round, although
    the service restarts in its middle, and the round leaves proofs.
    """
    with flow.connected() as ends:
        fill(flow, _MANY)
        proven(flow, since=None)  # so that nothing is new
        before = Service(flow, *ends).kept()
        settings = {"verify": "rolling", "verify_share": 0.5}
        service = Service(flow, *ends, **settings)
        compared: list[tuple[int, int]] = []
        steps = copied = 0
        while service.status.rounds == 0:
            steps += 1
            assert steps < 100
            copied += 3000
            service.copied(copied, 10 * _SIZE)
            status = service.step()
            assert (status.findings, status.waiting) == (0, "")
            if not compared and 0 < status.round_share < 1:
                compared += service.ran.offsets()
                service, copied = Service(flow, *ends, **settings), 0
        assert compared
        compared += service.ran.offsets()
        of_round = compared[
            : compared.index(compared[0], 1)
            if compared.count(compared[0]) > 1
            else None
        ]
        assert len(of_round) == len(set(of_round))
        assert steps > 3
        for key, proof in service.kept().items():
            if key in before:
                assert proof.source_offset == before[key].source_offset
                assert proof.at > before[key].at
                assert proof.records == _MANY // _PARTITIONS


def test_a_proof_that_no_longer_holds_ends_before_what_was_found(
    flow: SparklessFlow,
) -> None:
    """A stranger's record claims to be a copy, behind which everything counts as
    proven: a round finds it, and the target's proof ends before it, so that a service
    that starts later finds it again. It stands until somebody proves past it.
    """
    assert isinstance(flow.target, str)
    fill(flow, 300)
    with flow.connected() as (source, target):
        client = producer(flow.target)
        via = f"{flow.alias}/{source.cluster_id}".encode()
        client.produce(
            flow.copy, key=b"k", value=b"v", partition=0, headers=[("mirror.via", via)]
        )
        assert client.flush(30) == 0
        seen = proven(flow)
        (wrong,) = seen.findings
        assert wrong.kind is FindingKind.UNEXPECTED
        config = flow.config()
        keep(config, config.flows[flow.name], replace(seen, at=1.0))

        service = Service(flow, source, target, verify="rolling", verify_share=50)
        service.copied(300, 100_000)
        status = service.step()
        (shown,) = status.shown
        assert (shown.kind, shown.target) == ("UNEXPECTED", wrong.target)
        assert service.kept()[flow.topic, 0].target_offset <= shown.target
        (event,) = service.store.trail.read(kinds=[EventKind.COPY_DIFFERS])
        assert "UNEXPECTED" in event.text
        assert service.step().findings == 1  # it is no news
        assert len(service.store.trail.read(kinds=[EventKind.COPY_DIFFERS])) == 1

        later = Service(flow, source, target, verify="new", verify_share=50)
        later.copied(300, _SIZE)
        assert later.step().findings == 1
        keep(config, config.flows[flow.name], replace(seen, at=time.time() + 1))
        assert later.step().findings == 0


def test_nothing_is_read_while_a_flow_catches_up(flow: SparklessFlow) -> None:
    """No task runs, no byte is read, and the status says why, until no flow of the
    service is catching up.
    """
    with flow.connected() as ends:
        service = Service(flow, *ends, verify="new", verify_share=5)
        fill(flow, 300)
        service.copied(300, _SIZE)
        service.store.add("X->Y")
        service.store.update("X->Y", lambda other: replace(other, catching_up=True))
        status = service.step()
        assert status.waiting == "flow X->Y is catching up"
        assert (service.ran.compared, status.read_bytes) == ([], 0)
        service.store.update("X->Y", lambda other: replace(other, catching_up=False))
        status = service.step()
        assert (status.waiting, status.records["equal"]) == ("", 300)
