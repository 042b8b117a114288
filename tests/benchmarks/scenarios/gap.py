"""The gap between two leases, as the service tells it and as a reader feels it.

A steady load runs over many short leases. `lease_gap_ms` is read from `/status` once
per lease. From outside, a gap is the longest pause between two arrivals at an ordinary
consumer, from a quarter of a lease before its end to a quarter after it. What lies
around a lease's middle is the control: these pauses are the load's, the brokers' and
the machine's own.
"""

from __future__ import annotations

from bisect import bisect_left
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import pairwise
import threading
import time
from typing import TYPE_CHECKING, ClassVar

import numpy as np

from tests.benchmarks.columns import Column
from tests.benchmarks.processes import PeerError
from tests.benchmarks.scenarios.paced import copy_of, paced, primed, watched

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from confluent_kafka import Consumer

    from tests.benchmarks.bench import Bench, Measure, Start
    from tests.benchmarks.processes import Service
    from tests.benchmarks.target import Target

_ASK_SECONDS = 0.1
_FEWEST_LEASES = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class GapResult:
    COLUMNS: ClassVar = (
        Column("gap_p50_ms", "gap p50 ms", ",.0f", "less"),
        Column("gap_p99_ms", "gap p99 ms", ",.0f", "less"),
        Column("pause_p50_ms", "pause seen p50 ms", ",.0f", "less"),
        Column("pause_p99_ms", "pause seen p99 ms", ",.0f", "less"),
        Column("middle_p50_ms", "in the middle p50 ms", ",.0f"),
        Column("middle_p99_ms", "in the middle p99 ms", ",.0f"),
        Column("leases", "leases", ",.0f"),
    )

    leases: int
    gap_p50_ms: float
    """As the service tells it: in which no slot worked."""
    gap_p99_ms: float
    pause_p50_ms: float
    """As the reader sees it: commit and fetch are in it."""
    pause_p99_ms: float
    middle_p50_ms: float
    """The same, far from a lease's end."""
    middle_p99_ms: float

    def flaw(self) -> str | None:
        if self.leases >= _FEWEST_LEASES:
            return None
        return f"only {self.leases} leases were seen"


@dataclass(frozen=True, slots=True, kw_only=True)
class Gap:
    name: str
    title: str
    peers: tuple[str, ...] = ("mirror",)
    lease_seconds: float = 1.0
    """Short ones, so that there are many gaps."""
    per_second: int = 1000
    seconds: float = 120.0
    warm_up_seconds: float = 20.0

    @property
    def source_bytes(self) -> int:
        return 0

    @contextmanager
    def ready(self, bench: Bench) -> Iterator[Measure]:
        def measure(start: Start) -> GapResult:
            with (
                primed(bench, self.name) as topic,
                bench.task(topic, lease_seconds=self.lease_seconds) as task,
                paced(bench, topic, per_second=self.per_second),
            ):
                copy = copy_of(task, bench)
                return self._watch(start(task), copy)

        yield measure

    def _watch(self, service: Service, copy: Target) -> GapResult:
        with watched(service, copy, warm_up_seconds=self.warm_up_seconds) as consumer:
            arrivals, leases = self._collect(service, consumer)
        ends = [at for at, _ in leases]
        if len(ends) < _FEWEST_LEASES:
            raise PeerError(f"too few leases to see a gap:\n{service.log_tail()}")
        pauses, calm = _pauses(arrivals, ends)
        gaps = [gap for _, gap in leases if gap >= 0]
        return GapResult(
            leases=len(pauses),
            gap_p50_ms=float(np.percentile(gaps, 50)),
            gap_p99_ms=float(np.percentile(gaps, 99)),
            pause_p50_ms=float(np.percentile(pauses, 50)) * 1000,
            pause_p99_ms=float(np.percentile(pauses, 99)) * 1000,
            middle_p50_ms=float(np.percentile(calm, 50)) * 1000,
            middle_p99_ms=float(np.percentile(calm, 99)) * 1000,
        )

    def _collect(
        self, service: Service, consumer: Consumer
    ) -> tuple[list[float], list[tuple[float, float]]]:
        """When records came; and for each lease when it was told, and its gap."""
        arrivals: list[float] = []
        over = threading.Event()
        # Beside the reader: a slow answer would hold it up.
        with ThreadPoolExecutor(1) as beside:
            leases = beside.submit(_leases, service, over)
            try:
                until = time.monotonic() + self.seconds
                while time.monotonic() < until:
                    message = consumer.poll(_ASK_SECONDS)
                    if message is None:
                        continue
                    if message.error():
                        raise PeerError(
                            f"the target's reader failed: {message.error()}"
                        )
                    arrivals.append(time.monotonic())
            finally:
                over.set()
        return arrivals, leases.result()


def _leases(service: Service, over: threading.Event) -> list[tuple[float, float]]:
    """When each lease was told, and its gap."""
    leases: list[tuple[float, float]] = []
    known = service.status()["leases"]
    while not over.wait(_ASK_SECONDS):
        told = service.status()
        if told["leases"] != known:
            known = told["leases"]
            leases.append((time.monotonic(), told["lease_gap_ms"]))
    return leases


def _pauses(
    arrivals: Sequence[float], ends: Sequence[float]
) -> tuple[list[float], list[float]]:
    """The longest pause around each lease's end, and around the middle to the next."""
    around, between = [], []
    for end, following in pairwise(ends):
        quarter = (following - end) / 4
        around.append(_longest(arrivals, end - quarter, end + quarter))
        middle = end + 2 * quarter
        between.append(_longest(arrivals, middle - quarter, middle + quarter))
    return around, between


def _longest(arrivals: Sequence[float], since: float, until: float) -> float:
    """Of the pauses that lie in this time, or reach into it."""
    first, last = bisect_left(arrivals, since), bisect_left(arrivals, until)
    pauses = pairwise(arrivals[max(0, first - 1) : last + 1])
    return max((end - begin for begin, end in pauses), default=0.0)


GAP = Gap(name="gap", title="between two leases, at 1000 records/s")
