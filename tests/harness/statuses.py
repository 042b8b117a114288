"""Statuses for tests that only care for some of their fields."""

from __future__ import annotations

from dataclasses import MISSING, fields, replace
import time
from typing import TYPE_CHECKING, Any

from mirror.status.states import PartitionState
from mirror.status.values import NAMES, ClusterStatus, Counts, PartitionStatus

if TYPE_CHECKING:
    from mirror.status.store import StatusStore


def counted(values: dict[str, Any]) -> dict[str, Any]:
    """The same, with the fields that `Counts` declares moved into `counts`."""
    counts = {name: values[name] for name in values.keys() & set(NAMES)}
    rest = {name: each for name, each in values.items() if name not in counts}
    return {**rest, "counts": Counts(**counts)}


def partition_status(topic: str, number: int, **changes: Any) -> PartitionStatus:
    """A running partition that has nothing to do, except for the changes."""
    values: dict[str, Any] = {
        field.name: 0
        for field in fields(PartitionStatus)
        if field.default is MISSING and field.default_factory is MISSING
    }
    values |= {
        "topic": topic,
        "partition": number,
        "target_topic": f"A.{topic}",
        "state": "RUNNING",
        "reason": "",
        "latency_p50_ms": -1.0,
        "latency_p99_ms": -1.0,
    }
    values |= changes
    values["state"] = PartitionState(values["state"])
    return PartitionStatus(**counted(values))


def cluster_status(alias: str, *, reason: str = "") -> ClusterStatus:
    """A cluster that answers, or does not for this reason."""
    return ClusterStatus(
        alias=alias,
        sides=("source",),
        answers=not reason,
        since=time.time(),
        reason=reason,
        cluster_id=f"id-of-{alias}",
    )


def show(store: StatusStore, flow: str, **changes: Any) -> None:
    """Change some fields of a flow's status."""
    store.update(flow, lambda old: replace(old, **changes))
