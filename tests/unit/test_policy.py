"""Names of copies, and which topics a flow wants: MirrorMaker 2's rules.

At the end, one rule of policy rename: forwards, backwards, and what is refused.
"""

from __future__ import annotations

from pathlib import Path
import pickle
import re
from typing import TYPE_CHECKING

from hypothesis import given, settings
from hypothesis import strategies as st
import pytest

from mirror.policy.choice import (
    DefaultPolicy,
    RenamePolicy,
    Rule,
    make_policy,
    why_wrong,
)
from mirror.policy.naming import is_internal
from mirror.policy.selection import (
    Rejection,
    TopicFilter,
    TopicMapping,
    nearest,
    select_topics,
    unmatched,
)

if TYPE_CHECKING:
    from mirror.policy.naming import ReplicationPolicy

pytestmark = pytest.mark.unit

RENAME = RenamePolicy(
    source_alias="A",
    rules=(
        Rule(match=r"orders\.(.*)", to=r"eu.\1"),
        Rule(match="(?P<what>[a-z]+)-v([0-9])", to="$2.${what}"),
        Rule(match="legacy", to="modern"),
    ),
)
DEFAULT = DefaultPolicy(source_alias="A")
IDENTITY = RenamePolicy(source_alias="A")
ALL = TopicFilter(include=(".*",))


@pytest.mark.parametrize(
    ("name", "source", "upstream", "original"),
    [
        ("orders", None, None, "orders"),
        ("A.orders", "A", "orders", "orders"),
        ("B.A.orders", "B", "A.orders", "orders"),
        ("orders.", None, None, "orders."),
        ("orders..", None, None, "orders.."),
        (".orders", "", "orders", "orders"),
        ("A..x", "A", ".x", "x"),
        (".", None, None, "."),
    ],
)
def test_a_prefixed_name_tells_its_way(
    name: str, source: str | None, upstream: str | None, original: str
) -> None:
    """The default policy reads names as MirrorMaker 2 does, empty parts included."""
    assert source == DEFAULT.topic_source(name)
    assert upstream == DEFAULT.upstream_topic(name)
    assert original == DEFAULT.original_topic(name)


def test_the_default_policy_prefixes_with_alias_and_separator() -> None:
    """The copy's name is alias, separator, topic."""
    assert DEFAULT.target_topic("orders") == "A.orders"
    other = make_policy("default", source_alias="A", separator="_")
    assert other.target_topic("orders") == "A_orders"
    assert other.topic_source("A.orders") is None


def test_the_identity_policy_renames_heartbeats_alone() -> None:
    """Every name stays, but heartbeats of two clusters must not be mixed."""
    assert make_policy("identity", source_alias="A") == IDENTITY
    assert IDENTITY.target_topic("B.orders") == "B.orders"
    assert IDENTITY.topic_source("orders") == "A"
    assert IDENTITY.upstream_topic("orders") == "orders"
    assert IDENTITY.original_topic("B.orders") == "B.orders"
    assert IDENTITY.target_topic("heartbeats") == "A.heartbeats"
    assert IDENTITY.topic_source("heartbeats") is None
    assert IDENTITY.upstream_topic("B.heartbeats") == "heartbeats"
    assert IDENTITY.original_topic("B.heartbeats") == "heartbeats"


@pytest.mark.parametrize(
    ("topic", "target", "cycle"),
    [
        ("orders", "B", False),
        ("B.orders", "B", True),
        ("C.B.orders", "B", True),
        ("C.orders", "B", False),
        ("orders.B", "B", False),
        ("orders.B.x", "B", True),
        ("b.orders", "B", False),
    ],
)
def test_a_name_that_came_through_the_target_is_a_cycle(
    topic: str, target: str, cycle: bool
) -> None:
    """Any hop in the name counts, and nothing but the name does."""
    assert cycle is DEFAULT.is_cycle(topic, target)
    assert IDENTITY.is_cycle(topic, target) is False


def test_mirrored_heartbeats_do_not_go_back_under_the_identity_policy() -> None:
    """Heartbeats keep their prefixes, so their names can tell."""
    assert IDENTITY.is_cycle("B.heartbeats", "B")
    assert not IDENTITY.is_cycle("heartbeats", "B")


