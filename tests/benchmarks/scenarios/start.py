"""From the start of a peer's process to the first record on the target.

A topic has records already. The time counts until a `read_committed` reader could see
one, the CPU is what all processes of the peer have used by then. `full_topics` has the
time as well, under the load of a backlog.
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
class StartResult:
    COLUMNS: ClassVar = (
        Column("first_record_seconds", "first record s", ",.1f", "less"),
        Column("cpu_seconds", "CPU s", ",.1f", "less"),
    )

    first_record_seconds: float
    cpu_seconds: float

    def flaw(self) -> None:
        return None


@dataclass(frozen=True, slots=True, kw_only=True)
class FirstRecord:
    name: str
    title: str
    peers: tuple[str, ...]

    @property
    def source_bytes(self) -> int:
        return PRIMERS_BYTES

    @contextmanager
    def ready(self, bench: Bench) -> Iterator[Measure]:
        def measure(start: Start) -> StartResult:
            with primed(bench, self.name) as topic, bench.task(topic) as task:
                copy = copy_of(task, bench)
                began = time.monotonic()
                service = start(task)
                try:
                    first_look(service, copy)
                    seconds = time.monotonic() - began
                    used = service.cpu_seconds()
                finally:
                    service.stop()
            return StartResult(first_record_seconds=seconds, cpu_seconds=used)

        yield measure


START = FirstRecord(
    name="start",
    title="from the start to the first record",
    peers=("mirror", "mm2"),
)
