"""Which schemas a target's registry should get, and what stands in the way.

Main functions: `chosen`, what a flow copies of its source's schemas, in the target's
contexts, and `plan`, what to write. Each version keeps its number, id and text; what
would change something of others is a conflict of its subject alone. `schema_order` has
the order. Pure: the inputs are lists of both registries, and what `schema_claims`
keeps.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from functools import cached_property
import re
from typing import TYPE_CHECKING

from mirror.schemas import schema_order
from mirror.schemas.registry.values import RESERVED, TRIAL, Key
from mirror.schemas.schema_claims import ClaimState
from mirror.schemas.schema_order import RegistryWrite
from mirror.status.states import SchemaState

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping, Sequence

    from mirror.config.schema import FlowConfig
    from mirror.schemas.registry.values import SchemaVersion, Subject
    from mirror.schemas.schema_claims import Claim

_NO_ADDRESS = (
    "its name cannot stand in an address: requests would be about the whole registry; "
    "leave it out with schemas_exclude"
)
WAYS_OUT = "use schemas_context, or leave the subject out with schemas_exclude"
_ID_WAYS_OUT = f"use schemas_ids: translate, {WAYS_OUT.removeprefix('use ')}"


@dataclass(frozen=True, kw_only=True)
class Chosen:
    """The schemas of a source, in the target's contexts."""

    versions: Mapping[Key, SchemaVersion]
    """Those that the flow copies."""
    others: Mapping[Key, SchemaVersion]
    """Those that it leaves out."""

    @cached_property
    def contexts(self) -> frozenset[str]:
        """Those of what the flow copies."""
        return frozenset(key[0].context for key in self.versions)


@dataclass(frozen=True, slots=True, kw_only=True)
class SubjectPlan:
    """One subject that a flow copies."""

    subject: Subject
    """On the target."""
    state: SchemaState
    reason: str = ""
    """What is in the way, or what differs and is left alone."""
    versions: int
    """How many the target should have."""
    there: int
    """How many of them it has."""
    first_id: int
    last_id: int


@dataclass(frozen=True, slots=True, kw_only=True)
class SchemaPlan:
    """What to do in the target's registry."""

    subjects: tuple[SubjectPlan, ...] = ()
    writes: tuple[RegistryWrite, ...] = ()
    """In this order."""


def chosen(versions: Iterable[SchemaVersion], flow: FlowConfig) -> Chosen:
    """The versions whose subjects match, and what these refer to unless that is
    excluded.
    """
    named: dict[Key, SchemaVersion] = {}
    ahead: list[Key] = []
    excluded: set[Key] = set()
    for each in versions:
        moved = each.below(flow.schemas_context)
        key = moved.key
        named[key] = moved
        own = each.subject == RESERVED or each.subject.startswith(TRIAL)
        if own or _matches(each, flow.schemas_exclude):
            excluded.add(key)
        elif _matches(each, flow.schemas_subjects):
            ahead.append(key)
    picked: dict[Key, SchemaVersion] = {}
    while ahead:
        key = ahead.pop()
        if key in picked or key not in named:
            continue
        picked[key] = named[key]
        ahead += [ref for ref in named[key].refers_to if ref not in excluded]
    return Chosen(
        versions=dict(sorted(picked.items())),
        others={key: each for key, each in named.items() if key not in picked},
    )


def copies_all(flow: FlowConfig) -> bool:
    """Whether the flow copies every subject, also those that are still to come."""
    return ".*" in flow.schemas_subjects and not flow.schemas_exclude


def _matches(version: SchemaVersion, patterns: Iterable[str]) -> bool:
    """By the whole subject: its name alone, or with its context."""
    names = {version.subject, version.full_subject.qualified}
    return any(re.fullmatch(pattern, name) for pattern in patterns for name in names)


