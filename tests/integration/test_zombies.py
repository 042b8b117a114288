"""Slots that sleep while they are replaced can do no harm when they wake up."""

from __future__ import annotations

import itertools
import random
import signal
import time
from typing import TYPE_CHECKING

import pytest

from mirror.copying.target import MAX_IN_FLIGHT
from tests.harness.admin import copied_records, create_topic, end_offsets
from tests.harness.cases import cases
from tests.harness.load import NumberedLoad
from tests.harness.slot_processes import (
    DriverPoint,
    DriverProcess,
    Point,
    SignalAt,
    SlotProcess,
)
from tests.harness.slots import SparklessFlow
from tests.harness.waiting import deadline_in, wait_for
from tests.harness.witness import assert_exactly_once, order_of

if TYPE_CHECKING:
    from collections.abc import Callable

    from mirror.playground.cluster import PlaygroundCluster

pytestmark = pytest.mark.integration

_PARTITIONS = 4
_LEASE_SECONDS = 1.0
_SOME = (Point.AFTER_PROGRESS, Point.BEFORE_WRITE, Point.AFTER_COMMIT_REQUEST)


@pytest.fixture
def flow(clusters: dict[str, PlaygroundCluster], topic_name: str) -> SparklessFlow:
    source, target = clusters["a"].bootstrap, clusters["b"].bootstrap
    create_topic(source, topic_name, _PARTITIONS)
    return SparklessFlow(source=source, target=target, topic=topic_name, alias="Z")


def wait_copied(flow: SparklessFlow, load: NumberedLoad, timeout: float = 60) -> None:
    """Wait until the copy's partitions hold as many records (and markers more)."""

    def copied() -> bool:
        ends = end_offsets(flow.target, flow.copy)
        return all(ends[p] > len(keys) for p, keys in load.order.items())

    wait_for(copied, timeout)


def check(flow: SparklessFlow, load: NumberedLoad, timeout: float = 60) -> None:
    """Wait until a consumer sees as many records as were sent, then look closely."""
    deadline = deadline_in(timeout)
    while True:
        found = order_of(flow.target, flow.copy)
        enough = sum(map(len, found.values())) >= load.total
        if enough or time.monotonic() > deadline:
            break
        time.sleep(0.5)
    assert_exactly_once(found, load.order)


def test_suspended_in_mid_copy_past_its_lease(
    flow: SparklessFlow, start_slot: Callable[..., SlotProcess]
) -> None:
    """Three generations of slots are suspended at random moments of their copying, each
    is replaced by a newer one with another split of the partitions, and all wake up
    again: each ends fenced, and every record is there exactly once.
    """
    moments = random.Random(7)
    copy = flow.copy
    load = NumberedLoad(flow.source, flow.topic, _PARTITIONS, seed=4)
    splits = [{0: [0, 1, 2, 3]}, {0: [2, 3], 1: [0, 1]}, {0: [0], 1: [1, 2, 3]}]
    asleep: list[SlotProcess] = []
    with load.streaming():
        for split in splits:
            flow.own(slots=len(split))
            before = copied_records(flow.target, copy)
            awake = [
                start_slot(
                    flow, slot=slot, partitions=partitions, lease_seconds=_LEASE_SECONDS
                )
                for slot, partitions in split.items()
            ]
            wait_for(
                lambda before=before: copied_records(flow.target, copy) > before, 60
            )
            time.sleep(moments.uniform(0, 0.5))
            for slot in awake:
                slot.suspend()
            asleep += awake
            time.sleep(_LEASE_SECONDS)
        last = start_slot(flow.own(), lease_seconds=_LEASE_SECONDS)
        before = copied_records(flow.target, copy)
        wait_for(lambda: copied_records(flow.target, copy) > before)
        for zombie in asleep:
            zombie.resume()
            assert zombie.how_it_ended() in {"superseded", "fenced"}
            time.sleep(
                _LEASE_SECONDS
            )  # not two of them within one lease of the living one
    check(flow, load)
    assert last.end() == "done"


@pytest.mark.parametrize(
    "point", cases(Point, some=_SOME), ids=lambda point: point.name.lower()
)
def test_suspended_at(
    flow: SparklessFlow, start_slot: Callable[..., SlotProcess], point: Point
) -> None:
    """A slot suspended at this point is replaced, wakes up, and ends fenced without
    having written anything twice.
    """
    load = NumberedLoad(flow.source, flow.topic, _PARTITIONS, seed=5)
    load.send(5000)
    first = start_slot(
        flow.own(),
        lease_seconds=30,
        signal_at=SignalAt(point=point, number=signal.SIGSTOP),
    )
    wait_for(lambda: first.suspended)
    load.send(1000)
    second = start_slot(flow.own(), lease_seconds=1)
    wait_copied(flow, load)
    first.resume()
    assert first.how_it_ended() == "superseded"
    load.send(1000)
    check(flow, load)
    assert second.end() == "done"


