"""Whether applications may do on the target what they may do on the source.

Main function: `judge`. A switch with `fence: acl` grants WRITE on topics, READ on
groups and transactional ids; what it does not grant must be there, and no DENY may
stand against it. With another fence everything must be there. Pure.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from mirror.drilling.findings import DrillFinding, FindingLevel
from mirror.switching import rights
from mirror.switching.fencing import EVERYONE, TOPIC

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator

    from mirror.clusters.admin.acls import Acl
    from mirror.config.schema import FlowConfig
    from mirror.switching.fencing import KnownGrants

_GROUP = "GROUP"
_ANY_HOST = "*"


@dataclass(frozen=True, slots=True, kw_only=True)
class RightsTerms:
    """What moves, and how."""

    flow: FlowConfig
    topics: Collection[str]
    """By their names on the source, as the groups."""
    groups: Collection[str]
    own: Collection[str | None]
    """Mirror's principals on the source."""
    bootstrap: str
    """Of the target."""
    granted: bool
    """Whether a switch grants rights (`fence: acl`)."""
    everyone: bool = False
    """Whether everyone may use what no ACL of the target is about."""


def judge(
    terms: RightsTerms, there: Collection[Acl], here: KnownGrants
) -> Iterator[DrillFinding]:
    """`there`: the ACLs of the source; `here`: what is known of the target."""
    plan = rights.plan(
        terms.flow, pair="", topics=terms.topics, groups=terms.groups, there=there,
        here=here, own=terms.own,
    )  # fmt: skip
    after = frozenset({*here.acls, *(plan.adds if terms.granted else ())})
    users = [acl for acl in there if acl.principal not in {*terms.own, *here.mirror}]
    policy = terms.flow.replication_policy
    reads = rights.allowed(users, TOPIC, "READ", terms.topics)
    wanted = {
        *(replace(acl, name=policy.target_topic(acl.name)) for acl in reads),
        *plan.adds,
        *(
            replace(acl, name=rights.next_topic(terms.flow, acl.name))
            for acl in rights.allowed(users, TOPIC, "WRITE", terms.topics)
        ),
        *rights.allowed(users, _GROUP, "READ", terms.groups),
    }
    for acl in sorted(wanted):
        if _may(after, acl) or (terms.everyone and not _is_named(after, acl)):
            continue
        yield DrillFinding(
            level=FindingLevel.NOT_READY,
            subject=f"{_word(acl.kind)} {acl.name}",
            reason=f"{acl.principal} has no {acl.operation} on {_word(acl.kind)} "
            f"{acl.name} at {terms.flow.target}",
            cure="grant it there, and remove what denies it",
            command=_command(acl, terms.bootstrap),
        )
    for remark in plan.remarks:
        yield DrillFinding(
            level=FindingLevel.DEGRADED,
            subject="transactional ids",
            reason=remark,
            cure="grant the transactional ids by hand",
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
        for acl in rights.allowed(acls, wanted.kind, wanted.operation, [wanted.name])
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
