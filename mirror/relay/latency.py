"""Latencies of one lease as a histogram, whose counts can be added up anywhere.

Main type: `Latencies`. `bounds` returns the upper ends of its buckets; one is the
flow's SLA, so that the share of records within it is exact.
"""

from __future__ import annotations

from bisect import bisect_left

_BOUNDS = (
    *(0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5),
    *(1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 300.0, 3600.0),
)


def bounds(sla_seconds: float) -> tuple[float, ...]:
    """Upper ends of the buckets in seconds; one more bucket takes all above them."""
    return tuple(sorted({*_BOUNDS, sla_seconds}))


class Latencies:
    """Counts of records per latency bucket."""

    def __init__(self, bounds: tuple[float, ...]) -> None:
        self._bounds = bounds
        self.counts = [0] * (len(bounds) + 1)
        self.sum_seconds = 0.0

    def add(self, seconds: float, count: int) -> None:
        """Count records that took this long."""
        # Clocks differ: a record may be copied before its own time.
        seconds = max(seconds, 0.0)
        self.counts[bisect_left(self._bounds, seconds)] += count
        self.sum_seconds += seconds * count

    @property
    def each(self) -> tuple[int, ...]:
        """The counts; empty if there are none, which most partitions of many report."""
        return tuple(self.counts) if any(self.counts) else ()
