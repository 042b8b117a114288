"""A flow under faults for hours: what the service uses must not grow.

`python -m tests.soak HOURS`, or `make soak HOURS=2`. Between two clusters of three
brokers it copies a topic with a load, sizes and codecs mixed, and topics that come and
go, while workers and brokers are killed in turn. A group commits on the source. An
ordinary consumer of the copy holds every record against the one before. After each
round it notes what the service's processes use; at the end lines are fitted to that,
and one that rises fails.
"""

from __future__ import annotations

import argparse
from collections import Counter
import contextlib
from dataclasses import dataclass, field
from functools import partial
import itertools
from pathlib import Path
import statistics
import sys
import tempfile
import time
from typing import TYPE_CHECKING, Any

from confluent_kafka import Consumer
import psutil

from mirror.offsets import progress
from mirror.playground.brokers import playground
from tests.harness.admin import alter_topic, create_topic, delete_topic
from tests.harness.load import NumberedLoad
from tests.harness.service import RunningMirror, config_for
from tests.harness.waiting import beside, wait_for

if TYPE_CHECKING:
    import threading

    from mirror.playground.cluster import PlaygroundCluster

TOPIC, PARTITIONS = "load", 4
_ROUND_SECONDS = 20.0
_TOPICS_A_ROUND = 10
_LONGEST_SILENCE = 120.0
_MAY_GROW = {
    "memory of the service, MB": 60.0,
    "memory of workers, MB": 60.0,
    "open files": 20.0,
    "threads": 10.0,
    "connections": 20.0,
    "progress topic, KB": 16_384.0,
    "latency, ms": 200.0,
}
"""What each series may gain from the fitted line's beginning to its end: what one round
differs from the next. The progress topic is cleaned segment by segment, of 8 MB."""


@dataclass
class Followed:
    """What a consumer finds in the copy; records have consecutive numbers."""

    next: Counter[int] = field(default_factory=Counter)
    wrong: str = ""

    def has(self, count: int) -> bool:
        return self.next.total() >= count

    def follow(self, bootstrap: str, stop: threading.Event) -> None:
        with contextlib.closing(_consumer(bootstrap, "witness")) as consumer:
            consumer.subscribe([f"A.{TOPIC}"])
            while not stop.is_set():
                for message in consumer.consume(1000, 1.0):
                    if message.error() is not None:
                        continue
                    partition = message.partition() or 0
                    expected = b"%d:%d" % (partition, self.next[partition])
                    if message.key() != expected and not self.wrong:
                        self.wrong = f"{message.key()!r} instead of {expected!r}"
                    self.next[partition] += 1


def main() -> int:
    """0 if nothing is lost, doubled or out of order, and nothing grows."""
    parser = argparse.ArgumentParser(prog="python -m tests.soak")
    parser.add_argument("hours", type=float)
    hours = parser.parse_args().hours
    with contextlib.ExitStack() as stack:
        root = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        clusters = playground(("a", "b"), root=root, given=False, nodes=3)
        a, b = stack.enter_context(clusters).values()
        create_topic(a.bootstrap, TOPIC, PARTITIONS)
        # Copies inherit it, and so does the offset map.
        alter_topic(a.bootstrap, TOPIC, retention_ms="600000", segment_ms="60000")
        config = config_for(
            a.bootstrap, b.bootstrap, topics=[TOPIC, "churn-.*"],
            refresh_topics_seconds=2,
        )  # fmt: skip
        mirror = stack.enter_context(RunningMirror(config, root / "mirror"))
        load = NumberedLoad(a.bootstrap, TOPIC, PARTITIONS, seed=1)
        followed = Followed()
        for work in (
            lambda stop: followed.follow(b.bootstrap, stop),
            lambda stop: _commit(a.bootstrap, stop),
        ):
            stack.enter_context(beside(work))
        with load.streaming(chunk=100, pause=1.0):
            series = _rounds(hours * 3600, mirror, (a, b), root, followed, load)
        wait_for(partial(followed.has, load.total))
        print(f"{load.total} records, {followed.wrong or 'each once and in order'}")
    return 1 if _grown(series) or followed.wrong else 0


