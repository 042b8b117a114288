"""What a flow would mirror, found out without changing anything.

Main function: `compare`, of the topics on both sides, which returns a frozen
`SurveyedFlow`. `one_cluster` and `doubled` describe problems that only the cluster ids
reveal. `topics.sync` acts on it.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import combinations
from typing import TYPE_CHECKING

from mirror.clusters import codes
from mirror.topics import topics

if TYPE_CHECKING:
    from collections.abc import Sequence

    from mirror.clusters.cluster import Cluster
    from mirror.clusters.topics import Topic
    from mirror.config.cluster_settings import ClusterConfig
    from mirror.config.schema import FlowConfig, MirrorConfig
    from mirror.topics.topics import MirroredTopic


EXISTS = "exists"
TO_BE_CREATED = "to be created"
TO_BE_GROWN = "to be grown"


@dataclass(frozen=True, slots=True, kw_only=True)
class SurveyedTopic:
    """A topic, its copy, and what a flow would do for the copy first."""

    topic: str
    partitions: int
    target_topic: str
    target_partitions: int
    """Zero while there is no copy."""
    copy: str
    """EXISTS, TO_BE_CREATED or TO_BE_GROWN."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SurveyedFlow:
    """A flow whose clusters both answered."""

    name: str
    source: str
    """Alias."""
    source_id: str
    target_id: str
    topics: tuple[SurveyedTopic, ...]
    problems: tuple[str, ...] = ()
    """Topics that match and cannot be mirrored, each with its reason."""
    came_from_target: tuple[str, ...] = ()
    """Topics that match, but whose names say that they came from the target."""
    unmatched: tuple[str, ...] = ()
    """Entries of `topics` that match nothing, in words."""


def _setting(config: ClusterConfig) -> str:
    servers = ",".join(config.bootstrap_servers)
    return f"clusters.{config.alias}.bootstrap_servers: {servers}"


def one_cluster(config: MirrorConfig, flow: FlowConfig, cluster_id: str) -> str:
    source, target = config.clusters[flow.source], config.clusters[flow.target]
    return (
        f"flow {flow.name}: {_setting(source)} and {_setting(target)} are the same "
        f"cluster ({cluster_id}), so it would copy its own copies; source and "
        "target must be two clusters"
    )


def doubled(flows: Sequence[SurveyedFlow]) -> list[str]:
    """One cluster under two aliases, whose topics go to the same copies."""
    found = []
    for one, other in combinations(flows, 2):
        if (one.source_id, one.target_id) != (other.source_id, other.target_id):
            continue
        ours, theirs = (
            {(topic.topic, topic.target_topic) for topic in flow.topics}
            for flow in (one, other)
        )
        if common := ours & theirs:
            topic, copy = min(common)
            found.append(
                f"flows {one.name} and {other.name} go from the same cluster "
                f"({one.source_id}) to another, and both would copy {topic} to {copy}, "
                "so every record would be doubled; remove one of them"
            )
    return found


def compare(source: Cluster, target: Cluster, flow: FlowConfig) -> SurveyedFlow:
    selected = topics.select(source, flow)
    copies = target.topics({topic.target_topic for topic in selected.topics})
    problems = [
        f"target topic {copy.name}: {codes.name_of(copy.error)}"
        for copy in copies.values()
        if copy.error not in (codes.NONE, codes.UNKNOWN_TOPIC_OR_PARTITION)
    ]
    return SurveyedFlow(
        name=flow.name,
        source=flow.source,
        source_id=source.cluster_id,
        target_id=target.cluster_id,
        topics=tuple(
            _surveyed(topic, copies[topic.target_topic]) for topic in selected.topics
        ),
        problems=(*selected.problems, *problems),
        came_from_target=selected.came_from_target,
        unmatched=tuple(
            topics.about_unmatched(each, flow, source.topics())
            for each in selected.unmatched
        ),
    )


def _surveyed(topic: MirroredTopic, copy: Topic) -> SurveyedTopic:
    if copy.error == codes.UNKNOWN_TOPIC_OR_PARTITION:
        what = TO_BE_CREATED
    else:
        what = EXISTS if copy.partitions >= topic.partitions else TO_BE_GROWN
    return SurveyedTopic(
        topic=topic.topic,
        partitions=topic.partitions,
        target_topic=topic.target_topic,
        target_partitions=copy.partitions,
        copy=what,
    )
