"""Mistakes on purpose: the simulation has to find each of them.

`MUTATIONS` and `OF_GROUPS` have one function per mistake, which makes it in the real
code while a block runs; those of recovery are in `recovery_mutations`.
`python -m tests.simulation --mutation NAME` looks for a seed that notices it.
"""

from __future__ import annotations

import contextlib
from dataclasses import replace
from typing import TYPE_CHECKING, Any
from unittest import mock

import numpy as np

from mirror.clusters import hanging
from mirror.clusters.admin import configs, topic_admin
from mirror.clusters.hanging import HangingLook
from mirror.clusters.topics import Views
from mirror.clusters.wire import fetch, fetch_by_id, write
from mirror.copying import (
    copy_ends,
    gaps,
    same_offsets,
    slot,
    take_over,
    target,
    transaction,
)
from mirror.copying.intake import Intake
from mirror.copying.same_offsets import SameOffsetsWriter
from mirror.copying.slot import Slot
from mirror.copying.take_over import Found
from mirror.copying.target import Endings, PathStage, TransactionPath
from mirror.offsets import group_offset_sync, groups, markers, progress
from mirror.offsets.index import Track
from mirror.offsets.markers import MarkerSearch
from mirror.offsets.progress import NO_ID
from mirror.offsets.terms import SEQUENCES, Term
from mirror.pairs.losses import Loss
from mirror.proofs import prefix
from mirror.records import batch, scan
from mirror.service import ownership
from mirror.service import same_offsets as decisions
from mirror.service.leases import Credit
from tests.simulation.faults import UNCLEAR

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from contextlib import AbstractContextManager

_real: dict[str, Any] = {
    "add": Track.add,
    "index": scan.index,
    "decode": fetch.decode,
    "decode_by_id": fetch_by_id.decode,
    "judge": gaps.judge,
    "encode": progress.encode,
    "stamp": same_offsets._SequencedProducer.stamp,
    "blocks": transaction._blocks,
    "resumption": Found.resumption,
    "jump": Intake._jump,
    "give_up": target.TargetWriter._give_up,
    "take_over": target.TargetWriter.take_over,
    "read": write._Channel._read,
    "epoch_ends": topic_admin.epoch_ends,
    "describe": configs.describe,
    "is_first": Found._is_first,
    "forward": group_offset_sync.forward,
    "translated": groups.translated,
}


def _patched(what: Any, name: str, value: Any) -> AbstractContextManager[Any]:
    return mock.patch.object(what, name, value)


def drivers_do_not_fence() -> AbstractContextManager[Any]:
    """A new run leaves the transactional ids of the one before it alone."""
    return _patched(ownership, "transactional_ids", lambda _flow, _slot: ())


@contextlib.contextmanager
def slots_of_old_runs_go_on() -> Iterator[None]:
    """A slot does not look whether its run is still the newest."""
    real = progress.read_proven

    def forged(cluster: Any, topic: str, *, committed: bool = True) -> Any:
        found = real(cluster, topic, committed=committed)
        return _AnyGeneration(found) if committed else found

    with (
        _patched(take_over.progress, "read_proven", forged),
        drivers_do_not_fence(),
    ):
        yield


class _AnyGeneration:
    """Progress whose generation equals every other."""

    def __init__(self, found: Any) -> None:
        self._found = found
        self.generation = _Equal()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._found, name)


class _Equal:
    __hash__ = None

    def __eq__(self, _: object) -> bool:
        return True

    def __ne__(self, _: object) -> bool:
        return False


def credit_ends_by_itself() -> AbstractContextManager[Any]:
    """Partitions move although the slot that had them may copy on."""
    return _patched(Credit, "must_end", lambda *_, **__: False)


def leaders_prove_nothing() -> AbstractContextManager[Any]:
    """Progress is read from any broker that says it leads."""
    return _patched(
        progress,
        "prove_leader",
        lambda *_: -1,
    )


def _positions_moved(by: int) -> AbstractContextManager[Any]:
    def encode(positions: Any, running: Any = None) -> Any:
        moved = {
            key: replace(each, offset=max(each.offset + by, 0))
            for key, each in positions.items()
        }
        return _real["encode"](moved, running)

    return _patched(progress, "encode", encode)


