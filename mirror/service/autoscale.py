"""How many slots a flow gets: as configured, or as many as it turns out to need.

Pure parts: `share` divides Spark's cores among flows, `slots_for` gives the number of
slots to start with, `wanted_slots` the number that the last leases call for. Main type:
`Sizing`, which uses both. A change needs a new run of the flow, which stops copying for
a third of a second: so flows grow soon, but not at once, and shrink late.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from mirror.service.throughput import limit_used, measured, recent

if TYPE_CHECKING:
    from collections.abc import Sequence

    from mirror.service.throughput import Sample

_PARTITIONS_PER_SLOT = 4
_MOST_AT_FIRST = 4
"""The most slots that a flow starts with; each is a process with its own memory."""
_BUSY_SECONDS = 30.0
_BUSY = 0.75
_BEHIND_SECONDS = 60.0
_HELD_BACK = 0.8
"""A flow that reads so much of its limit is not helped by more slots."""
LONGEST_SECONDS = 600.0
"""Slots that were idle for this long become fewer; older samples are dropped."""
_IDLE = 0.15
"""Half as many slots are then at most twice as busy, far from growing again."""


def share(cores: int, tasks: Sequence[int | None]) -> int:
    """How many slots each flow without `tasks` may have on these cores, at least one.

    `tasks` are the settings of all flows.
    """
    automatic = tasks.count(None)
    left = cores - sum(number for number in tasks if number is not None)
    return max(1, left // max(automatic, 1))


def slots_for(partitions: int, tasks: int | None, most: int) -> int:
    """How many slots a flow starts with: as configured, else by its partitions."""
    if tasks is not None:
        return tasks
    wanted = -(-partitions // _PARTITIONS_PER_SLOT)
    return max(1, min(wanted, _MOST_AT_FIRST, most))


def wanted_slots(
    samples: Sequence[Sample], *, slots: int, partitions: int, most: int
) -> int:
    """How many slots these samples, of leases with `slots` slots, call for."""
    if _are_busy(samples) or _falls_behind(samples):
        return max(slots, min(2 * slots, partitions, most))
    if slots > 1 and _are_idle(samples):
        return -(-slots // 2)
    return slots


def _are_busy(samples: Sequence[Sample]) -> bool:
    lately = recent(samples, _BUSY_SECONDS)
    seconds = _seconds(lately)
    busy = sum(one.busy * one.seconds for one in lately)
    return seconds >= _BUSY_SECONDS and busy > _BUSY * seconds


def _falls_behind(samples: Sequence[Sample]) -> bool:
    lately = recent(samples, _BEHIND_SECONDS)
    return (
        _seconds(lately) >= _BEHIND_SECONDS
        and lately[0].located == lately[-1].located
        and lately[0].lag <= lately[-1].lag
        and limit_used(lately) < _HELD_BACK
        and measured(lately).catching_up
    )


def _are_idle(samples: Sequence[Sample]) -> bool:
    lately = recent(samples, LONGEST_SECONDS)
    return (
        _seconds(lately) >= LONGEST_SECONDS
        and all(one.busy < _IDLE for one in lately)
        and not measured(lately).catching_up
    )


def _seconds(samples: Sequence[Sample]) -> float:
    return sum(one.seconds for one in samples)


class Sizing:
    """The number of slots of one flow, across its runs."""

    def __init__(self, tasks: int | None) -> None:
        """`tasks` is the configured number; None: it is chosen here."""
        self._tasks = tasks
        self._first = 0
        self._slots = 0
        self._partitions = 0
        self._most = 1

    def begin(self, partitions: int, most: int) -> int:
        """How many slots a run that starts now gets: at most `most` if chosen here."""
        self._partitions, self._most = partitions, most
        first = slots_for(partitions, self._tasks, most)
        if first > self._first:
            self._slots = max(self._slots, first)
        self._first = first
        if self._tasks is None:
            self._slots = min(self._slots, most)  # executors may have gone
        return self._slots

    def outgrown(self, partitions: int, most: int) -> int:
        """How many slots this many partitions need, in a new run; 0: as many as now."""
        self._partitions, self._most = partitions, most
        first = slots_for(partitions, self._tasks, self._most)
        return first if first > max(self._first, self._slots) else 0

    def outdated(self, samples: Sequence[Sample]) -> int:
        """How many slots these samples of the current run call for; 0: as many as
        now.
        """
        if self._tasks is not None:
            return 0
        wanted = wanted_slots(
            samples,
            slots=self._slots,
            partitions=self._partitions,
            most=self._most,
        )
        before, self._slots = self._slots, wanted
        return wanted if wanted != before else 0
