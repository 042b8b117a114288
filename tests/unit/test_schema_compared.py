"""What follows from two lists of schemas: whose levels a flow may set, which contexts
are its own, and where ids are to be reserved.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from mirror.config.schema import FlowConfig
from mirror.schemas import rules
from mirror.schemas.claims import Claim, ClaimState
from mirror.schemas.comparing import ComparedRegistries, ShortGap
from mirror.schemas.registry.values import RESERVED, SchemaVersion, Subject

if TYPE_CHECKING:
    from collections.abc import Iterable

    from mirror.schemas.registry.values import Key

pytestmark = pytest.mark.unit

GAP = 100


def version(subject: str, ident: int, *, context: str = "") -> SchemaVersion:
    return SchemaVersion(
        subject=subject, version=1, id=ident, kind="AVRO", text=f'"{ident}"',
        context=context,
    )  # fmt: skip


def claims(*versions: SchemaVersion) -> dict[Key, Claim]:
    return {
        each.key: Claim(
            id=each.id, target_id=each.id, sha256=each.sha256, state=ClaimState.COPIED
        )
        for each in versions
    }


def compared(
    source: Iterable[SchemaVersion],
    there: Iterable[SchemaVersion],
    ours: dict[Key, Claim],
) -> ComparedRegistries:
    flow = FlowConfig(source="A", target="B", schemas="copy")
    chosen, there = rules.chosen(source, flow), tuple(there)
    plan = rules.SchemaPlanner(
        chosen, there, ours, flow, owners={}, deletes=True
    ).plan()
    return ComparedRegistries(chosen=chosen, there=there, ours=ours, plan=plan, gap=GAP)


def test_whose_levels_are_the_flow_s() -> None:
    """Those of subjects that it has written, or is about to; not of what others have on
    the target, of what is in conflict, or of what is deleted. After it has written one
    that others had, that one counts as well.
    """
    ours, theirs, new = version("ours", 1), version("theirs", 2), version("new", 3)
    gone = replace(version("gone", 4), deleted=True)
    clash, held = version("clash", 5), version("clash", 9)
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
    here, there = version("o", 1), version("o", 1, context=".c")
    found = compared([here, there], [here, there], claims(here))
    assert found.chosen.contexts == {"", ".c"}
    assert found.own_contexts == {""}
    assert compared([here, there], [here], claims(here)).own_contexts == {"", ".c"}


def test_where_ids_are_to_be_reserved() -> None:
    """Where the target's highest id is less than half of the gap above the source's, in
    contexts to which something was copied; the last placeholder makes room.
    """
    one, other = version("o", 7), version("o", 8, context=".c")
    found = compared([one, other], [one], claims(one))
    assert found.gaps == (ShortGap("", 7 + GAP, ()),)
    held = version(RESERVED, 7 + GAP)
    assert compared([one], [one, held], claims(one, held)).gaps == ()
    later = version("p", 7 + GAP // 2 + 1)
    assert compared([one, later], [one, held], claims(one, held)).gaps == (
        ShortGap("", later.id + GAP, (held,)),
    )
