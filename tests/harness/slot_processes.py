"""Slots and drivers in processes of their own, that stop or die at a chosen point.

`SlotProcess` runs leases of one slot without Spark, until it is asked to end or finds
itself fenced. `Point`s name the steps of a take-over and of a transaction, and
`DriverPoint`s those of an ownership; at its n-th pass of one a process sends itself a
signal. So tests cover every window in which a zombie could do harm, not only those that
chance finds.
"""

from __future__ import annotations

import contextlib
from dataclasses import dataclass, replace
from enum import StrEnum
import gc
import multiprocessing
import os
from pathlib import Path
import resource
import signal
from typing import TYPE_CHECKING, Any, Self

import psutil

from mirror.clusters.transactions import Producer
from mirror.copying.slot import Slot
from mirror.copying.target import TargetWriter, TransactionPath
from mirror.copying.task import CREDIT_SECONDS
from mirror.errors import FencedError, NewRunError, SupersededError
from mirror.offsets import progress, starting
from mirror.service import ownership
from tests.harness.waiting import PATIENCE_SECONDS, crowd

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Sequence

    from tests.harness.slots import SparklessFlow

_spawning = multiprocessing.get_context("spawn")
# Forked off a process that has loaded what they need, they start in no time.
_forking = multiprocessing.get_context("forkserver")
_forking.set_forkserver_preload(["pytest", __name__])


class Point(StrEnum):
    """A step of a slot; the signal comes right before it, or right after."""

    BEFORE_TAKE_OVER = "before TargetWriter.take_over"
    BEFORE_EACH_ID = "before Producer.take_over"
    AFTER_TAKE_OVER = "after TargetWriter.take_over"
    AFTER_PROGRESS = "after progress.read_proven"
    BEFORE_WRITE = "before TargetWriter.write"
    AFTER_WRITE = "before Producer.begin_commit"
    AFTER_COMMIT_REQUEST = "after Producer.begin_commit"
    AFTER_COMMIT = "after Producer.committed"


class LoosePoint(StrEnum):
    """A step of a slot without exactly-once: its data is written."""

    BEFORE_EACH_RECORD = "before TransactionPath._write_records"
    """First the map's, then progress."""


class DriverPoint(StrEnum):
    """A step of a driver that becomes the owner of a flow."""

    BEFORE_EACH_ID = "before Producer.take_over"
    AFTER_EACH_READING = "after ProgressReader.read"
    BEFORE_WRITE = "before ownership.write"
    AFTER_WRITE = "after ownership.write"
    BEFORE_ASKING = "before starting.begin"
    AFTER_ASKING = "after starting.begin"
    AFTER_COMMIT_REQUEST = "after Producer.begin_commit"
    AFTER_COMMIT = "after Producer.committed"


_OWNERS: dict[str, Any] = {
    "TargetWriter": TargetWriter,
    "TransactionPath": TransactionPath,
    "Producer": Producer,
    "progress": progress,
    "ProgressReader": progress.ProgressReader,
    "ownership": ownership,
    "starting": starting,
}


@dataclass(frozen=True, kw_only=True)
class SignalAt:
    """The process gets a signal at its n-th pass of a point; with `again` at all later
    ones too.
    """

    point: Point | LoosePoint | DriverPoint
    number: signal.Signals
    passes: int = 1
    again: bool = False

    def arm(self) -> None:
        """Call it in the process that gets the signal."""
        when, _, where = self.point.value.partition(" ")
        owner_name, _, name = where.partition(".")
        owner = _OWNERS[owner_name]
        original = getattr(owner, name)
        left = self.passes

        def interrupted(*args: Any, **options: Any) -> Any:
            nonlocal left
            left -= 1
            now = left == 0 or (self.again and left < 0)
            if when == "before" and now:
                os.kill(os.getpid(), self.number)
            answer = original(*args, **options)
            if when == "after" and now:
                os.kill(os.getpid(), self.number)
            return answer

        setattr(owner, name, interrupted)


class _OwnProcess:
    """A process that is killed at the end of its context."""

    def __init__(
        self, target: Callable[..., None], *arguments: Any, fork: bool = True
    ) -> None:
        """`fork`: off a process that has loaded all that this one needs."""
        self._result: Any = _spawning.SimpleQueue()
        self._process = (_forking if fork else _spawning).Process(
            target=target, args=(*arguments, self._result), daemon=True
        )
        self._process.start()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.kill()

    @property
    def pid(self) -> int:
        assert self._process.pid is not None
        return self._process.pid

    @property
    def alive(self) -> bool:
        return self._process.is_alive()

    @property
    def suspended(self) -> bool:
        with contextlib.suppress(psutil.NoSuchProcess):
            return psutil.Process(self.pid).status() == psutil.STATUS_STOPPED
        return False

    def suspend(self) -> None:
        os.kill(self.pid, signal.SIGSTOP)

    def resume(self) -> None:
        """Continue it, unless it has ended."""
        with contextlib.suppress(ProcessLookupError):
            os.kill(self.pid, signal.SIGCONT)

    def how_it_ended(self, timeout: float = PATIENCE_SECONDS) -> str:
        """`done` (or asked to end), `fenced`, `superseded` or `left open`; empty if it
        was killed or still runs.
        """
        self._process.join(timeout * crowd())
        assert self._process.exitcode in {None, 0, -signal.SIGKILL}
        return "" if self._result.empty() else self._result.get()

    def kill(self) -> None:
        """SIGKILL, unless it has ended."""
        self._process.kill()
        self._process.join()


