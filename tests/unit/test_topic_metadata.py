"""Rules of configs, ACLs and merging, without a broker."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st
import pytest

from mirror.clusters.admin.acls import Binding
from mirror.clusters.admin.configs import Config, Origin
from mirror.config.schema import FlowConfig
from mirror.status.values import ConfigDrift, TopicDrift
from mirror.topics import acls, configs, topics
from mirror.topics.acls import AclChanges, Granted, WantedAcls
from mirror.topics.configs import SourceConfigs
from mirror.topics.merging import Merging, by_role
from tests.harness.configurations import config

pytestmark = pytest.mark.unit

FLOW = FlowConfig(source="A", target="B")


def flows(*names: str, **settings: Any) -> list[FlowConfig]:
    return list(config(dict.fromkeys(names, settings)).flows.values())


def one(value: str | None, origin: Origin = Origin.TOPIC, **more: bool) -> Config:
    return Config(value=value, origin=origin, settable=more.get("settable", True))


# ---- Configs ------------------------------------------------------------------------


def test_only_what_is_set_on_the_topic_is_wanted() -> None:
    """Defaults, brokers' values, secrets, read-only and excluded configs are not."""
    configs = {
        "retention.ms": one("1"),
        "segment.ms": one("2", Origin.DEFAULT),
        "segment.bytes": one("3", Origin.STATIC_BROKER),
        "flush.ms": one("4", Origin.DYNAMIC_BROKER),
        "read.only": one("5", settable=False),
        "min.insync.replicas": one("6"),
        "message.timestamp.after.max.ms": one("7"),
        "no.value": one(None),
    }
    assert topics.copied_configs(configs, FLOW) == {"retention.ms": "1"}
    source = FLOW.model_copy(update={"use_defaults_from": "source"})
    assert topics.copied_configs(configs, source).keys() == {
        "retention.ms",
        "segment.ms",
        "segment.bytes",
        "flush.ms",
    }


def test_an_empty_exclude_list_excludes_nothing() -> None:
    """No pattern is not a pattern that matches everything."""
    flow = FLOW.model_copy(update={"config_properties_exclude": ()})
    configs = {"min.insync.replicas": one("2")}
    assert topics.copied_configs(configs, flow) == {"min.insync.replicas": "2"}


_NAMES = st.sampled_from(["a", "b", "c", "min.insync.replicas"])
_CONFIGS = st.dictionaries(
    _NAMES,
    st.builds(
        Config,
        value=st.sampled_from(["0", "1"]),
        origin=st.sampled_from([Origin.TOPIC, Origin.DEFAULT, Origin.STATIC_BROKER]),
        settable=st.booleans(),
    ),
)


@settings(deadline=None)
@given(
    sources=st.lists(_CONFIGS, min_size=1, max_size=3),
    copy=_CONFIGS,
    strategy=st.sampled_from(["first", "intersection", "target"]),
    defaults=st.sampled_from(["target", "source"]),
)
def test_correcting_leaves_nothing_to_correct(
    sources: list[dict[str, Config]],
    copy: dict[str, Config],
    strategy: str,
    defaults: str,
) -> None:
    """After the changes are made a copy has no drift but in configs that its brokers do
    not know; excluded and unsettable configs are never touched.
    """
    flow = FLOW.model_copy(
        update={"config_strategy": strategy, "use_defaults_from": defaults}
    )
    goal = configs.merged_goal(
        [SourceConfigs(flow=flow, configs=each) for each in sources]
    )
    found = configs.differing(goal, copy)
    changes = configs.corrections(found, copy)
    assert "min.insync.replicas" not in changes
    assert changes.keys() <= copy.keys()
    if strategy == "target" and len(sources) > 1:
        assert changes == {}
    after = dict(copy)
    for name, value in changes.items():
        if value is None:
            after[name] = replace(copy[name], value="default", origin=Origin.DEFAULT)
        else:
            after[name] = replace(copy[name], value=value, origin=Origin.TOPIC)
    left = configs.differing(goal, after)
    assert {
        each.name for each in left if each.name in copy and copy[each.name].settable
    } == set()


