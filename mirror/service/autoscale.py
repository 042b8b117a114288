"""How fast a flow copies, and how many slots it gets.

Pure parts: `share` divides Spark's cores among flows, `slots_for` gives the number of
slots to start with, `wanted_slots` the number that the last leases call for. Main
types: `Sizing`, which uses both; `Sample`, what all slots did during one lease;
`Throughput`, computed from the last samples, which the caller keeps. A change of slots
needs a new run of the flow, which stops copying for a third of a second: so flows grow
soon, but not at once, and shrink late.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING

from mirror.status.states import PartitionState

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from mirror.copying.lease import PartitionReport


_PARTITIONS_PER_SLOT = 4
_MOST_AT_FIRST = 4
"""The most slots that a flow starts with; each is a process with its own memory."""
_BUSY_SECONDS = 30.0
_BUSY = 0.75
_FALLING_BEHIND_SECONDS = 60.0
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
    lately = recent(samples, _FALLING_BEHIND_SECONDS)
    return (
        _seconds(lately) >= _FALLING_BEHIND_SECONDS
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


# ---- how fast a flow copies, and how long it takes to catch up ----
#
# Lag is counted in source offsets, without faulted and paused partitions.


_AT_REST = frozenset({PartitionState.FAULTED, PartitionState.PAUSED})
_SMOOTHED_SECONDS = 30.0
_SHORTEST_SECONDS = 3.0
"""Shorter windows show no trend."""
_BEHIND_SECONDS = 2.0
_BEHIND_RECORDS = 1000
"""A flow is catching up when it is more than 2 s and 1,000 records behind."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Sample:
    """A flow during one lease."""

    seconds: float
    """Since the end of the previous lease."""
    busy: float
    """CPU seconds per second, averaged over the slots."""
    records: int
    bytes: int
    lag: int
    """At the lease's end, summed over the partitions whose lag is known."""
    located: int
    """The number of these partitions."""
    behind: bool
    """Whether a partition reported that it is catching up."""
    bytes_read: int = 0
    limit: int = 0
    """The flow's max_bytes_per_second; 0 if it has none."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Throughput:
    """The throughput of a flow."""

    records_per_second: float = 0.0
    bytes_per_second: float = 0.0
    catching_up: bool = False
    remaining_seconds: float = -1.0
    """Until it has caught up at the current rate; -1 if it is not catching up, or if
    its lag does not shrink."""
    limit_used: float = 0.0
    """The share of max_bytes_per_second that it reads; 0 without that limit."""


def sample(
    reports: Iterable[PartitionReport], *, seconds: float, slots: int, limit: int = 0
) -> Sample:
    """Add up the reports of one lease. `limit`: the flow's, in bytes per second."""
    every = list(reports)
    sound = [r for r in every if r.state not in _AT_REST]
    located = [r for r in sound if r.position >= 0 and r.end_offset >= 0]
    busy = {report.slot: report.slot_busy for report in every}
    return Sample(
        seconds=seconds,
        busy=sum(busy.values()) / slots,
        records=sum(report.counts.records for report in sound),
        bytes=sum(report.counts.bytes for report in sound),
        lag=sum(report.lag for report in located),
        located=len(located),
        behind=behind(sound),
        bytes_read=sum(report.bytes_in for report in every),
        limit=limit,
    )


def behind(reports: Iterable[PartitionReport]) -> bool:
    """Whether a partition reports that it is catching up."""
    states = {PartitionState.CATCHING_UP, PartitionState.SEEDING}
    return any(report.state in states for report in reports)


def recent(samples: Sequence[Sample], seconds: float) -> Sequence[Sample]:
    """The last samples that cover this many seconds, or all of them."""
    covered = 0.0
    for first in range(len(samples) - 1, -1, -1):
        covered += samples[first].seconds
        if covered >= seconds:
            return samples[first:]
    return samples


def measured(samples: Sequence[Sample]) -> Throughput:
    """The throughput of the last samples, given oldest first."""
    lately = recent(samples, _SMOOTHED_SECONDS)
    seconds = sum(one.seconds for one in lately)
    if seconds <= 0:
        return Throughput()
    last = lately[-1]
    records_per_second = sum(one.records for one in lately) / seconds
    catching_up = last.lag > records_per_second * _BEHIND_SECONDS and (
        last.behind or last.lag > _BEHIND_RECORDS
    )
    shrinks = _shrinks(samples)
    return Throughput(
        records_per_second=records_per_second,
        bytes_per_second=sum(one.bytes for one in lately) / seconds,
        catching_up=catching_up,
        remaining_seconds=last.lag / shrinks if catching_up and shrinks > 0 else -1.0,
        limit_used=limit_used(lately),
    )


def limit_used(samples: Sequence[Sample]) -> float:
    """The share of the present limit that was read meanwhile; 0 if there is none."""
    same = [one for one in samples if one.limit == samples[-1].limit]
    allowed = sum(one.limit * one.seconds for one in same)
    return sum(one.bytes_read for one in same) / allowed if allowed else 0.0


def _shrinks(samples: Sequence[Sample]) -> float:
    """By how many records per second the lag shrinks; 0 while unknown."""
    seconds, first = 0.0, samples[-1]
    for later, earlier in pairwise(reversed(samples)):
        # A change in the number of partitions changes the lag, but is no progress.
        if earlier.located != later.located or seconds >= _SMOOTHED_SECONDS:
            break
        seconds += later.seconds
        first = earlier
    return (
        (first.lag - samples[-1].lag) / seconds if seconds >= _SHORTEST_SECONDS else 0.0
    )
