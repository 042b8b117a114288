"""What partitions cost the driver: `python -m tests.benchmarks.driver`.

A service's driver with thousands of partitions that no broker has: reports are made up,
all else is what the service runs after and before each lease, and when someone asks.
CPU seconds of one process, so that a busy machine disturbs little. A step whose cost
per partition grows with their number is marked.
"""

from __future__ import annotations

from dataclasses import dataclass
import gc
import time
from typing import TYPE_CHECKING, Annotated

from pyspark.sql import Row
from rich import box
from rich.console import Console
from rich.table import Table
import typer

from mirror.config.schema import FlowConfig
from mirror.copying.lease import PartitionReport, from_row, to_arrow
from mirror.copying.tally import latency_bounds
from mirror.copying.task import to_row
from mirror.observing.exposition import exposition
from mirror.observing.page.pages import (
    History,
    Pages,
)
from mirror.observing.routing import Request, as_json
from mirror.pairs.control import Pauses
from mirror.service.assignment import Assignments, Placement
from mirror.service.flow_status import StatusWriter
from mirror.service.leases import LeaseResult, Rates
from mirror.status.states import PartitionState
from mirror.status.store import StatusStore
from mirror.status.values import Counts
from mirror.topics.topics import MirroredTopic, TopicsResult

if TYPE_CHECKING:
    from collections.abc import Callable

    from mirror.copying.lease import Assignment

