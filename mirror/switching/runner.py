"""Carries out a run step by step, and keeps the journals of both clusters.

Main type: `Operator`, the only one of a pair: opening the journals fences earlier ones,
which then cannot write what they do next. Each step is noted before it begins and when
it is done, on the target first, so the target's journal alone can finish a run and
either one can undo it. If a step fails before the point of no return, or producers are
blocked for too long, what was done is undone.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
import getpass
import os
import socket
import time
from types import MappingProxyType
from typing import TYPE_CHECKING
import uuid

from mirror.errors import FencedError, MirrorError, UnreachableError
from mirror.recovery import roles
from mirror.recovery.journal import Entry, JournalWriter, Kind, StepState
from mirror.switching import procedure
from mirror.switching.stage import Stage, StepError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from mirror.clusters.cluster import Cluster
    from mirror.config.pair_settings import PairConfig
    from mirror.recovery.roles import Role, Run
    from mirror.switching.stage import Done, Notes, Step


@dataclass(frozen=True, slots=True, kw_only=True)
class Terms:
    """What the user asked for."""

    step_seconds: float
    """How long each step may wait."""
    tell: Callable[[str, str], None]
    """Gets a step and what it waits for."""
    did: Callable[[str, Done, float], None]
    """Gets a step that is done, and the seconds it took."""


class Operator:
    """Carries out one run of a pair. Not thread-safe."""

    def __init__(
        self,
        pair: PairConfig,
        kind: Kind,
        source: tuple[str, Cluster | None],
        target: tuple[str, Cluster | None],
    ) -> None:
        """Fences earlier operators. `source` and `target`: alias and cluster; no
        cluster if it does not answer.

        Raises:
            MirrorError: this cannot be done now, or a cluster refuses.
        """
        self._pair = pair
        self._kind = kind
        self._ends = (source[0], target[0])
        self._by = f"{_user()}@{socket.gethostname()}"
        clusters = [each for each in (target[1], source[1]) if each is not None]
        self._journals = [JournalWriter(each, pair.name) for each in clusters]
        self._read()
        self.due = procedure.is_due(kind, *self._ends, role=self.role, run=self.run)
        """Whether there is anything to do."""

    def _read(self) -> None:
        entries = roles.merged(
            *(journal.entries() for journal in self._journals), pair=self._pair.name
        )
        self.role: Role = roles.role(entries, self._pair)
        self.run: Run | None = roles.open_run(entries)

    def carry_out(self, steps: Mapping[str, Step], stage: Stage, terms: Terms) -> None:
        """Do all steps that are left.

        Raises:
            MirrorError: a step failed. Before the point of no return, everything was
                undone, unless the text says otherwise.
        """
        if self.run is not None and procedure.gives_way(
            self.run, self._kind, self._ends[0]
        ):
            self._note(roles.END, StepState.UNDONE, {"instead": str(self._kind)})
            self.run = None
        for name in procedure.left(self.run):
            began = time.monotonic()
            try:
                self._note(name, StepState.BEGUN, {})
                done = steps[name].do(self._staged(stage, name, terms))
                self._note(name, StepState.DONE, done.notes)
            except FencedError:
                raise
            except MirrorError as error:
                raise self._given_up(steps, stage, terms, name, error) from error
            terms.did(name, done, time.monotonic() - began)
        self._note(roles.END, StepState.DONE, {})

    def undo(
        self, steps: Mapping[str, Step], stage: Stage, terms: Terms
    ) -> list[tuple[str, str]]:
        """Undo what an open run has done; returns for each step what is so now.

        Raises:
            MirrorError: nothing can be undone, or a step could not be: try again.
        """
        if self.run is None:
            raise MirrorError(f"no run of {self._pair.name} is open")
        undone, failures = [], []
        for name in procedure.undoing(self.run):
            try:
                text = steps[name].undo(self._staged(stage, name, terms))
            except FencedError:
                raise
            except MirrorError as error:  # the other steps matter all the more
                failures.append(f"step {name}: {error}")
                continue
            self._note_where_possible(name, StepState.UNDONE)
            undone.append((name, text))
        if failures:
            raise MirrorError("; ".join(failures))
        self._note_where_possible(roles.END, StepState.UNDONE)
        return undone

    def _given_up(
        self,
        steps: Mapping[str, Step],
        stage: Stage,
        terms: Terms,
        name: str,
        error: MirrorError,
    ) -> StepError:
        """Undo everything, if that is still possible; returns what to tell."""
        self._note_where_possible(name, StepState.FAILED, {"error": str(error)})
        failed = f"step {name} failed: {error}"
        if self._require_run().state(roles.ROLE) is StepState.DONE:
            return StepError(f"{failed}. Run the same command again to go on")
        if self._kind is Kind.FAILOVER:
            return StepError(
                f"{failed}. Run the same command again to go on, or with --abort to "
                "give up"
            )
        try:
            self.undo(steps, stage, terms)
        except MirrorError as other:
            return StepError(
                f"{failed}. It could not be undone ({other}): producers may still be "
                "blocked; run the same command with --abort"
            )
        return StepError(f"{failed}. Everything was undone")

    def _staged(self, stage: Stage, name: str, terms: Terms) -> Stage:
        """The stage for one step."""
        run = self._require_run()
        deadline = time.monotonic() + terms.step_seconds
        blocked = procedure.blocked_since(run)
        if self._kind is Kind.SWITCH and name != procedure.BLOCKS[-1] and blocked:
            # What is left of the time for which producers may be blocked.
            left = blocked + self._pair.block_seconds - time.time()
            deadline = min(deadline, time.monotonic() + left)
        return replace(
            stage,
            notes={step: run.details(step) for step in procedure.STEPS},
            note=lambda notes: self._note(name, StepState.BEGUN, notes),
            tell=lambda text: terms.tell(name, text),
            deadline=deadline,
        )

    def _require_run(self) -> Run:
        assert self.run is not None, "a step has begun"
        return self.run

    def _note(self, step: str, state: StepState, notes: Notes) -> None:
        """Write to both journals; the entry becomes a part of the run.

        Raises:
            FencedError: a later operator took over.
            MirrorError: a journal cannot be written: run the command again.
        """
        entry = self._entry(step, state, notes)
        for journal in self._journals:
            journal.write(entry)
        self._add(entry)

    def _note_where_possible(
        self, step: str, state: StepState, notes: Notes = MappingProxyType({})
    ) -> None:
        """The same on the way back, where one cluster may be gone. Its journal gets
        the entries from the other one, once it answers.

        Raises:
            FencedError: a later operator took over.
            MirrorError: no journal can be written.
        """
        entry = self._entry(step, state, notes)
        for journal in tuple(self._journals):
            try:
                journal.write(entry)
            except UnreachableError:
                self._journals.remove(journal)
                if not self._journals:
                    raise
        self._add(entry)

    def _add(self, entry: Entry) -> None:
        before = self.run.entries if self.run is not None else ()
        self.run = roles.Run(entries=(*before, entry))

    def _entry(self, step: str, state: StepState, notes: Notes) -> Entry:
        run = self.run
        return Entry(
            pair=self._pair.name,
            run=run.first.run if run is not None else uuid.uuid4().hex,
            number=procedure.number(run.entries if run is not None else ()),
            kind=run.first.kind if run is not None else self._kind,
            epoch=run.first.epoch if run is not None else self.role.epoch + 1,
            source=self._ends[0],
            target=self._ends[1],
            step=step,
            state=state,
            at=time.time(),
            by=self._by,
            details=notes,
        )


def _user() -> str:
    try:
        return getpass.getuser()
    except (KeyError, OSError):  # a container's user may have no name
        return str(os.getuid())
