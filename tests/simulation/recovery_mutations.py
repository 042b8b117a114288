"""Mistakes on purpose in recovery: journals, roles, steps, fences.

`OF_SWITCHES` has one function per mistake, as `mutations`.
"""

from __future__ import annotations

import contextlib
from dataclasses import replace
from typing import TYPE_CHECKING, Any
from unittest import mock

from mirror.cli import switch as commands
from mirror.copying import copy_ends, intake
from mirror.copying.intake import Intake
from mirror.copying.schemas import SchemaBarrier
from mirror.pairs import journal, roles
from mirror.pairs.roles import Run
from mirror.policy.selection import Selection
from mirror.recovery import (
    failback,
    hooks,
    outcome,
    pending,
    quiet,
    rights,
    runner,
    schemas,
)
from mirror.recovery.runner import Operator
from mirror.recovery.stage import Done, nothing_to_undo
from mirror.recovery.steps import STEPS, checks, drain, fence, opening, positions
from mirror.recovery.tails import settling
from mirror.schemas.comparing import ComparedRegistries
from mirror.schemas.registry.values import RESERVED
from mirror.service import beginning, ownership
from mirror.service import same_offsets as decisions
from mirror.service.flow import FlowJobs
from mirror.service.pairs import PairFollower
from mirror.topics import fences

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from contextlib import AbstractContextManager

_real: dict[str, Any] = {
    "heed": Operator._read_state,
    "left": Run.left.fget,
    "missing": PairFollower._missing,
    "lay": fences.lay,
    "lift": fences.lift,
    "places": positions.places_of,
    "wanted": positions._wanted,
    "note": Operator._note,
    "look": quiet.look,
    "rewrite": beginning.rewrite_progress,
    "continued": copy_ends._continued,
    "same_copy": intake._SameCopy,
}
_patched: Any = mock.patch.object
_FENCE, _RIGHTS = fences.fence_name(""), rights.name("")
"""How the names of their changes begin."""


def epochs_are_not_counted() -> AbstractContextManager[Any]:
    """A run begins with the epoch of the role that it is to replace."""

    def heed(self: Any, *journals: Any) -> None:
        _real["heed"](self, *journals)
        self._epoch -= 1

    return _patched(Operator, "_read_state", heed)


def undo_forgets_the_fence() -> AbstractContextManager[Any]:
    """A run that is given up leaves producers blocked."""
    left = property(
        lambda self: tuple(each for each in _real["left"](self) if each != "fence")
    )
    return _patched(Run, "left", left)


def undo_goes_forward() -> AbstractContextManager[Any]:
    """Steps are undone in the order in which they were done."""
    left = property(lambda self: tuple(reversed(_real["left"](self))))
    return _patched(Run, "left", left)


def operators_take_over_nothing() -> AbstractContextManager[Any]:
    """An operator believes what it read before it had fenced the others."""

    def entries(writers: Any, **_: Any) -> Any:
        return [tuple(each._reader._entries) for each in writers]

    return _patched(runner, "journal_entries", entries)


def places_are_not_looked_at() -> AbstractContextManager[Any]:
    """A step changes something although a later operator has taken over."""
    return _patched(runner, "require_place", lambda _: None)


def services_copy_what_may_be_undone() -> AbstractContextManager[Any]:
    """A service brings an open switch to the other journal as well."""

    def missing(self: Any, pair: Any, alias: str) -> Any:
        known, there = self._known[pair.name], self._members[alias].there
        if not known.entries:
            return _real["missing"](self, pair, alias)
        return journal.missing(known.entries, there)

    return _patched(PairFollower, "_missing", missing)


def the_last_role_counts() -> AbstractContextManager[Any]:
    """The role that was written last counts, not the one of the highest epoch."""

    def newest(entries: Any) -> Any:
        made = [each for each in entries if roles._makes_active(each)]
        return max(made, key=lambda each: each.at, default=None)

    return _patched(roles, "newest_role", newest)


def _step(name: str, **changes: Any) -> AbstractContextManager[Any]:
    return mock.patch.dict(STEPS, {name: replace(STEPS[name], **changes)})


def _not_laid(whose: str) -> AbstractContextManager[Any]:
    """ACLs of these changes are planned, and not made."""

    def lay(cluster: Any, plan: Any, **named: Any) -> None:
        if not plan.by.startswith(whose):
            _real["lay"](cluster, plan, **named)

    return _patched(fences, "lay", lay)


