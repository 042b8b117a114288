"""Leases: which slot copies which partitions, and for how long.

Pure parts: `assign` and `balance` spread partitions over slots by their measured
throughput, `lease_length` finds a length whose gaps cost little. Main type:
`Placement`, which remembers where partitions are and what they weigh, and decides
when moving some is worth it. A slot whose partitions change takes over again in its
next lease, which costs some 50 ms, so partitions stay where they are if possible.
`Assignments` makes what is placed from the topics of a look.
"""

from __future__ import annotations

from collections import defaultdict
import heapq
from itertools import chain, repeat
import math
from operator import attrgetter
import statistics
import time
from typing import TYPE_CHECKING

from mirror.copying.lease import Assignment
from mirror.service.same_offsets import NONE

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from mirror.clusters.topics import TopicPartition
    from mirror.copying.lease import PartitionReport
    from mirror.offsets.terms import TermNote
    from mirror.pairs.control import Pauses
    from mirror.service.same_offsets import SameOffsets
    from mirror.topics.topics import MirroredTopic, TopicsResult

Spread = dict[int, tuple[Assignment, ...]]
"""The assignments of every slot, including slots without partitions."""

IDLE_WEIGHT = 10_000.0
"""A partition's weight in addition to its bytes per second: idle ones cost, too."""
_CLOSE = 1.05
"""A spread this close to the best one is good enough if it moves fewer partitions."""

_UNEVEN = 1.25
"""A move is worth it if the heaviest slot is heavier than necessary by this factor."""
_UNEVEN_WEIGHT = 1_000_000.0
"""It must also be heavier by this many bytes per second: less is not worth a move."""
_UNEVEN_LEASES = 3
_UNEVEN_SECONDS = 15.0
"""Slots must be uneven for this many leases and this long before partitions move."""
_BETWEEN_MOVES_SECONDS = 60.0
_SMOOTHED_SECONDS = 30.0

_PLACE = attrgetter("topic", "partition")

_UNMEASURED_SECONDS = 20.0
_SHORTEST_SECONDS = 10.0
_SHORTEST_CATCHING_UP_SECONDS = 5.0
LONGEST_SECONDS = 30.0
_LENGTH_OF_GAPS = 300.0
"""With leases this many gaps long, a gap and the catching up after it delay too few
records to show in the 99th percentile."""
_LENGTH_CATCHING_UP = 50.0
"""While catching up, frequent reports show the progress, and no new record waits."""
_ENOUGH_GAPS = 3


def lease_length(gaps: Sequence[float], *, catching_up: bool) -> float:
    """The length of the next lease in seconds; `gaps` are those between recent ones."""
    if len(gaps) < _ENOUGH_GAPS:
        return _SHORTEST_CATCHING_UP_SECONDS if catching_up else _UNMEASURED_SECONDS
    gap = statistics.median(gaps)
    if catching_up:
        wanted = max(_LENGTH_CATCHING_UP * gap, _SHORTEST_CATCHING_UP_SECONDS)
    else:
        wanted = max(_LENGTH_OF_GAPS * gap, _SHORTEST_SECONDS)
    return min(wanted, LONGEST_SECONDS)


def assign(
    assignments: Iterable[Assignment],
    spread: Spread,
    weights: Mapping[TopicPartition, float],
    rates: Mapping[int, float],
) -> Spread:
    """Keep partitions where the last spread has them; new ones go to the lightest slot.

    `weights` maps partitions to their bytes per second, and `rates` slots, if known. A
    partition moves only if a slot would be empty otherwise.
    """
    # By identity: slots wait for this, and comparing 50,000 of them takes too long.
    wanted = {id(each): each for each in assignments}
    chosen: dict[int, list[Assignment]] = {}
    replaced: dict[TopicPartition, int] = {}
    for slot, part in spread.items():
        chosen[slot] = [each for each in part if id(each) in wanted]
        if len(chosen[slot]) < len(part):
            replaced |= {_PLACE(a): slot for a in part if id(a) not in wanted}
    new = wanted.keys() - map(id, chain.from_iterable(chosen.values()))
    unplaced: list[Assignment] = []
    for assignment in map(wanted.__getitem__, new):
        stays = replaced.get(_PLACE(assignment))
        (unplaced if stays is None else chosen[stays]).append(assignment)
    load = {
        slot: rates.get(slot, 0.0) + IDLE_WEIGHT * len(part)
        for slot, part in chosen.items()
    }
    _to_lightest(unplaced, chosen, load, weights)
    return _filled(chosen, weights)


