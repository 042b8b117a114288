"""The very first start of a flow, with `start: latest`, and what follows."""

from __future__ import annotations

import contextlib
from dataclasses import dataclass
import signal
import time
from typing import TYPE_CHECKING

from confluent_kafka.admin import AdminClient, NewTopic
import pytest

from mirror.clusters.cluster import Cluster
from mirror.offsets import progress
from mirror.pairs import losses
from tests.harness.admin import (
    add_partitions,
    create_topic,
    delete_records,
    end_offsets,
)
from tests.harness.cases import cases
from tests.harness.load import keys, producer, send
from tests.harness.slot_processes import (
    DriverPoint,
    DriverProcess,
    Point,
    SignalAt,
    SlotProcess,
)
from tests.harness.slots import RunningLease, SparklessFlow, copy_until
from tests.harness.waiting import PATIENCE_SECONDS, deadline_in, wait_for
from tests.harness.witness import Witness

if TYPE_CHECKING:
    from collections.abc import Callable

    from mirror.playground.cluster import PlaygroundCluster

pytestmark = pytest.mark.integration

_PARTITIONS = 2
_EACH = 50

# Where one of them is met twice, the first is about the generation and the second about
# where partitions begin; there are four ids, the driver's and the slot's.
_STEPS = [
    *((DriverPoint.BEFORE_EACH_ID, passes) for passes in (1, 2, 3, 4)),
    *((DriverPoint.AFTER_EACH_READING, passes) for passes in (1, 2, 3)),
    *((DriverPoint.BEFORE_WRITE, passes) for passes in (1, 2)),
    *((DriverPoint.AFTER_WRITE, passes) for passes in (1, 2)),
    (DriverPoint.BEFORE_ASKING, 1),
    (DriverPoint.AFTER_ASKING, 1),
    *((DriverPoint.AFTER_COMMIT_REQUEST, passes) for passes in (1, 2)),
    *((DriverPoint.AFTER_COMMIT, passes) for passes in (1, 2)),
]
_PROMISED = (DriverPoint.AFTER_COMMIT, 2)
_UNDECIDED = (DriverPoint.AFTER_COMMIT_REQUEST, 2)
_SOME = {
    *((DriverPoint.BEFORE_EACH_ID, 3), (DriverPoint.BEFORE_WRITE, 2)),
    *(_UNDECIDED, _PROMISED),
}


@pytest.fixture
def flow(clusters: dict[str, PlaygroundCluster], topic_name: str) -> SparklessFlow:
    """A flow that has never run, of a topic that has records."""
    made = SparklessFlow(
        source=clusters["a"].bootstrap,
        target=clusters["b"].bootstrap,
        topic=topic_name,
        # An alias of its own: the progress topic shows whether a flow ever ran.
        settings={"start": "latest"},
    )
    create_topic(clusters["a"].bootstrap, topic_name, _PARTITIONS)
    send(producer(clusters["a"].bootstrap), topic_name, keys(_PARTITIONS, _EACH), b"v")
    return made


def copy_to_the_end(flow: SparklessFlow) -> None:
    """Run leases until everything on the source is copied."""
    assert isinstance(flow.source, str)
    ends = end_offsets(flow.source, flow.topic)
    deadline = deadline_in(PATIENCE_SECONDS)
    with flow.slot() as slot:
        while True:
            reports = slot.run(flow.lease(0.5))
            if all(each.position >= ends[each.partition] for each in reports):
                return
            assert time.monotonic() < deadline, reports


@pytest.mark.parametrize(
    ("point", "passes"),
    cases(_STEPS, some=_SOME),
    ids=[f"{p.name.lower()}-{n}" for p, n in _STEPS],
)
def test_first_start_killed_at(
    clusters: dict[str, PlaygroundCluster],
    flow: SparklessFlow,
    point: DriverPoint,
    passes: int,
) -> None:
    """A first start with `start: latest` that dies at this point has settled nothing
    unless it committed: nothing from before a successful start is copied, and
    everything after it is, once.
    """
    source = producer(clusters["a"].bootstrap)
    with DriverProcess(
        flow.own,
        signal_at=SignalAt(point=point, passes=passes, number=signal.SIGKILL),
    ) as first:
        assert not first.how_it_ended(), "it got through"
    between = keys(_PARTITIONS, _EACH, first=_EACH)
    send(source, flow.topic, between, b"v")
    flow.own()
    after = keys(_PARTITIONS, _EACH, first=2 * _EACH)
    send(source, flow.topic, after, b"v")
    copy_to_the_end(flow)
    both = {number: between[number] + after[number] for number in range(_PARTITIONS)}
    with Witness(clusters["b"].bootstrap) as witness:
        expected = both if (point, passes) == _PROMISED else after
        if (point, passes) == _UNDECIDED:
            # Which of the two is not known; but it is one of them, as a whole.
            witness.begin(flow.copy)
            witness.wait(_PARTITIONS * _EACH, PATIENCE_SECONDS)
            expected = after if witness.found == after else both
        witness.assert_exactly(flow.copy, expected)


def test_first_start_at_least_once(
    clusters: dict[str, PlaygroundCluster], flow: SparklessFlow
) -> None:
    """Without exactly-once there is no transaction to die in, and the first start still
    decides: what arrives after it is copied although a second start follows.
    """
    flow.settings["exactly_once"] = False
    flow.own()
    after = keys(_PARTITIONS, _EACH, first=_EACH)
    send(producer(clusters["a"].bootstrap), flow.topic, after, b"v")
    flow.own()
    copy_to_the_end(flow)
    with Witness(clusters["b"].bootstrap) as witness:
        witness.assert_exactly(flow.copy, after)


