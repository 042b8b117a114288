"""Flows that would harm each other are refused, and only those: a model agrees."""

from __future__ import annotations

from collections import deque
from functools import partial
from itertools import permutations
from typing import TYPE_CHECKING, Any

from hypothesis import assume, event, given, settings
from hypothesis import strategies as st
from pydantic import ValidationError
import pytest

from mirror.config.pair_settings import PairConfig
from mirror.config.rules import problems
from tests.harness import configurations

if TYPE_CHECKING:
    from mirror.config.schema import FlowConfig, MirrorConfig

pytestmark = pytest.mark.unit

IDENTITY = {"policy": "identity"}
UNSTAMPED = {"policy": "identity", "provenance": False}
RENAMED = {"policy": "rename", "rename": [{"match": r"eu\.(.*)", "to": r"copy.\1"}]}


def renamed(prefix: str) -> dict[str, Any]:
    rules = [
        {"match": r"eu\.(.*)", "to": "x.$1"},
        {"match": ".*", "to": f"{prefix}.$0"},
    ]
    return {"policy": "rename", "rename": rules}


def doubled(ways: str, what: str = "the same topics") -> str:
    return (
        f"flows: {ways} bring {what} of A to D under one name, so every record would "
        "be doubled; remove one way, or let them copy different topics"
    )


def endless(circle: str, unstamped: str) -> str:
    return (
        f"flows: {circle} is a circle, and provenance is off on {unstamped}: records "
        "would circulate endlessly; turn provenance on"
    )


def growing(what: str, names: str) -> str:
    return (
        f"flows: A -> B -> A is a circle in which names grow: {what} would come back "
        f"as {names}, and so on; give its flows one policy and separator, or let them "
        "copy different topics"
    )


config = partial(configurations.config, aliases=("A", "B", "C", "D", "A.x"))


def at_brokers(flows: dict[str, dict[str, Any]], **servers: str) -> MirrorConfig:
    clusters = {alias: {"bootstrap_servers": each} for alias, each in servers.items()}
    return config(flows, clusters=clusters)


@pytest.mark.parametrize(
    "flows",
    [
        {"A->B": {}},
        {"A->B": {}, "B->A": {}},
        {"A->B": {}, "B->C": {}, "C->A": {}, "A->C": {}, "C->B": {}, "B->A": {}},
        {"A->D": IDENTITY, "B->D": IDENTITY, "C->D": IDENTITY},
        {"A->B": IDENTITY, "B->A": IDENTITY},
        {"A->B": IDENTITY, "B->C": IDENTITY, "C->D": IDENTITY},
        # Names stop the circle, header or not.
        {"A->B": {"provenance": False}, "B->A": {"provenance": False}},
        # The ways split the topics among them.
        {
            "A->B": {**IDENTITY, "topics": ["orders"]},
            "B->D": IDENTITY,
            "A->C": {**IDENTITY, "topics": ["payments"]},
            "C->D": IDENTITY,
        },
        {
            "A->B": {**IDENTITY, "topics": [r"eu\..*", "eu-x"]},
            "B->D": IDENTITY,
            "A->C": {**IDENTITY, "topics": [r"us\..*"]},
            "C->D": IDENTITY,
        },
        {
            "A->B": {**UNSTAMPED, "topics": ["a.*"]},
            "B->A": {**UNSTAMPED, "topics": ["b.*"]},
        },
        # Different names at the end: two copies are what was asked for.
        {"A->B": {}, "B->D": {}, "A->C": {}, "C->D": {}},
        {"A->B": {}, "B->D": {}, "A->D": {}},
        # A way that is off is none.
        {"A->B": IDENTITY, "B->D": IDENTITY, "A->D": {**IDENTITY, "enabled": False}},
        # Patterns that have no name in common, however alike they begin.
        {
            "A->B": {**IDENTITY, "topics": [".*-eu"]},
            "B->D": IDENTITY,
            "A->C": {**IDENTITY, "topics": [".*-us"]},
            "C->D": IDENTITY,
        },
        {
            "A->B": {**IDENTITY, "topics_exclude": [r"pay\..*"]},
            "B->D": IDENTITY,
            "A->C": {**IDENTITY, "topics": [r"pay\..*"]},
            "C->D": IDENTITY,
        },
        # Renamed on the way there and on the way back; the header stops records.
        {
            "A->B": RENAMED,
            "B->A": {
                "policy": "rename",
                "rename": [{"match": r"copy\.(.*)", "to": r"eu.\1"}],
            },
        },
        # Merging under one name that the user chose.
        {"A->C": RENAMED, "B->C": IDENTITY},
        # Names stop growing when a policy without prefix stands among two with one.
        {"A->B": {}, "B->C": IDENTITY, "C->A": {}},
        # Different copies from lists of names.
        {"A->C": {"topics": ["orders"]}, "B->C": {**IDENTITY, "topics": ["orders"]}},
    ],
)
def test_sound_topologies_pass(flows: dict[str, dict[str, Any]]) -> None:
    """Chains, stars, meshes and circles that copy each record once."""
    assert problems(config(flows)) == []


