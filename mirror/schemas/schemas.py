"""Keeps a target's schema registry in step with its source's, in one direction.

Main functions: `look`, which changes nothing, and `sync`; both return a frozen
`SchemasResult` with every subject of the flow. `schema_rules` decides, `schema_claims`
remembers what was written, `schema_writing` writes and reads back, `schema_levels` has
the compatibility levels.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, replace
from itertools import chain
from typing import TYPE_CHECKING

from mirror.errors import RegistryError
from mirror.schemas import (
    schema_levels,
    schema_modes,
    schema_order,
    schema_rules,
    schema_translation,
)
from mirror.schemas.registry.values import RESERVED, Mode, SchemaVersion, Subject
from mirror.schemas.schema_claims import Claim, ClaimState
from mirror.schemas.schema_compared import ComparedRegistries
from mirror.schemas.schema_translation import SchemaTranslator
from mirror.schemas.schema_writing import SchemaWriter
from mirror.status.states import SchemaState

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence

    from mirror.config.schema import FlowConfig
    from mirror.schemas.schema_compared import ShortGap
    from mirror.schemas.schema_ends import Ends
    from mirror.schemas.schema_levels import LevelChange
    from mirror.schemas.schema_order import RegistryWrite
    from mirror.schemas.schema_rules import Chosen, SchemaPlan, SubjectPlan


@dataclass(frozen=True, slots=True, kw_only=True)
class SchemasResult:
    """What one look found, and what was done about it."""

    subjects: tuple[SubjectPlan, ...] = ()
    """Every subject that the flow copies, in order."""
    writes: tuple[RegistryWrite, ...] = ()
    """Versions written or deleted; from `look`, still to be, in this order."""
    levels: tuple[LevelChange, ...] = ()
    """Levels set; from `look`, still to be."""

    @property
    def states(self) -> Mapping[SchemaState, int]:
        """How many subjects are in each state."""
        counts = Counter(each.state for each in self.subjects)
        return {state: counts[state] for state in SchemaState}

    @property
    def problems(self) -> tuple[str, ...]:
        """Subjects that are not copied, each with its reason."""
        return tuple(
            f"schema {each.subject}: {each.reason}"
            for each in self.subjects
            if each.state not in {SchemaState.SYNCED, SchemaState.PENDING}
        )


def copies_deletes(flow: FlowConfig, flows: Iterable[FlowConfig]) -> bool:
    """Whether soft deletes are this flow's matter: of two opposite flows, the first in
    order of precedence copies them.
    """
    return precedes(flow, (each for each in flows if each.schemas_deletes))


def precedes(flow: FlowConfig, flows: Iterable[FlowConfig]) -> bool:
    """Whether no opposite flow that copies schemas comes before this one."""
    for each in flows:
        if each.name == flow.name:
            return True
        if (each.target, each.source) == (flow.source, flow.target) and (
            each.schemas != "off"
        ):
            return False
    return True


def look(ends: Ends, *, levels: bool = True) -> SchemasResult:
    """What `sync` would do; nothing is changed. Without `levels`, which take requests
    for each subject, only versions are compared.

    Raises:
        MirrorError: a registry or a cluster does not answer.
    """
    found = _compared(ends)
    if not levels:
        return SchemasResult(subjects=found.plan.subjects, writes=found.plan.writes)
    changes, remarks = schema_levels.changes(
        ends, found.open_subjects, whole=_own_contexts(ends, found)
    )
    return SchemasResult(
        subjects=_said(found.plan.subjects, remarks),
        writes=found.plan.writes,
        levels=tuple(changes),
    )


def sync(
    ends: Ends,
    *,
    only: Collection[Subject] = (),
    levels_of: Collection[Subject] | None = None,
    whole_levels: bool = True,
) -> SchemasResult:
    """Write what the target's registry is missing, and read it back.

    `only`: these subjects and what they refer to; empty: all. `levels_of`: whose levels
    to compare besides those that get a version; None: of all. `whole_levels`: those
    of contexts, too.

    Raises:
        MirrorError: a registry or a cluster does not answer: what was written until
            then is noted.
    """
    found = _compared(ends)
    writes = schema_order.narrowed(found.plan.writes, only)
    translates = ends.flow.translates_ids
    writer = SchemaTranslator(ends) if translates else SchemaWriter(ends)
    writer.write(writes)
    if writer.done:
        found = replace(found, ours=ends.claims.ours)  # worked out again
    if not only and ends.going_on():
        _give_back(ends, found, writer)
    asked = found.open_subjects - writer.stopped.keys()
    if only:
        asked &= {*only}
    if levels_of is not None:
        written = {each.version.full_subject for each in writer.done}
        asked &= written.union(levels_of)
    asked |= writer.opened
    whole: set[str] = set()
    if whole_levels and not only:
        stopped = {subject.context for subject in writer.stopped}
        whole = _own_contexts(ends, found) - stopped
    if not ends.going_on():
        asked, whole = frozenset(), set()
    levels, remarks = schema_levels.changes(ends, asked, whole=whole)
    levels, refused = schema_levels.apply(ends, levels)
    if ends.reserves and not only and not translates:
        reserve(ends, found.gaps)
    return SchemasResult(
        subjects=_said(_after(found.plan, writer), {**remarks, **refused}),
        writes=tuple(writer.done),
        levels=tuple(levels),
    )


def narrowed(found: SchemasResult, subjects: Collection[Subject]) -> SchemasResult:
    """What is about these subjects, and what they refer to; all of it, if none is
    given.
    """
    if not subjects:
        return found
    writes = schema_order.narrowed(found.writes, subjects)
    asked = {*subjects, *(each.version.full_subject for each in writes)}
    return SchemasResult(
        subjects=tuple(each for each in found.subjects if each.subject in asked),
        writes=tuple(writes),
        levels=tuple(each for each in found.levels if each.subject in subjects),
    )


def _give_back(ends: Ends, found: ComparedRegistries, writer: SchemaWriter) -> None:
    """Subjects that were put into IMPORT, and got no version, have their modes again:
    what stopped us was a conflict, or we died and they are no longer copied.
    """
    stopped = writer.stopped.items()
    copies = found.copied.difference(
        subject for subject, (state, _) in stopped if state is SchemaState.CONFLICT
    )
    modes = ends.claims.modes
    strays = {s for s in modes.keys() - copies if modes[s].set == Mode.IMPORT}
    if strays:
        strays -= {
            key[0]
            for key, claim in ends.claims.ours.items()
            if claim.state is not ClaimState.CLAIMED
        }
        back = schema_modes.to_open(ends.target, ends.claims, strays)
        schema_modes.apply(ends.target, ends.claims, back, opens=True)


def _compared(ends: Ends) -> ComparedRegistries:
    """Both registries now; the same object as long as nothing changed."""
    ends.claims.refresh()
    source, target, flow, last = ends.source, ends.target, ends.flow, ends.last
    lists: tuple[tuple[SchemaVersion, ...], ...]
    if ends.lists is not None:
        lists = (ends.lists.source,)
    else:
        lists = tuple(source.versions(context) for context in source.contexts())
    if last.chosen is None or not _are_same(last.lists, lists):
        last.chosen, last.found = schema_rules.chosen(chain(*lists), flow), None
        last.lists = lists
    if ends.lists is not None:
        copies = [ends.lists.target]
    else:
        copies = [target.versions(each) for each in sorted(last.chosen.contexts)]
    rest = (*copies, ends.claims.counted, ends.deletes)
    if last.found is None or not _are_same(last.rest, rest):
        there = tuple(chain(*copies))
        last.found = ComparedRegistries(
            chosen=last.chosen,
            there=there,
            ours=ends.claims.ours,
            plan=_planned(ends, last.chosen, there),
            gap=flow.schemas_id_gap,
        )
        last.rest = rest
    return last.found


def _planned(
    ends: Ends, chosen: Chosen, there: tuple[SchemaVersion, ...]
) -> SchemaPlan:
    if ends.flow.translates_ids:
        return schema_translation.plan(
            chosen, there, ours=ends.claims.ours, flow=ends.flow, target=ends.target
        )
    return schema_rules.plan(
        chosen,
        there,
        ours=ends.claims.ours,
        owners=ends.claims.owners,
        flow=ends.flow,
        deletes=ends.flow.schemas_deletes and ends.deletes,
    )


def _own_contexts(ends: Ends, found: ComparedRegistries) -> set[str]:
    """Those of which this flow copies everything, with nothing of anyone else on the
    target. The default one has the level of the whole registry, which holds in all
    contexts that have none: so nothing of anyone else may be in those either. None, if
    the target's registry chooses ids: it need not be only a copy.
    """
    if ends.flow.translates_ids or not schema_rules.copies_all(ends.flow):
        return set()
    own, contexts = set(found.own_contexts), found.chosen.contexts
    if "" in own and (
        own != contexts
        or any(map(ends.target.versions, {*ends.target.contexts()} - contexts))
    ):
        own.discard("")
    return own


def _are_same(one: Sequence[object], other: Sequence[object]) -> bool:
    """Long lists by their identity, numbers by their value."""
    return len(one) == len(other) and all(
        ours is theirs or (isinstance(ours, int) and ours == theirs)
        for ours, theirs in zip(one, other, strict=True)
    )


def _after(plan: SchemaPlan, writer: SchemaWriter) -> Iterable[SubjectPlan]:
    """The subjects once it was written."""
    if not (writer.done or writer.stopped):
        return plan.subjects
    return _changed(plan, writer)


def _changed(plan: SchemaPlan, writer: SchemaWriter) -> Iterator[SubjectPlan]:
    left = Counter(each.version.full_subject for each in plan.writes)
    left.subtract(each.version.full_subject for each in writer.done)
    came = Counter(each.version.full_subject for each in writer.done if not each.delete)
    for each in plan.subjects:
        state, reason = each.state, each.reason
        if each.subject in writer.stopped:
            state, reason = writer.stopped[each.subject]
        elif state is SchemaState.PENDING and not left[each.subject]:
            state = SchemaState.SYNCED
        yield replace(
            each, state=state, reason=reason, there=each.there + came[each.subject]
        )


def _said(
    subjects: Iterable[SubjectPlan], remarks: Mapping[Subject, str]
) -> tuple[SubjectPlan, ...]:
    return tuple(
        replace(each, reason="; ".join(filter(None, (each.reason, remark))))
        if (remark := remarks.get(each.subject))
        else each
        for each in subjects
    )


# ---- ids that a target's registry skips, since the source issues them ----
#
# Main function: `reserve`. A registry goes on after its highest id, and the
# source's last ones may not be copied when the target begins to issue its own. So
# each context gets a placeholder, softly deleted, in a subject of mirror's own: its
# id, which is its version too, is `schemas_id_gap` above the source's highest.
# Another one takes its place once half of that is used up (`schema_compared`).


def reserve(ends: Ends, gaps: Iterable[ShortGap]) -> None:
    """Reserve ids there.

    Raises:
        MirrorError: a registry or the target's cluster does not answer, or refuses.
    """
    for each in gaps:
        if ends.going_on():
            _move_up(ends, *each)


def _move_up(
    ends: Ends, context: str, number: int, held: Iterable[SchemaVersion]
) -> None:
    try:
        _place(ends, context, number)
        for old in held:
            _release(ends, old)
    except RegistryError as error:
        if error.retriable:
            raise
        raise RegistryError(
            f"ids up to {number} cannot be reserved: {error}; schemas_id_gap: 0 "
            "reserves none"
        ) from error


def _release(ends: Ends, old: SchemaVersion) -> None:
    """The source will reach its id."""
    ends.target.delete(old.full_subject, old.version)
    ends.target.delete(old.full_subject, old.version, for_good=True)


def _place(ends: Ends, context: str, number: int) -> None:
    subject = Subject(context, RESERVED)
    version = SchemaVersion(
        context=context,
        subject=RESERVED,
        version=number,
        id=number,
        kind="AVRO",
        text=f'{{"type":"fixed","name":"mirror_reserved_{number}","size":1}}',
    )
    claim = Claim(
        id=number, target_id=number, sha256=version.sha256, state=ClaimState.DELETED
    )
    ends.claims.note({version.key: claim})
    if ends.target.mode(subject) is not Mode.IMPORT:
        ends.target.set_mode(subject, Mode.IMPORT, force=True)
    if ends.target.by_id(context, number) is None:
        ends.target.register(version)
    ends.target.delete(subject, number)
