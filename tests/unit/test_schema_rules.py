"""Which schemas are written to a target's registry, in which order, and what stops one;
whose levels a flow may set, which contexts are its own, where ids are to be reserved.

The rules are pure: both registries are lists of versions here. What registries answer
to these writes is shown by `tests/integration/test_schemas.py`.
"""

from __future__ import annotations

from dataclasses import replace
import time
from typing import TYPE_CHECKING, Any

from hypothesis import given
from hypothesis import strategies as st
import pytest

from mirror.config.schema import FlowConfig
from mirror.schemas import rules
from mirror.schemas.claims import Claim, ClaimState
from mirror.schemas.comparing import ComparedRegistries, ShortGap, copies_deletes
from mirror.schemas.registry.values import (
    RESERVED,
    Reference,
    SchemaVersion,
    Subject,
)
from mirror.status.states import SchemaState

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from mirror.schemas.registry.values import Key
    from mirror.schemas.rules import SchemasResult, SubjectPlan

pytestmark = pytest.mark.unit


def flow(**settings: Any) -> FlowConfig:
    return FlowConfig(source="A", target="B", schemas="copy", **settings)


def version(subject: str, number: int, ident: int, **more: Any) -> SchemaVersion:
    refs = tuple(
        Reference(name=name, subject=name, version=n)
        for name, n in more.pop("refs", ())
    )
    return SchemaVersion(
        subject=subject,
        version=number,
        id=ident,
        kind=more.pop("kind", "AVRO"),
        text=more.pop("text", f'"text {ident}"'),
        references=refs,
        **more,
    )


def claims(*versions: SchemaVersion) -> dict[Key, Claim]:
    return {
        each.key: Claim(
            id=each.id,
            target_id=each.id,
            sha256=each.sha256,
            state=ClaimState.COPIED,
        )
        for each in versions
    }


def plan(
    source: Iterable[SchemaVersion],
    target: Iterable[SchemaVersion] = (),
    *,
    ours: Mapping[Key, Claim] | None = None,
    owners: Mapping[Key, str] | None = None,
    deletes: bool = True,
    **settings: Any,
) -> SchemasResult:
    chosen = flow(**settings)
    return rules.SchemaPlanner(
        rules.chosen(source, chosen),
        list(target),
        ours or {},
        chosen,
        owners=owners or {},
        deletes=deletes,
    ).plan()


def steps(found: SchemasResult) -> list[str]:
    return [
        f"{'-' if each.delete else '+'}{each.version.full_subject}/"
        f"{each.version.version}"
        for each in found.writes
    ]


def of(found: SchemasResult, subject: str) -> SubjectPlan:
    return next(e for e in found.subjects if str(e.subject) == subject)


def test_an_empty_registry_gets_all_with_ids_and_numbers() -> None:
    """Versions keep their ids and numbers, gaps too, and come in their order; a second
    look at the result writes nothing.
    """
    source = [version("o", 1, 5), version("o", 4, 9), version("p", 2, 7)]
    found = plan(source)
    assert sorted(steps(found)) == ["+o/1", "+o/4", "+p/2"]
    assert steps(found).index("+o/1") < steps(found).index("+o/4")
    assert [each.version for each in found.writes if each.version.subject == "o"] == (
        source[:2]
    )
    assert of(found, "o").state is SchemaState.PENDING
    assert (of(found, "o").first_id, of(found, "o").last_id) == (5, 9)
    assert not any(each.force for each in found.writes)

    again = plan(source, source, ours=claims(*source))
    assert again.writes == ()
    assert {each.state for each in again.subjects} == {SchemaState.SYNCED}
    assert of(again, "o").there == of(again, "o").versions == 2


def test_ten_times_the_subjects_take_ten_times_as_long() -> None:
    """Of a plan for thousands, each costs as much as in a small one."""

    def seconds(count: int) -> float:
        source = [version(f"s{number}", 1, number + 1) for number in range(count)]
        began = time.thread_time()  # other work on the machine is not its fault
        assert len(plan(source).writes) == count
        return time.thread_time() - began

    few, many = (min(seconds(n) for _ in range(3)) for n in (600, 6000))
    assert many < 25 * few


