"""Checks of mirror's own topics: may one of them lose what mirror keeps there?

Main functions: `findings`, of one cluster, and `of_map`, of one flow. They change
nothing: what a run would correct is a warning, what mirror cannot correct a failure,
with the command that does.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from mirror.checks.finding import fail, ok, warn
from mirror.config import own_topics
from mirror.offsets import retention
from mirror.topics import guarding

if TYPE_CHECKING:
    from collections.abc import Iterable

    from mirror.checks.finding import Finding
    from mirror.checks.ground import Ground
    from mirror.clusters.cluster import Cluster
    from mirror.config.schema import FlowConfig, MirrorConfig

_CHECK = "own topics"


def findings(
    cluster: Cluster, config: MirrorConfig, flows: Iterable[FlowConfig]
) -> list[Finding]:
    """Those of the topics of these flows that are on the cluster.

    Raises:
        ClusterError: it no longer answers.
    """
    topics = {
        each.name: each
        for flow in flows
        for each in own_topics.of_flow(config, flow)
        if each.alias == cluster.alias
    }
    seen = guarding.look(cluster, tuple(topics.values()))
    refused = guarding.alter(cluster, seen.wrong, validate_only=True)
    where = f"cluster {cluster.alias}"
    left = (*guarding.refusals(cluster, refused).values(),
            *guarding.beyond(cluster, seen))  # fmt: skip
    found = [fail(where, _CHECK, each.text, each.remedy) for each in left]
    found += [
        warn(
            where, _CHECK, f"{each.topic.name}: {each.config} is {each.now}",
            f"a run sets {each.config} to {each.then}",
        )
        for each in seen.wrong
        if each not in refused
    ]  # fmt: skip
    return found or [ok(where, _CHECK, "none may lose what mirror keeps there")]


def of_map(ground: Ground) -> list[Finding]:
    """Whether the flow's offset map is kept as long as the copies that are there."""
    topic = own_topics.OFFSET_MAP.of(ground.flow)
    copies = [each.target_topic for each in ground.surveyed.topics]
    found = {
        name: {key: config.value for key, config in shown.configs.items()}
        for name, shown in ground.target_side.configs([topic.name, *copies]).items()
    }
    the_map = found.pop(topic.name)
    there = [each for each in found.values() if each]
    present = int(the_map.get(own_topics.RETENTION) or retention.FOR_EVER)
    if not there or retention.is_enough(present, retention.longest(there)):
        return []
    return [
        warn(
            ground.where, _CHECK,
            f"{topic.name}: retention.ms is {present}, less than that of copies",
            "a run sets it as long as theirs",
        )
    ]  # fmt: skip
