"""Metric values derived from a status: states, and whether the SLA holds.

Functions from one flow's status to a value, or to the rows of a metric. `catalogue`
says which metric uses which.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from mirror.status.states import AclState, FlowState, PartitionState
from mirror.status.values import TRANSFORM

if TYPE_CHECKING:
    from collections.abc import Iterator

    from mirror.observing.series import Labels, Value
    from mirror.status.values import FlowStatus


def known(value: float, unit: float = 1.0) -> float | None:
    """-1 in a status means not known; the metric then has no value."""
    return value * unit if value >= 0 else None


def states(flow: FlowStatus) -> Iterator[tuple[Labels, Value]]:
    for state in FlowState:
        yield (state.value,), float(flow.state is state)


def acl_states(flow: FlowStatus) -> Iterator[tuple[Labels, Value]]:
    for state in AclState:
        yield (state.value,), float(flow.acls.state is state)


def verified(flow: FlowStatus) -> Iterator[tuple[Labels, Value]]:
    for result, count in flow.verify.records.items():
        yield (result,), float(count)


def partition_states(flow: FlowStatus) -> Iterator[tuple[Labels, Value]]:
    counts: dict[Labels, int] = {}
    for each in flow.partitions:
        for state in PartitionState:  # also where there are none
            counts.setdefault((each.topic, str(state)), 0)
        key = (each.topic, str(each.state))
        counts[key] += 1
    for labels, count in counts.items():
        yield labels, float(count)


def within_sla(flow: FlowStatus) -> float | None:
    if flow.state in {FlowState.STOPPED, FlowState.STANDBY, FlowState.RESTING}:
        return None
    if flow.partitions and all(
        each.state == PartitionState.PAUSED for each in flow.partitions
    ):
        return None
    if not flow.reported_at:
        # Not known yet: a flow that is starting has not broken its SLA.
        return None if flow.state is FlowState.STARTING else 0.0
    return float(flow.lag_seconds <= flow.sla_seconds)


def lag_to_copy(flow: FlowStatus) -> int:
    """In offsets, without partitions that are paused on purpose."""
    return sum(
        each.lag for each in flow.partitions if each.state != PartitionState.PAUSED
    )


def failed_records(flow: FlowStatus) -> Iterator[tuple[Labels, Value]]:
    """By topic and reason; with dead letters, on which the transform failed."""
    counts: Counter[tuple[str, str]] = Counter()
    for each in flow.partitions:
        for reason, count in each.failed.items():
            counts[each.topic, reason] += count
        if each.counts.dead_letters:
            counts[each.topic, TRANSFORM] += each.counts.dead_letters
    for labels, count in counts.items():
        yield labels, float(count)


def copies(flow: FlowStatus) -> Iterator[tuple[Labels, Value]]:
    names = {(each.topic, each.target_topic) for each in flow.partitions}
    for name in sorted(names):
        yield name, 1.0


def phases(flow: FlowStatus) -> Iterator[tuple[Labels, Value]]:
    for phase, seconds in flow.spark.phases:
        yield (phase,), seconds
