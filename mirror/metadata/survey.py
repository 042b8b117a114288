"""What a configuration would mirror, found out without changing anything.

Main function: `survey`. It reaches every cluster of an enabled flow, compares the
topics on both sides and returns a frozen `Survey`, with all problems in it instead
of the first one raised. Acting on it is `topics.sync`'s duty.
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
import contextlib
from dataclasses import dataclass
from itertools import combinations
from typing import TYPE_CHECKING

from mirror.clusters import codes
from mirror.clusters.cluster import Cluster
from mirror.errors import ClusterError
from mirror.metadata import topics

if TYPE_CHECKING:
    from collections.abc import Sequence

    from mirror.clusters.cluster import Topic
    from mirror.config.cluster_settings import ClusterConfig
    from mirror.config.schema import FlowConfig, MirrorConfig
    from mirror.metadata.topics import MirroredTopic


EXISTS = "exists"
TO_BE_CREATED = "to be created"
TO_BE_GROWN = "to be grown"


@dataclass(frozen=True, slots=True, kw_only=True)
class SurveyedTopic:
    """A topic, its copy, and what a flow would have to do for the copy first."""

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
    source_id: str
    target_id: str
    topics: tuple[SurveyedTopic, ...]
    problems: tuple[str, ...] = ()
    """Topics that match and cannot be mirrored, each with its reason."""
    came_from_target: tuple[str, ...] = ()
    """Topics that match, and are left out since their names say so."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Survey:
    """The whole configuration."""

    flows: tuple[SurveyedFlow, ...]
    mistakes: tuple[str, ...]
    """What only a change of the configuration can help."""
    failures: tuple[str, ...]
    """Clusters that did not answer, or refused us."""


def survey(config: MirrorConfig) -> Survey:
    """Look at every enabled flow; problems are returned, never raised."""
    flows = [flow for flow in config.flows.values() if flow.enabled]
    wanted = dict.fromkeys(alias for f in flows for alias in (f.source, f.target))
    mistakes, failures, found = [], [], []
    with contextlib.ExitStack() as stack:
        clusters = {}
        for alias, answer in _reach([config.clusters[a] for a in wanted]).items():
            if isinstance(answer, ClusterError):
                failures.append(_unreached(config.clusters[alias], answer))
            else:
                stack.callback(answer.close)
                clusters[alias] = answer
        for flow in flows:
            source, target = clusters.get(flow.source), clusters.get(flow.target)
            if source is None or target is None:
                continue
            if source.cluster_id == target.cluster_id:
                mistakes.append(_one_cluster(config, flow, source.cluster_id))
                continue
            try:
                found.append(_compare(source, target, flow))
            except ClusterError as error:
                failures.append(f"flow {flow.name}: {error}")
    mistakes += _doubled(found)
    return Survey(
        flows=tuple(found), mistakes=tuple(mistakes), failures=tuple(failures)
    )


def _reach(configs: list[ClusterConfig]) -> dict[str, Cluster | ClusterError]:
    """Connect to all at once: one that does not answer costs its whole time-out."""

    def reach(config: ClusterConfig) -> Cluster | ClusterError:
        try:
            return Cluster(config, client_id="mirror.check").connect()
        except ClusterError as error:
            return error

    with ThreadPoolExecutor(max_workers=max(1, len(configs))) as pool:
        answers = list(pool.map(reach, configs))
    return {
        config.alias: answer for config, answer in zip(configs, answers, strict=True)
    }


def _setting(config: ClusterConfig) -> str:
    servers = ",".join(config.bootstrap_servers)
    return f"clusters.{config.alias}.bootstrap_servers: {servers}"


def _unreached(config: ClusterConfig, error: ClusterError) -> str:
    reason = str(error).replace(f"cluster {config.alias}: ", "")
    servers = ",".join(config.bootstrap_servers)
    if not reason.startswith(servers):
        reason = f"{servers}: {reason}"
    return f"clusters.{config.alias}.bootstrap_servers: {reason}"


def _one_cluster(config: MirrorConfig, flow: FlowConfig, cluster_id: str) -> str:
    source, target = config.clusters[flow.source], config.clusters[flow.target]
    return (
        f"flow {flow.name}: {_setting(source)} and {_setting(target)} are one and the "
        f"same cluster ({cluster_id}), so it would copy its own copies; source and "
        "target must be two clusters"
    )


def _doubled(flows: Sequence[SurveyedFlow]) -> list[str]:
    """One cluster under two aliases, with one copy of what both would bring."""
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
                f"flows {one.name} and {other.name} go from one and the same cluster "
                f"({one.source_id}) to another, and both would copy {topic} to {copy}, "
                "so every record would be doubled; remove one of them"
            )
    return found


def _compare(source: Cluster, target: Cluster, flow: FlowConfig) -> SurveyedFlow:
    selected = topics.select(source, flow)
    copies = target.topics({topic.target_topic for topic in selected.topics})
    problems = [
        f"target topic {copy.name}: {codes.name_of(copy.error)}"
        for copy in copies.values()
        if copy.error not in (codes.NONE, codes.UNKNOWN_TOPIC_OR_PARTITION)
    ]
    return SurveyedFlow(
        name=flow.name,
        source_id=source.cluster_id,
        target_id=target.cluster_id,
        topics=tuple(
            _surveyed(topic, copies[topic.target_topic]) for topic in selected.topics
        ),
        problems=(*selected.problems, *problems),
        came_from_target=selected.came_from_target,
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
