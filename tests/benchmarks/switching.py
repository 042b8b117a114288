"""How long switches and failovers take: `python -m tests.benchmarks.switching`.

Switches: a pair with ACLs, 16 partitions, 20 groups, and a producer that writes all the
time and goes on at the other cluster when it is refused. Its own clock says how long it
was blocked. Failovers: 1,000 groups of 100 partitions, and cluster A is killed.
`--hook-seconds` gives the pair a hook that stops producers and takes so long.
"""

from __future__ import annotations

import compileall
from contextlib import closing
from datetime import UTC, datetime
import json
from pathlib import Path
import resource
from statistics import median
import sys
import tempfile
import threading
import time
from typing import TYPE_CHECKING, Annotated, Any, Self

from confluent_kafka import KafkaException, Producer
from rich.console import Console
from rich.table import Table
import typer

import mirror
from mirror.clusters.admin import group_offsets
from mirror.clusters.admin.group_offsets import CommittedOffset
from mirror.clusters.cluster import Cluster
from mirror.config.cluster_settings import ClusterConfig
from mirror.playground.brokers import playground
from tests.benchmarks.clusters import JVM
from tests.benchmarks.machine import describe
from tests.harness.admin import create_topic, end_offsets
from tests.harness.metadata import allow
from tests.harness.producers import add_users, scram
from tests.harness.service import RunningMirror
from tests.harness.switching import Switch, pair_of, secured_pair_of
from tests.harness.waiting import wait_for

if TYPE_CHECKING:
    from confluent_kafka import KafkaError, Message

    from mirror.playground.cluster import PlaygroundCluster

_RESULTS = Path("artifacts/bench/switching")
_TOPIC = "switching"
_ONE, _OTHER = "FA", "FB"
_VALUE = bytes(10_000)
_TICK_SECONDS = 0.05
_WRITING_SECONDS = 10.0
"""Between two switches."""
_QUEUE_KB = 64 * 1024


class Load:
    """A producer at a steady pace that goes on at the other cluster when it is refused;
    a context manager.
    """

    def __init__(
        self, clusters: dict[str, PlaygroundCluster], *, mb_per_second: float
    ) -> None:
        self.blocks: list[float] = []
        """From the last record that one cluster took to the first of the other."""
        self._settings = [scram(each, "alice", "alice") for each in clusters.values()]
        self._records_per_tick = int(mb_per_second * 1e6 * _TICK_SECONDS / len(_VALUE))
        self._stop = threading.Event()
        self._refused = threading.Event()
        self._taken_at = 0.0
        self._left_at = 0.0
        self._thread = threading.Thread(target=self._run)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join()

    def _run(self) -> None:
        at = 0
        while not self._stop.is_set():
            self._refused.clear()
            self._write(self._settings[at])
            at = 1 - at

    def _write(self, settings: dict[str, Any]) -> None:
        """Until it is refused."""
        client = Producer(
            {
                **settings,
                "linger.ms": 5,
                "queue.buffering.max.kbytes": _QUEUE_KB,
                "message.timeout.ms": 10_000,
                "log_level": 3,
            }
        )
        due = time.monotonic()
        while not (self._stop.is_set() or self._refused.is_set()):
            for _ in range(self._records_per_tick):
                try:
                    client.produce(_TOPIC, value=_VALUE, on_delivery=self._delivered)
                except BufferError:
                    break  # slower than that, then
                except KafkaException:  # it remembers that it was refused
                    self._refused.set()
                    break
            due += _TICK_SECONDS
            client.poll(max(0.0, due - time.monotonic()))
        if self._refused.is_set():
            self._left_at = self._taken_at
        client.flush(10)

    def _delivered(self, error: KafkaError | None, _: Message) -> None:
        if error is not None:
            self._refused.set()
            return
        now = time.monotonic()
        if self._left_at:
            self.blocks.append(now - self._left_at)
            self._left_at = 0.0
        self._taken_at = now


def main(
    *,
    switches: Annotated[int, typer.Option(help="There and back, in turn.")] = 10,
    mb_per_second: Annotated[float, typer.Option(help="Of the producer.")] = 20.0,
    groups: Annotated[int, typer.Option(help="Of the failover.")] = 1000,
    partitions: Annotated[int, typer.Option(help="Of the failover.")] = 100,
    failovers: Annotated[int, typer.Option(help="Each with new clusters.")] = 1,
    hook_seconds: Annotated[
        float, typer.Option(help="Of stop_producers; 0: none.")
    ] = 0,
) -> None:
    """Measure; writes the figures to artifacts/bench/switching."""
    console = Console()
    # As pip does: where Python writes no bytecode, each command would compile it again.
    compileall.compile_dir(Path(mirror.__file__).parent, quiet=1)
    results: dict[str, Any] = {"switches": [], "blocks": [], "failovers": []}
    results["hook_seconds"] = hook_seconds
    with tempfile.TemporaryDirectory(prefix="mirror-switching-") as scratch:
        results["machine"] = describe(Path(scratch))
        if switches:
            results |= _switches(
                Path(scratch, "switch"), switches, mb_per_second, hook_seconds
            )
        for number in range(failovers):
            folder = Path(scratch, f"failover-{number}")
            results["failovers"].append(
                _failover(folder, groups, partitions, hook_seconds)
            )
    table = Table("WHAT", "RUNS", "MEDIAN S", "WORST S")
    rows = {"blocks": results["blocks"]}
    for name in ("switches", "failovers"):
        each = results[name]
        rows[f"{name}: the command"] = [run["seconds"] for run in each]
        rows[f"{name}: its steps"] = [sum(run["steps"].values()) for run in each]
        rows[f"{name}: its CPU"] = [run["cpu"] for run in each]
    for name, seconds in rows.items():
        if seconds:
            shown = (f"{median(seconds):.1f}", f"{max(seconds):.1f}")
            table.add_row(name, str(len(seconds)), *shown)
    console.print(table)
    _RESULTS.mkdir(parents=True, exist_ok=True)
    file = _RESULTS / f"{datetime.now(UTC):%Y-%m-%dT%H%M%SZ}.json"
    file.write_text(json.dumps(results, indent=1, default=str))
    console.print(f"all runs: {file}")


