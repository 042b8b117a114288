"""The function that Spark runs for a slot: one lease, from rows to report rows.

Main type: `RelayTask`, a picklable callable for `mapInArrow`. The process keeps its
slots between leases, so a slot that comes back is warm; if another process had it
meanwhile, a take-over resolves that. No mirrored data passes through Spark.
"""

from __future__ import annotations

from concurrent.futures import Future
import contextlib
from dataclasses import dataclass, field, replace
from functools import partial
import gc
import json
from operator import attrgetter
import os
from queue import SimpleQueue
import socket
import threading
import time
from typing import TYPE_CHECKING

from pyspark import TaskContext
import structlog

from mirror import log
from mirror.clusters import error_counts
from mirror.copying.lease import Assignment, Lease, LeasePlan, to_arrow
from mirror.host import process_use
from mirror.offsets.terms import Term

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    import pyarrow as pa

    from mirror.copying.lease import PartitionReport
    from mirror.copying.slot import Slot

_slots: dict[tuple[str, int], tuple[tuple[LeasePlan, log.Settings], Copier]] = {}
_WAKEUP_TIMEOUT_SECONDS = 2.0
_SETTLING_LEASES = 5
"""Spark's worker collects garbage after every task, and a slot on credit stands still
meanwhile: for 20 ms, unless what these leases have loaded and made is left out."""

_COLUMNS = (
    "topic", "partition", "target_topic", "topic_id", "paused_since", "term"
)  # fmt: skip
"""Of an assignment, in the order in which a row has them."""

TERM = "mirror.term"
"""The job property with what changes from lease to lease. Rows stay the same as long as
assignments do, so Spark need not plan them again."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RelayTask:
    """Runs the leases that arrive as rows of one JSON column."""

    plan: LeasePlan
    wakeup: tuple[str, int]
    """The driver's address: it closes the connection when leases must end."""
    wakeup_token: bytes = field(repr=False)
    """What the driver knows this run's tasks by."""
    log_settings: log.Settings

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        # Read all input first: Spark discards a worker that leaves some unread.
        rows = [row for batch in batches for row in batch.column(0).to_pylist()]
        for row in rows:
            lease = _lease_from(row, _term())
            if lease.number <= _SETTLING_LEASES:
                gc.freeze()
            yield to_arrow(self._run(lease))

    def _run(self, lease: Lease) -> list[PartitionReport]:
        slot = _slot(self.plan, lease.slot, self.log_settings)
        wakeup = None
        # If the wakeup cannot be reached, leases end on time instead of early.
        with contextlib.suppress(OSError), contextlib.ExitStack() as stack:
            connection = stack.enter_context(
                socket.create_connection(self.wakeup, _WAKEUP_TIMEOUT_SECONDS)
            )
            connection.sendall(self.wakeup_token)
            stack.pop_all()
            wakeup = connection
        # A process that ends with its task, or hears nothing of the driver, gets none.
        stays = wakeup is not None and "SPARK_REUSE_WORKER" in os.environ
        reports = slot.run(replace(lease, credit=lease.credit and stays), wakeup)
        use = process_use()
        errors = error_counts.named()
        return [
            replace(
                r,
                slot_memory_bytes=use.memory_bytes if use else 0,
                slot_open_files=use.open_files if use else 0,
                slot_open_files_limit=use.open_files_limit if use else 0,
                slot_process="" if number else error_counts.process(),
                slot_errors=() if number else errors,
            )
            for number, r in enumerate(reports)
        ]


def nothing(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Does no work, so that Spark only starts the process."""
    # Read the input to its end: Spark discards a worker that leaves some unread.
    for _ in batches:
        pass
    yield from ()


def to_row(slot: int, generation: str, assignments: Iterable[Assignment]) -> str:
    """What a slot copies, as JSON; contains no credentials."""
    part = tuple(assignments)
    return json.dumps(
        {
            "slot": slot,
            "generation": generation,
            # By columns: a list for each of many partitions takes twice as long.
            "assignments": [[*map(attrgetter(name), part)] for name in _COLUMNS],
        }
    )


def to_term(
    number: int,
    seconds: float,
    rates: Sequence[float] = (),
    *,
    takes_turns: bool = False,
    credit: bool = False,
) -> str:
    """The number and length of a lease, for the property `TERM`. `rates`: how many
    bytes per second each slot may read; empty: without a limit. `takes_turns`: they are
    for the slot's own time alone. `credit`: slots may copy on until the next lease.
    """
    return json.dumps(
        {
            "number": number,
            "seconds": seconds,
            "rates": rates,
            "takes_turns": takes_turns,
            "credit": credit,
        }
    )


def _term() -> str:
    context = TaskContext.get()
    term = context.getLocalProperty(TERM) if context is not None else None
    assert term is not None, "not a lease's job"
    return term


def _lease_from(row: str, term: str) -> Lease:
    fields = json.loads(row) | json.loads(term)
    rates = fields.pop("rates")
    fields["bytes_per_second"] = rates[fields["slot"]] if rates else 0.0
    columns = fields.pop("assignments")
    assignments = tuple(
        Assignment(
            topic=topic,
            partition=partition,
            target_topic=target,
            topic_id=topic_id,
            paused_since=paused_since,
            term=None if term is None else Term(*term),
        )
        for topic, partition, target, topic_id, paused_since, term in zip(
            *columns, strict=True
        )
    )
    return Lease(assignments=assignments, **fields)


def _slot(plan: LeasePlan, number: int, log_settings: log.Settings) -> Copier:
    """This process's slot. A change of the flow's plan or of the log settings makes a
    new one, since a logger keeps the level that it was created with.
    """
    key = (plan.flow.name, number)
    made_for = (plan, log_settings)
    known = _slots.get(key)
    if known is not None and known[0] == made_for:
        return known[1]
    if known is not None:
        del _slots[key]  # a closed one never answers, and the next may not begin
        known[1].close()
    # Only here: the driver names this module's function, and loads no kernels for it.
    from mirror.copying.slot import Slot  # noqa: PLC0415

    log.set_up(*log_settings)
    slot = Copier(partial(Slot, plan, number))
    _slots[key] = (made_for, slot)
    return slot


# ---- a slot in a thread of its own, which outlives Spark's tasks ----
#
# Main type: `Copier`. A task hands its lease to the thread and takes the report back.
# Between two leases the slot copies on credit, if its report says so: at most for a
# second, while Spark commits one micro-batch and plans the next one. The next lease,
# or the driver, ends the credit by the wake-up connection of the lease before it.
# Fencing makes that safe: a successor in another process takes the slot's ids over,
# and what this one has not committed is copied by that one. Where nothing fences, the
# driver gives credit only if there can be no other process.


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
