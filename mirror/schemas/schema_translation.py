"""Copies schemas into a registry that chooses ids and version numbers itself.

Functions: `plan`, which schemas the target's registry should get, and
`SchemaTranslator`, which writes them. The claims are the map: each has the source's id
and the target's. A version is copied once its claim says so and the target still has
the same text under the target's id. Versions that are softly deleted on the source are
copied too, since records may have their ids, and are not deleted on the target.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import replace
from typing import TYPE_CHECKING

from mirror.errors import RegistryError
from mirror.schemas.schema_claims import Before, Claim, ClaimOf, ClaimState
from mirror.schemas.schema_levels import NONE
from mirror.schemas.schema_order import RegistryWrite
from mirror.schemas.schema_rules import WAYS_OUT, Chosen, SchemaPlan, SchemaPlanner
from mirror.schemas.schema_writing import SchemaWriter, SubjectStoppedError
from mirror.status.states import SchemaState

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from mirror.config.schema import FlowConfig
    from mirror.schemas.registry.registry import Registry
    from mirror.schemas.registry.values import (
        Key,
        Reference,
        Schema,
        SchemaVersion,
        Subject,
    )
    from mirror.schemas.schema_ends import Ends

_INCOMPATIBLE = 409
"""A registry's answer to a version that the subject's level forbids."""


def plan(
    found: Chosen,
    there: Iterable[SchemaVersion],
    *,
    ours: Mapping[Key, Claim],
    flow: FlowConfig,
    target: Registry,
) -> SchemaPlan:
    """As `schema_rules.plan`. The target is asked for ids that its lists lack.

    Raises:
        RegistryError: it does not answer.
    """
    return _Planner(found, there, ours, flow, target).plan()


class _Planner(SchemaPlanner):
    def __init__(
        self,
        found: Chosen,
        there: Iterable[SchemaVersion],
        ours: Mapping[Key, Claim],
        flow: FlowConfig,
        target: Registry,
    ) -> None:
        super().__init__(found, there, ours, {}, flow, deletes=False)
        self._registry = target
        self._asked: dict[tuple[str, int], Schema | None] = {}
        self._texts: dict[Subject, set[str]] = defaultdict(set)
        """Digests of what each subject has on the source, and of what we wrote."""
        for key, version in (*found.versions.items(), *found.others.items()):
            self._texts[key[0]].add(version.sha256)
        for key, claim in ours.items():
            self._texts[key[0]].add(claim.sha256)

    def _has(self, wanted: SchemaVersion) -> bool:
        claim = self._ours.get(wanted.key)
        if claim is None or not claim.is_there or claim.id != wanted.id:
            return False
        place = (wanted.context, claim.target_id)
        held: Schema | None = self._by_id.get(place)
        if held is None:
            if place not in self._asked:
                self._asked[place] = self._registry.by_id(*place)
            held = self._asked[place]
        return held is not None and held.has_text_of(wanted)

    def _conflict(self, subject: Subject, keys: Sequence[Key]) -> str:
        """A version of others would be the latest, or decide what is compatible."""
        del keys  # the target's numbers are its own
        for number in self._numbers.get(subject, ()):
            copy = self._there[subject, number]
            if not copy.deleted and copy.sha256 not in self._texts[subject]:
                where = f"version {number} on {self._target} is not on {self._source}"
                return f"{where}; {WAYS_OUT}"
        return ""

    def _needed(self, subjects: Mapping[Subject, Sequence[Key]]) -> list[RegistryWrite]:
        writes = []
        for key in (
            k for s, some in subjects.items() for k in some if s not in self._stopped
        ):
            wanted, claim = self._found.versions[key], self._ours.get(key)
            if not self._has(wanted):
                writes.append(RegistryWrite(version=wanted))
            elif claim and claim.state is ClaimState.STRIPPED:
                self._remark(wanted, f"has no metadata or rules on {self._target}")
        return writes


class SchemaTranslator(SchemaWriter):
    """A `SchemaWriter` that takes the ids that the target's registry answers."""

    def __init__(self, ends: Ends) -> None:
        super().__init__(ends)
        self._given: dict[Key, int] = {}
        """The target's ids of what this run wrote."""

    def _prepare(self, writes: Sequence[RegistryWrite]) -> None:
        """Note the claims; modes stay as they are."""
        known = self._ends.claims.ours
        claims = {
            each.key: Claim(
                id=each.version.id,
                target_id=-1,
                sha256=each.version.sha256,
                state=ClaimState.CLAIMED,
            )
            for each in writes
            if each.version.full_subject not in self.stopped
        }
        self._ends.claims.note(
            {key: claim for key, claim in claims.items() if known.get(key) != claim}
        )

    def _register(self, write: RegistryWrite) -> Claim:
        target, wanted = self._ends.target, self._now(write.version)
        sent = replace(wanted, references=tuple(self._references(wanted)))
        try:
            number = target.register(sent, keeps=False)
        except RegistryError as error:
            if error.status != _INCOMPATIBLE:
                raise
            self._open(sent, error)
            number = target.register(sent, keeps=False)
        back = target.by_id(sent.context, number)
        if back is None or not _with(sent, back).is_same(sent):
            what = "nothing" if back is None else "another text"
            raise SubjectStoppedError(
                SchemaState.UNSUPPORTED,
                f"version {wanted.version} got id {number} on {target.alias}, which is "
                f"{what} there: the registry does not keep texts byte for byte, or "
                "takes this one for another schema",
            )
        self._given[write.key] = number
        kept = (back.metadata, back.rule_set) == (wanted.metadata, wanted.rule_set)
        return Claim(
            id=wanted.id,
            target_id=number,
            sha256=wanted.sha256,
            state=ClaimState.COPIED if kept else ClaimState.STRIPPED,
        )

    def _references(self, wanted: SchemaVersion) -> Iterable[Reference]:
        """What it refers to, by the target's version numbers."""
        target, ours = self._ends.target, self._ends.claims.ours
        for each, key in zip(wanted.references, wanted.refers_to, strict=True):
            number = self._given[key] if key in self._given else ours[key].target_id
            uses = target.uses(key[0].context, number)
            versions = [use.version for use in uses if use.subject == key[0]]
            if not versions:
                raise SubjectStoppedError(
                    SchemaState.PENDING,
                    f"version {wanted.version} refers to {key}, which is no "
                    f"longer on {target.alias}",
                )
            yield replace(each, version=max(versions))

    def _open(self, wanted: SchemaVersion, error: RegistryError) -> None:
        """Have the subject take any version until its level is set again: on the
        source it may have had another one when this version came.
        """
        claims, target = self._ends.claims, self._ends.target
        subject = wanted.full_subject
        level = target.level(subject)
        noted = claims.before(subject, ClaimOf.LEVEL)
        if level not in {None, NONE} and (
            noted is None or level not in {noted.set, noted.before}
        ):
            raise SubjectStoppedError(
                SchemaState.REFUSED,
                f"version {wanted.version} does not fit the level {level} of the "
                f"subject on {target.alias}, which this flow has not set: {error}",
            )
        claims.note({}, {(subject, ClaimOf.LEVEL): Before(before=level, set=NONE)})
        target.set_level(subject, NONE)
        self.opened.add(subject)


def _with(sent: SchemaVersion, back: Schema) -> SchemaVersion:
    """What the registry has, at the place where it was sent."""
    return replace(sent, kind=back.kind, text=back.text, references=back.references)
