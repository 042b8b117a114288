"""What a drill costs the copy: `python -m tests.benchmarks.drilling`.

A pair with a steady trickle, and groups that each have read a part of it. Stretches
without a drill, stretches in which the service drills again and again, and stretches
beside `mirror drill`, which runs again and again in a process of its own, take turns:
how long records take on their way, how long each drill takes, and what it takes of the
CPU in the brokers, the driver and its own process.
"""

from __future__ import annotations

from contextlib import closing, contextmanager
from datetime import UTC, datetime
import json
import os
from pathlib import Path
import resource
import signal
import subprocess
import sys
import tempfile
import threading
import time
from typing import TYPE_CHECKING, Annotated, Any

import numpy as np
import psutil
from rich.console import Console
from rich.table import Table
import typer

from mirror.playground.brokers import playground
from tests.benchmarks import latency
from tests.benchmarks.clusters import JVM
from tests.benchmarks.load import Pacer
from tests.benchmarks.machine import describe
from tests.benchmarks.processes import PeerError
from tests.benchmarks.switching import commit_groups
from tests.benchmarks.target import Target
from tests.harness.admin import create_topic
from tests.harness.service import RunningMirror
from tests.harness.switching import pair_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from mirror.playground.cluster import PlaygroundCluster

_RESULTS = Path("artifacts/bench/drilling")
_TOPIC = "drilling"
_ONE, _OTHER = "DA", "DB"
_FLOW = f"{_ONE}->{_OTHER}"
_PARTITIONS = 16
_NONE, _SERVICE, _COMMAND = "no drills", "the service drills", "the command drills"
_STRETCHES = (_NONE, _SERVICE, _COMMAND)
_PARTS = ("brokers", "driver", "rest of the service", "commands")
_MOST_SECONDS = 60.0
"""No drill takes longer."""


def main(
    *,
    groups: Annotated[int, typer.Option(help="That the drill looks at.")] = 100,
    per_second: Annotated[int, typer.Option(help="Records of the load.")] = 1000,
    seconds: Annotated[float, typer.Option(help="Of each stretch.")] = 30.0,
    warm_up_seconds: Annotated[float, typer.Option(help="Copied, not counted.")] = 30.0,
    repeats: Annotated[int, typer.Option(help="Pairs of stretches.")] = 3,
) -> None:
    """Measure; writes the figures to artifacts/bench/drilling."""
    with tempfile.TemporaryDirectory(prefix="mirror-drilling-") as scratch:
        results = {
            "machine": describe(Path(scratch)),
            "groups": groups,
            **_measured(
                Path(scratch),
                groups=groups,
                per_second=per_second,
                seconds=seconds,
                warm_up_seconds=warm_up_seconds,
                repeats=repeats,
            ),
        }
    _show(results)


