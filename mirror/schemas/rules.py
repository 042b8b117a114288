"""Which schemas a target's registry should get, and what stands in the way.

Main functions: `chosen`, what a flow copies of its source's schemas, in the target's
contexts, and `SchemaPlanner.plan`, what to write, in order. Each version keeps its
number, id and text; what would change something of others is a conflict of its subject
alone. `TranslationPlanner` plans for a registry that chooses ids itself. The inputs are
lists of both registries, and what `claims` keeps.

A version comes after those before it in its subject and after all that it refers to; it
is deleted once nothing needs it any more. What refers to itself in a circle has no
order and is stopped.
"""

from __future__ import annotations

from collections import Counter, defaultdict
import contextlib
from dataclasses import dataclass
from functools import cached_property
from graphlib import CycleError, TopologicalSorter
import re
from typing import TYPE_CHECKING

from mirror.schemas.claims import ClaimState
from mirror.schemas.registry.values import RESERVED, TRIAL, Key
from mirror.status.states import SchemaState

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping, Sequence

    from mirror.config.schema import FlowConfig
    from mirror.schemas.claims import Claim
    from mirror.schemas.registry.registry import Registry
    from mirror.schemas.registry.values import Schema, SchemaVersion, Subject

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
        return frozenset(key.subject.context for key in self.versions)


@dataclass(frozen=True, slots=True, kw_only=True)
class RegistryWrite:
    """One thing to do in the target's registry."""

    version: SchemaVersion
    """As it should be there."""
    delete: bool = False
    """Delete it softly; else register it."""
    force: bool = False
    """Its subject exists already, and others may use it."""
    target_id: int = -1
    """The id that the target has given it; -1: it is not written yet."""

    @property
    def shown_id(self) -> str:
        """The id, and what the target has given instead."""
        if self.target_id in {-1, self.version.id}:
            return str(self.version.id)
        return f"{self.version.id}, as {self.target_id}"

    @property
    def key(self) -> Key:
        return self.version.key


@dataclass(frozen=True, slots=True, kw_only=True)
class LevelChange:
    """A compatibility level that differs."""

    subject: Subject
    """On the target; without a name, the level of its context."""
    now: str | None
    """None: that of its context."""
    then: str | None


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

    @property
    def is_stopped(self) -> bool:
        """Whether something is in the way."""
        return self.state not in {SchemaState.SYNCED, SchemaState.PENDING}


@dataclass(frozen=True, slots=True, kw_only=True)
class SchemasResult:
    """What one look found, and what was done about it."""

    subjects: tuple[SubjectPlan, ...] = ()
    """Every subject that the flow copies, in order."""
    writes: tuple[RegistryWrite, ...] = ()
    """Versions written or deleted; of a plan, still to be, in this order."""
    levels: tuple[LevelChange, ...] = ()
    """Levels set; of a plan, still to be."""

    @property
    def states(self) -> Mapping[SchemaState, int]:
        """How many subjects are in each state."""
        counts = Counter(each.state for each in self.subjects)
        return {state: counts[state] for state in SchemaState}

    @property
    def problems(self) -> tuple[str, ...]:
        """Subjects that are not copied, each with its reason."""
        return tuple(
            f"schema {each.subject}: {each.reason}"
            for each in self.subjects
            if each.is_stopped
        )

    def narrowed(self, subjects: Collection[Subject]) -> SchemasResult:
        """What is about these subjects, and what they refer to; all of it, if none is
        given.
        """
        if not subjects:
            return self
        writes = narrowed(self.writes, subjects)
        asked = {*subjects, *(each.version.full_subject for each in writes)}
        return SchemasResult(
            subjects=tuple(each for each in self.subjects if each.subject in asked),
            writes=tuple(writes),
            levels=tuple(each for each in self.levels if each.subject in subjects),
        )


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


