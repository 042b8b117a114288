"""The offsets of a flow's groups on both sides, and answers about single offsets.

Main function: `survey`, for the command line, and for a failover without the source. If
the source answers it shows the current offsets; from the target alone it shows those of
the last checkpoints, just as exact for what was copied.

Without groups of the flow, `of_offset` answers for one offset, `of_group` for all that
a group committed, and `of_groups` for many groups, from the offset map alone. Nothing
is changed.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, NamedTuple

from mirror.clusters import cpu_share
from mirror.clusters.admin import group_offsets, groups, topic_admin
from mirror.clusters.admin.groups import ABSENT
from mirror.errors import ClusterError
from mirror.offsets import checkpoints, runs
from mirror.offsets.checkpoints import checkpoints_topic
from mirror.offsets.groups import GroupPosition, copy_of, look
from mirror.offsets.joint import JointMap, both_ways
from mirror.offsets.reverse_start import Covers, edges
from mirror.offsets.translation import UNKNOWN, Exactness, OffsetMap, Translated
from mirror.policy.selection import GroupFilter, select_topics

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from mirror.clusters.admin.group_offsets import CommittedOffset
    from mirror.clusters.admin.groups import Group
    from mirror.clusters.cluster import Cluster
    from mirror.clusters.topics import TopicPartition
    from mirror.config.schema import FlowConfig
    from mirror.offsets.checkpoints import Checkpoint
    from mirror.offsets.groups import Copy, CopyWriters, GroupsStanding


KnownMaps = dict[tuple[str, "Cluster"], OffsetMap]
"""Maps that were read, by flow and target: of these only what is new is read."""

_VAGUE = frozenset({Exactness.UNKNOWN, Exactness.BEFORE, Exactness.EARLIER})
"""Answers of the map that a checkpoint may know better."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SurveyedGroup:
    """One group, on both sides."""

    group: str
    type: str
    """Empty if the source was not asked."""
    state: str
    """On the source; empty if it was not asked."""
    target_state: str
    """On the target; empty if there is no such group."""
    places: tuple[GroupPosition, ...]

    @property
    def behind(self) -> int:
        return sum(place.behind for place in self.places)


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupSurvey:
    """The groups of one flow."""

    flow: str
    target: str
    """The cluster's alias."""
    from_source: bool
    """False: as of the last checkpoints."""
    groups: tuple[SurveyedGroup, ...]
    not_covered: tuple[str, ...] = ()
    """Share groups, where a cluster does not tell or set their offsets."""
    failures: tuple[tuple[str, str], ...] = ()
    """Groups that could not be read, each with the reason."""
    on_target: Mapping[str, Group] = field(default_factory=dict)
    """All groups that the target has."""


def survey(
    flow: FlowConfig,
    target: Cluster,
    source: Cluster | None,
    writers: CopyWriters,
    *,
    maps: KnownMaps | None = None,
    wait: bool = True,
) -> GroupSurvey:
    """Look at both sides, or without `source` at the target alone. `maps` as for
    `known_of`; `wait` as for `OffsetMap.refresh`.

    Raises:
        ClusterError: a cluster does not answer, or the flow has never run.
    """
    offset_map = known_of(flow, target, maps, wait=wait and source is None)
    on_target = groups.list_groups(target)
    if source is None:
        found = _from_checkpoints(flow, target, offset_map, writers)
        return GroupSurvey(
            flow=flow.name,
            target=flow.target,
            from_source=False,
            groups=_grouped(found, {}, on_target),
            on_target=on_target,
        )
    copied = copies(flow, source, writers)
    joint = JointMap(flow, offset_map, source, target, patient=True)
    joint.refresh(copied, wait=wait)
    standing = look(
        source,
        target,
        GroupFilter(include=flow.groups, exclude=flow.groups_exclude),
        copied,
        joint,
    )
    return GroupSurvey(
        flow=flow.name,
        target=flow.target,
        from_source=True,
        groups=_grouped(standing.places, standing.groups, on_target),
        on_target=on_target,
        not_covered=standing.not_covered,
        failures=(
            *(standing.refused or {}).items(),
            *_unjoined(standing, joint.refused),
        ),
    )


