"""A streaming query that goes on from one run of a flow to the next."""

from __future__ import annotations

import contextlib
import threading
from typing import Any, cast

import pytest

from mirror.errors import FlowError
from mirror.service.query import LeaseQuery, lease_query
from tests.harness.micro_batches import MicroBatches

pytestmark = pytest.mark.unit


@pytest.fixture
def spark() -> MicroBatches:
    return MicroBatches()


@pytest.fixture
def query(spark: MicroBatches, tmp_path: Any) -> Any:
    with lease_query(cast("Any", spark), "A->B", tmp_path) as begun:
        yield begun


def test_it_waits_between_runs(query: LeaseQuery, spark: MicroBatches):
    """One query carries out the leases of one run, none until the next run begins, and
    then that one's.
    """
    begun, may_end, after = threading.Event(), threading.Event(), threading.Event()

    def lease() -> None:
        assert not begun.is_set(), "a lease of a run that has ended"
        begun.set()
        assert may_end.wait(10)

    assert query.can_go_on
    query.carry_out(lease)
    assert begun.wait(10)
    assert not query.can_go_on
    query.pause()
    may_end.set()
    assert query.can_go_on
    query.carry_out(after.set)

    assert after.wait(10)
    assert query.active
    assert not spark.stopped.is_set()


def test_it_ends_while_it_waits(spark: MicroBatches, tmp_path: Any):
    """A run that cannot begin ends the query, which waits in a micro-batch."""
    with (
        contextlib.suppress(FlowError),
        lease_query(cast("Any", spark), "A->B", tmp_path),
    ):
        raise FlowError("the target does not answer")
    assert spark.stopped.is_set()


def test_a_lease_that_fails_ends_it(query: LeaseQuery, spark: MicroBatches):
    """The failure says what the lease said."""
    failed = threading.Event()

    def lease() -> None:
        failed.set()
        raise FlowError("a slot did not come back")

    query.carry_out(lease)
    assert failed.wait(10)
    spark.thread.join(10)
    query.pause()
    assert not query.can_go_on
    assert query.failure == "a slot did not come back"