def _measured(
    folder: Path,
    *,
    groups: int,
    per_second: int,
    seconds: float,
    warm_up_seconds: float,
    repeats: int,
) -> dict[str, Any]:
    with playground(
        (_ONE, _OTHER), root=folder / "clusters", given=False, jvm=JVM
    ) as made:
        one, other = ((alias, each.bootstrap) for alias, each in made.items())
        create_topic(one[1], _TOPIC, _PARTITIONS)
        document = pair_of(one, other, _TOPIC)
        document["defaults"]["groups"] = ["app-.*"]
        for pair in document["recovery"].values():
            pair["drill_every_seconds"] = 0
        target = Target(other[1], f"{_ONE}.{_TOPIC}", partitions=_PARTITIONS)
        places = [(_TOPIC, number) for number in range(_PARTITIONS)]
        with RunningMirror(document, folder) as mirror:
            mirror.wait_running(_FLOW)
            with (
                Pacer(one[1], places, per_second=per_second),
                closing(target.consumer()) as consumer,
            ):
                latency.discard(consumer, until=time.time() + warm_up_seconds)
                moved = time.time()
                commit_groups(one[1], _TOPIC, groups)
                mirror.wait_until(
                    lambda _: (
                        mirror.flow(_FLOW)["checkpoint_at"] > moved
                        and mirror.flow(_FLOW)["group_count"] == groups
                    ),
                    timeout=120,
                )
                delays: dict[str, list[float]] = {name: [] for name in _STRETCHES}
                drills: list[dict[str, Any]] = []
                used = _Used(made.values(), mirror)
                for _ in range(repeats):
                    with used.in_stretch(_NONE, lambda: 0):
                        delays[_NONE] += _stretch(consumer, seconds)
                    with (
                        used.in_stretch(_SERVICE, lambda: _drilled(mirror)),
                        _service_drills(mirror),
                    ):
                        delays[_SERVICE] += _stretch(consumer, seconds)
                    with (
                        used.in_stretch(_COMMAND, lambda: len(drills)),
                        _drilling(folder, drills),
                    ):
                        delays[_COMMAND] += _stretch(consumer, seconds)
    if short := [name for name, each in delays.items() if not each]:
        raise PeerError(f"no record arrived: {short[0]}")
    if any(each["groups"] != groups for each in drills):
        raise PeerError(f"a drill did not look at all groups: {drills}")
    return {
        "p50_ms": {k: float(np.percentile(v, 50)) * 1000 for k, v in delays.items()},
        "p99_ms": {k: float(np.percentile(v, 99)) * 1000 for k, v in delays.items()},
        "records": {name: len(each) for name, each in delays.items()},
        "drills": drills,
        "cpu": used.seconds,
        "cpu_of_a_drill": {name: used.of_a_drill(name) for name in _STRETCHES[1:]},
    }


class _Used:
    """CPU seconds by stretch and part, and how long and how many drills they took."""

    def __init__(
        self, clusters: Iterable[PlaygroundCluster], mirror: RunningMirror
    ) -> None:
        self._brokers = [
            psutil.Process(pid) for each in clusters for pid in each.pids().values()
        ]
        self._driver = psutil.Process(mirror.pids()[0])
        self.seconds: dict[str, dict[str, float]] = {
            name: dict.fromkeys((*_PARTS, "wall", "drills"), 0.0) for name in _STRETCHES
        }

    @contextmanager
    def in_stretch(self, name: str, drills: Callable[[], int]) -> Iterator[None]:
        """Add up what the block takes."""

        def now() -> dict[str, float]:
            return {**self._now(), "wall": time.monotonic(), "drills": drills()}

        before = now()
        yield
        for part, after in now().items():
            self.seconds[name][part] += after - before[part]

    def of_a_drill(self, name: str) -> dict[str, float]:
        """What each drill took, beyond what the same time takes without drills."""
        found, usual = self.seconds[name], self.seconds[_NONE]
        share = found["wall"] / usual["wall"]
        return {
            part: (found[part] - share * usual[part]) / found["drills"]
            for part in _PARTS
        }

    def _now(self) -> dict[str, float]:
        commands = resource.getrusage(resource.RUSAGE_CHILDREN)  # those that have ended
        return dict(
            zip(
                _PARTS,
                (
                    sum(sum(each.cpu_times()[:2]) for each in self._brokers),
                    sum(self._driver.cpu_times()[:2]),
                    sum(
                        sum(each.cpu_times()[:4])
                        for each in self._driver.children(recursive=True)
                    ),
                    commands.ru_utime + commands.ru_stime,
                ),
                strict=True,
            )
        )


def _stretch(consumer: Any, seconds: float) -> list[float]:
    # What came while nothing was measured waits in the client.
    now = time.time()
    while (message := consumer.poll(1.0)) is None or latency.sent_at(message) < now:
        if time.time() > now + seconds:
            return []
    return latency.delays_of(
        consumer, partitions=_PARTITIONS, since=time.time(), seconds=seconds
    )


