"""Requests and answers that are lost on the way, or late."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.harness.injected_errors import InjectedErrors, SlotState
from tests.harness.mishaps import Mishap, Rule

if TYPE_CHECKING:
    from collections.abc import Iterator

    from mirror.playground.cluster import PlaygroundCluster

pytestmark = pytest.mark.integration

_TIMEOUT = 1.0
"""What a slot waits for an answer, in seconds."""


@pytest.fixture(scope="module")
def errors(clusters: dict[str, PlaygroundCluster]) -> Iterator[InjectedErrors]:
    source, target = clusters["a"].bootstrap, clusters["b"].bootstrap
    with InjectedErrors(source, target, timeout=_TIMEOUT) as errors:
        yield errors


@pytest.mark.parametrize(
    ("api", "state"),
    [
        ("Produce", SlotState.AT_WORK),
        ("EndTxn", SlotState.AT_WORK),
        ("InitProducerId", SlotState.TAKING_OVER),
        ("Fetch", SlotState.TAKING_OVER),
        ("DescribeTransactions", SlotState.TAKING_OVER),
        ("DescribeProducers", SlotState.TAKING_OVER),
    ],
)
@pytest.mark.parametrize(
    "mishap",
    [
        Mishap.LOST,
        Mishap.ANSWER_LOST,
        Mishap.NO_ANSWER,
        Mishap.LATE_REQUEST,
        Mishap.LATE_ANSWER,
    ],
)
def test_answers_lost_or_late(
    errors: InjectedErrors, api: str, state: SlotState, mishap: Mishap
) -> None:
    """Requests and answers that are lost, or come after the slot has given up and
    taken over again, change nothing: a late commit commits nothing twice.
    """
    late = mishap in {Mishap.LATE_REQUEST, Mishap.LATE_ANSWER}
    seconds = 1.5 * _TIMEOUT if late else 0
    errors.check_recovers(Rule(api=api, mishap=mishap, seconds=seconds), state)
