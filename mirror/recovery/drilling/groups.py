"""Whether groups would read the right records next after a failover.

Main function: `judge`. It takes each group's position as a failover would set it, from
the last checkpoints and the offset map, and compares the records that follow on both
sides. `judge_positions` concludes from that, without clusters.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
import time
from typing import TYPE_CHECKING

from mirror.clusters.admin import group_offsets
from mirror.clusters.topics import TopicPartition
from mirror.offsets import checkpoints
from mirror.offsets.checkpoints import checkpoints_topic
from mirror.offsets.groups import not_covered
from mirror.offsets.translation import Exactness
from mirror.policy.selection import GroupFilter
from mirror.proofs.ranges import RunFiles
from mirror.proofs.runners import InProcess
from mirror.proofs.sides import keeping
from mirror.proofs.steps import ProofStep
from mirror.recovery.stage import Finding, Level
from mirror.recovery.steps import checks
from mirror.recovery.steps.checks import EXACT
from mirror.recovery.steps.positions import GroupPlace, places_of
from mirror.status.wording import duration, some

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from mirror.clusters.cluster import Cluster
    from mirror.proofs.account import CopiedPartition
    from mirror.proofs.ranges import Range
    from mirror.proofs.survey import ProofSurvey
    from mirror.recovery.steps.checks import Seen
    from mirror.recovery.steps.positions import GroupPlaces


_Committed = dict[str, dict[TopicPartition, int]]

_LEAST_STALE_SECONDS = 60.0
_CHECKPOINT_ROUNDS = 3
_MOST_CHECKPOINT_SECONDS = 11.0
_PAUSE_SECONDS = 0.5
_RANGE_BYTES = 1 << 20
_AT_ONCE = 32
"""Partitions per call of the comparison."""
_NEAR = 100
"""Source offsets between windows that are read as one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ComparedNext:
    """What the comparison of the next records found."""

    partitions: frozenset[TopicPartition] = frozenset()
    """All that the flow copies."""
    wrong: Mapping[TopicPartition, Mapping[int, str]] = field(default_factory=dict)
    """By source offset, what is wrong with a record; with one that only the copy has,
    by where the first window begins."""
    unread: Mapping[TopicPartition, str] = field(default_factory=dict)
    """Partitions of which nothing can be compared, and why."""
    undecided: Mapping[TopicPartition, str] = field(default_factory=dict)
    """Partitions of which something could not be compared, and why."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Judged:
    """What follows."""

    groups: int
    groups_exact: int
    partitions: int
    partitions_exact: int
    findings: tuple[Finding, ...]


def judge(seen: Seen, *, records: int, wait: bool) -> Judged:
    """Compare so many source offsets from each position on; `seen` gets the places.
    `wait` as for `places_of`.

    Raises:
        MirrorError: a cluster does not answer, or the flow never ran.
    """
    stage, flow = seen.stage, seen.flow
    committed, refused = _committed(seen)
    _wait_for_checkpoints(seen, committed)
    found = places_of(stage, wait=wait)
    seen.places = replace(
        found, places=_read(seen, found, committed), failures=(*refused.items(),)
    )
    asked: dict[TopicPartition, set[int]] = {}
    for group in committed:
        for key, (offset, _) in _checked(seen, group).items():
            asked.setdefault(key, set()).add(offset)
    compared = _compare(seen, asked, records=records)
    written = checkpoints.times(
        stage.target, checkpoints_topic(flow.source, flow.mm2_separator)
    )
    return judge_positions(seen, committed, written, compared, records=records)


def _committed(seen: Seen) -> tuple[_Committed, Mapping[str, str]]:
    """What the source's groups have committed in copied topics, and those that could
    not be read.
    """
    flow = seen.flow
    wanted = GroupFilter(include=flow.groups, exclude=flow.groups_exclude)
    listed = {name: g for name, g in seen.groups.items() if wanted.matches(name)}
    left_out = not_covered(listed, seen.stage.source, seen.stage.target)
    fetched = group_offsets.fetch(seen.stage.source, listed.keys() - {*left_out})
    topics = {each.topic for each in seen.topics}
    found = {
        name: {key: each.offset for key, each in offsets.items() if key[0] in topics}
        for name, offsets in fetched.groups.items()
    }
    return {n: each for n, each in found.items() if each}, fetched.refused


def _wait_for_checkpoints(seen: Seen, committed: _Committed) -> None:
    """What a group has just committed for the first time has its checkpoint soon."""
    flow, target = seen.flow, seen.stage.target
    copies = {each.topic: each.target_topic for each in seen.topics}
    wanted = {
        (group, copies[topic], number)
        for group, places in committed.items()
        for topic, number in places
    }
    until = time.monotonic() + min(
        flow.emit_checkpoints_seconds + 1, _MOST_CHECKPOINT_SECONDS
    )
    while True:
        known = checkpoints.read(
            target, checkpoints_topic(flow.source, flow.mm2_separator)
        )
        there = {(group, *key) for group, places in known.items() for key in places}
        if not (wanted - there) or time.monotonic() > until:
            return
        time.sleep(_PAUSE_SECONDS)


def _read(
    seen: Seen, found: GroupPlaces, committed: _Committed
) -> dict[str, dict[TopicPartition, GroupPlace]]:
    """The places of what groups read, also of those that have no checkpoint. A group
    that is gone from the source misses nothing, but may be in the way.
    """
    places: dict[str, dict[TopicPartition, GroupPlace]] = {
        name: {}
        for name in found.places
        if name in found.on_target and not found.on_target[name].idle
    }
    for name, offsets in committed.items():
        known = {
            (along.topic, along.partition): (key, place)
            for key, place in found.places.get(name, {}).items()
            if (along := place.along) is not None
        }
        places[name] = dict(
            known.get((topic, number))
            or (
                (seen.flow.replication_policy.target_topic(topic), number),
                GroupPlace(
                    came_from=f"{topic}-{number}",
                    offset=-1,
                    exactness=Exactness.UNKNOWN,
                ),
            )
            for topic, number in offsets
        )
    return places


# ---- what groups would read next ----
#
# The comparison is `mirror verify` over a window of source offsets from each group's
# position on, so it knows what was filtered, transformed, compacted, has expired, or
# is in the loss ledger. Windows that meet are read once.


def _compare(
    seen: Seen, positions: Mapping[TopicPartition, Iterable[int]], *, records: int
) -> ComparedNext:
    stage, flow = seen.stage, seen.flow
    offset_map = stage.maps[flow.name, stage.target]
    step = ProofStep(stage.config, flow, stage.source, stage.target, InProcess())
    wrong: dict[TopicPartition, dict[int, str]] = {}
    unread: dict[TopicPartition, str] = {}
    undecided: dict[TopicPartition, str] = {}
    with RunFiles() as files, keeping():
        found = step.survey(files, {}, ".*", offset_map)
        wanted = {
            of.key: windows(
                positions.get(of.key, ()), records, of.source_first, of.source_end
            )
            for of in found.partitions
        }
        if not found.known.has_runs:
            for key, runs in offset_map.runs_around(wanted).items():
                files.add(key, runs)
        chosen = {
            of.key: ranges
            for of in found.partitions
            if (ranges := _ranges(found, of, wanted[of.key]))
        }
        keys = list(chosen)
        for at in range(0, len(keys), _AT_ONCE):
            part = {key: chosen[key] for key in keys[at : at + _AT_ONCE]}
            proofs = step.prove(found, part, at=time.time(), range_bytes=_RANGE_BYTES)
            for key, proof in proofs.items():
                first = part[key][0].source_first
                for each in proof.wrong:
                    offset = first if each.source is None else each.source
                    said = f"{each.kind}, {each.detail}"
                    wrong.setdefault(key, {}).setdefault(offset, said)
                if proof.failure:
                    undecided[key] = proof.failure
    compared = {of.key for of in found.partitions}
    for topic, why in found.unproven.items():
        unread |= {
            (topic, number): why
            for number in range(_partitions(stage.source, topic))
            if (topic, number) not in compared
        }
    return ComparedNext(
        partitions=frozenset(compared | unread.keys()),
        wrong=wrong,
        unread=unread,
        undecided=undecided,
    )


def _partitions(source: Cluster, topic: str) -> int:
    found = source.topic(topic)
    return found.partitions if found is not None else 0


def _ranges(
    found: ProofSurvey, of: CopiedPartition, wanted: Iterable[tuple[int, int]]
) -> list[Range]:
    made: list[Range] = []
    for first, end in wanted:
        part = replace(of, source_first=first, source_end=end)
        made += (
            replace(each, of=of)
            for each in found.ranges(part, most=max(end - first, 1))
            if not each.is_late
        )
    return made


def windows(
    positions: Iterable[int], records: int, start: int, end: int
) -> list[tuple[int, int]]:
    """So many offsets from each position on, within a log; those that meet are one."""
    made: list[tuple[int, int]] = []
    for position in sorted(positions):
        first, last = max(position, start), min(position + records, end)
        if first >= last:
            continue  # behind the end of what is copied, or expired
        if made and first <= made[-1][1] + _NEAR:
            made[-1] = (made[-1][0], max(made[-1][1], last))
        else:
            made.append((first, last))
    return made


# ---- what follows ----


def judge_positions(
    seen: Seen,
    committed: Mapping[str, Mapping[TopicPartition, int]],
    written: Mapping[str, float],
    compared: ComparedNext,
    *,
    records: int,
) -> Judged:
    """`seen`: with the places; `committed`: by group, on the source in copied topics;
    `written`: when each group's last checkpoint was; `records`: how many source offsets
    from a position on were compared.
    """
    findings: list[Finding] = []
    spoilt = compared.unread.keys() | compared.undecided.keys() | compared.wrong.keys()
    for group, offsets in sorted(committed.items()):
        checked = _checked(seen, group)
        firsts = {key: offset for key, (offset, _) in checked.items()}
        findings += _of_next_records(seen, group, firsts, compared, records)
        findings += _of_age(seen, group, firsts, offsets, written)
        exact = {
            key for key, (_, place) in checked.items() if _is_exact(seen, key, place)
        }
        spoilt |= offsets.keys() - exact
    spoilt_groups = {
        each.subject for each in (*checks.group_positions(seen), *findings)
    }
    findings += _of_partitions(compared.unread, Level.NOT_READY)
    findings += _of_partitions(compared.undecided, Level.DEGRADED)
    return Judged(
        groups=len(committed),
        groups_exact=sum(f"group {name}" not in spoilt_groups for name in committed),
        partitions=len(compared.partitions),
        partitions_exact=len(compared.partitions - spoilt),
        findings=tuple(findings),
    )


def _checked(seen: Seen, group: str) -> dict[TopicPartition, tuple[int, GroupPlace]]:
    """By partition of the source: the offset of the last checkpoint, and where that
    leads.
    """
    return {
        (along.topic, along.partition): (along.upstream, place)
        for place in seen.places.places.get(group, {}).values()
        if (along := place.along) is not None
    }


def _is_exact(seen: Seen, key: TopicPartition, place: GroupPlace) -> bool:
    other = seen.places.skip_risks.get(key[0])
    return place.exactness in EXACT and not (other is not None and other.both_ways)


def _of_next_records(
    seen: Seen,
    group: str,
    firsts: Mapping[TopicPartition, int],
    compared: ComparedNext,
    records: int,
) -> Iterator[Finding]:
    differing = sorted(
        (key, offset, why)
        for key, first in firsts.items()
        for offset, why in compared.wrong.get(key, {}).items()
        if first <= offset < first + records
    )
    if differing:
        (topic, partition), offset, why = differing[0]
        yield Finding(
            level=Level.NOT_READY,
            subject=f"group {group}",
            reason=f"of its next records in {topic}-{partition}, the one at offset "
            f"{offset} is not where it should be: {why}",
            fix="prove the copy, then repair it or rebuild it",
            command=f"mirror verify --flow '{seen.flow.name}' --topic '{topic}'",
        )


def _of_age(
    seen: Seen,
    group: str,
    firsts: Mapping[TopicPartition, int],
    committed: Mapping[TopicPartition, int],
    written: Mapping[str, float],
) -> Iterator[Finding]:
    again = sum(max(committed[key] - first, 0) for key, first in firsts.items())
    age = seen.at - written.get(group, seen.at)
    fine = max(
        _CHECKPOINT_ROUNDS * seen.flow.emit_checkpoints_seconds, _LEAST_STALE_SECONDS
    )
    if again and age > fine:
        yield Finding(
            level=Level.DEGRADED,
            subject=f"group {group}",
            reason=f"its position is {duration(age)} old: it would read about "
            f"{some(again, 'record')} again",
            fix="see why checkpoints are not written: is a service running?",
            command="mirror status",
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
