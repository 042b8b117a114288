"""Keeps a target's schema registry in step with its source's, in one direction.

Main functions: `look`, which changes nothing, and `sync`; both return a frozen
`SchemasResult` with every subject of the flow. `rules` decides, `claims` remembers what
was written, `writing` writes and reads back. Here are compatibility levels, and the
ids that a target's registry skips.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from typing import TYPE_CHECKING

from mirror.errors import RegistryError
from mirror.schemas import modes, rules
from mirror.schemas.claims import Before, Claim, ClaimOf, ClaimState
from mirror.schemas.registry.values import RESERVED, Mode, SchemaVersion, Subject
from mirror.schemas.rules import LevelChange, SchemasResult
from mirror.schemas.writing import NONE, SchemaTranslator, SchemaWriter
from mirror.status.states import SchemaState

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence

    from mirror.schemas.comparing import ComparedRegistries, RegistryPair, ShortGap
    from mirror.schemas.rules import RegistryWrite, SubjectPlan

_NOT_IN_THIS_MODE = 42205
"""Confluent's code: such as a closed registry, which gets its level once it is open."""


def look(registries: RegistryPair, *, levels: bool = True) -> SchemasResult:
    """What `sync` would do; nothing is changed. Without `levels`, which take requests
    for each subject, only versions are compared.

    Raises:
        MirrorError: a registry or a cluster does not answer.
    """
    found = registries.compare()
    if not levels:
        return found.plan
    changes, remarks = level_changes(
        registries, found.open_subjects, whole=registries.own_contexts(found)
    )
    return replace(
        found.plan,
        subjects=_with_remarks(found.plan.subjects, remarks),
        levels=tuple(changes),
    )