@pytest.mark.parametrize(
    ("include", "exclude", "name", "wanted"),
    [
        ((".*",), (), "orders", True),
        (("order",), (), "orders", False),
        (("ord.*", "pay"), (), "pay", True),
        ((".*",), ("ord.*",), "orders", False),
        (("orders",), ("orders",), "orders", False),
        (("a|b",), (), "b", True),
        (("a|b",), (), "bc", False),
        ((), (), "orders", False),
        ((".*",), (), "heartbeats", False),
        (("heartbeats",), (), "heartbeats", True),
        ((r"(.*\.)?heartbeats",), (), "heartbeats", True),
        ((".*",), (), "A.heartbeats", True),
        (("__.*",), (), "__consumer_offsets", False),
        ((".*", "_schema.*"), (), "_schemas", False),
        ((".*", "_schemas"), (), "_schemas", True),
        (("_schemas",), ("_.*",), "_schemas", False),
        ((".*",), (), "my_schemas", True),
    ],
)
def test_a_pattern_matches_whole_names_and_exclude_wins(
    include: tuple[str, ...], exclude: tuple[str, ...], name: str, wanted: bool
) -> None:
    """The filter wants a name that an include matches and no exclude does."""
    assert wanted is TopicFilter(include=include, exclude=exclude).matches(name)


@pytest.mark.parametrize(
    ("name", "separator", "internal"),
    [
        ("__consumer_offsets", ".", True),
        ("_schemas", ".", False),
        ("mm2-offset-syncs.B.internal", ".", True),
        ("mm2-configs.A.internal", "-", True),
        ("mm2_offset_syncs_B_internal", "_", True),
        ("mm2-offset-syncs_B_internal", ".", False),
        ("A.checkpoints.internal", ".", True),
        ("A_checkpoints_internal", "_", True),
        ("A.offset-map.internal", ".", True),
        ("mirror-progress.A.internal", ".", True),
        ("orders.internal", ".", False),
        ("mirror-orders", ".", False),
    ],
)
def test_internal_topics_are_known_by_name(
    name: str, separator: str, internal: bool
) -> None:
    """Topics of brokers, of MirrorMaker 2 and of ours are never copied."""
    assert internal is is_internal(name, separator)


def test_a_selection_maps_rejects_and_shows_cycles() -> None:
    """No wanted topic disappears without a word."""
    long = "x" * 248
    names = ["orders", "B.orders", long, "__x", "payments", "orders"]

    selection = select_topics(names, ALL, DEFAULT, "B")

    assert selection.mappings == (
        TopicMapping(topic="orders", target_topic="A.orders"),
        TopicMapping(topic="payments", target_topic="A.payments"),
    )
    assert selection.cycles == ("B.orders",)
    assert selection.rejected == (
        Rejection(
            topic=long,
            target_topic=f"A.{long}",
            reason=f'the target name "A.{long}" has 250 characters; Kafka allows 249',
        ),
    )


@pytest.mark.parametrize(
    ("topic", "copy", "upstream"),
    [
        ("orders.new", "eu.new", "orders.new"),
        ("orders.", "eu.", "orders."),
        ("pay-v2", "2.pay", "pay-v2"),
        ("legacy", "modern", "legacy"),
        ("else", "else", "else"),
        ("eu", "eu", "eu"),
        ("heartbeats", "A.heartbeats", "heartbeats"),
        ("C.heartbeats", "A.C.heartbeats", "C.heartbeats"),
    ],
)
def test_the_first_rule_that_fits_names_the_copy(
    topic: str, copy: str, upstream: str
) -> None:
    """What no rule fits keeps its name; the way back is found where there is one."""
    assert copy == RENAME.target_topic(topic)
    assert upstream == RENAME.upstream_topic(copy)
    assert RENAME.topic_source(copy) == "A"
    assert RENAME.is_cycle("A.heartbeats", "A")
    assert not RENAME.is_cycle(topic, "B")


def test_a_name_that_no_topic_can_have_here_is_no_copy() -> None:
    """Topics that a rule takes for itself do not come under their own names."""
    assert RENAME.upstream_topic("orders.x") is None
    assert RENAME.topic_source("orders.x") is None
    assert RENAME.original_topic("orders.x") == "orders.x"
    assert RENAME.original_topic("eu.x") == "orders.x"


def test_two_topics_of_one_copy_are_both_refused() -> None:
    """Neither is copied, since both in one topic could never be told apart again."""
    selection = select_topics(["orders.x", "eu.x", "y"], ALL, RENAME, "B")
    assert selection.mappings == (TopicMapping(topic="y", target_topic="y"),)
    assert [each.topic for each in selection.rejected] == ["eu.x", "orders.x"]
    assert {each.reason for each in selection.rejected} == {
        'eu.x and orders.x would both be copied to "eu.x"; leave one out, or rename it'
    }


