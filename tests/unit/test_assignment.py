"""Which slot copies what, and for how long: spreading partitions by weight."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise, product
import random

from hypothesis import given, settings
from hypothesis import strategies as st
import pytest

from mirror.copying.lease import Assignment, PartitionReport
from mirror.pairs.control import Pauses
from mirror.service.assignment import (
    IDLE_WEIGHT,
    Assignments,
    Placement,
    assign,
    balance,
    heaviest,
    lease_length,
)
from mirror.status.values import Counts
from mirror.topics.topics import MirroredTopic, TopicsResult

pytestmark = pytest.mark.unit

MB = 1_000_000.0
LEASE_SECONDS = 10.0
rates = st.integers(0, 1000).map(lambda kilobytes: kilobytes * 1000.0)


def assignments(count: int) -> list[Assignment]:
    return [
        Assignment(topic="t", partition=number, target_topic="A.t", topic_id="0" * 32)
        for number in range(count)
    ]


def weights(*rates: float) -> dict[tuple[str, int], float]:
    return {("t", number): rate for number, rate in enumerate(rates)}


def placed(current: dict[tuple[str, int], int], slots: int):
    """The last spread, with what was there then; some of it is wanted no longer."""
    spread: dict[int, list[Assignment]] = {slot: [] for slot in range(slots)}
    for (_, number), slot in sorted(current.items()):
        if slot in spread:
            spread[slot].append(assignments(number + 1)[number])
    return {slot: tuple(part) for slot, part in spread.items()}


def kept(wanted, slots, current, loads):
    """What `assign` makes of it."""
    spread = placed(current, slots)
    rates = {
        slot: sum(loads.get((a.topic, a.partition), 0.0) for a in part)
        for slot, part in spread.items()
    }
    return assign(wanted, spread, loads, rates)


def numbers(spread: dict[int, tuple[Assignment, ...]]) -> list[set[int]]:
    return [{a.partition for a in part} for part in spread.values()]


@st.composite
def situations(draw):
    """Partitions with rates, slots, and where some of the partitions were."""
    loads = draw(st.lists(rates, max_size=40))
    slots = draw(st.integers(1, 8))
    was = st.integers(0, len(loads) + 3)
    current = draw(
        st.dictionaries(
            was.map(lambda number: ("t", number)), st.integers(0, 9), max_size=40
        )
    )
    return assignments(len(loads)), slots, current, weights(*loads)


@pytest.mark.parametrize("spread_with", [kept, balance])
@given(situation=situations())
def test_every_partition_has_one_slot(spread_with, situation):
    """Every partition is copied by exactly one slot, every slot is in the answer, and
    none is empty while another has several.
    """
    wanted, slots, *_ = situation

    spread = spread_with(*situation)

    assert list(spread) == list(range(slots))
    assert sorted(a.partition for part in spread.values() for a in part) == [
        a.partition for a in wanted
    ]
    sizes = [len(part) for part in spread.values()]
    assert min(sizes) > 0 or max(sizes) <= 1


@pytest.mark.parametrize("spread_with", [kept, balance])
@given(situation=situations(), seed=st.integers())
def test_the_same_situation_has_the_same_answer(spread_with, situation, seed):
    """The order in which partitions are named does not matter."""
    wanted, *rest = situation
    shuffled = random.Random(seed).sample(wanted, len(wanted))

    assert spread_with(shuffled, *rest) == spread_with(wanted, *rest)


@settings(deadline=None)
@given(
    loads=st.lists(rates, min_size=1, max_size=7),
    slots=st.integers(1, 3),
    seed=st.integers(),
)
def test_balance_is_near_the_best(loads, slots, seed):
    """However partitions were spread before, the heaviest slot weighs at most 4/3 of
    the best that any spread can do, and the twentieth that staying may cost.
    """
    chance = random.Random(seed)
    current = {("t", n): chance.randrange(slots) for n in range(len(loads))}
    best = min(
        max(
            sum(
                load + IDLE_WEIGHT
                for load, slot in zip(loads, slots_of, strict=True)
                if slot == number
            )
            for number in range(slots)
        )
        for slots_of in product(range(slots), repeat=len(loads))
    )

    found = balance(assignments(len(loads)), slots, current, weights(*loads))

    assert heaviest(found, weights(*loads)) <= best * 4 / 3 * 1.05 + 1


@given(situation=situations())
def test_balance_of_what_is_balanced_moves_nothing(situation):
    """Balancing twice is balancing once."""
    wanted, slots, _, loads = situation
    once = balance(*situation)
    current = {("t", a.partition): slot for slot, part in once.items() for a in part}

    assert heaviest(balance(wanted, slots, current, loads), loads) <= heaviest(
        once, loads
    )
    assert assign(wanted, once, loads, {}) == once


def test_nothing_known_spreads_by_count():
    """Without measurements, the slots' numbers of partitions differ by one at most."""
    sizes = [len(part) for part in kept(assignments(11), 3, {}, {}).values()]

    assert sorted(sizes) == [3, 4, 4]


def test_a_hot_partition_gets_a_slot_of_its_own():
    """The quiet ones go where the hot one is not."""
    found = balance(assignments(101), 2, {}, weights(50 * MB))

    assert {0} in numbers(found)


def test_new_partitions_go_where_there_is_least():
    """A new partition moves no other, and does not go to the busiest slot."""
    current = {("t", 0): 0, ("t", 1): 1, ("t", 2): 1}

    found = kept(assignments(5), 2, current, weights(9 * MB, MB, MB))

    assert numbers(found) == [{0}, {1, 2, 3, 4}]