def test_strategies() -> None:
    """The first source decides, or what all agree on, or none; disagreements are
    reported either way, with the values.
    """
    here = {"a": one("1"), "b": one("1"), "c": one("1")}
    there = {"a": one("1"), "b": one("2")}
    copy = {"b": one("9"), "c": one("9"), "d": one("9")}
    told = ("b: A 1, C 2", "c: A 1, C not set")
    expected = {
        "first": {"a": "1", "b": "1", "c": "1", "d": None},
        "intersection": {"a": "1", "d": None},
        "target": {},
    }
    for strategy, wanted in expected.items():
        first, second = flows("A->K", "C->K", config_strategy=strategy)
        goal = configs.merged_goal(
            [
                SourceConfigs(flow=first, configs=here),
                SourceConfigs(flow=second, configs=there),
            ]
        )
        assert goal.conflicts == told
        found = configs.differing(goal, copy)
        assert {each.name: each.wanted for each in found} == wanted


def test_what_makes_a_copy_differ() -> None:
    """Too few partitions always; too many unless other flows write it, too."""
    same = TopicDrift(topic="t", target_topic="A.t", partitions=3, target_partitions=3)
    assert not same.differs
    assert replace(same, target_partitions=2).differs
    assert replace(same, target_partitions=4).differs
    assert not replace(same, target_partitions=4, merged=True).differs
    config = ConfigDrift(name="a", wanted="1", found=None)
    assert replace(same, configs=(config,)).differs
    assert replace(same, problem="refused").differs


# ---- Merging ------------------------------------------------------------------------


def test_contributors_come_in_order() -> None:
    """Flows that would write a topic of a target, those that decide first; others'
    prefixes are not theirs.
    """
    merging = Merging(
        [
            *flows("C->K", "A->K", policy="identity", topics=["orders"]),
            *flows("D->K"),
            *flows("E->L", policy="identity"),
            *flows("F->K", policy="rename", rename=[{"match": "o", "to": "orders"}]),
        ]
    )

    def writers(topic: str) -> list[tuple[str, str]]:
        found = merging.contributors("K", topic)
        return [(each.flow.name, each.topic) for each in found]

    assert writers("orders") == [("C->K", "orders"), ("A->K", "orders"), ("F->K", "o")]
    assert writers("D.orders") == [("D->K", "orders"), ("F->K", "D.orders")]
    assert ("A->K", "payments") not in writers("payments")


def leading_back(*names: str, **settings: Any) -> set[str]:
    made = flows(*names, **settings)
    merging = Merging(made)
    return {flow.name for flow in made if merging.leads_back(flow, "t")}


def test_one_flow_of_a_circle_leads_back() -> None:
    """In each circle under one name the flow that closes it decides nothing; without a
    circle, or with names that change, every flow does.
    """
    identity = {"policy": "identity"}
    assert leading_back("A->B", "B->A", **identity) == {"B->A"}
    assert leading_back("B->A", "A->B", **identity) == {"A->B"}
    assert leading_back("A->B", "B->C", "C->A", **identity) == {"C->A"}
    assert leading_back("B->C", "C->A", "A->B", **identity) == {"A->B"}
    assert leading_back("A->B", "A->C", "B->C", **identity) == set()
    assert leading_back("A->B", "B->A") == set()
    everyone = leading_back("A->B", "B->A", "B->C", "C->B", "A->C", "C->A", **identity)
    assert everyone == {"B->A", "C->B", "C->A"}


def test_the_active_cluster_decides() -> None:
    """Of a pair's two flows the one out of the active cluster takes precedence, in
    either order of the file, and the others keep their order.
    """
    made = flows("B->A", "C->A", "A->B", policy="identity")
    assert [each.name for each in by_role(made, {"B->A"})] == ["A->B", "B->A", "C->A"]
    assert by_role(made, {"A->B"}) == by_role(made, set()) == tuple(made)
    led = Merging(by_role(made, {"B->A"}))
    assert [flow.name for flow in made if led.leads_back(flow, "t")] == ["B->A"]


def test_flows_of_other_processes_count() -> None:
    """With --clusters flows that run elsewhere still decide, in the file's order."""
    same = {"policy": "identity"}
    made = config({"a->b": same, "b->a": same}, "ab").select(["a"])
    assert list(made.flows) == ["b->a"]
    assert [flow.name for flow in made.enabled_flows] == ["a->b", "b->a"]
    assert Merging(made.enabled_flows).leads_back(made.flows["b->a"], "t")


