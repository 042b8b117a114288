"""What the service's own processes use of what they may use.

Main types: `JvmStatus`, Spark's JVM beside the driver, and `ResourceStatus`, with the
memory of the whole container. `driver/resources` looks; slots report for themselves
(`SlotStatus`), since they may run on other machines.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class JvmStatus:
    """The driver's JVM."""

    heap_bytes: int
    """In use, garbage included."""
    heap_limit_bytes: int
    """How large the heap may become."""
    gc_seconds: float
    """Time spent on collecting garbage, since it started."""
    cpu_seconds: float
    """CPU time since it started."""
    memory_bytes: int
    """All of its memory, as the system counts it."""
    open_files: int
    """Files and connections that it has open."""
    open_files_limit: int
    """How many it may have open."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ResourceStatus:
    """As of the last look, some seconds ago."""

    jvm: JvmStatus | None = None
    """None: not known yet, or the JVM does not answer."""
    memory_bytes: int | None = None
    """What the container uses, or the machine if the container has no limit, without
    caches that can be dropped; None: not known."""
    memory_limit_bytes: int | None = None
    """How much there is; null: not known."""
