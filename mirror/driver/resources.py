"""Looks every few seconds at what the driver's JVM and the container use.

Main type: `ResourceWatch`. `host` reads what the system counts; the JVM itself says how
full its heap is and how long it has collected garbage.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

from py4j.protocol import Py4JError
import structlog

from mirror.host import memory_use, process_use
from mirror.status.values import JvmStatus, ResourceStatus

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from mirror.status.store import StatusStore

log = structlog.get_logger()

_EVERY_SECONDS = 5.0


class ResourceWatch:
    """Puts what it sees into the store."""

    def __init__(self, spark: SparkSession, store: StatusStore) -> None:
        self._store = store
        gateway: Any = spark.sparkContext._gateway
        beans = gateway.jvm.java.lang.management.ManagementFactory
        # Once: each call to the JVM, and each object of it to forget, wakes both sides.
        self._pid = int(beans.getRuntimeMXBean().getPid())
        self._memory = beans.getMemoryMXBean()
        self._collectors = list(beans.getGarbageCollectorMXBeans())
        self._looked_at = float("-inf")

    def look(self) -> None:
        """Look, unless the last time is only seconds ago."""
        now = time.monotonic()
        if now - self._looked_at < _EVERY_SECONDS:
            return
        self._looked_at = now
        used, limit = memory_use() or (None, None)
        self._store.resources = ResourceStatus(
            jvm=self._jvm(), memory_bytes=used, memory_limit_bytes=limit
        )

    def _jvm(self) -> JvmStatus | None:
        try:
            heap = self._memory.getHeapMemoryUsage()
            used, limit = int(heap.getUsed()), int(heap.getMax())
            spent = sum(each.getCollectionTime() for each in self._collectors)
        except (Py4JError, OSError) as error:
            # `supervisor` ends the service if the JVM is gone.
            log.debug("the JVM does not say what it uses", error=str(error))
            return None
        if (use := process_use(self._pid)) is None:  # not Linux
            return None
        return JvmStatus(
            heap_bytes=used,
            heap_limit_bytes=limit,
            gc_seconds=spent / 1000,
            cpu_seconds=use.cpu_seconds,
            memory_bytes=use.memory_bytes,
            open_files=use.open_files,
            open_files_limit=use.open_files_limit,
        )
