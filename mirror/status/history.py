"""A short memory of lags and rates, for the little curves of the page.

Main type: `History`, a bounded series per flow and per topic, from looks at the store
that a thread takes every few seconds. It is for eyes: whoever wants to know how things
were yesterday asks Prometheus.
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
"""Between two points: together they cover ten minutes."""

Series = tuple[float, ...]
"""Oldest first; negative: not known."""


class History:
    """The last minutes of every flow and topic. Thread-safe."""

    def __init__(self, store: StatusStore, *, seconds: float = SECONDS) -> None:
        self._store = store
        self._seconds = seconds
        self._lock = threading.Lock()
        self._lags: dict[tuple[str, str], deque[float]] = {}
        self._rates: dict[str, deque[float]] = {}
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
        """Add one point; what is not mirrored any more is forgotten."""
        lags = {
            (flow.name, topic): lag
            for flow in status.flows
            for topic, lag in topic_lags(flow.partitions).items()
        }
        rates = {flow.name: flow.bytes_per_second for flow in status.flows}
        with self._lock:
            self._lags = {
                key: _longer(self._lags.get(key), lag) for key, lag in lags.items()
            }
            self._rates = {
                name: _longer(self._rates.get(name), rate)
                for name, rate in rates.items()
            }

    def lags(self, flow: str, topic: str) -> Series:
        """Of its latest partition, in seconds."""
        with self._lock:
            return tuple(self._lags.get((flow, topic), ()))

    def rates(self, flow: str) -> Series:
        """Bytes per second."""
        with self._lock:
            return tuple(self._rates.get(flow, ()))

    def _attend(self) -> None:
        while not self._stopping.wait(self._seconds):
            self.take(self._store.read())


def topic_lags(partitions: Iterable[PartitionStatus]) -> dict[str, float]:
    """The lag in seconds of each topic's latest partition, -1 if none is known."""
    found: dict[str, float] = {}
    for each in partitions:
        found[each.topic] = max(found.get(each.topic, -1.0), each.lag_seconds)
    return found


def _longer(series: deque[float] | None, value: float) -> deque[float]:
    if series is None:
        series = deque(maxlen=POINTS)
    series.append(value)
    return series
