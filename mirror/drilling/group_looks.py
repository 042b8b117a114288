"""Looks at the groups of a drill: positions, commits, and the next records.

Main function: `judge`, which has `positions` conclude from what it sees. Positions are
those that a failover would set, from the last checkpoints and the map.
"""

from __future__ import annotations

from dataclasses import replace
import time
from typing import TYPE_CHECKING

from mirror.clusters.admin import group_offsets
from mirror.clusters.admin.groups import GroupKind
from mirror.drilling import next_records, positions
from mirror.offsets import checkpoints
from mirror.offsets.mm2_records import checkpoints_topic
from mirror.offsets.translation import Exactness
from mirror.policy.selection import GroupFilter
from mirror.switching.group_places import GroupPlace
from mirror.switching.steps import checks
from mirror.switching.steps.assess import places_of

if TYPE_CHECKING:
    from collections.abc import Mapping

    from mirror.drilling.positions import Judged
    from mirror.switching.group_places import GroupPlaces
    from mirror.switching.steps.checks import Seen

TopicPartition = tuple[str, int]
_Committed = dict[str, dict[TopicPartition, int]]

_LEAST_STALE_SECONDS = 60.0
_CHECKPOINT_ROUNDS = 3
_MOST_CHECKPOINT_SECONDS = 11.0
_PAUSE_SECONDS = 0.5


def judge(seen: Seen, *, records: int, wait: bool) -> Judged:
    """Compare so many records; `seen` gets the places. `wait` as for `places_of`.

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
    for name in committed:
        for place in seen.places.places[name].values():
            if (along := place.along) is not None:
                key = along.topic, along.partition
                asked.setdefault(key, set()).add(along.upstream)
    compared = next_records.compare(
        stage.config, flow, stage.source, stage.target, asked,
        stage.maps[flow.name, stage.target], records=records,
    )  # fmt: skip
    known = positions.KnownPositions(
        flow=flow.name,
        places=seen.places,
        committed=committed,
        written=checkpoints.times(
            stage.target, checkpoints_topic(flow.source, flow.mm2_separator)
        ),
        wrong=compared.wrong,
        unread=compared.unread,
        undecided=compared.undecided,
        records=records,
        stale_seconds=max(
            _CHECKPOINT_ROUNDS * flow.emit_checkpoints_seconds, _LEAST_STALE_SECONDS
        ),
    )
    bad = [*checks.group_positions(seen)]
    return positions.judge(known, compared.partitions, bad, at=seen.at)


def _committed(seen: Seen) -> tuple[_Committed, Mapping[str, str]]:
    """What the source's groups have committed in copied topics, and those that could
    not be read.
    """
    flow = seen.flow
    wanted = GroupFilter(include=flow.groups, exclude=flow.groups_exclude)
    covered = [
        name
        for name, group in seen.groups.items()
        if wanted.matches(name) and group.kind is not GroupKind.SHARE
    ]
    fetched = group_offsets.fetch(seen.stage.source, covered)
    topics = {each.topic for each in seen.topics}
    found = {
        name: {key: each.offset for key, each in offsets.items() if key[0] in topics}
        for name, offsets in fetched.groups.items()
    }
    return {n: each for n, each in found.items() if each}, fetched.refused


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