@pytest.mark.parametrize(
    ("topic", "to"),
    [
        ("offsets", "__consumer_offsets"),
        ("x", "mirror-progress.A.internal"),
        ("x", "A.checkpoints.internal"),
    ],
)
def test_no_copy_gets_the_name_of_an_internal_topic(topic: str, to: str) -> None:
    """Copies would be mixed with what brokers and mirrors keep for themselves."""
    policy = RenamePolicy(source_alias="A", rules=(Rule(match=topic, to=to),))
    (rejected,) = select_topics([topic], ALL, policy, "B").rejected
    assert rejected.reason == f'the target name "{to}" is reserved for internal topics'


def test_a_policy_of_rules_needs_some() -> None:
    """A caller that forgets to pass a flow's rules must not get another policy."""
    with pytest.raises(ValueError, match="needs rules"):
        make_policy("rename", source_alias="A")


def test_unchanged_names_leave_loops_to_the_header() -> None:
    """Under the identity policy a name that looks like a copy is still copied."""
    selection = select_topics(["B.orders"], ALL, IDENTITY, "B")
    assert selection.mappings == (
        TopicMapping(topic="B.orders", target_topic="B.orders"),
    )


def test_a_filter_travels() -> None:
    """Tasks get their filter pickled."""
    assert pickle.loads(pickle.dumps(ALL)) == ALL


@pytest.mark.parametrize(
    ("name", "copied"),
    [
        ("heartbeats", True),
        ("C.heartbeats", True),
        ("C.D.heartbeats", True),
        ("my-heartbeats", False),
        ("orders", False),
    ],
)
def test_heartbeats_are_copied_whatever_the_patterns_say(
    name: str, copied: bool
) -> None:
    """With or without the prefixes of hops, although nothing matches or all is out."""
    none = TopicFilter(include=(), exclude=(".*",), heartbeats=True)
    assert none.matches(name) is copied
    assert not TopicFilter(include=(".*",)).matches("heartbeats")


def test_heartbeats_of_an_application_are_an_ordinary_topic() -> None:
    """No cluster of the file is called `app`: its topic is copied if it is listed, and
    called like any other one. MirrorMaker 2 copies it whatever the lists say
    (Strimzi's issue 12218).
    """
    clusters = ("A", "B", "C")
    wants = TopicFilter(include=("orders",), heartbeats=True, aliases=clusters)
    names = ("heartbeats", "C.heartbeats", "B.C.heartbeats", "orders")
    others = ("app.heartbeats", "C.app.heartbeats", "app.C.heartbeats", "Cheartbeats")
    assert [n for n in (*names, *others) if wants.matches(n)] == list(names)

    rules = (Rule(match="none", to="one"),)
    for chosen, policy in (
        ("identity", make_policy("identity", source_alias="A", aliases=clusters)),
        ("rename", make_policy(
            "rename", source_alias="A", aliases=clusters, rules=rules)),
    ):  # fmt: skip
        assert policy.target_topic("C.heartbeats") == "A.C.heartbeats", chosen
        for name in others:
            assert policy.target_topic(name) == name, chosen
            assert policy.upstream_topic(name) == name, chosen


@pytest.mark.parametrize(
    ("policy", "names_source", "ranges"),
    [
        (DEFAULT, True, [("A.ord", False)]),
        (IDENTITY, False, [("ord", False)]),
        (
            RENAME,
            False,
            [("ord", False), ("eu.", False), ("", False), ("modern", True)],
        ),
    ],
)
def test_a_policy_says_where_copies_are(
    policy: ReplicationPolicy, names_source: bool, ranges: list[tuple[str, bool]]
) -> None:
    """Rights and ACLs follow from what a policy says, whichever it is."""
    assert policy.names_source is names_source
    assert [(r.start, r.whole) for r in policy.target_names("ord")] == ranges


def test_no_caller_asks_which_policy_it_has() -> None:
    """Only `policy/choice` tells policies apart; others ask the policy itself."""
    package = Path(__file__).parents[2] / "mirror"
    asking = [
        str(path.relative_to(package))
        for path in package.rglob("*.py")
        if path.parent.name != "policy"
        and re.search(r"\bpolicy (==|!=|in|not in) [^a-z]", path.read_text())
    ]

    assert asking == []


