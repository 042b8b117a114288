"""What a partition's report says: why it is not copied now, and what was counted."""

from __future__ import annotations

import uuid

import pytest

from mirror.copying.faults import Faults
from mirror.copying.lease import Assignment, PartitionReport
from mirror.copying.tally import Tallied, Tally
from mirror.offsets.progress import Position, RunningCount
from mirror.status.states import PartitionState
from mirror.status.values import NOTHING, Counts

pytestmark = pytest.mark.unit

_PARTITIONS = {
    ("t", number): Assignment(
        topic="t", partition=number, target_topic="t", topic_id=uuid.uuid4().hex
    )
    for number in range(2)
}

_KEY = ("t", 0)
_MOVED = {_KEY: Position(offset=5)}
_TEN = {_KEY: Tallied(Counts(records=10, bytes=100))}


def _reports(
    tally: Tally, faults: Faults | None = None, *, seeding: bool = False
) -> list[PartitionReport]:
    return tally.reports(
        _PARTITIONS, {}, faults or Faults(),
        answered=lambda _: 0.0, seeding=lambda _: seeding,
    )  # fmt: skip


def _reasons(tally: Tally, faults: Faults) -> list[str]:
    reports = _reports(tally, faults)
    return [report.reason for report in reports]


def test_what_stops_a_slot_stops_its_partitions():
    """A partition was set aside because its leader was moving, and then the source
    refuses: both partitions name the refusal, and so does the flow. Once the slot works
    again, the partition that is still set aside has its own reason back.
    """
    tally = Tally(slot=0, bounds=(1.0,), service=uuid.uuid4())
    faults = Faults()
    faults.set_aside(("t", 0), "not the leader")
    assert _reasons(tally, faults) == ["not the leader", ""]
    tally.slot_failed("certificate expired")
    assert _reasons(tally, faults) == ["certificate expired"] * 2
    tally.slot_works({}, _PARTITIONS)
    assert _reasons(tally, faults) == ["not the leader", ""]


@pytest.mark.parametrize(
    ("behind", "seeding", "state"),
    [
        (False, True, PartitionState.RUNNING),
        (True, False, PartitionState.CATCHING_UP),
        (True, True, PartitionState.SEEDING),
    ],
)
def test_old_records_are_seeding_only_while_they_are_behind(behind, seeding, state):
    """A partition that is written one batch at a time says so while it is behind: at
    its end its records may be old, too, and nothing waits.
    """
    tally = Tally(slot=0, bounds=(1.0,), service=uuid.uuid4())
    tally.fetched(_KEY, end_offset=5, size=1, behind=behind)
    assert _reports(tally, seeding=seeding)[0].state == state


def _commit(tally: Tally, running: dict[tuple[str, int], RunningCount]) -> None:
    tally.committed(_TEN, _MOVED, running, seconds=0.1)


def _total(tally: Tally) -> tuple[Counts, int]:
    """The total of the partition that is counted, and since when."""
    report, _ = _reports(tally)
    return report.total, report.total_since


def test_a_transaction_writes_what_was_done_up_to_it():
    """Transactions in flight count what those before them add. The report has only
    what is committed; other partitions keep their count.
    """
    tally = Tally(slot=0, bounds=(1.0,), service=uuid.uuid4())
    assert _total(tally) == (NOTHING, 0)  # unknown before the first take-over
    tally.slot_works({}, _PARTITIONS)
    first, second = tally.written(_TEN, _MOVED), tally.written(_TEN, _MOVED)

    assert first.keys() == second.keys() == {_KEY}
    assert first[_KEY].counts == Counts(records=10, bytes=100)
    assert second[_KEY].counts == Counts(records=20, bytes=200)
    assert _total(tally)[0] == NOTHING
    _commit(tally, first)
    assert _total(tally) == (first[_KEY].counts, first[_KEY].begun)


def test_a_take_over_continues_from_the_progress():
    """A transaction that was dropped no longer counts; one whose answer was lost does
    if the progress has it.
    """
    tally = Tally(slot=0, bounds=(1.0,), service=uuid.uuid4())
    tally.slot_works({}, _PARTITIONS)
    lost, _dropped = tally.written(_TEN, _MOVED), tally.written(_TEN, _MOVED)
    tally.slot_works({_KEY: lost[_KEY].encoded()}, _PARTITIONS)

    assert _total(tally) == (lost[_KEY].counts, lost[_KEY].begun)
    again = tally.written(_TEN, _MOVED)
    assert again[_KEY].counts == Counts(records=20, bytes=200)
    assert again[_KEY].begun == lost[_KEY].begun


def test_counts_of_another_service_are_not_continued():
    """Each service counts what it copied itself, from zero."""
    theirs = RunningCount(service=uuid.uuid4(), begun=1, counts=Counts(records=99))
    tally = Tally(slot=0, bounds=(1.0,), service=uuid.uuid4())
    tally.slot_works({_KEY: theirs.encoded()}, _PARTITIONS)

    total, since = _total(tally)
    assert total == NOTHING
    assert since > theirs.begun


def test_a_first_position_is_written_with_a_count_of_nothing():
    """A transaction may move a partition without having counts for it."""
    tally = Tally(slot=0, bounds=(1.0,), service=uuid.uuid4())
    tally.slot_works({}, _PARTITIONS)

    assert tally.written({}, _MOVED)[_KEY].counts == NOTHING


@pytest.mark.parametrize("owner", [True, False])
def test_counts_of_a_slot_that_must_take_over_are_not_reported(owner: bool):
    """Another slot may have counted the partition since, from another moment: only a
    take-over can tell. Until then a report has no total.
    """
    tally = Tally(slot=0, bounds=(1.0,), service=uuid.uuid4())
    tally.slot_works({}, _PARTITIONS)
    running = tally.written(_TEN, _MOVED)
    _commit(tally, running)
    tally.begin(owner=owner)

    known = (running[_KEY].counts, running[_KEY].begun)
    assert _total(tally) == (known if owner else (NOTHING, 0))


def test_a_record_that_fails_counts_once():
    """A record counts when it fails, not when it is tried again, in a later lease too;
    another one, or another reason, counts.
    """
    tally = Tally(slot=0, bounds=(1.0,), service=uuid.uuid4())

    def failed() -> dict[str, int]:
        report, other = _reports(tally)
        assert other.failed == ()
        return dict(report.failed)

    tally.failed(_KEY, "TOO_LARGE", 7)
    tally.failed(_KEY, "TOO_LARGE", 7)
    assert failed() == {"TOO_LARGE": 1}
    tally.begin(owner=True)
    tally.failed(_KEY, "TOO_LARGE", 7)
    assert failed() == {}
    tally.failed(_KEY, "TOO_LARGE", 8)
    tally.failed(_KEY, "NOT_ALLOWED", 8)
    assert failed() == {"TOO_LARGE": 1, "NOT_ALLOWED": 1}
    tally.failed(_KEY, "TOO_LARGE", 9)
    tally.begin(owner=False)  # an error on credit: that failure was never reported
    tally.failed(_KEY, "TOO_LARGE", 9)
    assert failed() == {"TOO_LARGE": 1}
