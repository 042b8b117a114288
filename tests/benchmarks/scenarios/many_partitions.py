"""A thousand partitions in fifty topics with hardly a record in them, on two slots."""

from __future__ import annotations

from contextlib import closing, contextmanager
from dataclasses import dataclass
import time
from typing import TYPE_CHECKING, ClassVar

import numpy as np

from tests.benchmarks import load
from tests.benchmarks.columns import Column
from tests.benchmarks.latency import delays_of, discard
from tests.benchmarks.processes import PeerError
from tests.benchmarks.target import Target
from tests.benchmarks.throughput import first_look

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.benchmarks.bench import Bench, Measure, Start
    from tests.benchmarks.processes import Service

_SLOTS = 2
_QUIET_SECONDS = 3.0


@dataclass(frozen=True, slots=True, kw_only=True)
class ManyPartitionsResult:
    COLUMNS: ClassVar = (
        Column("p50_ms", "p50 ms", ",.0f", "less"),
        Column("p99_ms", "p99 ms", ",.0f", "less"),
        Column("max_ms", "max ms", ",.0f", "less"),
        Column("idle_cores", "idle cores", ",.2f", "less"),
        Column("cores", "cores", ",.2f"),
        Column("worker_mb", "worker RSS MB", ",.0f", "less"),
        Column("resident_mb", "RSS MB", ",.0f"),
        Column("start_seconds", "all topics s", ",.0f"),
    )

    records: int
    expected: int
    start_seconds: float
    """From the start of the process until every topic is on the target."""
    p50_ms: float
    p99_ms: float
    max_ms: float
    cores: float
    """CPU seconds per second under the trickle."""
    idle_cores: float
    """The same without load."""
    worker_mb: float
    """The largest worker at its largest."""
    resident_mb: float

    def flaw(self) -> str | None:
        if self.records >= 0.95 * self.expected:
            return None
        return f"{self.records} records came in time instead of {self.expected}"


@dataclass(frozen=True, slots=True, kw_only=True)
class ManyPartitions:
    name: str
    title: str
    peers: tuple[str, ...] = ("mirror",)
    topics: int = 50
    partitions: int = 20
    """Per topic."""
    per_second: int = 200
    """Over all of them."""
    seconds: float = 30.0
    idle_seconds: float = 20.0
    warm_up_seconds: float = 10.0

    @property
    def source_bytes(self) -> int:
        # An index file takes some memory even when there is next to nothing in it.
        return self.topics * self.partitions << 15

    @contextmanager
    def ready(self, bench: Bench) -> Iterator[Measure]:
        names = [f"bench-{self.name}-{number:03}" for number in range(self.topics)]
        with bench.topics(names, partitions=self.partitions):

            def measure(start: Start) -> ManyPartitionsResult:
                with bench.task(f"bench-{self.name}-.*", tasks=_SLOTS) as task:
                    places = self._places(names)
                    copies = [(f"{task.alias}.{name}", n) for name, n in places]
                    target = Target.of(bench.target.near, copies)
                    pacer = load.Pacer(
                        bench.source.near, places, per_second=self.per_second
                    )
                    return self._watch(start(task), target, pacer)

            yield measure

    def _places(self, names: list[str]) -> list[load.Place]:
        return [(name, number) for number in range(self.partitions) for name in names]

    def _watch(
        self, service: Service, target: Target, pacer: load.Pacer
    ) -> ManyPartitionsResult:
        started = time.monotonic()
        largest = 0
        try:
            with pacer:
                first_look(service, target)
                start_seconds = time.monotonic() - started
                with closing(target.consumer()) as consumer:
                    discard(consumer, until=time.time() + self.warm_up_seconds)
                    cpu, began = service.cpu_seconds(), time.time()
                    delays = delays_of(
                        consumer,
                        partitions=target.partitions,
                        since=began,
                        seconds=self.seconds,
                    )
                    cores = (service.cpu_seconds() - cpu) / (time.time() - began)
            largest = max([largest, *service.worker_bytes().values()])
            time.sleep(_QUIET_SECONDS)
            cpu, began = service.cpu_seconds(), time.time()
            time.sleep(self.idle_seconds)
            idle = (service.cpu_seconds() - cpu) / (time.time() - began)
            largest = max([largest, *service.worker_bytes().values()])
            resident = service.resident_bytes()
            service.require_running()
        finally:
            service.stop()
        if not delays:
            raise PeerError(f"no record arrived:\n{service.log_tail()}")
        milliseconds = np.array(delays) * 1000
        return ManyPartitionsResult(
            records=len(delays),
            expected=round(self.per_second * self.seconds),
            start_seconds=start_seconds,
            p50_ms=float(np.percentile(milliseconds, 50)),
            p99_ms=float(np.percentile(milliseconds, 99)),
            max_ms=float(milliseconds.max()),
            cores=cores,
            idle_cores=idle,
            worker_mb=largest / 1e6,
            resident_mb=resident / 1e6,
        )


MANY = ManyPartitions(
    name="partitions-1000",
    title="50 topics of 20 partitions, 2 slots, 200 records/s over all",
)