@pytest.mark.parametrize(
    ("flows", "problem"),
    [
        (
            {"A->B": IDENTITY, "B->D": IDENTITY, "A->C": IDENTITY, "C->D": IDENTITY},
            doubled("A -> B -> D and A -> C -> D"),
        ),
        (
            {
                "A->B": UNSTAMPED,
                "B->D": UNSTAMPED,
                "A->D": {**UNSTAMPED, "topics": ["orders", "x"]},
            },
            doubled("A -> D and A -> B -> D", "orders"),
        ),
        (
            {"A->B": {}, "B->D": IDENTITY, "A->C": {}, "C->D": IDENTITY},
            doubled("A -> B -> D and A -> C -> D"),
        ),
        (
            {"A->B": UNSTAMPED, "B->C": UNSTAMPED, "C->A": UNSTAMPED},
            endless("A -> B -> C -> A", "A->B and B->C and C->A"),
        ),
        ({"A->B": RENAMED, "B->A": UNSTAMPED}, endless("A -> B -> A", "B->A")),
        # Names without end, whether or not the header stops the records.
        (
            {"A->B": {}, "B->A": IDENTITY},
            growing('a topic "topic"', "A.topic, then as A.A.topic"),
        ),
        (
            {"A->B": {"topics": ["orders", ".*orders"]}, "B->A": {"separator": "-"}},
            growing("topic orders", "B-A.orders, then as B-A.B-A.orders"),
        ),
        # Renamed on the way, and back to one name.
        (
            {
                "A->B": {**RENAMED, "topics": [r"eu\..*"]},
                "B->D": IDENTITY,
                "A->D": RENAMED,
            },
            doubled("A -> D and A -> B -> D"),
        ),
        # Only topics that a rule speaks of meet again.
        (
            {"A->B": renamed("b"), "B->D": IDENTITY, "A->D": renamed("d")},
            doubled("A -> D and A -> B -> D"),
        ),
        (
            {"A->B": {"policy": "rename"}},
            (
                'flows."A->B": policy rename needs rules; give it rename, such as '
                "[{match: 'orders\\.(.*)', to: 'eu.\\1'}]"
            ),
        ),
        (
            {
                "A->C": {"topics": ["x.orders"]},
                "A.x->C": {"topics": ["orders"]},
            },
            (
                'flows."A->C" and flows."A.x->C": x.orders of A and orders of A.x '
                "would both be copied to A.x.orders on C; give one flow another policy "
                "or separator"
            ),
        ),
        (
            {
                "A->C": {"topics": ["orders"]},
                "B->C": {**IDENTITY, "topics": [r"A\.orders"]},
            },
            (
                'flows."A->C" and flows."B->C": orders of A and A.orders of B would '
                "both "
                "be copied to A.orders on C; give one flow another policy or separator"
            ),
        ),
    ],
)
def test_a_harmful_topology_is_spelled_out(
    flows: dict[str, dict[str, Any]], problem: str
) -> None:
    """The message names the way that the records would take."""
    assert problems(config(flows)) == [problem]


def test_a_full_mesh_with_unchanged_names_doubles() -> None:
    """The header stops loops, but each record would come directly and by a detour."""
    mesh = {f"{a}->{b}": IDENTITY for a in "ABC" for b in "ABC" if a != b}
    found = problems(config(mesh))
    assert len(found) == 6
    assert sorted(text.partition(" bring ")[0] for text in found) == [
        f"flows: {a} -> {b} and {a} -> {by} -> {b}"
        for a, b, by in ("ABC", "ACB", "BAC", "BCA", "CAB", "CBA")
    ]


