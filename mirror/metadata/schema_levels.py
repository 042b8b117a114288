"""Compatibility levels: a target's subjects and contexts get those of the source.

Main functions: `changes`, which compares, and `apply`. A level that someone else has
set on the target stays as it is and is reported; so does that of a context in which
others have subjects.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from mirror.clusters.registry.values import Subject
from mirror.metadata.schema_claims import Before, What

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

    from mirror.metadata.schemas import Ends


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
    for subject in [*(Subject(each, "") for each in sorted(whole)), *sorted(subjects)]:
        context = subject.context.removeprefix(ends.flow.schemas_context)
        wanted = ends.source.level(Subject(context, subject.name))
        now = ends.target.level(subject)
        if wanted == now:
            continue
        noted = ends.claims.before(subject, What.LEVEL)
        if now == (noted.set if noted else None) or (
            noted is None and not subject.name
        ):
            found.append(LevelChange(subject=subject, now=now, then=wanted))
        else:
            remarks[subject] = (
                f"its level on {ends.flow.target} is {now}, and this flow has not set "
                f"it; on {ends.flow.source} it is {wanted or 'that of the context'}"
            )
    return found, remarks


def apply(ends: Ends, wanted: Sequence[LevelChange]) -> None:
    """Set them, after a note of each.

    Raises:
        MirrorError: a registry or the target's cluster does not answer or refuses.
    """
    ends.claims.note(
        {},
        {
            (each.subject, What.LEVEL): Before(
                before=noted.before
                if (noted := ends.claims.before(each.subject, What.LEVEL))
                else each.now,
                set=each.then,
            )
            for each in wanted
        },
    )
    for each in wanted:
        ends.target.set_level(each.subject, each.then)
