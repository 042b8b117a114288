"""How a flow's max_bytes_per_second is divided among its slots.

Pure part: `divide`. Main type: `Rates`, which remembers what each slot has read in the
last leases. A slot that reads less than its part leaves the rest to the others, so that
the flow as a whole reads as much as it may, wherever its records are.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from mirror.relay.report import PartitionReport

_WANTS_MORE = 0.8
"""A slot that reads this share of its part could read more."""
_HEADROOM = 1.5
"""What a slot keeps over what it reads: it may have more to read in the next lease."""
_LEAST_SHARE = 0.1
"""Of an equal part: what even an idle slot keeps."""
_SMOOTHED_SECONDS = 5.0


def divide(limit: float, wanted: Sequence[float]) -> tuple[float, ...]:
    """A part of the limit for each slot: what it wants, or as much as every other that
    wants more. What is left then goes to all equally.
    """
    parts = dict.fromkeys(range(len(wanted)), 0.0)
    left, unserved = limit, sorted(parts, key=lambda slot: wanted[slot])
    while unserved:
        slot = unserved[0]
        parts[slot] = min(wanted[slot], left / len(unserved))
        left -= parts[slot]
        del unserved[0]
    return tuple(part + left / len(parts) for part in parts.values())


class Rates:
    """The limit of one run's slots."""

    def __init__(self, slots: int) -> None:
        self._read: list[float | None] = [None] * slots
        """Bytes per second that each has read lately; None: not known yet."""
        self._parts: tuple[float, ...] = ()
        self._limit = 0.0

    def parts(self, limit: float) -> tuple[float, ...]:
        """What each slot may read per second in the next lease; () without a limit."""
        if not limit:
            self._parts = ()
            return ()
        slots = len(self._read)
        if not self._parts:
            self._parts = (limit / slots,) * slots
        elif limit != self._limit:
            # A slot that read all it might does so again, in proportion.
            by = limit / self._limit
            self._parts = tuple(part * by for part in self._parts)
            self._read = [None if read is None else read * by for read in self._read]
        least = limit / slots * _LEAST_SHARE
        self._parts = divide(
            limit,
            [
                self._wants(read, part, least)
                for read, part in zip(self._read, self._parts, strict=True)
            ],
        )
        self._limit = limit
        return self._parts

    def learn(self, reports: Iterable[PartitionReport]) -> None:
        """Note what slots have read in one lease."""
        size = [0] * len(self._read)
        seconds = [0.0] * len(self._read)
        empty = set(range(len(self._read)))
        for report in reports:
            empty.discard(report.slot)
            size[report.slot] += report.bytes_in
            seconds[report.slot] = max(seconds[report.slot], report.slot_seconds)
        for slot in empty:  # without partitions
            self._read[slot] = 0.0
        for slot, took in enumerate(seconds):
            if took > 0:
                rate = size[slot] / took
                before = self._read[slot]
                known = rate if before is None else before
                share = 1 - math.exp(-took / _SMOOTHED_SECONDS)
                self._read[slot] = known + share * (rate - known)

    @staticmethod
    def _wants(read: float | None, part: float, least: float) -> float:
        if read is None or read >= part * _WANTS_MORE:
            return math.inf
        return max(read * _HEADROOM, least)
