"""Whether a flow's schemas can follow: both registries, and who else writes there.

Main function: `findings`, from a flow's `Ground`. What would be written is in the plan.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from mirror.clusters.registry.registry import Registry
from mirror.clusters.registry.values import Mode, Subject
from mirror.errors import MirrorError
from mirror.metadata.topics import SCHEMAS_LEFT_OUT
from mirror.policy.names import SCHEMAS
from mirror.preflight import registry_trial
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
            source.level(Subject("", ""))  # whether Confluent's API is there
            if flow.translates_ids:
                target.level(Subject("", ""))
            elif wrong := [*registry_trial.trial(ground, source, target)]:
                return [*found, *wrong]
            else:
                found += _open(ground, target)
    except MirrorError as error:
        fix = "check schema_registry of that cluster, and mirror's rights there"
        return [*found, fail(where, "schemas", str(error), fix)]
    writes = [each for each in ground.plan.schemas if each.flow == flow.name]
    return [*found, ok(where, "schemas", f"{len(writes)} to write now")]


def _topic(ground: Ground) -> list[Finding]:
    """A registry's own topic among those that are copied, or would be."""
    what, _, fix = SCHEMAS_LEFT_OUT.partition("; ")
    if SCHEMAS_LEFT_OUT in ground.surveyed.problems:
        return [warn(ground.where, "schemas", what, fix)]
    for topic in ground.surveyed.topics:
        if topic.topic == SCHEMAS == topic.target_topic:
            text = f"{SCHEMAS} is copied under its own name"
            fix = f"leave it out, unless the registry of {ground.flow.target} is a "
            fix += "follower that never becomes the leader"
            if max(topic.partitions, topic.target_partitions) > 1:
                text += ", and has more than one partition, which registries refuse"
                fix = "delete the copy, and let mirror create it again"
            else:
                text += f": a registry of {ground.flow.target} that registers schemas "
                text += "itself writes to the same log"
            return [warn(ground.where, "schemas", text, fix)]
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
