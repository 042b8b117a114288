"""An address that comes to lead to another cluster: nothing is copied from there.

A proxy stands for the name or the balancer. It leads to one of two real clusters, and
shows itself as their only broker, so that every new connection goes where it leads. It
knows no topic ids in fetches, as brokers before 3.1: nothing else would tell.
"""

from __future__ import annotations

import contextlib
import time
from typing import TYPE_CHECKING, Any
import uuid

from confluent_kafka.admin import AdminClient
import pytest
import structlog

from mirror.clusters.cluster import Cluster
from mirror.errors import ClusterChangedError
from mirror.offsets import progress
from mirror.relay.ownership import Rewriting, rewrite_progress, take_ownership
from tests.copying import Copying, RunningLease, Witness, keys, send
from tests.harness import RunningMirror, create_topic, eventually, producer
from tests.proxy import BrokerProxy

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, MutableMapping, Sequence
    from pathlib import Path

    from mirror.playground.cluster import PlaygroundCluster

pytestmark = pytest.mark.integration

_PARTITIONS = 2
_EACH = 20
_TEMPTING = 60
"""More records than were copied: a position in the one log is one in the other."""

Said = list["MutableMapping[str, Any]"]


@contextlib.contextmanager
def _running(copying: Copying) -> Iterator[tuple[RunningLease, Said]]:
    with structlog.testing.capture_logs() as said, copying.slot() as slot:
        running = RunningLease(slot, copying.lease(120))
        try:
            yield running, said
        finally:
            running.ring()


def _copying(source: str, target: str, topic: str) -> Copying:
    return Copying(
        source=source,
        target=target,
        topic=topic,
        alias=f"D{uuid.uuid4().hex[:6]}",
        timeout=5.0,
        settings={"on_recreated_topic": "continue", "on_loss": "continue"},
    )


def _wait_until_said(said: Said, *words: str) -> None:
    end = time.monotonic() + 30
    while not any(
        all(word in each.get("error", "") for word in words) for each in said
    ):
        assert time.monotonic() < end, said
        time.sleep(0.05)


def test_a_source_that_becomes_another_cluster_is_not_copied(
    clusters: dict[str, PlaygroundCluster], topic_name: str
) -> None:
    """The source's address comes to lead to another cluster with a topic of that name:
    the slot says both ids and copies nothing, and goes on when the address is right.
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
        copying = _copying(proxy.bootstrap, other.bootstrap, topic_name).own()
        assert copying.plan is not None
        ids = (copying.plan.source_id, copying.plan.target_id)
        witness.begin(copying.copy)
        with _running(copying) as (running, said):
            witness.wait(_PARTITIONS * _EACH, 30, running)
            proxy.lead_to(other.bootstrap)
            _wait_until_said(said, *ids, copying.alias, proxy.bootstrap)
            witness.assert_exactly(copying.copy, keys(_PARTITIONS, _EACH))
            proxy.lead_to(source.bootstrap)
            send(client, topic_name, keys(_PARTITIONS, 1, first=_EACH), b"v")
            witness.wait(_PARTITIONS * (_EACH + 1), 30, running)
        witness.assert_exactly(copying.copy, keys(_PARTITIONS, _EACH + 1))


def test_a_target_that_becomes_another_cluster_gets_nothing(
    clusters: dict[str, PlaygroundCluster], topic_name: str
) -> None:
    """The target's address comes to lead to another cluster, which has topics of all
    names that the flow writes to: none of them gets a record, the slot says both ids,
    and it goes on when the address is right.
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
        copying = _copying(other.bootstrap, proxy.bootstrap, topic_name).own()
        assert copying.plan is not None
        ids = (copying.plan.source_id, copying.plan.target_id)
        names = {
            copying.copy: _PARTITIONS,
            copying.progress: 1,
            f"mirror-offset-map.{copying.alias}.internal": 1,
        }
        for name, partitions in names.items():
            create_topic(other.bootstrap, name, partitions)
        witness.begin(copying.copy)
        with _running(copying) as (running, said):
            witness.wait(_PARTITIONS * _EACH, 30, running)
            proxy.lead_to(other.bootstrap)
            send(client, topic_name, keys(_PARTITIONS, 1, first=_EACH), b"v")
            _wait_until_said(said, *ids, "cluster Q", proxy.bootstrap)
            for name, partitions in names.items():
                bystander.assert_exactly(name, keys(partitions, 0))
            proxy.lead_to(target.bootstrap)
            witness.wait(_PARTITIONS * (_EACH + 1), 30, running)
        witness.assert_exactly(copying.copy, keys(_PARTITIONS, _EACH + 1))


def test_a_service_says_so_and_goes_on_when_it_is_right_again(
    clusters: dict[str, PlaygroundCluster], topic_name: str, tmp_path: Path
) -> None:
    """A running service whose source's address comes to lead to another cluster, and
    whose worker is killed there so that all begins anew, shows both ids as the reason,
    copies nothing, and goes on without help when the address is right.
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
    """Whether the flow, or all of its partitions, say both."""
    (flow,) = document["flows"]
    reasons = [flow["reason"], *(each["reason"] for each in flow["partitions"])]
    return any(all(each in reason for each in ids) for reason in reasons)


def test_a_start_with_another_cluster_is_refused(
    clusters: dict[str, PlaygroundCluster], topic_name: str
) -> None:
    """A service that starts while the source's address leads to another cluster says
    both ids and writes nothing, also without any memory of the right one. Moving the
    positions on purpose accepts the other one.
    """
    create_topic(clusters["a"].bootstrap, topic_name, _PARTITIONS)
    copying = _copying(
        clusters["a"].bootstrap, clusters["b"].bootstrap, topic_name
    ).own()
    assert copying.plan is not None
    plan, flow = copying.plan, copying.plan.flow
    with (
        contextlib.closing(Cluster(plan.source).connect()) as right,
        contextlib.closing(Cluster(plan.target).connect()) as target,
        contextlib.closing(Cluster(plan.target).connect()) as other,
    ):

        def own(source: Cluster) -> str:
            return take_ownership(flow, source, target, slots=1, partitions={})

        before = progress.read(target, copying.progress)
        with pytest.raises(ClusterChangedError) as caught:
            own(other)
        assert right.cluster_id in str(caught.value)
        assert other.cluster_id in str(caught.value)
        assert progress.read(target, copying.progress) == before
        own(right)

        rewrite_progress(
            flow,
            target,
            lambda _: Rewriting(positions={}),
            source_id=other.cluster_id,
        )
        own(other)
        with pytest.raises(ClusterChangedError):
            own(right)
