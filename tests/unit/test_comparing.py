"""What two portraits of clusters differ in, without a cluster.

The comparison of real clusters is in `acceptance/test_cli_compare`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from mirror.clusters import codes
from mirror.clusters.admin.acls import Acl
from mirror.clusters.admin.configs import TopicConfigs
from mirror.clusters.topics import NO_ID, Leader, Topic
from mirror.errors import AuthorizationError
from mirror.topics.comparing import Portrait, compare, partners
from tests.harness.configurations import config

if TYPE_CHECKING:
    from mirror.config.schema import MirrorConfig
    from mirror.topics.sides import Side

Told = tuple[str, str, str, str, bool | None]


def _topic(name: str, partitions: int, error: int = 0) -> Topic:
    led = {number: Leader(node=1, epoch=0) for number in range(partitions)}
    return Topic(
        name=name, topic_id=NO_ID, leaders=led, error=error, replication_factor=1
    )


def _portrait(alias: str, *topics: Topic, **more: Any) -> Portrait:
    return Portrait(
        alias=alias,
        cluster_id=f"id-{alias}",
        topics={topic.name: topic for topic in topics},
        **{
            "configs": {topic.name: TopicConfigs() for topic in topics},
            "version": (4, 3),
            **more,
        },
    )


def _config(*flows: str, **settings: Any) -> MirrorConfig:
    return config({name: {"topics": ["t.*"], **settings} for name in flows})


def _told(
    a: Portrait,
    b: Portrait,
    *flows: str,
    resting: dict[str, str] | None = None,
    **settings: Any,
) -> list[Told]:
    """The differences, with flows of these names."""
    config = _config(*flows, **settings)

    def reach(alias: str) -> Side:
        raise AssertionError(alias)

    found = compare(
        a, b, config.enabled_flows if flows else (), reach, resting=resting or {}
    )
    return [(each.what, each.name, each.a, each.b, each.expected) for each in found]


def _read(name: str, pattern: str = "LITERAL") -> Acl:
    return Acl(
        kind="TOPIC", name=name, pattern=pattern, principal="User:u", host="*",
        operation="READ", permission="ALLOW",
    )  # fmt: skip


def test_without_a_flow_equal_names_belong_together() -> None:
    """Each topic and group of one side alone is unexpected; internal topics are not."""
    a = _portrait(
        "A", _topic("t", 2), _topic("x", 1), _topic("__y", 1), groups={"g": ()}
    )
    b = _portrait("B", _topic("t", 3), version=(3, 9))
    assert _told(a, b) == [
        ("topic", "__y", "1 partition", "-", True),
        ("topic", "t", "2 partitions", "3 partitions", False),
        ("topic", "x", "1 partition", "-", False),
        ("group", "g", "exists", "-", False),
        ("version", "brokers", "4.3", "3.9", True),
    ]


def test_both_directions_are_told_from_the_same_side() -> None:
    """What flows copy each way stands in the columns of its clusters."""
    a = _portrait("A", _topic("t", 2), _topic("B.t", 1))
    b = _portrait("B", _topic("t", 3), _topic("A.t", 1))
    assert _told(a, b, "A->B", "B->A") == [
        ("topic", "t (A.t)", "2 partitions", "1 partition", False),
        ("topic", "t (B.t)", "1 partition", "3 partitions", False),
    ]


def test_a_flow_that_rests_explains_what_it_does_not_copy() -> None:
    """Of a pair's flows only the one out of the active cluster counts: what only the
    passive one has of topics is expected, what its ACLs allow there is not.
    """
    a = _portrait("A", _topic("t", 2))
    b = _portrait("B", _topic("t", 3), _topic("t2", 1), acls=frozenset([_read("t")]))
    rests = {"B->A": "B->A rests: A is active in A<->B"}
    flows = ("A->B", "B->A")
    assert _told(a, b, *flows, resting=rests, policy="identity") == [
        ("topic", "t", "2 partitions", "3 partitions", False),
        ("topic", "t", "2 partitions", "3 partitions", True),
        ("topic", "t2", "-", "1 partition", True),
        ("acl", "t", "-", "User:u READ", False),
    ]
    awake = _told(a, b, *flows, policy="identity")
    assert ("topic", "t2", "-", "1 partition", False) in awake


@pytest.mark.parametrize(
    ("there", "expected"), [((), False), ((_topic("t", 0, error=29),), None)]
)
def test_a_copy_without_its_topic(
    there: tuple[Topic, ...], expected: bool | None
) -> None:
    """It is unexpected if the topic is gone, and not judged if we may not see it."""
    a, b = _portrait("A", *there), _portrait("B", _topic("A.t", 1))
    told = {each[1]: each[4] for each in _told(a, b, "A->B")}
    assert told.pop("A.t") is expected
    assert all(each is None for each in told.values())


def test_an_acl_that_reaches_copies_follows_from_the_source_or_is_unexpected() -> None:
    """Literal, prefixed or for all topics; one about other topics is its cluster's."""
    acls = {_read("A.t"), _read("A.", "PREFIXED"), _read("*"), _read("own")}
    a = _portrait("A", _topic("t", 1))
    b = _portrait("B", _topic("A.t", 1), acls=frozenset(acls))
    told = {each[1]: each[4] for each in _told(a, b, "A->B") if each[0] == "acl"}
    assert told == {"A.t": False, "A.": False, "*": False, "own": True}


def test_configs_that_cannot_be_read_are_not_judged() -> None:
    """The row names the reason; partitions are compared all the same."""
    refused = TopicConfigs(error=AuthorizationError("refused"))
    a = _portrait("A", _topic("t", 2), configs={"t": refused})
    b = _portrait("B", _topic("A.t", 1))
    assert _told(a, b, "A->B") == [
        ("topic", "t (A.t)", "2 partitions", "1 partition", False),
        ("config", "t (A.t)", "-", "-", None),
    ]


def test_groups_of_a_target_are_its_own() -> None:
    """No flow brings them to the source."""
    b = _portrait("B", groups={"g": frozenset({"x"})})
    told = _told(_portrait("A"), b, "A->B")
    assert told == [("group", "g", "-", "exists", True)]


def test_partners_are_named_as_flows_name_them() -> None:
    """Copies and what they are copies of, in both directions; equal names where no flow
    copies a topic; no internal topic.
    """
    topics = (_topic(name, 1) for name in ("t", "B.u", "alone", "__x"))
    flows = _config("A->B", "B->A", topics=["t", "u"]).enabled_flows

    assert partners(_portrait("A", *topics), "B", flows) == {"A.t", "u", "alone"}


def test_what_we_may_not_see_is_known_from_the_other_side() -> None:
    """Brokers also refuse names that are not there, so a refusal alone is no topic."""
    refused = _topic("x", 0, codes.TOPIC_AUTHORIZATION_FAILED)
    b = _portrait("B", refused)

    assert _told(_portrait("A"), b, "A->B") == []
    told = _told(_portrait("A", _topic("x", 1)), b)
    assert told == [("topic", "x", "1 partition", "not permitted", None)]