def _unjoined(
    standing: GroupsStanding, refused: Mapping[str, str]
) -> list[tuple[str, str]]:
    """Groups that stand in a topic that goes both ways, of which one map is not known:
    the other one alone may skip records.
    """
    return [
        (group, refused[topic])
        for group, places in standing.places.items()
        for topic in sorted({each.target_topic for each in places} & refused.keys())
    ]


def known_of(
    flow: FlowConfig,
    target: Cluster,
    maps: KnownMaps | None = None,
    *,
    wait: bool = True,
) -> OffsetMap:
    """The flow's offset map, read to its end; `maps` has those of earlier calls, and
    gets this one. `wait` as for `OffsetMap.refresh`.

    Raises:
        ClusterError: the target does not answer, or there is no map.
    """
    topic = runs.topic_name(flow.source, flow.separator)
    if target.topic(topic) is None:
        raise ClusterError(
            f"flow {flow.name}: cluster {flow.target} has no {topic}: did the flow "
            "ever run?"
        )
    maps = {} if maps is None else maps
    offset_map = maps.get((flow.name, target)) or OffsetMap.of(flow, target)
    offset_map.refresh(wait=wait)
    maps[flow.name, target] = offset_map
    return offset_map


def copies(flow: FlowConfig, source: Cluster, writers: CopyWriters) -> dict[str, Copy]:
    """The topics that the flow copies."""
    seen = source.topics()
    selection = select_topics(
        seen, flow.topic_filter, flow.replication_policy, flow.target
    )
    return {
        each.topic: copy_of(
            flow, each.topic, each.target_topic, seen[each.topic].partitions, writers
        )
        for each in selection.mappings
    }


def _grouped(
    places: Mapping[str, tuple[GroupPosition, ...]],
    on_source: Mapping[str, Group],
    on_target: Mapping[str, Group],
) -> tuple[SurveyedGroup, ...]:
    return tuple(
        SurveyedGroup(
            group=name,
            type=str(on_source[name].kind) if name in on_source else "",
            state=on_source[name].state if name in on_source else "",
            target_state=on_target[name].state if name in on_target else ABSENT,
            places=places[name],
        )
        for name in sorted(places)
    )


def _from_checkpoints(
    flow: FlowConfig, target: Cluster, offset_map: OffsetMap, writers: CopyWriters
) -> dict[str, tuple[GroupPosition, ...]]:
    sources = offset_map.origins()
    topic = checkpoints_topic(flow.source, flow.mm2_separator)
    known = checkpoints.read(target, topic)
    both_ways = {
        name: copy
        for (copy, _), name in sources.items()
        if writers.back(flow, name) is not None
    }
    joint = recall(
        flow,
        target,
        offset_map,
        [
            _known(checkpoint, sources[key])
            for found in known.values()
            for key, checkpoint in found.items()
            if sources.get(key) in both_ways
        ],
        both_ways,
    )
    asked: dict[TopicPartition, set[int]] = {}
    for found in known.values():
        cpu_share.rest()
        for (copy, partition), checkpoint in found.items():
            if (name := sources.get((copy, partition))) is not None:
                asked.setdefault((name, partition), set()).add(checkpoint.upstream)
    cpu_share.rest()
    answers = offset_map.translate_all(asked)
    # Groups that stand at one place share it: 1,000 groups have 100,000 places.
    places: dict[tuple[object, ...], GroupPosition] = {}
    recalled: dict[str, tuple[GroupPosition, ...]] = {}
    for group, found in known.items():
        cpu_share.rest()
        standing = []
        for key, checkpoint in sorted(found.items()):
            if (place := places.get(checkpoint[1:])) is None:
                name = sources.get(key)
                now = UNKNOWN
                if name is not None:
                    now = answers[name, key[1]][checkpoint.upstream]
                    now = joint.get(_known(checkpoint, name), now)
                place = _recalled(checkpoint, name, now, flow, offset_map)
                places[checkpoint[1:]] = place
            standing.append(place)
        recalled[group] = tuple(standing)
    return recalled


