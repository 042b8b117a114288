"""What one schema id means, and what to do before a record with it may be copied.

Main function: `settle_id`. It asks the source what the id is and the target whether it
has the same; with schemas_ids: translate, it reads the target's id from the claims. If
the schema is not there, it copies the subject by the rules of the flow's job
(`metadata.schemas`), from lists of that subject and of what it refers to alone. Several
may do that at the same time.
"""

from __future__ import annotations

import contextlib
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

from mirror.errors import MirrorError
from mirror.schemas import schema_claims, schemas
from mirror.schemas.registry.values import HIGHEST_ID, Subject
from mirror.schemas.schema_claims import ClaimRecords, SchemaClaims
from mirror.schemas.schema_ends import Ends, SubjectLists
from mirror.status.states import SchemaState
from mirror.status.values import WAITS

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from mirror.clusters.cluster import Cluster
    from mirror.config.schema import FlowConfig
    from mirror.schemas.registry.registry import Registry
    from mirror.schemas.registry.values import Schema, SchemaVersion, Use
    from mirror.schemas.schema_claims import Claim

_MOST_SUBJECTS = 3
"""How many a reason names."""


@dataclass(frozen=True, kw_only=True)
class Sides:
    """What some ids are settled between. Not thread-safe."""

    flow: FlowConfig
    source: Registry
    target: Registry
    cluster: Callable[[], Cluster]
    """The target, connected; asked for only if something is copied."""
    going_on: Callable[[], bool] = lambda: True
    """Whether to write another version, as for `Ends`."""

    @cached_property
    def claims(self) -> SchemaClaims:
        """All that was noted on the target, read and decoded once."""
        found = SchemaClaims(
            self.cluster(),
            self.flow.source,
            replication_factor=self.flow.replication_factor,
        )
        found.refresh()
        return found

    def claims_about(self, subjects: Iterable[Subject]) -> SchemaClaims:
        """What was noted about these of the target's subjects; with translated ids,
        all.
        """
        if self.flow.translates_ids:
            return self.claims
        return SchemaClaims.about(
            subjects,
            self._records,
            self.flow.source,
            replication_factor=self.flow.replication_factor,
        )

    @cached_property
    def _records(self) -> ClaimRecords:
        return ClaimRecords(self.cluster())

    @cached_property
    def contexts(self) -> tuple[str, ...]:
        """The source's, asked for once."""
        return self.source.contexts()


@dataclass(frozen=True, slots=True, kw_only=True)
class SettledId:
    """What a record with the id may do."""

    reason: str = ""
    """Why the target may not have the schema; empty: it has, or there is none."""
    unanswered: bool = False
    """A registry or a cluster did not say whether it has."""
    strange: bool = False
    """The source does not know the id either: the record has none."""
    target_id: int = -1
    """With schemas_ids: translate, the id that the record must have on the target;
    -1: its own, or there is none.
    """


def settle_id(sides: Sides, number: int) -> SettledId:
    """See to it that the target has what the source means by this id, in each of the
    source's contexts that knows it.
    """
    if number > HIGHEST_ID:
        return SettledId(strange=True)
    context, strange = "", True
    try:
        for context in sides.contexts:
            if _noted(sides, [context], number):
                strange = False
            elif (wanted := sides.source.by_id(context, number)) is not None:
                strange = False
                if not _is_there(sides, context, number, wanted):
                    uses = sides.source.uses(context, number)
                    if why := _copied(sides, context, number, wanted, uses):
                        said = f"is not on {sides.flow.target}: {why}"
                        return SettledId(reason=f"{WAITS}{number}{_of(uses)} {said}")
        if not strange:
            return _known(sides, number)
    except MirrorError as error:
        uses = ()
        if not strange:
            with contextlib.suppress(MirrorError):  # the reason does without
                uses = sides.source.uses(context, number)
        said = f"may not be on {sides.flow.target}: {error}"
        reason = f"{WAITS}{number}{_of(uses)} {said}"
        return SettledId(reason=reason, unanswered=True)
    return SettledId(strange=True)


