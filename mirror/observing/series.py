"""What a metric is: name, type, help, and how its values come from a flow's status.

Main type: `Metric`. There is a function for each kind of metric: of the flow itself,
its partitions, topics, slots, jobs. `catalogue` lists them all.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING

from mirror.status.values import HistogramStatus

if TYPE_CHECKING:
    from collections.abc import Callable

    from mirror.status.values import (
        FlowStatus,
        GroupStatus,
        JobStatus,
        PartitionStatus,
        SlotStatus,
        SparkStatus,
        TopicRisk,
        TopicTimes,
        TransactionStatus,
    )

Labels = tuple[str, ...]
Value = float | HistogramStatus | tuple[float, float]
"""A number, a histogram, or the count and the sum of a summary."""
Rows = Iterable[tuple[Labels, Value | None]]


class MetricType(StrEnum):
    """Prometheus' types."""

    COUNTER = "counter"
    GAUGE = "gauge"
    HISTOGRAM = "histogram"
    SUMMARY = "summary"


class Fold(StrEnum):
    """How a topic's value is made from its partitions'."""

    SUM = "sum"
    MAX = "max"


@dataclass(frozen=True, slots=True, kw_only=True)
class Metric:
    """One metric of each flow. All metrics have the labels `source` and `target`."""

    name: str
    """As queried: counters end in _total."""
    kind: MetricType
    help: str
    labels: Labels
    """Labels besides source and target."""
    rows: Callable[[FlowStatus], Rows]
    """The values of those labels and of the metric; None: no value now."""
    fold: Fold | None = None
    """Set if the metric has the label `partition`, which can be left out."""

    @property
    def sample_names(self) -> frozenset[str]:
        """The names of its time series."""
        endings = {
            MetricType.HISTOGRAM: ("_bucket", "_count", "_sum"),
            MetricType.SUMMARY: ("_count", "_sum"),
        }.get(self.kind, ("",))
        return frozenset(self.name + ending for ending in endings)


def of_flow(
    name: str, kind: MetricType, text: str, value: Callable[[FlowStatus], Value | None]
) -> Metric:
    def rows(flow: FlowStatus) -> Rows:
        yield (), value(flow)

    return Metric(name=name, kind=kind, help=text, labels=(), rows=rows)


def of_partitions(
    name: str,
    kind: MetricType,
    text: str,
    value: Callable[[PartitionStatus], float | None],
    fold: Fold = Fold.SUM,
) -> Metric:
    def rows(flow: FlowStatus) -> Rows:
        for each in flow.partitions:
            yield (each.topic, str(each.partition)), value(each)

    labels = ("topic", "partition")
    return Metric(name=name, kind=kind, help=text, labels=labels, rows=rows, fold=fold)


def of_topics(
    name: str, text: str, value: Callable[[TopicTimes], HistogramStatus]
) -> Metric:
    def rows(flow: FlowStatus) -> Rows:
        for each in flow.times:
            yield (each.topic,), value(each)

    return Metric(
        name=name, kind=MetricType.HISTOGRAM, help=text, labels=("topic",), rows=rows
    )


def of_slots(
    name: str, kind: MetricType, text: str, value: Callable[[SlotStatus], float | None]
) -> Metric:
    def rows(flow: FlowStatus) -> Rows:
        for each in flow.slot_loads:
            yield (str(each.number),), value(each)

    return Metric(name=name, kind=kind, help=text, labels=("slot",), rows=rows)


def of_jobs(
    name: str, kind: MetricType, text: str, value: Callable[[JobStatus], float | None]
) -> Metric:
    def rows(flow: FlowStatus) -> Rows:
        for each in flow.jobs:
            yield (each.name,), value(each)

    return Metric(name=name, kind=kind, help=text, labels=("job_name",), rows=rows)


def of_groups(
    name: str, text: str, value: Callable[[GroupStatus], float | None]
) -> Metric:
    def rows(flow: FlowStatus) -> Rows:
        for each in flow.groups:
            yield (each.group,), value(each)

    return Metric(
        name=name, kind=MetricType.GAUGE, help=text, labels=("group",), rows=rows
    )


def of_risk(name: str, text: str, value: Callable[[TopicRisk], float | None]) -> Metric:
    def rows(flow: FlowStatus) -> Rows:
        for each in flow.risk.topics:
            yield (each.topic,), value(each)

    return Metric(
        name=name, kind=MetricType.GAUGE, help=text, labels=("topic",), rows=rows
    )


def of_transactions(
    name: str, kind: MetricType, text: str, value: Callable[[TransactionStatus], Value]
) -> Metric:
    return of_flow(name, kind, text, lambda flow: value(flow.transactions))


def of_spark(
    name: str, kind: MetricType, text: str, value: Callable[[SparkStatus], float | None]
) -> Metric:
    return of_flow(
        name, kind, text, lambda flow: value(flow.spark) if flow.spark.batches else None
    )
