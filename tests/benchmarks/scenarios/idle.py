"""What a service costs that has nothing to copy: cores, and memory of its processes.

Memory is PSS: pages that several processes share, as forks of one server do, count in
parts. RSS would count them once for each.
"""

from __future__ import annotations

from contextlib import contextmanager
from dataclasses import dataclass
import time
from typing import TYPE_CHECKING, ClassVar

from tests.benchmarks.columns import Column
from tests.benchmarks.scenarios.paced import PRIMERS_BYTES, copy_of, primed
from tests.benchmarks.throughput import first_look

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.benchmarks.bench import Bench, Measure, Start


@dataclass(frozen=True, slots=True, kw_only=True)
class IdleResult:
    COLUMNS: ClassVar = (
        Column("cpu_cores", "CPU cores", ",.3f", "less"),
        Column("proportional_mb", "PSS MB", ",.0f", "less"),
    )

    cpu_cores: float
    proportional_mb: float

    def flaw(self) -> None:
        return None


@dataclass(frozen=True, slots=True, kw_only=True)
class Idle:
    name: str
    title: str
    peers: tuple[str, ...] = ("mm2", "mirror")
    warm_up_seconds: float = 45.0
    """Not counted: the first leases, compilers, and collections of garbage."""
    seconds: float = 60.0

    @property
    def source_bytes(self) -> int:
        return PRIMERS_BYTES

    @contextmanager
    def ready(self, bench: Bench) -> Iterator[Measure]:
        def measure(start: Start) -> IdleResult:
            with primed(bench, self.name) as topic, bench.task(topic) as task:
                copy = copy_of(task, bench)
                service = start(task)
                try:
                    first_look(service, copy)
                    time.sleep(self.warm_up_seconds)
                    used, began = service.cpu_seconds(), time.monotonic()
                    time.sleep(self.seconds)
                    used = service.cpu_seconds() - used
                    seconds = time.monotonic() - began
                    size = service.proportional_bytes()
                    service.require_running()
                finally:
                    service.stop()
            return IdleResult(cpu_cores=used / seconds, proportional_mb=size / 1e6)

        yield measure


IDLE = Idle(name="idle", title="nothing to copy")
