"""Configs of copies: compared with those of their topics, and corrected.

Main functions: `look`, which changes nothing, and `sync`; both return a frozen
`ConfigsResult` with every topic of the flow in it. A topic whose configs may not be
read or changed is a problem of that topic alone. `topics` creates and grows topics.

The rules are MirrorMaker 2's, and what merging adds: `merged_goal`, the configs that
the sources ask for, and `differing`, where a copy differs from that; both are pure. Two
things are better than in MirrorMaker 2: brokers' settings do not become overrides of
the copy, and an override removed from the topic is removed from the copy.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from mirror.clusters import codes
from mirror.clusters.admin import configs
from mirror.clusters.admin.configs import Config, Origin, TopicConfigs
from mirror.errors import BrokerError, ClusterError, MirrorError
from mirror.status.values import ConfigDrift, TopicDrift
from mirror.topics import topics
from mirror.topics.merging import Contributor
from mirror.topics.sides import Live

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from mirror.clusters.cluster import Cluster
    from mirror.config.schema import FlowConfig
    from mirror.topics.merging import Merging
    from mirror.topics.sides import Side
    from mirror.topics.topics import MirroredTopic

    Reach = Callable[[str], Cluster]
    """Gives a cluster by its alias, or raises `ClusterError`."""

Changes = dict[str, dict[str, str | None]]


@dataclass(frozen=True, slots=True, kw_only=True)
class ConfigsResult:
    """What one look found, and what was done about it."""

    topics: tuple[TopicDrift, ...]
    """Every topic of the flow as it is now."""
    corrected: tuple[str, ...] = ()
    """Configs changed on the target, each as `<copy>: <config>=<value>`."""

    @property
    def drift(self) -> tuple[TopicDrift, ...]:
        return tuple(topic for topic in self.topics if topic.differs)

    @property
    def problems(self) -> tuple[str, ...]:
        return tuple(topic.problem for topic in self.topics if topic.problem)


def look(
    source: Cluster, target: Cluster, flow: FlowConfig, merging: Merging, reach: Reach
) -> ConfigsResult:
    """Compare, and change nothing.

    `reach` gives the sources of other flows, for copies that these write too.

    Raises:
        ClusterError: the flow's own source or target does not answer.
    """
    found, _ = _compared(source, target, flow, merging, reach)
    return ConfigsResult(topics=found)


def plan(
    source: Side,
    target: Side,
    flow: FlowConfig,
    merging: Merging,
    reach: Callable[[str], Side],
) -> tuple[tuple[TopicDrift, ...], Changes]:
    """Every topic of the flow as it is, and what `sync` would change.

    Raises:
        ClusterError: the flow's own source or target does not answer.
    """
    return _Look(source, target, flow, merging, reach).compared()


def sync(
    source: Cluster, target: Cluster, flow: FlowConfig, merging: Merging, reach: Reach
) -> ConfigsResult:
    """Compare, and correct what differs; what could not be corrected stays as drift.

    Raises:
        ClusterError: the flow's own source or target does not answer.
    """
    compared, changes = _compared(source, target, flow, merging, reach)
    refused = apply(target, changes)
    after = []
    for topic in compared:
        asked = changes.get(topic.target_topic, {})
        reasons = refused.get(topic.target_topic, {})
        left = tuple(
            each
            for each in topic.configs
            if each.name not in asked or each.name in reasons
        )
        problem = "; ".join(dict.fromkeys(map(str, reasons.values())))
        after.append(replace(topic, configs=left, problem=problem or topic.problem))
    return ConfigsResult(
        topics=tuple(after),
        corrected=tuple(
            f"{copy}: {name}" + (" removed" if value is None else f"={value}")
            for copy, each in changes.items()
            for name, value in each.items()
            if name not in refused.get(copy, {})
        ),
    )


def apply(
    target: Cluster, changes: Mapping[str, Mapping[str, str | None]]
) -> dict[str, dict[str, ClusterError]]:
    """Change configs; if a topic is refused as a whole, one by one. Returns the
    refusals by topic and config.
    """
    refused: dict[str, dict[str, ClusterError]] = {}
    for copy, error in configs.alter(target, changes).items():
        names = changes[copy]
        if len(names) > 1 and isinstance(error, BrokerError) and not error.retriable:
            for name, value in names.items():
                for alone in configs.alter(target, {copy: {name: value}}).values():
                    refused.setdefault(copy, {})[name] = alone
        else:
            refused[copy] = dict.fromkeys(names, error)
    return refused


def _compared(
    source: Cluster, target: Cluster, flow: FlowConfig, merging: Merging, reach: Reach
) -> tuple[tuple[TopicDrift, ...], Changes]:
    def live(alias: str) -> Side:
        return Live(reach(alias))

    return plan(Live(source), Live(target), flow, merging, live)


class _Look:
    """One look at all topics of a flow, and at the other sources of their copies."""

    def __init__(
        self,
        source: Side,
        target: Side,
        flow: FlowConfig,
        merging: Merging,
        reach: Callable[[str], Side],
    ) -> None:
        self._flow = flow
        self._merging = merging
        self._reach = reach
        self._topics = topics.select(source, flow).topics
        self._shown = target.topics({topic.target_topic for topic in self._topics})
        self._sources = source.configs([t.topic for t in self._topics])
        self._copies = target.configs(
            [name for name, t in self._shown.items() if t.error == codes.NONE]
        )
        self._others: dict[str, Mapping[str, TopicConfigs] | ClusterError] = {}

    def compared(self) -> tuple[tuple[TopicDrift, ...], Changes]:
        """Every topic, and what would correct the copies."""
        writers = {topic.topic: self._writers(topic) for topic in self._topics}
        self._ask_others(writers)
        found, changes = [], {}
        for topic in self._topics:
            drift, correction = self._compare(topic, writers[topic.topic])
            found.append(drift)
            if correction:
                changes[topic.target_topic] = correction
        return tuple(found), changes

    def _compare(
        self, topic: MirroredTopic, writers: Sequence[Contributor]
    ) -> tuple[TopicDrift, dict[str, str | None]]:
        flow = self._flow
        drift = TopicDrift(
            topic=topic.topic,
            target_topic=topic.target_topic,
            partitions=topic.partitions,
            target_partitions=self._shown[topic.target_topic].partitions,
            merged=any(
                each.flow.name != flow.name and self._of(each) is not None
                for each in writers
            ),
        )
        error = self._shown[topic.target_topic].error
        if error not in (codes.NONE, codes.UNKNOWN_TOPIC_OR_PARTITION):
            problem = f"target topic {topic.target_topic}: {codes.name_of(error)}"
            return replace(drift, problem=problem), {}
        copy = self._copies.get(topic.target_topic)
        model = self._sources[topic.topic]
        if copy is None or copy.missing or model.missing:
            return drift, {}  # the next look for topics will report it
        refused = [str(side.error) for side in (model, copy) if side.error is not None]
        if refused:
            return replace(drift, problem="; ".join(refused)), {}
        if self._merging.leads_back(flow, topic.topic):
            return drift, {}
        try:
            goal = merged_goal(self._parts(writers))
        except _UndecidedError as error:
            return replace(drift, problem=str(error)), {}
        wrong = differing(goal, copy.configs)
        unknown = [each.name for each in wrong if each.name not in copy.configs]
        problem = (
            f"cluster {flow.target}: topic {topic.target_topic}: brokers do not know "
            f"the configs {', '.join(unknown)}"
        )
        return replace(
            drift,
            configs=wrong,
            conflicts=goal.conflicts,
            problem=problem if unknown else "",
        ), corrections(wrong, copy.configs)

    def _writers(self, topic: MirroredTopic) -> tuple[Contributor, ...]:
        found = self._merging.contributors(self._flow.target, topic.target_topic)
        if any(each.flow.name == self._flow.name for each in found):
            return found
        return (Contributor(flow=self._flow, topic=topic.topic), *found)

    def _parts(self, writers: Sequence[Contributor]) -> list[SourceConfigs]:
        """What each source has, the deciding ones first.

        Raises:
            _UndecidedError: the configs of a source that matters cannot be read.
        """
        parts: list[SourceConfigs] = []
        for each in writers:
            theirs = self._of(each)
            ours = each.flow.name == self._flow.name
            if theirs is None or self._merging.leads_back(each.flow, each.topic):
                continue
            if theirs.error is None:
                parts.append(SourceConfigs(flow=each.flow, configs=theirs.configs))
            elif ours or not parts or parts[0].flow.config_strategy == "intersection":
                raise _UndecidedError(str(theirs.error))
        return parts

    def _of(self, writer: Contributor) -> TopicConfigs | None:
        """The configs at a writer's source; None if it has no such topic."""
        if writer.flow.name == self._flow.name:
            return self._sources[writer.topic]
        others = self._others[writer.flow.source]
        if isinstance(others, ClusterError):
            return TopicConfigs(error=others)
        found = others.get(writer.topic)
        return None if found is None or found.missing else found

    def _ask_others(self, writers: Mapping[str, Sequence[Contributor]]) -> None:
        wanted: dict[str, set[str]] = {}
        for each in (each for some in writers.values() for each in some):
            if each.flow.name != self._flow.name:
                wanted.setdefault(each.flow.source, set()).add(each.topic)
        for alias, names in wanted.items():
            try:
                cluster = self._reach(alias)
                seen = cluster.topics(names)
                self._others[alias] = cluster.configs(
                    [n for n, t in seen.items() if t.error == codes.NONE]
                )
            except ClusterError as error:
                self._others[alias] = error


