"""Slots that sleep through their replacement, wake up, and find nothing to spoil."""

from __future__ import annotations

from contextlib import ExitStack
import functools
import random
import signal
import time
from typing import TYPE_CHECKING

import pytest

from mirror.relay.target import MAX_IN_FLIGHT
from tests.harness.admin import copied_records, create_topic, end_offsets
from tests.harness.load import NumberedLoad
from tests.harness.slots import (
    Ambush,
    OwnerProcess,
    Point,
    Setting,
    SlotProcess,
    StartPoint,
)
from tests.harness.waiting import deadline_in, wait_for
from tests.harness.witness import assert_exactly_once, order_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from mirror.playground.cluster import PlaygroundCluster

pytestmark = pytest.mark.integration

_PARTITIONS = 4


@pytest.fixture
def setting(clusters: dict[str, PlaygroundCluster], topic_name: str) -> Setting:
    """A topic on the source and its empty copy."""
    made = Setting(
        source=clusters["a"].bootstrap,
        target=clusters["b"].bootstrap,
        topic=topic_name,
        partitions=_PARTITIONS,
    )
    create_topic(made.source, made.topic, _PARTITIONS)
    create_topic(made.target, f"Z.{made.topic}", _PARTITIONS)
    return made


@pytest.fixture
def start(setting: Setting) -> Iterator[Callable[..., SlotProcess]]:
    """Start slots that do not outlive the test."""
    with ExitStack() as stack:

        def begin(**options: object) -> SlotProcess:
            process = SlotProcess(setting, **options)
            stack.callback(process.kill)
            return process

        yield begin


def wait_copied(setting: Setting, load: NumberedLoad, timeout: float = 60) -> None:
    """Wait until the copy's partitions hold as many records (and markers more)."""

    def copied() -> bool:
        ends = end_offsets(setting.target, f"Z.{setting.topic}")
        return all(ends[p] > len(keys) for p, keys in load.order.items())

    wait_for(copied, timeout)


def check(setting: Setting, load: NumberedLoad, timeout: float = 60) -> None:
    """Wait until a consumer sees as many records as were sent, then look closely."""
    deadline = deadline_in(timeout)
    while True:
        found = order_of(setting.target, f"Z.{setting.topic}")
        enough = sum(map(len, found.values())) >= load.total
        if enough or time.monotonic() > deadline:
            break
        time.sleep(0.5)
    assert_exactly_once(found, load.order)


def test_suspended_in_mid_copy_past_its_lease(
    setting: Setting, start: Callable[..., SlotProcess]
) -> None:
    """Three generations of slots are suspended at random moments of their copying,
    each is replaced by a newer one with another split of the partitions, and all
    wake up again: each ends fenced, and every record is there exactly once.
    """
    moments = random.Random(7)
    copy = f"Z.{setting.topic}"
    load = NumberedLoad(setting.source, setting.topic, _PARTITIONS, seed=4)
    splits = [{0: [0, 1, 2, 3]}, {0: [2, 3], 1: [0, 1]}, {0: [0], 1: [1, 2, 3]}]
    asleep: list[SlotProcess] = []
    with load.streaming():
        for split in splits:
            generation = setting.take_ownership(slots=len(split))
            before = copied_records(setting.target, copy)
            awake = [
                start(generation=generation, slot=slot, partitions=partitions)
                for slot, partitions in split.items()
            ]
            wait_for(
                lambda before=before: copied_records(setting.target, copy) > before, 60
            )
            time.sleep(moments.uniform(0, 0.5))
            for slot in awake:
                slot.suspend()
            asleep += awake
            time.sleep(2)  # past their leases
        generation = setting.take_ownership(slots=1)
        last = start(generation=generation, slot=0, partitions=[0, 1, 2, 3])
        before = copied_records(setting.target, copy)
        wait_for(lambda: copied_records(setting.target, copy) > before)
        for zombie in asleep:
            zombie.resume()
            assert zombie.how_it_ended() in {"superseded", "fenced"}
            time.sleep(2)  # not two of them within one lease of the living one
    check(setting, load)
    assert last.end() == "told to"