FED = dict.fromkeys(("A->B", "B->A", "A->C", "B->C"), IDENTITY)


def fed(flows: dict[str, dict[str, Any]], **pairs: dict[str, Any]) -> MirrorConfig:
    return config(flows, recovery=pairs or {"A<->B": {"active": "A", "feeds": ["C"]}})


@pytest.mark.parametrize(
    ("back", "problem"),
    [
        ({}, "a pair needs a flow each way, and B->A is missing; add it under flows"),
        (
            {"B->A": {"enabled": False}},
            "a pair needs a flow each way, and B->A is turned off; add it under flows",
        ),
        (
            {"B->A": {"exactly_once": False}},
            (
                "without exactly_once a switch cannot tell what was copied; turn it on "
                "for B->A"
            ),
        ),
    ],
)
def test_a_pair_needs_both_flows(back: dict[str, Any], problem: str) -> None:
    """A flow of a pair that is missing, off or inexact is one message."""
    made = fed({"A->B": {}, **back}, **{"A<->B": {"active": "A"}})
    assert problems(made) == [f'recovery."A<->B": {problem}']


def test_a_pair_may_feed_a_cluster_two_ways() -> None:
    """Of the flows out of both its clusters always one rests, so no record is doubled,
    there or behind; without `feeds` it would be.
    """
    assert problems(fed(FED)) == []
    assert problems(fed({**FED, "C->D": IDENTITY})) == []
    unfed = {"A<->B": {"active": "A"}}
    assert "every record would be doubled" in problems(fed(FED, **unfed))[0]
    beside, *_ = problems(fed({**FED, "A->D": IDENTITY, "C->D": IDENTITY}))
    assert beside.startswith("flows: A -> D and A -> C -> D bring the same topics")


@pytest.mark.parametrize(
    ("flows", "problem"),
    [
        (
            {"B->C": {**IDENTITY, "enabled": False}},
            (
                "B->C is turned off; the pair feeds C from either of its clusters, so "
                "add it under flows"
            ),
        ),
        (
            {"A->C": {**IDENTITY, "exactly_once": False}},
            (
                "A->C cannot go on for the other flow without exactly_once: nothing "
                "says what was copied; turn it on"
            ),
        ),
        (
            {"A->C": UNSTAMPED},
            (
                "A->C cannot go on for the other flow without provenance: records "
                "would come again; turn it on"
            ),
        ),
        (
            {"B->C": {}},
            (
                "with the policy default of B->C the copies on C would have other "
                "names after a switch; use identity or rename"
            ),
        ),
        (
            {"A->C": {**RENAMED, "topics": [r"eu\.x"]}},
            (
                "eu.x of A is copy.x on C, and would be eu.x after a switch; give A->C "
                "and B->C the same names"
            ),
        ),
    ],
)
def test_flows_that_cannot_go_on_for_each_other(
    flows: dict[str, dict[str, Any]], problem: str
) -> None:
    """What keeps one flow from going on where the other one stopped is named."""
    assert problems(fed(FED | flows)) == [f'recovery."A<->B".feeds: {problem}']


def test_a_flow_is_fed_by_one_pair() -> None:
    """A flow's role comes from one pair; clusters that are not there are named."""
    pair = {"active": "A", "feeds": ["C"]}
    flows = {**FED, "C->A": IDENTITY}
    mixed = {"A<->B": pair, "A<->C": {"active": "A"}}
    assert (
        'recovery."A<->B".feeds: A->C belongs to the pair of A and C, which decides '
        "when it copies; leave C out"
    ) in problems(fed(flows, **mixed))
    several = {"A<->B": pair, "A<->D": pair}
    assert (
        "recovery: A<->B and A<->D both decide when A->C rests; leave its target out "
        "of the feeds of one"
    ) in problems(fed({**FED, "A->D": {}, "D->A": {}, "D->C": IDENTITY}, **several))
    nowhere = {"A<->B": {"active": "A", "feeds": ["E"]}}
    found = problems(fed({**FED, "B->C": {"enabled": False}}, **nowhere))
    assert found == ['recovery."A<->B".feeds: there is no cluster "E"']


