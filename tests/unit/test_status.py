"""What the store makes of what flows write."""

from __future__ import annotations

import time

import pytest

from mirror.status.states import FlowState
from mirror.status.store import StatusStore
from tests.harness.statuses import partition_status, show

pytestmark = pytest.mark.unit


@pytest.mark.parametrize(
    ("state", "due_in", "grows"),
    [
        (FlowState.RUNNING, 5, False),
        (FlowState.RUNNING, -5, True),
        (FlowState.RETRYING, 5, True),
        (FlowState.STARTING, 5, True),
    ],
)
def test_a_lag_without_reports_grows(
    state: FlowState, due_in: float, *, grows: bool
) -> None:
    """The lag of a flow that hangs or is down grows by the time since its last report;
    before the next report is due, it stays as reported.
    """
    store = StatusStore(("A->B",))
    now = time.time()
    show(
        store,
        "A->B",
        state=state,
        reported_at=now - 100,
        report_due=now + due_in,
        partitions=tuple(
            partition_status("t", 0, lag_seconds=lag) for lag in (2.0, -1.0)
        ),
    )
    (flow,) = store.read().flows

    assert flow.partitions[1].lag_seconds == -1.0
    assert flow.lag_seconds == pytest.approx(102 if grows else 2, abs=1)
    assert store.read().to_json()["flows"][0]["lag_seconds"] == pytest.approx(
        flow.lag_seconds, abs=1
    )
