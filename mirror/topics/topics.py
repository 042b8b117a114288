"""Topics: finds those that match on the source, and creates their copies on the target.

`sync` looks once and returns a frozen `TopicsResult`; its caller owns interval and
retries. `plan` says what it would do, and does nothing. Topics and partitions are only
ever added on the target. A new copy gets its topic's configs (`copied_configs`);
`configs` keeps them in sync. `survey` finds out for checks what a flow would mirror.
"""

from __future__ import annotations

from dataclasses import dataclass
import functools
from itertools import combinations
import re
from typing import TYPE_CHECKING, Protocol

from mirror.clusters import codes
from mirror.clusters.admin import configs, topic_admin
from mirror.clusters.admin.configs import Config, Origin
from mirror.clusters.admin.topic_admin import NewTopic
from mirror.errors import AuthorizationError, BrokerError
from mirror.policy.naming import SCHEMAS
from mirror.policy.selection import nearest, select_topics, unmatched
from mirror.topics.sides import Live

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from mirror.clusters.admin.configs import TopicConfigs
    from mirror.clusters.cluster import Cluster
    from mirror.clusters.topics import Topic
    from mirror.config.cluster_settings import ClusterConfig
    from mirror.config.schema import FlowConfig, MirrorConfig
    from mirror.policy.selection import TopicMapping
    from mirror.topics.sides import Side

_OF_THE_LOG = frozenset({"message.format.version", "message.downconversion.enable"})
"""How old brokers store and serve a log. A copy is of format v2 whatever its source is,
and Kafka 4 no longer knows these."""
SCHEMAS_LEFT_OUT = (
    f"source topic {SCHEMAS} is left out: a schema registry keeps everything there, "
    "and with a copy two registries could write to one log; set schemas: copy, list "
    f"{SCHEMAS} in topics if the target's registry only follows, or in topics_exclude"
)


class Topics(Protocol):
    """Anything that lists topics: a cluster, or a side of a flow."""

    def topics(self) -> Mapping[str, Topic]:
        """All that we may see."""


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
    """Target topics created."""
    missing: tuple[str, ...] = ()
    """Target topics that could not be created."""
    grown: tuple[str, ...] = ()
    """Target topics that got more partitions."""
    problems: tuple[str, ...] = ()
    """Topics that match and cannot be mirrored, each with its reason."""
    came_from_target: tuple[str, ...] = ()
    """Topics that match, but whose names say that they came from the target."""
    unmatched: tuple[str, ...] = ()
    """Entries of `topics` that match nothing."""

    @property
    def partitions(self) -> int:
        """Of all topics together."""
        return sum(topic.partitions for topic in self.topics)


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicsPlan:
    """What a flow must do before it can copy; nothing of it is done yet."""

    topics: tuple[MirroredTopic, ...]
    """Topics that match."""
    create: Mapping[str, NewTopic]
    """Copies that are missing."""
    like: Mapping[str, str]
    """The source topic of each of these."""
    grow: Mapping[str, int]
    """Copies with too few partitions, and how many they should have."""
    problems: tuple[str, ...]
    came_from_target: tuple[str, ...]
    unmatched: tuple[str, ...]


def select(source: Topics, flow: FlowConfig) -> TopicsResult:
    """What `sync` would mirror; nothing is changed."""
    seen = source.topics()
    selection = select_topics(
        seen,
        flow.topic_filter,
        flow.replication_policy,
        flow.target,
    )
    # Copies and dead letters in one topic could be neither told apart nor counted.
    dead = {m for m in selection.mappings if m.target_topic == flow.dead_letter_topic}
    held = flow.schemas == "off" and flow.topic_filter.holds_schemas_back
    return TopicsResult(
        topics=tuple(
            _mirrored(mapping, seen[mapping.topic])
            for mapping in selection.mappings
            if seen[mapping.topic].partitions and mapping not in dead
        ),
        problems=(
            *(
                f"source topic {rejection.topic}: {rejection.reason}"
                for rejection in selection.rejected
            ),
            *(
                f"source topic {mapping.topic}: its copy would be the flow's "
                f"dead_letter_topic {mapping.target_topic}; choose another name there"
                for mapping in dead
            ),
            *([SCHEMAS_LEFT_OUT] if held and SCHEMAS in seen else []),
        ),
        came_from_target=selection.cycles,
        unmatched=unmatched(flow.topics, seen),
    )


def about_unmatched(pattern: str, flow: FlowConfig, names: Iterable[str]) -> str:
    """An entry of `topics` that matches none of the source's names, in words."""
    meant = nearest(pattern, names)
    return f'topics: "{pattern}" matches no topic of {flow.source}' + (
        f'; did you mean "{meant}"?' if meant else ""
    )