@contextmanager
def _service_drills(mirror: RunningMirror) -> Iterator[None]:
    """The service drills, one drill after the other, while the block runs; the one
    that has begun at its end is waited for.

    Raises:
        PeerError: it did not.
    """
    before = _drilled(mirror)
    _drill_every(mirror, 1)
    yield
    _drill_every(mirror, 0)
    begun, end = _drilled(mirror) + 1, time.monotonic() + _MOST_SECONDS
    while _drilled(mirror) < begun and time.monotonic() < end:
        time.sleep(0.1)
    if _drilled(mirror) == before:
        raise PeerError(f"the service did not drill:\n{mirror.log_tail()}")


def _drilled(mirror: RunningMirror) -> int:
    """How many drills the service has made."""
    return mirror.log.read_text().count('"event": "drill"')


def _drill_every(mirror: RunningMirror, seconds: int) -> None:
    file = mirror.log.with_name("mirror.yaml")
    document = json.loads(file.read_text())
    for pair in document["recovery"].values():
        pair["drill_every_seconds"] = seconds
    reloads = mirror.status()["config"]["reloads"]
    file.write_text(json.dumps(document))
    os.kill(mirror.pids()[0], signal.SIGHUP)
    mirror.wait_until(lambda status: status["config"]["reloads"] > reloads)


@contextmanager
def _drilling(folder: Path, drills: list[dict[str, Any]]) -> Iterator[None]:
    """Drill again and again; a drill that has begun is waited for at the end.

    Raises:
        PeerError: a drill came to no verdict.
    """
    end = threading.Event()
    failures: list[str] = []

    def run() -> None:
        while not end.is_set() and not failures:
            began = time.monotonic()
            file = str(folder / "mirror.yaml")
            words = ["drill", f"{_ONE}/{_OTHER}", "-c", file, "-o", "json"]
            done = subprocess.run(
                [sys.executable, "-m", "mirror", *words],
                check=False,
                capture_output=True,
                text=True,
            )
            if not done.stdout:  # 1 is also the exit status of DEGRADED
                failures.append(done.stderr)
                return
            found = json.loads(done.stdout)
            drills.append(
                {
                    "seconds": time.monotonic() - began,
                    "verdict": found["verdict"],
                    "groups": found["groups"],
                }
            )

    thread = threading.Thread(target=run)
    thread.start()
    try:
        yield
    finally:
        end.set()
        thread.join()
    if failures:
        raise PeerError(f"a drill failed: {failures[0]}")


def _show(results: dict[str, Any]) -> None:
    console = Console()
    table = Table("WHAT", "P50 MS", "P99 MS", "P99 X", "RECORDS")
    p99 = results["p99_ms"]
    for name in _STRETCHES:
        figures = (f"{results[key][name]:.1f}" for key in ("p50_ms", "p99_ms"))
        ratio = f"{p99[name] / p99[_NONE]:.2f}"
        table.add_row(name, *figures, ratio, f"{results['records'][name]:,}")
    console.print(table)
    taken = [each["seconds"] for each in results["drills"]]
    console.print(
        f"{len(taken)} drills of {results['groups']} groups, median "
        f"{np.median(taken):.1f} s, worst {max(taken):.1f} s"
    )
    for name, used in results["cpu"].items():
        cores = (f"{part} {used[part] / used['wall']:.3f}" for part in _PARTS)
        console.print(f"cores, {name}: {', '.join(cores)}")
    for name, of_a_drill in results["cpu_of_a_drill"].items():
        figures = (f"{part} {seconds:.2f}" for part, seconds in of_a_drill.items())
        console.print(f"CPU-s of a drill where {name}: {', '.join(figures)}")
    _RESULTS.mkdir(parents=True, exist_ok=True)
    file = _RESULTS / f"{datetime.now(UTC):%Y-%m-%dT%H%M%SZ}.json"
    file.write_text(json.dumps(results, indent=1, default=str))
    console.print(f"all runs: {file}")


if __name__ == "__main__":
    typer.run(main)