class SchemaPlanner:
    """One plan; `_stopped` grows while it is made."""

    def __init__(
        self,
        found: Chosen,
        there: Iterable[SchemaVersion],
        ours: Mapping[Key, Claim],
        flow: FlowConfig,
        *,
        owners: Mapping[Key, str],
        deletes: bool,
    ) -> None:
        """`there`: all that the target has; `ours`: what this flow claims, `owners`:
        the sources of flows that claim something else. `deletes`: whether soft deletes
        are copied.
        """
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

    def plan(self) -> SchemasResult:
        """What to write."""
        subjects: dict[Subject, list[Key]] = defaultdict(list)
        for key in self._found.versions:
            subjects[key.subject].append(key)
        for subject, keys in subjects.items():
            if not subject.has_address:
                self._stopped[subject] = (SchemaState.UNSUPPORTED, _NO_ADDRESS)
            elif why := self._conflict(subject, keys):
                self._stopped[subject] = (SchemaState.CONFLICT, why)
        writes = self._needed(subjects)
        self._stop_on_references(writes)
        writes = self._without_circles(self._going_on(writes))
        changing = {each.version.full_subject for each in writes}
        return SchemasResult(
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
            ordered = in_order(writes, self._found.versions)
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
            key = Key(subject, number)
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
        if ref.subject in self._stopped:
            state = self._stopped[ref.subject][0]
            return state, f"{what}, which is not copied: its subject is in {state}"
        if ref in self._found.others:
            left_out = (
                f"which schemas_exclude leaves out and {self._target} does not have"
            )
            return SchemaState.CONFLICT, f"{what}, {left_out}"
        return SchemaState.UNSUPPORTED, f"{what}, which {self._source} does not have"


class TranslationPlanner(SchemaPlanner):
    """For a registry that chooses ids and version numbers itself, and is asked for ids
    that its lists lack. A version is copied once its claim says so and the target still
    has the same text under the target's id. Versions that are softly deleted on the
    source are copied too, since records may have their ids, and are not deleted on the
    target.
    """

    def __init__(
        self,
        found: Chosen,
        there: Iterable[SchemaVersion],
        ours: Mapping[Key, Claim],
        flow: FlowConfig,
        target: Registry,
    ) -> None:
        super().__init__(found, there, ours, flow, owners={}, deletes=False)
        self._registry = target
        self._asked: dict[tuple[str, int], Schema | None] = {}
        self._texts: dict[Subject, set[str]] = defaultdict(set)
        """Digests of what each subject has on the source, and of what we wrote."""
        for key, version in (*found.versions.items(), *found.others.items()):
            self._texts[key.subject].add(version.sha256)
        for key, claim in ours.items():
            self._texts[key.subject].add(claim.sha256)

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
            copy = self._there[Key(subject, number)]
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


_Node = tuple[Key, bool]
"""A version, and whether it is its deletion."""


def in_order(
    writes: Iterable[RegistryWrite], versions: Mapping[Key, SchemaVersion]
) -> list[RegistryWrite]:
    """Those that have an order. `versions`: all that the flow copies."""
    by_node: dict[_Node, RegistryWrite] = {
        (each.key, each.delete): each for each in writes
    }
    after: dict[_Node, set[_Node]] = {node: set() for node in by_node}
    previous: dict[Subject, Key] = {}
    for key, deleting in sorted(by_node):
        if deleting:
            after[key, True].add((key, False))
            continue
        after[key, False] |= {(ref, False) for ref in versions[key].refers_to}
        before = previous.get(key.subject)
        if before is not None:
            after[key, False].add((before, False))
            if versions[before].is_same(versions[key]):
                # While that one is not deleted, registries answer with it.
                after[key, False].add((before, True))
        previous[key.subject] = key
    for key, version in versions.items():
        for ref in version.refers_to:
            if (ref, True) in after and ref.subject != key.subject:
                # Registries do not delete what something refers to.
                after[ref, True] |= {(key, False), (key, True)}
    return [by_node[node] for node in _sorted(after)]


def narrowed(
    writes: Sequence[RegistryWrite], subjects: Collection[Subject]
) -> list[RegistryWrite]:
    """Those of these subjects and what they refer to, in the same order; of all, if
    none is given.
    """
    if not subjects:
        return list(writes)
    by_key = {each.key: each for each in writes}
    ahead = [key for key in by_key if key.subject in subjects]
    wanted: set[Key] = set()
    while ahead:
        key = ahead.pop()
        if key not in wanted and key in by_key:
            wanted.add(key)
            ahead += by_key[key].version.refers_to
    return [each for each in writes if each.key in wanted]


def _sorted(after: Mapping[_Node, set[_Node]]) -> list[_Node]:
    """Each after those that it comes after, as far as these are among them; without
    circles and what is behind one.
    """
    sorter = TopologicalSorter(
        {node: befores & after.keys() for node, befores in after.items()}
    )
    with contextlib.suppress(CycleError):  # the rest can still be sorted
        sorter.prepare()
    found: list[_Node] = []
    while ready := sorted(sorter.get_ready()):
        found += ready
        sorter.done(*ready)
    return found
