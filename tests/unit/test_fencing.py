"""Fences against a model of Kafka's authorizer, at every step of laying and lifting."""

from __future__ import annotations

from typing import TYPE_CHECKING

from hypothesis import event, given, settings
from hypothesis import strategies as st
import pytest

from mirror.clusters.admin.acls import Acl
from mirror.errors import FenceError
from mirror.topics import fences
from mirror.topics.fences import EVERYONE, KnownGrants

if TYPE_CHECKING:
    from collections.abc import Collection

    from mirror.topics.acl_notes import AclPlan

pytestmark = pytest.mark.unit

OWN = "User:mirror"
USERS = (OWN, "User:alice", "User:bob", "Group:team")
TOPICS = ("o", "orders", "orders-2", "payments")
"""One that does not exist is asked about as well."""
LATER = "orders-3"
OPERATIONS = (
    *("READ", "WRITE", "CREATE", "DELETE", "ALTER"),
    *("DESCRIBE", "DESCRIBE_CONFIGS", "ALTER_CONFIGS"),
)
_IMPLY_DESCRIBE = {"DESCRIBE", "READ", "WRITE", "DELETE", "ALTER", "ALL"}
_IMPLY = {
    "DESCRIBE": _IMPLY_DESCRIBE,
    "DESCRIBE_CONFIGS": {"DESCRIBE_CONFIGS", "ALTER_CONFIGS", "ALL"},
}
ACLS = st.builds(
    Acl,
    kind=st.sampled_from(["TOPIC", "TOPIC", "TOPIC", "GROUP", "CLUSTER"]),
    name=st.sampled_from(["*", "o", "orders", "orders-2", "payments", "p"]),
    pattern=st.sampled_from(["LITERAL", "PREFIXED"]),
    principal=st.sampled_from([*USERS, EVERYONE]),
    host=st.sampled_from(["*", "*", "10.0.0.1"]),
    operation=st.sampled_from([*OPERATIONS, "ALL", "WRITE"]),
    permission=st.sampled_from(["ALLOW", "ALLOW", "ALLOW", "DENY"]),
).filter(lambda acl: not (acl.pattern == "PREFIXED" and acl.name == "*"))


def may(
    acls: Collection[Acl], user: str, operation: str, topic: str, *,
    everyone: bool, host: str = "10.0.0.1",
) -> bool:  # fmt: skip
    """As StandardAuthorizer decides, for a user that is no super user."""
    about = [acl for acl in acls if acl.kind == "TOPIC" and acl.covers(topic)]
    if not about:
        return everyone
    mine = [
        acl
        for acl in about
        if acl.principal in {user, EVERYONE} and acl.host in {"*", host}
    ]
    if any(a.permission == "DENY" and a.operation in {operation, "ALL"} for a in mine):
        return False
    enough = _IMPLY.get(operation, {operation, "ALL"})
    return any(a.permission == "ALLOW" and a.operation in enough for a in mine)


def answers(
    acls: Collection[Acl], *, everyone: bool, but: Collection[tuple[str, str]],
    ours: Collection[str],
) -> dict[tuple[str, str, str, str], bool]:  # fmt: skip
    """Every answer, without WRITE on the topics in `but`, unless mirror asks."""
    return {
        (user, operation, topic, host): may(
            acls, user, operation, topic, everyone=everyone, host=host
        )
        for user in (*USERS, "User:stranger")
        for operation in OPERATIONS
        for topic in (*TOPICS, LATER)
        for host in ("10.0.0.1", "10.0.0.2")
        if user in ours or (operation, topic) not in but
    }


def steps(plan: AclPlan, before: set[Acl]) -> tuple[list[set[Acl]], list[set[Acl]]]:
    """The ACLs after each request of laying and lifting; within one, each in turn."""
    laying, lifting = [], []
    now = set(before)
    for acl in (*plan.bridges, *plan.adds):
        now.add(acl)
        laying.append(set(now))
    for acl in (*plan.removes, *plan.bridges):
        now.discard(acl)
        laying.append(set(now))
    for acl in (*plan.removes, *plan.bridges):
        now.add(acl)
        lifting.append(set(now))
    for acl in (*plan.adds, *plan.bridges):
        now.discard(acl)
        lifting.append(set(now))
    return laying, lifting