@pytest.mark.parametrize("point", Point, ids=lambda point: point.name.lower())
def test_suspended_at(
    setting: Setting, start: Callable[..., SlotProcess], point: Point
) -> None:
    """A slot suspended at this very point, first of all before it ever took over,
    is replaced, wakes up, and ends fenced without having written anything twice.
    """
    load = NumberedLoad(setting.source, setting.topic, _PARTITIONS, seed=5)
    load.send(5000)
    first = start(
        generation=setting.take_ownership(slots=1),
        slot=0,
        partitions=range(_PARTITIONS),
        lease_seconds=30,
        ambush=Ambush(point=point, number=signal.SIGSTOP),
    )
    wait_for(lambda: first.suspended)
    load.send(1000)
    second = start(
        generation=setting.take_ownership(slots=1),
        slot=0,
        partitions=range(_PARTITIONS),
        lease_seconds=1,
    )
    wait_copied(setting, load)
    first.resume()
    assert first.how_it_ended() == "superseded"
    load.send(1000)
    check(setting, load)
    assert second.end() == "told to"


def test_wakes_id_by_id(setting: Setting, start: Callable[..., SlotProcess]) -> None:
    """A replaced slot that takes its ids over one at a time, each while the living one
    copies, fences that one three times: it goes on within its lease, doubling nothing.
    """
    copy = f"Z.{setting.topic}"
    load = NumberedLoad(setting.source, setting.topic, _PARTITIONS, seed=8)

    def goes_on() -> None:
        before = copied_records(setting.target, copy)
        wait_for(lambda: copied_records(setting.target, copy) > before)

    with load.streaming(chunk=200, pause=0.01):
        zombie = start(
            generation=setting.take_ownership(slots=1),
            slot=0,
            partitions=range(_PARTITIONS),
            ambush=Ambush(
                point=Point.BEFORE_EACH_ID, number=signal.SIGSTOP, again=True
            ),
        )
        wait_for(lambda: zombie.suspended)
        living = start(
            generation=setting.take_ownership(slots=1),
            slot=0,
            partitions=range(_PARTITIONS),
            lease_seconds=15,
        )
        goes_on()
        for _ in range(MAX_IN_FLIGHT):
            zombie.resume()
            wait_for(lambda: zombie.suspended or not zombie.alive)
            goes_on()
        assert zombie.how_it_ended() == "superseded"
        goes_on()
    assert living.end() == "told to"
    check(setting, load)


def test_a_driver_suspended_before_it_says_so(
    setting: Setting, start: Callable[..., SlotProcess]
) -> None:
    """A driver run sleeps right before it would name itself the owner, and meanwhile
    another one with more slots begins: on waking it is fenced, and those copy on,
    every record exactly once.
    """
    load = NumberedLoad(setting.source, setting.topic, _PARTITIONS, seed=9)
    late = OwnerProcess(
        functools.partial(setting.take_ownership, slots=1),
        ambush=Ambush(point=StartPoint.BEFORE_WRITE, number=signal.SIGSTOP),
    )
    try:
        wait_for(lambda: late.suspended)
        generation = setting.take_ownership(slots=2)
        with load.streaming(chunk=200, pause=0.01):
            living = [
                start(generation=generation, slot=slot, partitions=partitions)
                for slot, partitions in enumerate(([0, 1], [2, 3]))
            ]
            before = copied_records(setting.target, f"Z.{setting.topic}")
            wait_for(
                lambda: copied_records(setting.target, f"Z.{setting.topic}") > before
            )
            late.resume()
            assert late.how_it_ended() == "fenced"
    finally:
        late.kill()
    check(setting, load)
    assert [each.end() for each in living] == ["told to", "told to"]


@pytest.mark.parametrize(
    "point",
    [point for point in Point if point is not Point.BEFORE_TAKE_OVER],
    ids=lambda point: point.name.lower(),
)
def test_killed_at(
    setting: Setting, start: Callable[..., SlotProcess], point: Point
) -> None:
    """A slot that dies at this very point, a while into its work, leaves nothing
    that its successor of the same driver run copies twice or not at all.
    """
    load = NumberedLoad(setting.source, setting.topic, _PARTITIONS, seed=6)
    generation = setting.take_ownership(slots=1)
    early = point in {Point.AFTER_TAKE_OVER, Point.AFTER_PROGRESS}
    with load.streaming(chunk=200, pause=0.01):
        first = start(
            generation=generation,
            slot=0,
            partitions=range(_PARTITIONS),
            ambush=Ambush(point=point, number=signal.SIGKILL, passes=1 if early else 3),
        )
        wait_for(lambda: not first.alive)
        second = start(
            generation=generation,
            slot=0,
            partitions=range(_PARTITIONS),
            lease_seconds=1,
        )
        time.sleep(1)
    check(setting, load)
    assert second.end() == "told to"
