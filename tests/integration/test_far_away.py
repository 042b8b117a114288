"""Clusters that are far away: more is on its way at once, and nothing is lost of it."""

from __future__ import annotations

from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pytest

from tests.harness.admin import create_topic
from tests.harness.far import far_from
from tests.harness.load import keys, producer, send
from tests.harness.mishaps import Mishap, Rule
from tests.harness.slot_processes import SlotProcess
from tests.harness.slots import RunningLease, SparklessFlow
from tests.harness.witness import Order, Witness, assert_at_least_once

if TYPE_CHECKING:
    from collections.abc import Iterator

    from mirror.playground.cluster import PlaygroundCluster
    from tests.harness.proxy import BrokerProxy

pytestmark = [pytest.mark.integration, pytest.mark.full]

_ONE_WAY_SECONDS = 0.03
_PARTITIONS, _EACH, _SIZE = 8, 2500, 5000
"""100 MB: more than a transaction takes, or an answer, or several."""


@dataclass(frozen=True, kw_only=True)
class _Distance:
    """A full topic between two far clusters, and clients for its copy."""

    flow: SparklessFlow
    order: Order
    source: BrokerProxy
    target: BrokerProxy
    witness: Witness


@contextmanager
def _distance(
    clusters: dict[str, PlaygroundCluster],
    topic: str,
    *,
    each: int = _EACH,
    **settings: Any,
) -> Iterator[_Distance]:
    """`each` is a partition's number of records; `settings` are those of the flow."""
    order = keys(_PARTITIONS, each)
    source = clusters["a"].bootstrap
    create_topic(source, topic, _PARTITIONS)
    send(producer(source), topic, order, bytes(_SIZE))
    with (
        far_from(clusters["a"], one_way_seconds=_ONE_WAY_SECONDS) as (
            far_source,
            source_proxy,
        ),
        far_from(clusters["b"], one_way_seconds=_ONE_WAY_SECONDS) as (
            far_target,
            target_proxy,
        ),
        Witness(clusters["b"].bootstrap) as witness,
    ):
        flow = SparklessFlow(
            source=far_source,
            target=far_target,
            topic=topic,
            settings=settings,
        ).own()
        witness.begin(flow.copy)
        yield _Distance(
            flow=flow,
            order=order,
            source=source_proxy,
            target=target_proxy,
            witness=witness,
        )


@pytest.mark.parametrize("exactly_once", [True, False])
def test_killed_over_a_distance(
    clusters: dict[str, PlaygroundCluster], topic_name: str, *, exactly_once: bool
) -> None:
    """kill -9 of a worker between two far clusters, with several answers and full
    transactions under way: the next worker continues, and every record is on the target
    once and in order; at least once, with that setting.
    """
    with _distance(clusters, topic_name, exactly_once=exactly_once) as far:
        flow, witness, order = far.flow, far.witness, far.order
        with SlotProcess(flow, lease_seconds=120):
            witness.wait(1, 60)
        assert sum(map(len, witness.found.values())) < _PARTITIONS * _EACH
        flow.own()
        with flow.slot() as next_slot:
            lease = RunningLease(next_slot, flow.lease(120))
            witness.begin(flow.copy)
            while any(set(witness.found[p]) < set(order[p]) for p in order):
                seen = sum(map(len, witness.found.values()))
                witness.wait(seen + 1, 60, lease)
            lease.end()
        if exactly_once:
            witness.assert_exactly(flow.copy, order)
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
    """One of several connections to a far cluster ends while it is in use: the slot
    takes over by itself within its lease, and every record is on the target once.
    """
    with _distance(clusters, topic_name) as far:
        flow, witness = far.flow, far.witness
        named = topic_name if api == "Fetch" else flow.copy
        proxy = far.source if api == "Fetch" else far.target
        rule = Rule(api=api, mishap=mishap, topic=named, skip=2)
        with flow.slot() as slot, proxy.rules(rule):
            lease = RunningLease(slot, flow.lease(120))
            witness.wait(_PARTITIONS * _EACH, 100, lease)
            lease.end()
        assert rule.hits == 1
        witness.assert_exactly(flow.copy, far.order)


def test_worker_stays_below_one_gib_over_a_distance(
    clusters: dict[str, PlaygroundCluster], topic_name: str
) -> None:
    """A worker that catches up between two far clusters has more under way at once, and
    never holds 1 GiB.
    """
    each = 4 * _EACH
    with _distance(clusters, topic_name, each=each) as far:
        with SlotProcess(far.flow, lease_seconds=120, like_a_worker=True) as slot:
            far.witness.wait(_PARTITIONS * each, 100)
            assert slot.end() == "done"
            peak = slot.peak_memory()
        far.witness.assert_exactly(far.flow.copy, far.order)
    print(f"peak memory over a distance: {peak >> 20} MiB")
    assert peak < 1 << 30
