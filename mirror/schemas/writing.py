"""Writes versions into a target's schema registry, with their ids or the target's.

Main type: `SchemaWriter`. It notes what it is about to write, puts the subject into
IMPORT, makes sure that id and number are free, registers, and reads back. What goes
wrong with one version stops its subject and what refers to it; a registry that does not
answer stops everything. `SchemaTranslator` takes the ids that the registry chooses: the
claims have both.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from mirror.errors import RegistryError
from mirror.schemas.claims import Before, Claim, ClaimOf, ClaimState
from mirror.schemas.registry.values import Mode
from mirror.status.states import SchemaState

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from mirror.schemas.comparing import RegistryPair
    from mirror.schemas.registry.values import (
        Key,
        Reference,
        Schema,
        SchemaVersion,
        Subject,
    )
    from mirror.schemas.rules import RegistryWrite

NONE = "NONE"
"""The level that takes any version."""
_INCOMPATIBLE = 409
"""A registry's answer to a version that the subject's level forbids."""
_ABOUT_ONE = frozenset({401, 403, 409, 422})
"""What registries answer to a request that they understand and refuse."""
_TOGETHER = 500
"""Versions whose claims are noted together."""
_MOST_FAILURES = 20
"""In a row: then a registry that can be read, as without a leader, takes no writes."""


class SubjectStoppedError(Exception):
    """A subject cannot go on after one of its versions, of which `what` is so."""

    def __init__(self, state: SchemaState, version: SchemaVersion, what: str) -> None:
        self.state = state
        self.reason = f"version {version.version} {what}"
        super().__init__(self.reason)


class SchemaWriter:
    """One run over one flow's writes."""

    def __init__(self, registries: RegistryPair) -> None:
        self.done: list[RegistryWrite] = []
        """What the target has now, in the order of writing."""
        self.stopped: dict[Subject, tuple[SchemaState, str]] = {}
        """Subjects that went wrong."""
        self.opened: set[Subject] = set()
        """Subjects that take any version until their levels are set."""
        self._flow, self._going_on = registries.flow, registries.going_on
        self._source, self._target = registries.source, registries.target
        self._claims = registries.claims
        self._importing: set[Subject] = set()
        self._numbers: dict[Subject, frozenset[int]] = {}
        """What subjects had before we wrote to them."""
        self._no_modes = ""
        """Why the registry cannot keep ids."""
        self._failed: set[Key] = set()
        self._failures = 0
        """In a row, of a kind that may pass."""

    def write(self, writes: Sequence[RegistryWrite]) -> None:
        """Write them in this order, as far as possible.

        Raises:
            MirrorError: a registry or the target's cluster does not answer.
        """
        for first in range(0, len(writes), _TOGETHER):
            if not self._going_on():
                return  # and note nothing: someone else may have opened the registry
            some = writes[first : first + _TOGETHER]
            self._prepare(some)
            done: dict[Key, Claim] = {}
            try:
                for each in some:
                    if not self._going_on():
                        return
                    self._try(each, done)
            finally:
                self._claims.note(done)

    def _prepare(self, writes: Sequence[RegistryWrite]) -> None:
        """Note the claims and the modes, then change the modes."""
        claims, known = self._claims, self._claims.ours
        changed = claims.modes
        modes: dict[Subject, Mode | None] = {}
        for each in writes:
            subject = each.version.full_subject
            if any(subject in some for some in (self._importing, self.stopped, modes)):
                continue
            mode = self._mode(subject)
            if subject not in self.stopped:
                modes[subject] = mode
        claims.note(
            {
                each.key: _claim(each.version, ClaimState.CLAIMED)
                for each in writes
                if not each.delete and each.version.full_subject not in self.stopped
                if each.key not in known or not known[each.key].fits(each.version)
            },
            {
                (subject, ClaimOf.MODE): Before(before=mode, set=Mode.IMPORT)
                for subject, mode in modes.items()
                if mode is not Mode.IMPORT and subject not in changed
            },
        )
        force = {each.version.full_subject: each.force for each in writes}
        for subject, mode in modes.items():
            if not self._going_on():
                return
            if mode is not Mode.IMPORT:
                self._mode(subject, force=force[subject])
            if subject not in self.stopped:
                self._importing.add(subject)

    def _mode(self, subject: Subject, *, force: bool | None = None) -> Mode | None:
        """The mode of a subject, after it was put into IMPORT if `force` is given. If
        that fails it is stopped; so are all others, without being asked for, if the
        registry has no modes.
        """
        target, found = self._target, None
        try:
            if not self._no_modes and force is not None:
                target.set_mode(subject, Mode.IMPORT, force=force)
            if not self._no_modes:
                found = target.mode(subject)
                if force is not None and found is not Mode.IMPORT:
                    self._no_modes = "it does not keep that mode"
            if force is not None:
                self._failures = 0
        except RegistryError as error:
            self._raise_if_down(error)
            if error.retriable or error.status in _ABOUT_ONE:
                why = f"it cannot be put into mode IMPORT: {error}"
                self.stopped[subject] = (SchemaState.REFUSED, why)
            else:
                self._no_modes = str(error)
        if self._no_modes:
            why = f"the registry of {target.alias} has no mode IMPORT, so no ids can be"
            why += f" kept, only translated (schemas_ids): {self._no_modes}"
            self.stopped[subject] = (SchemaState.UNSUPPORTED, why)
        return found

    def _try(self, write: RegistryWrite, done: dict[Key, Claim]) -> None:
        subject = write.version.full_subject
        if subject in self.stopped:
            self._failed.add(write.key)
            return
        try:
            self._check_references(write)
            claim = self._delete(write) if write.delete else self._register(write)
        except SubjectStoppedError as error:
            self.stopped[subject] = (error.state, error.reason)
        except RegistryError as error:
            self._raise_if_down(error)
            self.stopped[subject] = (
                SchemaState.REFUSED,
                f"version {write.version.version}: {error}",
            )
        else:
            done[write.key] = claim
            self.done.append(replace(write, target_id=claim.target_id))
            self._failures = 0
            return
        self._failed.add(write.key)

    def _raise_if_down(self, error: RegistryError) -> None:
        """A registry that answers nothing else either, or fails again and again, is a
        matter of all subjects.

        Raises:
            RegistryError: it does not answer, or fails.
        """
        if error.retriable:
            self._failures += 1
            if self._failures >= _MOST_FAILURES:
                raise error
            self._source.contexts()
            self._target.contexts()

    def _check_references(self, write: RegistryWrite) -> None:
        for ref in write.version.refers_to:
            if ref in self._failed and not write.delete:
                state = self.stopped[ref[0]][0]
                what = (
                    f"refers to {ref}, which is not copied: its subject is in {state}"
                )
                raise SubjectStoppedError(state, write.version, what)

    def _delete(self, write: RegistryWrite) -> Claim:
        target, wanted = self._target, write.version
        subject = wanted.full_subject
        if not self._now(wanted).deleted:
            # A list that changes while it is read may lack what is there.
            what = f"is not deleted on {self._source.alias}"
            raise SubjectStoppedError(SchemaState.PENDING, wanted, what)
        there = target.schema(subject, wanted.version)
        if there and (there.id != wanted.id or not there.is_same(wanted)):
            what = f"is another one on {target.alias} now"
            raise SubjectStoppedError(SchemaState.CONFLICT, wanted, what)
        target.delete(subject, wanted.version)
        back = target.schema(subject, wanted.version)
        if back is not None and not back.deleted:
            what = "is still there after its deletion"
            raise SubjectStoppedError(SchemaState.REFUSED, wanted, what)
        return _claim(wanted, ClaimState.DELETED)

    def _register(self, write: RegistryWrite) -> Claim:
        target, subject = self._target, write.version.full_subject
        wanted = self._now(write.version)
        if subject not in self._numbers:  # in IMPORT, so no application adds any
            self._numbers[subject] = frozenset(target.numbers(subject))
        there = None
        if wanted.version in self._numbers[subject]:
            there = target.schema(subject, wanted.version)
        if there is None:
            self._check_id(wanted)
            try:
                target.register(wanted)
            except RegistryError:
                # A slot and the job may write one version at the same time.
                if target.schema(subject, wanted.version) is None:
                    raise
            there = target.schema(subject, wanted.version)
        if there is None or there.id != wanted.id or not there.is_same(wanted):
            what = self._differs(wanted, there)
            raise SubjectStoppedError(SchemaState.UNSUPPORTED, wanted, what)
        return _claim(wanted, _kept(wanted, there))

    def _now(self, listed: SchemaVersion) -> SchemaVersion:
        """The version as the source has it now, with what lists leave out."""
        context = self._flow.schemas_context
        subject = listed.full_subject.from_below(context)
        found = self._source.schema(subject, listed.version)
        alias = self._source.alias
        if found is None:
            what = f"is no longer on {alias}"
            raise SubjectStoppedError(SchemaState.PENDING, listed, what)
        moved = found.below(context)
        if moved.id != listed.id or not moved.is_same(listed):
            what = f"has changed on {alias}"
            raise SubjectStoppedError(SchemaState.PENDING, listed, what)
        return moved

    def _check_id(self, wanted: SchemaVersion) -> None:
        """Some registries would give the id to the new text."""
        held = self._target.by_id(wanted.context, wanted.id)
        if held is None or held.has_text_of(wanted):
            return
        uses = self._target.uses(wanted.context, wanted.id)
        where = ", ".join(map(str, uses[:3])) or "another schema"
        raise SubjectStoppedError(
            SchemaState.CONFLICT,
            wanted,
            f"has id {wanted.id} on {self._source.alias}, which is {where} on "
            f"{self._target.alias}",
        )

    def _differs(self, wanted: SchemaVersion, there: SchemaVersion | None) -> str:
        alias = self._target.alias
        if there is None:
            return (
                f"is not on {alias} after it was written: the registry takes its text "
                "for that of another version"
            )
        if there.id != wanted.id:
            return (
                f"has id {there.id} on {alias} after it was written with id {wanted.id}"
            )
        return (
            f"has another text on {alias} than was written: the registry does not keep "
            "texts byte for byte"
        )


