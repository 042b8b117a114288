"""Runs scenarios, peer after peer, on the same two clusters.

Main function: `run`, which yields each `Run` as it ends. The peers take turns (A B A
B), so that a machine that becomes slower or faster affects them all. Scenarios that fit
into memory share their clusters, and so do those that do not.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
import itertools
from operator import itemgetter
from typing import TYPE_CHECKING, Any

from tests.benchmarks import clusters, load, payloads
from tests.benchmarks.bench import Bench, Measure, Scenario, bench_of
from tests.benchmarks.peers.known import PEERS
from tests.benchmarks.processes import PeerError
from tests.benchmarks.quiet import Neighbours
from tests.benchmarks.storage import Storage, folder_in, storage_for
from tests.benchmarks.target import Target

if TYPE_CHECKING:
    from collections.abc import Generator, Iterable, Iterator, Mapping, Sequence
    from pathlib import Path

_WARM_UP_RECORDS = 4_000_000
_WARM_UP_BATCH_BYTES = 8 << 10
"""Small ones: it is their number that warms a broker up."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """One peer in one scenario, once."""

    scenario: str
    peer: str
    repeat: int
    storage: Storage = "disk"
    """Where the brokers had their data."""
    result: Any = None
    """See `bench.Result`; None when there is none."""
    other_cores: float = 0.0
    """CPU that other processes used meanwhile; see `quiet`."""
    error: str | None = None
    """Why there is no result, or why it does not count."""


def run(
    scenarios: Sequence[Scenario],
    peers: Mapping[str, Sequence[str]],
    *,
    repeats: int,
    folder: Path,
) -> Generator[Run, None, None]:
    """`peers` by the scenario's name."""
    for peer in {name for names in peers.values() for name in names}:
        PEERS[peer].prepare()
    pairs = itertools.count(1)
    for storage, group in _by_storage(scenarios):
        logs = folder / f"clusters-{next(pairs)}"
        logs.mkdir()
        largest = max(each.source_bytes for each in group)
        with (
            folder_in(storage, folder, source_bytes=largest) as data,
            clusters.running(data, logs) as (source, target),
        ):
            for each in (source, target):
                _warm_up(each.near)
            bench = bench_of(source, target, logs)
            for scenario in group:
                names = peers[scenario.name]
                yield from _take_turns(bench, scenario, names, repeats, storage)


def _by_storage(
    scenarios: Iterable[Scenario],
) -> Iterator[tuple[Storage, list[Scenario]]]:
    """Neighbours that have room in the same place, judged before any of them runs."""
    placed = [(storage_for(each.source_bytes), each) for each in scenarios]
    for storage, group in itertools.groupby(placed, key=itemgetter(0)):
        yield storage, [scenario for _, scenario in group]


def _warm_up(bootstrap: str) -> None:
    topic = "warm-up"
    pool = payloads.incompressible(100)
    load.create_topic(bootstrap, topic, partitions=1)
    load.fill(
        bootstrap,
        topic,
        partitions=1,
        pool=pool,
        records=_WARM_UP_RECORDS,
        batch_bytes=_WARM_UP_BATCH_BYTES,
    )
    Target(bootstrap, topic, partitions=1).count_records()
    load.delete_topics(bootstrap, [topic])


def _take_turns(
    bench: Bench,
    scenario: Scenario,
    peers: Sequence[str],
    repeats: int,
    storage: Storage,
) -> Iterator[Run]:
    with scenario.ready(bench) as measure:
        for repeat, peer in itertools.product(range(1, repeats + 1), peers):
            turn = Run(
                scenario=scenario.name, peer=peer, repeat=repeat, storage=storage
            )
            yield _measured(bench, turn, measure)


def _measured(bench: Bench, turn: Run, measure: Measure) -> Run:
    neighbours = Neighbours(
        pid for each in (bench.source, bench.target) if (pid := each.node.pid)
    )
    try:
        result = measure(PEERS[turn.peer].start)
    except PeerError as error:
        return replace(turn, error=str(error))
    return replace(
        turn, result=result, error=result.flaw(), other_cores=neighbours.cores()
    )
