"""What ids are compared as, against the rule spelled out; and what ids mean."""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

from hypothesis import given, settings
from hypothesis import strategies as st
import pytest

from mirror.proofs.translated_ids import compared_as
from mirror.schemas.ids import Meaning, meanings
from mirror.schemas.registry.values import Reference, SchemaVersion

if TYPE_CHECKING:
    from collections.abc import Mapping

    from mirror.schemas.registry.registry import Registry

pytestmark = pytest.mark.unit

IDS = range(1, 7)
A_MEANING = st.builds(Meaning, st.just("AVRO"), st.sampled_from("pqr"),
                      st.sampled_from(["", "x"]))  # fmt: skip
MEANT = st.dictionaries(st.sampled_from(IDS), A_MEANING)


def is_right(
    original: int,
    copy: int,
    noted: Mapping[int, int],
    here: Mapping[int, Meaning],
    there: Mapping[int, Meaning],
) -> bool:
    """Whether a copy of a record with this id may have that one."""
    meaning = here.get(original)
    if meaning is not None and meaning in there.values():
        return there.get(copy) == meaning
    mapped = noted.get(original, original)
    held = there.get(mapped)
    if held is None:
        return copy == mapped
    if meaning is not None and held[:2] != meaning[:2]:
        return False
    return there.get(copy) == held


@settings(max_examples=500, deadline=None)
@given(st.dictionaries(st.sampled_from(IDS), st.sampled_from(IDS)), MEANT, MEANT)
def test_compared_as(
    noted: dict[int, int], here: dict[int, Meaning], there: dict[int, Meaning]
) -> None:
    """A copy is right if its id means on the target what the record's means on the
    source; the map decides where a registry does not know, and an id that nothing
    knows stays.
    """
    ids, copies = compared_as(noted, here, there)
    for original in IDS:
        for copy in IDS:
            equal = ids.get(original, original) == copies.get(copy, copy)
            assert equal == is_right(original, copy, noted, here, there)


class Listed:
    """A registry's lists."""

    def __init__(self, *versions: SchemaVersion) -> None:
        self._versions = versions

    def versions(self, context: str) -> tuple[SchemaVersion, ...]:
        del context  # all, as some registries do
        return self._versions


def version(
    subject: str, number: int, text: str, *refers_to: tuple[str, int], context: str = ""
) -> SchemaVersion:
    """The first version of a subject, with this id."""
    return SchemaVersion(
        kind="AVRO", text=text, subject=subject, version=1, id=number, context=context,
        references=tuple(Reference(s, s, v) for s, v in refers_to),
    )  # fmt: skip


def meant(*versions: SchemaVersion) -> dict[int, Meaning]:
    return meanings(cast("Registry", Listed(*versions)), ["", ".x"])


def test_meanings() -> None:
    """Ids mean the same where texts and all that they refer to are the same, whatever
    ids and places these have; circles and what is gone end the search; an id with two
    texts in the contexts means neither.
    """
    one = meant(
        version("a", 1, "A"), version("b", 2, "B", ("a", 1)), version("c", 3, "A"),
        version("d", 4, "B", ("gone", 1)), version("e", 5, "E", ("e", 1)),
        version("f", 6, "F"), version("g", 6, "G", context=".x"),
    )  # fmt: skip
    other = meant(
        version("a", 7, "A2"), version("b", 8, "B", ("a", 1)), version("h", 9, "A"),
        version("e", 5, "E", ("e", 1)),
    )  # fmt: skip
    assert one.keys() == {1, 2, 3, 4, 5}
    assert one[1] == one[3] == other[9]
    assert one[2] != other[8]
    assert not one[2].differs(other[8])
    assert one[4] not in {one[2], other[8]}
    assert one[5] == other[5]
