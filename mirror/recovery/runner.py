"""Carries out a run step by step, and keeps the journals of both clusters.

Main type: `Operator`. It looks at the journals; once it begins it is the only one of
its two clusters, since it fences earlier ones, which then cannot write what they do
next. Each step is noted on both before it begins and when it is done, the point of no
return on the target first, so the target's journal alone can finish a run and either
one can undo it. If a step fails before that point, or producers are blocked for too
long, it is undone.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial
import time
from types import MappingProxyType
from typing import TYPE_CHECKING
import uuid

from mirror import patience
from mirror.clusters.reach import at_once
from mirror.errors import FencedError, MirrorError, UnreachableError
from mirror.host import operator_name
from mirror.pairs import journal, roles
from mirror.pairs.journal import Entry, JournalReader, JournalWriter, Kind, StepState
from mirror.pairs.roles import Epochs
from mirror.recovery import hooks, procedure
from mirror.recovery.stage import NOTHING, CutMovedError, Stage, StepError
from mirror.recovery.steps import STEPS
from mirror.service import ownership

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from mirror.clusters.cluster import Cluster
    from mirror.pairs.roles import Role, Run
    from mirror.recovery.stage import Done, Notes, Step

NewEntry = tuple[str, StepState, "Notes"]
"""What an entry says: a step, its state, and what the step keeps."""

_PAUSE_SECONDS = 0.2
_UNDONE_SECONDS = 5.0
"""How long an operator that was overtaken waits to see whether its run is undone."""
_BRIEF_SECONDS = 2.0
"""How long to wait for one journal on the way back, where the other one is enough."""


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
        stage: Stage,
        terms: Terms,
        steps: Mapping[str, Step] = STEPS,
        *,
        declares: bool = False,
    ) -> None:
        """Only looks. `declares`: it is only to `declare` that the target is active.

        Raises:
            MirrorError: this cannot be done now, or a cluster refuses.
        """
        self._stage = stage
        self._terms = terms
        self._steps = steps
        self._pair = stage.pair
        self._kind = stage.kind
        self._ends = (stage.flow.source, stage.flow.target)
        self._by = operator_name()
        ends = (stage.target_or_none, stage.source_or_none)
        self._clusters = [each for each in ends if each is not None]
        self._journals: list[JournalWriter] = []
        self._most_seconds = journal.PATIENCE_SECONDS  # for a note
        self.began = False
        """Whether this operator noted something, or was about to."""
        self._undone: tuple[Run, ...] = ()
        self._undecided = False
        """Whether the target may be active: that was written, but not seen."""
        self._declares = declares
        self._role_note = ownership.read_role_notes(stage.pair, self._clusters)
        self._readers = [JournalReader(each) for each in self._clusters]
        self._read_state(*read_journals(self._readers))

    def entries(self) -> tuple[Entry, ...]:
        """What the journals say now about the pair. Raises as `JournalReader.read`."""
        return roles.merged(*read_journals(self._readers), pair=self._pair.name)

    def _read_state(self, *journals: tuple[Entry, ...], sure: bool = False) -> None:
        """`sure`: whether all brokers agree that a cluster has a journal, or none."""
        entries = roles.merged(*journals, pair=self._pair.name)
        self.role: Role = roles.role(entries, self._pair)
        self.run: Run | None = roles.open_run(entries)
        self._older = tuple(
            each
            for each in roles.to_undo(entries, self._pair)
            if self.run is None or each.first.run != self.run.first.run
        )
        """What is undone with the run: those whose place it took, and what is pending
        since others were given up."""
        # Of each run its own, so that a note of one tells whether the journals know it.
        known = roles.epochs(entries) | self._role_note.epochs
        self._epoch = max(known.role, known.begun, roles.FIRST_EPOCH) + 1
        problem = ownership.lost_entries(self._pair, entries, self._role_note)
        if self._declares:
            self.due = bool(problem)
            return
        if problem and not sure:
            journal.await_agreement(self._clusters)
            self._readers = [JournalReader(each) for each in self._clusters]
            self._read_state(*read_journals(self._readers), sure=True)
            return
        if problem:
            raise MirrorError(problem)
        self.due = procedure.is_due(
            self._kind, *self._ends, role=self.role, run=self.run
        )
        """Whether there is anything to do."""
        beside = roles.open_in_other_pair(self._pair, *journals)
        if self.due and self.run is None and beside is not None:
            raise procedure.is_open(beside)

    def _begin(self) -> None:
        """Fence earlier operators, and look again at what they did until then. What one
        journal does not have is brought to it.

        Raises:
            MirrorError: this cannot be done any more, or a cluster refuses.
        """
        self._most_seconds = min(self._terms.step_seconds, journal.PATIENCE_SECONDS)
        pair = self._pair.name
        with patience.until(time.monotonic() + self._most_seconds):
            ends = self._clusters, self._readers
            self._journals = take_over_journals(pair, *ends)
            found = journal_entries(self._journals, seconds=self._most_seconds)
            self._read_state(*found)
            entries = roles.merged(*found, pair=pair)
            for cluster, there in zip(self._clusters, found, strict=True):
                if lacks := journal.missing(entries, there):
                    journal.copy(cluster, lacks)

    def carry_out(self) -> None:
        """Do all steps that are left; none if another operator has done them meanwhile.

        Raises:
            MirrorError: a step failed. Before the point of no return, everything was
                undone, unless the text says otherwise.
        """
        self._begin()
        if not self.due:
            return
        if self.run is not None and procedure.overruled(self.run, self.role):
            raise procedure.is_overruled(self.run)
        if self.run is not None and procedure.gives_way(
            self.run, self._kind, self._ends[0]
        ):
            self._end_for_another(self.run)
        self._do_all()

    def _do_all(self) -> None:
        left = (*procedure.left(self.run), roles.END)
        if left[0] == roles.END:
            self._note(_opening(roles.END))
        opened = False
        while len(left) > 1:
            name, following = left[:2]
            began = time.monotonic()
            try:
                if not opened:
                    self._note(_opening(name))
                    opened = True
                done = self._do(name)
                if done is None:
                    left = (*procedure.left(self.run), roles.END)
                    continue
                # At once: each note waits for brokers while producers are blocked.
                self._note((name, StepState.DONE, done.notes), _opening(following))
            except FencedError:
                raise
            except MirrorError as error:
                if self.run is None:  # nothing is noted, so nothing was done
                    raise
                raise self._given_up(name, error) from error
            self._terms.did(name, done, time.monotonic() - began)
            left = left[1:]

    def _do(self, name: str) -> Done | None:
        """Do a step; None: it has opened earlier ones again, as the cut has moved."""
        staged = self._staged(name)
        try:
            with patience.until(staged.deadline):
                return self._steps[name].do(staged)
        except CutMovedError as error:
            why = {roles.AGAIN: str(error)}
            self._note(*((step, StepState.BEGUN, why) for step in roles.OF_CUT))
            numbers = [str(roles.STEPS.index(step) + 1) for step in roles.OF_CUT]
            told = f"{', '.join(numbers[:-1])} and {numbers[-1]}"
            self._terms.tell(name, f"{error}: steps {told} again")
            return None

    def _end_for_another(self, run: Run) -> None:
        """The open run ends, as this one takes its place. If this one is given up, it
        is to be finished if it has moved; else what it did is undone.
        """
        ends = self._ends
        self._ends = run.first.source, run.first.target
        by = {roles.INSTEAD: str(self._kind)}
        if run.moved:
            self._note((roles.END, StepState.DONE, by))
        else:
            self._note((roles.END, StepState.UNDONE, by))
            self._older = (*self._older, self._require_run())
        self.run, self._ends = None, ends

    def abort(self, *, target_lost: bool = False) -> list[tuple[str, str]]:
        """Undo what an open run has done, and what it replaced, or what is pending
        since another one was given up; returns for each step what is so now.

        `target_lost`: the target does not answer, and never will.

        Raises:
            MirrorError: nothing can be undone, or a step could not be: try again.
        """
        target = self._stage.target_or_none
        answers = target_lost or target is not None
        self._require_undoable(answers=answers)
        self._begin()
        self._require_undoable(answers=answers)
        lost = False
        if self.run is not None and target is None:
            lost = procedure.may_have_moved(self.run)
        if lost:
            self._take_role_back(self._require_run())
        return self._undo(target_lost=lost)

    def _require_undoable(self, *, answers: bool) -> None:
        if self.run is not None:
            procedure.require_undoable(self.run, self.role, answers=answers)
        elif not any(each.left for each in self._older):
            raise MirrorError(f"no run of {self._pair.name} is open")

    def declare(self) -> None:
        """Only note that the target is the active cluster, by a role above all others,
        where the journals have lost entries. A run that is open there ends with that:
        it left the one cluster or goes on from the other one, as `roles.to_undo` says.

        Raises:
            MirrorError: they have not, or a cluster refuses: call it again.
        """
        self._begin()
        if not self.due:
            raise MirrorError(f"the journals of {self._pair.name} lack nothing now")
        if self.run is not None:
            ends, first = self._ends, self.run.first
            self._ends = first.source, first.target
            self._note((roles.END, StepState.UNDONE, {}))
            self.run, self._ends = None, ends
        # Where the flow back was to begin is lost as well: with the first record.
        begins: Notes = {roles.BEGINS: {}}
        done = StepState.DONE
        self._note((roles.ROLE, done, begins), (roles.END, done, {}))

    def _take_role_back(self, run: Run) -> None:
        """The target may have become active before it was lost. Should it come back, a
        newer role keeps it passive. It comes first: without it, nothing may be undone.
        """
        mine = self.run, self._kind, self._ends
        self.run, self._epoch = None, max(self._epoch, run.first.epoch + 1)
        self._kind, self._ends = Kind.FAILOVER, (self._ends[1], self._ends[0])
        instead = StepState.DONE, {roles.INSTEAD: run.first.run}
        self._note((roles.ROLE, *instead), (roles.END, *instead))
        self.run, self._kind, self._ends = mine

    def _undo(self, *, target_lost: bool = False) -> list[tuple[str, str]]:
        """The newest run first, each step with what its own run has noted."""
        undone: dict[str, str] = {}
        failures: list[str] = []
        deadline = time.monotonic() + self._terms.step_seconds  # of all of them
        given_up = self.run
        runs = self._older if given_up is None else (*self._older, given_up)
        for run in reversed(runs):
            self.run = run
            for name in run.left:
                try:
                    text = self._undo_step(name, deadline, lost=target_lost)
                except FencedError:
                    raise
                except MirrorError as error:  # the other steps matter all the more
                    failures.append(f"step {name}: {error}")
                    continue
                if name not in undone or not text.endswith(NOTHING):
                    undone[name] = text
            if run is given_up:
                given_up = self.run
        self.run, self._undone = given_up, runs
        if failures:
            raise MirrorError("; ".join(failures))
        if given_up is not None:
            self._note_where_possible(roles.END, StepState.UNDONE)
        return [*undone.items()]

    def _undo_step(self, name: str, deadline: float, *, lost: bool) -> str:
        """One step of `self.run`; returns what is so now. Where its source does not
        answer it stays pending: `owed` undoes it.
        """
        source, target = self._ends
        staged = replace(
            self._staged(name), kind=self._require_run().first.kind,
            deadline=deadline,
            note=partial(self._note_where_possible, name, StepState.BEGUN),
        )  # fmt: skip
        try:
            with patience.until(deadline):
                text = self._steps[name].undo(staged)
        except UnreachableError:
            if self._stage.source_or_none is None and name in procedure.ON_SOURCE:
                return f"pending, as {source} does not answer"
            if not lost:
                raise
            text = f"{target} is lost"
        self._note_where_possible(name, StepState.UNDONE)
        return f"undone: {text}"

    def _given_up(self, name: str, error: MirrorError) -> StepError:
        """Undo everything, if that is still possible; returns what to tell."""
        failed = f"step {name} failed: {error}"
        if self._undecided:
            return StepError(
                f"{failed}. Whether {self._ends[1]} is active is not known: run the "
                "same command again once both clusters answer"
            )
        moved = self._require_run().moved
        if not (moved and name == roles.ROLE):
            try:
                self._note_where_possible(name, StepState.FAILED, {"error": str(error)})
            except FencedError:
                raise
            except MirrorError as other:
                failed = f"{failed}. That could not be noted ({other})"
        if moved:
            return StepError(f"{failed}. Run the same command again to go on")
        if self._kind is Kind.FAILOVER:
            return StepError(
                f"{failed}. Run the same command again to go on, or with --abort to "
                "give up"
            )
        try:
            self._undo()
        except FencedError:
            raise
        except MirrorError as other:
            return StepError(
                f"{failed}. It could not be undone ({other}): producers may still be "
                "blocked; run the same command with --abort"
            )
        left = self.left and f"; {self.left}"
        return StepError(f"{failed}. Everything was undone{left}")

    @property
    def left(self) -> str:
        """What people must put right after everything was undone; empty: nothing."""
        return hooks.put_right(map(self._notes, self._undone), self._ends[0])

    @staticmethod
    def _notes(run: Run) -> Mapping[str, Notes]:
        return {step: run.details(step) for step in roles.STEPS}

    def _staged(self, name: str) -> Stage:
        """The stage for one step."""
        run = self._require_run()
        terms = self._terms
        deadline = time.monotonic() + terms.step_seconds
        blocked = procedure.blocked_since(run)
        if self._kind is Kind.SWITCH and name != roles.BLOCKS[-1] and blocked:
            # What is left of the time for which producers may be blocked.
            left = blocked + self._pair.block_seconds - time.time()
            deadline = min(deadline, time.monotonic() + left)
        return replace(
            self._stage,
            run=run.first.run,
            epochs=Epochs(role=self.role.epoch, begun=run.first.epoch),
            hold=lambda: require_place(self._journals),
            undone=partial(self._is_undone, run),
            times=procedure.times(run),
            notes=self._notes(run),
            note=lambda notes: self._note_within(name, notes),
            tell=lambda text: terms.tell(name, text),
            deadline=deadline,
        )

    def _is_undone(self, run: Run) -> bool:
        """Whether another operator has undone this run, or does so within seconds."""
        until = time.monotonic() + _UNDONE_SECONDS
        while True:
            found = roles.run_of(run.first, self.entries())
            if not found.open:
                return not found.moved
            if time.monotonic() > until:
                return False
            time.sleep(_PAUSE_SECONDS)

    def _require_run(self) -> Run:
        assert self.run is not None, "a step has begun"
        return self.run

    def _note(self, *new: NewEntry) -> None:
        """Write to both journals side by side; the entries become a part of the run.
        What step 7 notes comes to the source's only once it is in the target's: where
        that is lost before, the source's alone is enough to undo the run.

        Raises:
            FencedError: a later operator took over.
            MirrorError: a journal cannot be written: run the command again.
        """
        entries = self._entries(*new)
        for each in self._journals:
            each.require_room(*entries)
        states = {each.step: each.state for each in entries}
        in_turn = [[each] for each in self._journals]
        for journals in in_turn if roles.ROLE in states else [self._journals]:
            errors = write_journals(journals, entries, seconds=self._patience())
            if len(errors) < len(journals):
                self._add(*entries)
            if errors:
                moves = states.get(roles.ROLE) is StepState.DONE
                first = entries[0] not in self._noted
                self._undecided = moves and first and journals[0].in_doubt
                raise errors[0]

    def _note_within(self, step: str, notes: Notes) -> None:
        """Without news its place is enough: BEGUN is noted. Raises as `_note`."""
        if notes or not is_sure_of_place(self._journals):
            self._note((step, StepState.BEGUN, notes))

    def _note_where_possible(
        self, step: str, state: StepState, notes: Notes = MappingProxyType({})
    ) -> None:
        """The same on the way back, where one cluster may be gone. Its journal gets
        the entries from the other one, once it answers.

        Raises:
            FencedError: a later operator took over.
            MirrorError: no journal can be written.
        """
        entries = self._entries((step, state, notes))
        for each in tuple(self._journals):
            last = len(self._journals) == 1
            seconds = self._patience() if last else _BRIEF_SECONDS
            errors = write_journals([each], entries, seconds=seconds)
            if not errors:
                self._add(*entries)
            elif last or isinstance(errors[0], FencedError):
                raise errors[0]
            else:
                self._journals.remove(each)

    def _patience(self) -> float:
        """How long to wait for a journal: not much longer than producers may be
        blocked.
        """
        blocked = None if self.run is None else procedure.blocked_since(self.run)
        if blocked is None or self._kind is not Kind.SWITCH:
            return self._most_seconds
        left = blocked + self._pair.block_seconds - time.time()
        return min(max(left, _BRIEF_SECONDS), self._most_seconds)

    @property
    def _noted(self) -> tuple[Entry, ...]:
        return self.run.entries if self.run is not None else ()

    def _add(self, *entries: Entry) -> None:
        """They count once one journal has them: their numbers are used."""
        if entries[0] not in self._noted:
            self.run = roles.Run(entries=(*self._noted, *entries))

    def _entries(self, *new: NewEntry) -> tuple[Entry, ...]:
        self.began = True
        first = self.run and self.run.first
        run = first.run if first else uuid.uuid4().hex
        return tuple(
            Entry(
                pair=self._pair.name,
                run=run,
                number=number,
                kind=first.kind if first else self._kind,
                epoch=first.epoch if first else self._epoch,
                source=self._ends[0],
                target=self._ends[1],
                step=step,
                state=state,
                at=time.time(),
                by=self._by,
                details=notes,
            )
            for number, (step, state, notes) in enumerate(
                new, procedure.number(self._noted)
            )
        )


def _opening(step: str) -> NewEntry:
    """What is noted before a step, or once none is left."""
    return step, StepState.DONE if step == roles.END else StepState.BEGUN, {}


# ---- what an operator does with the journals of both clusters, at once ----
#
# Main functions: `read_journals`; `take_over_journals`, which makes it the only one;
# `write_journals`, which returns what went wrong; and `require_place`, whether a
# later operator took over. Each journal has a thread, so that one waits for its
# brokers while the other one does: producers may be blocked meanwhile.


def read_journals(readers: Sequence[JournalReader]) -> list[tuple[Entry, ...]]:
    """What each says now, without waiting for an operator. Raises as its `read`."""
    begun = at_once([partial(each.read, wait=False) for each in readers])
    return [each.result() for each in begun]


def take_over_journals(
    pair: str, clusters: Sequence[Cluster], readers: Sequence[JournalReader]
) -> list[JournalWriter]:
    """A writer for each cluster. Raises as `JournalWriter`."""
    ends = zip(clusters, readers, strict=True)
    begun = at_once([partial(JournalWriter, c, pair, reader) for c, reader in ends])
    return [each.result() for each in begun]


def journal_entries(
    writers: Sequence[JournalWriter], *, seconds: float
) -> list[tuple[Entry, ...]]:
    """What each says now. Raises as its `entries`."""
    begun = at_once([partial(each.entries, seconds=seconds) for each in writers])
    return [each.result() for each in begun]


def write_journals(
    writers: Sequence[JournalWriter], entries: Sequence[Entry], *, seconds: float
) -> list[MirrorError]:
    """Write the same entries to each, within so many seconds; returns why some could
    not be written, first that a later operator took over.
    """

    def write_to(writer: JournalWriter) -> None:
        with patience.until(time.monotonic() + seconds):
            writer.write(*entries, seconds=seconds)

    return _errors([partial(write_to, each) for each in writers])


def require_place(writers: Sequence[JournalWriter]) -> None:
    """Before a change that is not noted one by one. A journal that is silent is no
    matter while another one answers: the next note needs it.

    Raises:
        FencedError: a later operator took over.
        ClusterError: no journal answers, or one refuses.
    """
    errors = _errors([each.require_place for each in writers])
    silent = [each for each in errors if isinstance(each, UnreachableError)]
    if len(silent) < len(writers):
        errors = [each for each in errors if each not in silent]
    if errors:
        raise errors[0]


def is_sure_of_place(writers: Sequence[JournalWriter]) -> bool:
    """The same in one round trip, where that is enough: if not, only a note tells, as
    brokers are too old or none answers now. Raises as `require_place` otherwise.
    """
    if not all(each.tells_place for each in writers):
        return False
    try:
        require_place(writers)
    except UnreachableError:
        return False
    return True


def _errors(work: Sequence[Callable[[], None]]) -> list[MirrorError]:
    found = []
    for each in at_once(work):
        try:
            each.result()
        except MirrorError as error:
            found.append(error)
    return sorted(found, key=lambda error: not isinstance(error, FencedError))