def test_a_copy_without_its_rules_is_said_to_be_one() -> None:
    """Where the target's registry has not kept metadata or rules, the subject is SYNCED
    and says for which version; nothing is written again.
    """
    one = version("o", 1, 5, metadata='{"owner":"me"}')
    kept = replace(one, metadata="")
    stripped = {
        key: replace(claim, state=ClaimState.STRIPPED)
        for key, claim in claims(kept).items()
    }
    found = plan([one], [kept], ours=stripped)
    assert steps(found) == []
    assert of(found, "o").state is SchemaState.SYNCED
    assert of(found, "o").reason == "version 1 has no metadata or rules on B"


def test_references_come_first_across_subjects() -> None:
    """What is referred to is written first, and copied even where its subject does not
    match; an excluded one stops its referrer unless the target has it.
    """
    base = version("zz-base", 1, 50)
    other = version("zz-base", 2, 51)
    user = version("a", 1, 10, refs=[("zz-base", 1)])
    written = steps(plan([user, base, other]))
    assert written.index("+zz-base/1") < written.index("+a/1")
    assert "+zz-base/2" in written
    assert steps(plan([user, base, other], schemas_subjects=["a"])) == [
        "+zz-base/1",
        "+a/1",
    ]
    excluded = plan([user, base], schemas_exclude=["zz.*"])
    assert excluded.writes == ()
    assert of(excluded, "a").state is SchemaState.CONFLICT
    assert "zz-base version 1" in of(excluded, "a").reason
    assert steps(plan([user, base], [base], schemas_exclude=["zz.*"])) == ["+a/1"]


def test_a_reference_that_is_nowhere() -> None:
    """A version that refers to one that the source no longer has cannot be written."""
    found = plan([version("a", 1, 10, refs=[("gone", 3)]), version("b", 1, 11)])
    assert steps(found) == ["+b/1"]
    assert of(found, "a").state is SchemaState.UNSUPPORTED
    assert "gone version 3, which A does not have" in of(found, "a").reason


@pytest.mark.parametrize("name", ["", ".", "..", ":*:x", ":.c:x"])
def test_a_name_without_an_address(name: str) -> None:
    """A subject whose mode would be that of the whole registry, or of another context,
    is never written; the neighbour is.
    """
    found = plan([version(name, 1, 10), version("b", 1, 11)])
    assert steps(found) == ["+b/1"]
    [state] = [each.state for each in found.subjects if each.subject.name == name]
    assert state is SchemaState.UNSUPPORTED


def test_a_circle_of_references_stops_only_its_subjects() -> None:
    """Two versions that refer to each other, and what refers to them, are reported; the
    neighbour is written.
    """
    found = plan(
        [
            version("a", 1, 1, refs=[("b", 1)]),
            version("b", 1, 2, refs=[("a", 1)]),
            version("c", 1, 3, refs=[("a", 1)]),
            version("d", 1, 4),
        ]
    )
    assert steps(found) == ["+d/1"]
    stopped = {str(e.subject): e.state for e in found.subjects}
    assert stopped == {
        **dict.fromkeys("abc", SchemaState.UNSUPPORTED),
        "d": SchemaState.PENDING,
    }


@pytest.mark.parametrize(
    ("theirs", "reason"),
    [
        (version("x", 3, 5, text="other"), "id 5 on A, which is x version 3 on B"),
        (version("o", 1, 6, text="other"), "id 5 on A and 6 on B"),
        (version("o", 1, 5, text="other"), "id 5 on A and B, with different texts"),
        (version("o", 2, 6), "version 2 on B is not on A"),
    ],
)
def test_what_is_of_others_is_a_conflict_of_one_subject(
    theirs: SchemaVersion, reason: str
) -> None:
    """An id or a version with another text, or a version that the source does not have:
    the subject gets nothing and says why, with the ways out; its neighbour goes on.
    """
    found = plan([version("o", 1, 5), version("p", 1, 8)], [theirs])
    assert steps(found) == ["+p/1"]
    assert of(found, "o").state is SchemaState.CONFLICT
    assert reason in of(found, "o").reason
    assert "schemas_context" in of(found, "o").reason


def test_a_copy_of_another_source_is_named() -> None:
    """Two sources with the same subject: the second one learns whose it is."""
    theirs = version("o", 2, 6)
    found = plan([version("o", 1, 5)], [theirs], owners={theirs.key: "C"})
    assert "a copy from C" in of(found, "o").reason


def test_the_same_text_may_be_under_several_subjects() -> None:
    """An id that stands for the same text elsewhere is no conflict."""
    shared = version("x", 1, 5)
    found = plan([version("o", 1, 5), shared], [shared])
    assert steps(found) == ["+o/1"]


