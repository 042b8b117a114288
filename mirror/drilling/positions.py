"""Whether groups would read the right records next.

Main function: `judge`, over where a failover would set them, what they have committed,
and which of the next records differ. Pure.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from mirror.status.wording import duration, some
from mirror.switching.findings import Finding, Level
from mirror.switching.steps.checks import EXACT

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Mapping

    from mirror.switching.group_places import GroupPlace, GroupPlaces

TopicPartition = tuple[str, int]


@dataclass(frozen=True, slots=True, kw_only=True)
class KnownPositions:
    """What was looked at."""

    flow: str
    places: GroupPlaces
    """From the last checkpoints."""
    committed: Mapping[str, Mapping[TopicPartition, int]]
    """What each group of the flow has committed on the source in copied topics."""
    written: Mapping[str, float]
    """When each group's last checkpoint was written."""
    wrong: Mapping[TopicPartition, Mapping[int, str]] = field(default_factory=dict)
    """Next records that are not the same, by source offset, and why."""
    unread: Mapping[TopicPartition, str] = field(default_factory=dict)
    """Partitions of which nothing can be compared, and why."""
    undecided: Mapping[TopicPartition, str] = field(default_factory=dict)
    """Partitions whose next records could not all be compared, and why."""
    records: int = 1
    """How many source offsets from a position on were compared."""
    stale_seconds: float = 60.0
    """Positions are this old when all is well."""

    def of_group(self, group: str) -> dict[TopicPartition, tuple[int, GroupPlace]]:
        """By partition of the source: the offset of the last checkpoint, and where
        that leads.
        """
        return {
            (along.topic, along.partition): (along.upstream, place)
            for place in self.places.places.get(group, {}).values()
            if (along := place.along) is not None
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class Judged:
    """What follows."""

    groups: int
    groups_exact: int
    partitions: int
    partitions_exact: int
    findings: tuple[Finding, ...]


def judge(
    known: KnownPositions,
    copied: frozenset[TopicPartition],
    bad: Collection[Finding],
    *,
    at: float,
) -> Judged:
    """`copied`: all partitions of the flow; `bad`: what is found of groups already;
    `at`: now.
    """
    names = sorted(known.committed)
    findings = [each for name in names for each in _of_group(known, name, at)]
    spoilt_groups = {each.subject for each in (*bad, *findings)}
    findings += _of_partitions(known.unread, Level.NOT_READY)
    findings += _of_partitions(known.undecided, Level.DEGRADED)
    spoilt = {
        key
        for group in names
        for key in known.committed[group]
        if not _is_exact(known, group, key)
    }
    spoilt |= known.unread.keys() | known.undecided.keys() | known.wrong.keys()
    return Judged(
        groups=len(names),
        groups_exact=sum(f"group {name}" not in spoilt_groups for name in names),
        partitions=len(copied),
        partitions_exact=len(copied - spoilt),
        findings=tuple(findings),
    )


def _of_partitions(
    why: Mapping[TopicPartition, str], level: Level
) -> Iterator[Finding]:
    for topic, reason in sorted({(topic, why[topic, n]) for topic, n in why}):
        yield Finding(
            level=level,
            subject=f"topic {topic}",
            reason=f"its next records cannot be compared: {reason}",
            fix="let mirror read both sides, and the flow copy it",
        )


def _is_exact(known: KnownPositions, group: str, key: TopicPartition) -> bool:
    _, place = known.of_group(group).get(key, (0, None))
    other = known.places.unjoined.get(key[0])
    exact = place is not None and place.exactness in EXACT
    return exact and not (other is not None and other.both_ways)


def _of_group(known: KnownPositions, group: str, at: float) -> Iterator[Finding]:
    committed = known.committed[group]
    checked = {key: offset for key, (offset, _) in known.of_group(group).items()}
    if differing := sorted(
        (key, offset, why)
        for key, first in checked.items()
        for offset, why in known.wrong.get(key, {}).items()
        if first <= offset < first + known.records
    ):
        (topic, partition), offset, why = differing[0]
        yield Finding(
            level=Level.NOT_READY,
            subject=f"group {group}",
            reason=f"of its next records in {topic}-{partition}, the one at offset "
            f"{offset} is not where it should be: {why}",
            fix="prove the copy, then repair it or rebuild it",
            command=f"mirror verify --flow '{known.flow}' --topic '{topic}'",
        )
    again = sum(max(committed[key] - checked[key], 0) for key in checked)
    age = at - known.written.get(group, at)
    if again and age > known.stale_seconds:
        yield Finding(
            level=Level.DEGRADED,
            subject=f"group {group}",
            reason=f"its position is {duration(age)} old: it would read about "
            f"{some(again, 'record')} again",
            fix="see why checkpoints are not written: is a service running?",
            command="mirror status",
        )
