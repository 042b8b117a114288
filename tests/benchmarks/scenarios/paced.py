"""A steady trickle, and how long each record takes on its way.

`primed`, `paced`, `copy_of` and `watched` are parts of other scenarios, too.
"""

from __future__ import annotations

from contextlib import closing, contextmanager
from dataclasses import dataclass
import time
from typing import TYPE_CHECKING

from tests.benchmarks import latency, load, throughput
from tests.benchmarks.bench import PARTITIONS
from tests.benchmarks.target import Target

if TYPE_CHECKING:
    from collections.abc import Iterator

    from confluent_kafka import Consumer

    from tests.benchmarks.bench import Bench, Measure, Start
    from tests.benchmarks.latency import LatencyResult
    from tests.benchmarks.peers.peer import Task
    from tests.benchmarks.processes import Service

_PRIMERS = 10_000
PRIMERS_BYTES = _PRIMERS * len(load.PRIMER)


@dataclass(frozen=True, slots=True, kw_only=True)
class Paced:
    name: str
    title: str
    peers: tuple[str, ...]
    per_second: int = 1000
    seconds: float = 30.0
    warm_up_seconds: float = 10.0
    """Copied but not counted: all peers start cold."""

    @property
    def source_bytes(self) -> int:
        return PRIMERS_BYTES

    @contextmanager
    def ready(self, bench: Bench) -> Iterator[Measure]:
        def measure(start: Start) -> LatencyResult:
            with primed(bench, self.name) as topic, bench.task(topic) as task:
                return latency.measure(
                    start(task),
                    copy_of(task, bench),
                    paced(bench, topic, per_second=self.per_second),
                    per_second=self.per_second,
                    warm_up_seconds=self.warm_up_seconds,
                    seconds=self.seconds,
                )

        yield measure


@contextmanager
def primed(bench: Bench, name: str) -> Iterator[str]:
    """A topic of a run's own, with something in it that shows that the peer copies."""
    with bench.topic(f"bench-{name}-{next(bench.numbers)}") as topic:
        load.fill(
            bench.source.near,
            topic,
            partitions=PARTITIONS,
            pool=[load.PRIMER],
            records=_PRIMERS,
        )
        yield topic


def paced(bench: Bench, topic: str, *, per_second: int) -> load.Pacer:
    """Over all partitions of such a topic."""
    places = [(topic, number) for number in range(PARTITIONS)]
    return load.Pacer(bench.source.near, places, per_second=per_second)


def copy_of(task: Task, bench: Bench) -> Target:
    """Where a peer copies such a topic to."""
    return Target(bench.target.near, task.target_topic, partitions=PARTITIONS)


@contextmanager
def watched(
    service: Service, target: Target, *, warm_up_seconds: float
) -> Iterator[Consumer]:
    """A consumer of what a peer copies that was just started, once both are warm; stops
    the peer.
    """
    try:
        throughput.first_look(service, target)
        with closing(target.consumer()) as consumer:
            latency.discard(consumer, until=time.time() + warm_up_seconds)
            yield consumer
    finally:
        service.stop()


PACED = Paced(name="latency", title="1000 records/s", peers=("mm2", "mirror"))
AT_LEAST_ONCE = Paced(
    name="latency-alo",
    title="1000 records/s, at least once",
    peers=("mm2-alo", "mirror-alo"),
)
