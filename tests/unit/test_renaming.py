"""One rule: forwards, backwards, and what is refused."""

from __future__ import annotations

import re

from hypothesis import given, settings
from hypothesis import strategies as st
import pytest

from mirror.policy.choice import Rule, why_wrong

pytestmark = pytest.mark.unit

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
        (
            "(a)",
            "${b}",
            'to "${b}" names group b, which match "(a)" does not have',
        ),
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