def looked(*topics: tuple[str, int]) -> TopicsResult:
    """What a look finds: topics with these numbers of partitions."""
    return TopicsResult(
        topics=tuple(
            MirroredTopic(topic=name, target_topic=f"A.{name}", partitions=count,
                          topic_id="0" * 32)
            for name, count in topics
        )
    )  # fmt: skip


def test_what_is_as_before_is_the_same_object():
    """The next look makes partitions of new and changed topics alone: slots wait while
    a lease is planned, and the others are compared by identity.
    """
    made = Assignments()
    first = made.assign(looked(("a", 2), ("b", 1)), Pauses())
    then = made.assign(looked(("a", 2), ("b", 2), ("c", 1)), Pauses())

    assert [(a.topic, a.partition) for a in then] == [
        ("a", 0), ("a", 1), ("b", 0), ("b", 1), ("c", 0),
    ]  # fmt: skip
    assert then[0] is first[0]
    assert then[1] is first[1]


def test_what_changed_stays_in_its_slot():
    """A partition that is paused, or has another topic id, is copied by the same slot,
    though other slots are lighter.
    """
    before = assignments(4)
    paused = [replace(each, paused_since=1.0) for each in before]

    found = assign(paused, {0: tuple(before), 1: (), 2: ()}, {}, {})

    assert {a.partition for a in found[0]} >= {2, 3}
    assert sorted(map(len, found.values())) == [1, 1, 2]
    assert {a.paused_since for part in found.values() for a in part} == {1.0}


class Flow:
    """Leases of ten seconds under a placement, at given rates."""

    def __init__(self, slots: int = 2) -> None:
        self.now = 1000.0
        self.placement = Placement(lambda: self.now)
        self.slots = slots
        self.moves: list[float] = []
        self._before: list[set[int]] = []

    def lease(self, *loads: float) -> list[set[int]]:
        spread = self.placement.spread(assignments(len(loads)), self.slots)
        found = numbers(spread)
        if self._before and found != self._before:
            self.moves.append(self.now)
        self._before = found
        self.now += LEASE_SECONDS
        self.placement.learn(
            PartitionReport(
                slot=slot,
                topic="t",
                partition=a.partition,
                target_topic="A.t",
                state="RUNNING",
                counts=Counts(bytes=int(loads[a.partition] * LEASE_SECONDS)),
                slot_seconds=LEASE_SECONDS,
            )
            for slot, part in spread.items()
            for a in part
        )
        return found


def test_lasting_imbalance_moves_partitions():
    """Two hot partitions in one slot are separated, but not in the next lease."""
    flow = Flow()
    loads = (20 * MB, 0.0, 20 * MB, 0.0)
    began = flow.now

    assert {0, 2} in flow.lease(*loads)
    for _ in range(9):
        last = flow.lease(*loads)

    assert {0, 2} not in last
    (moved,) = flow.moves
    assert moved - began >= 3 * LEASE_SECONDS


def test_moves_are_rare():
    """Load that jumps between partitions moves them once a minute at most."""
    flow = Flow()
    chance = random.Random(1)
    for _ in range(60):
        loads = [0.0] * 8
        for hot in chance.sample(range(8), 2):
            loads[hot] = 20 * MB
        for _ in range(chance.randint(3, 12)):
            flow.lease(*loads)

    gaps = [later - earlier for earlier, later in pairwise(flow.moves)]
    assert gaps
    assert min(gaps) >= 60


@pytest.mark.parametrize("seed", range(20))
def test_noise_moves_nothing(seed):
    """Once spread, rates that vary by a fifth move no partition for an hour."""
    chance = random.Random(seed)
    flow = Flow(slots=1)
    loads = [chance.uniform(0, 20 * MB) for _ in range(chance.randint(2, 24))]
    for _ in range(30):
        flow.lease(*loads)
    flow.slots = chance.randint(2, 4)

    for _ in range(360):
        flow.lease(*(load * chance.uniform(0.8, 1.2) for load in loads))

    assert len(flow.moves) == 1  # the one into more slots


def test_one_hot_partition_is_no_reason_to_move():
    """If a move gains nothing, nothing moves, however uneven slots are."""
    flow = Flow()
    for _ in range(60):
        flow.lease(50 * MB, 0.0, 0.0, 0.0)

    assert len(flow.moves) <= 1


def test_little_load_is_no_reason_to_move():
    """Slots that have nearly nothing to do are left alone."""
    flow = Flow()
    for _ in range(60):
        flow.lease(0.1 * MB, 0.0, 0.1 * MB, 0.0)

    assert flow.moves == []


def test_another_number_of_slots_uses_what_was_learnt():
    """A run with more slots starts balanced by the rates of the previous run."""
    flow = Flow(slots=1)
    loads = (20 * MB, 0.0, 20 * MB, 0.0)
    for _ in range(6):
        flow.lease(*loads)
    flow.slots = 2

    assert {0, 2} not in flow.lease(*loads)


@pytest.mark.parametrize(
    ("gaps", "seconds", "behind"),
    [
        ([], 20.0, 5.0),
        ([0.5, 0.5], 20.0, 5.0),
        ([0.02, 0.02, 0.03], 10.0, 5.0),
        ([0.07, 0.08, 9.0], 24.0, 5.0),
        ([0.3, 0.4, 0.5], 30.0, 20.0),
        ([1.0, 1.0, 1.0], 30.0, 30.0),
    ],
)
def test_lease_length(gaps, seconds, behind):
    """A lease is 300 gaps long, from 10 to 30 s; one slow gap changes nothing. While a
    flow catches up it is 50 gaps long, from 5 s, since reports show the progress.
    """
    assert lease_length(gaps, catching_up=False) == pytest.approx(seconds)
    assert lease_length(gaps, catching_up=True) == pytest.approx(behind)
