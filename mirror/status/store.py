"""The newest status of every flow: flows write it, the HTTP port reads it.

Main type: `StatusStore`. A change that matters to people also becomes an event
(`noticed`). `values` declares what a status consists of.
"""

from __future__ import annotations

from collections import Counter, OrderedDict
from dataclasses import replace
import threading
import time
from typing import TYPE_CHECKING

from mirror.status.events import Event, EventKind, Trail
from mirror.status.states import FlowState, PartitionState
from mirror.status.values import (
    ConfigStatus,
    ErrorStatus,
    FlowStatus,
    ResourceStatus,
    RiskStatus,
    ServiceStatus,
    VerifyStatus,
)
from mirror.status.wording import some

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    from mirror.status.values import ClusterStatus, PairStatus, PartitionStatus

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


# ---- what happened between two statuses of a flow, as events ----
#
# Main function: `noticed`, pure. It finds what a status shows: states of the flow
# and of partitions, losses, problems, leaders, failing jobs. Anything else, such as
# a created topic, is reported by the code that does it.


_MOST_TOPICS = 20
"""Because a cluster that is down sets everything aside at once."""
_MOST_NAMED = 50


def noticed(before: FlowStatus, after: FlowStatus) -> Iterator[Event]:
    """Events in the order in which they matter."""
    if after.leader and after.leader != before.leader:
        yield Event(
            kind=EventKind.LEADER_CHANGED,
            flow=after.name,
            text=f"{after.leader} leads the flow",
            details={"leader": after.leader, "before": before.leader},
        )
    yield from _states(before, after)
    if after.partitions is not before.partitions:
        yield from _partitions(before, after)
    if after.problems != before.problems:
        yield from _problems(before, after)
    if after.jobs is not before.jobs:
        yield from _jobs(before, after)


def _states(before: FlowStatus, after: FlowStatus) -> Iterator[Event]:
    if (before.state, before.reason) == (after.state, after.reason):
        return
    state, flow = after.state, after.name
    if state is FlowState.RETRYING:
        yield Event(
            kind=EventKind.FLOW_FAILED,
            flow=flow,
            text=f"flow failed and will restart: {after.reason}",
            details={"restarts": after.restarts},
        )
    elif before.state == after.state:
        return
    elif state is FlowState.FAILED:
        text = f"flow given up: {after.reason}"
        yield Event(kind=EventKind.FLOW_FAILED, flow=flow, text=text)
    elif state is FlowState.RUNNING:
        failures = some(after.restarts, "failure")
        again = f" again, after {failures}" if after.restarts else ""
        yield Event(
            kind=EventKind.FLOW_STARTED,
            flow=flow,
            text=f"flow runs{again}",
            details={"slots": after.slots, "restarts": after.restarts},
        )
    elif state is FlowState.STOPPED:
        yield Event(kind=EventKind.FLOW_STOPPED, flow=flow, text="flow stopped")


def _partitions(before: FlowStatus, after: FlowStatus) -> Iterator[Event]:
    last = {(p.topic, p.partition): p for p in before.partitions}
    pairs = [(last.get((p.topic, p.partition)), p) for p in after.partitions]
    faulted = [now for old, now in pairs if _is_new_fault(old, now)]
    yield from _by_topic(
        EventKind.PARTITION_FAULTED,
        after,
        faulted,
        lambda subject, parts: (
            f"{_are(subject, parts)} set aside: {parts[0].reason}",
            {},
        ),
    )
    back = [now for old, now in pairs if old is not None and _is_back(old, now)]
    yield from _by_topic(
        EventKind.PARTITION_RECOVERED,
        after,
        back,
        lambda subject, parts: (f"{_are(subject, parts)} being copied again", {}),
    )
    lost = {
        (now.topic, now.partition): now.counts.lost - (old.counts.lost if old else 0)
        for old, now in pairs
    }

    def gone(subject: str, parts: Sequence[PartitionStatus]) -> tuple[str, _Details]:
        count = sum(lost[part.topic, part.partition] for part in parts)
        text = (
            f"{some(count, 'offset')} of {subject} will not be copied: "
            "`mirror loss list` shows their ranges and causes"
        )
        return text, {"offsets": count}

    losing = [p for p in after.partitions if lost[p.topic, p.partition] > 0]
    yield from _by_topic(EventKind.OFFSETS_LOST, after, losing, gone)


def _is_new_fault(old: PartitionStatus | None, now: PartitionStatus) -> bool:
    if now.state != PartitionState.FAULTED:
        return False
    return old is None or (old.state, old.reason) != (now.state, now.reason)


def _is_back(old: PartitionStatus, now: PartitionStatus) -> bool:
    still = {PartitionState.FAULTED, PartitionState.PAUSED}
    return old.state == PartitionState.FAULTED and now.state not in still


def _by_topic(
    kind: EventKind,
    flow: FlowStatus,
    parts: Iterable[PartitionStatus],
    tell: Callable[[str, Sequence[PartitionStatus]], tuple[str, _Details]],
) -> Iterator[Event]:
    """One event per topic, and one for all topics beyond the first ones. `tell` puts it
    in words, with further details.
    """
    topics: dict[str, list[PartitionStatus]] = {}
    for part in parts:
        topics.setdefault(part.topic, []).append(part)
    for topic in [*topics][:_MOST_TOPICS]:
        of_topic = topics[topic]
        alone = len(of_topic) == 1
        subject = f"{topic}-{of_topic[0].partition}" if alone else topic
        text, more = tell(subject, of_topic)
        numbers = [part.partition for part in of_topic][:_MOST_NAMED]
        yield Event(
            kind=kind,
            flow=flow.name,
            subject=subject,
            text=text,
            details={"partitions": numbers, **more},
        )
    if left := [*topics][_MOST_TOPICS:]:
        yield Event(
            kind=kind,
            flow=flow.name,
            text=f"the same for {len(left)} more topics, such as {left[0]}",
            details={"topics": left[:_MOST_NAMED]},
        )


def _are(subject: str, parts: Sequence[PartitionStatus]) -> str:
    count = len(parts)
    return f"{count} partitions of {subject} are" if count > 1 else f"{subject} is"


def _problems(before: FlowStatus, after: FlowStatus) -> Iterator[Event]:
    flow = after.name
    for text in after.problems:
        if text not in before.problems:
            yield Event(kind=EventKind.PROBLEM, flow=flow, text=text)
    # A starting flow has not checked yet: a problem it does not report may persist.
    if before.state is after.state is FlowState.RUNNING:
        for text in before.problems:
            if text not in after.problems:
                gone = f"resolved: {text}"
                yield Event(kind=EventKind.PROBLEM_GONE, flow=flow, text=gone)


def _jobs(before: FlowStatus, after: FlowStatus) -> Iterator[Event]:
    last = {job.name: job for job in before.jobs}
    for job in after.jobs:
        old = last.get(job.name)
        if job.error and (old is None or old.failures != job.failures):
            yield Event(
                kind=EventKind.JOB_FAILED,
                flow=after.name,
                subject=job.name,
                text=f"job {job.name} failed: {job.error}",
                details={"failures": job.failures},
            )
        elif old is not None and old.error and not job.error and job.succeeded_at:
            yield Event(
                kind=EventKind.JOB_RECOVERED,
                flow=after.name,
                subject=job.name,
                text=f"job {job.name} works again",
            )


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