class SchemaTranslator(SchemaWriter):
    """A `SchemaWriter` that takes the ids that the target's registry answers."""

    def __init__(self, registries: RegistryPair) -> None:
        super().__init__(registries)
        self._given: dict[Key, int] = {}
        """The target's ids of what this run wrote."""

    def _prepare(self, writes: Sequence[RegistryWrite]) -> None:
        """Note the claims; modes stay as they are."""
        known = self._claims.ours
        claims = {
            each.key: _claim(each.version, ClaimState.CLAIMED, -1)
            for each in writes
            if each.version.full_subject not in self.stopped
        }
        self._claims.note(
            {key: claim for key, claim in claims.items() if known.get(key) != claim}
        )

    def _register(self, write: RegistryWrite) -> Claim:
        target, wanted = self._target, self._now(write.version)
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
                wanted,
                f"got id {number} on {target.alias}, which is {what} there: the "
                "registry does not keep texts byte for byte, or takes this one for "
                "another schema",
            )
        self._given[write.key] = number
        return _claim(wanted, _kept(wanted, back), number)

    def _references(self, wanted: SchemaVersion) -> Iterable[Reference]:
        """What it refers to, by the target's version numbers."""
        target, ours = self._target, self._claims.ours
        for each, key in zip(wanted.references, wanted.refers_to, strict=True):
            number = self._given[key] if key in self._given else ours[key].target_id
            uses = target.uses(key.subject.context, number)
            versions = [use.number for use in uses if use.subject == key.subject]
            if not versions:
                what = f"refers to {key}, which is no longer on {target.alias}"
                raise SubjectStoppedError(SchemaState.PENDING, wanted, what)
            yield replace(each, version=max(versions))

    def _open(self, wanted: SchemaVersion, error: RegistryError) -> None:
        """Have the subject take any version until its level is set again: on the
        source it may have had another one when this version came.
        """
        claims, target = self._claims, self._target
        subject = wanted.full_subject
        level = target.level(subject)
        noted = claims.before(subject, ClaimOf.LEVEL)
        if level not in {None, NONE} and (
            noted is None or level not in {noted.set, noted.before}
        ):
            raise SubjectStoppedError(
                SchemaState.REFUSED,
                wanted,
                f"does not fit the level {level} of the subject on {target.alias}, "
                f"which this flow has not set: {error}",
            )
        claims.note({}, {(subject, ClaimOf.LEVEL): Before(before=level, set=NONE)})
        target.set_level(subject, NONE)
        self.opened.add(subject)


def _with(sent: SchemaVersion, back: Schema) -> SchemaVersion:
    """What the registry has, at the place where it was sent."""
    return replace(sent, kind=back.kind, text=back.text, references=back.references)


def _claim(
    version: SchemaVersion, state: ClaimState, target_id: int | None = None
) -> Claim:
    """`target_id`: None: the same."""
    return Claim(
        id=version.id,
        target_id=version.id if target_id is None else target_id,
        sha256=version.sha256,
        state=state,
    )


def _kept(wanted: Schema, there: Schema) -> ClaimState:
    """How much of a version the registry has kept, besides its text."""
    kept = (there.metadata, there.rule_set) == (wanted.metadata, wanted.rule_set)
    return ClaimState.COPIED if kept else ClaimState.STRIPPED
