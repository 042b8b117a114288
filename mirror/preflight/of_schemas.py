"""Whether a flow's schemas can follow: both registries, and who else writes there.

Main function: `findings`, from a flow's `Ground`. What would be written is in the plan.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from mirror.clusters.registry.registry import Registry
from mirror.clusters.registry.values import Mode, Subject
from mirror.config.registries import SCHEMAS_TOPIC
from mirror.errors import MirrorError
from mirror.preflight.finding import fail, ok, warn

if TYPE_CHECKING:
    from mirror.config.schema import MirrorConfig
    from mirror.preflight.finding import Finding
    from mirror.preflight.ground import Ground


def findings(ground: Ground, config: MirrorConfig) -> list[Finding]:
    """All findings about a flow's schemas."""
    found = _topic(ground)
    if ground.flow.schemas == "off":
        return found
    where, flow = ground.where, ground.flow
    try:
        with (
            Registry(config.clusters[flow.source]) as source,
            Registry(config.clusters[flow.target]) as target,
        ):
            source.contexts()
            found += _open(ground, target)
    except MirrorError as error:
        fix = "check schema_registry of that cluster, and mirror's rights there"
        return [*found, fail(where, "schemas", str(error), fix)]
    writes = [each for each in ground.plan.schemas if each.flow == flow.name]
    return [*found, ok(where, "schemas", f"{len(writes)} to write now")]


def _topic(ground: Ground) -> list[Finding]:
    """A registry's own topic among those that are copied."""
    for topic in ground.surveyed.topics:
        if topic.topic == SCHEMAS_TOPIC == topic.target_topic:
            return [
                warn(
                    ground.where, "schemas",
                    f"{SCHEMAS_TOPIC} is copied under its own name: a registry of "
                    f"{ground.flow.target} that keeps its schemas there would have "
                    "two writers",
                    "leave it out with topics_exclude, and use schemas: copy",
                )
            ]  # fmt: skip
    return []


def _open(ground: Ground, target: Registry) -> list[Finding]:
    flow = ground.flow
    mode = target.mode(Subject(flow.schemas_context, ""))
    if mode is not Mode.READWRITE:
        return []
    return [
        warn(
            ground.where, "schemas",
            f"the registry of {flow.target} is in mode {mode}: what applications "
            f"register there may take ids that {flow.source} issues later",
            "register on the source only, or use schemas_context",
        )
    ]  # fmt: skip