@pytest.mark.parametrize(
    ("pattern", "meant"),
    [
        ("ordesr", "orders"),
        ("paymnets.*", "payments.eu"),
        (r"secret\..*", ""),
        ("x", ""),
    ],
)
def test_an_entry_that_matches_nothing_has_a_nearest_name(
    pattern: str, meant: str
) -> None:
    """A letter or two may be wrong; another word is no misspelling."""
    names = ("orders", "payments.eu", "billing")
    found = unmatched([pattern, "orders", "pay.*"], names)
    assert {each: nearest(each, names) for each in found} == {pattern: meant}


NAMES = st.from_regex(r"[a-z._-]{1,12}", fullmatch=True)
TEXTS = st.from_regex(r"[a-z_-]{0,4}", fullmatch=True)


@pytest.mark.parametrize(
    ("match", "to", "topic", "copy"),
    [
        (r"orders\.(.*)", r"eu.\1", "orders.x", "eu.x"),
        (r"orders\.(.*)", r"eu\.\1", "orders.x", "eu.x"),
        (r"orders\.(.*)", "eu.$1", "orders.x", "eu.x"),
        (r"orders\.(.*)", "${1}", "orders.x", "x"),
        (r"orders\.(?P<rest>.*)", r"\g<rest>", "orders.x", "x"),
        ("(a)?(b)", r"\1x\2", "b", "xb"),
        ("(.*)-(.*)", r"\2.\1.\2", "a-b", "b.a.b"),
        (".*", r"all.\0", "orders", "all.orders"),
        ("order", "x", "orders", None),
    ],
)
def test_a_rule_fits_whole_names(
    match: str, to: str, topic: str, copy: str | None
) -> None:
    """Python's and Java's way to write groups both work."""
    rule = Rule(match=match, to=to)
    assert why_wrong(rule) is None
    assert copy == rule.apply(topic)


@pytest.mark.parametrize(
    ("match", "to", "copy", "topic"),
    [
        (r"orders\.(.*)", r"eu.\1", "eu.x", "orders.x"),
        (r"orders.(.*)", r"eu.\1", "eu.x", "orders.x"),
        ("(.*)-(.*)", r"\2.\1.\2", "b.a.b", "a-b"),
        (".*", r"all.\0", "all.orders", "orders"),
        ("orders", "x", "x", "orders"),
        # Another name than the rule's.
        (r"orders\.(.*)", r"eu.\1", "us.x", None),
        ("(.*)-(.*)", r"\2.\1.\2", "b.a.c", None),
        ("([0-9]*)", r"n\1", "nx", None),
        # What the name does not tell.
        (r"orders\.(.*)", "one", "one", None),
        (r"orders\.[a-z]+", "one", "one", None),
        ("(a|(b))", r"x\1", "xa", None),
        ("(a)?b", r"x\1", "xa", None),
        ("a*(b)", r"x\1", "xb", None),
        (r"\d(b)", r"x\1", "xb", None),
    ],
)
def test_a_rule_is_read_backwards_where_it_can_be(
    match: str, to: str, copy: str, topic: str | None
) -> None:
    """Plain text and groups can be put together again; nothing is guessed."""
    assert topic == Rule(match=match, to=to).undo(copy)


@settings(deadline=None)  # machines may be busy
@given(before=TEXTS, behind=TEXTS, prefix=TEXTS, topic=NAMES)
def test_what_is_read_backwards_gives_the_name_forwards(
    before: str, behind: str, prefix: str, topic: str
) -> None:
    """`undo` never names a topic whose copy would be called otherwise."""
    rule = Rule(
        match=f"{re.escape(before)}(.*){re.escape(behind)}", to=f"{prefix}$1{behind}"
    )
    copy = rule.apply(topic)
    if copy is None:
        assert rule.undo(topic) is None or rule.apply(rule.undo(topic) or "") == topic
    else:
        assert rule.apply(rule.undo(copy) or "") == copy


@pytest.mark.parametrize(
    ("match", "to", "wrong"),
    [
        ("orders", "", "to is empty; it must be the copy's name"),
        ("(a)", r"\2", r'to "\2" names group 2, but match "(a)" has 1'),
        ("(a)", "${b}", 'to "${b}" names group b, which match "(a)" does not have'),
        (
            "(a)",
            "a b",
            (
                'to "a b" has characters that a topic cannot have; letters, digits, '
                "dot, underscore, hyphen and groups such as \\1 are allowed"
            ),
        ),
    ],
)
def test_a_wrong_name_for_copies_is_explained(match: str, to: str, wrong: str) -> None:
    """The message says what is there and what would be right."""
    assert wrong == why_wrong(Rule(match=match, to=to))