def _known(checkpoint: Checkpoint, topic: str) -> RecalledCheckpoint:
    return RecalledCheckpoint(
        topic, checkpoint.partition, checkpoint.upstream, checkpoint.downstream
    )


def _recalled(
    checkpoint: Checkpoint,
    topic: str | None,
    now: Translated,
    flow: FlowConfig,
    offset_map: OffsetMap,
) -> GroupPosition:
    """A checkpoint, updated from what the map answers `now`: records copied after it
    was written may have made it more exact.
    """
    partition, upstream = checkpoint.partition, checkpoint.upstream
    position = -1 if topic is None else offset_map.position(topic, partition)
    if (
        now.exactness in _VAGUE
        and now.offset < checkpoint.downstream
        and not now.renewed
    ):
        now = Translated(offset=checkpoint.downstream, exactness=Exactness.TIP)
    behind = now.exactness is Exactness.BEHIND and position >= 0
    return GroupPosition(
        topic or flow.replication_policy.upstream_topic(checkpoint.topic) or "",
        partition,
        checkpoint.topic,
        upstream,
        now,
        upstream - position if behind else 0,
        checkpoint.metadata,
    )


# ---- checkpoints in copies that another flow copies back ----
#
# Main function: `recall`. The map of the flow back is on the source, which may be
# gone. But when a checkpoint was written, the group had read all that the target
# had below its offset, copied or not. From there on the flow's own map and the
# target's log say what was copied since that the group has read on the source.


class RecalledCheckpoint(NamedTuple):
    """What a checkpoint says of one of the source's partitions."""

    topic: str
    partition: int
    upstream: int
    downstream: int

    @property
    def key(self) -> TopicPartition:
        return self.topic, self.partition


def recall(
    flow: FlowConfig,
    target: Cluster,
    offset_map: OffsetMap,
    known: Iterable[RecalledCheckpoint],
    copies: Mapping[str, str],
) -> dict[RecalledCheckpoint, Translated]:
    """Where groups go on now. `copies`: the target's topic of each of the source's. It
    refreshes the map. Where a copy's leader does not answer, the checkpoint counts.

    Raises:
        ClusterError: the target does not answer.
    """
    # Smaller offsets first: a cover forgets what is behind.
    asked = sorted(set(known))
    if not asked:
        return {}
    begins: dict[TopicPartition, int] = {}
    for each in sorted(asked, key=lambda each: -each.downstream):
        begins[each.key] = each.downstream
    places = {key: (copies[key[0]], key[1]) for key in begins}
    found = edges(target, set(places.values()))
    offset_map.refresh()
    covers = Covers(flow, target, {topic for topic, _ in begins}, begins)
    covers.follow()
    answers = {}
    for each in sorted(asked, key=lambda each: (each.key, each.downstream)):
        copy = places[each.key]
        if (log := found.get(copy)) is None:
            offset = each.downstream
            answers[each] = Translated(offset=offset, exactness=Exactness.EARLIER)
            continue
        there = offset_map.translate(*each.key, each.upstream)
        born = covers.start(each.key, copy, log, each.downstream)
        read = Translated(offset=each.downstream, exactness=Exactness.TIP)
        answers[each] = both_ways(there, read, log, born)
    return answers


# ---- answers about single offsets ----


@dataclass(frozen=True, slots=True, kw_only=True)
class OffsetAnswer:
    """One offset, and its translation to the other side."""

    topic: str
    """The partition that the offset belongs to."""
    partition: int
    offset: int
    other_topic: str
    """The copy; with `reverse` the source's topic. Empty if nothing was copied."""
    translated: Translated


def of_offset(
    known: OffsetMap,
    topic: str,
    partition: int,
    offset: int,
    *,
    reverse: bool,
    joint: JointMap | None = None,
) -> OffsetAnswer:
    """`topic` is the source's; with `reverse` the target's, and so is the offset.
    `joint` answers for the topics that it joins; with `reverse` it is that of the flow
    back.
    """
    other = _others(known, reverse=reverse).get((topic, partition), "")
    return _answer(
        known, (topic, partition), offset, other, reverse=reverse, joint=joint
    )


