"""What happened between two statuses of a flow, as events.

Main function: `noticed`, pure. It finds what a status shows: states of the flow and of
partitions, losses, problems, leaders, failing jobs. Anything else, such as a created
topic, is reported by the code that does it.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from mirror.status.events import Event, EventKind
from mirror.status.states import FlowState, PartitionState
from mirror.status.wording import some

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from mirror.status.values import FlowStatus, PartitionStatus

    Pair = tuple[PartitionStatus | None, PartitionStatus]

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
    faulted = [pair for pair in pairs if _is_new_fault(*pair)]
    yield from _by_topic(after, faulted, _faulted)
    back = [
        (old, now)
        for old, now in pairs
        if old is not None and _is_back(old.state, now.state)
    ]
    yield from _by_topic(after, back, _recovered)
    lost = [pair for pair in pairs if _lost(*pair)]
    yield from _by_topic(after, lost, _gone)


def _is_new_fault(old: PartitionStatus | None, now: PartitionStatus) -> bool:
    if now.state != PartitionState.FAULTED:
        return False
    return old is None or (old.state, old.reason) != (now.state, now.reason)


def _is_back(before: PartitionState, now: PartitionState) -> bool:
    return before == PartitionState.FAULTED and now not in {
        PartitionState.FAULTED,
        PartitionState.PAUSED,
    }


def _lost(old: PartitionStatus | None, now: PartitionStatus) -> int:
    return max(now.counts.lost - (old.counts.lost if old else 0), 0)


def _by_topic(
    flow: FlowStatus, pairs: Iterable[Pair], make: Callable[[str, list[Pair]], Event]
) -> Iterator[Event]:
    """One event per topic, and one for all topics beyond the first ones."""
    topics: dict[str, list[Pair]] = {}
    for pair in pairs:
        topics.setdefault(pair[1].topic, []).append(pair)
    made: list[Event] = []
    for topic, of_topic in topics.items():
        if len(made) == _MOST_TOPICS:
            left = list(topics)[_MOST_TOPICS:]
            made.append(
                Event(
                    kind=made[-1].kind,
                    text=f"the same for {len(left)} more topics, such as {topic}",
                    details={"topics": left[:_MOST_NAMED]},
                )
            )
            break
        made.append(make(_subject(of_topic), of_topic))
    for event in made:
        yield replace(event, flow=flow.name)


def _subject(pairs: list[Pair]) -> str:
    now = pairs[0][1]
    return now.topic if len(pairs) > 1 else f"{now.topic}-{now.partition}"


def _words(subject: str, pairs: list[Pair]) -> str:
    count = len(pairs)
    return f"{count} partitions of {subject} are" if count > 1 else f"{subject} is"


def _numbers(pairs: list[Pair]) -> list[int]:
    return [now.partition for _, now in pairs][:_MOST_NAMED]


def _faulted(subject: str, pairs: list[Pair]) -> Event:
    return Event(
        kind=EventKind.PARTITION_FAULTED,
        subject=subject,
        text=f"{_words(subject, pairs)} set aside: {pairs[0][1].reason}",
        details={"partitions": _numbers(pairs)},
    )


def _recovered(subject: str, pairs: list[Pair]) -> Event:
    return Event(
        kind=EventKind.PARTITION_RECOVERED,
        subject=subject,
        text=f"{_words(subject, pairs)} being copied again",
        details={"partitions": _numbers(pairs)},
    )


def _gone(subject: str, pairs: list[Pair]) -> Event:
    count = sum(_lost(*pair) for pair in pairs)
    return Event(
        kind=EventKind.OFFSETS_LOST,
        subject=subject,
        text=f"{some(count, 'offset')} of {subject} will not be copied: "
        "`mirror loss list` shows their ranges and causes",
        details={"partitions": _numbers(pairs), "offsets": count},
    )


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
