"""How throughput scales with executors: `python -m tests.benchmarks.scaling`.

Copies the same full topic on a Spark standalone cluster on this machine with one, two
and more executors of one core each, one slot on each. CPU is that of all processes:
master, workers, executors, their children, and the driver. With more executors than
cores it shows their cost, not their benefit.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
import json
from pathlib import Path
from statistics import median
import sys
import tempfile
import time
from typing import TYPE_CHECKING, Annotated

import psutil
from rich import box
from rich.console import Console
from rich.table import Table
import typer

from tests.benchmarks import load, payloads
from tests.benchmarks.clusters import running
from tests.benchmarks.machine import describe
from tests.benchmarks.storage import folder_in, storage_for
from tests.benchmarks.target import Target
from tests.harness.standalone import Standalone, SubmittedMirror
from tests.harness.waiting import wait_for

if TYPE_CHECKING:
    from collections.abc import Iterable

    from tests.benchmarks.clusters import BenchCluster

_RESULTS = Path("artifacts/bench/scaling")
_TABLE_WIDTH = 120
_TOPIC = "scaling"
_PARTITIONS = 8
_OVERHEAD_BYTES = 10
_START_SECONDS = 120.0
_SHORTEST_SECONDS = 1.5
_RELAY, _EXECUTORS, _CLUSTER, _DRIVER = "relay", "executors", "cluster", "driver"
_PARTS = {
    "mirror.copying.daemon": _RELAY,
    "CoarseGrainedExecutorBackend": _EXECUTORS,
    "org.apache.spark.deploy.master": _CLUSTER,
    "org.apache.spark.deploy.worker": _CLUSTER,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Result:
    record_bytes: int
    executors: int
    seconds: float
    """Of which the rates are taken."""
    records_per_second: float
    mb_per_second: float
    cpu_seconds_per_million: float
    cpu_seconds_per_gb: float
    cores: float
    """As many as mirror and Spark used, without brokers."""
    cpu_share: dict[str, float]
    """Of the relay workers, the executors' JVMs, Spark's daemons and the driver."""
    gap_ms: float
    """Between leases, in the middle."""
    memory_mb: dict[str, float] = field(default_factory=dict)
    """The largest process of each part."""


@dataclass(frozen=True, slots=True)
class _Look:
    at: float
    offsets: int
    cpu: dict[str, float]


def main(
    *,
    executors: Annotated[str, typer.Option(help="Numbers, with commas.")] = "1,2,4",
    sizes: Annotated[
        str, typer.Option(help="Bytes of a record's value, with commas.")
    ] = "100,1000",
    megabytes: Annotated[int, typer.Option(help="Of each topic.")] = 5000,
    seconds: Annotated[float, typer.Option(help="To measure, if it lasts.")] = 15,
    settle: Annotated[float, typer.Option(help="Not measured before.")] = 5,
    repeats: Annotated[int, typer.Option(min=1, help="Of everything.")] = 1,
) -> None:
    """Measure; writes the figures to artifacts/bench/scaling."""
    console = Console()
    console.width = max(console.width, _TABLE_WIDTH)
    results: list[Result] = []
    size_on_source = megabytes << 20
    with (
        tempfile.TemporaryDirectory(prefix="mirror-scaling-") as scratch,
        folder_in(
            storage_for(size_on_source), Path(scratch), source_bytes=size_on_source
        ) as data,
        running(data, Path(scratch)) as (source, target),
    ):
        machine = describe(data)
        for size in map(int, sizes.split(",")):
            records = megabytes * 1_000_000 // (size + _OVERHEAD_BYTES)
            load.create_topic(source.near, _TOPIC, partitions=_PARTITIONS)
            load.fill(
                source.near, _TOPIC, partitions=_PARTITIONS,
                pool=payloads.incompressible(size), records=records,
            )  # fmt: skip
            for run in range(repeats):
                for number in map(int, executors.split(",")):
                    name = f"S{size}x{number}x{run}"
                    result = _run(
                        (source, target), Path(scratch, name), name, size, number,
                        records=records, settle=settle, seconds=seconds,
                    )  # fmt: skip
                    if result is None:
                        console.print(f"{name}: all was copied too soon to measure it")
                        continue
                    console.print(result)
                    results.append(result)
            source.delete_topics([_TOPIC])
    console.print(_table(results))
    document = {
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
        "command": " ".join(["python -m tests.benchmarks.scaling", *sys.argv[1:]]),
        "machine": machine,
        "results": [asdict(result) for result in results],
    }
    _RESULTS.mkdir(parents=True, exist_ok=True)
    file = _RESULTS / f"{datetime.now(UTC):%Y%m%dT%H%M%SZ}.json"
    file.write_text(json.dumps(document, indent=1))
    console.print(f"written to {file}")


def _run(
    clusters: tuple[BenchCluster, BenchCluster],
    folder: Path,
    alias: str,
    size: int,
    executors: int,
    *,
    records: int,
    settle: float,
    seconds: float,
) -> Result | None:
    """None: all was copied before there was something to measure."""
    source, target = clusters
    copy = f"{alias}.{_TOPIC}"
    config = {
        "clusters": {
            alias: {"bootstrap_servers": source.near},
            "T": {"bootstrap_servers": target.near},
        },
        "flows": {f"{alias}->T": {"topics": [_TOPIC], "tasks": executors}},
    }
    witness = Target(target.near, copy, partitions=_PARTITIONS)
    gaps: list[float] = []
    with (
        Standalone(folder / "spark", workers=executors) as spark,
        SubmittedMirror(config, folder, spark) as mirror,
    ):
        wait_for(witness.committed_offsets, _START_SECONDS)
        time.sleep(settle)
        first = last = _look(witness, spark, mirror)
        while last.offsets < records and last.at - first.at < seconds:
            time.sleep(0.25)
            last = _look(witness, spark, mirror)
            gaps.append(mirror.flow()["lease_gap_ms"])
        memory = _memory(spark, mirror)
        mirror.terminate(30)
    target.delete_topics([copy])
    took = last.at - first.at
    copied = last.offsets - first.offsets
    if took < _SHORTEST_SECONDS or not copied:
        return None
    cpu = {part: last.cpu[part] - first.cpu[part] for part in last.cpu}
    used = sum(cpu.values())
    return Result(
        record_bytes=size,
        executors=executors,
        seconds=took,
        records_per_second=copied / took,
        mb_per_second=copied * size / took / 1e6,
        cpu_seconds_per_million=used / copied * 1e6,
        cpu_seconds_per_gb=used / (copied * size) * 1e9,
        cores=used / took,
        cpu_share={part: seconds / used for part, seconds in cpu.items()},
        gap_ms=median([gap for gap in gaps if gap >= 0] or [-1.0]),
        memory_mb=memory,
    )


def _look(witness: Target, spark: Standalone, mirror: SubmittedMirror) -> _Look:
    offsets = witness.committed_offsets()
    cpu = dict.fromkeys((_RELAY, _EXECUTORS, _CLUSTER, _DRIVER), 0.0)
    for process, part in _processes(spark, mirror):
        try:
            # With those of children that have ended.
            cpu[part] += sum(process.cpu_times()[:4])
        except psutil.NoSuchProcess:
            continue
    return _Look(time.monotonic(), offsets, cpu)


def _memory(spark: Standalone, mirror: SubmittedMirror) -> dict[str, float]:
    found: dict[str, float] = {}
    for process, part in _processes(spark, mirror):
        megabytes = process.memory_info().rss / 1e6
        found[part] = max(found.get(part, 0.0), megabytes)
    return found


def _processes(
    spark: Standalone, mirror: SubmittedMirror
) -> Iterable[tuple[psutil.Process, str]]:
    for pid in {*spark.pids(), *mirror.pids()}:
        try:
            process = psutil.Process(pid)
            command = " ".join(process.cmdline())
        except psutil.NoSuchProcess:
            continue
        part = next((p for word, p in _PARTS.items() if word in command), _DRIVER)
        yield process, part


def _table(results: Iterable[Result]) -> Table:
    table = Table("value", "executors", box=box.MARKDOWN)
    for heading in (
        "records/s", "MB/s", "CPU s/M records", "CPU s/GB", "cores used",
        "of it relay", "gap ms", "worker MB", "executor MB",
    ):  # fmt: skip
        table.add_column(heading, justify="right")
    for one in results:
        table.add_row(
            f"{one.record_bytes} B", str(one.executors),
            f"{one.records_per_second:,.0f}", f"{one.mb_per_second:,.0f}",
            f"{one.cpu_seconds_per_million:.2f}", f"{one.cpu_seconds_per_gb:.2f}",
            f"{one.cores:.2f}", f"{one.cpu_share[_RELAY]:.0%}", f"{one.gap_ms:.0f}",
            f"{one.memory_mb.get(_RELAY, 0):.0f}",
            f"{one.memory_mb.get(_EXECUTORS, 0):.0f}",
        )  # fmt: skip
    return table


if __name__ == "__main__":
    typer.run(main)
