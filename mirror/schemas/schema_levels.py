"""Compatibility levels: a target's subjects and contexts get those of the source.

Main functions: `changes`, which compares, and `apply`. A level that someone else has
set on a subject of the target stays as it is and is reported.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from mirror.errors import RegistryError
from mirror.schemas.registry.values import RESERVED, Subject
from mirror.schemas.schema_claims import Before, ClaimOf

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

    from mirror.schemas.schema_ends import Ends


NONE = "NONE"
"""The level that takes any version."""
_NOT_IN_THIS_MODE = 42205
"""Confluent's code: such as a closed registry, which gets its level once it is open."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LevelChange:
    """A level that differs."""

    subject: Subject
    """On the target; without a name, the level of its context."""
    now: str | None
    """None: that of its context."""
    then: str | None


def changes(
    ends: Ends, subjects: Collection[Subject], *, whole: Collection[str] = ()
) -> tuple[list[LevelChange], dict[Subject, str]]:
    """What to set for these subjects of the target, and for `whole` contexts, in which
    only this flow has subjects; and what differs and stays, by subject.
    """
    found, remarks = [], {}
    unset = None
    if ends.flow.translates_ids and subjects:
        # No flow with translated ids reserves any, so this subject is not there.
        nowhere = Subject(ends.flow.schemas_context, RESERVED)
        unset = None if ends.target.tells_levels(nowhere) else NONE
    for subject in [*(Subject(each, "") for each in sorted(whole)), *sorted(subjects)]:
        wanted = ends.source.level(subject.from_below(ends.flow.schemas_context))
        now = ends.target.level(subject)
        noted = ends.claims.before(subject, ClaimOf.LEVEL)
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
                f"its level on {ends.flow.target} is {now}, and this flow has not set "
                f"it; on {ends.flow.source} it is {wanted or 'that of the context'}"
            )
    return found, remarks


def apply(
    ends: Ends, wanted: Sequence[LevelChange]
) -> tuple[list[LevelChange], dict[Subject, str]]:
    """Set them, after a note of each. Returns what was set, and why the level of a
    subject could not be.

    Raises:
        MirrorError: a registry or the target's cluster does not answer, or the level
            of a context is refused.
    """
    ends.claims.note(
        {},
        {
            (each.subject, ClaimOf.LEVEL): Before(before=each.now, set=each.then)
            for each in wanted
        },
    )
    done, refused = [], {}
    for each in wanted:
        try:
            ends.target.set_level(each.subject, each.then)
        except RegistryError as error:
            closed = error.error_code == _NOT_IN_THIS_MODE
            if error.retriable or not (each.subject.name or closed):
                raise
            refused[each.subject] = f"its level cannot be set: {error}"
        else:
            done.append(each)
    return done, refused
