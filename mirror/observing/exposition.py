"""Metrics as Prometheus reads them: what `/metrics` answers.

Main function: `exposition`, which renders a store; main type: `StatusCollector`, which
prometheus-client calls for each scrape. Nothing is kept between scrapes, so a deleted
topic has no series. `catalogue` declares the metrics.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from prometheus_client import CollectorRegistry, ProcessCollector
from prometheus_client.core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
    SummaryMetricFamily,
)
from prometheus_client.exposition import choose_encoder
from prometheus_client.registry import Collector
from prometheus_client.utils import floatToGoString

from mirror.observing.catalogue import METRICS, Histogram, MetricType, Summary

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from prometheus_client import Metric as Family

    from mirror.observing.catalogue import Labels, Metric, Value
    from mirror.status.store import StatusStore
    from mirror.status.values import ServiceStatus

_FAMILIES: dict[MetricType, Callable[..., Family]] = {
    MetricType.COUNTER: CounterMetricFamily,
    MetricType.GAUGE: GaugeMetricFamily,
    MetricType.HISTOGRAM: HistogramMetricFamily,
    MetricType.SUMMARY: SummaryMetricFamily,
}


def exposition(
    store: StatusStore, *, per_partition: bool
) -> Callable[[str], tuple[str, bytes]]:
    """A function from the Accept header to the content type and the body."""
    registry = CollectorRegistry(auto_describe=False)
    registry.register(StatusCollector(store, per_partition=per_partition))
    ProcessCollector(registry=registry)

    def answer(accept: str) -> tuple[str, bytes]:
        encode, content_type = choose_encoder(accept)
        return content_type, encode(registry)

    return answer


class StatusCollector(Collector):
    """The metrics of one service."""

    def __init__(self, store: StatusStore, *, per_partition: bool) -> None:
        self._store = store
        self._per_partition = per_partition

    def collect(self) -> Iterator[Family]:
        status = self._store.read()
        for metric in METRICS:
            yield self._family(metric, status)

    def _family(self, metric: Metric, status: ServiceStatus) -> Family:
        labels = metric.labels
        rows: Iterable[tuple[Labels, Value]] = (
            (own, value) for own, value in metric.rows(status) if value is not None
        )
        if "partition" in labels and not self._per_partition:
            labels, rows = labels[:-1], _per_topic(metric, rows)
        name = metric.name.removesuffix("_total")
        family = _FAMILIES[metric.kind](name, metric.help, labels=labels)
        for own, value in rows:
            _add(family, own, value)
        return family


def _per_topic(
    metric: Metric, rows: Iterable[tuple[Labels, Value]]
) -> Iterable[tuple[Labels, Value]]:
    """One value for each topic."""
    by_topic: dict[Labels, list[float]] = {}
    for labels, value in rows:
        assert isinstance(value, int | float), metric.name
        by_topic.setdefault(labels[:-1], []).append(value)
    return [(topic, metric.fold(values)) for topic, values in by_topic.items()]


def _add(family: Family, labels: Labels, value: Value) -> None:
    if isinstance(family, HistogramMetricFamily):
        assert isinstance(value, Histogram), family.name
        times, bounds = value
        if times.counts:
            buckets = _cumulated(times.counts, bounds)
            family.add_metric(labels, buckets, sum_value=times.sum_seconds)
    elif isinstance(family, SummaryMetricFamily):
        assert isinstance(value, Summary), family.name
        family.add_metric(labels, count_value=value.number, sum_value=value.total)
    else:
        assert isinstance(family, CounterMetricFamily | GaugeMetricFamily)
        assert isinstance(value, int | float), family.name
        family.add_metric(labels, value)


def _cumulated(
    counts: Sequence[int], bounds: Sequence[float]
) -> list[tuple[str, float]]:
    """Cumulative buckets, as in Prometheus."""
    found, total = [], 0
    for count, bound in zip(counts, (*bounds, float("inf")), strict=True):
        total += count
        # The format of the library's own histograms: 60.0, +Inf.
        found.append((str(floatToGoString(bound)), float(total)))
    return found
