"""The function that Spark runs for a slot: one lease, from rows to report rows.

Main type: `RelayTask`, a picklable callable for `mapInArrow`. The process keeps its
slots between leases, so a slot that comes back is warm; if another process had it
meanwhile, a take-over resolves that. No mirrored data passes through Spark.
"""

from __future__ import annotations

import contextlib
from dataclasses import dataclass, field, replace
from functools import partial
import gc
import json
from operator import attrgetter
import os
import socket
from typing import TYPE_CHECKING

from pyspark import TaskContext

from mirror import log
from mirror.clusters import error_counts
from mirror.host import process_use
from mirror.relay import report
from mirror.relay.copier import Copier
from mirror.relay.lease import Assignment, Lease, LeasePlan

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    import pyarrow as pa

_slots: dict[tuple[str, int], tuple[tuple[LeasePlan, log.Settings], Copier]] = {}
_WAKEUP_TIMEOUT_SECONDS = 2.0
_SETTLING_LEASES = 5
"""Spark's worker collects garbage after every task, and a slot on credit stands still
meanwhile: for 20 ms, unless what these leases have loaded and made is left out."""

_COLUMNS = ("topic", "partition", "target_topic", "topic_id", "paused_since")
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
            yield report.to_arrow(self._run(lease))

    def _run(self, lease: Lease) -> list[report.PartitionReport]:
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
        )
        for topic, partition, target, topic_id, paused_since in zip(
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
    from mirror.relay.slot import Slot  # noqa: PLC0415

    log.set_up(*log_settings)
    slot = Copier(partial(Slot, plan, number))
    _slots[key] = (made_for, slot)
    return slot
