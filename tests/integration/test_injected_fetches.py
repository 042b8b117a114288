"""A source that cannot be read for a moment, or for longer."""

from __future__ import annotations

import pytest

from tests.harness.injected_errors import (
    DATA,
    InjectedErrors,
    SlotState,
    error_id,
)
from tests.harness.mishaps import Rule

pytestmark = pytest.mark.integration


@pytest.mark.parametrize("code", [1, 3, 6, 29, 74, -1], ids=error_id)
@pytest.mark.parametrize("skip", [0, 2])
def test_fetch_errors(errors: InjectedErrors, code: int, skip: int) -> None:
    """A source partition that cannot be read for a moment is copied later."""
    errors.check_recovers(
        Rule(api="Fetch", code=code, topic=DATA, partition=0, skip=skip),
        SlotState.TAKING_OVER,
    )


@pytest.mark.parametrize("code", [29, -1, 6, 70], ids=error_id)
def test_fetch_fails_as_a_whole(errors: InjectedErrors, code: int) -> None:
    """A Fetch that fails as a whole is sent again."""
    errors.check_recovers(Rule(api="Fetch", code=code), SlotState.TAKING_OVER)


@pytest.mark.parametrize("code", [29, -1], ids=error_id)
def test_source_partition_refused(errors: InjectedErrors, code: int) -> None:
    """A source partition that mirror may not read is set aside, alone and visibly."""
    errors.check_sets_aside(
        Rule(api="Fetch", code=code, topic=DATA, partition=0),
        SlotState.TAKING_OVER,
    )