@pytest.mark.parametrize(
    ("settings", "problem"),
    [
        ({"feeds": ["A"]}, '"A" is a cluster of this pair'),
        ({"feeds": ["C"], "both_ways": True}, "with both_ways records of both"),
        (
            {"feeds": ["C"], "scope": "orders", "topics": ["orders"], "groups": []},
            "a pair with a name has only some of the topics",
        ),
    ],
)
def test_pairs_that_cannot_feed(settings: dict[str, Any], problem: str) -> None:
    """The pair itself rules it out."""
    with pytest.raises(ValidationError, match=problem):
        PairConfig(one="A", other="B", active="A", **settings)


@pytest.mark.parametrize(
    ("there", "back", "pair", "why"),
    [
        ({}, {}, {}, ""),
        ({}, {}, {"both_ways": True}, "clusters written at once give offsets twice"),
        ({"policy": "default"}, {"policy": "default"}, {}, "write one topic by turns"),
        ({"provenance": False}, {}, {}, "only the header says which records came back"),
        ({}, {"offsets": "translated"}, {}, "B->A has other offsets"),
        ({"offsets_exclude": ["x"]}, {}, {}, "B->A has other offsets"),
        ({"fill": "visible"}, {}, {}, "B->A has another fill"),
        ({"fill": "visible"}, {"fill": "visible"}, {}, ""),
        ({}, {}, {"feeds": ["C"]}, "two flows write the copies"),
    ],
)
def test_pairs_that_cannot_keep_offsets(
    there: dict[str, Any], back: dict[str, Any], pair: dict[str, Any], why: str
) -> None:
    """One offset has one record on both clusters of a pair: what rules that out is
    said, and a pair that can is accepted.
    """
    same = {**IDENTITY, "offsets": "same"}
    flows = {"A->B": same | there, "B->A": same | back}
    if "feeds" in pair:
        flows |= {"A->C": same, "B->C": same}
    found = problems(fed(flows, **{"A<->B": {"active": "A", **pair}}))
    about = [each for each in found if "offsets: same" in each]
    assert bool(about) == bool(why)
    assert all(why in each for each in about[:1])


def test_copies_of_a_pair_cannot_be_protected() -> None:
    """Applications write to them after a switch; a flow that a pair feeds can be."""
    flows = {**FED, "A->B": {**IDENTITY, "protect": "acl"}}
    assert problems(fed(flows)) == [
        (
            'flows."A->B".protect: acl is not possible in the pair A<->B: a switch '
            "lets applications write to the copies; set protect: none, and fence: acl "
            "in the pair, which keeps them from the cluster that is left"
        )
    ]
    protected = {**IDENTITY, "protect": "acl"}
    assert problems(fed({**FED, "A->C": protected, "B->C": protected})) == []


def test_two_aliases_of_one_broker_are_one_cluster() -> None:
    """A flow between them would copy a cluster onto itself."""
    made = at_brokers({"A->B": {}}, A="x:1,Kafka:9092", B="kafka:9092,y:1")
    assert problems(made) == [
        (
            'flows."A->B": A and B are the same cluster: both have kafka:9092 in '
            "bootstrap_servers"
        )
    ]
    assert problems(at_brokers({"A->C": {}}, A="x:1", B="x:1")) == []


def test_names_are_those_the_user_wrote() -> None:
    """In MirrorMaker 2's file, flows have no section before their name."""
    found = problems(config({"A->A": {}}), spelled={("flows", "A->A"): "A->A"})
    assert found == ["A->A: source and target are the same cluster"]


@pytest.mark.parametrize(
    ("one", "other", "common"),
    [
        ("orders.*", ".*-eu", True),
        ("orders.*", "pay.*", False),
        ("(orders|pay).*", "pay-[0-9]+", True),
        (r"orders\.[a-z]+", r"orders\.eu", True),
        (r"orders\.(?!eu).*", "orders.*", True),
        (r"orders\.(?!eu).*", "pay.*", False),
        ("a.*b", "a.*c.*", True),
        (r"\w+-v\d", ".*", True),
        ("orders{2}", "orderss", True),
        ("(a|b)?c", "bc", True),
        ("[^x].*", "x.*", False),
    ],
)
def test_patterns_are_told_apart(one: str, other: str, *, common: bool) -> None:
    """Two ways double what both let through; names that the patterns match show it."""
    found = problems(
        config(
            {
                "A->B": {**IDENTITY, "topics": [one]},
                "B->D": IDENTITY,
                "A->D": {**IDENTITY, "topics": [other]},
            }
        )
    )
    assert common is bool(found)