def fences_are_not_laid() -> AbstractContextManager[Any]:
    """A fence is noted, and no ACL is made."""
    return _not_laid(_FENCE)


def fences_stay() -> AbstractContextManager[Any]:
    """A switch that is undone, or that comes home, leaves the fence where it is."""

    def lift(cluster: Any, by: str, **named: Any) -> Any:
        return None if by.startswith(_FENCE) else _real["lift"](cluster, by, **named)

    return _patched(fences, "lift", lift)


def rights_are_not_given() -> AbstractContextManager[Any]:
    """Producers get no rights where they move to."""
    return _not_laid(_RIGHTS)


def nothing_is_drained() -> AbstractContextManager[Any]:
    """The role moves before everything is copied."""
    return _step("drain", do=lambda _stage: Done(text="drained"))


def places_are_of_before_the_drain() -> AbstractContextManager[Any]:
    """Positions are translated while records are still being copied, and set then."""
    found: dict[str, Any] = {}
    drain = STEPS["drain"]

    def do(stage: Any) -> Done:
        found[stage.run] = _real["places"](stage)
        return drain.do(stage)

    def places(stage: Any, **named: Any) -> Any:
        return found.get(stage.run) or _real["places"](stage, **named)

    return _both(_step("drain", do=do), _patched(positions, "places_of", places))


def groups_are_not_awaited() -> AbstractContextManager[Any]:
    """Positions are set although members of the group still read."""
    return _patched(positions, "busy", lambda *_: "")


def late_commits_do_not_count() -> AbstractContextManager[Any]:
    """Positions are not looked at again before the role moves, nor are members."""
    return _patched(positions, "require_settled", lambda _stage: None)


def the_cut_is_not_looked_at() -> AbstractContextManager[Any]:
    """A record that comes after the cut is left behind."""
    return _both(
        _patched(fence, "require_still", lambda _stage: None),
        _patched(fence, "require_cut", lambda _stage: None),
    )


def the_new_cut_is_not_drained_to() -> AbstractContextManager[Any]:
    """Somebody writes after the cut, and only step 3 is done again."""
    return _patched(roles, "OF_CUT", roles.OF_CUT[:1])


def silence_takes_no_time() -> AbstractContextManager[Any]:
    """Producers count as stopped at the first look."""

    def look(cluster: Any, topics: Any, **_: Any) -> Any:
        return _real["look"](cluster, topics, pause=0.0)

    return _patched(quiet, "look", look)


def places_are_one_too_far() -> AbstractContextManager[Any]:
    """A group goes on behind the record that it has to read next."""

    def wanted(found: Any) -> Any:
        return {
            group: {k: at._replace(offset=at.offset + 1) for k, at in each.items()}
            for group, each in _real["wanted"](found).items()
        }

    return _patched(positions, "_wanted", wanted)


def flows_do_not_rest() -> AbstractContextManager[Any]:
    """Both flows copy, whatever the role is."""
    return _patched(PairFollower, "may_copy", lambda *_: True)


def flows_rest_for_ever() -> AbstractContextManager[Any]:
    """A flow that rested does not begin when its time comes."""

    def may_copy(_self: Any, source: str, _target: str) -> bool:
        return source == "A"

    return _patched(PairFollower, "may_copy", may_copy)


def jobs_go_on_in_a_switch() -> AbstractContextManager[Any]:
    """Group offsets are synced while a switch sets them."""
    return _patched(FlowJobs, "_must_wait", lambda _: False)


def the_fence_is_not_undone() -> AbstractContextManager[Any]:
    """Undoing a run leaves producers blocked."""
    return _step("fence", undo=nothing_to_undo)


def steps_are_noted_when_done() -> AbstractContextManager[Any]:
    """A step is not in the journal before it begins."""

    def note(self: Any, *said: Any) -> None:
        done = [each for each in said if each[1] is not journal.StepState.BEGUN]
        if done or self.run is None:
            _real["note"](self, *(done or said))

    return _patched(Operator, "_note", note)


def older_files_are_taken() -> AbstractContextManager[Any]:
    """A command goes by a file that selects less than the services do."""
    return _patched(commands, "_require_selection", lambda _stage: None)