def positions_stay_behind() -> AbstractContextManager[Any]:
    """Positions are one record behind what the transaction copied."""
    return _positions_moved(-1)


def positions_run_ahead() -> AbstractContextManager[Any]:
    """Positions are one record ahead."""
    return _positions_moved(1)


def open_transactions_are_read() -> AbstractContextManager[Any]:
    """The last stable offset is forgotten."""
    return _patched(fetch, "READ_COMMITTED", fetch.READ_UNCOMMITTED)


@contextlib.contextmanager
def aborted_one_too_late() -> Iterator[None]:
    """An aborted transaction seems to begin one record later."""

    def later(name: str) -> Callable[..., Any]:
        def decode(*arguments: Any) -> Any:
            for each in _real[name](*arguments):
                aborted = tuple((pid, first + 1) for pid, first in each.aborted)
                yield replace(each, aborted=aborted)

        return decode

    with (
        _patched(fetch, "decode", later("decode")),
        _patched(fetch_by_id, "decode", later("decode_by_id")),
    ):
        yield


def positions_come_from_memory() -> AbstractContextManager[Any]:
    """A slot that takes over again goes on from where it thinks that it was."""
    real = Slot._resume_from

    def stand(self: Slot, found: Any) -> None:
        known = found.progress
        kept = {**known.positions, **self._positions}
        real(self, replace(found, progress=replace(known, positions=kept)))

    return _patched(Slot, "_resume_from", stand)


def commits_before_the_records() -> AbstractContextManager[Any]:
    """The commit is requested as soon as the data is on its way."""

    def advance(self: TransactionPath, before: TransactionPath | None) -> None:
        if self.stage == PathStage.WRITING and self._write.sent:
            self.stage = PathStage.RECORDED
        _advance(self, before)

    return _patched(TransactionPath, "advance", advance)


_advance = TransactionPath.advance


def markers_are_not_missed() -> AbstractContextManager[Any]:
    """Transactions that brokers leave open are not looked for."""
    return _patched(hanging, "complete", lambda *_, **__: HangingLook())


def forgotten_transactions_are_undone() -> AbstractContextManager[Any]:
    """Of one whose end no process knows, no marker is looked for."""
    return _patched(MarkerSearch, "was_committed", lambda *_: False)


def later_transactions_do_not_count() -> AbstractContextManager[Any]:
    """One that ended nowhere is undone, although a later one was committed."""
    return _patched(markers, "_is_followed", lambda *_: False)


def ids_are_used_at_once() -> AbstractContextManager[Any]:
    """A slot uses an id again although its last transaction is still open somewhere."""
    return _patched(Endings, "awaits", lambda *_: False)


def losses_are_silent() -> AbstractContextManager[Any]:
    """A jump is not written to the ledger."""

    def jump(self: Intake, key: Any, to: Any, work: Any) -> None:
        _real["jump"](self, key, to, work)
        work.losses.clear()

    return _patched(Intake, "_jump", jump)


def _jumps_changed(change: Callable[[Any], Any]) -> AbstractContextManager[Any]:
    def judge(position: Any, **known: Any) -> Any:
        gap = _real["judge"](position, **known)
        return None if gap is None else replace(gap, to=change(gap.to))

    return _patched(gaps, "judge", judge)


def losses_reach_too_far() -> AbstractContextManager[Any]:
    """A jump skips one offset more than was lost."""
    return _jumps_changed(lambda to: replace(to, offset=to.offset + 1))


def losses_forget_the_epoch() -> AbstractContextManager[Any]:
    """After a jump the epoch of the record before is unknown."""
    return _jumps_changed(lambda to: replace(to, leader_epoch=-1))


def old_leaders_are_trusted() -> AbstractContextManager[Any]:
    """Positions on old brokers are not checked at new leaders."""

    def resumption(self: Found, wanted: Any, positions: Any) -> Any:
        return replace(_real["resumption"](self, wanted, positions), unchecked={})

    return _patched(Found, "resumption", resumption)


