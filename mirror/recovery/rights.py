"""What producers and consumers need on the cluster that they move to.

Main functions: `plan`, what a switch grants, and `lacking`, what is still missing
then. Copies are read-only by rule, and ACLs of groups and
transactional ids are not copied. So who could write to a topic on the cluster that is
left gets WRITE on the topic that it writes to next, and who could read as a group gets
READ on it. The ACLs of the other cluster come from the standby topic, so it may be
dead. Pure; `fences` grants the plan, and takes it back.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from mirror.recovery.stage import Finding, Level
from mirror.topics.acl_notes import AclPlan
from mirror.topics.fences import EVERYONE, TOPIC

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator

    from mirror.clusters.admin.acls import Acl
    from mirror.config.schema import FlowConfig
    from mirror.topics.fences import KnownGrants

_GROUP, _TRANSACTIONAL_ID, _CLUSTER = "GROUP", "TRANSACTIONAL_ID", "CLUSTER"
_ALL = "ALL"
_ANY_HOST = "*"


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


def lacking(  # noqa: PLR0913  both sides, and what moves
    flow: FlowConfig,
    *,
    topics: Collection[str],
    groups: Collection[str],
    there: Collection[Acl],
    here: KnownGrants,
    own: Collection[str | None],
    bootstrap: str,
    granted: bool,
    everyone: bool = False,
) -> Iterator[Finding]:
    """What principals may do on the source, and not on the target, as `plan`.

    `bootstrap`: of the target; `granted`: whether a switch grants the plan (`fence:
    acl`); `everyone`: whether everyone may use what no ACL of the target is about.
    """
    planned = plan(
        flow, pair="", topics=topics, groups=groups, there=there, here=here, own=own
    )
    after = frozenset({*here.acls, *(planned.adds if granted else ())})
    users = [acl for acl in there if acl.principal not in {*own, *here.mirror}]
    policy = flow.replication_policy
    wanted = {
        *planned.adds,
        *(
            replace(acl, name=policy.target_topic(acl.name))
            for acl in allowed(users, TOPIC, "READ", topics)
        ),
        *(
            replace(acl, name=next_topic(flow, acl.name))
            for acl in allowed(users, TOPIC, "WRITE", topics)
        ),
        *allowed(users, _GROUP, "READ", groups),
    }
    for acl in sorted(wanted):
        if _may(after, acl) or (everyone and not _is_named(after, acl)):
            continue
        what = f"{_word(acl.kind)} {acl.name}"
        yield Finding(
            level=Level.NOT_READY,
            subject=what,
            reason=f"{acl.principal} has no {acl.operation} on {what} at {flow.target}",
            fix="grant it there, and remove what denies it",
            command=_command(acl, bootstrap),
        )
    for remark in planned.remarks:
        yield Finding(
            level=Level.DEGRADED,
            subject="transactional ids",
            reason=remark,
            fix="grant the transactional ids by hand",
        )


def _may(acls: Collection[Acl], wanted: Acl) -> bool:
    if wanted.pattern != "LITERAL" or wanted.kind not in {TOPIC, _GROUP}:
        return any(
            replace(acl, principal=wanted.principal, host=wanted.host) == wanted
            and acl.principal in {wanted.principal, EVERYONE}
            and acl.host in {wanted.host, _ANY_HOST}
            for acl in acls
        )
    return any(
        acl.principal in {wanted.principal, EVERYONE}
        and acl.host in {wanted.host, _ANY_HOST}
        for acl in allowed(acls, wanted.kind, wanted.operation, [wanted.name])
    )


def _is_named(acls: Collection[Acl], wanted: Acl) -> bool:
    return any(acl.kind == wanted.kind and acl.covers(wanted.name) for acl in acls)


def _word(kind: str) -> str:
    return kind.lower().replace("_", " ")


def _command(acl: Acl, bootstrap: str) -> str:
    prefixed = " --resource-pattern-type prefixed" if acl.pattern == "PREFIXED" else ""
    resource = (
        "--cluster"
        if acl.kind == "CLUSTER"
        else f"--{acl.kind.lower().replace('_', '-')} '{acl.name}'"
    )
    return (
        f"kafka-acls.sh --bootstrap-server {bootstrap} --add --allow-principal "
        f"'{acl.principal}' --operation {acl.operation} {resource}{prefixed}"
    )
