"""A long backlog: whether the rate is steady, and memory does not grow."""

from __future__ import annotations

from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from itertools import pairwise
from statistics import median
import time
from typing import TYPE_CHECKING, ClassVar

from tests.benchmarks import load, payloads
from tests.benchmarks.bench import PARTITIONS
from tests.benchmarks.columns import Column
from tests.benchmarks.logs import committed_records
from tests.benchmarks.processes import PeerError
from tests.benchmarks.target import Target
from tests.benchmarks.throughput import first_look

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from tests.benchmarks.bench import Bench, Measure, Start
    from tests.benchmarks.processes import Service

_EARLY = 0.2
_LOOK_SECONDS = 0.1
_QUIET_SECONDS = 2.0
_STALLED_SECONDS = 60.0


@dataclass(frozen=True, slots=True, kw_only=True)
class BacklogResult:
    COLUMNS: ClassVar = (
        Column("slowest_mb_per_second", "slowest MB/s", ",.0f", "more"),
        Column("median_mb_per_second", "median MB/s", ",.0f", "more"),
        Column("fastest_mb_per_second", "fastest MB/s", ",.0f"),
        Column("early_worker_mb", "worker MB at 20 %", ",.0f"),
        Column("late_worker_mb", "worker MB at the end", ",.0f", "less"),
        Column("growth_mb", "growth MB", ",.0f"),
        Column("remaining_error", "remaining time off by (-100%: not shown)", ".0%"),
        Column("seconds", "s", ",.0f"),
    )

    records: int
    expected: int
    seconds: float
    slowest_mb_per_second: float
    """Of windows of some seconds each; the one in which it starts is left out."""
    median_mb_per_second: float
    fastest_mb_per_second: float
    early_worker_mb: float
    """The largest worker when a fifth was copied."""
    late_worker_mb: float
    growth_mb: float
    """Of the worker that grew most."""
    remaining_error: float
    """What it said at half-way of the time it would take, against what it took;
    -1 if it said nothing, as its first lease had not ended."""
    workers_early: tuple[float, ...]
    """MB of each."""
    workers_late: tuple[float, ...]

    def flaw(self) -> str | None:
        if self.records == self.expected:
            return None
        return f"{self.records} records on the target instead of {self.expected}"


@dataclass(slots=True)
class _Seen:
    looks: list[tuple[float, int]]
    """Time and committed offsets, whenever these grew."""
    early: dict[int, int]
    late: dict[int, int]
    halfway: tuple[float, float] | None = None
    """When, and how long it said that the rest would take."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Backlog:
    name: str
    title: str
    peers: tuple[str, ...] = ("mirror",)
    record_bytes: int = 1000
    records: int = 5_000_000
    window_seconds: float = 2.0
    most_seconds: float = 300.0

    @property
    def source_bytes(self) -> int:
        return self.records * (self.record_bytes + 10)

    @contextmanager
    def ready(self, bench: Bench) -> Iterator[Measure]:
        with bench.topic(f"bench-{self.name}") as topic:
            load.fill(
                bench.source.near,
                topic,
                partitions=PARTITIONS,
                pool=payloads.incompressible(self.record_bytes),
                records=self.records,
            )

            def measure(start: Start) -> BacklogResult:
                with bench.task(topic) as task:
                    name = task.target_topic
                    return self._watch(
                        start(task),
                        Target(bench.target.near, name, partitions=PARTITIONS),
                        count=partial(
                            committed_records,
                            bench.target.data,
                            name,
                            partitions=PARTITIONS,
                        ),
                    )

            yield measure

    def _watch(
        self, service: Service, target: Target, *, count: Callable[[], int]
    ) -> BacklogResult:
        try:
            first_look(service, target)
            seen = self._collect(service, target)
        finally:
            service.stop()
        rates = self._rates(seen.looks)
        if not rates:
            raise PeerError(
                f"all was copied within two times {self.window_seconds:g} s: pass more"
                " --records"
            )
        common = seen.early.keys() & seen.late.keys()
        growth = [seen.late[pid] - seen.early[pid] for pid in common]
        return BacklogResult(
            records=count(),
            expected=self.records,
            seconds=seen.looks[-1][0] - seen.looks[0][0],
            slowest_mb_per_second=min(rates),
            median_mb_per_second=median(rates),
            fastest_mb_per_second=max(rates),
            early_worker_mb=max(seen.early.values(), default=0) / 1e6,
            late_worker_mb=max(seen.late.values(), default=0) / 1e6,
            growth_mb=max(growth, default=0) / 1e6,
            remaining_error=_remaining_error(seen),
            workers_early=tuple(size / 1e6 for size in seen.early.values()),
            workers_late=tuple(size / 1e6 for size in seen.late.values()),
        )

    def _collect(self, service: Service, target: Target) -> _Seen:
        seen = _Seen(looks=[], early={}, late={})
        until = time.monotonic() + self.most_seconds
        while (now := time.monotonic()) < until:
            service.require_running()
            offsets = target.committed_offsets()
            if not seen.looks or offsets > seen.looks[-1][1]:
                seen.looks.append((now, offsets))
                seen.late = service.worker_bytes()
            if not seen.early and offsets >= _EARLY * self.records:
                seen.early = seen.late
            if not seen.halfway and offsets >= self.records / 2:
                seen.halfway = now, _remaining(service)
            quiet = now - seen.looks[-1][0]
            if offsets >= self.records and quiet > _QUIET_SECONDS:
                return seen
            if quiet > _STALLED_SECONDS:
                break
            time.sleep(_LOOK_SECONDS)
        raise PeerError(
            f"only {seen.looks[-1][1]} of {self.records} records are copied:\n"
            f"{service.log_tail()}"
        )

    def _rates(self, looks: list[tuple[float, int]]) -> list[float]:
        """MB per second, window by window."""
        edges = [looks[0]]
        for look in looks:
            if look[0] - edges[-1][0] >= self.window_seconds:
                edges.append(look)
        return [
            (after[1] - before[1]) * self.record_bytes / (after[0] - before[0]) / 1e6
            for before, after in pairwise(edges[1:])
        ]


def _remaining(service: Service) -> float:
    if service.status_url is None:
        return -1.0
    return float(service.status()["remaining_seconds"])


def _remaining_error(seen: _Seen) -> float:
    if seen.halfway is None or seen.halfway[1] < 0:
        return -1.0
    at, said = seen.halfway
    took = seen.looks[-1][0] - at
    return abs(said - took) / took if took else -1.0


BACKLOG = Backlog(name="backlog", title="5 GB of 1 KB records to catch up with")
