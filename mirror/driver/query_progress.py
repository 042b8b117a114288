"""Copies Spark's progress of the streaming queries into the status store.

Main type: `QueryListener`, one for all flows; Spark calls it independently of the
leases. It decides nothing; a lease's own report has more detail about what was copied.
pyspark asks the JVM for each field of an event, 0.15 s of CPU for one micro-batch: here
an event comes as one JSON text.
"""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime
import json
import threading
from typing import TYPE_CHECKING, Any

from pyspark import SparkContext
from pyspark.sql.streaming.listener import (
    JStreamingQueryListener,
    QueryProgressEvent,
    StreamingQueryListener,
)

if TYPE_CHECKING:
    from pyspark.sql.streaming.listener import (
        QueryIdleEvent,
        QueryStartedEvent,
        QueryTerminatedEvent,
    )

    from mirror.status.store import StatusStore
    from mirror.status.values import FlowStatus


class QueryListener(StreamingQueryListener):
    """Puts each query's last micro-batch into the status of its flow."""

    def __init__(self, store: StatusStore) -> None:
        self._store = store
        self._lock = threading.Lock()
        self._flows: dict[str, str] = {}
        """Flow names by the run ids of their queries."""
        self._called: Any = None

    @property
    def _jlistener(self) -> Any:
        """What pyspark gives to the JVM."""
        if self._called is None:
            jvm: Any = SparkContext._jvm
            self._called = jvm.PythonStreamingQueryListenerWrapper(_Called(self))
        return self._called

    def onQueryStarted(self, event: QueryStartedEvent) -> None:
        if event.name:
            with self._lock:
                self._flows[str(event.runId)] = event.name

    def onQueryProgress(self, event: QueryProgressEvent) -> None:
        progress = event.progress
        if not progress.name:
            return
        began = datetime.fromisoformat(progress.timestamp).timestamp()
        phases = sorted(progress.durationMs.items())
        self._store.update(
            progress.name,
            lambda flow: replace(
                flow,
                spark=replace(
                    flow.spark,
                    batches=flow.spark.batches + 1,
                    began_at=began,
                    phases=tuple((name, ms / 1000) for name, ms in phases),
                ),
            ),
        )

    def onQueryIdle(self, event: QueryIdleEvent) -> None:
        """Never happens: one micro-batch follows another, and waits by itself."""

    def onQueryTerminated(self, event: QueryTerminatedEvent) -> None:
        with self._lock:
            flow = self._flows.pop(str(event.runId), "")
        if flow and event.exception:
            self._store.update(flow, _failed)


class _Called(JStreamingQueryListener):
    """What the JVM calls; other events than progress are rare."""

    def onQueryProgress(self, jevent: Any) -> None:
        event = QueryProgressEvent.fromJson(json.loads(jevent.json()))
        self.pylistener.onQueryProgress(event)


def _failed(flow: FlowStatus) -> FlowStatus:
    return replace(flow, spark=replace(flow.spark, failures=flow.spark.failures + 1))
