"""Whether groups would go on where they stopped.

Main function: `judge`, over what a failover would set, what groups have committed, and
which of the next records differ. Pure.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from mirror.drilling.findings import DrillFinding, FindingLevel
from mirror.offsets.translation import Exactness
from mirror.status.wording import duration, named, some

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from mirror.clusters.admin.groups import Group
    from mirror.switching.group_places import Unjoined

TopicPartition = tuple[str, int]

_EXACT = frozenset({Exactness.EXACT, Exactness.TIP, Exactness.BEHIND})


@dataclass(frozen=True, slots=True, kw_only=True)
class Stand:
    """One partition of one group, named as on the source."""

    upstream: int
    """The source offset of its last checkpoint."""
    downstream: int
    """Where a failover would set it; -1 if it is not known."""
    exactness: Exactness


@dataclass(frozen=True, slots=True, kw_only=True)
class KnownPositions:
    """What was looked at."""

    source: str
    target: str
    stands: Mapping[str, Mapping[TopicPartition, Stand]]
    """By group, from the last checkpoints."""
    committed: Mapping[str, Mapping[TopicPartition, int]]
    """What each group of the flow has committed on the source in copied topics."""
    written: Mapping[str, float]
    """When each group's last checkpoint was written."""
    on_target: Mapping[str, Group]
    wrong: Mapping[TopicPartition, Mapping[int, str]] = field(default_factory=dict)
    """Next records that are not the same, by source offset, and why."""
    unread: Mapping[TopicPartition, str] = field(default_factory=dict)
    """Partitions of which nothing can be compared, and why."""
    undecided: Mapping[TopicPartition, str] = field(default_factory=dict)
    """Partitions whose next records could not all be compared, and why."""
    starts: Mapping[TopicPartition, int] = field(default_factory=dict)
    """Where the source's logs begin; 0 if that is not known."""
    unjoined: Mapping[str, Unjoined] = field(default_factory=dict)
    """Topics whose checkpoints do not know all of their copies, and why."""
    not_covered: tuple[str, ...] = ()
    """Share groups."""
    refused: Mapping[str, str] = field(default_factory=dict)
    """Groups that could not be read, and why."""
    records: int = 1
    """How many source offsets from a position on were compared."""
    stale_seconds: float = 60.0
    """Positions are this old when all is well."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Judged:
    """What follows."""

    groups: int
    groups_exact: int
    partitions: int
    partitions_exact: int
    findings: tuple[DrillFinding, ...]


def judge(
    known: KnownPositions, copied: frozenset[TopicPartition], *, at: float
) -> Judged:
    """`copied`: all partitions of the flow; `at`: now."""
    names = sorted(known.committed)
    findings = [each for name in names for each in _of_group(known, name, at)]
    bad = {each.subject for each in findings}
    # Groups that are gone from the source have checkpoints still, which are set too.
    findings += [
        each
        for name in sorted(known.stands.keys() - known.committed.keys())
        for each in _in_the_way(known, name)
    ]
    findings += _of_partitions(known.unread, FindingLevel.NOT_READY)
    findings += _of_partitions(known.undecided, FindingLevel.DEGRADED)
    findings += [
        DrillFinding(
            level=FindingLevel.DEGRADED,
            subject=f"group {name}",
            reason="a share group: it has no offsets to move",
            cure=f"set where it begins on {known.target} (share.auto.offset.reset)",
        )
        for name in known.not_covered
    ]
    findings += [
        DrillFinding(
            level=FindingLevel.NOT_READY,
            subject=f"group {name}",
            reason=f"what it has committed on {known.source} cannot be read: {why}",
            cure="give mirror DESCRIBE on the group, or leave it out",
            command="mirror config acls",
        )
        for name, why in sorted(known.refused.items())
    ]
    spoilt = {
        key
        for group in names
        for key in known.committed[group]
        if not _is_exact(known, group, key)
    }
    spoilt |= known.unread.keys() | known.undecided.keys() | known.wrong.keys()
    return Judged(
        groups=len(names),
        groups_exact=sum(f"group {name}" not in bad for name in names),
        partitions=len(copied),
        partitions_exact=len(copied - spoilt),
        findings=tuple(findings),
    )


def _of_partitions(
    why: Mapping[TopicPartition, str], level: FindingLevel
) -> Iterator[DrillFinding]:
    for topic, reason in sorted({(topic, why[topic, n]) for topic, n in why}):
        yield DrillFinding(
            level=level,
            subject=f"topic {topic}",
            reason=f"its next records cannot be compared: {reason}",
            cure="let mirror read both sides, and the flow copy it",
        )


def _is_exact(known: KnownPositions, group: str, key: TopicPartition) -> bool:
    stand = known.stands.get(group, {}).get(key)
    exact = stand is not None and stand.exactness in _EXACT
    other = known.unjoined.get(key[0])
    return exact and not (other is not None and other.both_ways)


def _in_the_way(known: KnownPositions, group: str) -> Iterator[DrillFinding]:
    there = known.on_target.get(group)
    if there is not None and not there.idle:
        yield DrillFinding(
            level=FindingLevel.NOT_READY,
            subject=f"group {group}",
            reason=f"it has members on {known.target}, so its position cannot be set "
            "there",
            cure=f"stop its consumers on {known.target}",
        )


def _of_group(known: KnownPositions, group: str, at: float) -> Iterator[DrillFinding]:
    subject, flow = f"group {group}", f"{known.source}->{known.target}"
    yield from _in_the_way(known, group)
    committed = known.committed[group]
    stands = {
        key: stand
        for key, stand in known.stands.get(group, {}).items()
        if key in committed
    }
    if missing := sorted(
        key for key in committed if key not in stands or stands[key].downstream < 0
    ):
        yield DrillFinding(
            level=FindingLevel.NOT_READY,
            subject=subject,
            reason=f"no position in {_named(missing)}: it would begin where "
            "auto.offset.reset says",
            cure="let the flow copy and checkpoint it, or leave the group out",
            command=f"mirror group describe --flow '{flow}' {group}",
        )
    placed = {key: each for key, each in stands.items() if each.downstream >= 0}
    if older := sorted(
        key for key, each in placed.items() if each.exactness is Exactness.BEFORE
    ):
        # Of an expired position, the group has lost the next records on both sides.
        kept = any(stands[key].upstream >= known.starts.get(key, 0) for key in older)
        yield DrillFinding(
            level=FindingLevel.NOT_READY if kept else FindingLevel.DEGRADED,
            subject=subject,
            reason=f"its position in {_named(older)} is older than all that the copy "
            "has, or mirror knows of it: it would begin at the copy's start, and miss "
            f"what is gone there{'' if kept else f'; {known.source} has lost it, too'}",
            cure="let it read on; compare the retention of both sides",
            command=f"mirror topic configs --flow '{flow}'",
        )
    if vague := sorted(
        key
        for key, each in placed.items()
        if each.exactness not in {*_EXACT, Exactness.BEFORE}
    ):
        yield DrillFinding(
            level=FindingLevel.DEGRADED,
            subject=subject,
            reason=f"its position in {_named(vague)} is only a lower bound: it would "
            "read records again",
            cure="let it read on until it is behind what mirror has copied",
        )
    read = sorted({topic for topic, _ in committed} & known.unjoined.keys())
    for both_ways in (True, False):
        if topics := [t for t in read if known.unjoined[t].both_ways is both_ways]:
            yield DrillFinding(
                level=FindingLevel.NOT_READY if both_ways else FindingLevel.DEGRADED,
                subject=subject,
                reason=f"in {named(topics)}: {known.unjoined[topics[0]].why}",
                cure=f"switch while {known.source} is there, which looks at both sides"
                if both_ways
                else "copy what others write under another name",
            )
    if odd := sorted(
        (key, offset, why)
        for key, stand in stands.items()
        for offset, why in known.wrong.get(key, {}).items()
        if stand.upstream <= offset < stand.upstream + known.records
    ):
        (topic, partition), offset, why = odd[0]
        yield DrillFinding(
            level=FindingLevel.NOT_READY,
            subject=subject,
            reason=f"of its next records in {topic}-{partition}, the one at offset "
            f"{offset} is not where it should be: {why}",
            cure="prove the copy, then repair it or rebuild it",
            command=f"mirror verify --flow '{flow}' --topic '{topic}'",
        )
    again = sum(max(committed[key] - stands[key].upstream, 0) for key in stands)
    age = at - known.written.get(group, at)
    if again and age > known.stale_seconds:
        yield DrillFinding(
            level=FindingLevel.DEGRADED,
            subject=subject,
            reason=f"its position is {duration(age)} old: it would read about "
            f"{some(again, 'record')} again",
            cure="see why checkpoints are not written: is a service running?",
            command="mirror status",
        )


def _named(keys: list[TopicPartition]) -> str:
    return named([f"{topic}-{number}" for topic, number in keys])