def test_an_open_transaction_does_not_hide_the_beginning(
    clusters: dict[str, PlaygroundCluster], flow: SparklessFlow
) -> None:
    """A slot that dies with a transaction open hides what follows it on the target; the
    next start still knows that the flow has begun: a partition added since is copied
    from its first record.
    """
    bootstrap = clusters["a"].bootstrap
    source = producer(bootstrap)
    flow.own()
    sent = keys(_PARTITIONS, _EACH, first=_EACH)
    send(source, flow.topic, sent, b"v")
    dying = SignalAt(point=Point.AFTER_WRITE, number=signal.SIGKILL)
    with SlotProcess(flow, signal_at=dying) as slot:
        wait_for(lambda: not slot.alive)
    add_partitions(bootstrap, flow.topic, _PARTITIONS + 1)
    added = keys(_PARTITIONS + 1, _EACH)[_PARTITIONS]
    send(producer(bootstrap), flow.topic, {_PARTITIONS: added}, b"v")
    flow.own()
    copy_to_the_end(flow)
    with Witness(clusters["b"].bootstrap) as witness:
        witness.assert_exactly(flow.copy, {**sent, _PARTITIONS: added})


@dataclass(kw_only=True)
class Leaderless:
    """A source of three brokers, one of which is dead and alone has partition 0."""

    cluster: PlaygroundCluster
    topic: str

    def has_leader(self) -> bool:
        admin = AdminClient({"bootstrap.servers": self.cluster.bootstrap})
        shown = admin.list_topics(self.topic, timeout=30).topics[self.topic]
        return len(shown.partitions) == _PARTITIONS and shown.partitions[0].leader >= 0

    def revive(self) -> None:
        self.cluster.start(3)
        wait_for(self.has_leader)


@pytest.fixture
def leaderless(
    make_clusters: Callable[..., dict[str, PlaygroundCluster]], flow: SparklessFlow
) -> Leaderless:
    """Both partitions have records from before the first start."""
    cluster = make_clusters("a", nodes=3)["a"]
    flow.source = cluster.bootstrap
    new = NewTopic(
        flow.topic,
        num_partitions=_PARTITIONS,
        replica_assignment=[[3], [1]],
        config={"min.insync.replicas": "1"},
    )
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap})
    admin.create_topics([new])[flow.topic].result(30)
    made = Leaderless(cluster=cluster, topic=flow.topic)
    wait_for(made.has_leader)
    send(producer(cluster.bootstrap), flow.topic, keys(_PARTITIONS, _EACH), b"v")
    cluster.kill(3)
    wait_for(lambda: not made.has_leader())
    return made


def test_partition_without_a_leader_at_the_first_start(
    clusters: dict[str, PlaygroundCluster], flow: SparklessFlow, leaderless: Leaderless
) -> None:
    """A partition that has no leader when a flow with `start: latest` starts for the
    first time begins where its log ended then: nothing older is copied, and nothing
    that arrives before a slot first looks at it is left out. Its neighbour is copied
    meanwhile.
    """
    source = producer(leaderless.cluster.bootstrap)
    flow.own()
    after = keys(_PARTITIONS, _EACH, first=_EACH)
    send(source, flow.topic, {1: after[1]}, b"v")
    with Witness(clusters["b"].bootstrap) as witness:
        witness.begin(flow.copy)
        with flow.slot() as slot:
            lease = flow.lease(PATIENCE_SECONDS)
            reports = copy_until(
                witness, slot, lease, count=_EACH, timeout=PATIENCE_SECONDS
            )
        waiting = next(each for each in reports if each.partition == 0)
        assert "has no leader" in waiting.reason
        flow.own()
        leaderless.revive()
        send(source, flow.topic, {0: after[0]}, b"v")
        copy_to_the_end(flow)
        witness.assert_exactly(flow.copy, after)


@pytest.mark.full
def test_a_beginning_that_was_found_late_is_written_down(
    clusters: dict[str, PlaygroundCluster], flow: SparklessFlow, leaderless: Leaderless
) -> None:
    """The start of such a partition is written as soon as it is known, even if there is
    nothing to copy: the next take-over notices records that arrived since and are
    already gone, when the log no longer shows where it ended at the first start.
    """
    flow.own()
    leaderless.revive()
    with contextlib.closing(Cluster(flow.plan.target).connect()) as target:
        with flow.slot() as slot:
            running = RunningLease(slot, flow.lease(PATIENCE_SECONDS))
            try:
                key = (flow.topic, 0)
                wait_for(lambda: key in progress.read(target, flow.progress).positions)
            finally:
                running.end()
        known = progress.read(target, flow.progress)
        assert known.positions[key].offset == _EACH
        assert not known.unsettled

        after = keys(1, _EACH, first=_EACH)
        bootstrap = leaderless.cluster.bootstrap
        send(producer(bootstrap), flow.topic, after, b"v")
        gone = 10
        delete_records(bootstrap, flow.topic, _EACH + gone)
        flow.own()
        copy_to_the_end(flow)
        (loss,) = losses.read(target, flow.alias)
        assert (loss.partition, loss.first, loss.last) == (0, _EACH, _EACH + gone - 1)
    with Witness(clusters["b"].bootstrap) as witness:
        witness.assert_exactly(flow.copy, {0: after[0][gone:], 1: []})
