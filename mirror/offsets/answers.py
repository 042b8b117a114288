"""Questions of offset translation, asked at the target alone.

Main functions: `of_offset` for one offset, `of_group` for all that a group committed.
Main type: `Answer`. Both read the offset map of one flow; nothing is changed.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from mirror.clusters import group_offsets
from mirror.errors import ClusterError

if TYPE_CHECKING:
    from mirror.clusters.cluster import Cluster
    from mirror.offsets.offset_map import OffsetMap
    from mirror.offsets.translation import Translated

TopicPartition = tuple[str, int]


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """One offset, and what it is on the other side."""

    topic: str
    """Where the offset is of."""
    partition: int
    offset: int
    other_topic: str
    """The copy; with `reverse` the source's topic. Empty if nothing was copied."""
    translated: Translated


def of_offset(
    known: OffsetMap, topic: str, partition: int, offset: int, *, reverse: bool
) -> Answer:
    """`topic` is the source's; with `reverse` the target's, and so is the offset."""
    other = _others(known, reverse=reverse).get((topic, partition), "")
    return _answer(known, (topic, partition), offset, other, reverse=reverse)


def of_group(
    known: OffsetMap, cluster: Cluster, group: str, *, reverse: bool
) -> list[Answer]:
    """What a group has committed on a cluster, the source's or with `reverse` the
    target's, in partitions of which something was copied.

    Raises:
        ClusterError: the cluster does not answer, or refuses to tell.
    """
    found = group_offsets.fetch(cluster, [group])
    if group in found.refused:
        raise ClusterError(
            f"cluster {cluster.alias}: group {group}: {found.refused[group]}"
        )
    others = _others(known, reverse=reverse)
    return [
        _answer(known, key, committed.offset, others[key], reverse=reverse)
        for key, committed in sorted(found.groups[group].items())
        if key in others
    ]


def _others(known: OffsetMap, *, reverse: bool) -> dict[TopicPartition, str]:
    """The topic on the other side of every partition on this one."""
    return known.origins() if reverse else known.partitions()


def _answer(
    known: OffsetMap, key: TopicPartition, offset: int, other: str, *, reverse: bool
) -> Answer:
    topic, partition = key
    if reverse:
        translated = known.reverse(other, partition, offset)
    else:
        translated = known.translate(topic, partition, offset)
    return Answer(
        topic=topic,
        partition=partition,
        offset=offset,
        other_topic=other,
        translated=translated,
    )