def topic_ids_do_not_matter() -> AbstractContextManager[Any]:
    """A re-created topic is taken for the one before it."""
    return _patched(gaps, "remade", lambda *_: False)


def runs_are_shifted() -> AbstractContextManager[Any]:
    """The offset map is off by one."""

    def blocks(*arguments: Any) -> Any:
        for block in _real["blocks"](*arguments):
            yield replace(block, runs=block.runs + np.array([1, 0, 0]))

    return _patched(transaction, "_blocks", blocks)


def sequences_start_again() -> AbstractContextManager[Any]:
    """A batch is sent again under a new sequence after an error that does not say
    whether it was written, so that it may stand there twice.
    """

    def read(self: Any, sent: Any) -> None:
        again = {}
        for topic in sent.pending.result().responses:
            for part in tuple(topic.partition_responses):
                if part.error_code in UNCLEAR:
                    where = topic.name, part.index
                    again[where] = sent.batches[where]
                    topic.partition_responses.remove(part)
        _real["read"](self, sent)
        self._send(again, stamp=True)

    return _patched(write._Channel, "_read", read)


@contextlib.contextmanager
def aborts_are_forgotten() -> Iterator[None]:
    """What a take-over aborts, and what was ready to commit, counts as under way."""

    def give_up(self: Any, *, but: Any = None) -> None:
        kept = [p for p in self._under_way if p.stage == PathStage.RECORDED]
        _real["give_up"](self, but=but)
        self._under_way.extend(kept)

    def take_over(self: Any) -> None:
        kept = self._under_way
        _real["take_over"](self)
        self._under_way = kept

    with (
        _patched(target.TargetWriter, "_give_up", give_up),
        _patched(target.TargetWriter, "take_over", take_over),
    ):
        yield


def losses_are_counted_twice() -> AbstractContextManager[Any]:
    """The ledger names one offset too many."""
    real = Loss.document

    def document(self: Loss) -> dict[str, Any]:
        found = real(self)
        if found["first"] > 0:
            found["first"] -= 1
        return found

    return _patched(Loss, "document", document)


def empty_markers_are_read() -> AbstractContextManager[Any]:
    """A marker that the log cleaner emptied is read all the same; part 1, A1."""

    def index(buffer: Any, start: int, end: int, rows: Any) -> Any:
        found = _real["index"](buffer, start, end, rows)
        listed = rows[: max(found[0], 0)]
        markers = (listed[:, scan.ATTRIBUTES] & batch.CONTROL) != 0
        listed[markers, scan.COUNT] = 1
        return found

    return _patched(scan, "index", index)


@contextlib.contextmanager
def any_broker_counts() -> Iterator[None]:
    """What one broker says about leaders and topics is believed; part 1, A2."""

    def agreed(self: Views, name: str) -> Any:
        shown = (each[name] for each in self.answers.values())
        return next((topic for topic in shown if not topic.error), None)

    def in_the_way(suspect: Any, shown: Any, _: Any) -> str:
        leader = None if shown is None else shown.leaders.get(suspect.partition)
        return "nobody leads" if leader is None or leader.node < 0 else ""

    with (
        _patched(Views, "agreed", agreed),
        _patched(gaps, "_in_the_way", in_the_way),
    ):
        yield


def first_starts_are_forgotten() -> AbstractContextManager[Any]:
    """A first start counts although it was not committed; part 1, A6."""

    def uncommitted(target: Any, topic: str) -> Any:
        found = progress.read_proven(target, topic, committed=False)
        return ownership.Generation.parse(found.generation)

    return _patched(ownership, "_committed", uncommitted)


def losses_forget_the_leader() -> AbstractContextManager[Any]:
    """After a loss, a leader from before it is believed by the next process."""
    return _patched(progress, "_split", lambda written: (written, b""))


@contextlib.contextmanager
def copies_are_for_ever() -> Iterator[None]:
    """The map goes on to name copies that were deleted with their topic; part 1, A4."""

    def add(self: Track, block: Any, at: int, **options: Any) -> None:
        _real["add"](self, replace(block, copy_id=NO_ID), at, **options)

    with (
        _patched(Track, "add", add),
        _patched(Track, "_cut", lambda *_, **__: None),
    ):
        yield


