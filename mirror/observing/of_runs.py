"""Metrics of a run that ends (`mirror run --once`): what Prometheus cannot scrape.

Main type: `Ended`, the values; `to_file` writes them for node_exporter's textfile
collector, `push` sends them to a Pushgateway. They have names of their own: the alerts
on a service would take a run that has ended for a service that stands still.
"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING

from prometheus_client import CollectorRegistry, write_to_textfile
from prometheus_client.core import GaugeMetricFamily
from prometheus_client.exposition import pushadd_to_gateway
from prometheus_client.parser import text_string_to_metric_families
from prometheus_client.registry import Collector

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from mirror.status.values import FlowStatus

_SUCCESS = "mirror_run_success_timestamp_seconds"
OF_RUN = {
    "mirror_run_end_timestamp_seconds": "When the last run with --once ended.",
    "mirror_run_duration_seconds": "How long it took, start of Spark included.",
    "mirror_run_exit_code": "Its exit code: 0 if everything that was there at its "
    "start is copied.",
    _SUCCESS: "When a run last ended with exit code 0.",
}
OF_FLOWS = {
    "mirror_run_copied_records": "Records that the last run copied.",
    "mirror_run_read_bytes": "Bytes of record batches that it fetched from the source.",
    "mirror_run_lag_records": "Source offsets that it left uncopied, as it saw the "
    "source's end.",
    "mirror_run_lost_records": "Offsets deleted on the source before they were copied.",
    "mirror_run_faulted_partitions": "Partitions that it could not copy.",
}
_PUSH_SECONDS = 10.0


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Ended(Collector):
    """A run that has ended."""

    at: float
    """When, epoch seconds."""
    seconds: float
    exit_code: int
    flows: tuple[FlowStatus, ...] = ()
    succeeded_at: float = 0.0
    """When an earlier run last succeeded; 0: not known."""

    def collect(self) -> Iterator[GaugeMetricFamily]:
        success = self.succeeded_at if self.exit_code else self.at
        values = (self.at, self.seconds, self.exit_code, success or None)
        for (name, text), value in zip(OF_RUN.items(), values, strict=True):
            if value is not None:
                yield GaugeMetricFamily(name, text, value=value)
        for name, text in OF_FLOWS.items():
            family = GaugeMetricFamily(name, text, labels=("source", "target"))
            for flow in self.flows:
                family.add_metric((flow.source, flow.target), _of_flow(flow)[name])
            yield family


def to_file(ended: Ended, file: Path) -> None:
    """Replace the file, which anyone may read.

    Raises:
        OSError: it cannot be written.
    """
    write_to_textfile(str(file), _registry(ended))
    file.chmod(0o644)


def push(ended: Ended, gateway: str, job: str) -> None:
    """Replace these metrics of the job; its last success stays if this is none.

    Raises:
        OSError: the gateway does not take them.
    """
    pushadd_to_gateway(gateway, job, _registry(ended), timeout=_PUSH_SECONDS)


def last_success(file: Path) -> float:
    """When a run last succeeded, by the file that it left; 0: not known."""
    with suppress(OSError, ValueError):
        for family in text_string_to_metric_families(file.read_text()):
            for sample in family.samples:
                if sample.name == _SUCCESS:
                    return float(sample.value)
    return 0.0


def _registry(ended: Ended) -> CollectorRegistry:
    registry = CollectorRegistry(auto_describe=False)
    registry.register(ended)
    return registry


def _of_flow(flow: FlowStatus) -> dict[str, float]:
    values = (
        flow.records,
        sum(partition.bytes_in for partition in flow.partitions),
        flow.lag,
        flow.lost,
        flow.faulted,
    )
    return dict(zip(OF_FLOWS, values, strict=True))
