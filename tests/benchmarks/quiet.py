"""Whether the machine was ours alone while a run lasted.

Main type: `Neighbours`: the CPU that was used by neither us, nor the peer (our child),
nor the brokers. Figures from a machine that others use as well are only good for
trying the benchmark out.
"""

from __future__ import annotations

import os
import time
from typing import TYPE_CHECKING

import psutil

from tests.benchmarks.processes import Service

if TYPE_CHECKING:
    from collections.abc import Iterable

LOUD_CORES = 0.2
"""More than this shows in the figures."""


class Neighbours:
    """Counts from its creation on."""

    def __init__(self, broker_pids: Iterable[int]) -> None:
        self._brokers = [psutil.Process(pid) for pid in broker_pids]
        self._began = time.monotonic()
        self._before = self._foreign_seconds()

    def cores(self) -> float:
        """Call when the peer has ended: only then its time counts as ours."""
        seconds = self._foreign_seconds() - self._before
        return max(0.0, seconds / (time.monotonic() - self._began))

    def _foreign_seconds(self) -> float:
        machine = psutil.cpu_times()
        busy = machine.user + machine.nice + machine.system
        brokers = sum(sum(each.cpu_times()[:2]) for each in self._brokers)
        return busy - brokers - sum(os.times()[:4]) - Service.orphaned_seconds