def balance(
    assignments: Iterable[Assignment],
    slots: int,
    current: Mapping[TopicPartition, int],
    weights: Mapping[TopicPartition, float],
) -> Spread:
    """Spread partitions so that the heaviest slot is light, and move few of them.

    `current` maps partitions to their slots, `weights` to their bytes per second, if
    known. Partitions are placed from the heaviest down, each into the lightest slot: at
    most 4/3 of the optimum, times `_CLOSE` if that leaves more partitions in place.
    """
    wanted = list(assignments)
    best = _place(wanted, slots, {}, weights, limit=0.0)
    limit = heaviest(best, weights)
    near = _place(wanted, slots, current, weights, limit=limit)
    return near if heaviest(near, weights) <= limit * _CLOSE else best


def heaviest(spread: Spread, weights: Mapping[TopicPartition, float]) -> float:
    """The weight of the heaviest slot."""
    return max(_load(part, weights) for part in spread.values())


class Assignments:
    """The partitions of the topics that a flow copies. Those of a topic that is as in
    the last look are the same objects, which is quick to see. Not thread-safe.
    """

    def __init__(self, same: SameOffsets = NONE) -> None:
        self._same = same
        self._last: dict[tuple[MirroredTopic, float], tuple[Assignment, ...]] = {}

    def assign(self, found: TopicsResult, pauses: Pauses) -> tuple[Assignment, ...]:
        """Those of a look's topics, in its order."""
        keys = (
            (topic, pauses.since(topic.topic))
            for topic in found.topics
            if topic.topic not in self._same.waiting
        )
        self._last = {
            key: self._last.get(key)
            or _assignments(*key, self._same.notes.get(key[0].topic))
            for key in keys
        }
        return tuple(chain.from_iterable(self._last.values()))


def _assignments(
    topic: MirroredTopic, paused_since: float, note: TermNote | None
) -> tuple[Assignment, ...]:
    return tuple(
        Assignment(
            topic=topic.topic,
            partition=partition,
            target_topic=topic.target_topic,
            topic_id=topic.topic_id,
            paused_since=paused_since,
            term=None if note is None else note.term(partition),
        )
        for partition in range(topic.partitions)
    )


