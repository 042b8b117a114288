"""Scenarios in which a full topic is copied as fast as possible.

Main type: `Copying`. `throughput` measures; the other modules of this folder say which
records the topic has, and from where it is copied.
"""

from __future__ import annotations

from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import partial
import math
from typing import TYPE_CHECKING, Any, Literal

from tests.benchmarks import load, throughput
from tests.benchmarks.bench import PARTITIONS
from tests.benchmarks.logs import batch_shape, committed_records
from tests.benchmarks.ready_made import fill_ready_made
from tests.benchmarks.target import Target
from tests.benchmarks.wan import Wan

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from tests.benchmarks.bench import Bench, Measure, Start
    from tests.benchmarks.peers.peer import Task

_OVERHEAD_BYTES = 10
"""What Kafka adds to a record."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Copying:
    name: str
    title: str
    payloads: Callable[[], list[bytes]]
    records: int
    """Enough that a peer twice as fast as ours still has work when it is measured."""
    peers: tuple[str, ...] = ("mm2", "mirror")
    partitions: int = PARTITIONS
    compression: str = "none"
    batch_bytes: int = 64 << 10
    """The most that the load puts into one batch, before compression."""
    least_batch_bytes: int = 0
    """As found on the source's disk."""
    batch_records: tuple[int, ...] = ()
    """In ready-made batches, in turn. Empty: batches as an ordinary producer's."""
    stored_share: float = 1.0
    """What compression leaves."""
    far: Literal["source", "target"] | None = None
    """Which side is a long way off."""
    one_way_seconds: float = 0.04
    settle_seconds: float = throughput.SETTLE_SECONDS
    measure_seconds: float = 20.0
    complete: bool = False
    """Wait for slow peers as well until all is copied, and check the count."""

    @property
    def source_bytes(self) -> int:
        pool = self.payloads()
        record_bytes = sum(map(len, pool)) / len(pool) + _OVERHEAD_BYTES
        return round(self.records * record_bytes * self.stored_share)

    @contextmanager
    def ready(self, bench: Bench) -> Iterator[Measure]:
        with bench.topic(f"bench-{self.name}", partitions=self.partitions) as topic:
            records, payload_bytes = self.fill(bench, topic)

            def measure(start: Start) -> Any:
                return self.measure(bench, start, topic, records, payload_bytes)

            yield measure

    def measure(
        self,
        bench: Bench,
        start: Start,
        topic: str,
        records: int,
        payload_bytes: int,
        **settings: Any,
    ) -> Any:
        """One run on a topic that is filled; `settings` are the task's."""
        with ExitStack() as stack:
            if self.far:
                far = bench.source if self.far == "source" else bench.target
                settings[self.far] = far.far
                stack.enter_context(
                    Wan(
                        far.far,
                        far.behind,
                        one_way_seconds=self.one_way_seconds,
                    )
                )
            task = stack.enter_context(
                bench.task(topic, compression=self.compression, **settings)
            )
            return self.copied(bench, start, task, records, payload_bytes)

    def copied(
        self,
        bench: Bench,
        start: Start,
        task: Task,
        records: int,
        payload_bytes: int,
    ) -> Any:
        return throughput.measure(
            start(task),
            Target(bench.target.near, task.target_topic, partitions=self.partitions),
            records=records,
            payload_bytes=payload_bytes,
            settle_seconds=self.settle_seconds,
            measure_seconds=math.inf if self.complete else self.measure_seconds,
            count=partial(
                committed_records,
                bench.target.data,
                task.target_topic,
                partitions=self.partitions,
            ),
        )

    def fill(self, bench: Bench, topic: str) -> tuple[int, int]:
        """Gives the number of records and their payload's bytes."""
        if self.batch_records:
            filled = fill_ready_made(
                bench.source.near,
                topic,
                partitions=self.partitions,
                pool=self.payloads(),
                records=self.records,
                batch_records=self.batch_records,
                compression=self.compression,
            )
        else:
            payload_bytes = load.fill(
                bench.source.near,
                topic,
                partitions=self.partitions,
                pool=self.payloads(),
                records=self.records,
                compression=self.compression,
                batch_bytes=self.batch_bytes,
            )
            filled = self.records, payload_bytes
        self._check_batches(bench, topic)
        return filled

    def _check_batches(self, bench: Bench, topic: str) -> None:
        shape = batch_shape(bench.source.data, topic)
        if shape.bytes < self.least_batch_bytes:
            raise RuntimeError(f"{self.name}: batches of only {shape.bytes:.0f} B")
        if self.batch_records and shape.records > max(self.batch_records):
            raise RuntimeError(f"{self.name}: {shape.records:.1f} records per batch")
