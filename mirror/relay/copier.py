"""A slot in a thread of its own, which outlives Spark's tasks.

Main type: `Copier`. A task hands its lease to the thread and takes the report back.
Between two leases the slot copies on credit, if its report says so: at most for a
second, while Spark commits one micro-batch and plans the next one. The next lease, or
the driver, ends the credit by the wake-up connection of the lease before it. Fencing
makes that safe: a successor in another process takes the slot's ids over, and what this
one has not committed is copied by that one. Where nothing fences, the driver gives
credit only if there can be no other process.
"""

from __future__ import annotations

from concurrent.futures import Future
import contextlib
from dataclasses import dataclass, replace
from queue import SimpleQueue
import socket
import threading
import time
from typing import TYPE_CHECKING

import structlog

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from mirror.relay.lease import Lease
    from mirror.relay.report import PartitionReport
    from mirror.relay.slot import Slot

CREDIT_SECONDS = 1.0
"""A micro-batch follows the last one in some 0.1 s."""


@dataclass(frozen=True, slots=True)
class _Order:
    """A lease to carry out."""

    lease: Lease
    wakeup: socket.socket | None
    reports: Future[list[PartitionReport]]

    @property
    def descriptor(self) -> int | None:
        return None if self.wakeup is None else self.wakeup.fileno()


class Copier:
    """One slot of this process."""

    def __init__(self, make: Callable[[], Slot]) -> None:
        """Raises what `make` does. It is called in the slot's thread: a user's function
        runs in the thread that has imported its module.
        """
        self._orders: SimpleQueue[_Order | None] = SimpleQueue()
        self._wakeup: socket.socket | None = None
        self._failure: tuple[str, BaseException] | None = None
        """What ended a credit, other than what `Slot` expects, and the generation: that
        one's next lease fails."""
        self._seconds = self._used = self._on_credit = 0.0
        """Time and CPU seconds since the last report, and the time on credit."""
        self._handovers = 0
        made: Future[Slot] = Future()
        self._thread = threading.Thread(
            target=self._work, args=(make, made), name="mirror-slot", daemon=True
        )
        self._thread.start()
        self._slot = made.result()

    def run(self, lease: Lease, wakeup: socket.socket | None) -> list[PartitionReport]:
        """Carry out a lease. The connection to the driver is closed after the next one
        has begun, which uses its own.

        Raises:
            MirrorError: as `Slot.run`.
        """
        order = _Order(lease, wakeup, Future())
        self._orders.put(order)
        self._end_credit()
        last, self._wakeup = self._wakeup, wakeup
        try:
            return order.reports.result()
        finally:
            if last is not None:
                last.close()

    def close(self) -> None:
        """Close the slot, between two leases. One on credit stops at once and drops
        what it has not committed: the slot that takes over next copies that.
        """
        self._orders.put(None)
        self._end_credit()
        self._thread.join()
        if self._wakeup is not None:
            self._wakeup.close()
        self._slot.close()

    def _end_credit(self) -> None:
        if self._wakeup is not None:
            # Not closed yet: the thread may wait for it.
            with contextlib.suppress(OSError):
                self._wakeup.shutdown(socket.SHUT_RD)

    def _work(self, make: Callable[[], Slot], made: Future[Slot]) -> None:
        try:
            made.set_result(make())
        except BaseException as error:  # noqa: BLE001  the task raises it
            made.set_exception(error)
            return
        while (order := self._orders.get()) is not None:
            try:
                order.reports.set_result(self._lease(order))
            except BaseException as error:  # noqa: BLE001  the task raises it
                order.reports.set_exception(error)
                continue
            try:
                self._copy_on(order)
            except BaseException as error:  # noqa: BLE001  the next task raises it
                self._failure = order.lease.generation, error

    def _lease(self, order: _Order) -> list[PartitionReport]:
        failure, self._failure = self._failure, None
        if failure is not None:
            if failure[0] == order.lease.generation:
                raise failure[1]
            structlog.get_logger().warning(
                "copying between two leases of an earlier run failed",
                slot=order.lease.slot,
                error=str(failure[1]),
            )
        with self._measured():
            reports = self._slot.run(order.lease, wakeup=order.descriptor)
        seconds, used, on_credit = self._seconds, self._used, self._on_credit
        handovers = self._handovers
        self._seconds = self._used = self._on_credit = 0.0
        self._handovers = 0
        busy = used / seconds if seconds > 0 else 0.0
        return [
            replace(
                report,
                slot_seconds=seconds,
                slot_busy=busy,
                slot_credit_seconds=on_credit,
                slot_handovers=handovers,
            )
            for report in reports
        ]

    def _copy_on(self, order: _Order) -> None:
        with self._measured():
            before, goes_on = self._seconds, False
            if self._slot.on_credit:
                goes_on = self._slot.copy_on(CREDIT_SECONDS, wakeup=order.descriptor)
            if not self._orders.empty():
                self._handovers = int(goes_on)
            else:
                # A lease that comes meanwhile goes on with what is in flight.
                self._slot.finish(lambda: not self._orders.empty())
        if self._slot.on_credit:
            self._on_credit = self._seconds - before

    @contextlib.contextmanager
    def _measured(self) -> Iterator[None]:
        began, used = time.monotonic(), time.process_time()
        try:
            yield
        finally:
            self._seconds += time.monotonic() - began
            self._used += time.process_time() - used
