"""ACLs that keep producers from writing to topics: planned, made, and taken back.

A fence takes WRITE on these topics from everyone but mirror and changes nothing else:
who may write gets DENY WRITE. DENY for `User:*` would also stop mirror, so what
everyone may do is given to mirror itself, given to everyone without WRITE, and only
then taken away. Super users need no ACL, so none stops them: only `quiet` finds those.

Switches fence what applications write to, flows with `protect: acl` their copies.

Main functions: `look`, what is known of a cluster; `plan_fence`, which is pure; `lay`
and `lift`, for any `AclPlan`. Both can be called again after any failure, on any
machine: the notes on the cluster say what was begun. Brokers hear of ACLs at different
times, so each step ends when every broker shows it.

Rules: Kafka's StandardAuthorizer. DENY wins over ALLOW; ALL is every operation; READ,
WRITE, DELETE and ALTER include DESCRIBE. Without an ACL on a topic, everyone may do
everything if `allow.everyone.if.no.acl.found` is on, else only super users. All writing
needs WRITE on its topic, so IDEMPOTENT_WRITE on the cluster or WRITE on a transactional
id does not matter here.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial
import string
import time
from typing import TYPE_CHECKING, TypeVar

from mirror.clusters.admin import acls, allowed, brokers
from mirror.clusters.admin.acls import Acl, NoAuthorizerError
from mirror.clusters.reach import at_once
from mirror.config.schema import principals
from mirror.errors import (
    AuthorizationError,
    ClusterError,
    FenceError,
    PrincipalError,
    UnreachableError,
)
from mirror.patience import left
from mirror.policy.naming import is_heartbeats, is_internal
from mirror.topics.acl_notes import FENCE, AclNotes, AclOwnership, AclPlan, steady

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Mapping

    from mirror.clusters.cluster import Cluster
    from mirror.config.schema import MirrorConfig


EVERYONE = "User:*"
TOPIC = "TOPIC"
_ALL = "ALL"
_WRITES = frozenset({"WRITE", _ALL})
_ALL_BUT_WRITE = (
    *("READ", "CREATE", "DELETE", "ALTER", "DESCRIBE_CONFIGS", "ALTER_CONFIGS"),
)
"""Of topics; DESCRIBE is part of READ."""
_MOST_NAMES = 5
_ALLOW_EVERYONE = "allow.everyone.if.no.acl.found"
_PROBE = "probe"
_SECONDS = 30.0
_PAUSE_SECONDS = 0.02
_MOST_REASONS = 5
_OF_PAIRS = "`fence: hook` or `fence: confirmed`"
T = TypeVar("T")


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


def fence_name(whose: str) -> str:
    """Whose change of ACLs the fence of a pair is, or of a flow."""
    return f"{FENCE} {whose}"


def without_acls(acls: Iterable[Acl], topics: Iterable[str]) -> tuple[str, ...]:
    """The topics that no ACL is about."""
    of_topics = [acl for acl in acls if acl.kind == TOPIC]
    return tuple(
        sorted(t for t in topics if not any(acl.covers(t) for acl in of_topics))
    )


def obstacles(
    known: KnownGrants, topics: Collection[str], *, instead: str = _OF_PAIRS
) -> dict[str, str]:
    """Those of the topics that ACLs cannot fence without harm to others, or where it is
    not known what they would do, each with the reason. `instead`: what people can use.
    """
    found: dict[str, str] = {}
    bare = without_acls(known.acls, topics)
    if bare and known.everyone is None:
        why = (
            f"no ACL is about {_some(bare)}, and the cluster does not tell whether "
            "everyone may write there (allow.everyone.if.no.acl.found), since "
            f"{known.own} is a super user: give these topics ACLs, log in as a user "
            f"that is no super user, or use {instead}"
        )
        found |= dict.fromkeys(bare, why)
    for acl in _of_everyone(_grants(known), topics):
        if outside := sorted(filter(acl.covers, known.others)):
            why = (
                f"the ACL {acl} also lets everyone write to {_some(outside)}, which "
                "must not be fenced: replace it with ACLs that name topics or "
                f"principals, or use {instead}"
            )
            found |= dict.fromkeys(filter(acl.covers, topics), why)
    return found


def _grants(known: KnownGrants) -> list[Acl]:
    """What lets somebody write."""
    return [
        acl
        for acl in sorted(known.acls)
        if acl.kind == TOPIC and acl.permission == "ALLOW" and acl.operation in _WRITES
    ]


def _of_everyone(grants: Iterable[Acl], topics: Collection[str]) -> tuple[Acl, ...]:
    """Those that let everyone write to one of these topics."""
    return tuple(
        acl
        for acl in grants
        if acl.principal == EVERYONE and any(map(acl.covers, topics))
    )


def plan_fence(known: KnownGrants, topics: Collection[str], *, pair: str) -> AclPlan:
    """The changes that fence these topics, for a pair or for the flow of that name.

    Raises:
        FenceError: there are `obstacles`.
    """
    for why in obstacles(known, topics).values():
        raise FenceError(why)
    grants = _grants(known)
    bare = without_acls(known.acls, topics)
    bridges = tuple(literal(t, EVERYONE, _ALL) for t in bare if known.everyone)
    removes = _of_everyone(grants, topics)
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
        by=fence_name(pair),
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


def look(
    cluster: Cluster,
    config: MirrorConfig,
    topics: Collection[str],
    *,
    copies: Collection[str] = (),
    probe: bool = True,
    instead: str = _OF_PAIRS,
) -> KnownGrants:
    """Who may write to these topics of a cluster. `copies`: topics to which only mirror
    is to write, so it does not matter if a fence covers them, too. `instead`: what
    people can use where ACLs cannot do it.

    Where brokers do not tell whether everyone may write to topics without ACLs, it adds
    and removes an ACL of a topic that does not exist; without `probe` that stays
    unknown.

    Raises:
        FenceError: the cluster has no authorizer, or `principal` is missing.
        PrincipalError: it is wrong.
        AuthorizationError: we may not see its ACLs.
        ClusterError: it does not answer.
    """
    known = principals(config, cluster.alias)
    for entry, principal in known.items():
        if principal is None:
            raise FenceError(
                f"cluster {cluster.alias}: whom brokers take mirror for is not known: "
                f"set clusters.{entry}.principal, such as User:mirror"
            )
    own, *logins = (each for each in known.values() if each is not None)
    try:
        owned, present = steady(
            lambda: AclOwnership(cluster), lambda: acls.describe_all(cluster)
        )
    except NoAuthorizerError as error:
        raise FenceError(
            f"cluster {cluster.alias} has no authorizer, so ACLs keep no one from "
            f"writing: use {instead}"
        ) from error
    found = frozenset(owned.notes.without_fences(present))
    bare = without_acls(found, topics)
    return KnownGrants(
        own=own,
        logins=frozenset(logins),
        acls=found,
        made=frozenset(owned.notes.added()) | owned.claimed(),
        others=frozenset(
            name
            for name in cluster.topics()
            if name not in topics and name not in copies
            if not is_internal(name)
            and not is_heartbeats(name, aliases=config.clusters)
        ),
        everyone=_may_everyone_write(cluster, own, bare, found, probe=probe),
    )


def look_at(
    config: MirrorConfig, *clusters: Cluster, probe: bool = True
) -> list[KnownGrants]:
    """As `look` without topics, for several clusters at once."""
    work = [partial(look, each, config, (), probe=probe) for each in clusters]
    return [each.result() for each in at_once(work)]


def lay(
    cluster: Cluster,
    plan: AclPlan,
    *,
    seconds: float = _SECONDS,
    hold: Callable[[], None] = lambda: None,
) -> None:
    """Make the changes, and wait until every broker shows them. `hold` raises if
    somebody else has taken over; it is asked before each round of changes.

    Raises:
        FenceError: an ACL is refused, or a broker does not show it within `seconds`;
            some changes may be made: `lift` the plan.
        PrincipalError: mirror itself loses a right; the same.
        ClusterError: the cluster does not answer for so long, or refuses; the same.
    """
    deadline = time.monotonic() + left(seconds)
    if _again_until(deadline, lambda: stands(cluster, plan)):
        return
    before = _again_until(deadline, lambda: allowed.of_topics(cluster, plan.topics))

    def laying() -> None:
        owned, there = steady(
            lambda: AclOwnership(cluster), lambda: _on_any_broker(cluster)
        )
        known = {*owned.notes.added(), *owned.claimed()}
        hold()
        owned.notes.note(plan)
        # Somebody has added these since `look`: they stay when the fence goes.
        theirs = [acl for acl in plan.adds if acl in there and acl not in known]
        owned.notes.forget(plan.by, theirs)
        begun = {acl.name for acl in plan.adds if acl in there}
        # Where a later step has begun, everyone must not be let in again.
        bridges = [acl for acl in plan.bridges if acl.name not in begun]
        _bring(cluster, hold, wanted=bridges, deadline=deadline)
        _bring(cluster, hold, wanted=plan.adds, deadline=deadline)
        gone = (*plan.removes, *plan.bridges)
        _bring(cluster, hold, unwanted=gone, deadline=deadline)
        _require_own_rights(cluster, before)

    _again_until(deadline, laying)


def lift(
    cluster: Cluster,
    by: str,
    *,
    but: AclPlan | None = None,
    seconds: float = _SECONDS,
    hold: Callable[[], None] = lambda: None,
) -> None:
    """Take back all that was made by this one, `but` what this plan has, and wait until
    every broker shows it. ACLs that were there before, or that flows or other switches
    want, stay. `hold` as for `lay`.

    Raises:
        FenceError: as `lay`; call it again.
        ClusterError: as `lay`; call it again.
    """
    deadline = time.monotonic() + left(seconds)

    def lifting() -> None:
        owned = AclOwnership(cluster)
        notes = owned.notes
        laid = notes.noted(by) if but is None else notes.noted(by).beyond(but)
        if not laid.changes:
            return
        present = _on_any_broker(cluster)
        begun = {acl.name for acl in laid.adds if acl in present}
        if but is not None:
            begun.difference_update(but.topics)  # they have other ACLs now
        bridges = [acl for acl in laid.bridges if acl.name in begun]
        held = notes.taken(but_by=by)
        back = [acl for acl in (*laid.removes, *bridges) if acl not in held]
        _bring(cluster, hold, wanted=back, deadline=deadline)
        _bring(cluster, hold, unwanted=_gone(owned, laid), deadline=deadline)
        _bring(cluster, hold, unwanted=laid.bridges, deadline=deadline)
        hold()
        notes.forget(by, laid.changes)

    _again_until(deadline, lifting)


def lifting_of(cluster: Cluster, by: str) -> AclPlan:
    """What `lift` would add and remove now; changes nothing. Raises as `look`."""
    owned = AclOwnership(cluster)
    laid = owned.notes.noted(by)
    gone = _gone(owned, laid)
    return AclPlan(by=by, adds=laid.removes, removes=gone)


def _gone(owned: AclOwnership, laid: AclPlan) -> tuple[Acl, ...]:
    """What goes when a plan is taken back: not what somebody else wants, too."""
    kept = owned.claimed() | owned.notes.added(but_by=laid.by)
    return tuple(acl for acl in laid.adds if acl not in kept)


def _again_until(deadline: float, do: Callable[[], T]) -> T:
    """Do it, and all of it again where a broker does not answer: one that died is known
    to be gone after some seconds.
    """
    while True:
        try:
            return do()
        except UnreachableError:
            if time.monotonic() > deadline:
                raise
            time.sleep(_PAUSE_SECONDS)


def _require_own_rights(
    cluster: Cluster, before: Mapping[str, frozenset[str] | None]
) -> None:
    for topic, operations in allowed.of_topics(cluster, before).items():
        if lost := (before[topic] or frozenset()) - (operations or frozenset()):
            raise PrincipalError(
                f"cluster {cluster.alias}: the fence takes {', '.join(sorted(lost))} "
                f"on {topic} from mirror itself: is clusters.{cluster.alias}.principal "
                "whom the brokers take it for?"
            )


def _bring(
    cluster: Cluster,
    hold: Callable[[], None],
    *,
    wanted: Collection[Acl] = (),
    unwanted: Collection[Acl] = (),
    deadline: float,
) -> None:
    """Create these ACLs, or delete those, and wait until every broker shows it."""
    if not (wanted or unwanted):
        return
    while True:
        hold()
        refused = acls.create(cluster, wanted) | acls.delete(cluster, unwanted)
        if not refused:
            break
        # Without a controller everything is refused, for some seconds.
        passes = all(error.retriable for error in refused.values())
        if not passes or time.monotonic() > deadline:
            reasons = sorted({str(error) for error in refused.values()})
            more = len(reasons) - _MOST_REASONS
            raise FenceError(
                "; ".join(reasons[:_MOST_REASONS])
                + (f"; and {more} more" if more > 0 else "")
            )
        time.sleep(_PAUSE_SECONDS)
    while late := _late(cluster, wanted, unwanted):
        if time.monotonic() > deadline:
            raise FenceError(
                f"cluster {cluster.alias}: not every broker shows the new ACLs: "
                + "; ".join(late)
            )
        time.sleep(_PAUSE_SECONDS)


def _late(
    cluster: Cluster, wanted: Collection[Acl], unwanted: Collection[Acl]
) -> list[str]:
    """The brokers that do not show it, each with the reason."""
    late = []
    for node, there in acls.describe_by_broker(cluster).items():
        if isinstance(there, ClusterError):
            late.append(f"broker {node}: {there}")
            continue
        missing = [acl for acl in wanted if acl not in there]
        staying = [acl for acl in unwanted if acl in there]
        if missing:
            late.append(f"broker {node} does not show {missing[0]}")
        elif staying:
            late.append(f"broker {node} still shows {staying[0]}")
    return late


def stands(cluster: Cluster, plan: AclPlan) -> bool:
    """Whether all of it is noted, and every broker shows it.

    Raises:
        ClusterError: a broker refuses to tell, so nothing could show that the fence is
            laid, nor lifted.
    """
    answers = acls.describe_by_broker(cluster).values()
    for there in answers:
        if isinstance(there, ClusterError) and not isinstance(there, UnreachableError):
            raise there
    wanted, gone = {*plan.adds}, {*plan.removes, *plan.bridges}
    return (
        all(
            isinstance(there, frozenset) and wanted <= there and not gone & there
            for there in answers
        )
        and AclNotes(cluster).noted(plan.by).changes == plan.changes
    )


def _on_any_broker(cluster: Cluster) -> set[Acl]:
    """`_late` waits for brokers that do not answer now."""
    answers = acls.describe_by_broker(cluster).values()
    return {acl for there in answers if isinstance(there, frozenset) for acl in there}


def _may_everyone_write(
    cluster: Cluster,
    own: str,
    bare: Collection[str],
    present: Collection[Acl],
    *,
    probe: bool,
) -> bool | None:
    """Whether everyone may write to topics without ACLs; None: not known. Brokers hide
    the setting's value, but not whether it is set.
    """
    if not bare:
        return False
    may = allowed.of_topics(cluster, bare).values()
    if None in may:
        return None
    if not all(may):
        return False  # not even mirror may
    try:
        if not brokers.is_set(cluster, _ALLOW_EVERYONE):
            return False
    except AuthorizationError:
        pass  # perhaps it is
    return _probed(cluster, own, present) if probe else None


def _probed(cluster: Cluster, own: str, present: Collection[Acl]) -> bool | None:
    """Whether it is for want of ACLs that mirror may write: one ACL on a topic that
    does not exist leaves mirror only what it allows, unless mirror is a super user.
    """
    names = (f"{letter}-mirror-probe.internal" for letter in string.ascii_letters)
    free = without_acls(present, names)
    if not free:
        return None
    acl = literal(free[0], own, "DESCRIBE")
    plan = AclPlan(by=_PROBE, adds=(acl,))
    try:
        lay(cluster, plan)
        may = allowed.of_topics(cluster, [acl.name])[acl.name]
    finally:
        lift(cluster, plan.by)
    if not may:
        raise PrincipalError(
            f"cluster {cluster.alias}: brokers do not take mirror for {own}: correct "
            f"clusters.{cluster.alias}.principal"
        )
    return True if may == {acl.operation} else None
