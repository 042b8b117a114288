"""An address that comes to lead to another cluster: nothing is copied from there.

A proxy stands in for the DNS name or the load balancer. It leads to one of two real
clusters and presents itself as their only broker, so every new connection goes where it
leads. It hides topic ids in fetches, as brokers before 3.1 have none, so that they
cannot give the change away.
"""

from __future__ import annotations

import contextlib
import functools
import signal
import time
from typing import TYPE_CHECKING, Any
import uuid

from confluent_kafka.admin import AdminClient
import pytest
import structlog

from mirror.clusters.cluster import Cluster
from mirror.errors import ClusterChangedError
from mirror.offsets import progress, runs
from mirror.offsets.progress import UNSETTLED, Position
from mirror.offsets.starting import start_point
from mirror.service import positions
from mirror.service.ownership import PositionUpdate, rewrite_progress, take_ownership
from mirror.topics import topics
from tests.harness.admin import create_topic, end_offsets
from tests.harness.cases import cases
from tests.harness.load import keys, producer, send
from tests.harness.proxy import BrokerProxy
from tests.harness.service import RunningMirror
from tests.harness.slot_processes import DriverPoint, DriverProcess, SignalAt
from tests.harness.slots import RunningLease, SparklessFlow
from tests.harness.waiting import deadline_in
from tests.harness.witness import Witness, eventually

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, MutableMapping, Sequence
    from pathlib import Path

    from mirror.copying.lease import LeasePlan
    from mirror.playground.cluster import PlaygroundCluster

pytestmark = pytest.mark.integration

_PARTITIONS = 2
_EACH = 20
_TEMPTING = 60
"""More records than were copied: a position in the one log is one in the other."""

Said = list["MutableMapping[str, Any]"]


@contextlib.contextmanager
def _running(flow: SparklessFlow) -> Iterator[tuple[RunningLease, Said]]:
    with structlog.testing.capture_logs() as said, flow.slot() as slot:
        running = RunningLease(slot, flow.lease(120))
        try:
            yield running, said
        finally:
            running.end()


def _flow(source: str, target: str, topic: str) -> SparklessFlow:
    return SparklessFlow(
        source=source,
        target=target,
        topic=topic,
        timeout=5.0,
        settings={"on_recreated_topic": "continue", "on_loss": "continue"},
    )


def _wait_until_said(said: Said, *words: str) -> None:
    end = deadline_in()
    while not any(
        all(word in each.get("error", "") for word in words) for each in said
    ):
        assert time.monotonic() < end, said
        time.sleep(0.05)


def test_a_source_that_becomes_another_cluster_is_not_copied(
    clusters: dict[str, PlaygroundCluster], topic_name: str
) -> None:
    """When the source's address leads to another cluster with a topic of the same name,
    the slot names both ids and copies nothing; it continues once the address is right.
    """
    source, other = clusters["a"], clusters["b"]
    for cluster in (source, other):
        create_topic(cluster.bootstrap, topic_name, _PARTITIONS)
    send(producer(other.bootstrap), topic_name, keys(_PARTITIONS, _TEMPTING, first=900),
         b"v")  # fmt: skip
    client = producer(source.bootstrap)
    send(client, topic_name, keys(_PARTITIONS, _EACH), b"v")
    with (
        BrokerProxy(source.bootstrap) as proxy,
        Witness(other.bootstrap) as witness,
    ):
        flow = _flow(proxy.bootstrap, other.bootstrap, topic_name).own()
        ids = (flow.plan.source_id, flow.plan.target_id)
        witness.begin(flow.copy)
        with _running(flow) as (running, said):
            witness.wait(_PARTITIONS * _EACH, 30, running)
            proxy.lead_to(other.bootstrap)
            _wait_until_said(said, *ids, flow.alias, proxy.bootstrap)
            witness.assert_exactly(flow.copy, keys(_PARTITIONS, _EACH))
            proxy.lead_to(source.bootstrap)
            send(client, topic_name, keys(_PARTITIONS, 1, first=_EACH), b"v")
            witness.wait(_PARTITIONS * (_EACH + 1), 30, running)
        witness.assert_exactly(flow.copy, keys(_PARTITIONS, _EACH + 1))


