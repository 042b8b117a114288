"""Ids that a target's registry skips, so that it never issues one of the source's.

Main function: `reserve`. A registry goes on after its highest id, and the source's last
ones may not be copied when the target begins to issue its own. So each context gets a
placeholder, softly deleted, in a subject of mirror's own: its id, which is its version
too, is `schemas_id_gap` above the source's highest. Another one takes its place once
half of that is used up.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from mirror.clusters.registry.values import Mode, SchemaVersion, Subject
from mirror.errors import RegistryError
from mirror.metadata.schema_claims import Claim, ClaimState
from mirror.metadata.schema_names import RESERVED, key_of

if TYPE_CHECKING:
    from collections.abc import Iterable

    from mirror.metadata.schema_ends import Ends
    from mirror.metadata.schema_rules import Chosen

_MOST = 2**31 - 1
"""The highest number that a version may have."""


def reserve(ends: Ends, found: Chosen, there: Iterable[SchemaVersion]) -> None:
    """Reserve ids in each context to which the flow has copied something. `there`: what
    the target had before this look.

    Raises:
        MirrorError: a registry or the target's cluster does not answer, or refuses.
    """
    gap = ends.flow.schemas_id_gap
    if not gap:
        return
    ours = ends.claims.ours
    highest = {
        subject.context: 0
        for (subject, _), claim in ours.items()
        if claim.state is not ClaimState.CLAIMED
    }
    for each in (*found.versions.values(), *found.others.values()):
        if each.subject != RESERVED and each.context in highest:
            highest[each.context] = max(highest[each.context], each.id)
    last = dict.fromkeys(highest, 0)
    held: list[SchemaVersion] = []
    for each in there:
        if each.context in last:
            last[each.context] = max(last[each.context], each.id)
            if each.subject == RESERVED and key_of(each) in ours:
                held.append(each)
    for context, number in sorted(highest.items()):
        wanted = number + gap
        short = last[context] < number + gap // 2
        if number and short and wanted <= _MOST and ends.going_on():
            _move_up(ends, context, wanted, [e for e in held if e.context == context])


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
    ends.claims.note({key_of(version): claim})
    if ends.target.mode(subject) is not Mode.IMPORT:
        ends.target.set_mode(subject, Mode.IMPORT, force=True)
    if ends.target.by_id(context, number) is None:
        ends.target.register(version)
    ends.target.delete(subject, number)
