"""Hostile names: topics that no target can hold, groups that look like commands."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from mirror.cli.output import complain, table
from mirror.policy.selection import GroupFilter, select_topics
from tests.harness.configurations import config

if TYPE_CHECKING:
    from typing import Any

    from mirror.policy.selection import Selection

pytestmark = pytest.mark.unit

LONGEST = "x" * 249
GROUPS = (
    "a group with spaces",
    "Gruppe-Überweisung",
    "グループ",
    "quotes \" and '",
    "comma,semicolon;",
    "line\nbreak",
    "carriage\rreturn",
    "\x1b[2J\x1b[31mred",
    "tab\tinside",
    "=HYPERLINK(1)",
    " ",
)


def selection(names: list[str], **settings: Any) -> Selection:
    flow = config({"A->B": {"topics": [".*"], **settings}}).flows["A->B"]
    return select_topics(names, flow.topic_filter, flow.replication_policy, "B")


@pytest.mark.parametrize(
    ("name", "settings", "reason"),
    [
        (
            LONGEST,
            {},
            f'the target name "A.{LONGEST}" has 251 characters; Kafka allows',
        ),
        (LONGEST[:-1], {"separator": "_"}, "has 250 characters; Kafka allows 249"),
        (
            "orders",
            {"policy": "rename", "rename": [{"match": "orders", "to": LONGEST + "x"}]},
            "has 250 characters; Kafka allows 249",
        ),
        (
            "a b",
            {},
            (
                'the target name "A.a b" has characters that Kafka does not allow; '
                "letters, digits, dot, underscore and hyphen are allowed"
            ),
        ),
        (
            "dots",
            {"policy": "rename", "rename": [{"match": "(d)ots", "to": ".."}]},
            'a topic cannot be named ".."',
        ),
        (
            "empty",
            {"policy": "rename", "rename": [{"match": "empty(x?)", "to": r"\1"}]},
            'a topic cannot be named ""',
        ),
    ],
)
def test_a_topic_that_cannot_be_named_is_said_and_others_go_on(
    name: str, settings: dict[str, Any], reason: str
) -> None:
    """The message has its own name, and the one that its copy would have."""
    found = selection([name, "fine", "also.fine"], **settings)
    (rejected,) = found.rejected
    assert rejected.topic == name
    assert reason in rejected.reason
    assert [each.topic for each in found.mappings] == ["also.fine", "fine"]


@pytest.mark.parametrize(
    "name",
    ["a", "a.b.c", "a..b", ".a", "a.", "_", "-", "a_b-c.d", "0", "x" * 247, "A.b"],
)
def test_odd_but_legal_names_are_copied(name: str) -> None:
    """Dots in any place, single characters, and as long as the prefix leaves room."""
    (mapping,) = selection([name]).mappings
    assert mapping.target_topic == f"A.{name}"


@pytest.mark.parametrize("group", GROUPS)
def test_a_group_of_any_name_is_looked_after(group: str) -> None:
    """A name is one name, whatever it contains. As in Java, a dot matches no line
    break, unless the pattern says so.
    """
    assert GroupFilter(include=(".*",)).matches(group) == ("\n" not in group)
    assert GroupFilter(include=("(?s).*",)).matches(group)


@pytest.mark.parametrize("group", GROUPS)
def test_tables_stay_tables(group: str, capsys: pytest.CaptureFixture[str]) -> None:
    """A name breaks no line and sends no commands to the terminal; errors neither."""
    table(("GROUP", "OFFSET"), [(group, 7), ("other", 8)])
    complain(f"group {group}: refused")
    shown = capsys.readouterr()
    assert len(shown.out.splitlines()) == 3
    assert "\x1b" not in shown.out + shown.err
    assert "\r" not in shown.out + shown.err
    assert "\t" not in shown.out