def plan(source: Side, target: Side, flow: FlowConfig) -> TopicsPlan:
    """What `sync` would do.

    Raises:
        ClusterError: a cluster does not answer.
    """
    found = select(source, flow)
    copies = target.topics({topic.target_topic for topic in found.topics})
    missing, grow, problems = [], {}, []
    for topic in found.topics:
        copy = copies[topic.target_topic]
        if copy.error == codes.UNKNOWN_TOPIC_OR_PARTITION:
            missing.append(topic)
        elif copy.error != codes.NONE:
            problems.append(
                f"target topic {topic.target_topic}: {codes.name_of(copy.error)}"
            )
        elif 0 < copy.partitions < topic.partitions:
            grow[copy.name] = topic.partitions
    models = source.configs([topic.topic for topic in missing]) if missing else {}
    there = [topic for topic in missing if not models[topic.topic].missing]
    return TopicsPlan(
        topics=found.topics,
        create={t.target_topic: _new(t, models[t.topic], flow) for t in there},
        like={topic.target_topic: topic.topic for topic in there},
        grow=grow,
        problems=(
            *found.problems,
            *(
                f"{model.error}; its copy has the brokers' defaults"
                for model in models.values()
                if model.error is not None and not model.missing
            ),
            *problems,
        ),
        came_from_target=found.came_from_target,
        unmatched=found.unmatched,
    )


def sync(source: Cluster, target: Cluster, flow: FlowConfig) -> TopicsResult:
    """Look once: afterwards every matching topic has a copy with as many partitions,
    or is among the problems.

    Raises:
        ClusterError: a cluster does not answer.
    """
    planned = plan(Live(source), Live(target), flow)
    created, refused = create(target, planned.create)
    grown = []
    for name, count in planned.grow.items():
        try:
            topic_admin.add_partitions(target, name, count=count)
            grown.append(name)
        except (AuthorizationError, BrokerError) as error:
            refused.append(str(error))
    return TopicsResult(
        topics=planned.topics,
        created=tuple(created),
        missing=tuple(name for name in planned.create if name not in created),
        grown=tuple(grown),
        problems=(*planned.problems, *refused),
        unmatched=planned.unmatched,
    )


def like(
    source: Side, flow: FlowConfig, topics: Mapping[str, str]
) -> dict[str, NewTopic]:
    """Topics to create on the target, each as the source's topic that it is mapped to.

    Raises:
        ClusterError: the source does not answer, or does not show one of them.
    """
    models, shown = source.configs(topics.values()), source.topics(topics.values())
    found = {}
    for name, model in topics.items():
        if (error := models[model].error) is not None:
            raise error
        of = MirroredTopic(
            topic=model, target_topic=name, partitions=shown[model].partitions,
            topic_id=shown[model].topic_id.hex,
        )  # fmt: skip
        found[name] = _new(of, models[model], flow)
    return found


def _new(topic: MirroredTopic, model: TopicConfigs, flow: FlowConfig) -> NewTopic:
    """A missing copy, with its topic's configs."""
    # A registry does not start with a second partition.
    least = 1 if topic.target_topic == SCHEMAS else flow.least_partitions
    return NewTopic(
        name=topic.target_topic,
        partitions=max(topic.partitions, least),
        replication_factor=flow.replication_factor,
        configs={**copied_configs(model.configs, flow), **_insync(flow)},
    )


def create(
    target: Cluster, wanted: Mapping[str, NewTopic]
) -> tuple[list[str], list[str]]:
    """Create copies; those that exist stay as they are. Returns the created ones, and
    the problems.

    Raises:
        ClusterError: the cluster does not answer.
    """
    problems: list[str] = []
    made = topic_admin.create_topics(target, list(wanted.values()))
    created = list(made.created)
    for name, error in made.refused.items():
        # A copy without one config is better than no copy, but must be reported.
        there, refused = configs.create_accepted(target, wanted[name], error)
        created += [name] if there else []
        problems += map(str, refused)
    return created, problems


def _insync(flow: FlowConfig) -> dict[str, str]:
    least = flow.min_insync_replicas
    return {} if least is None else {"min.insync.replicas": str(least)}


def _mirrored(mapping: TopicMapping, topic: Topic) -> MirroredTopic:
    return MirroredTopic(
        topic=mapping.topic,
        target_topic=mapping.target_topic,
        partitions=topic.partitions,
        topic_id=topic.topic_id.hex,
    )


def copied_configs(configs: Mapping[str, Config], flow: FlowConfig) -> dict[str, str]:
    """What one source alone would set on its copy."""
    excluded = excluded_configs(flow.config_properties_exclude)
    return {
        name: config.value
        for name, config in configs.items()
        if config.value is not None
        and config.settable
        and (config.origin is Origin.TOPIC or flow.use_defaults_from == "source")
        and name not in _OF_THE_LOG
        and not excluded.fullmatch(name)
    }


@functools.lru_cache(maxsize=64)
def excluded_configs(patterns: tuple[str, ...]) -> re.Pattern[str]:
    return re.compile("|".join(f"(?:{each})" for each in patterns) or "(?!)")


# ---- what a flow would mirror, for checks ----


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


def survey(source: Cluster, target: Cluster, flow: FlowConfig) -> SurveyedFlow:
    selected = select(source, flow)
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
            about_unmatched(each, flow, source.topics()) for each in selected.unmatched
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