@settings(max_examples=100, deadline=None)
@given(
    acls=st.frozensets(ACLS, max_size=7),
    fenced=st.sets(st.sampled_from(TOPICS), min_size=1),
    everyone=st.booleans(),
    logins=st.sampled_from([frozenset[str](), frozenset(USERS[1:2])]),
)
def test_only_writing_is_taken_and_only_there(
    acls: frozenset[Acl], fenced: set[str], everyone: bool, logins: frozenset[str]
) -> None:
    """Whatever the ACLs are: at no moment of laying or lifting does mirror lose a
    right, or another user that its tasks log in as, or anyone a right other than WRITE
    on the fenced topics; once the fence is laid no one else may write to them; what is
    there after it is what was before. Where a fence is refused, the same holds for the
    topics that are no obstacles.
    """
    known = KnownGrants(
        own=OWN, logins=logins, acls=acls, others=frozenset(TOPICS) - fenced,
        everyone=everyone,
    )  # fmt: skip
    try:
        plan = fences.plan_fence(known, fenced, pair="A<->B")
    except FenceError:
        event("refused")
        assert any(acl.principal == EVERYONE for acl in acls)
        fenced = fenced.difference(fences.obstacles(known, fenced))
        plan = fences.plan_fence(known, fenced, pair="A<->B")
    before = set(acls)
    # A right to topics that do not exist yet goes with the grant to everyone.
    later = {("WRITE", LATER)} if plan.removes else set()
    but = {("WRITE", topic) for topic in fenced} | later
    ours = known.mirror
    told = answers(before, everyone=everyone, but=but, ours=ours)
    laying, lifting = steps(plan, before)
    for now in (*laying, *lifting):
        assert answers(now, everyone=everyone, but=but, ours=ours) == told
    laid = laying[-1] if laying else before
    event("laid" if laying else "nothing to do")
    for topic in fenced:
        for user in {*USERS, "User:stranger"} - known.mirror:
            assert not may(laid, user, "WRITE", topic, everyone=everyone)
    assert (lifting[-1] if lifting else before) == before


def test_what_may_go_is_not_relied_on() -> None:
    """A DENY that a flow copied goes when its topic's does: the fence has its own. One
    that a person made stays, and is not taken back with the fence.
    """
    grant = fences.literal("orders", "User:alice", "WRITE")
    deny = fences.literal("orders", "User:alice", "WRITE", "DENY")
    known = KnownGrants(own=OWN, acls=frozenset({grant, deny}), made=frozenset({deny}))
    assert fences.plan_fence(known, ["orders"], pair="p").adds == (deny,)
    known = KnownGrants(own=OWN, acls=frozenset({grant, deny}))
    assert fences.plan_fence(known, ["orders"], pair="p").changes == {}


def test_a_smaller_plan_leaves_the_rest_of_a_larger_one() -> None:
    """What is to be taken back when topics are no longer fenced."""
    grants = [fences.literal(each, "User:alice", "WRITE") for each in TOPICS[:2]]
    known = KnownGrants(own=OWN, acls=frozenset(grants))
    both, one = (
        fences.plan_fence(known, TOPICS[:count], pair="A->B") for count in (2, 1)
    )
    assert {acl.name for acl in both.beyond(one).changes} == {TOPICS[1]}
    assert one.beyond(both).changes == {}


def test_what_is_not_known_is_not_guessed() -> None:
    """Topics without ACLs are fenced only if it is known who may write to them."""
    with pytest.raises(FenceError, match="no ACL is about orders, and the cluster"):
        fences.plan_fence(KnownGrants(own=OWN, acls=frozenset()), ["orders"], pair="p")
    closed = KnownGrants(own=OWN, acls=frozenset(), everyone=False)
    assert fences.plan_fence(closed, ["orders"], pair="p").changes == {}
