"""The event trail: what the service changed on clusters, and what happened to flows.

Main types: `Event`, a frozen value, and `Trail`, which gives each event its id, logs it
and keeps the newest of every kind in memory. The log is the archive. Events come from
the code that changes something, or from `noticed`, which compares statuses.
"""

from __future__ import annotations

from collections import deque
from dataclasses import asdict, dataclass, field, replace
from enum import StrEnum
import math
import threading
import time
from typing import TYPE_CHECKING, Any

from mirror.status.states import FlowState, PartitionState
from mirror.status.wording import some

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    from mirror.status.values import FlowStatus, PartitionStatus

    _Details = dict[str, int]

FORMAT_VERSION = 1
MOST_OF_A_KIND = 250
"""Frequent events must not push out rare ones."""
_LOG_AGAIN_SECONDS = 60.0


class EventKind(StrEnum):
    """The kind of event. Kinds may be added, never renamed."""

    COMMAND = "command"
    """A person changed something with a command, or tried; in the audit topic."""
    SERVICE_STARTED = "service-started"
    CONFIGURATION_RELOADED = "configuration-reloaded"
    CONFIGURATION_REFUSED = "configuration-refused"
    """A new configuration cannot be used; the previous one stays."""
    FLOW_STARTED = "flow-started"
    """Its leases run, for the first time or again."""
    FLOW_FAILED = "flow-failed"
    FLOW_STOPPED = "flow-stopped"
    FLOW_PAUSED = "flow-paused"
    """The pause rules changed, and some are in force now."""
    FLOW_RESUMED = "flow-resumed"
    LEADER_CHANGED = "leader-changed"
    TOPIC_CREATED = "topic-created"
    """A copy was made on the target."""
    TOPIC_GROWN = "topic-grown"
    """A copy got more partitions."""
    TOPIC_GONE = "topic-gone"
    """A source topic was deleted."""
    TOPIC_RECREATED = "topic-recreated"
    """A source topic was deleted and re-created."""
    CONFIG_CHANGED = "config-changed"
    """A config of a copy, or of one of mirror's own topics, was set or removed."""
    SCHEMA_CHANGED = "schema-changed"
    """A version or a level was written to the target's schema registry."""
    ACL_ADDED = "acl-added"
    ACL_REMOVED = "acl-removed"
    GROUP_FOUND = "group-found"
    """A consumer group got its first checkpoints."""
    GROUP_GONE = "group-gone"
    """The group is gone from the source; its checkpoints stay."""
    GROUP_OFFSETS_SET = "group-offsets-set"
    """On the target, for groups without members there."""
    PARTITION_FAULTED = "partition-faulted"
    PARTITION_RECOVERED = "partition-recovered"
    OFFSETS_LOST = "offsets-lost"
    COPY_REPAIRED = "copy-repaired"
    """Missing records were appended to copies, by `mirror repair`."""
    COPY_DIFFERS = "copy-differs"
    """The service proved copies, and found something missing or wrong."""
    READINESS_FELL = "readiness-fell"
    """A drill of a pair found more in the way of a failover than the one before."""
    PROBLEM = "problem"
    PROBLEM_GONE = "problem-gone"
    JOB_FAILED = "job-failed"
    JOB_RECOVERED = "job-recovered"


_ERRORS = frozenset(
    {
        EventKind.FLOW_FAILED,
        EventKind.OFFSETS_LOST,
        EventKind.COPY_DIFFERS,
        EventKind.CONFIGURATION_REFUSED,
    }
)
_WARNINGS = frozenset(
    {
        EventKind.TOPIC_GONE,
        EventKind.TOPIC_RECREATED,
        EventKind.PARTITION_FAULTED,
        EventKind.READINESS_FELL,
        EventKind.PROBLEM,
        EventKind.JOB_FAILED,
    }
)


class Level(StrEnum):
    """Severity."""

    INFO = "info"
    WARNING = "warning"
    ERROR = "error"