# ---- ACLs ---------------------------------------------------------------------------


def acl(
    operation: str,
    topic: str = "orders",
    pattern: str = "LITERAL",
    *,
    deny: bool = False,
) -> Binding:
    return Binding(
        topic=topic,
        pattern=pattern,
        principal="User:u",
        host="*",
        operation=operation,
        permission="DENY" if deny else "ALLOW",
    )


def translated(*bindings: Binding, **settings: Any) -> WantedAcls:
    (flow,) = flows("A->B", **settings)
    return acls.translated(
        [Granted(binding=each) for each in bindings],
        flow,
        ["orders"],
        source_id="a",
        target_id="b",
    )


@pytest.mark.parametrize(
    ("given_acl", "settings", "made"),
    [
        (acl("READ"), {}, acl("READ", "A.orders")),
        (acl("ALL"), {}, acl("READ", "A.orders")),
        (acl("WRITE"), {}, None),
        (acl("WRITE", deny=True), {}, acl("WRITE", "A.orders", deny=True)),
        (acl("ALL", deny=True), {}, acl("ALL", "A.orders", deny=True)),
        (acl("READ", "B.orders"), {}, None),
        (acl("READ", "__consumer_offsets"), {}, None),
        (acl("READ", "payments"), {"topics": ["orders"]}, None),
        (acl("READ", "*"), {}, acl("READ", "A.", "PREFIXED")),
        (acl("READ", "*"), {"topics": ["orders"]}, None),
        (acl("READ", "*"), {"policy": "identity"}, acl("READ", "*")),
        (acl("READ", "ord", "PREFIXED"), {}, None),
        (
            acl("READ", "ord", "PREFIXED"),
            {"sync_prefixed_acls": True},
            acl("READ", "A.ord", "PREFIXED"),
        ),
        (acl("READ", "pay", "PREFIXED"), {"sync_prefixed_acls": True}, None),
        (
            acl("READ"),
            {"policy": "rename", "rename": [{"match": "orders", "to": "x"}]},
            acl("READ", "x"),
        ),
        (
            acl("READ", "ord", "PREFIXED"),
            {
                "sync_prefixed_acls": True,
                "policy": "rename",
                "rename": [{"match": "orders", "to": "x"}],
            },
            None,
        ),
    ],
)
def test_acls_are_translated(
    given_acl: Binding, settings: dict[str, Any], made: Binding | None
) -> None:
    """MirrorMaker 2's rules, and ours for patterns."""
    assert list(translated(given_acl, **settings).bindings) == ([made] if made else [])


def test_what_came_from_the_target_gives_nothing_back() -> None:
    """However many clusters it came through: else it would allow for itself."""
    (flow,) = flows("C->A", policy="identity")
    wish = acls.translated(
        [Granted(binding=acl("READ"), via=("a", "b"))],
        flow,
        ["orders"],
        source_id="c",
        target_id="a",
    )
    assert not wish.bindings
    assert not wish.justified
    assert wish.skipped[0].reason == "came from the target"


_BINDINGS = st.sets(st.sampled_from([acl("READ", topic) for topic in "abcd"]))


@settings(deadline=None)
@given(
    wanted=_BINDINGS,
    more=_BINDINGS,
    present=_BINDINGS,
    ours=_BINDINGS,
    others=_BINDINGS,
)
def test_only_our_own_acls_are_ever_deleted(
    wanted: set[Binding],
    more: set[Binding],
    present: set[Binding],
    ours: set[Binding],
    others: set[Binding],
) -> None:
    """After a turn the target has all that is wanted, nothing is gone that somebody
    else has made or given, and a second turn has nothing to do.
    """
    wish = WantedAcls(
        bindings=dict.fromkeys(wanted, ("a",)), justified=frozenset(wanted | more)
    )
    plan = acls.changes(wish, present=present, ours=ours, others=others)
    assert set(plan.delete) <= ours - others - wish.justified
    after = (present | plan.create.keys()) - set(plan.delete)
    assert wanted <= after
    claims = ours | plan.create.keys() | plan.adopt.keys()
    claims -= {*plan.delete, *plan.release}
    again = acls.changes(wish, present=after, ours=claims, others=others)
    assert again == AclChanges()