def _with_hook(document: dict[str, Any], seconds: float) -> None:
    """The pair's producers are stopped by a command that takes so long."""
    code = f"import time; time.sleep({seconds})"
    (pair,) = document["recovery"].values()
    pair["hooks"] = {"stop_producers": {"command": [sys.executable, "-c", code]}}


def _switches(
    folder: Path, times: int, mb_per_second: float, hook_seconds: float
) -> dict[str, Any]:
    folder.mkdir()
    taken = []
    with playground(
        (_ONE, _OTHER),
        root=folder / "clusters",
        given=False,
        secured=True,
        jvm=JVM,
    ) as made:
        one, other = made.items()
        document = secured_pair_of(one, other, _TOPIC)
        document["defaults"]["groups"] = ["app-.*"]
        if hook_seconds:
            _with_hook(document, hook_seconds)
        for cluster in made.values():
            create_topic(cluster.admin_bootstrap, _TOPIC, 16)
            add_users(cluster, ["alice"])
        allow(made[_ONE].admin_bootstrap, "alice", "WRITE", _TOPIC)
        with RunningMirror(document, folder) as mirror:
            mirror.wait_running(f"{_ONE}->{_OTHER}")
            active, passive = _ONE, _OTHER
            with Load(made, mb_per_second=mb_per_second) as load:
                for _ in range(times):
                    time.sleep(_WRITING_SECONDS)
                    commit_groups(made[active].admin_bootstrap, _TOPIC, 20)
                    taken.append(_timed(folder, "switch", active, passive))
                    active, passive = passive, active
                    mirror.wait_running(f"{active}->{passive}")
                    wait_for(lambda: len(load.blocks) >= len(taken))
    return {"switches": taken, "blocks": load.blocks}


def _failover(
    folder: Path, groups: int, partitions: int, hook_seconds: float
) -> dict[str, Any]:
    folder.mkdir()
    with playground(
        (_ONE, _OTHER), root=folder / "clusters", given=False, jvm=JVM
    ) as made:
        ends = [(alias, cluster.bootstrap) for alias, cluster in made.items()]
        for _, bootstrap in ends:
            create_topic(bootstrap, _TOPIC, partitions)
        document = pair_of(ends[0], ends[1], _TOPIC)
        document["defaults"]["groups"] = ["app-.*"]
        if hook_seconds:
            _with_hook(document, hook_seconds)
        client = Producer({"bootstrap.servers": ends[0][1], "linger.ms": 5})
        for number in range(100 * partitions):
            client.produce(_TOPIC, value=b"v", partition=number % partitions)
        client.flush(60)
        with RunningMirror(document, folder) as mirror:
            name = f"{_ONE}->{_OTHER}"
            mirror.wait_running(name)
            commit_groups(ends[0][1], _TOPIC, groups)
            moved = time.time()
            mirror.wait_until(
                lambda _: (
                    mirror.flow(name)["checkpoint_at"] > moved
                    and mirror.flow(name)["group_count"] == groups
                ),
                timeout=120,
            )
            mirror.wait_copied(ends[0][1], _TOPIC, flow=name)
            made[_ONE].kill()
            return _timed(folder, "failover", _ONE, _OTHER)


def _timed(folder: Path, kind: str, source: str, target: str) -> dict[str, Any]:
    """What an operator waits for, with the start and the end of the process."""
    began, before = time.monotonic(), _cpu_seconds()
    out = Switch(folder, kind, f"{source}/{target}", "--yes", "-o", "json").succeeds()
    seconds = time.monotonic() - began
    steps = [json.loads(line) for line in out.splitlines()]
    return {
        "seconds": seconds,
        "cpu": _cpu_seconds() - before,
        "steps": {e["step"]: e["seconds"] for e in steps if e["step"] != "checks"},
    }


def _cpu_seconds() -> float:
    """Of child processes that have ended: also a busy machine can tell these."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def commit_groups(bootstrap: str, topic: str, groups: int) -> None:
    """Each group stands somewhere in each partition."""
    ends = end_offsets(bootstrap, topic)
    offsets = {
        f"app-{number}": {
            (topic, partition): CommittedOffset(end * (number % 10) // 10)
            for partition, end in ends.items()
        }
        for number in range(groups)
    }
    config = ClusterConfig(alias="bench", bootstrap_servers=(bootstrap,))
    with closing(Cluster(config).connect()) as cluster:
        refused = group_offsets.commit(cluster, offsets)
    assert not refused, refused


if __name__ == "__main__":
    typer.run(main)
