"""How long partitions stand still after processes are killed, under a steady load.

The time counts from SIGKILL until an ordinary consumer has had a record of every
partition that was sent after it. `RESTART` kills one of two instances, the one that
does the work; `WORKERS` those processes of a single instance that hold the data.
"""

from __future__ import annotations

from contextlib import closing, contextmanager
from dataclasses import dataclass, replace
import time
from typing import TYPE_CHECKING, ClassVar

from tests.benchmarks.columns import Column
from tests.benchmarks.latency import discard, sent_at
from tests.benchmarks.processes import PeerError
from tests.benchmarks.scenarios.paced import PRIMERS_BYTES, copy_of, paced, primed
from tests.benchmarks.throughput import first_look

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from confluent_kafka import Consumer

    from tests.benchmarks.bench import Bench, Measure, Start
    from tests.benchmarks.peers.peer import Task
    from tests.benchmarks.processes import Service
    from tests.benchmarks.target import Target

_LOOK_SECONDS = 5.0
_LONGEST_SECONDS = 120.0


@dataclass(frozen=True, slots=True, kw_only=True)
class RestartResult:
    COLUMNS: ClassVar = (
        Column("first_seconds", "first partition s", ",.1f"),
        Column("all_seconds", "all partitions s", ",.1f", "less"),
    )

    first_seconds: float
    all_seconds: float

    def flaw(self) -> None:
        return None


@dataclass(frozen=True, slots=True, kw_only=True)
class Restart:
    name: str
    title: str
    peers: tuple[str, ...]
    instances: int
    """How many share the work; one of several dies whole, a single one its workers."""
    per_second: int = 1000
    warm_up_seconds: float = 20.0
    """After the last of them has started."""

    @property
    def source_bytes(self) -> int:
        return PRIMERS_BYTES

    @contextmanager
    def ready(self, bench: Bench) -> Iterator[Measure]:
        def measure(start: Start) -> RestartResult:
            with (
                primed(bench, self.name) as topic,
                bench.task(topic) as task,
                paced(bench, topic, per_second=self.per_second),
            ):
                copy = copy_of(task, bench)
                services: list[Service] = []
                try:
                    for each in self._tasks(task):
                        services.append(start(each))
                        first_look(services[0], copy)
                    return self._strike(services, copy)
                finally:
                    for service in services:
                        service.stop()

        yield measure

    def _tasks(self, task: Task) -> Iterator[Task]:
        """The same work, for each instance."""
        for number in range(self.instances):
            folder = task.folder / f"instance-{number}"
            folder.mkdir()
            yield replace(task, folder=folder)

    def _strike(self, services: Sequence[Service], copy: Target) -> RestartResult:
        with closing(copy.consumer()) as consumer:
            discard(consumer, until=time.time() + self.warm_up_seconds)
            before = [service.cpu_seconds() for service in services]
            discard(consumer, until=time.time() + _LOOK_SECONDS)
            used = [service.cpu_seconds() for service in services]
            for service in services:
                service.require_running()
            busiest = max(
                range(len(services)), key=lambda number: used[number] - before[number]
            )
            struck = time.time()
            if self.instances > 1:
                services[busiest].kill()
            else:
                services[busiest].kill_workers()
            seconds = _until_all_move(consumer, copy.partitions, struck)
        return RestartResult(first_seconds=min(seconds), all_seconds=max(seconds))


def _until_all_move(
    consumer: Consumer, partitions: int, struck: float
) -> Sequence[float]:
    """For each partition, how long after the strike a record came that was sent then.

    Raises:
        PeerError: one of them stands still.
    """
    seconds: dict[int | None, float] = {}
    while len(seconds) < partitions:
        now = time.time()
        if now > struck + _LONGEST_SECONDS:
            raise PeerError(
                f"{partitions - len(seconds)} of {partitions} partitions stand still "
                f"for {_LONGEST_SECONDS:g} s"
            )
        message = consumer.poll(0.1)
        if message is not None and sent_at(message) > struck:
            seconds.setdefault(message.partition(), time.time() - struck)
    return list(seconds.values())


RESTART = Restart(
    name="restart",
    title="one of two instances is killed, at 1000 records/s",
    peers=("mm2", "mirror"),
    instances=2,
)
WORKERS = Restart(
    name="restart-workers",
    title="the workers are killed, at 1000 records/s",
    peers=("mirror",),
    instances=1,
)