_FLOW = "A->B"
_PARTITIONS_OF_A_TOPIC = 10
_MORE = 8
"""Partitions of a topic that is new."""
_SLOTS = 8
_TOPIC_ID = "0123456789abcdef0123456789abcdef"
_LEASES = 3
_BUSY = 10
"""One partition in ten copied something in a lease."""
_FLOW_CONFIG = FlowConfig.model_validate(
    {"source": "A", "target": "B", "topics": [".*"]}
)
_TIMES = (1,) * (len(latency_bounds(_FLOW_CONFIG.sla_seconds)) + 1)
_GROWS = 1.3
"""Cost per partition beside that of the fewest: from this factor on it is marked."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Cost:
    """What one step takes."""

    step: str
    seconds: float
    """Of CPU; the median of some."""
    size: int = 0
    """Of what it makes, in bytes; 0: nothing."""


def costs(partitions: int) -> list[Cost]:
    """Every step, with this many partitions."""
    driver = _Driver(partitions)
    driver.lease()  # what is kept from lease to lease is there
    return [
        _cost("plan a lease, as before", driver.plan),
        _cost("plan a lease, one more topic", driver.plan_another),
        _cost("its rows, if it changed", driver.rows),
        _cost("plan a lease, other slots", driver.plan_moved),
        _cost("read the reports", driver.read),
        _cost("add them up", driver.add),
        _cost("a point of the history", driver.point),
        # Before what takes so long that the lease is overdue, which costs more.
        _cost("the page", driver.page),
        _cost("/status", driver.status),
        _cost("/metrics by partition", driver.metrics_by_partition),
        _cost("/metrics by topic", driver.metrics_by_topic),
    ]


def _cost(step: str, work: Callable[[], int]) -> Cost:
    found = []
    size = 0
    for _ in range(_LEASES):
        gc.collect()
        before = time.process_time()
        size = work()
        found.append(time.process_time() - before)
    return Cost(step=step, seconds=sorted(found)[len(found) // 2], size=size)


class _Driver:
    """One flow's part of it, without Spark and brokers."""

    def __init__(self, partitions: int) -> None:
        self._store = StatusStore((_FLOW,))
        self._history = History(self._store)
        self._writer = StatusWriter(_FLOW, self._store)
        self._writer.begin(_FLOW_CONFIG)
        self._placement, self._rates = Placement(), Rates(_SLOTS)
        self._topics = [
            _topic(f"a-topic-of-average-length-{number}", _PARTITIONS_OF_A_TOPIC)
            for number in range(partitions // _PARTITIONS_OF_A_TOPIC)
        ]
        self._made = Assignments()
        self._assignments = self._of_topics()
        self._slots = _SLOTS
        self._number = 0
        self._batch = to_arrow(_reports(self._assignments))
        self._rows = [Row(**each) for each in self._batch.to_pylist()]
        self._reports = [from_row(row) for row in self._rows]
        self._by_partition = exposition(self._store, per_partition=True)
        self._by_topic = exposition(self._store, per_partition=False)
        self._pages = Pages(self._store, self._history).table()

    def lease(self) -> None:
        self.plan()
        self.add()
        self.point()

    def plan(self) -> int:
        self._spread = self._placement.spread(self._assignments, self._slots)
        return 0

    def plan_another(self) -> int:
        self._topics.append(_topic(f"later-{len(self._topics)}", _MORE))
        self._assignments = self._of_topics()
        return self.plan()

    def _of_topics(self) -> tuple[Assignment, ...]:
        return self._made.assign(TopicsResult(topics=tuple(self._topics)), Pauses())

    def plan_moved(self) -> int:
        self._slots += 1
        return self.plan()

    def rows(self) -> int:
        each = self._spread.items()
        return sum(len(to_row(slot, "generation", part)) for slot, part in each)

    def read(self) -> int:
        self._reports = [from_row(row) for row in self._rows]
        return int(self._batch.nbytes)

    def add(self) -> int:
        self._number += 1
        self._placement.learn(self._reports)
        self._rates.learn(self._reports)
        self._writer.add(
            LeaseResult(
                number=self._number, slots=_SLOTS, seconds=30.0, gap_seconds=0.1,
                reports=self._reports,
            ),
            _FLOW_CONFIG,
        )  # fmt: skip
        return 0

    def point(self) -> int:
        self._history.take(self._store.read())
        return 0

    def status(self) -> int:
        return len(as_json(self._store.read().to_json()).body)

    def metrics_by_partition(self) -> int:
        return len(self._by_partition("")[1])

    def metrics_by_topic(self) -> int:
        return len(self._by_topic("")[1])

    def page(self) -> int:
        return len(self._pages["/"](Request(path="/", query={})).body)


def _topic(name: str, partitions: int) -> MirroredTopic:
    return MirroredTopic(
        topic=name,
        target_topic=f"A.{name}",
        partitions=partitions,
        topic_id=_TOPIC_ID,
    )


def _reports(assignments: tuple[Assignment, ...]) -> list[PartitionReport]:
    return [
        PartitionReport(
            topic=each.topic,
            partition=each.partition,
            target_topic=each.target_topic,
            slot=number % _SLOTS,
            state=PartitionState.RUNNING,
            position=1000 + number,
            end_offset=1000 + number,
            total=Counts(records=10, bytes=1000),
            total_since=1,
            lag_seconds=0.0,
            latency_counts=() if number % _BUSY else _TIMES,
            age_counts=() if number % _BUSY else _TIMES,
            slot_seconds=30.0,
        )
        for number, each in enumerate(assignments)
    ]


def main(
    partitions: Annotated[
        str, typer.Option(help="How many, with commas between.")
    ] = "5000,10000,25000,50000",
) -> None:
    """Measure, and print a table: CPU milliseconds, and kilobytes made."""
    counts = [int(each) for each in partitions.split(",")]
    found: dict[int, list[Cost]] = {count: costs(count) for count in counts}
    table = Table(box=box.SIMPLE_HEAD)
    table.add_column("step")
    for count in counts:
        table.add_column(f"{count:,}", justify="right")
    first = counts[0]
    for row, step in enumerate(found[first]):
        cells = []
        for count in counts:
            cost = found[count][row]
            grown = cost.seconds / count > _GROWS * step.seconds / first
            size = f", {cost.size / 1000:,.0f} kB" if cost.size else ""
            cells.append(f"{cost.seconds * 1000:,.1f} ms{size}{' !' * grown}")
        table.add_row(step.step, *cells)
    Console(width=140).print(table)


if __name__ == "__main__":
    typer.run(main)
