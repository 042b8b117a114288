"""What holes in a log cost `mirror verify`: CPU, and memory of its driver.

Main types: `Holes` and `LongMap`. Compaction leaves a hole after each record of a
topic, so each record of its copy is a run of its own in the offset map. What the
command takes to start is left out of CPU, as in `proving`.
"""

from __future__ import annotations

from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, NamedTuple

from tests.benchmarks import load
from tests.benchmarks.bench import PARTITIONS
from tests.benchmarks.columns import Column
from tests.benchmarks.compacted import fill_with_keys, leave_holes
from tests.benchmarks.logs import committed_records
from tests.benchmarks.scenarios.proving import call
from tests.harness.waiting import wait_for

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.benchmarks.bench import Bench, Measure, Start
    from tests.benchmarks.scenarios.proving import Call

_STORED_BYTES = 250
"""At most, of a record, the one that compaction removes behind it, and their batch."""
_COPY_SECONDS = 600.0
_FEW = 100
"""So many times fewer runs has the map that a long one is compared with."""


@dataclass(frozen=True, slots=True, kw_only=True)
class HolesResult:
    COLUMNS: ClassVar = (
        Column("plain_seconds_per_million", "CPU s/M records", ",.2f"),
        Column("holes_seconds_per_million", "with holes", ",.2f"),
        Column("cpu_of_plain", "x without", ",.2f"),
        Column("worker_mb", "largest task MB", ",.0f"),
    )

    equal: int
    expected: int
    plain_seconds_per_million: float
    holes_seconds_per_million: float
    cpu_of_plain: float
    worker_mb: float

    def flaw(self) -> str | None:
        return _flaw(self.equal, self.expected)


@dataclass(frozen=True, slots=True, kw_only=True)
class LongMapResult:
    COLUMNS: ClassVar = (
        Column("short_map_mb", "driver MB, short map", ",.0f"),
        Column("long_map_mb", "long map", ",.0f"),
        Column("driver_growth", "x short", ",.2f"),
        Column("runs", "runs", ",.0f"),
        Column("worker_mb", "largest task MB", ",.0f"),
    )

    equal: int
    expected: int
    runs: int
    short_map_mb: float
    """The driver's Python process at its peak."""
    long_map_mb: float
    driver_growth: float
    worker_mb: float

    def flaw(self) -> str | None:
        return _flaw(self.equal, self.expected)


class Filled(NamedTuple):
    topic: str
    records: int
    later: float
    """When all records had been written but the last one of each partition."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Holes:
    name: str
    title: str
    records: int
    value_bytes: int
    partitions: int = PARTITIONS
    peers: tuple[str, ...] = ("mirror",)

    @property
    def source_bytes(self) -> int:
        return self.records * (_STORED_BYTES + 2 * self.value_bytes)

    @contextmanager
    def ready(self, bench: Bench) -> Iterator[Measure]:
        with (
            self.filled(bench, self.records, holes=False) as plain,
            self.filled(bench, self.records, holes=True) as holes,
        ):

            def measure(start: Start) -> HolesResult:
                before, _ = self.proven(bench, start, plain)
                cpu, whole = self.proven(bench, start, holes)
                return HolesResult(
                    equal=whole.equal,
                    expected=holes.records,
                    plain_seconds_per_million=before / plain.records * 1e6,
                    holes_seconds_per_million=cpu / holes.records * 1e6,
                    cpu_of_plain=(cpu / holes.records) / (before / plain.records),
                    worker_mb=whole.worker_bytes / 1e6,
                )

            yield measure

    @contextmanager
    def filled(self, bench: Bench, records: int, *, holes: bool) -> Iterator[Filled]:
        name = f"bench-{self.name}-{next(bench.numbers)}"
        with bench.topic(name, partitions=self.partitions) as topic:
            fill_with_keys(
                bench.source.near, topic, partitions=self.partitions,
                records=records, value_bytes=self.value_bytes, followed=holes,
            )  # fmt: skip
            if holes:
                records += leave_holes(
                    bench.source, topic, partitions=self.partitions, records=records
                )
            later = load.fill_later(
                bench.source.near, topic, partitions=self.partitions
            )
            yield Filled(topic, records + self.partitions, later)

    def proven(self, bench: Bench, start: Start, filled: Filled) -> tuple[float, Call]:
        """Copy it, then prove it; gives the CPU seconds of proving."""
        with bench.task(filled.topic) as task:
            service = start(task)

            def is_copied() -> bool:
                service.require_running()
                copied = committed_records(
                    bench.target.data, task.target_topic, partitions=self.partitions
                )
                return copied >= filled.records

            try:
                wait_for(is_copied, _COPY_SECONDS, pause=1)
            finally:
                service.stop()
            whole = call(task.folder, "begin")
            starting = call(task.folder, f"@{filled.later * 1000:.0f}")
        return whole.cpu_seconds - starting.cpu_seconds, whole


@dataclass(frozen=True, slots=True, kw_only=True)
class LongMap(Holes):
    @contextmanager
    def ready(self, bench: Bench) -> Iterator[Measure]:
        with (
            self.filled(bench, self.records // _FEW, holes=True) as short,
            self.filled(bench, self.records, holes=True) as long,
        ):

            def measure(start: Start) -> LongMapResult:
                _, few = self.proven(bench, start, short)
                _, many = self.proven(bench, start, long)
                return LongMapResult(
                    equal=many.equal,
                    expected=long.records,
                    runs=long.records,
                    short_map_mb=few.driver_bytes / 1e6,
                    long_map_mb=many.driver_bytes / 1e6,
                    driver_growth=many.driver_bytes / few.driver_bytes,
                    worker_mb=many.worker_bytes / 1e6,
                )

            yield measure


def _flaw(equal: int, expected: int) -> str | None:
    return None if equal == expected else f"{equal} of {expected} records are equal"


HOLES = Holes(
    name="verify-holes",
    title="verify 100 B, random, a hole after each record",
    records=10_000_000,
    value_bytes=100,
)
LONG_MAP = LongMap(
    name="verify-long-map",
    title="verify with an offset map of 10 M runs, and of 100 k",
    records=10_000_000,
    value_bytes=10,
)
