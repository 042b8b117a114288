"""What the ids of schemas mean on both sides of a flow.

Main types and functions: `IdSettler`, what to do before a record with an id may be
copied; `meanings`, of all ids of a registry, so that those of two can be compared;
`trace`, of one id, for people.
"""

from __future__ import annotations

from collections import defaultdict
import contextlib
from dataclasses import dataclass
from functools import cached_property
import hashlib
from typing import TYPE_CHECKING, Any, NamedTuple
import uuid

from mirror.errors import MirrorError
from mirror.schemas.claims import (
    ClaimRecords,
    SchemaClaims,
    agreed,
    by_id,
    copied_ids,
    translations,
)
from mirror.schemas.comparing import RegistryPair, SubjectLists
from mirror.schemas.registry.values import HIGHEST_ID
from mirror.schemas.sync import sync
from mirror.status.states import SchemaState
from mirror.status.values import WAITS

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping

    from mirror.clusters.cluster import Cluster
    from mirror.config.schema import FlowConfig
    from mirror.schemas.claims import Claim
    from mirror.schemas.registry.registry import Registry
    from mirror.schemas.registry.values import Key, Schema, SchemaVersion, Subject

_MOST_SUBJECTS = 3
"""How many a reason names."""


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


@dataclass(frozen=True, kw_only=True)
class IdSettler:
    """Sees to it that the target has what the source means by some ids.

    It asks the source what an id is and the target whether it has the same; with
    schemas_ids: translate, it reads the target's id from the claims. If the schema is
    not there, it copies the subject by the rules of the flow's job (`sync`), from lists
    of that subject and of what it refers to alone. Several may do that at the same
    time. Not thread-safe.
    """

    flow: FlowConfig
    source: Registry
    target: Registry
    cluster: Callable[[], Cluster]
    """The target, connected; asked for only if something is copied."""
    going_on: Callable[[], bool] = lambda: True
    """Whether to write another version, as for `RegistryPair`."""

    def settle(self, number: int, guid: bytes = b"") -> SettledId:
        """See to it that the target has what the source means by this id, in each of
        the source's contexts that knows it; with a GUID, by the ids that the source
        gives it. While registries do not answer, what the flow has noted as copied is
        there.
        """
        if guid:
            return self._settle_guid(str(uuid.UUID(bytes=guid)))
        found = self._settle(number)
        if found.unanswered and number in (noted := self._copied):
            return SettledId(target_id=noted[number])
        return found

    def _settle(self, number: int) -> SettledId:
        if number > HIGHEST_ID:
            return SettledId(strange=True)
        context, strange = "", True
        try:
            for context in self._contexts:
                if self._noted([context], number):
                    strange = False
                elif (wanted := self.source.by_id(context, number)) is not None:
                    strange = False
                    if not self._is_there(context, number, wanted):
                        uses = self.source.uses(context, number)
                        if why := self._copy(context, number, wanted, uses):
                            why = f"is not on {self.flow.target}: {why}"
                            return SettledId(
                                reason=f"{WAITS}{number}{_subjects(uses)} {why}"
                            )
            if not strange:
                return self._known(number)
        except MirrorError as error:
            uses = ()
            if not strange:
                with contextlib.suppress(MirrorError):  # the reason does without
                    uses = self.source.uses(context, number)
            why = f"may not be on {self.flow.target}: {error}"
            reason = f"{WAITS}{number}{_subjects(uses)} {why}"
            return SettledId(reason=reason, unanswered=True)
        return SettledId(strange=True)

    def _settle_guid(self, guid: str) -> SettledId:
        try:
            ids = self.source.ids_of(guid)
        except MirrorError as error:
            reason = f"{WAITS}{guid} may not be on {self.flow.target}: {error}"
            return SettledId(reason=reason, unanswered=True)
        found = [self.settle(number) for number in dict.fromkeys(n for _, n in ids)]
        return next(
            (each for each in found if each.reason), SettledId(strange=not found)
        )

    @cached_property
    def _contexts(self) -> tuple[str, ...]:
        """The source's, asked for once."""
        return self.source.contexts()

    @cached_property
    def _claims(self) -> SchemaClaims:
        """All that was noted on the target, read and decoded once."""
        found = SchemaClaims(
            self.cluster(),
            self.flow.source,
            replication_factor=self.flow.replication_factor,
        )
        found.refresh()
        return found

    @cached_property
    def _copied(self) -> Mapping[int, int]:
        """The ids that the flow has noted as copied, with the ones to translate them
        to.
        """
        flow = self.flow
        try:
            notes = self.cluster(), flow.source, flow.schemas_context
            if flow.translates_ids:
                return translations(*notes, below=True)
            return dict.fromkeys(copied_ids(*notes), -1)
        except MirrorError:  # then records wait for the registries
            return {}

    @cached_property
    def _claim_records(self) -> ClaimRecords:
        return ClaimRecords(self.cluster())

    def _claims_about(self, subjects: Iterable[Subject]) -> SchemaClaims:
        """What was noted about these of the target's subjects; with translated ids,
        all.
        """
        if self.flow.translates_ids:
            return self._claims
        return SchemaClaims.about(
            subjects,
            self._claim_records,
            self.flow.source,
            replication_factor=self.flow.replication_factor,
        )

    def _known(self, number: int) -> SettledId:
        """The target has it."""
        if not self.flow.translates_ids:
            return SettledId()
        noted = self._noted(self._contexts, number)
        if (chosen := agreed(noted)) is not None:
            return SettledId(target_id=chosen.target_id)
        flow = self.flow
        if noted:
            why = f"has different texts in contexts of {flow.source}, and a record "
            why += "does not say which it means"
        else:
            why = f"is not on {flow.target}: another process is writing it"
        return SettledId(reason=f"{WAITS}{number} {why}")

    def _noted(self, contexts: Iterable[str], number: int) -> list[Claim]:
        """What has the target's ids of this one, in these contexts of the source."""
        if not self.flow.translates_ids:
            return []
        ours = self._claims.ours
        wanted = {key: each for key, each in ours.items() if each.id == number}
        there = {self.flow.schemas_context + each for each in contexts}
        return by_id(wanted, there).get(number, [])

    def _is_there(self, context: str, number: int, wanted: Schema) -> bool:
        if self.flow.translates_ids:
            return bool(self._noted([context], number))
        there = self.target.by_id(self.flow.schemas_context + context, number)
        return there is not None and there.has_text_of(wanted)

    def _copy(
        self, context: str, number: int, wanted: Schema, uses: Iterable[Key]
    ) -> str:
        """Copy it. Returns why it could not be; empty: it is there."""
        flow, below = self.flow, self.flow.schemas_context
        if not (asked := {use.subject.below(below) for use in uses}):
            return f"{flow.source} does not say which subject has it"
        listed = _listed(self.source, [use.subject for use in uses])
        subjects = [subject.below(below) for subject in listed]
        registries = RegistryPair(
            flow=flow,
            source=self.source,
            target=self.target,
            claims=self._claims_about(subjects),
            deletes=False,
            going_on=self.going_on,
            lists=SubjectLists(
                source=tuple(each for versions in listed.values() for each in versions),
                target=tuple(
                    each
                    for subject in subjects
                    for each in self.target.of_subject(subject)
                ),
            ),
        )
        found = sync(registries, only=asked, levels_of=())
        if flow.translates_ids:
            # Others may have noted something: all slots choose the same.
            self._claims.refresh()
        if self._is_there(context, number, wanted):
            return ""
        if not self.going_on():
            return "its copying was interrupted"
        states = [each for each in found.subjects if each.subject in asked]
        if not states:
            return (
                "schemas_subjects and schemas_exclude leave its subject out; copy it, "
                "or leave the topic out of schemas_topics"
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
            ahead += [key.subject for each in found[subject] for key in each.refers_to]
    return found


def _subjects(uses: Iterable[Key]) -> str:
    names = sorted({str(use.subject) for use in uses})
    if not names:
        return ""
    more = len(names) - _MOST_SUBJECTS
    some = ", ".join(names[:_MOST_SUBJECTS])
    return f" of {some} and {more} more" if more > 0 else f" of {some}"


# ---- all ids of a registry, to compare those of two ----


_DEEPEST = 100
"""How many schemas may refer to each other in a row; what is below does not count."""


class Meaning(NamedTuple):
    """What an id stands for."""

    kind: str
    sha256: str
    """Of the text."""
    refers_to: str
    """A digest of the meanings of what it refers to; empty: of nothing."""

    def differs(self, other: Meaning) -> bool:
        """Whether the text alone is another one."""
        return (self.kind, self.sha256) != (other.kind, other.sha256)


def meanings(registry: Registry, contexts: Iterable[str]) -> dict[int, Meaning]:
    """By id, without those that mean several things in these contexts.

    Raises:
        RegistryError: the registry cannot be asked.
    """
    versions = {
        each.key: each
        for context in contexts
        for each in registry.versions(context)
        if each.context == context  # some registries list other contexts, too
    }
    known: dict[Key, Meaning] = {}
    found: dict[int, set[Meaning]] = defaultdict(set)
    for key, version in versions.items():
        if 0 <= version.id <= HIGHEST_ID:
            found[version.id].add(_meaning(key, versions, known))
    return {number: some.pop() for number, some in found.items() if len(some) == 1}


def _meaning(
    key: Key,
    versions: Mapping[Key, SchemaVersion],
    known: dict[Key, Meaning],
    depth: int = 0,
) -> Meaning:
    if key in known:
        return known[key]
    if key not in versions or depth == _DEEPEST:
        return Meaning("", "", "")
    version = versions[key]
    needed = sorted(
        (reference.name, _meaning(at, versions, known, depth + 1))
        for reference, at in zip(version.references, version.refers_to, strict=True)
    )
    digest = hashlib.sha256(repr(needed).encode()).hexdigest() if needed else ""
    known[key] = Meaning(version.kind, version.sha256, digest)
    return known[key]


# ---- one id on both sides of a flow, for people ----


@dataclass(frozen=True, slots=True, kw_only=True)
class SchemaPlace:
    """A version that has the id, or refers to one that has it."""

    cluster: str
    version: SchemaVersion
    role: str
    """`has it`, or `refers to it`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Traced:
    """What the id means on both sides."""

    places: tuple[SchemaPlace, ...]
    topics: tuple[str, ...]
    """Topics of the source after which subjects with this id are named."""
    texts: Mapping[str, str]
    """By the alias of the cluster; without those that do not know the id."""
    target_id: int
    """Its id on the target; -1: nothing was copied under it."""
    same: bool
    """Whether both know it, as the same text."""
    summary: str
    """The same in words."""

    def document(self) -> dict[str, Any]:
        """As JSON."""
        return {
            "same": self.same,
            "target_id": self.target_id,
            "topics": list(self.topics),
            "texts": dict(self.texts),
            "places": [
                {
                    "cluster": each.cluster,
                    "context": each.version.context,
                    "subject": each.version.subject,
                    "version": each.version.version,
                    "deleted": each.version.deleted,
                    "role": each.role,
                }
                for each in self.places
            ],
        }


def trace(
    registries: tuple[Registry, Registry],
    flow: FlowConfig,
    context: str,
    number: int,
    *,
    reach: Callable[[str], Cluster],
) -> Traced:
    """`registries`: the source's and the target's; `context`: that of the id on the
    source; `reach`: the target's cluster is asked if ids are translated.

    Raises:
        MirrorError: a registry or the target does not answer.
    """
    source, target = registries
    places: list[SchemaPlace] = []
    texts = {}
    there, copy = flow.schemas_context + context, number
    if flow.translates_ids:
        known = translations(reach(flow.target), flow.source, there)
        copy = known.get(number, -1)
    for registry, where, own in (
        (source, context, number),
        (target, there, copy),
    ):
        schema = None if own < 0 else registry.by_id(where, own)
        if schema is not None:
            texts[registry.alias] = schema.text
            places += _places(registry, where, own)
    one, other = texts.get(source.alias), texts.get(target.alias)
    topics = {
        topic
        for each in places
        if each.cluster == source.alias and (topic := each.version.full_subject.topic)
    }
    return Traced(
        places=tuple(places),
        topics=tuple(sorted(topics)),
        texts=texts,
        target_id=copy,
        same=one is not None and one == other,
        summary=_summary(
            number, copy, {source.alias: one, target.alias: other}, sorted(topics)
        ),
    )


def _summary(
    number: int, copy: int, texts: Mapping[str, str | None], topics: list[str]
) -> str:
    without = [alias for alias, text in texts.items() if text is None]
    if copy < 0:
        said = f"id {number} has no copy that {[*texts][1]} has answered"
    elif without:
        said = f"id {number} is not in the registry of {' or '.join(without)}"
    elif len(set(texts.values())) == 1:
        said = f"id {number} is the same text on {' and '.join(texts)}"
    else:
        said = f"id {number} is another text on {' than on '.join(texts)}"
    if copy not in {-1, number}:
        said += f"; it is id {copy} on {[*texts][1]}"
    return said + (f"; by their names, of topics {', '.join(topics)}" if topics else "")


def _places(registry: Registry, context: str, number: int) -> Iterator[SchemaPlace]:
    versions = registry.versions(context)  # some registries list other contexts, too
    having = {
        each.key for each in versions if (each.context, each.id) == (context, number)
    }
    for each in versions:
        if each.key in having:
            yield SchemaPlace(cluster=registry.alias, version=each, role="has it")
    for each in versions:
        if having.intersection(each.refers_to):
            yield SchemaPlace(cluster=registry.alias, version=each, role="refers to it")