class Placement:
    """The partitions of a flow on its slots, run after run. Not thread-safe."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._weights: dict[TopicPartition, float] = {}
        self._rates: dict[int, float] = {}
        """The sum of these for each slot, as of the last lease."""
        self._wanted: tuple[Assignment, ...] = ()
        self._spread: Spread = {}
        self._moved_at = -math.inf
        self._uneven_since = math.inf
        self._uneven_leases = 0

    def learn(self, reports: Iterable[PartitionReport]) -> None:
        """Update weights from one lease; partitions without a report are forgotten."""
        learnt: dict[TopicPartition, float] = {}
        rates: defaultdict[int, float] = defaultdict(float)
        for report in reports:
            key = (report.topic, report.partition)
            if (seconds := report.slot_seconds) <= 0:
                continue
            rate = report.counts.bytes / seconds
            known = self._weights.get(key, rate)
            share = 1 - math.exp(-seconds / _SMOOTHED_SECONDS)
            learnt[key] = known + share * (rate - known)
            rates[report.slot] += learnt[key]
        self._weights, self._rates = learnt, rates

    def spread(self, assignments: Iterable[Assignment], slots: int) -> Spread:
        """Which slot copies what in the next lease."""
        wanted = tuple(assignments)
        if slots != len(self._spread):  # a new run: every slot takes over anyway
            self._move(self._balanced(wanted, slots))
        elif wanted != self._wanted:
            self._spread = assign(wanted, self._spread, self._weights, self._rates)
        self._wanted = wanted
        if self._uneven():
            better = self._balanced(wanted, slots)
            if self._due(better):
                self._move(better)
        else:
            self._uneven_since, self._uneven_leases = math.inf, 0
        return self._spread

    def _uneven(self) -> bool:
        """Whether a move could help at all; a quick check, since slots wait for it."""
        loads = [
            self._rates.get(slot, 0.0) + IDLE_WEIGHT * len(part)
            for slot, part in self._spread.items()
        ]
        mean = sum(loads) / len(loads)
        return max(loads) > mean * _UNEVEN and max(loads) - mean >= _UNEVEN_WEIGHT

    def _due(self, better: Spread) -> bool:
        """Whether a move has been worth it for long enough to do it now."""
        now = self._clock()
        is_now = heaviest(self._spread, self._weights)
        could_be = heaviest(better, self._weights)
        if is_now <= could_be * _UNEVEN or is_now - could_be < _UNEVEN_WEIGHT:
            self._uneven_since, self._uneven_leases = math.inf, 0
            return False
        self._uneven_since = min(self._uneven_since, now)
        self._uneven_leases += 1
        return (
            self._uneven_leases >= _UNEVEN_LEASES
            and now - self._uneven_since >= _UNEVEN_SECONDS
            and now - self._moved_at >= _BETWEEN_MOVES_SECONDS
        )

    def _move(self, spread: Spread) -> None:
        # The very first placement had no measurements: it may change again soon.
        self._moved_at = self._clock() if self._weights else -math.inf
        self._uneven_since, self._uneven_leases = math.inf, 0
        self._spread = spread
        self._rates = {s: _rate(part, self._weights) for s, part in spread.items()}

    def _balanced(self, wanted: Sequence[Assignment], slots: int) -> Spread:
        current = {_PLACE(a): slot for slot, part in self._spread.items() for a in part}
        return balance(wanted, slots, current, self._weights)


def _place(
    assignments: Iterable[Assignment],
    slots: int,
    current: Mapping[TopicPartition, int],
    weights: Mapping[TopicPartition, float],
    *,
    limit: float,
) -> Spread:
    """Keep partitions in their slots up to `limit`; the others go to the lightest."""
    chosen: dict[int, list[Assignment]] = {slot: [] for slot in range(slots)}
    load = dict.fromkeys(chosen, 0.0)
    unplaced = []
    # Which of them stay depends on the order.
    for assignment in sorted(assignments, key=lambda a: _order(a, weights)):
        slot = current.get(_PLACE(assignment), -1)
        weight = _weight(assignment, weights)
        if slot in load and load[slot] + weight <= limit:
            chosen[slot].append(assignment)
            load[slot] += weight
        else:
            unplaced.append(assignment)
    _to_lightest(unplaced, chosen, load, weights)
    return _filled(chosen, weights)


def _to_lightest(
    unplaced: Iterable[Assignment],
    chosen: dict[int, list[Assignment]],
    load: Mapping[int, float],
    weights: Mapping[TopicPartition, float],
) -> None:
    """Add each, the heaviest first, to the slot that is lightest then."""
    lightest = [(weight, slot) for slot, weight in load.items()]
    heapq.heapify(lightest)
    for assignment in sorted(unplaced, key=lambda a: _order(a, weights)):
        weight, slot = lightest[0]
        chosen[slot].append(assignment)
        heapq.heapreplace(lightest, (weight + _weight(assignment, weights), slot))


def _filled(
    chosen: dict[int, list[Assignment]], weights: Mapping[TopicPartition, float]
) -> Spread:
    """Give every empty slot a partition of the heaviest slot that has several."""
    for part in chosen.values():
        rich = [other for other in chosen.values() if len(other) > 1]
        if part or not rich:
            continue
        giver = max(rich, key=lambda other: _load(other, weights))
        given = min(giver, key=lambda a: _order(a, weights))
        giver.remove(given)
        part.append(given)
    return {slot: tuple(sorted(part, key=_PLACE)) for slot, part in chosen.items()}


def _load(part: Sequence[Assignment], weights: Mapping[TopicPartition, float]) -> float:
    return _rate(part, weights) + IDLE_WEIGHT * len(part)


def _rate(part: Sequence[Assignment], weights: Mapping[TopicPartition, float]) -> float:
    return sum(map(weights.get, map(_PLACE, part), repeat(0.0)))


def _weight(assignment: Assignment, weights: Mapping[TopicPartition, float]) -> float:
    return weights.get(_PLACE(assignment), 0.0) + IDLE_WEIGHT


def _order(
    assignment: Assignment, weights: Mapping[TopicPartition, float]
) -> tuple[float, str, int]:
    """The heaviest first, in an order that is always the same."""
    return (-_weight(assignment, weights), assignment.topic, assignment.partition)
