"""One partition with a long backlog beside quiet ones, all in one slot.

What is measured is how long the quiet partitions' records take while the hot one is
copied: it must not starve them.
"""

from __future__ import annotations

from contextlib import closing, contextmanager
from dataclasses import dataclass
import time
from typing import TYPE_CHECKING, ClassVar

import numpy as np

from tests.benchmarks import load, payloads
from tests.benchmarks.columns import Column
from tests.benchmarks.latency import sent_at
from tests.benchmarks.processes import PeerError
from tests.benchmarks.target import Target
from tests.benchmarks.throughput import first_look

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.benchmarks.bench import Bench, Measure, Start
    from tests.benchmarks.processes import Service

_RECORD_BYTES = 100
_LOOK_SECONDS = 0.2
_LATE_SECONDS = 5.0
_STALLED_SECONDS = 60.0


@dataclass(frozen=True, slots=True, kw_only=True)
class HotPartitionResult:
    COLUMNS: ClassVar = (
        Column("quiet_p50_ms", "quiet p50 ms", ",.0f", "less"),
        Column("quiet_p99_ms", "quiet p99 ms", ",.0f", "less"),
        Column("quiet_max_ms", "quiet max ms", ",.0f"),
        Column("hot_records_per_second", "hot records/s", ",.0f", "more"),
        Column("seconds", "measured s", ",.0f"),
    )

    records: int
    """Of the quiet partitions, sent while the hot one was copied."""
    seconds: float
    quiet_p50_ms: float
    quiet_p99_ms: float
    quiet_max_ms: float
    hot_records_per_second: float

    def flaw(self) -> str | None:
        return None


@dataclass(frozen=True, slots=True, kw_only=True)
class HotPartition:
    name: str
    title: str
    peers: tuple[str, ...] = ("mirror",)
    quiet: int = 100
    """Partitions with one record a second each."""
    records: int = 25_000_000
    """In the hot one, of 100 B."""
    settle_seconds: float = 5.0
    most_seconds: float = 60.0

    @property
    def source_bytes(self) -> int:
        return self.records * (_RECORD_BYTES + 10)

    @contextmanager
    def ready(self, bench: Bench) -> Iterator[Measure]:
        with bench.topic(f"bench-{self.name}", partitions=self.quiet + 1) as topic:
            load.fill(
                bench.source.near,
                topic,
                partitions=1,
                pool=payloads.incompressible(_RECORD_BYTES),
                records=self.records,
            )
            quiet = range(1, self.quiet + 1)

            def measure(start: Start) -> HotPartitionResult:
                pacer = load.Pacer(
                    bench.source.near,
                    [(topic, number) for number in quiet],
                    per_second=self.quiet,
                )
                with bench.task(topic, tasks=1) as task, pacer:
                    copies = [(task.target_topic, number) for number in quiet]
                    return self._watch(
                        start(task),
                        hot=Target(bench.target.near, task.target_topic, partitions=1),
                        others=Target.of(bench.target.near, copies),
                    )

            yield measure

    def _watch(
        self, service: Service, *, hot: Target, others: Target
    ) -> HotPartitionResult:
        try:
            first_look(service, hot)
            arrivals, looks = self._collect(service, hot, others)
        finally:
            service.stop()
        since = looks[0][0] + self.settle_seconds
        until = looks[-1][0]
        delays = [delay for sent, delay in arrivals if since <= sent < until]
        if until <= since or not delays:
            raise PeerError(
                f"the hot partition was copied in {until - looks[0][0]:.1f} s: take"
                " more --records"
            )
        milliseconds = np.array(delays) * 1000
        (began, first), (ended, last) = looks[0], looks[-1]
        return HotPartitionResult(
            records=len(delays),
            seconds=until - since,
            quiet_p50_ms=float(np.percentile(milliseconds, 50)),
            quiet_p99_ms=float(np.percentile(milliseconds, 99)),
            quiet_max_ms=float(milliseconds.max()),
            hot_records_per_second=(last - first) / (ended - began),
        )

    def _collect(
        self, service: Service, hot: Target, others: Target
    ) -> tuple[list[tuple[float, float]], list[tuple[float, int]]]:
        """When each quiet record was sent and how long it took; how hot grew."""
        arrivals: list[tuple[float, float]] = []
        looks: list[tuple[float, int]] = []
        with closing(others.consumer()) as consumer:
            look_at = began = time.time()
            while (now := time.time()) < began + self.most_seconds:
                if now >= look_at:
                    look_at = now + _LOOK_SECONDS
                    service.require_running()
                    offsets = hot.committed_offsets()
                    if not looks or offsets > looks[-1][1]:
                        looks.append((now, offsets))
                    elif now - looks[-1][0] > self._patience(looks[-1][1]):
                        break
                message = consumer.poll(_LOOK_SECONDS / 4)
                if message is not None:
                    arrived = time.time()
                    sent = sent_at(message)
                    arrivals.append((sent, arrived - sent))
        return arrivals, looks

    def _patience(self, offsets: int) -> float:
        """Wait for records in flight; they are the late ones."""
        return _LATE_SECONDS if offsets >= self.records else _STALLED_SECONDS


HOT = HotPartition(
    name="hot",
    title="100 quiet partitions and one with a backlog, in one slot",
)
