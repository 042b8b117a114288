"""How many records a consumer group reads again after it moved to the copy.

Each group stops some records before the end of the source; the peer translates their
offsets into checkpoints, which have one format for all peers. An ordinary consumer then
counts what stands on the target from there on: what exceeds the group's lag it reads
again, which an incomplete copy would never allow.
"""

from __future__ import annotations

from contextlib import closing, contextmanager
from dataclasses import dataclass
from functools import partial
import time
from typing import TYPE_CHECKING, ClassVar

from confluent_kafka import Consumer, TopicPartition

from mirror.client import MirrorClient
from tests.benchmarks import load, payloads
from tests.benchmarks.columns import Column
from tests.benchmarks.processes import PeerError
from tests.benchmarks.target import Target
from tests.benchmarks.throughput import first_look

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from tests.benchmarks.bench import Bench, Measure, Start
    from tests.benchmarks.processes import Service

LAGS = (0, 10, 1000, 100_000)
_PATIENCE_SECONDS = 120.0
_SETTLED_SECONDS = 15.0
"""So long no checkpoint changed any more."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RereadResult:
    COLUMNS: ClassVar = (
        Column("at_tip", "again, at the tip", ",.0f", "less"),
        Column("behind_10", "again, 10 behind", ",.0f", "less"),
        Column("behind_1000", "again, 1,000 behind", ",.0f", "less"),
        Column("behind_100000", "again, 100,000 behind", ",.0f", "less"),
        Column("skipped", "skipped", ",.0f"),
    )

    at_tip: int
    """Records read again by a group that had read all."""
    behind_10: int
    behind_1000: int
    behind_100000: int
    skipped: int
    """Records that some group would never see, of all groups together."""

    def flaw(self) -> str | None:
        return f"{self.skipped} records would be skipped" if self.skipped else None


@dataclass(frozen=True, slots=True, kw_only=True)
class Reread:
    name: str
    title: str
    payloads: Callable[[], list[bytes]]
    records: int
    peers: tuple[str, ...] = ("mm2", "mirror")

    @property
    def source_bytes(self) -> int:
        return self.records * len(self.payloads()[0])

    @contextmanager
    def ready(self, bench: Bench) -> Iterator[Measure]:
        def measure(start: Start) -> RereadResult:
            name = f"bench-{self.name}-{next(bench.numbers)}"
            with (
                bench.topic(name, partitions=1) as topic,
                bench.task(topic, groups=True) as task,
            ):
                self._fill(bench, topic)
                copy = Target(bench.target.near, task.target_topic, partitions=1)
                service = start(task)
                try:
                    first_look(service, copy)
                    self._fill(bench, topic)  # so that it copies while others write
                    _wait(service, lambda: copy.committed_offsets() >= self.records)
                    end = self._commit(bench.source.near, topic)
                    found = self._settled(service, bench.target.near, task.alias, topic)
                finally:
                    service.stop()
                again = {
                    lag: copy.count_records(found[_group(topic, lag)]) - lag
                    for lag in LAGS
                }
            assert end == self.records
            return RereadResult(
                **dict(
                    zip(
                        ("at_tip", "behind_10", "behind_1000", "behind_100000"),
                        (max(again[lag], 0) for lag in LAGS),
                        strict=True,
                    )
                ),
                skipped=sum(max(-count, 0) for count in again.values()),
            )

        yield measure

    def _fill(self, bench: Bench, topic: str) -> None:
        load.fill(
            bench.source.near,
            topic,
            partitions=1,
            pool=self.payloads(),
            records=self.records // 2,
        )

    def _commit(self, bootstrap: str, topic: str) -> int:
        """Each group stops its lag before the end, which is returned."""
        end = 0
        for lag in LAGS:
            consumer = Consumer(
                {"bootstrap.servers": bootstrap, "group.id": _group(topic, lag)}
            )
            with closing(consumer):
                _, end = consumer.get_watermark_offsets(TopicPartition(topic, 0), 30)
                consumer.commit(
                    offsets=[TopicPartition(topic, 0, end - lag)], asynchronous=False
                )
        return end

    def _settled(
        self, service: Service, bootstrap: str, alias: str, topic: str
    ) -> dict[str, int]:
        """Where each group goes on, as soon as that does not change any more."""
        last: dict[str, int] = {}
        since = time.monotonic()

        def settled() -> bool:
            nonlocal last, since
            found = {}
            with MirrorClient({"bootstrap_servers": bootstrap}) as client:
                for lag in LAGS:
                    group = _group(topic, lag)
                    for at in client.translate_offsets(group, alias).values():
                        found[group] = at.offset
            if found != last:
                last, since = found, time.monotonic()
            quiet = time.monotonic() - since > _SETTLED_SECONDS
            return quiet and len(found) == len(LAGS)

        _wait(service, settled)
        return last


def _group(topic: str, lag: int) -> str:
    return f"{topic}-{lag}-behind"


def _wait(service: Service, condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + _PATIENCE_SECONDS
    while not condition():
        if time.monotonic() > deadline:
            raise PeerError(
                f"nothing in {_PATIENCE_SECONDS:g} s:\n{service.log_tail()}"
            )
        time.sleep(0.5)


REREAD = Reread(
    name="reread",
    title="100 B, groups that move to the copy",
    payloads=partial(payloads.incompressible, 100),
    records=300_000,
)
