"""A flow's streaming query, where Spark does not do what it is asked."""

from __future__ import annotations

from contextlib import closing
import threading
import time
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, cast

import pytest

from mirror.config.cluster_settings import ClusterConfig
from mirror.config.schema import FlowConfig
from mirror.driver.generation import Generation
from mirror.driver.ownership import Owned
from mirror.driver.query import LeaseQuery, RunTerms
from mirror.relay.lease import LeasePlan

if TYPE_CHECKING:
    from collections.abc import Iterator

pytestmark = pytest.mark.unit


class _Query:
    """Spark's side of it."""

    def __init__(self, *, active: bool) -> None:
        self.isActive = active
        self.stopped = threading.Event()

    def stop(self) -> None:
        self.stopped.set()


def _query(
    *, exactly_once: bool = True, alone: bool = False, once: bool = False
) -> LeaseQuery:
    """One that has not started. `alone`: Spark has one executor. `once`: it ends when
    it has caught up.
    """
    sides = [ClusterConfig(alias=alias, bootstrap_servers="h:1") for alias in "AB"]
    plan = LeasePlan(
        flow=FlowConfig(source="A", target="B", exactly_once=exactly_once),
        source=sides[0], target=sides[1], source_id="a", target_id="b",
    )  # fmt: skip
    owned = Owned(run="g", generation=Generation(), former_ids={})
    nothing = cast("Any", None)
    return LeaseQuery(
        cast("Any", SimpleNamespace(conf={"spark.driver.host": "127.0.0.1"})),
        plan,
        RunTerms(owned=owned, slots=1, ends={} if once else None),
        placement=nothing, log_settings=nothing, took=nothing,
        preferred=cast("Any", SimpleNamespace(alone=alone)),
    )  # fmt: skip


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch) -> Iterator[LeaseQuery]:
    """After a lease that gave credit."""
    made = _query()

    def carry_out() -> None:
        made._credit.given = True

    monkeypatch.setattr(made, "_carry_out", carry_out)
    made._lease(cast("Any", None), 1)
    with closing(made):
        yield made


@pytest.mark.parametrize(
    ("exactly_once", "alone", "once", "possible"),
    [
        (True, False, False, True),
        (False, False, False, False),
        (False, True, False, True),
        (True, True, True, False),
    ],
)
def test_where_slots_may_copy_on(
    *, exactly_once: bool, alone: bool, once: bool, possible: bool
) -> None:
    """With exactly-once a successor fences; without, it must be the same process, and
    only a single executor makes that certain. A run that ends itself gives no credit.
    """
    made = _query(exactly_once=exactly_once, alone=alone, once=once)
    with closing(made):
        assert made._credit.possible == possible


def test_stopping_a_query_that_failed_between_leases(run: LeaseQuery):
    """Spark gave up after a lease with credit, such as over its checkpoint: no lease
    follows that could end the credit, so none is waited for.
    """
    query = _Query(active=False)
    began = time.monotonic()
    run.stop(cast("Any", query))
    assert query.stopped.is_set()
    assert time.monotonic() - began < 2


def test_stopping_a_query_with_credit(run: LeaseQuery, monkeypatch: pytest.MonkeyPatch):
    """The next lease ends the credit before Spark is asked to end."""
    query = _Query(active=True)
    stopping = threading.Thread(target=run.stop, args=(query,))
    stopping.start()
    assert run.ended.wait(10)
    assert not query.stopped.is_set()
    monkeypatch.setattr(run, "_carry_out", lambda: setattr(run._credit, "given", False))
    run._lease(cast("Any", None), 2)
    stopping.join(2)
    assert query.stopped.is_set()


def test_the_first_lease_waits_for_the_slots_processes(
    run: LeaseQuery, monkeypatch: pytest.MonkeyPatch
):
    """A slot whose process is still being started would get a second one."""
    order = []
    begun, may_end = threading.Event(), threading.Event()

    def warm_up(*_: Any) -> None:
        begun.set()
        assert may_end.wait(10)
        order.append("processes")

    places = SimpleNamespace(warm_up=warm_up, of=lambda *_: order.append("places"))
    monkeypatch.setattr(run, "_preferred", places)
    monkeypatch.delattr(run, "_carry_out")
    run._warming.start()
    assert begun.wait(10)
    threading.Timer(0.2, may_end.set).start()
    with pytest.raises(AttributeError, match="turns"):
        run._carry_out()
    assert order == ["processes", "places"]
