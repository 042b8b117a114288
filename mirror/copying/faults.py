"""Partitions set aside: why, since when, and when to try again.

Main type: `Faults`. Each retry waits longer (`retry.PARTITION`) until the partition is
copied again, unless an election hastens it. Pauses use the monotonic clock; only what
people read is a time of day.
Two pure functions: `obstacle` says why metadata and progress rule out copying a
partition, `blamed` which partitions an error of the slot sets aside.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
import time
from typing import TYPE_CHECKING

from mirror import retry
from mirror.clusters import codes
from mirror.errors import LeaderError, PartitionError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from mirror.clusters.topics import Topic, TopicPartition
    from mirror.copying.lease import Assignment
    from mirror.errors import MirrorError
    from mirror.offsets.progress import Position


@dataclass(frozen=True, slots=True, kw_only=True)
class Fault:
    """Why a partition is set aside."""

    reason: str
    since: float
    """Epoch seconds, for display."""
    pause: float
    retry_at: float
    """Monotonic seconds."""
    retried: bool = False
    """Whether it is being retried, and has not failed again so far."""


class Faults:
    """The set-aside partitions of one slot."""

    def __init__(self) -> None:
        self._faults: dict[TopicPartition, Fault] = {}

    def set_aside(self, key: TopicPartition, reason: str) -> None:
        """Set a partition aside, each time in a row for longer than the last."""
        known = self._faults.get(key)
        pause = retry.PARTITION.after(known.pause if known else 0.0)
        self._faults[key] = Fault(
            reason=reason,
            since=known.since if known else time.time(),
            pause=pause,
            retry_at=time.monotonic() + pause,
        )

    def hasten(self, keys: Iterable[TopicPartition]) -> None:
        """Retry these next: what was wrong with them has changed."""
        for key in self._faults.keys() & set(keys):
            self._faults[key] = replace(self._faults[key], retry_at=time.monotonic())

    def due(self) -> bool:
        """Whether it is time to retry any partition."""
        now = time.monotonic()
        return any(fault.retry_at <= now for fault in self._faults.values())

    def start_retry(self, *, after_error: bool) -> set[TopicPartition]:
        """Start the retry of partitions that are due. Those that are being retried go
        on with it, unless an error ended it; so two partitions do not end each other's
        retries. Returns the partitions that stay aside.
        """
        now = time.monotonic()
        aside = {
            key
            for key, fault in self._faults.items()
            if fault.retry_at > now and (after_error or not fault.retried)
        }
        for key in self._faults.keys() - aside:
            fault = self._faults[key]
            # A retry that led nowhere may have been too short.
            too_short = fault.retried and fault.retry_at <= now
            pause = retry.PARTITION.after(fault.pause) if too_short else fault.pause
            self._faults[key] = replace(
                fault, pause=pause, retry_at=now + pause, retried=True
            )
        return aside

    def clear(self, key: TopicPartition) -> None:
        """Forget the fault: the partition was copied."""
        self._faults.pop(key, None)

    def keep_only(self, keys: set[TopicPartition]) -> None:
        for key in self._faults.keys() - keys:
            del self._faults[key]

    def get(self, key: TopicPartition) -> Fault | None:
        return self._faults.get(key)


def obstacle(
    assignment: Assignment, *, source: Topic, target: Topic, position: Position | None
) -> str:
    """Why this partition cannot be read or written now; empty if it can."""
    topic, partition = assignment.topic, assignment.partition
    if source.error:
        return f"source topic {topic}: {_named(source.error, 'READ', topic)}"
    if partition not in source.leaders or source.leaders[partition].node < 0:
        return f"source partition {topic}-{partition} has no leader"
    if position is None:
        return f"no start offset for {topic}-{partition}"
    if target.error:
        why = _named(target.error, "WRITE", target.name)
        return f"target topic {target.name}: {why}"
    if partition not in target.leaders:
        return f"target topic {target.name} has only {target.partitions} partitions"
    if target.leaders[partition].node < 0:
        return f"target partition {target.name}-{partition} has no leader"
    return ""


def _named(code: int, right: str, topic: str) -> str:
    name = codes.name_of(code)
    return f"{name}{_remedy(name, right, topic)}"


def _remedy(error: str, right: str, topic: str) -> str:
    """What ends this error, as the end of a sentence; empty if its name says it."""
    if error == "INVALID_TIMESTAMP":
        return f"; set message.timestamp.after.max.ms (or before.max.ms) of {topic}"
    if error == "TOPIC_AUTHORIZATION_FAILED":
        return f"; grant mirror {right} on it, see mirror config acls -o commands"
    return ""


def blamed(
    error: MirrorError,
    *,
    writers_to: Callable[[str, int], Iterable[TopicPartition]],
    fewer_than: int | None,
) -> dict[TopicPartition, tuple[str, str]]:
    """The partitions that are to blame for an error, each with the reason and Kafka's
    name for it; none if the whole slot fails. `writers_to`: whose records go to a
    partition of the target. `fewer_than`: a leader's silence fails the slot if it leads
    this many; None: never.
    """
    if isinstance(error, PartitionError):
        return {
            key: (f"target {each.topic}-{each.partition}: {why}", each.error)
            for each in error.each
            for why in [f"{each.reason}{_remedy(each.error, 'WRITE', each.topic)}"]
            for key in writers_to(each.topic, each.partition)
        }
    if isinstance(error, LeaderError) and (
        fewer_than is None or len(error.partitions) < fewer_than
    ):
        return dict.fromkeys(error.partitions, (str(error), ""))
    return {}
