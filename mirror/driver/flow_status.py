"""Writes a flow's leases and problems into its status.

Main types: `StatusWriter` and `Problems`, one each per flow, across its runs. The
writer keeps the samples from which `autoscale` derives the number of slots, logs the
throughput, and decides nothing. `lease_totals` computes the sums, `throughput` the
rates.
"""

from __future__ import annotations

from dataclasses import replace
import math
import threading
import time
from typing import TYPE_CHECKING
import uuid

import structlog

from mirror.driver.autoscale import LONGEST_SECONDS
from mirror.driver.kernels_ahead import KernelsAhead
from mirror.driver.lease_totals import LeaseTotals, common_reason, slot_loads
from mirror.driver.leases import report_seconds
from mirror.driver.throughput import measured, recent, sample
from mirror.relay.latency import bounds
from mirror.status.states import FlowState

if TYPE_CHECKING:
    from collections.abc import Sequence

    from mirror.config.schema import FlowConfig
    from mirror.driver.leases import LeaseResult
    from mirror.driver.throughput import Sample, Throughput
    from mirror.status.store import StatusStore
    from mirror.status.values import FlowStatus

log = structlog.get_logger()

_THROUGHPUT_LOG_SECONDS = 10.0
"""How often to log the progress of catching up."""


def described(status: FlowStatus, *, flow: FlowConfig) -> FlowStatus:
    """With what the configuration says about the flow."""
    return replace(status, source=flow.source, target=flow.target)


class StatusWriter:
    """The leases of one flow, across its runs."""

    def __init__(self, flow: str, store: StatusStore) -> None:
        self.samples: list[Sample] = []
        """Samples of this run's leases, of the last minutes."""
        self.service = uuid.uuid4()
        """Names the counters, which begin at zero here and now."""
        self._flow = flow
        self._store = store
        self._scores = LeaseTotals()
        self._kernels = KernelsAhead()
        self._bounds: tuple[float, ...] = ()
        self._logged_throughput_at = -math.inf

    def begin(self, flow: FlowConfig) -> None:
        """Start a run. Latency buckets depend on the flow's SLA, so if it has changed,
        the counts start from zero.
        """
        self.samples.clear()
        self._store.update(
            self._flow,
            lambda old: replace(_at_rest(old), state=FlowState.STARTING, reason=""),
        )
        if (new := bounds(flow.sla_seconds)) != self._bounds:
            self._bounds = new
            self._scores.forget_times(len(new) + 1)
            self._store.update(
                self._flow, lambda old: replace(old, bounds=new, times=())
            )

    def rest(self) -> None:
        """No lease runs."""
        self._store.update(self._flow, _at_rest)

    def add(self, lease: LeaseResult, flow: FlowConfig) -> None:
        """Report what one lease did."""
        limit = flow.max_bytes_per_second or 0
        self.samples.append(
            sample(lease.reports, seconds=lease.seconds, slots=lease.slots, limit=limit)
        )
        self.samples[:] = recent(self.samples, LONGEST_SECONDS)
        now = measured(self.samples)
        reported = time.time()
        partitions = self._scores.add(lease.reports, time.monotonic())
        self._kernels.learn(lease.reports)
        for report in lease.reports:
            if report.slot_process:
                self._store.errors.add(report.slot_process, report.slot_errors)
        self._store.update(
            self._flow,
            lambda old: replace(
                old,
                state=FlowState.RUNNING,
                reason=common_reason(lease.reports),
                leases=lease.number,
                slots=lease.slots,
                slot_loads=slot_loads(lease.reports, lease.slots),
                lease_gap_ms=lease.gap_seconds * 1000
                if lease.gap_seconds >= 0
                else -1.0,
                records_per_second=now.records_per_second,
                bytes_per_second=now.bytes_per_second,
                catching_up=now.catching_up,
                remaining_seconds=now.remaining_seconds,
                max_bytes_per_second=limit,
                limit_used=now.limit_used,
                reported_at=reported,
                report_due=reported + report_seconds(flow),
                transactions=self._scores.transactions,
                times=self._scores.times,
                partitions=partitions,
            ),
        )
        self._tell(now)

    def _tell(self, now: Throughput) -> None:
        """Log the progress of catching up."""
        due = time.monotonic() - self._logged_throughput_at >= _THROUGHPUT_LOG_SECONDS
        if now.catching_up and due:
            self._logged_throughput_at = time.monotonic()
            left = now.remaining_seconds
            log.info(
                "catching up", flow=self._flow, lag=self.samples[-1].lag,
                records_per_second=round(now.records_per_second),
                bytes_per_second=round(now.bytes_per_second),
                remaining_seconds=round(left) if left >= 0 else None,
            )  # fmt: skip


INSTANCES = "instances"
"""The key under which `Problems` keeps what instances disagree on."""


class Problems:
    """Problems with one flow's topics and copies, by the part that found them.
    Thread-safe.
    """

    def __init__(self, flow: str, store: StatusStore) -> None:
        self._flow = flow
        self._store = store
        self._lock = threading.Lock()
        self._found: dict[str, tuple[str, ...]] = {}

    def tell(self, whose: str, problems: Sequence[str]) -> None:
        """Report these problems, together with those that other parts have found."""
        with self._lock:
            self._found[whose] = tuple(problems)
            together = dict.fromkeys(each for some in self._found.values()
                                     for each in some)  # fmt: skip
            self._store.update(
                self._flow, lambda old: replace(old, problems=tuple(together))
            )

    def keep_only(self, *whose: str) -> None:
        """Forget what all others have found."""
        with self._lock:
            self._found = {each: self._found.get(each, ()) for each in whose}


def _at_rest(flow: FlowStatus) -> FlowStatus:
    """A flow's status with the throughput of a flow that runs no lease."""
    return replace(
        flow,
        slot_loads=(),
        records_per_second=0.0,
        bytes_per_second=0.0,
        catching_up=False,
        remaining_seconds=-1.0,
        limit_used=0.0,
    )
