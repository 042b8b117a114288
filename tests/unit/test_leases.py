"""The leases of a run: when they may end, and what they wait for."""

from __future__ import annotations

from contextlib import closing
import threading
import time
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, cast

import pytest

from mirror.config.cluster_settings import ClusterConfig
from mirror.config.schema import FlowConfig
from mirror.copying.lease import LeasePlan
from mirror.service import leases
from mirror.service.leases import Leases, RunTerms
from mirror.service.ownership import Owned

if TYPE_CHECKING:
    from collections.abc import Iterator

pytestmark = pytest.mark.unit


class _Query:
    """The streaming query that carries them out."""

    def __init__(self) -> None:
        self.active = True
        self.paused = threading.Event()

    def pause(self) -> None:
        self.paused.set()


class _Places:
    """Where slots run. Processes start when the test says so."""

    def __init__(self, *, alone: bool) -> None:
        self.alone = alone
        self.spark = SimpleNamespace(conf={"spark.driver.host": "127.0.0.1"})
        self.order: list[str] = []
        self.wanted = threading.Event()
        self.may_start = threading.Event()

    def start_processes(self, _flow: str, slots: int) -> None:
        self.order.append(f"{slots} wanted")

    def await_processes(self, _flow: str, _seconds: float) -> None:
        self.wanted.set()
        assert self.may_start.wait(10)
        self.order.append("processes")

    def places_of(self, _flow: str, _slots: int) -> list[None]:
        self.order.append("places")
        raise LookupError("no further")


def _leases(
    *, exactly_once: bool = True, alone: bool = False, once: bool = False
) -> Leases:
    """They have not begun. `alone`: Spark has one executor. `once`: they end when they
    have caught up.
    """
    sides = [ClusterConfig(alias=alias, bootstrap_servers="h:1") for alias in "AB"]
    plan = LeasePlan(
        flow=FlowConfig(source="A", target="B", exactly_once=exactly_once),
        source=sides[0], target=sides[1], source_id="a", target_id="b",
    )  # fmt: skip
    owned = Owned(run="g", slot_ids={})
    nothing = cast("Any", None)
    return Leases(
        cast("Any", _Query()),
        plan,
        RunTerms(owned=owned, slots=1, ends={} if once else None),
        placement=nothing, log_settings=nothing, took=nothing,
        preferred=cast("Any", _Places(alone=alone)),
    )  # fmt: skip


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch) -> Iterator[Leases]:
    """After a lease that gave credit."""
    made = _leases()

    made._number = 1

    def carry_out() -> None:
        made._credit.given = True

    monkeypatch.setattr(made, "_carry_out", carry_out)
    made._lease()
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
    made = _leases(exactly_once=exactly_once, alone=alone, once=once)
    with closing(made):
        assert made._credit.possible == possible


def _query_of(run: Leases) -> _Query:
    return cast("Any", run)._query


def _places_of(run: Leases) -> _Places:
    return cast("Any", run)._preferred


def test_stopping_after_a_failure_between_leases(run: Leases):
    """Spark gave up after a lease with credit, such as over its checkpoint: no lease
    follows that could end the credit, so none is waited for.
    """
    _query_of(run).active = False
    began = time.monotonic()
    run.stop()
    assert time.monotonic() - began < 2


def test_stopping_with_credit(run: Leases, monkeypatch: pytest.MonkeyPatch):
    """The next lease ends the credit; only then the query may wait for another run."""
    query = _query_of(run)
    stopping = threading.Thread(target=run.stop)
    stopping.start()
    assert run.ended.wait(10)
    assert not query.paused.is_set()
    monkeypatch.setattr(run, "_carry_out", lambda: setattr(run._credit, "given", False))
    run._lease()
    stopping.join(2)
    assert query.paused.is_set()


def test_a_lease_that_does_not_end(run: Leases, monkeypatch: pytest.MonkeyPatch):
    """The query cannot go on with another run: a slot of this one still copies."""
    monkeypatch.setattr(leases, "_STOP_SECONDS", 0.1)
    run.stop()
    assert not _query_of(run).paused.is_set()


def test_the_first_lease_waits_for_the_slots_processes(
    run: Leases, monkeypatch: pytest.MonkeyPatch
):
    """A slot whose process is still being started would get a second one."""
    places = _places_of(run)
    monkeypatch.delattr(run, "_carry_out")
    run._number = 0
    threading.Timer(0.2, places.may_start.set).start()
    with pytest.raises(LookupError, match="no further"):
        run._lease()
    assert places.order == ["processes", "places"]


def test_a_run_copies_until_the_next_ones_processes_are_there(run: Leases):
    """More slots need processes, which take longer to start than all else between two
    runs: the run with fewer ends once they are there.
    """
    places = _places_of(run)
    run.begin_again(2)
    assert places.wanted.wait(10)
    assert places.order == ["2 wanted"]
    assert run.again, "or a lease meanwhile would ask for still more"
    assert not run.ended.is_set()
    places.may_start.set()
    assert run.ended.wait(10)
