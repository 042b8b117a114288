"""Ids that a target's registry skips, so that it never issues one of the source's.

Main function: `reserve`. A registry goes on after its highest id, and the source's last
ones may not be copied when the target begins to issue its own. So each context gets a
placeholder, softly deleted, in a subject of mirror's own: its id, which is its version
too, is `schemas_id_gap` above the source's highest. Another one takes its place once
half of that is used up (`schema_compared`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from mirror.clusters.registry.values import Mode, SchemaVersion, Subject
from mirror.errors import RegistryError
from mirror.metadata.schema_claims import Claim, ClaimState
from mirror.metadata.schema_names import RESERVED, key_of

if TYPE_CHECKING:
    from collections.abc import Iterable

    from mirror.metadata.schema_compared import ShortGap
    from mirror.metadata.schema_ends import Ends


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
    ends.claims.note({key_of(version): claim})
    if ends.target.mode(subject) is not Mode.IMPORT:
        ends.target.set_mode(subject, Mode.IMPORT, force=True)
    if ends.target.by_id(context, number) is None:
        ends.target.register(version)
    ends.target.delete(subject, number)
