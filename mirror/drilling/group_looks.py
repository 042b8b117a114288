"""Looks at the groups of a drill: positions, commits, and the next records.

Main function: `judge`, which has `positions` conclude from what it sees. Positions are
those that a failover would set, from the last checkpoints and the map.
"""

from __future__ import annotations

from dataclasses import dataclass
import time
from typing import TYPE_CHECKING

from mirror.clusters.admin import group_offsets, groups
from mirror.clusters.admin.groups import GroupKind
from mirror.drilling import next_records, positions
from mirror.drilling.positions import Stand
from mirror.metadata.merging import Merging
from mirror.offsets import checkpoints, group_survey
from mirror.offsets.mm2_records import checkpoints_topic
from mirror.policy.selection import GroupFilter
from mirror.switching.group_places import unjoined

if TYPE_CHECKING:
    from collections.abc import Mapping

    from mirror.clusters.admin.groups import Group
    from mirror.drilling.looked import Looked
    from mirror.offsets.group_survey import KnownMaps

TopicPartition = tuple[str, int]

_LEAST_STALE_SECONDS = 60.0
_CHECKPOINT_ROUNDS = 3
_MOST_CHECKPOINT_SECONDS = 11.0
_PAUSE_SECONDS = 0.5


@dataclass(frozen=True, slots=True, kw_only=True)
class JudgedGroups(positions.Judged):
    """What follows, and for whom."""

    names: tuple[str, ...]
    """The groups that move."""


def judge(looked: Looked, *, records: int, at: float) -> JudgedGroups:
    """Compare so many records; `at`: now.

    Raises:
        MirrorError: a cluster does not answer, or the flow never ran.
    """
    stage, flow = looked.stage, looked.flow
    writers = Merging(looked.config.enabled_flows)
    committed, listed, refused = _committed(looked)
    _wait_for_checkpoints(looked, committed)
    # Without the source: as a failover does.
    maps: KnownMaps = {}
    survey = group_survey.survey(flow, stage.target, None, writers, maps=maps)
    stands: dict[str, Mapping[TopicPartition, Stand]] = {
        each.group: {
            (place.topic, place.partition): Stand(
                upstream=place.upstream,
                downstream=place.downstream,
                exactness=place.translated.exactness,
            )
            for place in each.places
        }
        for each in survey.groups
    }
    asked: dict[TopicPartition, set[int]] = {}
    for name in committed:
        for key, stand in stands.get(name, {}).items():
            asked.setdefault(key, set()).add(stand.upstream)
    compared = next_records.compare(
        looked.config, flow, stage.source, stage.target, asked,
        maps[flow.name, stage.target], records=records,
    )  # fmt: skip
    known = positions.KnownPositions(
        source=flow.source,
        target=flow.target,
        stands=stands,
        committed=committed,
        written=checkpoints.times(
            stage.target, checkpoints_topic(flow.source, flow.separator)
        ),
        on_target=groups.list_groups(stage.target),
        unjoined=unjoined(
            writers, flow, stage.reverse, [each.topic for each in looked.topics]
        ),
        wrong=compared.wrong,
        unread=compared.unread,
        undecided=compared.undecided,
        starts=compared.starts,
        not_covered=tuple(
            sorted(n for n, each in listed.items() if each.kind is GroupKind.SHARE)
        ),
        refused=refused,
        records=records,
        stale_seconds=max(
            _CHECKPOINT_ROUNDS * flow.emit_checkpoints_seconds, _LEAST_STALE_SECONDS
        ),
    )
    judged = positions.judge(known, compared.partitions, at=at)
    return JudgedGroups(
        names=tuple(committed),
        groups=judged.groups,
        groups_exact=judged.groups_exact,
        partitions=judged.partitions,
        partitions_exact=judged.partitions_exact,
        findings=judged.findings,
    )


def _committed(
    looked: Looked,
) -> tuple[
    dict[str, dict[TopicPartition, int]], Mapping[str, Group], Mapping[str, str]
]:
    """What the source's groups have committed in copied topics, all groups of the flow
    there, and those that could not be read.
    """
    source, flow = looked.stage.source, looked.flow
    wanted = GroupFilter(include=flow.groups, exclude=flow.groups_exclude)
    listed = {n: g for n, g in groups.list_groups(source).items() if wanted.matches(n)}
    covered = [n for n, group in listed.items() if group.kind is not GroupKind.SHARE]
    fetched = group_offsets.fetch(source, covered)
    topics = {each.topic for each in looked.topics}
    found = {
        name: {key: each.offset for key, each in offsets.items() if key[0] in topics}
        for name, offsets in fetched.groups.items()
    }
    return {n: each for n, each in found.items() if each}, listed, fetched.refused


def _wait_for_checkpoints(
    looked: Looked, committed: Mapping[str, Mapping[TopicPartition, int]]
) -> None:
    """What a group has just committed for the first time has its checkpoint soon."""
    flow, target = looked.flow, looked.stage.target
    copies = {each.topic: each.target_topic for each in looked.topics}
    wanted = {
        (group, copies[topic], number)
        for group, places in committed.items()
        for topic, number in places
    }
    until = time.monotonic() + min(
        flow.emit_checkpoints_seconds + 1, _MOST_CHECKPOINT_SECONDS
    )
    while True:
        known = checkpoints.read(target, checkpoints_topic(flow.source, flow.separator))
        there = {(group, *key) for group, places in known.items() for key in places}
        if not (wanted - there) or time.monotonic() > until:
            return
        time.sleep(_PAUSE_SECONDS)
