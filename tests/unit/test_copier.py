"""A slot's thread: what it does between two leases, and what it says of that."""

from __future__ import annotations

from contextlib import closing
from dataclasses import replace
import gc
import select
import socket
import threading
from types import SimpleNamespace
from typing import Any, cast

import pyarrow as pa
import pytest
from structlog.testing import capture_logs

from mirror.copying import task as task_module
from mirror.copying.lease import Assignment, Lease, PartitionReport
from mirror.copying.task import Copier
from mirror.errors import TransformError

pytestmark = pytest.mark.unit

_LEASE = Lease(slot=0, number=1, generation="g", seconds=1, assignments=(), credit=True)


class _Slot:
    """Copies on until its wakeup is readable, or fails there."""

    def __init__(
        self, failure: Exception | None = None, *, on_credit: bool = True
    ) -> None:
        self.on_credit = on_credit
        self.begun = threading.Event()
        self.finished = threading.Event()
        self._failure = failure

    def run(self, _lease: Lease, *, wakeup: int | None) -> list[PartitionReport]:
        assert wakeup is not None
        return [
            PartitionReport(
                slot=0, topic="t", partition=0, target_topic="A.t", state="RUNNING"
            )
        ]

    def copy_on(self, _seconds: float, *, wakeup: int) -> bool:
        self.begun.set()
        if self._failure is not None:
            raise self._failure
        assert select.select([wakeup], [], [], 10)[0]
        return True

    def finish(self, _unless: Any) -> None:
        self.finished.set()

    def close(self) -> None:
        pass


def test_a_lease_takes_a_copying_slot_over():
    """The next lease ends the credit, by the connection of the one before it, and no
    transaction; the credit's time is in its report. Without a lease the slot finishes.
    """
    slot = _Slot()
    one, _one = socket.socketpair()
    other, driver = socket.socketpair()
    with closing(_one), closing(Copier(lambda: cast("Any", slot))) as copier:
        (first,) = copier.run(_LEASE, one)
        assert (first.slot_handovers, first.slot_credit_seconds) == (0, 0.0)
        assert slot.begun.wait(10)
        (second,) = copier.run(_LEASE, other)
        assert second.slot_handovers == 1
        assert 0 < second.slot_credit_seconds <= second.slot_seconds
        assert not slot.finished.is_set()
        driver.close()  # as when it wakes its tasks, or dies
        assert slot.finished.wait(10)


def test_a_slot_without_credit_finishes_after_its_report():
    """The task has the report while the slot still looks for what it left open."""
    slot = _Slot(on_credit=False)
    wakeup, driver = socket.socketpair()
    with closing(driver), closing(Copier(lambda: cast("Any", slot))) as copier:
        assert len(copier.run(_LEASE, wakeup)) == 1
        assert slot.finished.wait(10)
        assert not slot.begun.is_set()


def test_what_fails_on_credit_fails_the_next_lease():
    """An error that only a failed lease can answer is not lost, and does not leave the
    next task waiting; the lease after that is carried out.
    """
    slot = _Slot(RuntimeError("no such thing"))
    wakeup, driver = socket.socketpair()
    second, third = wakeup.dup(), wakeup.dup()
    with closing(driver), closing(Copier(lambda: cast("Any", slot))) as copier:
        copier.run(_LEASE, wakeup)
        assert slot.begun.wait(10)
        with pytest.raises(RuntimeError, match="no such thing"):
            copier.run(_LEASE, second)
        assert len(copier.run(_LEASE, third)) == 1


def test_a_failure_is_its_runs_alone():
    """The flow runs again: what went wrong on the credit of the run before, and made it
    end, fails no lease of this one, but is in the log.
    """
    slot = _Slot(RuntimeError("no such thing"))
    wakeup, driver = socket.socketpair()
    with (
        closing(driver),
        closing(Copier(lambda: cast("Any", slot))) as copier,
        capture_logs() as logged,
    ):
        copier.run(_LEASE, wakeup)
        assert slot.begun.wait(10)
        later = replace(_LEASE, generation="h")
        assert len(copier.run(later, wakeup.dup())) == 1
    assert [each["error"] for each in logged] == ["no such thing"]


