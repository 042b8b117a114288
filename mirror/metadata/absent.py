"""Mirrored topics that are no longer found: deleted, or hidden from us.

One function, `look`, which asks the source about each by name and returns a frozen
`Absent`. The copy of a deleted topic stays as it is, and the flow remembers the topic
for as long as there is a copy; a topic that we may no longer see stays in the flow, so
that its partitions show what is missing.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from mirror.clusters import codes
from mirror.metadata.topics import MirroredTopic
from mirror.policy.selection import select_topics

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from mirror.clusters.cluster import Cluster
    from mirror.clusters.topics import Topic
    from mirror.config.schema import FlowConfig


@dataclass(frozen=True, slots=True, kw_only=True)
class Absent:
    """What happened to topics that were found before."""

    gone: tuple[MirroredTopic, ...] = ()
    """Deleted at the source."""
    ended: tuple[MirroredTopic, ...] = ()
    """Deleted at the source, and their copies at the target."""
    hidden: tuple[MirroredTopic, ...] = ()
    """Deleted or not: the source does not let us see them."""


def look(
    source: Cluster,
    target: Cluster,
    flow: FlowConfig,
    known: Iterable[MirroredTopic],
    found: Iterable[MirroredTopic],
) -> Absent:
    """Ask what happened to `known` topics that are not `found` now. Those that the
    flow no longer wants are left out.

    Raises:
        ClusterError: a cluster does not answer.
    """
    there = {topic.topic for topic in found}
    missing = {topic.topic: topic for topic in known if topic.topic not in there}
    if not missing:
        return Absent()
    chosen = select_topics(
        missing, flow.topic_filter, flow.replication_policy, flow.target
    )
    shown = source.topics([mapping.topic for mapping in chosen.mappings])
    gone = set(_deleted(shown))
    copies = {missing[name].target_topic: name for name in gone}
    ended = {copies[copy] for copy in _deleted(target.topics(copies) if gone else {})}
    hidden = {
        name
        for name, topic in shown.items()
        if topic.error not in (codes.NONE, codes.UNKNOWN_TOPIC_OR_PARTITION)
    }
    return Absent(
        gone=tuple(missing[name] for name in sorted(gone - ended)),
        ended=tuple(missing[name] for name in sorted(ended)),
        hidden=tuple(missing[name] for name in sorted(hidden)),
    )


def _deleted(shown: Mapping[str, Topic]) -> Iterator[str]:
    for name, topic in shown.items():
        if topic.error == codes.UNKNOWN_TOPIC_OR_PARTITION:
            yield name


def remembered(
    flow: FlowConfig, ids: Mapping[tuple[str, int], str]
) -> tuple[MirroredTopic, ...]:
    """The topics of copied partitions, which are given with their topic ids in hex."""
    topics: dict[str, MirroredTopic] = {}
    chosen = select_topics(
        {topic for topic, _ in ids},
        flow.topic_filter,
        flow.replication_policy,
        flow.target,
    )
    names = {mapping.topic: mapping.target_topic for mapping in chosen.mappings}
    for (topic, partition), topic_id in ids.items():
        if topic not in names:
            continue
        count = topics[topic].partitions if topic in topics else 0
        topics[topic] = MirroredTopic(
            topic=topic,
            target_topic=names[topic],
            partitions=max(count, partition + 1),
            topic_id=topic_id,
        )
    return tuple(topics.values())
