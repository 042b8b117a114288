"""Metrics of schemas: what the target's registry has, and how old the last look is.

Main name: `SCHEMA_METRICS`, a part of `catalogue`. A flow with `schemas: off` has no
values.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from mirror.metrics.series import Metric, MetricType, of_flow

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from mirror.metrics.series import Labels, Value
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
)