def test_a_target_that_becomes_another_cluster_gets_nothing(
    clusters: dict[str, PlaygroundCluster], topic_name: str
) -> None:
    """When the target's address leads to another cluster, which has topics with all the
    names that the flow writes to, none of them gets a record; the slot names both ids
    and continues once the address is right.
    """
    other, target = clusters["a"], clusters["b"]
    create_topic(other.bootstrap, topic_name, _PARTITIONS)
    client = producer(other.bootstrap)
    send(client, topic_name, keys(_PARTITIONS, _EACH), b"v")
    with (
        BrokerProxy(target.bootstrap) as proxy,
        Witness(target.bootstrap) as witness,
        Witness(other.bootstrap) as bystander,
    ):
        flow = _flow(other.bootstrap, proxy.bootstrap, topic_name).own()
        ids = (flow.plan.source_id, flow.plan.target_id)
        names = {
            flow.copy: _PARTITIONS,
            flow.progress: 1,
            runs.topic_name(flow.alias): 1,
        }
        for name, partitions in names.items():
            create_topic(other.bootstrap, name, partitions)
        witness.begin(flow.copy)
        with _running(flow) as (running, said):
            witness.wait(_PARTITIONS * _EACH, 30, running)
            proxy.lead_to(other.bootstrap)
            send(client, topic_name, keys(_PARTITIONS, 1, first=_EACH), b"v")
            _wait_until_said(said, *ids, "cluster B", proxy.bootstrap)
            for name, partitions in names.items():
                bystander.assert_exactly(name, keys(partitions, 0))
            proxy.lead_to(target.bootstrap)
            witness.wait(_PARTITIONS * (_EACH + 1), 30, running)
        witness.assert_exactly(flow.copy, keys(_PARTITIONS, _EACH + 1))


@pytest.mark.full
def test_a_service_says_so_and_goes_on_when_it_is_right_again(
    clusters: dict[str, PlaygroundCluster], topic_name: str, tmp_path: Path
) -> None:
    """A running service whose source's address leads to another cluster, and whose
    workers are killed then so that it takes over, shows both ids as the reason, copies
    nothing, and continues by itself once the address is right.
    """
    source, other = clusters["a"].bootstrap, clusters["b"].bootstrap
    alias = f"D{uuid.uuid4().hex[:6]}"
    for bootstrap in (source, other):
        create_topic(bootstrap, topic_name, _PARTITIONS)
    send(producer(other), topic_name, keys(_PARTITIONS, _TEMPTING, first=900), b"v")
    client = producer(source)
    send(client, topic_name, keys(_PARTITIONS, _EACH), b"v")
    copy = f"{alias}.{topic_name}"
    with BrokerProxy(source) as proxy, Witness(other) as witness:
        config = {
            "clusters": {
                alias: {"bootstrap_servers": proxy.bootstrap},
                "B": {"bootstrap_servers": other},
            },
            "flows": {
                f"{alias}->B": {
                    "topics": [topic_name], "lease_seconds": 1, "tasks": 1,
                    "emit_heartbeats": False, "heartbeats_replication": False,
                }
            },
        }  # fmt: skip
        with RunningMirror(config, tmp_path) as mirror:
            eventually(other, copy, _PARTITIONS * _EACH)
            ids = [_id_of(source), _id_of(other)]
            proxy.lead_to(other)
            mirror.wait_until(lambda document: _reason_names(document, ids))
            mirror.fail_lease()
            mirror.wait_until(lambda document: _reason_names(document, ids))
            witness.assert_exactly(copy, keys(_PARTITIONS, _EACH))
            proxy.lead_to(source)
            send(client, topic_name, keys(_PARTITIONS, 1, first=_EACH), b"v")
            eventually(other, copy, _PARTITIONS * (_EACH + 1))
            mirror.wait_until(
                lambda document: (
                    document["flows"][0]["state"] == "RUNNING"
                    and not _reason_names(document, ids)
                )
            )
            assert mirror.terminate() == 0
        witness.assert_exactly(copy, keys(_PARTITIONS, _EACH + 1))