def pauses_are_seen_late() -> AbstractContextManager[Any]:
    """Step 1 takes no notice of a paused topic."""
    left = tuple(c for c in checks.OF_PAIR if c.findings is not checks.paused_topics)
    return _patched(checks, "OF_PAIR", left)


def emptied_partitions_get_no_position() -> AbstractContextManager[Any]:
    """A flow commits no position where there is nothing to read."""
    return _patched(Intake, "commit_first", lambda *_: None)


def rights_come_first() -> AbstractContextManager[Any]:
    """Producers get rights before the flow back knows where it begins."""
    late = opening._begin_back

    def do(stage: Any) -> Done:
        with _patched(opening, "_begin_back", lambda _stage: None):
            done = opening.move_role(stage)
        late(stage)
        return done

    return _step("open", do=do)


def replaced_runs_are_not_undone() -> AbstractContextManager[Any]:
    """Undoing a failover leaves what the switch did whose place it took."""
    return _patched(Run, "gave_way", property(lambda _: False))


def rights_are_granted_once() -> AbstractContextManager[Any]:
    """A failover that could not grant rights when the role moved leaves it at that."""
    return _patched(opening, "grant_late", lambda _stage: "")


def pending_fences_are_forgotten() -> AbstractContextManager[Any]:
    """Nobody fences a cluster that is back after a failover."""
    return _patched(pending, "settle_fence", lambda *_, **__: False)


def fences_come_before_roles() -> AbstractContextManager[Any]:
    """A pending fence is laid where the journal does not know the role yet."""
    return _patched(pending, "_bring_role", lambda *_: None)


def notes_are_read_before_acls() -> AbstractContextManager[Any]:
    """An ACL that another service has just noted and added counts as somebody else's,
    and stays for good.
    """
    return _patched(fences, "steady", lambda notes, acls: (notes(), acls()))


def lost_journals_are_believed() -> AbstractContextManager[Any]:
    """Journals decide alone, whatever flows know of roles."""
    return _patched(ownership, "lost_entries", lambda *_: "")


def feeds_begin_late() -> AbstractContextManager[Any]:
    """Partitions of which no flow has copied anything begin where `start` says, also
    for a flow that goes on for another.
    """

    def late(flow: Any, target: Any, decide: Any) -> Any:
        return _real["rewrite"](
            flow, target, lambda known: replace(decide(known), begun=False)
        )

    return _both(
        _patched(beginning, "rewrite_progress", late),
        _patched(
            beginning,
            "select_topics",
            lambda *_: Selection(mappings=(), rejected=(), cycles=()),
        ),
    )


def topics_made_again_are_the_same() -> AbstractContextManager[Any]:
    """A group that comes home goes on at the offset that it had in a deleted topic."""
    return _patched(positions, "_unread", lambda *_: {})


def registries_stay_closed() -> AbstractContextManager[Any]:
    """Undoing a run leaves the registry closed."""
    return _step("hold", undo=nothing_to_undo)


def overtaken_operators_close() -> AbstractContextManager[Any]:
    """An operator that was overtaken leaves the registry closed that it closed last."""
    return _patched(schemas, "_require_place", lambda _stage: None)


def reserved_ids_stay() -> AbstractContextManager[Any]:
    """An id that a flow has reserved stays taken, although another source issues it."""
    gaps = ComparedRegistries.gaps.func

    def own(compared: Any) -> Any:
        there = tuple(
            each
            for each in compared.there
            if each.subject != RESERVED or each.key in compared.ours
        )
        return gaps(replace(compared, there=there))

    return _patched(ComparedRegistries, "gaps", property(own))


def records_come_before_schemas() -> AbstractContextManager[Any]:
    """A record is copied although its schema is not there yet."""
    return _patched(SchemaBarrier, "looks_at", lambda *_: False)


def replays_copy_no_schemas() -> AbstractContextManager[Any]:
    """A tail is replayed without the schemas that it needs."""
    return _patched(settling.ReplayedSchemas, "admit", lambda *_: None)


def replays_open_no_registry() -> AbstractContextManager[Any]:
    """Subjects that got schemas of a tail take no others afterwards."""
    return _patched(settling, "open_copied", lambda *_, **__: [])