def settle_guid(sides: Sides, guid: str) -> SettledId:
    """The same for the ids that the source gives a GUID."""
    try:
        ids = sides.source.ids_of(guid)
    except MirrorError as error:
        where = f"{WAITS}{guid}"
        reason = f"{where} may not be on {sides.flow.target}: {error}"
        return SettledId(reason=reason, unanswered=True)
    found = [settle_id(sides, number) for number in dict.fromkeys(n for _, n in ids)]
    return next((each for each in found if each.reason), SettledId(strange=not found))


def _known(sides: Sides, number: int) -> SettledId:
    """The target has it."""
    if not sides.flow.translates_ids:
        return SettledId()
    noted = _noted(sides, sides.contexts, number)
    if (chosen := schema_claims.agreed(noted)) is not None:
        return SettledId(target_id=chosen.target_id)
    flow = sides.flow
    if noted:
        why = f"has different texts in contexts of {flow.source}, and a record does not"
        return SettledId(reason=f"{WAITS}{number} {why} say which it means")
    why = f"is not on {flow.target}: another process is writing it"
    return SettledId(reason=f"{WAITS}{number} {why}")


def _noted(sides: Sides, contexts: Iterable[str], number: int) -> list[Claim]:
    """What has the target's ids of this one, in these contexts of the source."""
    if not sides.flow.translates_ids:
        return []
    ours = {key: each for key, each in sides.claims.ours.items() if each.id == number}
    there = {sides.flow.schemas_context + each for each in contexts}
    return schema_claims.by_id(ours, there).get(number, [])


def _is_there(sides: Sides, context: str, number: int, wanted: Schema) -> bool:
    if sides.flow.translates_ids:
        return bool(_noted(sides, [context], number))
    there = sides.target.by_id(sides.flow.schemas_context + context, number)
    return there is not None and there.has_text_of(wanted)


def _copied(
    sides: Sides, context: str, number: int, wanted: Schema, uses: Iterable[Use]
) -> str:
    """Copy it. Returns why it could not be; empty: it is there."""
    flow = sides.flow
    below = flow.schemas_context
    if not (asked := {use.subject.below(below) for use in uses}):
        return f"{flow.source} does not say which subject has it"
    listed = _listed(sides.source, [use.subject for use in uses])
    subjects = [subject.below(below) for subject in listed]
    ends = Ends(
        flow=flow,
        source=sides.source,
        target=sides.target,
        claims=sides.claims_about(subjects),
        deletes=False,
        going_on=sides.going_on,
        lists=SubjectLists(
            source=tuple(each for versions in listed.values() for each in versions),
            target=tuple(
                each
                for subject in subjects
                for each in sides.target.of_subject(subject)
            ),
        ),
    )
    found = schemas.sync(ends, only=asked, levels_of=())
    if flow.translates_ids:
        # Others may have noted something: all slots choose the same.
        sides.claims.refresh()
    if _is_there(sides, context, number, wanted):
        return ""
    if not sides.going_on():
        return "its copying was interrupted"
    states = [each for each in found.subjects if each.subject in asked]
    if not states:
        return (
            "schemas_subjects and schemas_exclude leave its subject out; copy it, or "
            "leave the topic out of schemas_topics"
        )
    return next(
        (
            f"{each.state}: {each.reason}"
            for each in states
            if each.state is not SchemaState.SYNCED
        ),
        "the id has another text there",
    )


def _listed(
    source: Registry, subjects: Iterable[Subject]
) -> dict[Subject, tuple[SchemaVersion, ...]]:
    """All versions of these subjects, and of those that they refer to."""
    found: dict[Subject, tuple[SchemaVersion, ...]] = {}
    ahead = list(subjects)
    while ahead:
        if (subject := ahead.pop()) not in found:
            found[subject] = source.of_subject(subject)
            ahead += [key[0] for each in found[subject] for key in each.refers_to]
    return found


def _of(uses: Iterable[Use]) -> str:
    names = sorted({str(use.subject) for use in uses})
    if not names:
        return ""
    more = len(names) - _MOST_SUBJECTS
    some = ", ".join(names[:_MOST_SUBJECTS])
    return f" of {some} and {more} more" if more > 0 else f" of {some}"