def test_what_the_target_already_has_is_not_news() -> None:
    """A version with the same id, number and text needs no claim, so flows in both
    directions rest; the next one is appended, with force, since the subject exists.
    """
    first, second = version("o", 1, 5), version("o", 2, 6)
    found = plan([first, second], [first])
    assert steps(found) == ["+o/2"]
    assert found.writes[0].force


def test_a_hard_deleted_version_stays_on_the_target() -> None:
    """What is deleted for good on the source is no conflict where this flow wrote it;
    where it did not, the subject is not ours.
    """
    first, second = version("o", 1, 5), version("o", 2, 6)
    assert plan([second], [first, second], ours=claims(first, second)).writes == ()
    found = plan([second], [first, second], ours=claims(second))
    assert of(found, "o").state is SchemaState.CONFLICT


def test_soft_deletes() -> None:
    """A deleted version is written, then deleted; one that is there is deleted if this
    flow wrote it, and otherwise only remarked upon, as where deletes are turned off.
    """
    alive = version("o", 1, 5)
    gone = replace(alive, deleted=True)
    assert steps(plan([gone])) == ["+o/1", "-o/1"]
    assert steps(plan([gone], [alive], ours=claims(alive))) == ["-o/1"]
    assert steps(plan([gone], [gone], ours=claims(alive))) == []
    for ours, deletes in (({}, True), (claims(alive), False)):
        found = plan([gone], [alive], ours=ours, deletes=deletes)
        assert found.writes == ()
        assert of(found, "o").state is SchemaState.SYNCED
        assert of(found, "o").reason == "version 1 is deleted on A only"
    assert steps(plan([gone], deletes=False)) == ["+o/1"]
    restored = plan([alive], [gone], ours=claims(alive))
    assert restored.writes == ()
    assert of(restored, "o").reason == "version 1 is deleted on B only"


def test_a_version_is_deleted_before_its_text_comes_again() -> None:
    """A registry answers a text that a subject already has with the older version, so
    that one is deleted first.
    """
    first = version("o", 1, 5, deleted=True)
    user = version("user", 1, 6, refs=[("o", 1)], deleted=True)
    again = version("o", 2, 5)
    assert steps(plan([first, user, again])) == [
        *("+o/1", "+user/1", "-user/1", "-o/1", "+o/2"),
    ]


def test_what_is_referred_to_is_deleted_last() -> None:
    """A registry refuses to delete what another version refers to."""
    base = version("base", 1, 1, deleted=True)
    user = version("user", 1, 2, refs=[("base", 1)], deleted=True)
    assert steps(plan([base, user])) == ["+base/1", "+user/1", "-user/1", "-base/1"]


def test_contexts() -> None:
    """Under a context of the target the same ids of two sources do not clash, and what
    names a context inside a reference is moved with it.
    """
    first = version("o", 1, 5)
    inner = version("o", 1, 5, context=".x", text="inner")
    theirs = version("o", 1, 5, text="other")
    found = plan([first, inner], [theirs], schemas_context=".a")
    assert sorted(steps(found)) == ["+:.a.x:o/1", "+:.a:o/1"]
    refers = replace(
        version("u", 1, 6),
        references=(
            Reference(name="n", subject="o", version=1),
            Reference(name="m", subject=":.x:o", version=1),
        ),
    )
    assert refers.below(".a").refers_to == (
        (Subject(".a", "o"), 1),
        (Subject(".a.x", "o"), 1),
    )
    assert refers.below("") == refers


def test_a_claim_holds_only_for_what_was_written() -> None:
    """A claim without its version, as after a kill, makes nothing of others ours."""
    written, theirs = version("o", 2, 6), version("o", 2, 6, text="other")
    found = plan([version("o", 1, 5)], [theirs], ours=claims(written))
    assert of(found, "o").state is SchemaState.CONFLICT


def test_only_one_of_two_opposite_flows_copies_deletes() -> None:
    """The first in order of precedence does; without an opposite flow each does."""
    there = flow()
    back = FlowConfig(source="B", target="A", schemas="copy")
    without = FlowConfig(source="B", target="A")
    assert copies_deletes(there, [there, back])
    assert not copies_deletes(back, [there, back])
    assert copies_deletes(there, [without, there])