def _id_of(bootstrap: str) -> str:
    return (
        AdminClient({"bootstrap.servers": bootstrap}).list_topics(timeout=30).cluster_id
    )


def _reason_names(document: Mapping[str, Any], ids: Sequence[str]) -> bool:
    """Whether the reason of the flow, or of all its partitions, has both ids."""
    (flow,) = document["flows"]
    reasons = [flow["reason"], *(each["reason"] for each in flow["partitions"])]
    return any(all(each in reason for each in ids) for reason in reasons)


def test_a_start_with_another_cluster_is_refused(
    clusters: dict[str, PlaygroundCluster], topic_name: str
) -> None:
    """A service that starts while the source's address leads to another cluster names
    both ids and writes nothing, even in a process that never saw the right cluster.
    Moving the positions on purpose accepts the other cluster.
    """
    create_topic(clusters["a"].bootstrap, topic_name, _PARTITIONS)
    flow = _flow(clusters["a"].bootstrap, clusters["b"].bootstrap, topic_name).own()
    plan = flow.plan
    with (
        contextlib.closing(Cluster(plan.source).connect()) as right,
        contextlib.closing(Cluster(plan.target).connect()) as target,
        contextlib.closing(Cluster(plan.target).connect()) as other,
    ):

        def own(source: Cluster) -> None:
            take_ownership(plan.flow, source, target, slots=1, partitions={})

        before = progress.read(target, flow.progress)
        with pytest.raises(ClusterChangedError) as caught:
            own(other)
        assert right.cluster_id in str(caught.value)
        assert other.cluster_id in str(caught.value)
        assert progress.read(target, flow.progress) == before
        own(right)

        rewrite_progress(
            plan.flow,
            target,
            lambda _: PositionUpdate(positions={}),
            source_id=other.cluster_id,
        )
        own(other)
        with pytest.raises(ClusterChangedError):
            own(right)


_MOVED = {0: 5, 1: 7}
"""Where partitions go on in the other cluster."""

# Of two passes the first is about the generation, the second about the move itself.
_STEPS = [
    *((DriverPoint.BEFORE_WRITE, passes) for passes in (1, 2)),
    *((DriverPoint.AFTER_WRITE, passes) for passes in (1, 2)),
    (DriverPoint.AFTER_COMMIT_REQUEST, 1),
    *((DriverPoint.AFTER_COMMIT, passes) for passes in (1, 2)),
]
_PROMISED = (DriverPoint.AFTER_COMMIT, 2)
_SOME = {(DriverPoint.BEFORE_WRITE, 2), _PROMISED}


def _move(plan: LeasePlan, topic: str, source_id: str) -> None:
    """Let the flow continue in the cluster with this id."""
    positions = {
        (topic, partition): Position(offset=offset)
        for partition, offset in _MOVED.items()
    }
    with contextlib.closing(Cluster(plan.target).connect()) as target:
        rewrite_progress(
            plan.flow, target, lambda _: PositionUpdate(positions=positions),
            source_id=source_id,
        )  # fmt: skip


def _stands(flow: SparklessFlow) -> dict[int, int]:
    """The position of each partition of its topic."""
    with contextlib.closing(Cluster(flow.plan.target).connect()) as target:
        known = progress.read(target, flow.progress).positions
    return {key[1]: at.offset for key, at in known.items() if key[0] == flow.topic}