def groups_skip_a_record() -> AbstractContextManager[Any]:
    """Offsets of groups are set one too far."""

    def forward(*arguments: Any) -> Any:
        found = _real["forward"](*arguments).items()
        return {key: each._replace(offset=each.offset + 1) for key, each in found}

    return _patched(group_offset_sync, "forward", forward)


def groups_go_back() -> AbstractContextManager[Any]:
    """Offsets of groups are set although they are further on the target."""

    def forward(wanted: Any, _present: Any, *_: Any) -> Any:
        return _real["forward"](wanted, {})

    return _patched(group_offset_sync, "forward", forward)


def groups_keep_their_numbers() -> AbstractContextManager[Any]:
    """An offset means the same in the copy."""

    def translated(*arguments: Any, **options: Any) -> Any:
        return {
            group: [
                replace(each, translated=replace(each.translated, offset=each.upstream))
                for each in places
            ]
            for group, places in _real["translated"](*arguments, **options).items()
        }

    return _patched(groups, "translated", translated)


MUTATIONS: dict[str, Callable[[], AbstractContextManager[Any]]] = {
    each.__name__: each
    for each in (
        drivers_do_not_fence, slots_of_old_runs_go_on, credit_ends_by_itself,
        leaders_prove_nothing,
        positions_stay_behind, positions_run_ahead, positions_come_from_memory,
        open_transactions_are_read, aborted_one_too_late,
        commits_before_the_records, markers_are_not_missed, ids_are_used_at_once,
        forgotten_transactions_are_undone, later_transactions_do_not_count,
        losses_are_silent, losses_reach_too_far, losses_forget_the_epoch,
        old_leaders_are_trusted, topic_ids_do_not_matter,
        runs_are_shifted, sequences_start_again, aborts_are_forgotten,
        losses_are_counted_twice, empty_markers_are_read, any_broker_counts,
        first_starts_are_forgotten, losses_forget_the_leader, copies_are_for_ever,
    )
}  # fmt: skip


# ---- of copies with the source's offsets ----


def answers_are_not_checked() -> AbstractContextManager[Any]:
    """Nobody looks where a leader wrote a record."""
    return _patched(SameOffsetsWriter, "_check_one", lambda *_: None)


def producers_are_never_forgotten() -> AbstractContextManager[Any]:
    """Many batches are in flight although the leader may not know what came before."""
    return _patched(SameOffsetsWriter, "_is_fresh", lambda *_: True)


def only_the_first_batch_is_proven() -> AbstractContextManager[Any]:
    """A slot that slept sends the rest of what it had begun to send."""
    init = write.Write.__init__

    def always(made: Any, *arguments: Any, **more: Any) -> None:
        init(made, *arguments, **{**more, "may_send": lambda: True})

    return _patched(write.Write, "__init__", always)


def owners_do_not_wait() -> AbstractContextManager[Any]:
    """Who takes over writes at once what leaders do not remember."""
    return _patched(SameOffsetsWriter, "_may_begin", lambda self, _: self._is_proven())


def fillers_are_outside_the_sequence() -> AbstractContextManager[Any]:
    """A leader takes a filler whatever it has: a retry appends it again."""

    def stamp(self: Any, key: Any, batch: Any) -> None:
        if batch.fillers == batch.count:
            batch.stamp(-1, -1, -1, transactional=False)
        else:
            _real["stamp"](self, key, batch)

    return _patched(same_offsets._SequencedProducer, "stamp", stamp)


def ends_are_not_asked() -> AbstractContextManager[Any]:
    """A slot goes on at the noted position, not at the copy's end."""
    return _patched(slot.Slot, "_go_on_at_ends", lambda *_: {})


def high_watermarks_are_ends() -> AbstractContextManager[Any]:
    """The end of a copy is what a consumer sees of it."""

    def ends(cluster: Any, epochs: Any, topics: Any) -> Any:
        found = _real["epoch_ends"](cluster, epochs, topics)
        seen = topic_admin.list_offsets(
            cluster, found, timestamp=topic_admin.LATEST, committed=False, topics=topics
        )
        return {k: replace(found[k], offset=end) for k, end in seen.items()}

    return _patched(copy_ends.topic_admin, "epoch_ends", ends)


