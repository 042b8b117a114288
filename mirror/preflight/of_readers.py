"""Whether consumers of the copies find what they need: their rights, their groups.

Functions from a flow's `Ground` to findings. `held_rights` checks mirror's own rights.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from mirror.clusters.admin import acls, allowed, groups
from mirror.clusters.admin.acls import NoAuthorizerError
from mirror.errors import AuthorizationError
from mirror.offsets import commit_records
from mirror.policy.selection import GroupFilter
from mirror.preflight.finding import ok, some, warn
from mirror.preflight.permissions.need import Operation

if TYPE_CHECKING:
    from mirror.preflight.finding import Finding
    from mirror.preflight.ground import Ground

_FOLLOWING = "follow commits within a second"


def acls_of(ground: Ground) -> list[Finding]:
    where, flow = ground.where, ground.flow
    if not flow.sync_topic_acls:
        return []
    kept: dict[str, int | None] = {}
    for cluster in (ground.source, ground.target):
        try:
            kept[cluster.alias] = len(acls.describe(cluster))
        except NoAuthorizerError:
            kept[cluster.alias] = None
        except AuthorizationError as error:
            return [
                warn(
                    where, "ACLs", str(error),
                    "allow us DESCRIBE (on the target ALTER) on the cluster, or set "
                    "sync_topic_acls to false",
                )
            ]  # fmt: skip
    if kept[flow.source] is None:
        return [ok(where, "ACLs", f"{flow.source} has no authorizer: no ACLs to sync")]
    if kept[flow.target] is None:
        return [
            warn(
                where, "ACLs",
                f"{flow.source} has an authorizer and {flow.target} has none: "
                "anyone can read and write the copies",
                f"set authorizer.class.name on the brokers of {flow.target}, or "
                "sync_topic_acls to false",
            )
        ]  # fmt: skip
    changes = [each for each in ground.plan.acls if each.flow == flow.name]
    return [ok(where, "ACLs", f"{len(changes)} to add or remove now")]


def groups_of(ground: Ground) -> list[Finding]:
    where, flow = ground.where, ground.flow
    if not flow.emit_checkpoints:
        return []
    wanted = GroupFilter(include=flow.groups, exclude=flow.groups_exclude)
    matching = [name for name in groups.list_groups(ground.source) if
                wanted.matches(name)]  # fmt: skip
    found = [ok(where, "groups", f"{len(matching)} match"), _checkpoints(ground)]
    if not flow.sync_group_offsets:
        return found
    there = groups.list_groups(ground.target)
    active = sorted(name for name in matching if name in there and not there[name].idle)
    if active:
        found.append(
            warn(
                where, "group offsets",
                f"{some(active)} of {flow.target} have members there: mirror leaves "
                "their offsets alone",
                "stop them there if their offsets should follow the source",
            )
        )  # fmt: skip
    merged = _merged(ground)
    if merged:
        found.append(
            warn(
                where, "group offsets",
                f"are not set in {some(merged)}: other flows write these too, in a way "
                "that leaves open where their records are from",
                "translate them when a group moves: mirror group translate",
            )
        )  # fmt: skip
    return found


def _checkpoints(ground: Ground) -> Finding:
    """How old they get; `held_rights` names a right that is missing for `on`."""
    flow, topic = ground.flow, commit_records.TOPIC
    told = allowed.of_topics(ground.source, [topic])[topic]
    why = ""
    if flow.follow_commits == "off":
        why = "follow_commits is off"
    elif told is not None and Operation.READ not in told:
        why = f"to follow commits we need READ on topic {topic} of {flow.source}"
    how = f"every {flow.emit_checkpoints_seconds:g} s: {why}" if why else _FOLLOWING
    return ok(ground.where, "checkpoints", how)


def _merged(ground: Ground) -> list[str]:
    return [
        topic.target_topic
        for topic in ground.surveyed.topics
        if not ground.merging.is_alone(ground.flow, topic.topic)
        and ground.merging.back(ground.flow, topic.topic) is None
        and not ground.merging.beside(ground.flow, topic.topic)
    ]
