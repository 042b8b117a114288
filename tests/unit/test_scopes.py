"""Pairs with names that share two clusters: what is whose, and who copies it."""

from __future__ import annotations

from dataclasses import replace
import json
from typing import TYPE_CHECKING, Any

import pytest

from mirror.cli.options import pair_of
from mirror.config import scopes
from mirror.config.section_names import pair_parts, scoped_flow
from mirror.errors import ConfigError, MirrorError
from mirror.pairs import journal, roles
from mirror.pairs.journal import Entry, Kind, StepState
from mirror.recovery import procedure
from mirror.service.pairs import PairFollower
from mirror.status.store import StatusStore
from tests.harness import configurations
from tests.harness.configurations import problems

if TYPE_CHECKING:
    from pathlib import Path

    from mirror.config.schema import MirrorConfig

pytestmark = pytest.mark.unit

ORDERS = {"active": "A", "topics": ["orders.*", "(?i)SHOP"], "groups": ["shop-.*"]}
BILLING = {"active": "A", "topics": ["billing"], "groups": ["billing"]}


CLUSTERS = {a: {"bootstrap_servers": f"{a}:9092"} for a in "AB"}
FLOWS = {"A->B": {"topics": [".*"]}, "B->A": {"topics": [".*"]}}


def config_of(**pairs: Any) -> MirrorConfig:
    """Pairs of two clusters, by what follows the slash."""
    recovery = {f"A<->B/{name}": each for name, each in pairs.items()}
    return configurations.config(FLOWS, "AB", recovery=recovery)


CONFIG = config_of(orders=ORDERS, billing=BILLING)
PAIR, OTHER = CONFIG.recovery.values()


@pytest.mark.parametrize(
    ("pairs", "text"),
    [
        ({"A<->B/x": {"active": "A", "groups": []}}, ".topics: is missing"),
        ({"A<->B/x": {"active": "A", "topics": ["a"]}}, ".groups: is missing"),
        ({"A<->B/x": {**ORDERS, "topics": []}}, ".topics: is missing"),
        ({"A<->B": ORDERS}, "a pair without a name has all topics and groups"),
        ({"A<->B/": ORDERS}, 'not the name of a pair; use "A<->B"'),
        ({"A<->B/x/y": ORDERS}, "cannot be an alias"),
        ({"A<->B/x": {**ORDERS, "scope": "y"}}, "is already given by the key above"),
        ({"A<->B/x": ORDERS, "B<->A/x": BILLING}, "A<->B/x is given twice"),
        (
            {"A<->B": {"active": "A"}, "B<->A/x": ORDERS},
            "A<->B and A<->B/x share their clusters, and A<->B has all",
        ),
        (
            {"A<->B/x": ORDERS, "A<->B/y": {**BILLING, "topics": ["orders-eu"]}},
            "A<->B/x and A<->B/y both have orders-eu in topics",
        ),
        (
            {"A<->B/x": ORDERS, "A<->B/y": {**BILLING, "groups": [r"shop\-.*"]}},
            "A<->B/x and A<->B/y both have shop-.* in groups",
        ),
    ],
)
def test_pairs_that_are_refused(
    tmp_path: Path, pairs: dict[str, Any], text: str
) -> None:
    """Each mistake is one message that names the pair, or both."""
    document = {"clusters": CLUSTERS, "flows": FLOWS, "recovery": pairs}
    assert text in "\n".join(problems(tmp_path, json.dumps(document)))


def test_names_on_the_command_line() -> None:
    """A pair's name stands behind the flow, in both spellings; without it the text is a
    flow as before.
    """
    assert scoped_flow("A->B/orders") == ("A->B", "orders")
    assert scoped_flow("A/B/orders") == ("A/B", "orders")
    assert [scoped_flow(each) for each in ("A->B", "A/B")] == [
        ("A->B", None),
        ("A/B", None),
    ]
    assert pair_parts("B <-> A / orders") == ("B", "A", "orders")
    assert PAIR.name == "A<->B/orders"


def test_what_is_no_pair() -> None:
    """A command for a pair that the file does not have names those that there are, or
    says what to add.
    """
    flow = CONFIG.flows["A->B"]
    with pytest.raises(
        ConfigError, match=r"A<->B/x is not a pair; there are A<->B/ord"
    ):
        pair_of(CONFIG, flow, "x")
    alone = CONFIG.model_copy(update={"recovery": {}})
    with pytest.raises(ConfigError, match=r'not a pair; add "A<->B": {active: A}'):
        pair_of(alone, flow, None)


def test_what_a_pair_has() -> None:
    """Within a pair a flow has its topics and groups only, whatever flags patterns
    have; without it all others, so that together they have everything once.
    """
    flow = CONFIG.flows["A->B"]
    inside, outside = scopes.within(flow, PAIR), scopes.without(flow, [PAIR])
    topics = ["orders", "orders-eu", "shop", "billing", "other"]
    assert list(filter(inside.topic_filter.matches, topics)) == topics[:3]
    assert list(filter(outside.topic_filter.matches, topics)) == topics[3:]
    assert inside.topic_filter.heartbeats is False, "they are of no application"
    assert scopes.has_group(PAIR, "shop-1")
    assert not scopes.has_group(PAIR, "billing")
    assert scopes.has_topic(PAIR, "B.orders-eu", CONFIG.flows["B->A"]), "a copy"
    assert not scopes.has_topic(PAIR, "B.billing", CONFIG.flows["B->A"])