def anybodys_records_are_ours() -> AbstractContextManager[Any]:
    """What a copy has behind the noted offset is taken for what a slot wrote."""
    return _patched(copy_ends, "_is_ours", lambda *_: True)


def last_records_are_not_compared() -> AbstractContextManager[Any]:
    """A copy that ends where it may is taken for the source's beginning."""
    return _patched(copy_ends, "_compared", lambda _where, end, _written, _copied: end)


def lost_ends_do_not_matter() -> AbstractContextManager[Any]:
    """A source that has less than its copy is waited for."""
    return _patched(copy_ends, "_lost_ends", lambda *_: {})


def any_leader_has_lost_its_end() -> AbstractContextManager[Any]:
    """A broker that is cut off is believed that the source has lost records (found
    with seed 351).
    """

    def lost(source: Any, asked: Any, written: Any, topics: Any) -> dict[Any, str]:
        epochs = {
            key: topics[key[0]].leaders[key[1]].epoch
            for key, each in written.items()
            if isinstance(each, str) and key[1] in topics[key[0]].leaders
        }
        ends = topic_admin.epoch_ends(source, epochs, topics)
        return {k: "lost" for k, each in ends.items() if each.offset <= asked[k]}

    return _patched(copy_ends, "_lost_ends", lost)


def unknown_configs_are_good() -> AbstractContextManager[Any]:
    """A topic whose configs are not known is decided about (found with seed 837)."""

    def describe(cluster: Any, topics: Any) -> Any:
        found = _real["describe"](cluster, topics)
        return {name: replace(each, error=None) for name, each in found.items()}

    def why(_flow: Any, _topic: Any, known: Any, *_: Any, **__: Any) -> str:
        return "" if known else "its configs are not known"

    stack = contextlib.ExitStack()
    stack.enter_context(_patched(decisions.configs, "describe", describe))
    stack.enter_context(_patched(decisions, "why_translated", why))
    return stack


def old_positions_count() -> AbstractContextManager[Any]:
    """Positions in a deleted copy count for the new one (found with seed 357)."""
    return _patched(decisions, "replace", lambda position, **_: position)


def each_slot_counts_for_itself() -> AbstractContextManager[Any]:
    """A slot begins with sequence 0, as an ordinary producer does."""

    def sequence(term: Any, offset: int) -> int:
        first = _firsts.setdefault((id(term), term), offset)
        return (offset - first) % SEQUENCES

    _firsts: dict[Any, int] = {}
    return _patched(Term, "sequence", sequence)


def notes_are_forgotten() -> AbstractContextManager[Any]:
    """What a dead slot had copied and not noted is never noted."""

    def first(found: Any, wanted: Any, position: Any) -> bool:
        return wanted.term is None and bool(_real["is_first"](found, wanted, position))

    return _patched(take_over.Found, "_is_first", first)


def copies_need_no_proof() -> AbstractContextManager[Any]:
    """A copy is taken up if its last records are the source's."""
    return _patched(prefix, "difference", lambda *_: "")


OF_GROUPS: dict[str, Callable[[], AbstractContextManager[Any]]] = {
    each.__name__: each
    for each in (groups_skip_a_record, groups_go_back, groups_keep_their_numbers)
}
"""Found in histories of that kind."""
OF_SAME: dict[str, Callable[[], AbstractContextManager[Any]]] = {
    each.__name__: each
    for each in (
        answers_are_not_checked, producers_are_never_forgotten, ends_are_not_asked,
        high_watermarks_are_ends, anybodys_records_are_ours,
        last_records_are_not_compared, lost_ends_do_not_matter,
        any_leader_has_lost_its_end, unknown_configs_are_good,
        old_positions_count, each_slot_counts_for_itself,
        notes_are_forgotten, fillers_are_outside_the_sequence,
        only_the_first_batch_is_proven, owners_do_not_wait,
        copies_need_no_proof,
    )
}  # fmt: skip
