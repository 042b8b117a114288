"""Runs scenarios, peer after peer, on the same two clusters.

Main function: `run`, which yields each `Run` as it ends. The peers take turns
(A B A B), so that a machine that grows slower or faster does so for all of them.
Brokers get ordinary heaps and the full compiler: what is measured is the peer.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
import itertools
from typing import TYPE_CHECKING

from mirror.playground.brokers import playground
from tests.benchmarks import latency, load, payloads, throughput
from tests.benchmarks.peers.known import PEERS
from tests.benchmarks.peers.peer import Task
from tests.benchmarks.processes import PeerError
from tests.benchmarks.quiet import Neighbours
from tests.benchmarks.scenarios import PARTITIONS, Latency, Scenario, Throughput
from tests.benchmarks.target import Target

if TYPE_CHECKING:
    from collections.abc import Generator, Iterator, Sequence
    from pathlib import Path

    from tests.benchmarks.latency import LatencyResult
    from tests.benchmarks.throughput import ThroughputResult

_BROKER_JVM = (
    *("-Xms1g", "-Xmx1g", "-XX:TieredStopAtLevel=4"),
    *("-XX:-UseSerialGC", "-XX:+UseG1GC"),
)
_WARM_UP_RECORDS = 500_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """One peer in one scenario, once."""

    scenario: str
    peer: str
    repeat: int
    result: ThroughputResult | LatencyResult | None = None
    other_cores: float = 0.0
    """CPU that strangers used meanwhile; see `quiet`."""
    error: str | None = None
    """Why there is no result, or why it does not count."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Bench:
    source: str
    target: str
    folder: Path
    broker_pids: tuple[int, ...]
    numbers: Iterator[int]

    def task(self, topic: str, compression: str) -> Task:
        # A new alias makes new names of topics, groups and transactions.
        alias = f"A{next(self.numbers)}"
        folder = self.folder / alias
        folder.mkdir()
        return Task(
            source=self.source,
            target=self.target,
            alias=alias,
            topic=topic,
            compression=compression,
            folder=folder,
        )


def run(
    scenarios: Sequence[Scenario], peers: Sequence[str], *, repeats: int, folder: Path
) -> Generator[Run, None, None]:
    for peer in peers:
        PEERS[peer].prepare()
    with playground(
        ("a", "b"), root=folder / "clusters", given=False, jvm=_BROKER_JVM
    ) as clusters:
        bench = _Bench(
            source=clusters["a"].bootstrap,
            target=clusters["b"].bootstrap,
            folder=folder,
            broker_pids=tuple(
                pid for each in clusters.values() for pid in each.pids().values()
            ),
            numbers=itertools.count(1),
        )
        for bootstrap in (bench.source, bench.target):
            _warm_up(bootstrap)
        for scenario in scenarios:
            if isinstance(scenario, Throughput):
                yield from _throughput(bench, scenario, peers, repeats)
            else:
                yield from _latency(bench, scenario, peers, repeats)


def _warm_up(bootstrap: str) -> None:
    topic = "warm-up"
    pool = payloads.incompressible(100)
    load.create_topic(bootstrap, topic, partitions=1)
    load.fill(bootstrap, topic, partitions=1, pool=pool, records=_WARM_UP_RECORDS)
    Target(bootstrap, topic, partitions=1).count_records()
    load.delete_topic(bootstrap, topic)


def _turns(peers: Sequence[str], repeats: int) -> Iterator[tuple[int, str]]:
    return itertools.product(range(1, repeats + 1), peers)


def _throughput(
    bench: _Bench, scenario: Throughput, peers: Sequence[str], repeats: int
) -> Iterator[Run]:
    topic = f"bench-{scenario.name}"
    load.create_topic(bench.source, topic, partitions=PARTITIONS)
    payload_bytes = load.fill(
        bench.source,
        topic,
        partitions=PARTITIONS,
        pool=scenario.payloads(),
        records=scenario.records,
        compression=scenario.compression,
        batch_bytes=scenario.batch_bytes,
    )
    for repeat, peer in _turns(peers, repeats):
        task = bench.task(topic, scenario.compression)
        target = Target(bench.target, task.target_topic, partitions=PARTITIONS)
        turn = Run(scenario=scenario.name, peer=peer, repeat=repeat)
        neighbours = Neighbours(bench.broker_pids)
        try:
            result = throughput.measure(
                PEERS[peer].start(task),
                target,
                records=scenario.records,
                payload_bytes=payload_bytes,
            )
        except PeerError as error:
            yield replace(turn, error=str(error))
            continue
        load.delete_topic(bench.target, task.target_topic)
        yield replace(
            turn,
            result=result,
            error=_miscount(result),
            other_cores=neighbours.cores(),
        )
    load.delete_topic(bench.source, topic)


def _latency(
    bench: _Bench, scenario: Latency, peers: Sequence[str], repeats: int
) -> Iterator[Run]:
    for repeat, peer in _turns(peers, repeats):
        topic = f"bench-{scenario.name}-{peer}-{repeat}"
        load.create_topic(bench.source, topic, partitions=PARTITIONS)
        load.fill(
            bench.source,
            topic,
            partitions=PARTITIONS,
            pool=[load.PRIMER],
            records=10_000,
        )
        task = bench.task(topic, "none")
        turn = Run(scenario=scenario.name, peer=peer, repeat=repeat)
        neighbours = Neighbours(bench.broker_pids)
        try:
            result = latency.measure(
                PEERS[peer].start(task),
                Target(bench.target, task.target_topic, partitions=PARTITIONS),
                load.Pacer(
                    bench.source,
                    topic,
                    partitions=PARTITIONS,
                    per_second=scenario.per_second,
                ),
                per_second=scenario.per_second,
                warm_up_seconds=scenario.warm_up_seconds,
                seconds=scenario.seconds,
            )
        except PeerError as error:
            yield replace(turn, error=str(error))
            continue
        yield replace(turn, result=result, other_cores=neighbours.cores())


def _miscount(result: ThroughputResult) -> str | None:
    if result.records == result.expected:
        return None
    return f"{result.records} records on the target instead of {result.expected}"
