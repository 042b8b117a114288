"""Writes and commits whose answers say that they failed; writes that are refused."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING

import pytest

from mirror.copying.slot import Slot
from mirror.copying.target import TargetWriter
from mirror.records.writing import TopicWriter
from tests.harness.admin import create_topic, end_offsets
from tests.harness.connections import connected
from tests.harness.injected_errors import (
    COPY,
    EACH,
    PARTITIONS,
    PROGRESS,
    InjectedErrors,
    SlotState,
    error_id,
)
from tests.harness.mishaps import Mishap, Rule
from tests.harness.proxy import BrokerProxy
from tests.harness.slots import RunningLease, copy_until
from tests.harness.waiting import wait_for

if TYPE_CHECKING:
    from mirror.playground.cluster import PlaygroundCluster

pytestmark = pytest.mark.integration

_TRANSIENT = (6, 7, 19, 20, 45, 46, 47, 48, 51, 59, 90, -1)
_GUILTY = (10, 29, 87)
_ALL = "read_uncommitted"


@pytest.mark.parametrize("code", _TRANSIENT, ids=error_id)
def test_produce_refused(errors: InjectedErrors, code: int) -> None:
    """A batch that the broker did not write, whatever its reason, never counts as
    written; not even with DUPLICATE_SEQUENCE_NUMBER, which is no success here, since
    nothing is ever sent twice in one transaction.
    """
    errors.check_recovers(
        Rule(api="Produce", mishap=Mishap.REFUSED, code=code, topic=COPY, partition=0),
    )


@pytest.mark.parametrize("code", [*_TRANSIENT, *_GUILTY], ids=error_id)
def test_progress_refused(errors: InjectedErrors, code: int) -> None:
    """Records whose progress was not written are not committed."""
    errors.check_recovers(
        Rule(
            api="Produce", mishap=Mishap.REFUSED, code=code, topic=PROGRESS, partition=0
        ),
    )


@pytest.mark.parametrize("code", [7, 20, 46, 51, -1], ids=error_id)
@pytest.mark.parametrize("topic", [COPY, PROGRESS])
def test_produce_written_and_said_to_have_failed(
    errors: InjectedErrors, topic: str, code: int
) -> None:
    """A batch that was written although the answer says otherwise is on the target only
    once in the end.
    """
    errors.check_recovers(Rule(api="Produce", code=code, topic=topic, partition=0))


@pytest.mark.parametrize("code", [*_TRANSIENT, *_GUILTY], ids=error_id)
@pytest.mark.parametrize("mishap", [Mishap.REFUSED, Mishap.ERROR])
def test_proof_fails(errors: InjectedErrors, mishap: Mishap, code: int) -> None:
    """A slot that cannot prove in its take-over that it reads the newest progress,
    because its tombstone was not written or the answer says so, tries again.
    """
    errors.check_recovers(
        Rule(api="Produce", mishap=mishap, code=code, topic=PROGRESS, partition=0),
        SlotState.TAKING_OVER,
    )


@pytest.mark.parametrize("code", _GUILTY, ids=error_id)
def test_produce_refused_for_its_content(errors: InjectedErrors, code: int) -> None:
    """A partition whose records the target refuses is set aside, alone and visibly, and
    continues when the target accepts them.
    """
    errors.check_sets_aside(
        Rule(api="Produce", mishap=Mishap.REFUSED, code=code, topic=COPY, partition=0),
    )


@pytest.mark.parametrize("topic", [COPY, PROGRESS])
def test_failed_writes_are_not_reported(errors: InjectedErrors, topic: str) -> None:
    """A lease that ends while its writes fail reports no record as copied, and no
    position beyond what is committed; no position at all if it could not even take
    over, which needs the progress topic.
    """
    rule = Rule(
        api="Produce",
        mishap=Mishap.REFUSED,
        code=7,
        topic=topic,
        partition=0,
        times=None,
    )
    with errors.case(SlotState.TAKING_OVER) as slot:
        committed = errors.sent
        with errors.rules(rule):
            errors.send()
            lease = RunningLease(slot, errors.flow.lease(60))
            try:
                wait_for(lambda: rule.hits)
            finally:
                reports = lease.end()
        seen = {(report.counts.records, report.position) for report in reports}
        assert seen == {(0, -1 if topic == PROGRESS else committed)}
        lease = errors.flow.lease(300)
        copy_until(errors.witness, slot, lease, count=EACH * PARTITIONS)


@pytest.mark.parametrize("code", [14, 15, 16, 47, 48, 49, 51, 53, 90, -1], ids=error_id)
@pytest.mark.parametrize(("mishap", "skip"), [(Mishap.ERROR, 0), (Mishap.REFUSED, 1)])
def test_commit_fails(
    errors: InjectedErrors, code: int, mishap: Mishap, skip: int
) -> None:
    """A commit that has failed, or only seems to, loses and repeats nothing."""
    errors.check_recovers(Rule(api="EndTxn", mishap=mishap, code=code, skip=skip))


def test_a_lease_that_ends_after_an_error_leaves_nothing_open(
    errors: InjectedErrors, clusters: dict[str, PlaygroundCluster]
) -> None:
    """A transaction that could not be committed is aborted after the lease, not by the
    next lease's take-over: another slot that reads progress would wait for it, and the
    next lease for that slot.
    """
    target = clusters["b"].bootstrap

    def is_open() -> bool:
        topics = errors.flow.copy, errors.flow.progress
        ends = ({"isolation.level": level} for level in ("read_committed", _ALL))
        stable, last = (
            [end_offsets(target, topic, **settings) for topic in topics]
            for settings in ends
        )
        return stable != last

    with errors.case(SlotState.AT_WORK) as slot:
        with errors.rules(Rule(api="EndTxn", mishap=Mishap.LOST, times=None)):
            errors.send()
            # A lease may also end just after a take-over, with nothing open yet.
            wait_for(lambda: slot.run(errors.flow.lease(1)) and not slot._owner)
            slot.finish()  # as soon as the task has its report
            wait_for(lambda: not is_open(), timeout=10)
        lease = errors.flow.lease(300)
        copy_until(errors.witness, slot, lease, count=EACH * PARTITIONS)


def test_what_is_held_up_does_not_follow_its_partitions(
    errors: InjectedErrors, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Because of a quota, a broker reads nothing from a slot when its lease ends, and
    the driver gives its partitions to another slot: what the first one had under way is
    not committed later, which would copy it twice.
    """
    muted = Rule(api="Produce", mishap=Mishap.LATE_REQUEST, topic=PROGRESS, seconds=8)
    one_round = PARTITIONS * EACH
    with (
        errors.case(SlotState.AT_WORK) as slot,
        contextlib.closing(Slot(errors.flow.plan, 1)) as other,
    ):
        held = {slot._writer}
        monkeypatch.setattr(TargetWriter, "held_up", property(held.__contains__))
        with errors.rules(muted):
            errors.send()
            slot.run(errors.flow.lease(2))
            assert muted.hits
            lease = RunningLease(other, errors.flow.lease(300, slot=1))
            try:
                errors.witness.wait(one_round, 30, lease)
                assert not muted.served
                held.clear()
                slot.run(errors.flow.lease(3, partitions=()))
                wait_for(lambda: muted.served)
                errors.send()
                errors.witness.wait(2 * one_round, 30, lease)
            finally:
                lease.end()


def test_a_leader_is_asked_for_when_it_moves(
    clusters: dict[str, PlaygroundCluster], topic_name: str
) -> None:
    """A writer of a small topic asks once who leads it, and again when the leader
    refuses: then the records are written all the same.
    """
    asked = Rule(
        api="Metadata", mishap=Mishap.LATE_ANSWER, topic=topic_name, times=None
    )
    moved = Rule(
        api="Produce", mishap=Mishap.REFUSED, code=6, topic=topic_name, partition=0
    )
    create_topic(clusters["a"].bootstrap, topic_name, 1)
    with (
        BrokerProxy(clusters["a"].bootstrap) as proxy,
        connected(proxy.bootstrap) as cluster,
    ):
        writer = TopicWriter(cluster, topic_name)
        with proxy.rules(asked):
            assert [writer.write([(b"k", b"v")]) for _ in range(3)] == [1, 2, 3]
        assert asked.hits == 1
        with proxy.rules(moved, asked):
            assert [writer.write([(b"k", b"v")]) for _ in range(2)] == [4, 5]
        assert (moved.hits, asked.hits) == (1, 2)
