"""How many slots a flow gets: what the user said, or what it turns out to need.

Pure parts: `share` divides Spark's cores among flows, `slots_for` says how many slots
to begin with, `wanted_slots` how many the last leases ask for. Main type: `Sizing`,
which asks both. Another number of slots means another run of the flow, which
stops copying for a second or a few: it grows soon, but not at once, and shrinks late.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from mirror.driver.throughput import measured, recent

if TYPE_CHECKING:
    from collections.abc import Sequence

    from mirror.driver.throughput import Sample

_PARTITIONS_PER_SLOT = 4
_MOST_AT_FIRST = 4
"""How many slots a flow begins with at most; each is a process with its memory."""
_BUSY_SECONDS = 30.0
_BUSY = 0.75
_BEHIND_SECONDS = 60.0
LONGEST_SECONDS = 600.0
"""Older samples mean nothing: slots that were idle for so long become fewer."""
_IDLE = 0.15
"""Half as many slots are then busy by at most twice that, far from growing again."""


def share(cores: int, tasks: Sequence[int | None]) -> int:
    """How many slots each flow without `tasks` may get of these cores: one at least.

    `tasks` are the settings of all flows.
    """
    automatic = tasks.count(None)
    left = cores - sum(number for number in tasks if number is not None)
    return max(1, left // max(automatic, 1))


def slots_for(partitions: int, tasks: int | None, most: int) -> int:
    """How many slots a flow begins with: what the user said, else by its partitions."""
    if tasks is not None:
        return tasks
    wanted = -(-partitions // _PARTITIONS_PER_SLOT)
    return max(1, min(wanted, _MOST_AT_FIRST, most))


def wanted_slots(
    samples: Sequence[Sample], *, slots: int, partitions: int, most: int
) -> int:
    """How many slots the samples of leases with `slots` slots ask for."""
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
    """The slots of one flow, run after run."""

    def __init__(self, tasks: int | None) -> None:
        """`tasks`: what the user said. Null: it is chosen here."""
        self._tasks = tasks
        self._first = 0
        self._slots = 0
        self._partitions = 0
        self._most = 1

    def begin(self, partitions: int, most: int) -> int:
        """How many slots a run has that begins now, at most `most` if chosen here."""
        self._partitions, self._most = partitions, most
        first = slots_for(partitions, self._tasks, most)
        if first > self._first:
            self._slots = max(self._slots, first)
        self._first = first
        if self._tasks is None:
            self._slots = min(self._slots, most)  # executors may have gone
        return self._slots

    def outgrown(self, partitions: int, most: int) -> bool:
        """Whether so many partitions need another run, with more slots."""
        self._partitions, self._most = partitions, most
        first = slots_for(partitions, self._tasks, self._most)
        return first > max(self._first, self._slots)

    def outdated(self, samples: Sequence[Sample]) -> bool:
        """Whether these samples of this run ask for another one."""
        if self._tasks is not None:
            return False
        wanted = wanted_slots(
            samples,
            slots=self._slots,
            partitions=self._partitions,
            most=self._most,
        )
        changes = wanted != self._slots
        self._slots = wanted
        return changes
