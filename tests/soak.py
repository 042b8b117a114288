"""A flow under faults for hours: what the service uses must not grow.

`python -m tests.soak HOURS`, or `make soak HOURS=2`. Between two clusters of three
brokers it copies a topic with a load, sizes, codecs and rates mixed, and topics that
come and go, while workers and brokers are killed in turn. Ordinary consumers of source
and copy hold every record against the one before, and its time against the clock. After
each round it notes what the service's processes use; at the end lines are fitted to
that. One that rises fails, and so does a pause beyond its goal.
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

from confluent_kafka import Consumer, Message
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
_RATES = ((5, 0.1), (100, 0.1), (5000, 2.0))
"""Records and the seconds between them: a trickle, a stream, bursts; in turn."""
_RATE_SECONDS = 7.0
_STRIKES = ("nothing", "workers", "a broker of the source", "a broker of the target")
_MAY_WAIT = {"workers": 3.0}
"""For how many seconds records may be late, in the median, after a strike."""
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
    """What a consumer finds in a topic; records have consecutive numbers."""

    topic: str
    next: Counter[int] = field(default_factory=Counter)
    wrong: str = ""
    latest: float = 0.0
    """For how many seconds a record was on its way, the longest since it was reset."""

    def has(self, count: int) -> bool:
        return self.next.total() >= count

    def follow(self, bootstrap: str, stop: threading.Event) -> None:
        with contextlib.closing(
            _consumer(bootstrap, f"{self.topic}-readers")
        ) as consumer:
            consumer.subscribe([self.topic])
            while not stop.is_set():
                messages = consumer.consume(1000, 0.05)
                for message in messages:
                    if message.error() is None:
                        self._take(message)
                if messages:
                    consumer.commit(asynchronous=True)

    def _take(self, message: Message) -> None:
        partition = message.partition() or 0
        expected = b"%d:%d" % (partition, self.next[partition])
        if message.key() != expected and not self.wrong:
            self.wrong = f"{message.key()!r} instead of {expected!r}"
        self.next[partition] += 1
        self.latest = max(self.latest, time.time() - message.timestamp()[1] / 1000)


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
        source, copy = Followed(TOPIC), Followed(f"A.{TOPIC}")
        stack.enter_context(beside(partial(source.follow, a.bootstrap)))
        stack.enter_context(beside(partial(copy.follow, b.bootstrap)))
        with beside(partial(_send, load)):
            soak = Soak(mirror, a, b, root, source, copy, load)
            soak.run(hours * 3600)
        wait_for(partial(copy.has, load.total))
        print(f"{load.total} records, {copy.wrong or 'each once and in order'}")
    failed = [bool(copy.wrong), _grown(soak.used), _waited(soak.late)]
    return int(any(failed))


def _send(load: NumberedLoad, stop: threading.Event) -> None:
    for count, pause in itertools.cycle(_RATES):
        end = time.monotonic() + _RATE_SECONDS
        while time.monotonic() < end:
            if stop.wait(pause):
                return
            load.send(count)


@dataclass
class Soak:
    """Rounds: strike, let the flow recover, note what is used and how late it was."""

    mirror: RunningMirror
    a: PlaygroundCluster
    b: PlaygroundCluster
    root: Path
    source: Followed
    copy: Followed
    load: NumberedLoad
    used: list[dict[str, float]] = field(default_factory=list)
    late: dict[str, list[tuple[float, float]]] = field(default_factory=dict)
    """By strike, for each round: seconds on the source and in the copy."""

    def run(self, seconds: float) -> None:
        end = time.monotonic() + seconds
        for number in itertools.count():
            began = time.monotonic()
            if began > end and len(self.used) > len(_STRIKES):
                return
            self.source.latest = self.copy.latest = 0.0
            strike = _STRIKES[number % len(_STRIKES)]
            self._strike(strike, number // len(_STRIKES))
            self._churn(number)
            wait_for(partial(self.copy.has, self.load.total), _LONGEST_SILENCE)
            time.sleep(max(0.0, began + _ROUND_SECONDS - time.monotonic()))
            late = self.source.latest, self.copy.latest
            self.late.setdefault(strike, []).append(late)
            self.used.append(_used(self.mirror, self.root))
            print(f"round {number}: {self.used[-1]}")
            print(f"late by {late[0]:.3f} and {late[1]:.3f} s: {strike}", flush=True)

    def _strike(self, strike: str, number: int) -> None:
        if strike == "workers":
            self.mirror.kill_workers()
        elif strike != "nothing":
            cluster = self.a if strike.endswith("source") else self.b
            node = cluster.nodes[number % len(cluster.nodes)]
            cluster.kill(node)
            cluster.start(node)

    def _churn(self, number: int) -> None:
        names = {f"churn-{number}-{n}" for n in range(_TOPICS_A_ROUND)}
        for name in names:
            create_topic(self.a.bootstrap, name, 1)
        self.mirror.wait_until(partial(_copies, names))
        for name in names:
            delete_topic(self.a.bootstrap, name)
        self.mirror.wait_until(partial(_has_left, names))
        for name in names:
            delete_topic(self.b.bootstrap, f"A.{name}")


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


def _waited(late: dict[str, list[tuple[float, float]]]) -> list[str]:
    """The strikes after which records were late for longer than their goal."""
    waited = []
    for strike, rounds in late.items():
        source, copy = ([*values] for values in zip(*rounds, strict=True))
        median = statistics.median(copy)
        over = median > _MAY_WAIT.get(strike, float("inf"))
        print(
            f"{strike}: {len(rounds)} times, records late by {median:.2f} s in the"
            f" median, {max(copy):.2f} at worst; on the source"
            f" {statistics.median(source):.2f} and {max(source):.2f}"
            f"{' TOO LATE' if over else ''}"
        )
        waited += [strike] * over
    return waited


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
