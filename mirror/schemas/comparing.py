"""Both registries of one flow, and what a look at them finds.

Main types: `RegistryPair`, what one flow's schemas are copied between, and
`ComparedRegistries`, what its `compare` finds. Looks that find the same lists share
one, since with tens of thousands of versions each of its parts takes milliseconds: they
are worked out when they are first asked for.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property
from itertools import chain
from typing import TYPE_CHECKING, NamedTuple

from mirror.schemas.claims import ClaimState, SchemaClaims
from mirror.schemas.registry.registry import Registry, RequestPace
from mirror.schemas.registry.values import RESERVED
from mirror.schemas.rules import SchemaPlanner, TranslationPlanner, chosen, copies_all
from mirror.status.states import SchemaState

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from mirror.clusters.cluster import Cluster
    from mirror.config.cluster_settings import ClusterConfig
    from mirror.config.schema import FlowConfig
    from mirror.schemas.claims import Claim
    from mirror.schemas.registry.values import Key, SchemaVersion, Subject
    from mirror.schemas.rules import Chosen, SchemasResult


@dataclass(frozen=True, slots=True, kw_only=True)
class SubjectLists:
    """Some subjects, as both registries have them now."""

    source: tuple[SchemaVersion, ...]
    target: tuple[SchemaVersion, ...]


@dataclass(slots=True, kw_only=True)
class RegistryPair:
    """What one flow's schemas are copied between. Not thread-safe."""

    flow: FlowConfig
    source: Registry
    target: Registry
    claims: SchemaClaims
    deletes: bool = True
    """Whether soft deletes are copied; of two opposite flows one does."""
    going_on: Callable[[], bool] = lambda: True
    """Whether to write another version; asked before each one."""
    reserves: bool = False
    """Whether ids are reserved; of two opposite flows one does."""
    lists: SubjectLists | None = None
    """What both registries have; None: all that they list."""
    _here: tuple[tuple[SchemaVersion, ...], ...] = field(default=(), init=False)
    """What the last look found on the source; registries give the same objects if
    nothing has changed."""
    _chosen: Chosen | None = field(default=None, init=False)
    _rest: tuple[object, ...] = field(default=(), init=False)
    """What else it went by."""
    _found: ComparedRegistries | None = field(default=None, init=False)

    @classmethod
    def open(
        cls,
        flow: FlowConfig,
        clusters: Mapping[str, ClusterConfig],
        target: Cluster,
        *,
        deletes: bool = True,
        going_on: Callable[[], bool] = lambda: True,
    ) -> RegistryPair:
        """With connections of its own, which `close` closes. `target`: connected."""
        rate = flow.schemas_requests_per_second
        return cls(
            flow=flow,
            source=Registry(clusters[flow.source], pace=RequestPace(rate)),
            target=Registry(clusters[flow.target], pace=RequestPace(rate)),
            claims=SchemaClaims(
                target, flow.source, replication_factor=flow.replication_factor
            ),
            deletes=deletes,
            going_on=going_on,
        )

    def close(self) -> None:
        self.source.close()
        self.target.close()

    @property
    def failed(self) -> int:
        """How many requests got no answer, or a failure of a registry's own."""
        return self.source.failed + self.target.failed

    def compare(self) -> ComparedRegistries:
        """Both registries now; the same object as long as nothing changed.

        Raises:
            MirrorError: a registry or a cluster does not answer.
        """
        self.claims.refresh()
        source, target = self.source, self.target
        here: tuple[tuple[SchemaVersion, ...], ...]
        if self.lists is not None:
            here = (self.lists.source,)
        else:
            here = tuple(source.versions(context) for context in source.contexts())
        if self._chosen is None or here != self._here:
            self._chosen, self._found = chosen(chain(*here), self.flow), None
            self._here = here
        if self.lists is not None:
            copies = [self.lists.target]
        else:
            contexts = sorted(self._chosen.contexts)
            copies = [target.versions(context) for context in contexts]
        rest = (*copies, self.claims.counted, self.deletes)
        if self._found is None or rest != self._rest:
            there = tuple(chain(*copies))
            self._found = ComparedRegistries(
                chosen=self._chosen,
                there=there,
                ours=self.claims.ours,
                plan=self._plan(self._chosen, there),
                gap=self.flow.schemas_id_gap,
            )
            self._rest = rest
        return self._found

    def _plan(self, found: Chosen, there: tuple[SchemaVersion, ...]) -> SchemasResult:
        flow, ours = self.flow, self.claims.ours
        if flow.translates_ids:
            return TranslationPlanner(found, there, ours, flow, self.target).plan()
        return SchemaPlanner(
            found,
            there,
            ours,
            flow,
            owners=self.claims.owners,
            deletes=flow.schemas_deletes and self.deletes,
        ).plan()

    def own_contexts(self, found: ComparedRegistries) -> set[str]:
        """Those of which this flow copies everything, with nothing of anyone else on
        the target. The default one has the level of the whole registry, which holds in
        all contexts that have none: so nothing of anyone else may be in those either.
        None, if the target's registry chooses ids: it need not be only a copy.
        """
        if self.flow.translates_ids or not copies_all(self.flow):
            return set()
        own, contexts = set(found.own_contexts), found.chosen.contexts
        target = self.target
        if "" in own and (
            own != contexts
            or any(map(target.versions, {*target.contexts()} - contexts))
        ):
            own.discard("")
        return own


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
    """Both registries, in the contexts that a flow copies. It asks neither."""

    chosen: Chosen
    there: tuple[SchemaVersion, ...]
    """What the target has of these contexts, before anything is written."""
    ours: Mapping[Key, Claim]
    """What this flow has written."""
    plan: SchemasResult
    gap: int
    """How many ids to reserve."""

    @cached_property
    def open_subjects(self) -> frozenset[Subject]:
        """Those whose levels are this flow's, and that producers can still find."""
        return frozenset(
            key.subject
            for key, each in self.chosen.versions.items()
            if not each.deleted
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
        return self._subjects_there.difference(key.subject for key in self.ours)

    @cached_property
    def _stopped(self) -> frozenset[Subject]:
        return frozenset(
            each.subject
            for each in self.plan.subjects
            if each.state not in {SchemaState.SYNCED, SchemaState.PENDING}
        )
