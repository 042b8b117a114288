"""Clusters that are far away: more is on its way at once, and nothing is lost of it."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING
import uuid

import pytest

from mirror.playground.ports import LOOPBACK, free_ports
from tests.benchmarks.wan import Wan
from tests.copying import Copying, RunningLease, SlotAlone, Witness, keys, send
from tests.harness import assert_at_least_once, create_topic, producer
from tests.proxy import BrokerProxy, Mishap, Rule

if TYPE_CHECKING:
    from collections.abc import Iterator

    from mirror.playground.cluster import PlaygroundCluster

pytestmark = pytest.mark.integration

_ONE_WAY_SECONDS = 0.03
_PARTITIONS, _EACH, _SIZE = 8, 2500, 5000
"""100 MB: more than a transaction takes, or an answer, or several."""


@contextmanager
def _far(cluster: PlaygroundCluster) -> Iterator[tuple[str, BrokerProxy]]:
    """Its address over a distance, and the proxy before its broker."""
    (port,) = free_ports(1)
    address = f"{LOOPBACK}:{port}"
    with (
        BrokerProxy(cluster.bootstrap, seen_at=port) as proxy,
        Wan(address, proxy.bootstrap, one_way_seconds=_ONE_WAY_SECONDS),
    ):
        yield address, proxy


@pytest.mark.parametrize("exactly_once", [True, False])
def test_killed_over_a_distance(
    clusters: dict[str, PlaygroundCluster], topic_name: str, *, exactly_once: bool
) -> None:
    """kill -9 of a worker between two far clusters, with several answers and full
    transactions on their way: the next one goes on, and every record is on the target
    once and in order; at least once, where that is the setting.
    """
    order = keys(_PARTITIONS, _EACH)
    source, target = clusters["a"].bootstrap, clusters["b"].bootstrap
    create_topic(source, topic_name, _PARTITIONS)
    send(producer(source), topic_name, order, bytes(_SIZE))
    with (
        _far(clusters["a"]) as (far_source, _),
        _far(clusters["b"]) as (far_target, _),
        Witness(target) as witness,
    ):
        copying = Copying(
            source=far_source,
            target=far_target,
            topic=topic_name,
            alias=f"W{uuid.uuid4().hex[:6]}",
            settings={"exactly_once": exactly_once},
        ).own()
        witness.begin(copying.copy)
        slot = SlotAlone(copying, seconds=120)
        try:
            witness.wait(1, 60)
        finally:
            slot.kill()
        assert sum(map(len, witness.found.values())) < _PARTITIONS * _EACH
        copying.own()
        with copying.slot() as next_slot:
            lease = RunningLease(next_slot, copying.lease(120))
            witness.begin(copying.copy)
            while any(set(witness.found[p]) < set(order[p]) for p in order):
                seen = sum(map(len, witness.found.values()))
                witness.wait(seen + 1, 60, lease)
            lease.ring()
        if exactly_once:
            witness.assert_exactly(copying.copy, order)
        else:
            assert_at_least_once(witness.found, order)


@pytest.mark.parametrize("mishap", [Mishap.LOST, Mishap.ANSWER_LOST])
@pytest.mark.parametrize("api", ["Fetch", "Produce"])
def test_a_connection_ends_in_mid_copy(
    clusters: dict[str, PlaygroundCluster],
    topic_name: str,
    api: str,
    mishap: Mishap,
) -> None:
    """One of several connections to a far cluster ends while it is used: the slot takes
    over by itself within its lease, and every record is on the target once.
    """
    order = keys(_PARTITIONS, _EACH)
    source, target = clusters["a"].bootstrap, clusters["b"].bootstrap
    create_topic(source, topic_name, _PARTITIONS)
    send(producer(source), topic_name, order, bytes(_SIZE))
    with (
        _far(clusters["a"]) as (far_source, source_proxy),
        _far(clusters["b"]) as (far_target, target_proxy),
        Witness(target) as witness,
    ):
        copying = Copying(
            source=far_source,
            target=far_target,
            topic=topic_name,
            alias=f"W{uuid.uuid4().hex[:6]}",
        ).own()
        named = topic_name if api == "Fetch" else copying.copy
        proxy = source_proxy if api == "Fetch" else target_proxy
        rule = Rule(api=api, mishap=mishap, topic=named, skip=2)
        with copying.slot() as slot, proxy.rules(rule):
            lease = RunningLease(slot, copying.lease(120))
            witness.begin(copying.copy)
            witness.wait(_PARTITIONS * _EACH, 100, lease)
            lease.ring()
        assert rule.hits == 1
        witness.assert_exactly(copying.copy, order)