def test_large_meshes_are_checked_in_no_time() -> None:
    """Ten clusters have millions of ways; only short ones are followed."""
    names = "ABCDEFGHIJ"
    made = config(
        {f"{a}->{b}": {} for a in names for b in names if a != b}, aliases=names
    )
    assert problems(made) == []


def test_stars_of_many_flows_keep_their_names() -> None:
    """However many clusters send to a hub, all the names that they list are tried."""
    names = [f"S{number}" for number in range(60)]
    topics = {name: [f"{name.lower()}-{n}" for n in range(20)] for name in names}
    made = config(
        {f"{name}->A": {**IDENTITY, "topics": topics[name]} for name in names}
        | {"A->S59": {**UNSTAMPED, "topics": topics["S59"][-1:]}},
        aliases=["A", *names],
    )
    (found,) = problems(made)
    assert found.startswith("flows: S59 -> A -> S59 is a circle")


NAMES = ("o", "p", "A.o", "B.o", "topic")
MOST_TOPICS = 40
FLOWS = st.fixed_dictionaries(
    {
        "topics": st.sampled_from([["o"], ["p"], ["o", "p"], ["A.o"], [".*o"], [".*"]]),
        "provenance": st.booleans() | st.just(value=True),
    }
) | st.just({})
POLICIES = st.sampled_from(
    [
        {"policy": "default"},
        {"policy": "identity"},
        {"policy": "rename", "rename": [{"match": "o", "to": "p"}]},
    ]
)
TOPOLOGIES = st.dictionaries(
    st.sampled_from([f"{a}->{b}" for a, b in permutations("ABCD", 2)]),
    st.builds(lambda flow, policy: {**flow, **policy}, FLOWS, POLICIES),
    min_size=1,
    max_size=6,
)


def copies(flow: FlowConfig, topic: str) -> str | None:
    policy = flow.replication_policy
    if not flow.topic_filter.matches(topic) or policy.is_cycle(topic, flow.target):
        return None
    return policy.target_topic(topic)


def topics_without_end(flows: list[FlowConfig], cluster: str, topic: str) -> bool:
    """Whether a topic of a cluster leads to more topics without end."""
    known = {(cluster, topic)}
    new = deque(known)
    while new and len(known) < MOST_TOPICS:
        here, name = new.popleft()
        for flow in flows:
            if flow.source == here and (copy := copies(flow, name)) is not None:
                place = (flow.target, copy)
                new.extend({place} - known)
                known.add(place)
    return len(known) >= MOST_TOPICS


def repeats(flows: list[FlowConfig], cluster: str, topic: str) -> bool:
    """Whether a record written to a topic reaches any topic a second time."""
    there = {(cluster, topic)}
    copied: dict[tuple[str, str], str] = {}
    new: deque[tuple[str, str, tuple[str, ...]]] = deque([(cluster, topic, ())])
    while new:
        here, name, via = new.popleft()
        for flow in flows:
            copy = copies(flow, name) if flow.source == here else None
            if copy is None or (flow.provenance and flow.target in via):
                continue
            # Two topics of one flow with one copy are refused while it runs.
            if copied.setdefault((flow.name, copy), name) != name:
                continue
            if (flow.target, copy) in there:
                return True
            there.add((flow.target, copy))
            behind = (*via, here) if flow.provenance else via
            new.append((flow.target, copy, behind))
    return False


@settings(max_examples=200, deadline=None)
@given(topology=TOPOLOGIES)
def test_what_would_harm_is_refused_and_nothing_else(
    topology: dict[str, dict[str, Any]],
) -> None:
    """Any topology of four clusters is refused exactly if it would make topics without
    end, or bring a record to a topic twice.
    """
    config = configurations.config(topology, "ABCD")
    flows = list(config.flows.values())
    # A record that comes back unstamped and under another name may go on from there.
    assume(
        all(flow.provenance for flow in flows)
        or all(flow.policy != "rename" for flow in flows)
    )
    found = problems(config)
    # Topics that are mixed up are another matter.
    assume(not any("would both be copied to" in text for text in found))
    grown = [
        (cluster, name)
        for cluster in "ABCD"
        for name in NAMES
        if topics_without_end(flows, cluster, name)
    ]
    harmed = grown or [
        (cluster, name)
        for cluster in "ABCD"
        for name in NAMES
        if repeats(flows, cluster, name)
    ]
    event("refused" if found else "sound")
    assert bool(found) is bool(harmed), (found, harmed)
