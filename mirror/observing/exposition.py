"""Metrics as Prometheus reads them: what `/metrics` answers.

Main function: `exposition`, which renders a store; main type: `StatusCollector`, which
prometheus-client calls for each scrape. Nothing is kept between scrapes, so a deleted
topic has no series. `catalogue` declares the metrics.
"""

from __future__ import annotations

import platform
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

from mirror.observing.catalogue import METRICS, RESOURCE_METRICS, SERVICE_METRICS
from mirror.observing.of_pairs import PAIR_METRICS
from mirror.observing.series import Fold, MetricType
from mirror.status.errors import ERROR_METRICS
from mirror.status.values import CLUSTER_METRICS, HistogramStatus

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from prometheus_client import Metric as Family

    from mirror.observing.of_pairs import PairMetric
    from mirror.observing.series import Labels, Metric, Value
    from mirror.status.pairs import PairStatus
    from mirror.status.store import StatusStore
    from mirror.status.values import FlowStatus, ServiceStatus

_FLOW = ("source", "target")


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
        yield from _of_service(status)
        for metric in METRICS:
            yield self._family(metric, status.flows)
        for each in PAIR_METRICS:
            yield _of_pairs(each, status.pairs)
        for name, text in CLUSTER_METRICS.items():
            family = GaugeMetricFamily(name, text, labels=("cluster", "side"))
            for cluster in status.clusters:
                for side in cluster.sides:
                    family.add_metric((cluster.alias, side), float(cluster.answers))
            yield family
        for name, text in ERROR_METRICS.items():
            labels = ("cluster", "api", "error")
            errors = CounterMetricFamily(
                name.removesuffix("_total"), text, labels=labels
            )
            for found in status.errors:
                values = found.cluster, found.api, found.error
                errors.add_metric(values, found.count)
            yield errors

    def _family(self, metric: Metric, flows: Sequence[FlowStatus]) -> Family:
        labels = metric.labels
        folded = metric.fold is not None and not self._per_partition
        if folded:
            labels = tuple(label for label in labels if label != "partition")
        family = _new(metric, (*_FLOW, *labels))
        for flow in flows:
            rows: Iterable[tuple[Labels, Value]] = (
                (own, value) for own, value in metric.rows(flow) if value is not None
            )
            if folded:
                rows = _per_topic(metric, rows)
            for own, value in rows:
                _add(family, (flow.source, flow.target, *own), value, flow.bounds)
        return family


def _per_topic(
    metric: Metric, rows: Iterable[tuple[Labels, Value]]
) -> Iterable[tuple[Labels, Value]]:
    """One value for each topic, whose name comes first in a partition's labels."""
    fold = max if metric.fold is Fold.MAX else sum
    by_topic: dict[str, list[float]] = {}
    for (topic, *_), value in rows:
        assert isinstance(value, int | float), metric.name
        by_topic.setdefault(topic, []).append(value)
    return [((topic,), fold(values)) for topic, values in by_topic.items()]


def _of_pairs(metric: PairMetric, pairs: Sequence[PairStatus]) -> Family:
    family = _new(metric, ("pair", *metric.labels))
    for pair in pairs:
        for own, value in metric.rows(pair):
            if value is not None:
                _add(family, (pair.name, *own), value, ())
    return family


def _new(metric: Metric | PairMetric, labels: Sequence[str]) -> Family:
    families: dict[MetricType, Callable[..., Family]] = {
        MetricType.COUNTER: CounterMetricFamily,
        MetricType.GAUGE: GaugeMetricFamily,
        MetricType.HISTOGRAM: HistogramMetricFamily,
        MetricType.SUMMARY: SummaryMetricFamily,
    }
    name = metric.name.removesuffix("_total")
    return families[metric.kind](name, metric.help, labels=labels)


def _add(
    family: Family, labels: Sequence[str], value: Value, bounds: Sequence[float]
) -> None:
    if isinstance(family, HistogramMetricFamily):
        assert isinstance(value, HistogramStatus), family.name
        if value.counts:
            family.add_metric(
                labels, _cumulated(value.counts, bounds), sum_value=value.sum_seconds
            )
    elif isinstance(family, SummaryMetricFamily):
        assert isinstance(value, tuple), family.name
        family.add_metric(labels, count_value=int(value[0]), sum_value=value[1])
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


def _of_service(status: ServiceStatus) -> Iterator[Family]:
    versions = {"version": status.version, "python": platform.python_version()}
    values: dict[str, tuple[dict[str, str], float | None]] = {
        "mirror_build_info": (versions, 1.0),
        "mirror_started_timestamp_seconds": ({}, status.started),
        "mirror_config_last_reload_successful": ({}, not status.config.refused),
        "mirror_config_last_reload_success_timestamp_seconds": (
            {},
            status.config.loaded_at,
        ),
        **{each.name: ({}, each.value(status.resources)) for each in RESOURCE_METRICS},
    }
    for name, text in SERVICE_METRICS.items():
        labels, value = values[name]
        new = CounterMetricFamily if name.endswith("_total") else GaugeMetricFamily
        family = new(name.removesuffix("_total"), text, labels=tuple(labels))
        if value is not None:
            family.add_metric(tuple(labels.values()), value)
        yield family
