"""How often brokers answered with errors: the part `errors` of a service's status.

Main types: `ErrorStatus`, and `ErrorTotals`, which adds up what the driver's process
and those of the slots counted. A process reports all that it has counted so far, so a
report that is lost costs nothing if a later one comes.
"""

from __future__ import annotations

from collections import Counter, OrderedDict
from dataclasses import dataclass
import threading
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

ERROR_METRICS = {
    "mirror_cluster_errors_total": "Errors that brokers of the cluster answered to "
    "this service, by Kafka's names; and connections that failed, as UNREACHABLE, "
    "TIMEOUT, DISCONNECTED or TLS.",
}
_MOST_PROCESSES = 4096
"""More than run at a time; one that is forgotten and reports again counts twice."""

Key = tuple[str, str, str]


@dataclass(frozen=True, slots=True, kw_only=True)
class ErrorStatus:
    """One error of one API."""

    cluster: str
    """Its alias."""
    api: str
    """Kafka's name for the request; Connect: the connection itself."""
    error: str
    """Kafka's name for the code, or what happened to the connection."""
    count: int
    """Since the service started."""


class ErrorTotals:
    """The errors of all processes of a service. Thread-safe."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._total: Counter[Key] = Counter()
        self._known: OrderedDict[str, Mapping[str, int]] = OrderedDict()
        self._own: Callable[[], Mapping[Key, int]] = dict

    def also(self, own: Callable[[], Mapping[Key, int]]) -> None:
        """Add what this process has counted whenever the totals are read."""
        self._own = own

    def add(self, process: str, counts: Iterable[tuple[str, int]]) -> None:
        """A process reports all that it has counted so far."""
        told = dict(counts)
        with self._lock:
            known = self._known.pop(process, {})
            self._known[process] = told
            while len(self._known) > _MOST_PROCESSES:
                self._known.popitem(last=False)
            for name, count in told.items():
                cluster, api, error = name.rsplit(" ", 2)
                self._total[cluster, api, error] += max(count - known.get(name, 0), 0)

    def read(self) -> tuple[ErrorStatus, ...]:
        with self._lock:
            total = self._total + Counter(self._own())
        return tuple(
            ErrorStatus(cluster=cluster, api=api, error=error, count=count)
            for (cluster, api, error), count in sorted(total.items())
        )