def test_wakes_id_by_id(
    flow: SparklessFlow, start_slot: Callable[..., SlotProcess]
) -> None:
    """A replaced slot that takes its ids over one at a time, each while the living one
    copies, fences that one each time: no lease of the living one fails for it, and none
    doubles anything.
    """
    copy = flow.copy
    load = NumberedLoad(flow.source, flow.topic, _PARTITIONS, seed=8)

    def goes_on() -> None:
        before = copied_records(flow.target, copy)
        wait_for(lambda: copied_records(flow.target, copy) > before)

    with load.streaming(chunk=200, pause=0.01):
        zombie = start_slot(
            flow.own(),
            signal_at=SignalAt(
                point=Point.BEFORE_EACH_ID, number=signal.SIGSTOP, again=True
            ),
        )
        wait_for(lambda: zombie.suspended)
        living = start_slot(flow.own(), lease_seconds=_LEASE_SECONDS)
        goes_on()
        for _ in range(10 * MAX_IN_FLIGHT):  # when brokers are slow, it begins again
            zombie.resume()
            wait_for(lambda: zombie.suspended or not zombie.alive)
            if not zombie.alive:
                break
            # A lease fails at its fourth fencing; each id may be taken over twice.
            time.sleep(1.5 * _LEASE_SECONDS)
            goes_on()
        assert zombie.how_it_ended() == "superseded"
        goes_on()
    check(flow, load)
    assert living.end() == "done"


def test_a_driver_suspended_before_it_says_so(
    flow: SparklessFlow, start_slot: Callable[..., SlotProcess]
) -> None:
    """A driver sleeps right before it would name itself the owner, and another run with
    more slots begins meanwhile: on waking the first is fenced, and the others copy
    every record exactly once.
    """
    load = NumberedLoad(flow.source, flow.topic, _PARTITIONS, seed=9)
    asleep = SignalAt(point=DriverPoint.BEFORE_WRITE, number=signal.SIGSTOP)
    with DriverProcess(flow.own, signal_at=asleep) as late:
        wait_for(lambda: late.suspended)
        flow.own(slots=2)
        with load.streaming(chunk=200, pause=0.01):
            living = [
                start_slot(flow, slot=slot, partitions=partitions)
                for slot, partitions in enumerate(([0, 1], [2, 3]))
            ]
            before = copied_records(flow.target, flow.copy)
            wait_for(lambda: copied_records(flow.target, flow.copy) > before)
            late.resume()
            assert late.how_it_ended() == "fenced"
    check(flow, load)
    assert [each.end() for each in living] == ["done", "done"]


@pytest.mark.parametrize(
    "point",
    cases((p for p in Point if p is not Point.BEFORE_TAKE_OVER), some=_SOME),
    ids=lambda point: point.name.lower(),
)
def test_killed_at(
    flow: SparklessFlow, start_slot: Callable[..., SlotProcess], point: Point
) -> None:
    """A slot that dies at this point, a while into its work, leaves nothing that its
    successor of the same driver run copies twice or not at all.
    """
    load = NumberedLoad(flow.source, flow.topic, _PARTITIONS, seed=6)
    flow.own()
    early = point in {Point.AFTER_TAKE_OVER, Point.AFTER_PROGRESS}
    with load.streaming(chunk=200, pause=0.01):
        first = start_slot(
            flow,
            signal_at=SignalAt(
                point=point, number=signal.SIGKILL, passes=1 if early else 3
            ),
        )
        wait_for(lambda: not first.alive)
        second = start_slot(flow, lease_seconds=1)
        time.sleep(1)
    check(flow, load)
    assert second.end() == "done"


@pytest.mark.parametrize(
    ("number", "point"),
    cases(
        itertools.product(
            (signal.SIGSTOP, signal.SIGKILL), (Point.BEFORE_WRITE, Point.AFTER_WRITE)
        ),
        some=((signal.SIGSTOP, Point.AFTER_WRITE),),
    ),
)
def test_on_credit(
    flow: SparklessFlow,
    start_slot: Callable[..., SlotProcess],
    number: signal.Signals,
    point: Point,
) -> None:
    """A slot that is suspended or killed while it copies on credit has a successor in
    another process, which takes its transaction away: on waking up it ends its credit,
    and every record is there exactly once.
    """
    load = NumberedLoad(flow.source, flow.topic, _PARTITIONS, seed=10)
    flow.own()
    with load.streaming(chunk=200, pause=0.01):
        first = start_slot(
            flow, lease_seconds=1, credit=True,
            signal_at=SignalAt(point=point, number=number),
        )  # fmt: skip
        wait_for(lambda: first.suspended or not first.alive)
        flow.leases += 1
        second = start_slot(flow, lease_seconds=1)
        before = copied_records(flow.target, flow.copy)
        wait_for(lambda: copied_records(flow.target, flow.copy) > before)
        first.resume()
        assert first.how_it_ended() == ("fenced" if number == signal.SIGSTOP else "")
    check(flow, load)
    assert second.end() == "done"
