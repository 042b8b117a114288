"""The newest status of every flow: flows write it, the HTTP port reads it.

Main type: `StatusStore`. A change that matters to people also becomes an event
(`events`). `values` declares what a status consists of.
"""

from __future__ import annotations

from collections import Counter, OrderedDict
from dataclasses import replace
import threading
import time
from typing import TYPE_CHECKING

from mirror.status.events import Trail, noticed
from mirror.status.states import FlowState
from mirror.status.values import (
    ConfigStatus,
    ErrorStatus,
    FlowStatus,
    ResourceStatus,
    RiskStatus,
    ServiceStatus,
    VerifyStatus,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from mirror.status.values import ClusterStatus, PairStatus

    _Details = dict[str, int]


_STANDSTILL_SECONDS = 60.0
"""After this long without a sign of life, something will not recover by itself."""


class StatusStore:
    """The newest status of every flow, and the events that led there. Thread-safe."""

    def __init__(self, flows: tuple[str, ...]) -> None:
        self.trail = Trail()
        self._started = time.time()
        self._turned_at = 0.0
        self._reported: dict[str, tuple[float, float]] = {}
        """When each flow last reported: epoch seconds, and monotonic ones."""
        self._lock = threading.Lock()
        self.config = ConfigStatus()
        self.pairs: tuple[PairStatus, ...] = ()
        self.clusters: tuple[ClusterStatus, ...] = ()
        self.resources = ResourceStatus()
        self.errors = ErrorTotals()
        self._flows: dict[str, FlowStatus] = {}
        for name in flows:
            self.add(name)

    def add(self, flow: str) -> None:
        """Add a flow that is about to start."""
        new = FlowStatus(name=flow, state=FlowState.STARTING, since=time.time())
        with self._lock:
            self._flows[flow] = new

    def remove(self, flow: str) -> None:
        """Remove a flow that no longer runs here, and drop later reports about it."""
        with self._lock:
            self._flows.pop(flow, None)
            self._reported.pop(flow, None)

    def read(self) -> ServiceStatus:
        """Everything as of now, with overdue times brought up to date."""
        with self._lock:
            flows = tuple(self._flows.values())
        return ServiceStatus(
            started=self._started,
            flows=tuple(_later(flow, self._now(flow)) for flow in flows),
            config=self.config,
            pairs=self.pairs,
            clusters=self.clusters,
            errors=self.errors.read(),
            resources=self.resources,
        )

    def _now(self, flow: FlowStatus) -> float:
        """The time of day, counted from the flow's last report on the monotonic clock:
        setting the clock meanwhile makes nothing overdue.
        """
        reported = self._reported.get(flow.name)
        if reported is None:
            return time.time()
        return reported[0] + time.monotonic() - reported[1]

    def turned(self) -> None:
        """The service's main loop is alive."""
        self._turned_at = time.monotonic()

    def standstill(self) -> str:
        """What is stuck, in words; empty if nothing is."""
        if self._turned_at:
            still = time.monotonic() - self._turned_at
            if still > _STANDSTILL_SECONDS:
                return f"the service's main loop has been stuck for {still:.0f} s"
        for flow in self.read().flows:
            late = self._now(flow) - flow.report_due
            if flow.state is FlowState.RUNNING and late > _STANDSTILL_SECONDS:
                return f"flow {flow.name}: a lease is overdue by {late:.0f} s"
        return ""

    def flow(self, name: str) -> FlowStatus:
        with self._lock:
            return self._flows.get(name, FlowStatus(name=name, state=FlowState.STOPPED))

    def update(self, flow: str, change: Callable[[FlowStatus], FlowStatus]) -> None:
        """Put what `change` makes of a flow's status in its place; a new state starts
        its clock. Events that follow go to the trail.
        """
        with self._lock:
            if (old := self._flows.get(flow)) is None:
                return
            new = change(old)
            if new.state != old.state and new.since == old.since:
                new = replace(new, since=time.time())
            if new.reported_at != old.reported_at:
                self._reported[flow] = (time.time(), time.monotonic())
            self._flows[flow] = new
        for event in noticed(old, new):
            self.trail.add(event)


def not_beating(flow: FlowStatus) -> FlowStatus:
    """The status of a flow of which no job runs here."""
    return replace(
        flow, jobs=(), heartbeat_at=0.0, copied_heartbeat_at=0.0, standby_at=0.0
    )


def _later(flow: FlowStatus, now: float) -> FlowStatus:
    if flow.state in {FlowState.STANDBY, FlowState.RESTING}:
        # What was known when it last ran here is out of date.
        return replace(
            flow if flow.state is FlowState.RESTING else not_beating(flow),
            slot_loads=(),
            times=(),
            partitions=(),
            checkpoint_at=0.0,
            groups=(),
            group_count=0,
            risk=RiskStatus(),
            verify=VerifyStatus(),
        )
    if not (late := flow.overdue_seconds(now)):
        return flow
    partitions = (
        replace(partition, lag_seconds=partition.lag_seconds + late)
        if partition.lag_seconds >= 0
        else partition
        for partition in flow.partitions
    )
    return replace(flow, overdue=late, partitions=tuple(partitions))


# ---- how often brokers answered with errors ----
#
# Main type: `ErrorTotals`, which adds up what the driver's process and those of the
# slots counted. A process reports all that it has counted so far, so a report that is
# lost costs nothing if a later one comes.


_MOST_PROCESSES = 4096
"""More than run at a time; one that is forgotten and reports again counts twice."""

ErrorKey = tuple[str, str, str]


class ErrorTotals:
    """The errors of all processes of a service. Thread-safe."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._total: Counter[ErrorKey] = Counter()
        self._known: OrderedDict[str, Mapping[str, int]] = OrderedDict()
        self._own: Callable[[], Mapping[ErrorKey, int]] = dict

    def also(self, own: Callable[[], Mapping[ErrorKey, int]]) -> None:
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