def _rounds(
    seconds: float,
    mirror: RunningMirror,
    clusters: tuple[PlaygroundCluster, PlaygroundCluster],
    root: Path,
    followed: Followed,
    load: NumberedLoad,
) -> list[dict[str, float]]:
    """Strike, let it recover, and note what is used, until the time is over."""
    series: list[dict[str, float]] = []
    a, b = clusters
    end = time.monotonic() + seconds
    for number in itertools.count():
        began = time.monotonic()
        if began > end and len(series) > 2:
            return series
        _strike(number, mirror, clusters)
        names = {f"churn-{number}-{n}" for n in range(_TOPICS_A_ROUND)}
        for name in names:
            create_topic(a.bootstrap, name, 1)
        mirror.wait_until(partial(_copies, names))
        for name in names:
            delete_topic(a.bootstrap, name)
        mirror.wait_until(partial(_has_left, names))
        for name in names:
            delete_topic(b.bootstrap, f"A.{name}")
        wait_for(partial(followed.has, load.total), _LONGEST_SILENCE)
        time.sleep(max(0.0, began + _ROUND_SECONDS - time.monotonic()))
        series.append(_used(mirror, root))
        print(f"round {number}: {series[-1]}", flush=True)
    raise AssertionError


def _strike(
    number: int,
    mirror: RunningMirror,
    clusters: tuple[PlaygroundCluster, PlaygroundCluster],
) -> None:
    if number % 3 == 0:
        mirror.kill_workers()
        return
    cluster = clusters[number % 3 - 1]
    node = cluster.nodes[number // 3 % len(cluster.nodes)]
    cluster.kill(node)
    cluster.start(node)


def _copies(names: set[str], status: dict[str, Any]) -> bool:
    return names <= _copied(status)


def _has_left(names: set[str], status: dict[str, Any]) -> bool:
    return not names & _copied(status)


def _copied(status: dict[str, Any]) -> set[str]:
    return {p["topic"] for flow in status["flows"] for p in flow["partitions"]}


def _used(mirror: RunningMirror, root: Path) -> dict[str, float]:
    """What the service's processes hold now."""
    workers = {*mirror.worker_pids()}
    memory, files, threads, connections = Counter[bool](), 0, 0, 0
    for pid in mirror.pids():
        with contextlib.suppress(psutil.NoSuchProcess):
            process = psutil.Process(pid)
            memory[pid in workers] += process.memory_full_info().uss
            files += process.num_fds()
            threads += process.num_threads()
            connections += len(process.net_connections("tcp"))
    kept = (root / "b" / "node-1").rglob(f"{progress.topic_name('A')}-0/*.log")
    late = [
        p["latency_p50_ms"]
        for flow in mirror.status()["flows"]
        for p in flow["partitions"]
        if p["topic"] == TOPIC and p["latency_p50_ms"] >= 0
    ]
    values = (
        memory[False] / 1e6, memory[True] / 1e6, files, threads, connections,
        sum(file.stat().st_size for file in kept) / 1e3,
        statistics.median(late) if late else 0.0,
    )  # fmt: skip
    return {name: round(v, 1) for name, v in zip(_MAY_GROW, values, strict=True)}


def _grown(series: list[dict[str, float]]) -> list[str]:
    """The series that rise, of the rounds after the first third."""
    later = series[len(series) // 3 :]
    grown = []
    for name, allowed in _MAY_GROW.items():
        values = [each[name] for each in later]
        slope, begin = statistics.linear_regression(range(len(values)), values)
        gain = slope * (len(values) - 1)
        rises = gain > allowed
        print(f"{name}: {begin:.0f}, {gain:+.1f}{' RISES' if rises else ''}")
        grown += [name] * rises
    return grown


def _commit(bootstrap: str, stop: threading.Event) -> None:
    """A group that reads the source and commits."""
    with contextlib.closing(_consumer(bootstrap, "readers")) as consumer:
        consumer.subscribe([TOPIC])
        while not stop.is_set():
            if consumer.consume(1000, 1.0):
                consumer.commit(asynchronous=True)


def _consumer(bootstrap: str, group: str) -> Consumer:
    return Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": group,
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
            "log_level": 0,
        }
    )


if __name__ == "__main__":
    sys.exit(main())
