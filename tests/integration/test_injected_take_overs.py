"""A take-over in which any single step fails."""

from __future__ import annotations

import pytest

from tests.harness.injected_errors import (
    COPY,
    DATA,
    PROGRESS,
    InjectedErrors,
    SlotState,
    error_id,
)
from tests.harness.mishaps import Mishap, Rule

pytestmark = pytest.mark.integration


@pytest.mark.parametrize("code", [14, 15, 16, 47, 49, 51, 53, 90, -1], ids=error_id)
@pytest.mark.parametrize("mishap", [Mishap.ERROR, Mishap.REFUSED])
def test_take_over_fails(errors: InjectedErrors, code: int, mishap: Mishap) -> None:
    """A slot that cannot get its producer id tries again."""
    errors.check_recovers(
        Rule(api="InitProducerId", mishap=mishap, code=code, skip=1),
        SlotState.TAKING_OVER,
    )


@pytest.mark.parametrize("code", [14, 15, 16, 53, -1], ids=error_id)
def test_coordinator_not_found(errors: InjectedErrors, code: int) -> None:
    """A slot that does not find its coordinator looks again."""
    errors.check_recovers(Rule(api="FindCoordinator", code=code), SlotState.TAKING_OVER)


@pytest.mark.parametrize("code", [3, 5, 29], ids=error_id)
@pytest.mark.parametrize("partition", [None, 0])
@pytest.mark.parametrize("topic", [DATA, COPY])
def test_metadata_errors(
    errors: InjectedErrors, topic: str, partition: int | None, code: int
) -> None:
    """A topic or partition that metadata lacks for a moment is copied later."""
    errors.check_recovers(
        Rule(api="Metadata", code=code, topic=topic, partition=partition),
        SlotState.TAKING_OVER,
    )


@pytest.mark.parametrize(("code", "partition"), [(3, None), (29, None), (5, 0)])
@pytest.mark.parametrize("skip", range(4))
def test_metadata_errors_of_progress(
    errors: InjectedErrors, skip: int, partition: int | None, code: int
) -> None:
    """A slot that does not see the progress topic at any point of its take-over tries
    again.
    """
    errors.check_recovers(
        Rule(api="Metadata", code=code, topic=PROGRESS, partition=partition, skip=skip),
        SlotState.TAKING_OVER,
    )


@pytest.mark.parametrize("code", [1, 3, 6, 29, 74, -1], ids=error_id)
def test_progress_cannot_be_read(errors: InjectedErrors, code: int) -> None:
    """A slot that cannot read its progress tries again, and does not start from the
    beginning.
    """
    errors.check_recovers(
        Rule(api="Fetch", code=code, topic=PROGRESS, partition=0, times=2),
        SlotState.TAKING_OVER,
    )


@pytest.mark.parametrize("code", [3, 29, -1], ids=error_id)
@pytest.mark.parametrize(("topic", "skip"), [(DATA, 0), (PROGRESS, 0), (PROGRESS, 1)])
def test_offsets_cannot_be_listed(
    errors: InjectedErrors, topic: str, skip: int, code: int
) -> None:
    """A slot asks where a log begins or ends until it knows."""
    errors.check_recovers(
        Rule(api="ListOffsets", code=code, topic=topic, partition=0, skip=skip),
        # A topic that was copied before begins where that ended.
        SlotState.FIRST_TAKE_OVER if topic == DATA else SlotState.TAKING_OVER,
    )
