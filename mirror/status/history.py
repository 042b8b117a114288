"""A short history of lags and rates, for the sparklines of the page.

Main type: `History`, a bounded series per flow and per topic; a thread samples the
store every few seconds. For anything older than ten minutes there is Prometheus.
"""

from __future__ import annotations

from collections import deque
import threading
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable

    from mirror.status.store import StatusStore
    from mirror.status.values import PartitionStatus, ServiceStatus

POINTS = 60
SECONDS = 10.0
"""Seconds between two points: together they cover ten minutes."""

Series = tuple[float, ...]
"""Oldest first; negative: not known."""


class History:
    """The last minutes of every flow and topic. Thread-safe."""

    def __init__(self, store: StatusStore, *, seconds: float = SECONDS) -> None:
        self._store = store
        self._seconds = seconds
        self._lock = threading.Lock()
        self._series: dict[tuple[str, ...], deque[float]] = {}
        """Lags by flow and topic, and rates by flow."""
        self._stopping = threading.Event()
        self._thread = threading.Thread(
            target=self._attend, name="mirror-history", daemon=True
        )

    def start(self) -> None:
        self._thread.start()

    def close(self) -> None:
        self._stopping.set()
        self._thread.join()

    def take(self, status: ServiceStatus) -> None:
        """Add one point, and drop series of what is no longer mirrored."""
        now: dict[tuple[str, ...], float] = {}
        for flow in status.flows:
            now[flow.name,] = flow.bytes_per_second
            for topic, lag in topic_lags(flow.partitions).items():
                now[flow.name, topic] = lag
        with self._lock:
            self._series = {
                key: deque((*self._series.get(key, ()), value), maxlen=POINTS)
                for key, value in now.items()
            }

    def lags(self, flow: str, topic: str) -> Series:
        """Lag in seconds of the partition furthest behind."""
        return self._read(flow, topic)

    def rates(self, flow: str) -> Series:
        """Bytes per second."""
        return self._read(flow)

    def _read(self, *key: str) -> Series:
        with self._lock:
            return tuple(self._series.get(key, ()))

    def _attend(self) -> None:
        while not self._stopping.wait(self._seconds):
            self.take(self._store.read())


def topic_lags(partitions: Iterable[PartitionStatus]) -> dict[str, float]:
    """Lag in seconds of each topic's partition furthest behind, -1 if not known."""
    found: dict[str, float] = {}
    for each in partitions:
        found[each.topic] = max(found.get(each.topic, -1.0), each.lag_seconds)
    return found
