"""Brokers without transactions v2: every write path again, on transactions v1.

The target's broker is real; the proxy lets it look like Kafka 2.8, so that partitions
are added to each transaction by a request of their own.
"""

from __future__ import annotations

import signal
from typing import TYPE_CHECKING

import pytest

from mirror.clusters import codes
from tests.harness.injected_errors import COPY, InjectedErrors, SlotState
from tests.harness.mishaps import Mishap, Rule
from tests.harness.proxy import KAFKA_2_8
from tests.harness.slot_processes import Point, SignalAt, SlotProcess
from tests.harness.waiting import wait_for

if TYPE_CHECKING:
    from collections.abc import Iterator

    from mirror.playground.cluster import PlaygroundCluster

pytestmark = pytest.mark.integration

_TIMEOUT = 1.0
"""What a slot waits for an answer, in seconds."""


@pytest.fixture(scope="module")
def errors(clusters: dict[str, PlaygroundCluster]) -> Iterator[InjectedErrors]:
    """Errors between clusters that look old."""
    source, target = clusters["a"].bootstrap, clusters["b"].bootstrap
    with InjectedErrors(source, target, timeout=_TIMEOUT, newest=KAFKA_2_8) as errors:
        yield errors


def test_copies(errors: InjectedErrors) -> None:
    """With brokers that speak no version newer than Kafka 2.8's everything is copied in
    transactions to which partitions were added explicitly.
    """
    seen = Rule(api="AddPartitionsToTxn", mishap=Mishap.LATE_ANSWER, times=None)
    errors.check_recovers(seen, SlotState.FIRST_TAKE_OVER)
    assert seen.hits >= 2


@pytest.mark.parametrize(
    "code", [14, 15, 16, 47, 48, 49, 51, 53, 90, -1], ids=codes.name_of
)
@pytest.mark.parametrize("mishap", [Mishap.ERROR, Mishap.REFUSED])
def test_partition_is_not_added(
    errors: InjectedErrors, code: int, mishap: Mishap
) -> None:
    """A partition that could not be added to a transaction, or seems not to have been,
    costs no record.
    """
    errors.check_recovers(
        Rule(
            api="AddPartitionsToTxn",
            mishap=mishap,
            code=code,
            topic=COPY,
            partition=0,
            skip=1,
        )
    )


@pytest.mark.parametrize("code", [3, 29], ids=codes.name_of)
def test_partition_is_set_aside(errors: InjectedErrors, code: int) -> None:
    """A partition that mirror may not add to a transaction is faulted, with the reason,
    and the other is copied; once it may, it is copied too.
    """
    errors.check_sets_aside(
        Rule(
            api="AddPartitionsToTxn",
            mishap=Mishap.REFUSED,
            code=code,
            topic=COPY,
            partition=0,
        )
    )


@pytest.mark.parametrize("api", ["Produce", "EndTxn", "AddPartitionsToTxn"])
@pytest.mark.parametrize(
    "mishap",
    [Mishap.LOST, Mishap.ANSWER_LOST, Mishap.NO_ANSWER, Mishap.LATE_REQUEST],
)
def test_answers_lost_or_late(errors: InjectedErrors, api: str, mishap: Mishap) -> None:
    """Requests and answers that are lost, or arrive after the slot took over again,
    change nothing: epochs alone keep a late request of v1 out.
    """
    seconds = 1.5 * _TIMEOUT if mishap is Mishap.LATE_REQUEST else 0
    errors.check_recovers(Rule(api=api, mishap=mishap, seconds=seconds))


@pytest.mark.parametrize("code", [14, 16, 47, 48, 51, 90, -1], ids=codes.name_of)
@pytest.mark.parametrize("api", ["Produce", "EndTxn"])
@pytest.mark.parametrize("mishap", [Mishap.ERROR, Mishap.REFUSED])
def test_write_or_commit_fails(
    errors: InjectedErrors, mishap: Mishap, api: str, code: int
) -> None:
    """A write or commit that fails, or only seems to, loses and repeats nothing."""
    topic, partition = (COPY, 0) if api == "Produce" else (None, None)
    errors.check_recovers(
        Rule(api=api, mishap=mishap, code=code, topic=topic, partition=partition)
    )


@pytest.mark.parametrize(
    "point", [Point.AFTER_WRITE, Point.AFTER_COMMIT_REQUEST], ids=lambda p: p.name
)
def test_owner_is_killed_in_mid_transaction(
    errors: InjectedErrors, point: Point
) -> None:
    """The successor of a slot that died after its writes, before or right after its
    commit, copies each record exactly once.
    """
    with errors.case(SlotState.TAKING_OVER) as slot:
        errors.send()
        kill = SignalAt(point=point, number=signal.SIGKILL)
        with SlotProcess(errors.flow, signal_at=kill) as dying:
            wait_for(lambda: not dying.alive)
            assert dying.how_it_ended() == ""
        reports = errors.copy_and_more(slot)
    assert {report.state for report in reports} == {"RUNNING"}