def exit_code_of(act: Callable[[], object]) -> int | None:
    """How a process ends that does this, with all that this one has in memory. It has
    none of this one's threads: clients of librdkafka, which could not end without
    theirs, are kept from being collected.
    """

    def alone() -> None:
        gc.freeze()
        act()

    process = multiprocessing.get_context("fork").Process(target=alone)
    process.start()
    process.join(PATIENCE_SECONDS * crowd())
    return process.exitcode


class DriverProcess(_OwnProcess):
    """A driver that becomes the owner, and does no more."""

    def __init__(self, own: Callable[[], object], *, signal_at: SignalAt) -> None:
        """`own` travels pickled; nothing that it returns does."""
        super().__init__(_own, own, signal_at)


def _own(own: Callable[[], object], signal_at: SignalAt, result: Any) -> None:
    signal_at.arm()
    try:
        own()
        result.put("done")
    except FencedError:
        result.put("fenced")


class SlotProcess(_OwnProcess):
    """One slot, lease after lease of these partitions under the flow's generation."""

    def __init__(
        self,
        flow: SparklessFlow,
        *,
        slot: int = 0,
        partitions: Collection[int] | None = None,
        lease_seconds: float = 2.0,
        signal_at: SignalAt | Sequence[SignalAt] = (),
        like_a_worker: bool = False,
        credit: bool = False,
    ) -> None:
        """`like_a_worker`: with what Spark's workers have loaded, and nothing else.
        `credit`: a single lease, then copying on, and only in that a signal.
        """
        wakeup, self._waker = _spawning.Pipe(duplex=False)
        self._peak: Any = _spawning.SimpleQueue()
        task = _Task(
            flow=flow,
            slot=slot,
            partitions=None if partitions is None else tuple(partitions),
            lease_seconds=lease_seconds,
            signals=(signal_at,) if isinstance(signal_at, SignalAt) else (*signal_at,),
            like_a_worker=like_a_worker,
            credit=credit,
        )
        super().__init__(_run, task, wakeup, self._peak, fork=not like_a_worker)
        wakeup.close()

    def end(self, timeout: float = PATIENCE_SECONDS) -> str:
        """Ask it to end, and wake it; returns how it ended."""
        self._waker.send_bytes(b"!")
        return self.how_it_ended(timeout)

    def peak_memory(self) -> int:
        """The most that it ever had at once, in bytes; call it after the end."""
        return self._peak.get()

    def kill(self) -> None:
        super().kill()
        self._waker.close()


@dataclass(frozen=True, kw_only=True)
class _Task:
    flow: SparklessFlow
    slot: int
    partitions: tuple[int, ...] | None
    lease_seconds: float
    signals: tuple[SignalAt, ...]
    like_a_worker: bool
    credit: bool

    def arm(self) -> None:
        for each in self.signals:
            each.arm()


def _run(task: _Task, wakeup: Any, peak: Any, result: Any) -> None:
    if task.like_a_worker:
        import pandas  # noqa: F401, ICN001  as Spark's worker does
        import pyspark.worker  # noqa: F401  what it loads is what is measured

        import mirror.copying.task  # noqa: F401  likewise
    if not task.credit:
        task.arm()
    slot = Slot(task.flow.plan, task.slot)
    try:
        if task.credit:
            result.put(_on_credit(task, slot))
            return
        while not wakeup.poll():
            lease = task.flow.lease(
                task.lease_seconds, slot=task.slot, partitions=task.partitions
            )
            slot.run(lease, wakeup=wakeup.fileno())
        result.put("done")
    except SupersededError:
        result.put("superseded")
    except FencedError:
        result.put("fenced")
    except NewRunError:
        result.put("left open")
    finally:
        slot.close()
        peak.put(peak_memory())


def _on_credit(task: _Task, slot: Slot) -> str:
    lease = task.flow.lease(task.lease_seconds, slot=task.slot)
    (said,) = {r.slot_copies_on for r in slot.run(replace(lease, credit=True))}
    assert said
    task.arm()
    slot.copy_on(CREDIT_SECONDS)
    slot.finish()
    return "done" if slot.copy_on(0.0) else "fenced"


def peak_memory() -> int:
    status = Path("/proc/self/status")
    if status.exists():  # elsewhere a spawned process may count its parent in
        line = next(x for x in status.read_text().splitlines() if "VmHWM" in x)
        return int(line.split()[1]) << 10
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
