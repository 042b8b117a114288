"""Which ACLs keep producers from writing to some topics of a cluster.

Main function: `plan`. A fence takes WRITE on these topics from everyone but mirror and
changes nothing else: who may write gets DENY WRITE. DENY for `User:*` would also stop
mirror, so what everyone may do is given to mirror itself, given to everyone without
WRITE, and only then taken away. Super users need no ACL, so none stops them: only
`quiet` finds those. Pure; `fences` looks, and changes ACLs.

Rules: Kafka's StandardAuthorizer. DENY wins over ALLOW; ALL is every operation; READ,
WRITE, DELETE and ALTER include DESCRIBE. Without an ACL on a topic, everyone may do
everything if `allow.everyone.if.no.acl.found` is on, else only super users. All writing
needs WRITE on its topic, so IDEMPOTENT_WRITE on the cluster or WRITE on a transactional
id does not matter here.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from mirror.clusters.admin.acls import Acl
from mirror.errors import FenceError
from mirror.topics.acl_notes import FENCE, AclPlan

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable

EVERYONE = "User:*"
TOPIC = "TOPIC"
_ALL = "ALL"
_WRITES = frozenset({"WRITE", _ALL})
_ALL_BUT_WRITE = (
    *("READ", "CREATE", "DELETE", "ALTER", "DESCRIBE_CONFIGS", "ALTER_CONFIGS"),
)
"""Of topics; DESCRIBE is part of READ."""
_MOST_NAMES = 5


@dataclass(frozen=True, slots=True, kw_only=True)
class KnownGrants:
    """What is known about who may write on a cluster."""

    own: str
    """Mirror's own principal."""
    logins: frozenset[str] = frozenset()
    """Further ones, which tasks of flows log in as."""
    acls: frozenset[Acl]
    """Those that the cluster has without fences of mirror."""
    made: frozenset[Acl] = frozenset()
    """Those of them that mirror has made: they may go at any time."""
    others: frozenset[str] = frozenset()
    """Topics that must not be fenced: not those of brokers, of mirror, and copies."""
    everyone: bool | None = None
    """Whether everyone may write to a topic without ACLs; None: not known."""

    @property
    def mirror(self) -> frozenset[str]:
        """All that mirror is here."""
        return self.logins | {self.own}


def name(pair: str) -> str:
    """Whose change of ACLs the fence of a pair is."""
    return f"{FENCE} {pair}"


def without_acls(acls: Iterable[Acl], topics: Iterable[str]) -> tuple[str, ...]:
    """The topics that no ACL is about."""
    of_topics = [acl for acl in acls if acl.kind == TOPIC]
    return tuple(
        sorted(t for t in topics if not any(acl.covers(t) for acl in of_topics))
    )


def plan(known: KnownGrants, topics: Collection[str], *, pair: str) -> AclPlan:
    """The changes that fence these topics.

    Raises:
        FenceError: ACLs cannot do it without harm to others, or it is not known what
            they would do.
    """
    grants = [
        acl
        for acl in sorted(known.acls)
        if acl.kind == TOPIC and acl.permission == "ALLOW" and acl.operation in _WRITES
    ]
    bare = without_acls(known.acls, topics)
    if bare and known.everyone is None:
        raise FenceError(
            f"no ACL is about {_some(bare)}, and the cluster does not tell whether "
            "everyone may write there (allow.everyone.if.no.acl.found), since "
            f"{known.own} is a super user: give these topics ACLs, log in as a user "
            "that is no super user, or use `fence: hook`"
        )
    bridges = tuple(literal(t, EVERYONE, _ALL) for t in bare if known.everyone)
    removes = tuple(
        acl
        for acl in grants
        if acl.principal == EVERYONE and any(acl.covers(topic) for topic in topics)
    )
    for acl in removes:
        if outside := sorted(filter(acl.covers, known.others)):
            raise FenceError(
                f"the ACL {acl} also lets everyone write to {_some(outside)}, which "
                "must not be fenced: replace it with ACLs that name topics or "
                "principals, or use `fence: hook`"
            )
    denies = tuple(
        literal(topic, principal, "WRITE", "DENY")
        for topic in sorted(topics)
        for principal in sorted(
            {acl.principal for acl in grants if acl.covers(topic)}
            - {*known.mirror, EVERYONE}
        )
    )
    taken = (*bridges, *removes)
    wanted = (
        *(replace(acl, principal=p) for acl in taken for p in sorted(known.mirror)),
        *(replace(acl, operation=each) for acl in taken for each in _rest(acl)),
        *denies,
    )
    by_hand = known.acls - known.made
    return AclPlan(
        by=name(pair),
        topics=tuple(sorted(topics)),
        adds=tuple(acl for acl in dict.fromkeys(wanted) if acl not in by_hand),
        removes=removes,
        bridges=bridges,
    )


def _rest(grant: Acl) -> tuple[str, ...]:
    """The operations that a grant gives beside WRITE."""
    return _ALL_BUT_WRITE if grant.operation == _ALL else ("DESCRIBE",)


def literal(
    topic: str, principal: str, operation: str, permission: str = "ALLOW"
) -> Acl:
    """The ACL of one topic, from any host."""
    return Acl(
        kind=TOPIC,
        name=topic,
        pattern="LITERAL",
        principal=principal,
        host="*",
        operation=operation,
        permission=permission,
    )


def _some(names: Collection[str]) -> str:
    shown = ", ".join(list(names)[:_MOST_NAMES])
    more = len(names) - _MOST_NAMES
    return f"{shown} and {more} more" if more > 0 else shown
