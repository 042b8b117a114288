"""How long a flow stands still that runs again, under a steady load.

Its slots change from one to two and back, as a user changes them: in the configuration
file, while the service runs. The pause is the longest time between two records of one
partition, as an ordinary consumer of the copy sees it.
"""

from __future__ import annotations

from contextlib import contextmanager
from dataclasses import dataclass
import statistics
import time
from typing import TYPE_CHECKING, ClassVar

from tests.benchmarks.columns import Column
from tests.benchmarks.latency import sent_at
from tests.benchmarks.peers.mirror import set_tasks
from tests.benchmarks.processes import PeerError
from tests.benchmarks.scenarios.paced import (
    PRIMERS_BYTES,
    copy_of,
    paced,
    primed,
    watched,
)

if TYPE_CHECKING:
    from collections.abc import Iterator

    from confluent_kafka import Consumer

    from tests.benchmarks.bench import Bench, Measure, Start
    from tests.benchmarks.peers.peer import Task
    from tests.benchmarks.processes import Service

_LOOK_SECONDS = 10.0


@dataclass(frozen=True, slots=True, kw_only=True)
class AgainResult:
    COLUMNS: ClassVar = (
        Column("pause_ms", "pause ms", ",.0f", "less"),
        Column("worst_ms", "worst ms", ",.0f", "less"),
        Column("quiet_ms", "no change ms", ",.0f"),
    )

    pause_ms: float
    """The median of all changes."""
    worst_ms: float
    quiet_ms: float
    """The longest pause in the same time without a change."""

    def flaw(self) -> None:
        return None


@dataclass(frozen=True, slots=True, kw_only=True)
class Again:
    name: str
    title: str
    peers: tuple[str, ...] = ("mirror",)
    per_second: int = 1000
    warm_up_seconds: float = 20.0
    changes: int = 6

    @property
    def source_bytes(self) -> int:
        return PRIMERS_BYTES

    @contextmanager
    def ready(self, bench: Bench) -> Iterator[Measure]:
        def measure(start: Start) -> AgainResult:
            with (
                primed(bench, self.name) as topic,
                bench.task(topic, tasks=1) as task,
                paced(bench, topic, per_second=self.per_second),
            ):
                copy = copy_of(task, bench)
                service = start(task)
                with watched(
                    service, copy, warm_up_seconds=self.warm_up_seconds
                ) as consumer:
                    return self._change(service, task, consumer)

        yield measure

    def _change(self, service: Service, task: Task, consumer: Consumer) -> AgainResult:
        quiet = _longest_pause(consumer)
        pauses = []
        for number in range(self.changes):
            tasks = 1 + (number + 1) % 2
            set_tasks(task, tasks)
            pauses.append(_longest_pause(consumer))
            if (slots := service.status()["slots"]) != tasks:
                raise PeerError(
                    f"it has {slots} slots instead of {tasks}:\n{service.log_tail()}"
                )
        return AgainResult(
            pause_ms=statistics.median(pauses) * 1000,
            worst_ms=max(pauses) * 1000,
            quiet_ms=quiet * 1000,
        )


def _longest_pause(consumer: Consumer) -> float:
    """The longest time between two records of a partition, in the next seconds."""
    last: dict[int | None, float] = {}
    longest = 0.0
    until = time.monotonic() + _LOOK_SECONDS
    while (now := time.monotonic()) < until:
        message = consumer.poll(0.1)
        if message is None:
            continue
        sent_at(message)  # raises if it is none
        now = time.monotonic()
        longest = max(longest, now - last.get(message.partition(), now))
        last[message.partition()] = now
    return max(longest, *(now - at for at in last.values()))


AGAIN = Again(name="again", title="the number of slots changes, at 1000 records/s")
