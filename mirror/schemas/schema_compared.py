"""What a look at both registries found, and what follows from it.

Main type: `ComparedRegistries`. Looks that find the same lists share one, since with
tens of thousands of versions each of its parts takes milliseconds: they are worked out
when they are first asked for. It asks no registry.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, NamedTuple

from mirror.schemas.registry.values import RESERVED
from mirror.schemas.schema_claims import ClaimState
from mirror.status.states import SchemaState

if TYPE_CHECKING:
    from collections.abc import Mapping

    from mirror.schemas.registry.values import Key, SchemaVersion, Subject
    from mirror.schemas.schema_claims import Claim
    from mirror.schemas.schema_rules import Chosen, SchemaPlan


_MOST = 2**31 - 1
"""The highest number that a version may have."""


class ShortGap(NamedTuple):
    """A context in which the target may soon issue an id of the source's."""

    context: str
    number: int
    """The id to reserve."""
    held: tuple[SchemaVersion, ...]
    """What takes up the place of earlier ones."""


@dataclass(frozen=True, kw_only=True)
class ComparedRegistries:
    """Both registries, in the contexts that a flow copies."""

    chosen: Chosen
    there: tuple[SchemaVersion, ...]
    """What the target has of these contexts, before anything is written."""
    ours: Mapping[Key, Claim]
    """What this flow has written."""
    plan: SchemaPlan
    gap: int
    """How many ids to reserve."""

    @cached_property
    def open_subjects(self) -> frozenset[Subject]:
        """Those whose levels are this flow's, and that producers can still find."""
        return frozenset(
            key[0] for key, each in self.chosen.versions.items() if not each.deleted
        ).difference(self._stopped, self._others)

    @cached_property
    def own_contexts(self) -> frozenset[str]:
        """Those in which the target has nothing of anyone else."""
        stopped = self._subjects_there & self._stopped
        theirs = {each.context for each in self._others | stopped}
        return self.chosen.contexts - theirs

    @cached_property
    def copied(self) -> frozenset[Subject]:
        """Subjects of the flow that are not in conflict."""
        return frozenset(
            each.subject
            for each in self.plan.subjects
            if each.state is not SchemaState.CONFLICT
        )

    @cached_property
    def gaps(self) -> tuple[ShortGap, ...]:
        """Where too few ids are reserved, of the contexts to which the flow has copied
        something; and where a flow from another source has reserved an id that this
        source has issued.
        """
        if not self.gap:
            return ()
        issued = [
            each
            for each in (*self.chosen.versions.values(), *self.chosen.others.values())
            if each.subject != RESERVED
        ]
        ids = {(each.context, each.id) for each in issued}
        reserved = [each for each in self.there if each.subject == RESERVED]
        in_the_way = [e for e in reserved if (e.context, e.id) in ids]
        highest = {
            subject.context: 0
            for (subject, _), claim in self.ours.items()
            if claim.state is not ClaimState.CLAIMED
        } | {each.context: 0 for each in in_the_way}
        for each in issued:
            if each.context in highest:
                highest[each.context] = max(highest[each.context], each.id)
        last = dict.fromkeys(highest, 0)
        for each in self.there:
            if each.context in last and each not in in_the_way:
                last[each.context] = max(last[each.context], each.id)
        held = [
            each for each in reserved if each.key in self.ours or each in in_the_way
        ]
        return tuple(
            ShortGap(
                context,
                number + self.gap,
                tuple(each for each in held if each.context == context),
            )
            for context, number in sorted(highest.items())
            if number
            and (
                last[context] < number + self.gap // 2
                or any(each.context == context for each in in_the_way)
            )
            and number + self.gap <= _MOST
        )

    @cached_property
    def _subjects_there(self) -> frozenset[Subject]:
        return frozenset(each.full_subject for each in self.there)

    @cached_property
    def _others(self) -> frozenset[Subject]:
        """Those on the target of which this flow has written no version: of two
        opposite flows, one would otherwise undo what is set at its target.
        """
        return self._subjects_there.difference(key[0] for key in self.ours)

    @cached_property
    def _stopped(self) -> frozenset[Subject]:
        return frozenset(
            each.subject
            for each in self.plan.subjects
            if each.state not in {SchemaState.SYNCED, SchemaState.PENDING}
        )
