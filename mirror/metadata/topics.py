"""Topics: find those that match on the source, have their copies on the target.

One verb, `sync`, which looks once and returns a frozen `TopicsResult`; whoever
calls it owns interval and retries. Topics and partitions are only ever added on the
target. A new copy gets its topic's configs; keeping them alike is `configs`' duty,
ACLs and schemas are other modules'.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from mirror import policy
from mirror.clusters import admin, codes, configs
from mirror.errors import AuthorizationError, BrokerError
from mirror.metadata import config_rules

if TYPE_CHECKING:
    from collections.abc import Mapping

    from mirror.clusters.cluster import Cluster, Topic
    from mirror.clusters.configs import TopicConfigs
    from mirror.config.schema import FlowConfig
    from mirror.policy import TopicMapping

_INVALID_CONFIG = codes.name_of(codes.INVALID_CONFIG)


@dataclass(frozen=True, slots=True, kw_only=True)
class MirroredTopic:
    """A source topic and the name of its copy."""

    topic: str
    target_topic: str
    partitions: int
    topic_id: str
    """The source topic's id in hex; all zeros where brokers have none."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicsResult:
    """What one look found, and what it did about it."""

    topics: tuple[MirroredTopic, ...]
    """Topics that match. The copy of one with a problem may be missing."""
    created: tuple[str, ...] = ()
    """Target topics made."""
    grown: tuple[str, ...] = ()
    """Target topics that got more partitions."""
    problems: tuple[str, ...] = ()
    """Topics that match and cannot be mirrored, each with its reason."""


def select(source: Cluster, flow: FlowConfig) -> TopicsResult:
    """What `sync` would mirror; nothing is changed anywhere."""
    seen = source.topics()
    selection = policy.select_topics(
        seen,
        flow.topic_filter,
        flow.replication_policy,
        flow.target,
    )
    return TopicsResult(
        topics=tuple(
            _mirrored(mapping, seen[mapping.topic])
            for mapping in selection.mappings
            if seen[mapping.topic].partitions
        ),
        problems=tuple(
            f"source topic {rejection.topic}: {rejection.reason}"
            for rejection in selection.rejected
        ),
    )


def sync(source: Cluster, target: Cluster, flow: FlowConfig) -> TopicsResult:
    """Look once: every matching topic has a copy with as many partitions after it,
    or stands among the problems.

    Raises:
        ClusterError: a cluster does not answer.
    """
    found = select(source, flow)
    copies = target.topics({topic.target_topic for topic in found.topics})
    created, grown, problems = [], [], list(found.problems)
    models = configs.describe(
        source,
        [
            topic.topic
            for topic in found.topics
            if copies[topic.target_topic].error == codes.UNKNOWN_TOPIC
        ],
    )
    for topic in found.topics:
        copy = copies[topic.target_topic]
        try:
            if copy.error == codes.UNKNOWN_TOPIC:
                made, wrong = _create(target, topic, models[topic.topic], flow)
                created += [topic.target_topic] * made
                problems += wrong
            elif copy.error != codes.NONE:
                problems.append(
                    f"target topic {topic.target_topic}: {codes.name_of(copy.error)}"
                )
            elif copy.partitions < topic.partitions:
                admin.add_partitions(target, copy.name, count=topic.partitions)
                grown.append(copy.name)
        except (AuthorizationError, BrokerError) as error:
            problems.append(str(error))
    return TopicsResult(
        topics=found.topics,
        created=tuple(created),
        grown=tuple(grown),
        problems=tuple(problems),
    )


def _create(
    target: Cluster, topic: MirroredTopic, model: TopicConfigs, flow: FlowConfig
) -> tuple[bool, list[str]]:
    """Whether a copy was made, and what about it is not as it should be."""
    if model.missing:
        return False, []  # deleted this very moment
    problems = []
    if model.error is not None:
        problems.append(f"{model.error}; its copy has the brokers' defaults")

    def create(values: Mapping[str, str]) -> bool:
        return admin.create_topic(
            target,
            topic.target_topic,
            partitions=topic.partitions,
            replication_factor=flow.replication_factor,
            configs=values,
        )

    wanted = config_rules.wanted(model.configs, flow)
    try:
        return create(wanted), problems
    except BrokerError as error:
        if not wanted or not error.name.startswith(_INVALID_CONFIG):
            raise
    # A copy without one config is better than no copy, but it has to be said.
    made = create({})
    for name, value in wanted.items():
        problems += map(
            str, configs.alter(target, {topic.target_topic: {name: value}}).values()
        )
    return made, problems


def _mirrored(mapping: TopicMapping, topic: Topic) -> MirroredTopic:
    return MirroredTopic(
        topic=mapping.topic,
        target_topic=mapping.target_topic,
        partitions=topic.partitions,
        topic_id=topic.topic_id.hex,
    )
