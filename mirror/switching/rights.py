"""What producers and consumers need on the cluster that they move to.

Main function: `plan`. Copies are read-only by rule, and ACLs of groups and
transactional ids are not copied. So who could write to a topic on the cluster that is
left gets WRITE on the topic that it writes to next, and who could read as a group gets
READ on it. The ACLs of the other cluster come from the standby topic, so it may be
dead. Pure; `fences` grants the plan, and takes it back.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from mirror.metadata.acl_notes import AclPlan
from mirror.switching.fencing import EVERYONE, TOPIC

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator

    from mirror.clusters.admin.acls import Acl
    from mirror.config.schema import FlowConfig
    from mirror.switching.fencing import KnownGrants

_GROUP, _TRANSACTIONAL_ID, _CLUSTER = "GROUP", "TRANSACTIONAL_ID", "CLUSTER"
_ALL = "ALL"


def name(pair: str) -> str:
    """Whose change of ACLs the rights of a pair are."""
    return f"rights {pair}"


def next_topic(flow: FlowConfig, topic: str) -> str:
    """The topic that producers of a source topic write to after a switch: its copy, or
    if that only takes what comes from the source, the one with the name that they know.
    """
    policy = flow.replication_policy
    return topic if policy.names_source else policy.target_topic(topic)


def plan(
    flow: FlowConfig,
    *,
    pair: str,
    topics: Collection[str],
    groups: Collection[str],
    there: Collection[Acl],
    here: KnownGrants,
    own: Collection[str | None] = (),
) -> AclPlan:
    """What to grant on the flow's target.

    `topics` and `groups` move, by their names on the source. `there`: all ACLs of the
    source; `here`: those of the target. `own`: mirror's principals on the source.

    Only what is missing is granted, and nothing wider than a topic or group: other
    applications of the target have names, too. Transactional ids are not known one by
    one, so their ACLs are granted as they are, to principals that write.
    """
    users = [acl for acl in sorted(there) if acl.principal not in {*own, *here.mirror}]
    writes = list(allowed(users, TOPIC, "WRITE", topics))
    principals = {acl.principal for acl in writes}
    wanted = [
        *(replace(acl, name=next_topic(flow, acl.name)) for acl in writes),
        *allowed(users, _GROUP, "READ", groups),
    ]
    refused = {acl.principal for acl in there if _is(acl, _TRANSACTIONAL_ID, "DENY")}
    for acl in users:
        if acl.principal not in principals:
            continue
        if _is(acl, _TRANSACTIONAL_ID, "ALLOW") and not refused & {
            acl.principal,
            EVERYONE,
        }:
            wanted.append(acl)
        if _is(acl, _CLUSTER, "ALLOW") and acl.operation == "IDEMPOTENT_WRITE":
            wanted.append(acl)  # before Kafka 3.0 producers need it
    by_hand = here.acls - here.made
    return AclPlan(
        by=name(pair),
        adds=tuple(acl for acl in dict.fromkeys(wanted) if acl not in by_hand),
        remarks=tuple(
            f"{each} has DENY on transactional ids, so none are granted to it"
            for each in sorted(refused & (principals | {EVERYONE}))
        ),
    )


def allowed(
    acls: Collection[Acl], kind: str, operation: str, names: Collection[str]
) -> Iterator[Acl]:
    """An ACL of one name for each principal and host that is allowed an operation."""
    about = [acl for acl in acls if acl.kind == kind]
    about = [acl for acl in about if acl.operation in {operation, _ALL}]
    for each in sorted(names):
        covering = [acl for acl in about if acl.covers(each)]
        denied = {acl.principal for acl in covering if acl.permission == "DENY"}
        for acl in covering:
            if acl.permission == "ALLOW" and not denied & {acl.principal, EVERYONE}:
                yield replace(acl, name=each, pattern="LITERAL", operation=operation)


def _is(acl: Acl, kind: str, permission: str) -> bool:
    return acl.kind == kind and acl.permission == permission
