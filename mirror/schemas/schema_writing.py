"""Writes versions into a target's schema registry, each with its id and number.

Main type: `SchemaWriter`. It notes what it is about to write, puts the subject into
IMPORT, makes sure that id and number are free, registers, and reads back. What goes
wrong with one version stops its subject and what refers to it; a registry that does not
answer stops everything.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from mirror.errors import RegistryError
from mirror.schemas.registry.values import Mode, Subject
from mirror.schemas.schema_claims import Before, Claim, ClaimOf, ClaimState
from mirror.status.states import SchemaState

if TYPE_CHECKING:
    from collections.abc import Sequence

    from mirror.schemas.registry.values import Key, SchemaVersion
    from mirror.schemas.schema_ends import Ends
    from mirror.schemas.schema_order import RegistryWrite

_ABOUT_ONE = frozenset({401, 403, 409, 422})
"""What registries answer to a request that they understand and refuse."""
_TOGETHER = 500
"""Versions whose claims are noted together."""
_MOST_FAILURES = 20
"""In a row: then a registry that can be read, as without a leader, takes no writes."""


class SchemaWriter:
    """One run over one flow's writes."""

    def __init__(self, ends: Ends) -> None:
        self.done: list[RegistryWrite] = []
        """What the target has now, in the order of writing."""
        self.stopped: dict[Subject, tuple[SchemaState, str]] = {}
        """Subjects that went wrong."""
        self.opened: set[Subject] = set()
        """Subjects that take any version until their levels are set."""
        self._ends = ends
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
            if not self._ends.going_on():
                return  # and note nothing: someone else may have opened the registry
            some = writes[first : first + _TOGETHER]
            self._prepare(some)
            done: dict[Key, Claim] = {}
            try:
                for each in some:
                    if not self._ends.going_on():
                        return
                    self._try(each, done)
            finally:
                self._ends.claims.note(done)

    def _prepare(self, writes: Sequence[RegistryWrite]) -> None:
        """Note the claims and the modes, then change the modes."""
        claims, known = self._ends.claims, self._ends.claims.ours
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
            if not self._ends.going_on():
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
        target, found = self._ends.target, None
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
            self._ends.source.contexts()
            self._ends.target.contexts()

    def _check_references(self, write: RegistryWrite) -> None:
        for ref in write.version.refers_to:
            if ref in self._failed and not write.delete:
                state = self.stopped[ref[0]][0]
                raise SubjectStoppedError(
                    state,
                    f"version {write.version.version} refers to {ref}, which "
                    f"is not copied: its subject is in {state}",
                )

    def _delete(self, write: RegistryWrite) -> Claim:
        target, subject = self._ends.target, write.version.full_subject
        if not self._now(write.version).deleted:
            # A list that changes while it is read may lack what is there.
            raise SubjectStoppedError(
                SchemaState.PENDING,
                f"version {write.version.version} is not deleted on "
                f"{self._ends.source.alias}",
            )
        there = target.schema(subject, write.version.version)
        if there and (there.id != write.version.id or not there.is_same(write.version)):
            raise SubjectStoppedError(
                SchemaState.CONFLICT,
                f"version {write.version.version} is another one on {target.alias} now",
            )
        target.delete(subject, write.version.version)
        back = target.schema(subject, write.version.version)
        if back is not None and not back.deleted:
            raise SubjectStoppedError(
                SchemaState.REFUSED,
                f"version {write.version.version} is still there after its deletion",
            )
        return _claim(write.version, ClaimState.DELETED)

    def _register(self, write: RegistryWrite) -> Claim:
        target, subject = self._ends.target, write.version.full_subject
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
            raise SubjectStoppedError(
                SchemaState.UNSUPPORTED, self._differs(wanted, there)
            )
        kept = (there.metadata, there.rule_set) == (wanted.metadata, wanted.rule_set)
        return _claim(wanted, ClaimState.COPIED if kept else ClaimState.STRIPPED)

    def _now(self, listed: SchemaVersion) -> SchemaVersion:
        """The version as the source has it now, with what lists leave out."""
        context = self._ends.flow.schemas_context
        subject = listed.full_subject.from_below(context)
        found = self._ends.source.schema(subject, listed.version)
        alias = self._ends.source.alias
        if found is None:
            raise SubjectStoppedError(
                SchemaState.PENDING,
                f"version {listed.version} is no longer on {alias}",
            )
        moved = found.below(context)
        if moved.id != listed.id or not moved.is_same(listed):
            raise SubjectStoppedError(
                SchemaState.PENDING,
                f"version {listed.version} has changed on {alias}",
            )
        return moved

    def _check_id(self, wanted: SchemaVersion) -> None:
        """Some registries would give the id to the new text."""
        held = self._ends.target.by_id(wanted.context, wanted.id)
        if held is None or held.has_text_of(wanted):
            return
        uses = self._ends.target.uses(wanted.context, wanted.id)
        where = ", ".join(f"{use.subject} version {use.version}" for use in uses[:3])
        raise SubjectStoppedError(
            SchemaState.CONFLICT,
            f"version {wanted.version} has id {wanted.id} on "
            f"{self._ends.source.alias}, which is {where or 'another schema'} on "
            f"{self._ends.target.alias}",
        )

    def _differs(self, wanted: SchemaVersion, there: SchemaVersion | None) -> str:
        alias = self._ends.target.alias
        if there is None:
            return (
                f"version {wanted.version} is not on {alias} after it was written: "
                "the registry takes its text for that of another version"
            )
        if there.id != wanted.id:
            return (
                f"version {wanted.version} has id {there.id} on {alias} after it was "
                f"written with id {wanted.id}"
            )
        return (
            f"version {wanted.version} has another text on {alias} than was written: "
            "the registry does not keep texts byte for byte"
        )


class SubjectStoppedError(Exception):
    """One subject cannot go on."""

    def __init__(self, state: SchemaState, reason: str) -> None:
        self.state = state
        self.reason = reason
        super().__init__(reason)


def _claim(version: SchemaVersion, state: ClaimState) -> Claim:
    return Claim(
        id=version.id, target_id=version.id, sha256=version.sha256, state=state
    )
