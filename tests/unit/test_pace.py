"""A limit in bytes per second: one slot keeps to it, and slots share it."""

from __future__ import annotations

import math
import random

import pytest

from mirror.driver.rates import Rates, divide
from mirror.relay.pace import Pace
from mirror.relay.report import PartitionReport

pytestmark = pytest.mark.unit

_RATE = 1_000_000


class Clock:
    """Time that passes only when a test says so."""

    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


def read_for(
    seconds: float, pace: Pace, clock: Clock, *, round_trip: float, largest: int
) -> int:
    """Ask whenever it is allowed, for answers of any size; returns the bytes read."""
    chance = random.Random(7)
    total, end, last = 0, clock.now + seconds, 0
    while clock.now < end:
        if waits := pace.waits(0):
            clock.now += waits + 0.001  # as precisely as a slot waits
            continue
        most = pace.most_bytes
        assert most is not None
        clock.now += round_trip
        last = chance.choice([most, min(most, 40_000), largest])
        pace.take(last)
        total += last
    return total


@pytest.mark.parametrize("round_trip", [0.0001, 0.1, 0.4])
@pytest.mark.parametrize("largest", [10_000, 3_000_000])
def test_the_rate_is_exact(round_trip: float, largest: int) -> None:
    """Near and far, and with batches that are larger than what was asked for, a slot
    reads what it may within a tenth.
    """
    clock = Clock()
    pace = Pace(clock)
    pace.allow(_RATE)
    total = read_for(120, pace, clock, round_trip=round_trip, largest=largest)
    if round_trip < 0.4:
        assert total == pytest.approx(120 * _RATE, rel=0.1)
    assert total < 120 * _RATE * 1.1


def test_what_was_not_read_does_not_pile_up() -> None:
    """After an hour without records a slot does not read an hour's bytes at once."""
    clock = Clock()
    pace = Pace(clock)
    pace.allow(_RATE)
    clock.now += 3600
    total = read_for(10, pace, clock, round_trip=0.001, largest=10_000)
    assert total <= 12.5 * _RATE


def test_what_is_on_its_way_counts() -> None:
    """A second broker is asked only if what the first may bring leaves room."""
    clock = Clock()
    pace = Pace(clock)
    pace.allow(_RATE)
    assert pace.waits(500_000) == pytest.approx(0.5)
    clock.now += 0.6
    assert pace.waits(500_000) == 0.0
    pace.take(500_000)
    assert pace.waits(500_000) == pytest.approx(0.4)


def test_without_a_limit_nothing_waits() -> None:
    pace = Pace()
    pace.take(1 << 40)
    assert (pace.waits(1 << 40), pace.most_bytes) == (0.0, None)


def test_who_takes_turns_saves_nothing_meanwhile() -> None:
    """Of three slots that take turns of a second each may read three times its part in
    its own second, not in the others' as well, whatever the size of answers.
    """
    for size in (100_000, 2_000_000):
        clock = Clock()
        pace = Pace(clock)
        total = 0
        for _ in range(50):
            pace.allow(3 * _RATE, from_now=True)
            end = clock.now + 1
            while clock.now < end:
                if not pace.waits(0):
                    pace.take(size)
                    total += size
                clock.now += 0.01
            pace.waits(0)
            clock.now += 2
        assert total == pytest.approx(150 * _RATE, rel=0.1)


def test_a_limit_that_is_lifted_leaves_no_debt() -> None:
    """A slot that has read too early goes on at once without the limit."""
    clock = Clock()
    pace = Pace(clock)
    pace.allow(_RATE)
    pace.take(100 * _RATE)
    assert pace.waits(0) == pytest.approx(100)
    pace.allow(0)
    assert pace.waits(0) == 0.0


def test_a_lower_limit_does_not_stop_a_slot() -> None:
    """Half a second's bytes under the old limit cost half a second under a new one that
    is a thousandth of it; a higher one makes up for them sooner.
    """
    clock = Clock()
    pace = Pace(clock)
    pace.allow(1000 * _RATE)
    pace.take(500 * _RATE)
    pace.allow(_RATE)
    assert pace.waits(0) == pytest.approx(0.5)
    pace.allow(10 * _RATE)
    assert pace.waits(0) == pytest.approx(0.05)


@pytest.mark.parametrize(
    ("wanted", "parts"),
    [
        ([math.inf, math.inf], [50, 50]),
        ([10, math.inf], [10, 90]),
        ([10, 20, math.inf, math.inf], [10, 20, 35, 35]),
        ([40, 40, 40], [100 / 3] * 3),
        ([10, 30], [40, 60]),  # what is left goes to both
        ([math.inf], [100]),
    ],
)
def test_what_one_leaves_goes_to_the_others(
    wanted: list[float], parts: list[float]
) -> None:
    """Every slot has what it wants, or as much as any other that wants more, and
    together they have the whole limit.
    """
    found = divide(100, wanted)
    assert found == pytest.approx(parts)
    assert sum(found) == pytest.approx(100)


def _reports(*rates: float, seconds: float = 10.0) -> list[PartitionReport]:
    return [
        PartitionReport(
            slot=slot,
            topic="t",
            partition=slot,
            target_topic="A.t",
            state="RUNNING",
            bytes_in=int(rate * seconds),
            slot_seconds=seconds,
        )
        for slot, rate in enumerate(rates)
    ]


def test_slots_without_partitions_leave_the_limit_to_others() -> None:
    """With more tasks than partitions, those that have one share all but a little."""
    rates = Rates(4)
    first = rates.parts(1000)
    assert first == pytest.approx([250] * 4)
    rates.learn(_reports(*first[:2]))
    assert rates.parts(1000) == pytest.approx([475, 475, 25, 25])


def test_the_limit_follows_the_records() -> None:
    """Slots begin with equal parts. If all records are in the partitions of one, it has
    most of the limit a few leases later; when they come everywhere again, parts are
    equal again.
    """
    limit = 900.0
    rates = Rates(3)
    parts = rates.parts(limit)
    assert parts == (300, 300, 300)
    for _ in range(4):
        rates.learn(_reports(parts[0], 0, 20))
        parts = rates.parts(limit)
        assert sum(parts) == pytest.approx(limit)
    assert parts[0] > 0.9 * limit
    # Another limit is divided in the same way at once.
    assert rates.parts(3 * limit) == pytest.approx([3 * part for part in parts])
    assert rates.parts(limit) == pytest.approx(parts)
    for _ in range(6):
        rates.learn(_reports(*parts))
        parts = rates.parts(limit)
        assert sum(parts) == pytest.approx(limit)
    assert min(parts) > 0.9 * limit / 3
    assert rates.parts(0) == ()


def test_slots_without_partitions_leave_their_part() -> None:
    """More slots than partitions do not cost most of the limit."""
    limit = 800.0
    rates = Rates(4)
    rates.learn(_reports(*rates.parts(limit)[:1]))
    assert rates.parts(limit)[0] > 0.9 * limit