def test_sync_of_some_subjects_takes_along_what_they_refer_to() -> None:
    """Nothing else is written."""
    found = plan(
        [version("a", 1, 1, refs=[("b", 1)]), version("b", 1, 2), version("c", 1, 3)]
    )
    some = rules.narrowed(found.writes, {Subject("", "a")})
    assert [str(each.version.full_subject) for each in some] == ["b", "a"]


GAP = 100


def compared(
    source: Iterable[SchemaVersion],
    there: Iterable[SchemaVersion],
    ours: dict[Key, Claim],
) -> ComparedRegistries:
    chosen, there = rules.chosen(source, flow()), tuple(there)
    found = plan(source, there, ours=ours)
    return ComparedRegistries(
        chosen=chosen, there=there, ours=ours, plan=found, gap=GAP
    )


def test_whose_levels_are_the_flow_s() -> None:
    """Those of subjects that it has written, or is about to; not of what others have on
    the target, of what is in conflict, or of what is deleted. After it has written one
    that others had, that one counts as well.
    """
    ours, theirs, new = (
        version("ours", 1, 1),
        version("theirs", 1, 2),
        version("new", 1, 3),
    )
    gone = replace(version("gone", 1, 4), deleted=True)
    clash, held = version("clash", 1, 5), version("clash", 1, 9)
    found = compared(
        [ours, theirs, new, gone, clash], [ours, theirs, held], claims(ours)
    )
    assert found.open_subjects == {Subject("", "ours"), Subject("", "new")}
    assert Subject("", "clash") not in found.copied
    assert Subject("", "theirs") in found.copied
    written = replace(found, ours=claims(ours, theirs))
    assert Subject("", "theirs") in written.open_subjects


def test_contexts_without_anything_of_others() -> None:
    """Those of which the flow has written all that the target has."""
    here, there = version("o", 1, 1), version("o", 1, 1, context=".c")
    found = compared([here, there], [here, there], claims(here))
    assert found.chosen.contexts == {"", ".c"}
    assert found.own_contexts == {""}
    assert compared([here, there], [here], claims(here)).own_contexts == {"", ".c"}


def test_where_ids_are_to_be_reserved() -> None:
    """Where the target's highest id is less than half of the gap above the source's, in
    contexts to which something was copied; the last placeholder makes room.
    """
    one, other = version("o", 1, 7), version("o", 1, 8, context=".c")
    found = compared([one, other], [one], claims(one))
    assert found.gaps == (ShortGap("", 7 + GAP, ()),)
    held = version(RESERVED, 1, 7 + GAP)
    assert compared([one], [one, held], claims(one, held)).gaps == ()
    later = version("p", 1, 7 + GAP // 2 + 1)
    assert compared([one, later], [one, held], claims(one, held)).gaps == (
        ShortGap("", later.id + GAP, (held,)),
    )


@st.composite
def registries(draw: st.DrawFn) -> list[SchemaVersion]:
    """Versions in which each may refer to any that is older."""
    count = draw(st.integers(1, 12))
    made: list[SchemaVersion] = []
    numbers: dict[str, int] = {}
    for ident in range(1, count + 1):
        subject = draw(st.sampled_from("abcd"))
        numbers[subject] = numbers.get(subject, 0) + draw(st.integers(1, 3))
        older = [(e.subject, e.version) for e in made if e.subject != subject]
        refs = draw(st.lists(st.sampled_from(older), max_size=2)) if older else []
        made.append(
            version(
                subject,
                numbers[subject],
                ident,
                refs=dict.fromkeys(refs),
                deleted=draw(st.booleans()),
            )
        )
    return made


@given(registries(), st.data())
def test_any_order_of_events_ends_the_same(
    source: list[SchemaVersion], data: st.DataObject
) -> None:
    """Wherever a copy is killed, what is referred to is there before its referrer,
    nothing that something refers to is deleted before it, and the next run ends with
    the same registry.
    """
    there: dict[Key, SchemaVersion] = {}
    ours = claims(*source)
    for stop in (data.draw(st.integers(0, 2 * len(source))), None):
        for write in plan(source, there.values(), ours=ours).writes[:stop]:
            if write.delete:
                assert all(
                    each.key in there for each in source if write.key in each.refers_to
                )
                there[write.key] = write.version
            else:
                for ref in write.version.refers_to:
                    assert not there[ref].deleted
                there[write.key] = replace(write.version, deleted=False)
    assert there == {each.key: each for each in source}
    assert plan(source, there.values(), ours=ours).writes == ()
