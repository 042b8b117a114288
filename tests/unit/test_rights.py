"""What producers and consumers get on the cluster that they move to."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from mirror.clusters.admin.acls import Acl
from mirror.config.schema import FlowConfig
from mirror.recovery import rights
from mirror.topics.fences import KnownGrants, literal

if TYPE_CHECKING:
    from mirror.topics.acl_notes import AclPlan

pytestmark = pytest.mark.unit

OWN = "User:mirror"
NOTHING = KnownGrants(own=OWN, acls=frozenset())


def acl(text: str, **fields: str) -> Acl:
    """As in `User:alice WRITE TOPIC orders`; a star at the end is a prefix."""
    principal, operation, kind, name = text.split()
    return Acl(
        **{
            "principal": principal,
            "operation": operation,
            "kind": kind,
            "name": name.removesuffix("*") or "*",
            "pattern": "PREFIXED" if name[:-1] and name[-1] == "*" else "LITERAL",
            "host": "*",
            "permission": "ALLOW",
            **fields,
        }
    )


def plan(*there: Acl, here: KnownGrants = NOTHING, **settings: Any) -> AclPlan:
    flow = FlowConfig.model_validate(
        {"source": "A", "target": "B", "policy": "identity", **settings}
    )
    return rights.plan(
        flow,
        pair="A<->B",
        topics=["orders", "payments"],
        groups=["app"],
        there=there,
        here=here,
        own=["User:mirror-on-a", "User:reader-on-a"],
    )


@pytest.mark.parametrize(
    ("settings", "name"),
    [
        ({"policy": "identity"}, "orders"),
        ({"policy": "default"}, "orders"),
        (
            {"policy": "rename", "rename": [{"match": "(.*)", "to": r"eu.\1"}]},
            "eu.orders",
        ),
    ],
)
def test_the_topic_that_producers_write_to_next(
    settings: dict[str, Any], name: str
) -> None:
    """WRITE is for the copy, or where copies have a prefix, for the producers' own
    topic.
    """
    found = plan(acl("User:alice WRITE TOPIC orders"), **settings)
    assert found.adds == (literal(name, "User:alice", "WRITE"),)


def test_nothing_wider_than_what_moves() -> None:
    """Prefixes, `*` and ALL become WRITE on each topic, and READ on each group, of the
    pair; hosts stay. Mirror's own rights do not move, and neither does what is denied.
    """
    found = plan(
        acl("User:alice WRITE TOPIC pay*"),
        acl("User:bob ALL TOPIC *", host="10.0.0.1"),
        acl("User:carol WRITE TOPIC *"),
        acl("User:carol WRITE TOPIC orders", permission="DENY"),
        acl("User:reader READ TOPIC orders"),
        acl("User:reader READ GROUP ap*"),
        acl("User:reader READ GROUP other"),
        acl("User:mirror-on-a ALL TOPIC *"),
        acl(f"{OWN} ALL TOPIC *"),
    )
    assert set(found.adds) == {
        acl("User:alice WRITE TOPIC payments"),
        acl("User:bob WRITE TOPIC orders", host="10.0.0.1"),
        acl("User:bob WRITE TOPIC payments", host="10.0.0.1"),
        acl("User:carol WRITE TOPIC payments"),
        acl("User:reader READ GROUP app"),
    }
    assert found.removes == found.bridges == ()


def test_transactional_ids_of_those_who_write() -> None:
    """Their ACLs move as they are; those of others do not, nor does an ALLOW that a
    DENY makes smaller, which is said.
    """
    ids = acl("User:alice WRITE TRANSACTIONAL_ID tx*")
    idempotent = acl("User:alice IDEMPOTENT_WRITE CLUSTER kafka-cluster")
    found = plan(
        acl("User:alice WRITE TOPIC orders"), ids, idempotent,
        acl("User:alice ALTER CLUSTER kafka-cluster"),
        acl("User:stranger WRITE TRANSACTIONAL_ID *"),
        acl("User:bob WRITE TOPIC orders"),
        acl("User:bob WRITE TRANSACTIONAL_ID *"),
        acl("User:bob WRITE TRANSACTIONAL_ID secret", permission="DENY"),
    )  # fmt: skip
    assert set(found.adds) - set(plan(acl("User:alice WRITE TOPIC orders")).adds) == {
        ids, idempotent, acl("User:bob WRITE TOPIC orders"),
    }  # fmt: skip
    (remark,) = found.remarks
    assert "User:bob" in remark


def test_what_is_there_stays() -> None:
    """An ACL that a person made on the target is not part of the plan, so it is not
    taken back; one that mirror made for another pair is.
    """
    given = acl("User:alice WRITE TOPIC orders")
    by_hand = KnownGrants(own=OWN, acls=frozenset({given}))
    assert plan(given, here=by_hand).adds == ()
    made = KnownGrants(own=OWN, acls=frozenset({given}), made=frozenset({given}))
    assert plan(given, here=made).adds == (given,)