def test_a_slot_is_made_where_it_runs():
    """A module that a user's function comes from is imported by the thread that calls
    it, as what it opens may be bound to that. An error there is the task's.
    """
    threads: list[int] = []

    class Noting(_Slot):
        def __init__(self) -> None:
            threads.append(threading.get_ident())
            super().__init__()

        def run(self, lease: Lease, *, wakeup: int | None) -> list[PartitionReport]:
            threads.append(threading.get_ident())
            return super().run(lease, wakeup=wakeup)

    wakeup, driver = socket.socketpair()
    with closing(driver), closing(Copier(lambda: cast("Any", Noting()))) as copier:
        copier.run(_LEASE, wakeup)
    made, ran = threads
    assert made == ran != threading.get_ident()

    def fails() -> Any:
        raise TransformError("cannot be imported")

    with pytest.raises(TransformError, match="cannot be imported"):
        Copier(fails)


def test_a_closed_slot_serves_no_plan(monkeypatch: pytest.MonkeyPatch):
    """The slot of a changed plan cannot be made, such as without its function: the plan
    before, taken back, gets a new slot, as the old one is closed and never answers.
    """

    def make(plan: Any, _number: int) -> Any:
        if plan.broken:
            raise TransformError("cannot be imported")
        return _Slot()

    monkeypatch.setattr("mirror.copying.slot.Slot", make)
    monkeypatch.setattr(task_module, "_slots", {})
    good, bad = (
        cast("Any", SimpleNamespace(flow=SimpleNamespace(name="A->B"), broken=broken))
        for broken in (False, True)
    )
    first = task_module._slot(good, 0, ("info", "json"))
    assert task_module._slot(good, 0, ("info", "json")) is first
    with pytest.raises(TransformError):
        task_module._slot(bad, 0, ("info", "json"))
    wakeup, driver = socket.socketpair()
    again = task_module._slot(good, 0, ("info", "json"))
    with closing(driver), closing(again):
        assert again is not first
        assert len(again.run(_LEASE, wakeup)) == 1


def test_a_row_brings_the_partitions():
    """What a slot copies arrives at its task as the driver has it, and none is no
    mistake.
    """
    some = tuple(
        Assignment(topic=topic, partition=number, target_topic=f"A.{topic}",
                   topic_id=topic * 32, paused_since=number / 2)
        for topic, number in (("a", 0), ("a", 3), ("b", 1))
    )  # fmt: skip
    for part in (some, ()):
        row = task_module.to_row(2, "g", part)
        lease = task_module._lease_from(row, task_module.to_term(7, 1.5))
        assert lease == Lease(
            slot=2, number=7, generation="g", seconds=1.5, assignments=part
        )


def test_first_leases_leave_little_to_collect(monkeypatch: pytest.MonkeyPatch):
    """Spark's worker collects garbage after each task, while its slot copies on: what
    is there at the beginning of a run's first leases is not looked at again. Later
    leases leave all to the collector, or what ends in circles would never be freed.
    """
    monkeypatch.setattr(task_module, "_term", lambda: "")
    monkeypatch.setattr(task_module, "to_arrow", lambda reports: reports)
    monkeypatch.setattr(task_module.RelayTask, "_run", lambda _task, lease: lease)
    made = [replace(_LEASE, number=number) for number in (1, 5, 6)]
    monkeypatch.setattr(task_module, "_lease_from", lambda *_: made.pop(0))
    task = task_module.RelayTask(
        plan=cast("Any", None),
        wakeup=("", 0),
        wakeup_token=b"",
        log_settings=("info", "json"),
    )

    def left_after_a_lease() -> int:
        circle: list[Any] = []
        circle.append(circle)
        list(task(iter([pa.record_batch({"lease": [""]})])))
        del circle
        return gc.collect()

    gc.collect()
    gc.disable()
    try:
        assert [left_after_a_lease() > 0 for _ in range(3)] == [False, False, True]
    finally:
        gc.unfreeze()
        gc.enable()