def of_group(
    flow: FlowConfig,
    known: OffsetMap,
    cluster: Cluster,
    group: str,
    *,
    reverse: bool,
    joint: JointMap | None = None,
) -> list[OffsetAnswer]:
    """Where a group on one cluster (the source, or with `reverse` the target) continues
    on the other: its committed offsets in partitions that the flow copies, and the
    empty partitions of the same topics, where there was nothing to commit. `joint` as
    for `of_offset`.

    Raises:
        ClusterError: the cluster does not answer, or refuses to tell.
    """
    found = group_offsets.fetch(cluster, [group])
    if group in found.refused:
        raise ClusterError(
            f"cluster {cluster.alias}: group {group}: {found.refused[group]}"
        )
    answers = of_groups(
        flow, known, cluster, found.groups, reverse=reverse, joint=joint
    )
    return answers[group]


def of_groups(
    flow: FlowConfig,
    known: OffsetMap,
    cluster: Cluster,
    committed: Mapping[str, Mapping[TopicPartition, CommittedOffset]],
    *,
    reverse: bool,
    joint: JointMap | None = None,
) -> dict[str, list[OffsetAnswer]]:
    """As `of_group`, for what many groups have committed: the cluster is asked once for
    all of them, and groups that stand at one offset share its answer.

    Raises:
        ClusterError: the cluster does not answer.
    """
    names = _names(flow, known, reverse=reverse)
    offsets = {
        group: {key: each.offset for key, each in found.items() if key[0] in names}
        for group, found in committed.items()
    }
    topics = {group: {topic for topic, _ in own} for group, own in offsets.items()}
    there = _partitions(cluster, set().union(*topics.values()))
    silent = {
        group: set().union(*(there[topic] for topic in topics[group])) - own.keys()
        for group, own in offsets.items()
    }
    empty = topic_admin.empty(cluster, set().union(*silent.values()))
    shared: dict[tuple[TopicPartition, int, bool], OffsetAnswer] = {}

    def answer(key: TopicPartition, offset: int, *, is_silent: bool) -> OffsetAnswer:
        place = (key, offset, is_silent)
        if place not in shared:
            other = names[key[0]]
            found = _answer(known, key, offset, other, reverse=reverse, joint=joint)
            if found.translated.exactness is Exactness.UNKNOWN and (
                offset == 0 or is_silent
            ):
                # Nothing was copied and nothing read: it reads from the start.
                first = Translated(offset=0, exactness=Exactness.TIP)
                found = replace(found, translated=first)
            shared[place] = found
        return shared[place]

    answers = {}
    for group, own in offsets.items():
        filled = {key: empty[key] for key in silent[group] & empty.keys()}
        answers[group] = [
            answer(key, offset, is_silent=key in filled)
            for key, offset in sorted((own | filled).items())
        ]
    return answers


def _names(flow: FlowConfig, known: OffsetMap, *, reverse: bool) -> dict[str, str]:
    """The other side's name of every topic that the flow copies, even empty ones."""
    copies = {
        topic: flow.replication_policy.target_topic(topic)
        for topic, _ in known.followed()
    }
    copies |= {topic: copy for (topic, _), copy in known.partitions().items()}
    return {copy: topic for topic, copy in copies.items()} if reverse else copies


def _partitions(cluster: Cluster, topics: set[str]) -> dict[str, set[TopicPartition]]:
    shown = cluster.topics(topics)
    return {
        name: {(name, partition) for partition in topic.leaders}
        for name, topic in shown.items()
    }


def _others(known: OffsetMap, *, reverse: bool) -> dict[TopicPartition, str]:
    """The topic on the other side of every partition on this one."""
    return known.origins() if reverse else known.partitions()


def _answer(
    known: OffsetMap,
    key: TopicPartition,
    offset: int,
    other: str,
    *,
    reverse: bool,
    joint: JointMap | None,
) -> OffsetAnswer:
    topic, partition = key
    if joint is not None and joint.joins(topic):
        translated = joint.translate(topic, partition, offset)
    elif reverse:
        translated = known.reverse(other, partition, offset)
    else:
        translated = known.translate(topic, partition, offset)
    return OffsetAnswer(
        topic=topic,
        partition=partition,
        offset=offset,
        other_topic=other,
        translated=translated,
    )
