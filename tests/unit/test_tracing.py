"""The search for all places of a record, over flows that are made up."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import pytest

from mirror.proofs.tracing import How, Origins, RecordPlace, Row, Sameness, trace

if TYPE_CHECKING:
    from collections.abc import Iterator

pytestmark = pytest.mark.unit


def place(cluster: str, offset: int = 0) -> RecordPlace:
    return RecordPlace(cluster, "t", 0, offset)


def row(at: RecordPlace, how: How = How.EXACT, **more: object) -> Row:
    return Row(**at._asdict(), how=how, **more)


@dataclass
class Flows:
    """Who copied what to where."""

    copied: dict[RecordPlace, list[RecordPlace | Row]]
    """By place: copies, or rows that say why there is none."""
    unknown: dict[RecordPlace, Row] = field(default_factory=dict)
    asked: list[RecordPlace] = field(default_factory=list)
    """The places whose copies were asked for."""

    def written(self, at: RecordPlace) -> Row:
        return row(at, How.ORIGIN)

    def origins(self, at: RecordPlace) -> Origins:
        found = [source for source, copies in self.copied.items() if at in copies]
        return Origins(found, [self.unknown[at]] if at in self.unknown else [])

    def copies(self, at: RecordPlace) -> Iterator[Row]:
        self.asked.append(at)
        for each in self.copied.get(at, ()):
            yield each if isinstance(each, Row) else row(each)


def seen(start: RecordPlace, flows: Flows) -> list[tuple[str, int, How]]:
    return [(each.cluster, each.offset, each.how) for each in trace(start, flows)]


@pytest.mark.parametrize("start", [place("A", 7), place("B", 8), place("C", 9)])
def test_a_chain_is_the_same_from_wherever_one_looks(start: RecordPlace) -> None:
    """The origin comes first, then each copy, whichever of them was named."""
    flows = Flows({place("A", 7): [place("B", 8)], place("B", 8): [place("C", 9)]})

    assert seen(start, flows) == [
        ("A", 7, How.ORIGIN), ("B", 8, How.EXACT), ("C", 9, How.EXACT),
    ]  # fmt: skip


def test_a_copy_is_followed_by_its_own_copies() -> None:
    """Branches are not mixed, and a record that stands twice is copied on twice."""
    flows = Flows(
        {
            place("A"): [place("B", 1), place("B", 2), place("D")],
            place("B", 1): [place("C", 1)],
            place("B", 2): [place("C", 2)],
        }
    )

    assert [each[:2] for each in seen(place("C", 2), flows)] == [
        ("A", 0), ("B", 1), ("C", 1), ("B", 2), ("C", 2), ("D", 0),
    ]  # fmt: skip


def test_a_ring_ends_where_the_record_is_filtered() -> None:
    """A row without a place is shown and not followed."""
    back = Row(cluster="A", topic="t", partition=0, how=How.FILTERED)
    flows = Flows(
        {place("A"): [place("B")], place("B"): [place("C")], place("C"): [back]}
    )

    assert seen(place("C"), flows)[-1] == ("A", -1, How.FILTERED)
    assert len(seen(place("B"), flows)) == 4


def test_a_ring_without_headers_ends_too() -> None:
    """Maps that lead round in a circle, which forged ones may, are gone through once:
    nobody wrote the record, so it begins with the one that was named.
    """
    flows = Flows({place("A"): [place("B")], place("B"): [place("A")]})

    assert [each[0] for each in seen(place("B"), flows)] == ["B", "A"]
    assert flows.asked == [place("B"), place("A")]


def test_a_place_that_two_flows_claim_is_shown_once() -> None:
    """Of two origins both are shown, and their common copy once."""
    flows = Flows({place("A"): [place("C")], place("B"): [place("C")]})

    assert sorted(each[0] for each in seen(place("C"), flows)) == ["A", "B", "C"]


def test_a_copy_that_no_flow_makes_any_more() -> None:
    """An origin whose flows leave the named copy out does not hide it."""

    class Changed(Flows):
        def copies(self, at: RecordPlace) -> Iterator[Row]:
            return iter(())

    flows = Changed({place("A"): [place("B", 5)]})

    assert seen(place("B", 5), flows) == [("A", 0, How.ORIGIN), ("B", 5, How.COPIED)]


def test_an_origin_that_is_not_known_is_said_first() -> None:
    """What is known is still traced, from the copy that was named."""
    lost = Row(cluster="A", topic="", partition=-1, how=How.UNKNOWN)
    flows = Flows({place("B"): [place("C")]}, unknown={place("B"): lost})

    assert [each[0] for each in seen(place("C"), flows)] == ["A", "B", "C"]


@pytest.mark.parametrize(
    ("how", "said"), [(How.EARLIER, How.COPIED), (How.UNKNOWN, How.ORIGIN)]
)
def test_what_was_copied_is_not_called_an_origin(how: How, said: How) -> None:
    """A copy whose origin has no offset any more is one all the same; if a flow's map
    cannot be read, nothing says that it is.
    """
    lost = Row(cluster="A", topic="t", partition=0, how=how)
    flows = Flows({}, unknown={place("B"): lost})

    assert seen(place("B"), flows) == [("A", -1, how), ("B", 0, said)]


@pytest.mark.parametrize("how", How)
def test_only_what_no_rule_explains_is_wrong(how: How) -> None:
    """Missing and unknown are; each reason is right, unless bytes differ."""
    assert row(place("A"), how).right == (how not in (How.MISSING, How.UNKNOWN))
    assert not row(place("A"), how, sameness=Sameness.DIFFERENT).right