class _UndecidedError(MirrorError):
    """It is not known which configs a copy should have."""


# ---- the rules ----


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceConfigs:
    """The configs of one of a copy's sources, and the flow whose settings apply."""

    flow: FlowConfig
    configs: Mapping[str, Config]


@dataclass(frozen=True, slots=True, kw_only=True)
class Goal:
    """The configs that a copy should have."""

    flow: FlowConfig
    """The flow whose settings count."""
    values: Mapping[str, str] = field(default_factory=dict)
    left_alone: frozenset[str] = frozenset()
    """Configs that stay as they are on the target."""
    all_left_alone: bool = False
    conflicts: tuple[str, ...] = ()
    """Configs on which the sources disagree, each with its values."""


def merged_goal(parts: Sequence[SourceConfigs]) -> Goal:
    """What the sources ask for together; the first of them decides how."""
    flow = parts[0].flow
    each = [topics.copied_configs(part.configs, flow) for part in parts]
    names = sorted(set().union(*each))
    disputed = [name for name in names if len({one.get(name) for one in each}) > 1]
    conflicts = tuple(
        f"{name}: "
        + ", ".join(
            f"{part.flow.source} {one.get(name, 'not set')}"
            for part, one in zip(parts, each, strict=True)
        )
        for name in disputed
    )
    if len(parts) > 1 and flow.config_strategy == "target":
        return Goal(flow=flow, all_left_alone=True, conflicts=conflicts)
    if flow.config_strategy == "intersection":
        agreed = {n: v for n, v in each[0].items() if n not in disputed}
        return Goal(
            flow=flow,
            values=agreed,
            left_alone=frozenset(disputed),
            conflicts=conflicts,
        )
    return Goal(flow=flow, values=each[0], conflicts=conflicts)


def differing(goal: Goal, copy: Mapping[str, Config]) -> tuple[ConfigDrift, ...]:
    """Where a copy differs from what it should be, sorted by name."""
    if goal.all_left_alone:
        return ()
    excluded = topics.excluded_configs(goal.flow.config_properties_exclude)
    overrides = {
        name: config.value
        for name, config in copy.items()
        if config.origin is Origin.TOPIC
        and config.settable
        and not excluded.fullmatch(name)
    }
    if goal.flow.use_defaults_from == "source":
        # The effective value counts, not whether it is set on the topic itself.
        present = {name: config.value for name, config in copy.items()}
        names = set(goal.values)
    else:
        present = overrides
        names = goal.values.keys() | overrides.keys()
    return tuple(
        ConfigDrift(name=name, wanted=goal.values.get(name), found=present.get(name))
        for name in sorted(names - goal.left_alone)
        if goal.values.get(name) != present.get(name)
    )


def corrections(
    found: Sequence[ConfigDrift], copy: Mapping[str, Config]
) -> dict[str, str | None]:
    """The correction; configs that the target's brokers do not know cannot be
    corrected.
    """
    return {
        each.name: each.wanted
        for each in found
        if each.wanted is None or each.name in copy
    }