@dataclass(frozen=True, slots=True, kw_only=True)
class Event:
    """Something that happened."""

    kind: EventKind
    text: str
    """The event in words."""
    flow: str = ""
    """Empty if the event is about the service."""
    cluster: str = ""
    """The alias of the cluster it happened on; empty if on none."""
    subject: str = ""
    """The topic, partition, group or job it happened to."""
    details: Mapping[str, Any] = field(default_factory=dict)
    """Details for programs, as JSON values."""
    id: int = 0
    """Grows from event to event, across restarts of the service."""
    time: float = 0.0
    """When it (last) happened, epoch seconds."""
    times: int = 1
    """How often it happened in a row."""
    first: float = 0.0
    """When it first happened."""

    @property
    def level(self) -> Level:
        if self.kind in _ERRORS:
            return Level.ERROR
        return Level.WARNING if self.kind in _WARNINGS else Level.INFO

    def document(self) -> dict[str, Any]:
        """Plain values for `json.dumps`."""
        return {**asdict(self), "level": self.level.value}

    def is_like(self, other: Event) -> bool:
        return self.is_of_same(other) and self.text == other.text

    def is_of_same(self, other: Event) -> bool:
        mine = (self.flow, self.cluster, self.subject)
        return mine == (other.flow, other.cluster, other.subject)


class Trail:
    """The newest events. Thread-safe."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._kinds: dict[EventKind, deque[Event]] = {}
        self._logged_at: dict[int, float] = {}
        """When a kept event was last logged, by its id; monotonic."""
        self._last_id = 0
        self.archive: Callable[[Event], None] = lambda _event: None
        """Receives each event that is logged; must not wait."""

    def add(self, event: Event) -> Event:
        """Keep and log an event; one that only repeats the last of its kind on the same
        subject replaces it, and is logged once a minute.
        """
        now = time.time()
        with self._lock:
            kept = self._kinds.setdefault(event.kind, deque(maxlen=MOST_OF_A_KIND))
            before = next((e for e in reversed(kept) if e.is_of_same(event)), None)
            repeats = before is not None and before.is_like(event)
            # Milliseconds, so that ids of a later run are greater.
            self._last_id = max(int(now * 1000), self._last_id + 1)
            event = replace(event, id=self._last_id, time=now, first=now)
            logged_at = -math.inf
            if before is not None and repeats:
                kept.remove(before)
                event = replace(event, times=before.times + 1, first=before.first)
                logged_at = self._logged_at.pop(before.id, -math.inf)
            elif len(kept) == MOST_OF_A_KIND:
                self._logged_at.pop(kept[0].id, None)
            running = time.monotonic()
            due = running - logged_at >= _LOG_AGAIN_SECONDS
            self._logged_at[event.id] = running if due else logged_at
            kept.append(event)
        if due:
            _log(event)
            self.archive(event)
        return event

    def read(
        self, *, since: int = 0, flow: str | None = None, kinds: Iterable[str] = ()
    ) -> tuple[Event, ...]:
        """Events with greater ids than `since`, oldest first; no `kinds` are all."""
        wanted = set(kinds)
        with self._lock:
            found = [
                event
                for kind, kept in self._kinds.items()
                if not wanted or kind in wanted
                for event in kept
                if event.id > since and flow in (None, event.flow)
            ]
        return tuple(sorted(found, key=lambda event: event.id))


def _log(event: Event) -> None:
    said = {
        "flow": event.flow,
        "cluster": event.cluster,
        "subject": event.subject,
        **event.details,
    }
    if event.times > 1:
        said["times"] = event.times
    said = {name: value for name, value in said.items() if value != ""}
    import structlog  # noqa: PLC0415  commands that log no event need not wait for it

    log = structlog.get_logger()
    getattr(log, event.level)(event.text, kind=event.kind.value, **said)


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