def nothing_is_ever_lost() -> AbstractContextManager[Any]:
    """A failover's report names no record that was not copied."""
    told = outcome.failover_report

    def less(stage: Any, risk: Any) -> Done:
        done = told(stage, risk)
        return replace(done, notes={**done.notes, "lost": []})

    return _patched(outcome, "failover_report", less)


def no_group_reads_again() -> AbstractContextManager[Any]:
    """A failover's report names no record that groups read again."""
    standing = positions.group_ages

    def less(stage: Any, found: Any) -> Any:
        return [
            [group, age, 0, unknown]
            for group, age, _, unknown in standing(stage, found)
        ]

    return _patched(positions, "group_ages", less)


def late_operators_call_hooks() -> AbstractContextManager[Any]:
    """An operator that was overtaken calls a hook once more."""
    return _patched(hooks, "_has_place", lambda _stage: True)


def failovers_stop_nothing() -> AbstractContextManager[Any]:
    """A failover does not stop the flow that copied out of the cluster."""
    return _patched(drain, "_stop", lambda _stage: Done(text="stopped"))


def terms_do_not_end() -> AbstractContextManager[Any]:
    """After others wrote to a copy, the producer goes on with its old epoch."""

    def continued(term: Any, log: Any, last: Any) -> Any:
        found = _real["continued"](term, log, last)
        return found._replace(epoch=max(log.epoch, 0))

    return _patched(copy_ends, "_continued", continued)


def what_came_back_is_copied() -> AbstractContextManager[Any]:
    """A copy takes also what the source has from the copy's own cluster."""

    def same_copy(end: int, _until: int, begun: bool) -> Any:
        return _real["same_copy"](end, 1 << 60, begun)

    return _patched(intake, "_SameCopy", same_copy)


def records_face_nothing() -> AbstractContextManager[Any]:
    """A record that faces an offset without one is an equal end."""
    return _patched(copy_ends, "_facing_markers", lambda *_, **__: {})


def tails_have_a_place() -> AbstractContextManager[Any]:
    """A topic with a tail is taken for one with the same offsets."""
    return _patched(failback, "_diverged", lambda *_: set())


def ends_are_not_noted() -> AbstractContextManager[Any]:
    """A failover takes the last notes of slots for all that was copied."""
    return _patched(decisions, "note_ends", lambda *_: None)


def runs_that_gave_way_are_through() -> AbstractContextManager[Any]:
    """A switch that a failover replaced is through, even if that is given up."""
    return _patched(Run, "left_off", property(lambda _: False))


@contextlib.contextmanager
def _both(*several: AbstractContextManager[Any]) -> Iterator[None]:
    with contextlib.ExitStack() as stack:
        for each in several:
            stack.enter_context(each)
        yield


OF_SWITCHES: dict[str, Callable[[], AbstractContextManager[Any]]] = {
    each.__name__: each
    for each in (
        epochs_are_not_counted, undo_forgets_the_fence, undo_goes_forward,
        operators_take_over_nothing, places_are_not_looked_at,
        services_copy_what_may_be_undone, the_last_role_counts,
        fences_are_not_laid, fences_stay, rights_are_not_given, nothing_is_drained,
        places_are_of_before_the_drain, groups_are_not_awaited,
        late_commits_do_not_count, the_cut_is_not_looked_at,
        the_new_cut_is_not_drained_to, silence_takes_no_time,
        places_are_one_too_far, flows_do_not_rest, flows_rest_for_ever,
        jobs_go_on_in_a_switch, the_fence_is_not_undone, steps_are_noted_when_done,
        older_files_are_taken, pauses_are_seen_late, emptied_partitions_get_no_position,
        rights_come_first, replaced_runs_are_not_undone, rights_are_granted_once,
        pending_fences_are_forgotten, fences_come_before_roles,
        notes_are_read_before_acls, lost_journals_are_believed,
        feeds_begin_late, topics_made_again_are_the_same, registries_stay_closed,
        overtaken_operators_close, reserved_ids_stay, records_come_before_schemas,
        replays_copy_no_schemas, replays_open_no_registry,
        nothing_is_ever_lost, no_group_reads_again,
        late_operators_call_hooks, failovers_stop_nothing,
        terms_do_not_end, what_came_back_is_copied, tails_have_a_place,
        records_face_nothing,
        ends_are_not_noted, runs_that_gave_way_are_through,
    )
}  # fmt: skip