def _begun(clusters: Mapping[str, PlaygroundCluster], topic: str) -> SparklessFlow:
    """A flow with positions in cluster a, which does not know cluster b yet."""
    source = clusters["a"].bootstrap
    create_topic(source, topic, _PARTITIONS)
    send(producer(source), topic, keys(_PARTITIONS, _EACH), b"v")
    flow = _flow(source, clusters["b"].bootstrap, topic)
    flow.settings["start"] = "latest"
    flow.own()
    assert _stands(flow) == dict.fromkeys(range(_PARTITIONS), _EACH)
    return flow


@pytest.mark.parametrize(
    ("point", "passes"),
    cases(_STEPS, some=_SOME),
    ids=[f"{p.name.lower()}-{n}" for p, n in _STEPS],
)
def test_a_move_that_dies_has_changed_nothing(
    clusters: dict[str, PlaygroundCluster],
    topic_name: str,
    point: DriverPoint,
    passes: int,
) -> None:
    """Positions and the cluster that they belong to move in one transaction: a process
    that dies at this point before the commit leaves a flow that continues in the old
    cluster where it was; one that dies after it, a flow that has moved as a whole.
    """
    flow = _begun(clusters, topic_name)
    with DriverProcess(
        functools.partial(_move, flow.plan, topic_name, flow.plan.target_id),
        signal_at=SignalAt(point=point, passes=passes, number=signal.SIGKILL),
    ) as mover:
        assert not mover.how_it_ended(), "it got through"
    if (point, passes) == _PROMISED:
        with pytest.raises(ClusterChangedError):
            flow.own()
        assert _stands(flow) == _MOVED
    else:
        flow.own()
        assert _stands(flow) == dict.fromkeys(range(_PARTITIONS), _EACH)


@pytest.mark.parametrize("kept", [Position(offset=9), Position(offset=UNSETTLED)])
def test_a_move_takes_all_partitions_or_none(
    clusters: dict[str, PlaygroundCluster], topic_name: str, kept: Position
) -> None:
    """A move that would leave a partition's position in the old cluster, even one that
    is not found yet, is refused, and the flow continues in the old cluster unchanged.
    """
    flow = _begun(clusters, topic_name)
    before = _stands(flow)
    with contextlib.closing(Cluster(flow.plan.target).connect()) as target:
        more = PositionUpdate(positions={(topic_name, _PARTITIONS): kept})
        rewrite_progress(flow.plan.flow, target, lambda _: more)
    with pytest.raises(ClusterChangedError, match="1 partitions would keep"):
        _move(flow.plan, topic_name, flow.plan.target_id)
    if kept.offset != UNSETTLED:
        before[_PARTITIONS] = kept.offset
    assert _stands(flow) == before
    flow.own()


def test_what_the_other_cluster_does_not_have_stays_behind(
    clusters: dict[str, PlaygroundCluster], topic_name: str
) -> None:
    """A reset of all topics moves a flow even if the other cluster lacks a partition
    that was copied before: what appears there later is new, and begins at its first
    record. A reset that leaves out what the other cluster has is refused.
    """
    flow = _begun(clusters, topic_name)
    plan = flow.plan
    other = clusters["b"].bootstrap
    create_topic(other, topic_name)  # with one partition instead of two
    send(producer(other), topic_name, keys(1, 3), b"v")
    with contextlib.closing(Cluster(plan.target).connect()) as target:
        selected = topics.select(target, plan.flow).topics
        assert end_offsets(other, topic_name) == {0: 3}
        for chosen, expected in (
            ((), {0: _EACH, 1: _EACH}),
            (selected, {0: 3, 1: 0}),
        ):
            with contextlib.ExitStack() as stack:
                if not chosen:
                    stack.enter_context(
                        pytest.raises(ClusterChangedError, match="1 partitions would")
                    )
                positions.reset(
                    plan.flow, target, target, chosen, start_point("latest"),
                    of_flow=selected,
                )  # fmt: skip
            assert _stands(flow) == expected