def plan(
    found: Chosen,
    there: Iterable[SchemaVersion],
    *,
    ours: Mapping[Key, Claim],
    owners: Mapping[Key, str],
    flow: FlowConfig,
    deletes: bool,
) -> SchemaPlan:
    """What to write. `there`: all that the target has; `ours`: what this flow claims,
    `owners`: the sources of flows that claim something else. `deletes`: whether soft
    deletes are copied.
    """
    return SchemaPlanner(found, there, ours, owners, flow, deletes=deletes).plan()


class SchemaPlanner:
    """One plan; `_stopped` grows while it is made. `schema_translation` has another."""

    def __init__(
        self,
        found: Chosen,
        there: Iterable[SchemaVersion],
        ours: Mapping[Key, Claim],
        owners: Mapping[Key, str],
        flow: FlowConfig,
        *,
        deletes: bool,
    ) -> None:
        self._found = found
        self._ours, self._owners = ours, owners
        self._source, self._target = flow.source, flow.target
        self._deletes = deletes
        self._there = {each.key: each for each in there}
        self._by_id: dict[tuple[str, int], SchemaVersion] = {}
        self._numbers: dict[Subject, list[int]] = defaultdict(list)
        for (subject, number), each in sorted(self._there.items()):
            self._by_id.setdefault((each.context, each.id), each)
            self._numbers[subject].append(number)
        self._stopped: dict[Subject, tuple[SchemaState, str]] = {}
        self._remarks: dict[Subject, list[str]] = defaultdict(list)

    def plan(self) -> SchemaPlan:
        subjects: dict[Subject, list[Key]] = defaultdict(list)
        for key in self._found.versions:
            subjects[key[0]].append(key)
        for subject, keys in subjects.items():
            if not subject.has_address:
                self._stopped[subject] = (SchemaState.UNSUPPORTED, _NO_ADDRESS)
            elif why := self._conflict(subject, keys):
                self._stopped[subject] = (SchemaState.CONFLICT, why)
        writes = self._needed(subjects)
        self._stop_on_references(writes)
        writes = self._without_circles(self._going_on(writes))
        changing = {each.version.full_subject for each in writes}
        return SchemaPlan(
            writes=tuple(writes),
            subjects=tuple(
                self._subject(subject, keys, changing)
                for subject, keys in subjects.items()
            ),
        )

    def _going_on(self, writes: Iterable[RegistryWrite]) -> list[RegistryWrite]:
        return [w for w in writes if w.version.full_subject not in self._stopped]

    def _without_circles(self, writes: list[RegistryWrite]) -> list[RegistryWrite]:
        """In order; what is in a circle of references, or behind one, is stopped."""
        while True:
            ordered = schema_order.in_order(writes, self._found.versions)
            if left := set(writes) - set(ordered):
                for each in left:
                    why = (
                        f"version {each.version.version} refers to itself through "
                        "others, so none of them can be written first"
                    )
                    subject = each.version.full_subject
                    self._stopped[subject] = (SchemaState.UNSUPPORTED, why)
                self._stop_on_references(writes)
                writes = self._going_on(writes)
            else:
                return ordered

    def _subject(
        self, subject: Subject, keys: Sequence[Key], changing: Collection[Subject]
    ) -> SubjectPlan:
        wanted = [self._found.versions[key] for key in keys]
        state = SchemaState.PENDING if subject in changing else SchemaState.SYNCED
        state, reason = self._stopped.get(subject, (state, ""))
        return SubjectPlan(
            subject=subject,
            state=state,
            reason=reason or "; ".join(self._remarks[subject]),
            versions=len(wanted),
            there=sum(map(self._has, wanted)),
            first_id=min(each.id for each in wanted),
            last_id=max(each.id for each in wanted),
        )

    def _has(self, wanted: SchemaVersion) -> bool:
        copy = self._there.get(wanted.key)
        return copy is not None and copy.id == wanted.id and copy.is_same(wanted)

    def _conflict(self, subject: Subject, keys: Sequence[Key]) -> str:
        """What the target has in the way of a subject; empty: nothing."""
        source, target = self._source, self._target
        for key in keys:
            wanted, copy = self._found.versions[key], self._there.get(key)
            where = f"version {wanted.version} has id {wanted.id} on {source}"
            if copy is None:
                held = self._by_id.get((wanted.context, wanted.id))
                if held is not None and not held.is_same(wanted):
                    return f"{where}, which is {held.key} on {target}; " + (
                        _ID_WAYS_OUT
                    )
            elif copy.id != wanted.id:
                return f"{where} and {copy.id} on {target}; {_ID_WAYS_OUT}"
            elif not copy.is_same(wanted):
                return f"{where} and {target}, with different texts; {WAYS_OUT}"
        versions, others = self._found.versions, self._found.others
        for number in self._numbers.get(subject, ()):
            key = (subject, number)
            if not (key in versions or key in others or self._is_ours(key)):
                owner = self._owners.get(key)
                whose = f"a copy from {owner}" if owner else f"not on {source}"
                return f"version {number} on {target} is {whose}; {WAYS_OUT}"
        return ""

    def _is_ours(self, key: Key) -> bool:
        """Whether this flow wrote what the target has there."""
        claim, copy = self._ours.get(key), self._there.get(key)
        return claim is not None and copy is not None and claim.fits(copy)

    def _needed(self, subjects: Mapping[Subject, Sequence[Key]]) -> list[RegistryWrite]:
        """What would make the target the same, in no order."""
        writes = []
        for subject, keys in subjects.items():
            if subject in self._stopped:
                continue
            force = subject in self._numbers
            for key in keys:
                wanted, copy = self._found.versions[key], self._there.get(key)
                leave = not (self._deletes and (copy is None or self._is_ours(key)))
                if copy is None:
                    writes.append(RegistryWrite(version=wanted, force=force))
                if wanted.deleted and not (copy and copy.deleted):
                    if leave:
                        self._remark(wanted, f"is deleted on {self._source} only")
                    else:
                        writes.append(
                            RegistryWrite(version=wanted, delete=True, force=force)
                        )
                claim = self._ours.get(key)
                if claim and claim.state is ClaimState.STRIPPED:
                    self._remark(wanted, f"has no metadata or rules on {self._target}")
                if copy is not None and copy.deleted and not wanted.deleted:
                    self._remark(wanted, f"is deleted on {self._target} only")
        return writes

    def _remark(self, version: SchemaVersion, text: str) -> None:
        self._remarks[version.full_subject].append(f"version {version.version} {text}")

    def _stop_on_references(self, writes: Sequence[RegistryWrite]) -> None:
        """Stop what refers to something that the target neither has nor gets."""
        stopped = True
        while stopped:
            stopped = False
            coming = [w for w in self._going_on(writes) if not w.delete]
            gets = {each.key for each in coming}
            for each in coming:
                for ref in each.version.refers_to:
                    if ref not in gets and not self._has_reference(ref):
                        self._stopped[each.version.full_subject] = self._missing(
                            each.version, ref
                        )
                        stopped = True

    def _has_reference(self, ref: Key) -> bool:
        wanted = self._found.versions.get(ref) or self._found.others.get(ref)
        return wanted is not None and self._has(wanted)

    def _missing(self, version: SchemaVersion, ref: Key) -> tuple[SchemaState, str]:
        what = f"version {version.version} refers to {ref}"
        if ref[0] in self._stopped:
            state = self._stopped[ref[0]][0]
            return state, f"{what}, which is not copied: its subject is in {state}"
        if ref in self._found.others:
            left_out = (
                f"which schemas_exclude leaves out and {self._target} does not have"
            )
            return SchemaState.CONFLICT, f"{what}, {left_out}"
        return SchemaState.UNSUPPORTED, f"{what}, which {self._source} does not have"
