"""Metrics of what the driver's JVM and the container use.

Main name: `RESOURCE_METRICS`; they have no labels. `catalogue` lists them with the
other metrics of the service. The driver's Python process has prometheus-client's own
`process_*`, slots are in `catalogue`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

    from mirror.status.resources import JvmStatus, ResourceStatus


@dataclass(frozen=True, slots=True, kw_only=True)
class ResourceMetric:
    """A gauge, or a counter if its name ends in _total."""

    name: str
    help: str
    value: Callable[[ResourceStatus], float | None]
    """None: no value now."""


def _of_jvm(
    name: str, text: str, value: Callable[[JvmStatus], float]
) -> ResourceMetric:
    return ResourceMetric(
        name=name,
        help=text,
        value=lambda found: value(found.jvm) if found.jvm else None,
    )


RESOURCE_METRICS: tuple[ResourceMetric, ...] = (
    _of_jvm(
        "mirror_jvm_heap_bytes",
        "Heap that the driver's JVM uses, garbage included.",
        lambda jvm: jvm.heap_bytes,
    ),
    _of_jvm(
        "mirror_jvm_heap_limit_bytes",
        "How large that heap may become.",
        lambda jvm: jvm.heap_limit_bytes,
    ),
    _of_jvm(
        "mirror_jvm_gc_seconds_total",
        "Time that the driver's JVM has spent on collecting garbage.",
        lambda jvm: jvm.gc_seconds,
    ),
    _of_jvm(
        "mirror_jvm_cpu_seconds_total",
        "CPU time of the driver's JVM.",
        lambda jvm: jvm.cpu_seconds,
    ),
    _of_jvm(
        "mirror_jvm_memory_bytes",
        "All memory of the driver's JVM.",
        lambda jvm: jvm.memory_bytes,
    ),
    _of_jvm(
        "mirror_jvm_open_files",
        "Files and connections that the driver's JVM has open.",
        lambda jvm: jvm.open_files,
    ),
    _of_jvm(
        "mirror_jvm_open_files_limit",
        "How many it may have open.",
        lambda jvm: jvm.open_files_limit,
    ),
    ResourceMetric(
        name="mirror_memory_bytes",
        help="Memory in use of the driver's container, or of its machine if there is "
        "no limit, without caches that can be dropped.",
        value=lambda found: found.memory_bytes,
    ),
    ResourceMetric(
        name="mirror_memory_limit_bytes",
        help="How much there is; beyond it the system kills a process.",
        value=lambda found: found.memory_limit_bytes,
    ),
)
