"""Answers questions of offset translation from the target alone.

Main functions: `of_offset` for one offset, `of_group` for all that a group committed,
and `of_groups` for many groups. Main type: `OffsetAnswer`. All read the offset map of
one flow; nothing is changed.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from mirror.clusters.admin import group_offsets, topic_admin
from mirror.errors import ClusterError
from mirror.offsets.translation import Exactness, Translated

if TYPE_CHECKING:
    from collections.abc import Mapping

    from mirror.clusters.admin.group_offsets import CommittedOffset
    from mirror.clusters.cluster import Cluster
    from mirror.clusters.topics import TopicPartition
    from mirror.config.schema import FlowConfig
    from mirror.offsets.joint_map import JointMap
    from mirror.offsets.offset_map import OffsetMap


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
