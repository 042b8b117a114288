"""How much CPU it takes to prove a copy, compared with making it.

Main type: `Proving`. mirror copies a topic, which is measured as in `copying`; then
`mirror verify` compares all of it. What Spark and its processes take to start does not
count, as it does not in `copying`: a second call measures it, which proves one record
of each partition.
"""

from __future__ import annotations

from contextlib import contextmanager
from dataclasses import dataclass, fields, replace
import json
import sys
import time
from typing import TYPE_CHECKING, Any, ClassVar

from tests.benchmarks import load
from tests.benchmarks.columns import Column
from tests.benchmarks.processes import PeerError, Service
from tests.benchmarks.scenarios.copying import Copying
from tests.benchmarks.scenarios.faraway import FAR_SOURCE
from tests.benchmarks.scenarios.full_topics import JSON, KILOBYTE, SMALL

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.benchmarks.bench import Bench, Measure, Start
    from tests.benchmarks.peers.peer import Task

_LOOK_SECONDS = 0.1
_MOST_SECONDS = 900.0


@dataclass(frozen=True, slots=True, kw_only=True)
class ProvingResult:
    COLUMNS: ClassVar = (
        Column("records_per_second", "records/s", ",.0f"),
        Column("mb_per_second", "MB/s", ",.0f"),
        Column("cpu_seconds_per_million", "CPU s/M records", ",.2f"),
        Column("cpu_seconds_per_gb", "CPU s/GB", ",.2f"),
        Column("cpu_of_copying", "CPU, x copying", ",.2f"),
        Column("pace_of_copying", "pace, x copying", ",.2f"),
        Column("start_seconds", "start s", ",.1f"),
        Column("worker_mb", "largest task MB", ",.0f"),
    )

    equal: int
    expected: int
    records_per_second: float
    mb_per_second: float
    cpu_seconds_per_million: float
    cpu_seconds_per_gb: float
    cpu_of_copying: float
    pace_of_copying: float
    start_seconds: float
    worker_mb: float

    def flaw(self) -> str | None:
        if self.equal == self.expected:
            return None
        return f"{self.equal} records are equal instead of {self.expected}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Call:
    """One run of the command."""

    equal: int
    seconds: float
    cpu_seconds: float
    worker_bytes: int
    driver_bytes: int
    """At its peak, of the driver's Python process."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Proving(Copying):
    peers: tuple[str, ...] = ("mirror",)
    later: float = 0.0
    """When all records had been written but the last one of each partition."""

    @contextmanager
    def ready(self, bench: Bench) -> Iterator[Measure]:
        with bench.topic(f"bench-{self.name}", partitions=self.partitions) as topic:
            records, payload_bytes = self.fill(bench, topic)
            later = load.fill_later(
                bench.source.near, topic, partitions=self.partitions
            )
            filled = replace(self, later=later)

            def measure(start: Start) -> ProvingResult:
                found: ProvingResult = filled.measure(
                    bench, start, topic, records + self.partitions, payload_bytes
                )
                return found

            yield measure

    def copied(
        self,
        bench: Bench,
        start: Start,
        task: Task,
        records: int,
        payload_bytes: int,
    ) -> ProvingResult:
        all_of_it = replace(self, complete=True)
        copied = Copying.copied(all_of_it, bench, start, task, records, payload_bytes)
        if (flaw := copied.flaw()) is not None:
            raise PeerError(flaw)
        whole = call(task.folder, "begin")
        starting = call(task.folder, f"@{self.later * 1000:.0f}")
        seconds = whole.seconds - starting.seconds
        cpu = whole.cpu_seconds - starting.cpu_seconds
        pace = records / seconds
        return ProvingResult(
            equal=whole.equal,
            expected=records,
            records_per_second=pace,
            mb_per_second=payload_bytes / seconds / 1e6,
            cpu_seconds_per_million=cpu / (records / 1e6),
            cpu_seconds_per_gb=cpu / (payload_bytes / 1e9),
            cpu_of_copying=cpu / records * 1e6 / copied.cpu_seconds_per_million,
            pace_of_copying=pace / copied.records_per_second,
            start_seconds=starting.seconds,
            worker_mb=whole.worker_bytes / 1e6,
        )


def call(folder: Path, since: str) -> Call:
    """Run `mirror verify` to its end.

    Raises:
        PeerError: it found something, or did not end.
    """
    report = folder / f"since-{since}.json"
    started = time.monotonic()
    service = Service(
        [
            *(sys.executable, "-m", "mirror.cli.main", "verify"),
            *("-c", folder / "mirror.yaml", "--since", since, "--report", report),
        ],
        log=folder / f"verify-{since}.log",
        workers="mirror.copying.daemon",
    )
    cpu_seconds, worker_bytes, driver_bytes = 0.0, 0, 0
    try:
        while service.is_running():
            cpu_seconds = max(cpu_seconds, service.cpu_seconds())
            worker_bytes = max(worker_bytes, *service.worker_bytes().values(), 0)
            driver_bytes = max(driver_bytes, service.peak_bytes())
            if time.monotonic() - started > _MOST_SECONDS:
                raise PeerError(f"verify did not end:\n{service.log_tail()}")
            time.sleep(_LOOK_SECONDS)
        seconds = time.monotonic() - started
    finally:
        service.stop()
    if not report.exists():
        raise PeerError(f"verify failed:\n{service.log_tail()}")
    document = json.loads(report.read_text())
    found = [each for flow in document["flows"] for each in flow["findings"]]
    if found:
        raise PeerError(f"{len(found)} findings, the first: {found[0]}")
    equal = sum(
        part["equal"] for flow in document["flows"] for part in flow["partitions"]
    )
    return Call(
        equal=equal,
        seconds=seconds,
        cpu_seconds=cpu_seconds,
        worker_bytes=worker_bytes,
        driver_bytes=driver_bytes,
    )


def _of(copying: Copying, **changes: Any) -> Proving:
    """The same records, proven."""
    same = {field.name: getattr(copying, field.name) for field in fields(copying)}
    return Proving(
        **same
        | {"peers": ("mirror",)}
        | {"name": f"verify-{copying.name}", "title": f"verify {copying.title}"}
        | changes
    )


PROVE_SMALL = _of(SMALL)
PROVE_KILOBYTE = _of(KILOBYTE)
PROVE_JSON = _of(JSON)
PROVE_FAR = _of(FAR_SOURCE)
