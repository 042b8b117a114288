"""Opens and closes a registry to applications, by the modes of subjects and contexts.

Main functions: `to_close` and `to_open`, which compare, and `apply`. A closed subject
can be read, and no application registers there. What we change is noted before, in the
topic of the claims, so opening gives everyone the mode that they had; what someone else
has changed meanwhile stays.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import chain
from typing import TYPE_CHECKING

from mirror.errors import RegistryError
from mirror.schemas import rules
from mirror.schemas.claims import Before, ClaimOf
from mirror.schemas.registry.values import Mode, Subject

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

    from mirror.config.schema import FlowConfig
    from mirror.schemas.claims import SchemaClaims
    from mirror.schemas.registry.registry import Registry

_CLOSED = frozenset({Mode.READONLY, Mode.READONLY_OVERRIDE, Mode.IMPORT})
_OURS = frozenset({Mode.READONLY, Mode.IMPORT})
"""What mirror sets; any other mode is someone else's."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ModeChange:
    """A mode to set."""

    subject: Subject
    """Without a name, the whole context."""
    now: Mode | None
    """None: that of its context."""
    then: Mode | None


def selected(source: Registry, flow: FlowConfig) -> tuple[set[Subject], set[str]]:
    """The subjects of its source that a flow copies, and the contexts of which it
    copies everything, also what is new.

    Raises:
        RegistryError: the registry does not answer.
    """
    contexts = source.contexts()
    found = rules.chosen(chain(*map(source.versions, contexts)), flow)
    subjects = {key.subject.from_below(flow.schemas_context) for key in found.versions}
    return (
        {each for each in subjects if each.has_address},
        set(contexts) if rules.copies_all(flow) else set(),
    )


def to_close(
    registry: Registry, subjects: Collection[Subject], contexts: Collection[str]
) -> list[ModeChange]:
    """What keeps applications from registering in these subjects, and anything new in
    these contexts.

    Raises:
        RegistryError: the registry does not answer, or has no modes.
    """
    found, held = [], set()
    for context in sorted({*contexts, *(each.context for each in subjects)}):
        whole = Subject(context, "")
        now = registry.mode(whole)
        if context in contexts and now not in _CLOSED:
            found.append(ModeChange(subject=whole, now=now, then=Mode.READONLY))
        if context in contexts or now in _CLOSED:
            held.add(context)
    for subject in sorted(subjects):
        now = registry.mode(subject)
        if now not in _CLOSED and (now is not None or subject.context not in held):
            found.append(ModeChange(subject=subject, now=now, then=Mode.READONLY))
    return found


def to_open(
    registry: Registry,
    claims: SchemaClaims,
    subjects: Collection[Subject] | None = None,
) -> list[ModeChange]:
    """What gives these subjects and contexts the modes that they had before flows from
    the claims' source, or `apply`, changed them; None: all that were changed. Where the
    mode has changed since, nothing changes but the note.

    Raises:
        MirrorError: the registry or the cluster does not answer.
    """
    found = []
    for subject, noted in sorted(claims.modes.items()):
        if subjects is not None and subject not in subjects:
            continue
        now = registry.mode(subject)
        before = None if noted.before is None else Mode(noted.before)
        then = before if now in _OURS else now
        found.append(ModeChange(subject=subject, now=now, then=then))
    return found


def apply(
    registry: Registry,
    claims: SchemaClaims,
    changes: Sequence[ModeChange],
    *,
    opens: bool,
    run: str = "",
) -> list[str]:
    """Make these changes, with their notes. Returns what the registry refuses. `run`:
    of the switch that closes.

    Raises:
        MirrorError: the registry or the cluster does not answer: call it again.
    """
    if not opens:
        claims.note(
            {},
            {_note(e): Before(before=e.now, set=e.then, run=run) for e in changes},
        )
    refused: list[str] = []
    done = {}
    try:
        for each in changes:
            try:
                if each.now is not each.then:
                    forced = each.then is Mode.IMPORT
                    registry.set_mode(each.subject, each.then, force=forced)
            except RegistryError as error:
                if error.retriable:
                    raise
                refused.append(f"{each.subject or 'the registry'}: {error}")
            else:
                done[_note(each)] = Before(before=each.then, set=each.then)
    finally:
        if opens:
            claims.note({}, done)
    return refused


def _note(change: ModeChange) -> tuple[Subject, ClaimOf]:
    return change.subject, ClaimOf.MODE
