"""How fast a flow copies, and how long it takes to catch up.

Main types: `Sample`, what all slots did during one lease; `Throughput`, computed from
the last samples. Pure: the caller keeps the samples. Lag is counted in source offsets,
without faulted and paused partitions.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING

from mirror.status.states import PartitionState

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from mirror.copying.lease import PartitionReport

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
    return any(report.state == PartitionState.CATCHING_UP for report in reports)


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