def test_what_patterns_do_not_tell() -> None:
    """A topic or group that really matches two pairs is named with both."""
    config = config_of(
        orders={**ORDERS, "topics": ["orders.*"]},
        billing={**BILLING, "topics": [".*-eu"]},
    )
    pairs = config.recovery.values()
    assert scopes.overlap(*pairs) == ""
    assert scopes.claimed_twice(
        pairs, topics=["orders-eu", "orders-us"], groups=["billing"]
    ) == ("topic orders-eu belongs to A<->B/orders and A<->B/billing",)


def entry(step: str, state: StepState = StepState.DONE, **more: Any) -> Entry:
    """One of a switch of PAIR from A to B."""
    made = Entry(
        pair=PAIR.name, run="0123456789", number=0, kind=Kind.SWITCH, epoch=2,
        source="A", target="B", step=step, state=state, at=5.0, by="me@here",
    )  # fmt: skip
    return replace(made, **more)


class Journals(PairFollower):
    """A follower that has read these journals."""

    def __init__(self, entries: tuple[Entry, ...], alias: str = "A") -> None:
        super().__init__(CONFIG, StatusStore(tuple(CONFIG.flows)))
        for each in CONFIG.clusters:
            self._learn(each, entries if each == alias else ())


FIRST = tuple(
    each for pair in (PAIR, OTHER) for each in roles.first_role(pair, at=1.0, by="me")
)


def rests(follower: PairFollower) -> dict[str, list[str]]:
    """The pairs that each flow leaves alone."""
    return {
        name: [pair.name for pair in follower.rests_in(*name.split("->"))]
        for name in CONFIG.flows
    }


def test_each_flow_copies_what_is_active_at_its_source() -> None:
    """Once a switch of one pair has made B active, the flow back takes up its topics,
    and those of the other pair stay where they were.
    """
    before = Journals(FIRST)
    assert rests(before) == {"A->B": [], "B->A": [PAIR.name, OTHER.name]}
    after = Journals((*FIRST, entry(roles.ROLE), entry(roles.END)))
    assert rests(after) == {"A->B": [PAIR.name], "B->A": [OTHER.name]}
    wants = after.narrowed(CONFIG.flows["B->A"]).topic_filter.matches
    assert [wants(name) for name in ("orders", "billing", "other")] == [1, 0, 1]
    for follower in (before, after):
        assert follower.may_copy("A", "B") is follower.may_copy("B", "A") is True
        assert follower.passive() == frozenset(), "no flow as a whole"


def test_without_a_role_nothing_is_copied() -> None:
    """A flow's first run settles where all its topics begin, so it waits for the roles
    of all pairs.
    """
    assert Journals(()).may_copy("A", "B") is None
    assert Journals(FIRST[:2]).may_copy("A", "B") is None


def test_while_a_run_is_open() -> None:
    """A switch stops what the flow back copies of its pair, and nothing else; while a
    failover fences the flow from the cluster that is gone, all of it rests.
    """
    begun = entry("fence", StepState.BEGUN)
    switching = Journals((*FIRST, begun))
    assert switching.may_copy("A", "B") is switching.may_copy("B", "A") is True
    assert rests(switching)["A->B"] == []
    assert switching.switching("A", "B") is switching.switching("B", "A") is True
    failing = Journals((*FIRST, replace(begun, kind=Kind.FAILOVER)))
    assert failing.may_copy("A", "B") is False
    assert failing.may_copy("B", "A") is True


def test_one_run_at_a_time() -> None:
    """Operators of all pairs of two clusters fence each other, and while a run of one
    is open another one is refused, with its name and step.
    """
    ids = {journal.transactional_id(name) for name in ("A<->B", PAIR.name, OTHER.name)}
    assert ids == {"mirror.pair.A.B"}
    begun = (*FIRST, entry("fence", StepState.BEGUN))
    run = roles.open_in_other_pair(OTHER, (), begun)
    assert run is not None
    assert roles.open_in_other_pair(PAIR, begun) is None, "its own"
    assert roles.open_in_other_pair(OTHER, (*begun, entry(roles.END))) is None
    refusal = procedure.is_open(run)
    assert isinstance(refusal, MirrorError)
    assert "switch A->B/orders 01234567 is open, at step fence" in str(refusal)
    assert "`mirror switch 'A->B/orders'`" in str(refusal)
    assert procedure.way_back(run.first) == "B->A/orders"


@pytest.mark.parametrize(
    ("key", "step", "state"),
    [
        ("A<->B/mirror-canary", "fence", "BEGUN"),
        ("canary/A<->B/orders", "end", "FAILED"),
    ],
)
def test_a_canary_of_an_earlier_version(key: str, step: str, state: str) -> None:
    """Its runs, also one that was left open, and its outcome are read, and are no run,
    no role and no drill of any pair.
    """
    value = {
        "version": 1, "run": "7a", "number": 0, "kind": "SWITCH", "epoch": 2,
        "from": "A", "to": "B", "step": step, "state": state,
        "at": "2026-11-25T18:17:42.000Z", "by": "me@here",
        "details": {"passed": False, "switches": []},
    }  # fmt: skip
    left = [journal.decode(key.encode(), json.dumps(value).encode())]
    assert roles.merged(left, pair=PAIR.name) == ()
    assert roles.open_in_other_pair(PAIR, left, left) is None
    assert roles.read_drills(left, PAIR.name) == ()


def test_the_journal_has_the_whole_name() -> None:
    """A pair's name is the record's key: earlier readers take it for another pair."""
    key, value = entry("fence").record()
    assert key == b"A<->B/orders"
    assert journal.decode(key, value).pair == PAIR.name