def sync(
    registries: RegistryPair,
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
    found = registries.compare()
    writes = rules.narrowed(found.plan.writes, only)
    translates = registries.flow.translates_ids
    writer = SchemaTranslator(registries) if translates else SchemaWriter(registries)
    writer.write(writes)
    if writer.done:
        found = replace(found, ours=registries.claims.ours)  # worked out again
    if not only and registries.going_on():
        _give_back(registries, found, writer)
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
        whole = registries.own_contexts(found) - stopped
    if not registries.going_on():
        asked, whole = frozenset(), set()
    levels, remarks = level_changes(registries, asked, whole=whole)
    levels, refused = set_levels(registries, levels)
    if registries.reserves and not only and not translates:
        reserve(registries, found.gaps)
    subjects: Iterable[SubjectPlan] = found.plan.subjects
    if writer.done or writer.stopped:
        subjects = _after(subjects, found.plan.writes, writer)
    return SchemasResult(
        subjects=_with_remarks(subjects, {**remarks, **refused}),
        writes=tuple(writer.done),
        levels=tuple(levels),
    )


def _give_back(
    registries: RegistryPair, found: ComparedRegistries, writer: SchemaWriter
) -> None:
    """Subjects that were put into IMPORT, and got no version, have their modes again:
    what stopped us was a conflict, or we died and they are no longer copied.
    """
    stopped = writer.stopped.items()
    copies = found.copied.difference(
        subject for subject, (state, _) in stopped if state is SchemaState.CONFLICT
    )
    noted = registries.claims.modes
    strays = {s for s in noted.keys() - copies if noted[s].set == Mode.IMPORT}
    if strays:
        strays -= {
            key.subject
            for key, claim in registries.claims.ours.items()
            if claim.state is not ClaimState.CLAIMED
        }
        back = modes.to_open(registries.target, registries.claims, strays)
        modes.apply(registries.target, registries.claims, back, opens=True)


def _after(
    subjects: Iterable[SubjectPlan],
    planned: Iterable[RegistryWrite],
    writer: SchemaWriter,
) -> Iterator[SubjectPlan]:
    """The subjects once it was written."""
    left = Counter(each.version.full_subject for each in planned)
    left.subtract(each.version.full_subject for each in writer.done)
    came = Counter(each.version.full_subject for each in writer.done if not each.delete)
    for each in subjects:
        state, reason = each.state, each.reason
        if each.subject in writer.stopped:
            state, reason = writer.stopped[each.subject]
        elif state is SchemaState.PENDING and not left[each.subject]:
            state = SchemaState.SYNCED
        yield replace(
            each, state=state, reason=reason, there=each.there + came[each.subject]
        )


def _with_remarks(
    subjects: Iterable[SubjectPlan], remarks: Mapping[Subject, str]
) -> tuple[SubjectPlan, ...]:
    return tuple(
        replace(each, reason="; ".join(filter(None, (each.reason, remark))))
        if (remark := remarks.get(each.subject))
        else each
        for each in subjects
    )


# ---- compatibility levels: the target's subjects and contexts get the source's ----


def level_changes(
    registries: RegistryPair,
    subjects: Collection[Subject],
    *,
    whole: Collection[str] = (),
) -> tuple[list[LevelChange], dict[Subject, str]]:
    """What to set for these subjects of the target, and for `whole` contexts, in which
    only this flow has subjects; and what differs and stays, by subject.
    """
    flow, source, target = registries.flow, registries.source, registries.target
    found, remarks = [], {}
    unset = None
    if flow.translates_ids and subjects:
        # No flow with translated ids reserves any, so this subject is not there.
        nowhere = Subject(flow.schemas_context, RESERVED)
        unset = None if target.tells_levels(nowhere) else NONE
    for subject in [*(Subject(each, "") for each in sorted(whole)), *sorted(subjects)]:
        wanted = source.level(subject.from_below(flow.schemas_context))
        now = target.level(subject)
        noted = registries.claims.before(subject, ClaimOf.LEVEL)
        if now == unset and not (noted and noted.set):
            now = None
        if wanted == now:
            continue
        # The level before is there still if we died between the note and the change.
        if (
            now is None
            or (noted is not None and now in {noted.set, noted.before})
            or (noted is None and not subject.name)
        ):
            found.append(LevelChange(subject=subject, now=now, then=wanted))
        else:
            remarks[subject] = (
                f"its level on {flow.target} is {now}, and this flow has not set it; "
                f"on {flow.source} it is {wanted or 'that of the context'}"
            )
    return found, remarks


def set_levels(
    registries: RegistryPair, wanted: Sequence[LevelChange]
) -> tuple[list[LevelChange], dict[Subject, str]]:
    """Set them, after a note of each. Returns what was set, and why the level of a
    subject could not be.

    Raises:
        MirrorError: a registry or the target's cluster does not answer, or the level
            of a context is refused.
    """
    registries.claims.note(
        {},
        {
            (each.subject, ClaimOf.LEVEL): Before(before=each.now, set=each.then)
            for each in wanted
        },
    )
    done, refused = [], {}
    for each in wanted:
        try:
            registries.target.set_level(each.subject, each.then)
        except RegistryError as error:
            closed = error.error_code == _NOT_IN_THIS_MODE
            if error.retriable or not (each.subject.name or closed):
                raise
            refused[each.subject] = f"its level cannot be set: {error}"
        else:
            done.append(each)
    return done, refused


# ---- ids that a target's registry skips, since the source issues them ----
#
# Main function: `reserve`. A registry goes on after its highest id, and the
# source's last ones may not be copied when the target begins to issue its own. So
# each context gets a placeholder, softly deleted, in a subject of mirror's own: its
# id, which is its version too, is `schemas_id_gap` above the source's highest.
# Another one takes its place once half of that is used up (`comparing`).


def reserve(registries: RegistryPair, gaps: Iterable[ShortGap]) -> None:
    """Reserve ids there.

    Raises:
        MirrorError: a registry or the target's cluster does not answer, or refuses.
    """
    target = registries.target
    for each in gaps:
        if not registries.going_on():
            return
        try:
            _place(registries, each.context, each.number)
            for old in each.held:  # the source will reach its id
                target.delete(old.full_subject, old.version)
                target.delete(old.full_subject, old.version, for_good=True)
        except RegistryError as error:
            if error.retriable:
                raise
            raise RegistryError(
                f"ids up to {each.number} cannot be reserved: {error}; schemas_id_gap: "
                "0 reserves none"
            ) from error


def _place(registries: RegistryPair, context: str, number: int) -> None:
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
    registries.claims.note({version.key: claim})
    target = registries.target
    if target.mode(subject) is not Mode.IMPORT:
        target.set_mode(subject, Mode.IMPORT, force=True)
    if target.by_id(context, number) is None:
        target.register(version)
    target.delete(subject, number)
