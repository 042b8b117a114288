"""Leases: which slot copies which partitions, and for how long.

Pure parts: `assign` and `balance` spread partitions over slots by their measured
throughput, `lease_length` finds a length whose gaps cost little. Main type:
`Placement`, which remembers where partitions are and what they weigh, and decides
when moving some is worth it. A slot whose partitions change takes over again in its
next lease, which costs some 50 ms, so partitions stay where they are if possible.
"""

from __future__ import annotations

from collections import defaultdict
import heapq
import math
from operator import attrgetter
import statistics
import time
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from mirror.relay.lease import Assignment
    from mirror.relay.report import PartitionReport

TopicPartition = tuple[str, int]
Spread = dict[int, tuple["Assignment", ...]]
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
    slots: int,
    current: Mapping[TopicPartition, int],
    weights: Mapping[TopicPartition, float],
) -> Spread:
    """Keep partitions in their slots; new ones go to the lightest slot.

    `current` maps partitions to their slots, `weights` to their bytes per second, if
    known. A partition moves only if a slot would be empty otherwise.
    """
    return _place(assignments, slots, current, weights, limit=math.inf)


def balance(
    assignments: Iterable[Assignment],
    slots: int,
    current: Mapping[TopicPartition, int],
    weights: Mapping[TopicPartition, float],
) -> Spread:
    """Spread partitions so that the heaviest slot is light, and move few of them.

    Partitions are placed from the heaviest down, each into the lightest slot: at most
    4/3 of the optimum, times `_CLOSE` if that leaves more partitions in place.
    """
    wanted = list(assignments)
    best = _place(wanted, slots, {}, weights, limit=0.0)
    limit = heaviest(best, weights)
    near = _place(wanted, slots, current, weights, limit=limit)
    return near if heaviest(near, weights) <= limit * _CLOSE else best


def heaviest(spread: Spread, weights: Mapping[TopicPartition, float]) -> float:
    """The weight of the heaviest slot."""
    return max(_load(part, weights) for part in spread.values())


class Placement:
    """The partitions of a flow on its slots, run after run. Not thread-safe."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._current: dict[TopicPartition, int] = {}
        self._weights: dict[TopicPartition, float] = {}
        self._wanted: tuple[Assignment, ...] = ()
        self._spread: Spread = {}
        self._moved_at = -math.inf
        self._uneven_since = math.inf
        self._uneven_leases = 0

    def learn(self, reports: Iterable[PartitionReport]) -> None:
        """Update weights from one lease; partitions without a report are forgotten."""
        learnt = {}
        for report in reports:
            key = (report.topic, report.partition)
            if (seconds := report.slot_seconds) <= 0:
                continue
            rate = report.counts.bytes / seconds
            known = self._weights.get(key, rate)
            share = 1 - math.exp(-seconds / _SMOOTHED_SECONDS)
            learnt[key] = known + share * (rate - known)
        self._weights = learnt

    def spread(self, assignments: Iterable[Assignment], slots: int) -> Spread:
        """Which slot copies what in the next lease."""
        wanted = tuple(assignments)
        if slots != len(self._spread):  # a new run: every slot takes over anyway
            self._move(balance(wanted, slots, self._current, self._weights))
        elif wanted != self._wanted:
            self._keep(assign(wanted, slots, self._current, self._weights))
        self._wanted = wanted
        if self._uneven():
            better = balance(wanted, slots, self._current, self._weights)
            if self._due(better):
                self._move(better)
        else:
            self._uneven_since, self._uneven_leases = math.inf, 0
        return self._spread

    def _uneven(self) -> bool:
        """Whether a move could help at all; a quick check, since slots wait for it."""
        loads = [_load(part, self._weights) for part in self._spread.values()]
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
        self._keep(spread)

    def _keep(self, spread: Spread) -> None:
        self._spread = spread
        self._current = {
            (a.topic, a.partition): slot for slot, part in spread.items() for a in part
        }


def _place(
    assignments: Iterable[Assignment],
    slots: int,
    current: Mapping[TopicPartition, int],
    weights: Mapping[TopicPartition, float],
    *,
    limit: float,
) -> Spread:
    """Keep partitions in their slots up to `limit`; the others go to the lightest."""
    chosen: defaultdict[int, list[Assignment]] = defaultdict(list)
    load = dict.fromkeys(range(slots), 0.0)
    unplaced = []
    if limit < math.inf:  # which of them stay depends on the order
        assignments = sorted(assignments, key=lambda a: _order(a, weights))
    for assignment in assignments:
        slot = current.get((assignment.topic, assignment.partition), -1)
        weight = _weight(assignment, weights)
        if slot in load and load[slot] + weight <= limit:
            chosen[slot].append(assignment)
            load[slot] += weight
        else:
            unplaced.append(assignment)
    lightest = [(weight, slot) for slot, weight in load.items()]
    heapq.heapify(lightest)
    for assignment in sorted(unplaced, key=lambda a: _order(a, weights)):
        weight, slot = lightest[0]
        chosen[slot].append(assignment)
        heapq.heapreplace(lightest, (weight + _weight(assignment, weights), slot))
    _fill_empty(chosen, slots, weights)
    return {slot: tuple(sorted(chosen[slot], key=_PLACE)) for slot in range(slots)}


def _fill_empty(
    chosen: defaultdict[int, list[Assignment]],
    slots: int,
    weights: Mapping[TopicPartition, float],
) -> None:
    """Give every empty slot a partition of the heaviest slot that has several."""
    for slot in range(slots):
        rich = [number for number, part in chosen.items() if len(part) > 1]
        if chosen[slot] or not rich:
            continue
        giver = max(rich, key=lambda number: _load(chosen[number], weights))
        given = min(chosen[giver], key=lambda a: _order(a, weights))
        chosen[giver].remove(given)
        chosen[slot].append(given)


def _load(part: Sequence[Assignment], weights: Mapping[TopicPartition, float]) -> float:
    measured = sum(weights.get((a.topic, a.partition), 0.0) for a in part)
    return measured + IDLE_WEIGHT * len(part)


def _weight(assignment: Assignment, weights: Mapping[TopicPartition, float]) -> float:
    measured = weights.get((assignment.topic, assignment.partition), 0.0)
    return measured + IDLE_WEIGHT


def _order(
    assignment: Assignment, weights: Mapping[TopicPartition, float]
) -> tuple[float, str, int]:
    """The heaviest first, in an order that is always the same."""
    return (-_weight(assignment, weights), assignment.topic, assignment.partition)
