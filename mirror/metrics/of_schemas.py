"""Metrics of schemas: what the target's registry has, and how old the last look is.

Main name: `SCHEMA_METRICS`, a part of `catalogue`. A flow with `schemas: off` has no
values, and the last three are of flows with `schemas: require`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from mirror.metrics.series import Fold, Metric, MetricType, of_flow
from mirror.status.schemas import WAITS
from mirror.status.states import PartitionState

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from mirror.metrics.series import Labels, Value
    from mirror.status.counts import Counts
    from mirror.status.schemas import SchemaStatus
    from mirror.status.values import FlowStatus


def _states(flow: FlowStatus) -> Iterator[tuple[Labels, Value]]:
    for state, count in flow.schemas.states.items():
        yield (state,), float(count)


def _of_schemas(
    name: str, kind: MetricType, text: str, value: Callable[[SchemaStatus], float]
) -> Metric:
    return of_flow(
        name, kind, text, lambda f: value(f.schemas) if f.schemas.is_on else None
    )


def _waiting(flow: FlowStatus) -> float:
    return float(
        sum(
            each.state is PartitionState.FAULTED and each.reason.startswith(WAITS)
            for each in flow.partitions
        )
    )


def _of_partitions(name: str, text: str, value: Callable[[Counts], int]) -> Metric:
    def rows(flow: FlowStatus) -> Iterator[tuple[Labels, Value]]:
        if flow.schemas.is_required:
            for each in flow.partitions:
                labels = each.topic, str(each.partition)
                yield labels, float(value(each.counts))

    return Metric(
        name=name, kind=MetricType.COUNTER, labels=("topic", "partition"), rows=rows,
        fold=Fold.SUM, help=text,
    )  # fmt: skip


SCHEMA_METRICS: tuple[Metric, ...] = (
    Metric(
        name="mirror_schema_subjects",
        kind=MetricType.GAUGE,
        labels=("state",),
        rows=_states,
        help="Subjects of the source's schema registry that the flow copies, by state.",
    ),
    _of_schemas(
        "mirror_schema_versions_copied_total",
        MetricType.COUNTER,
        "Versions written to the target's schema registry.",
        lambda s: s.versions_copied,
    ),
    _of_schemas(
        "mirror_schema_sync_timestamp_seconds",
        MetricType.GAUGE,
        "When a look at both schema registries last came to its end, or when the "
        "service began to copy schemas.",
        lambda s: s.synced_at,
    ),
    _of_schemas(
        "mirror_schema_request_failures_total",
        MetricType.COUNTER,
        "Requests to schema registries without an answer, or that failed there.",
        lambda s: s.request_failures,
    ),
    of_flow(
        "mirror_schema_waiting_partitions",
        MetricType.GAUGE,
        "Partitions set aside because their next record's schema is not on the target, "
        "or may not be.",
        lambda f: _waiting(f) if f.schemas.is_required else None,
    ),
    _of_partitions(
        "mirror_schema_unknown_ids_total",
        "Records copied that begin like a registry's, with an id that neither registry "
        "knows.",
        lambda c: c.unknown_ids,
    ),
    _of_partitions(
        "mirror_schema_translated_records_total",
        "Records copied with the target's ids of schemas instead of the source's, by "
        "flows with schemas_ids: translate.",
        lambda c: c.translated,
    ),
)
