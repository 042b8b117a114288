"""Writes a flow's leases and problems into its status.

Main types: `StatusWriter` and `Problems`, one each per flow, across its runs. The
writer keeps the samples from which `autoscale` derives the number of slots, logs the
throughput, and decides nothing. `LeaseTotals` has the sums.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from importlib import import_module
import math
import operator
import threading
import time
from typing import TYPE_CHECKING
import uuid

import structlog

from mirror.copying.tally import latency_bounds
from mirror.service.autoscale import LONGEST_SECONDS, measured, recent, sample
from mirror.service.leases import report_seconds
from mirror.status.states import FlowState, PartitionState
from mirror.status.values import (
    NOTHING,
    Counts,
    HistogramStatus,
    PartitionStatus,
    SlotStatus,
    TopicTimes,
    TransactionStatus,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from mirror.clusters.topics import TopicPartition
    from mirror.config.schema import FlowConfig
    from mirror.copying.lease import PartitionReport
    from mirror.service.autoscale import Sample, Throughput
    from mirror.service.leases import LeaseResult
    from mirror.status.store import StatusStore
    from mirror.status.values import FlowStatus


log = structlog.get_logger()

_THROUGHPUT_LOG_SECONDS = 10.0
"""How often to log the progress of catching up."""


class StatusWriter:
    """The leases of one flow, across its runs."""

    def __init__(self, flow: str, store: StatusStore) -> None:
        self.samples: list[Sample] = []
        """Samples of this run's leases, of the last minutes."""
        self.service = uuid.uuid4()
        """Names the counters, which begin at zero here and now."""
        self._flow = flow
        self._store = store
        self._totals = LeaseTotals()
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
        if (new := latency_bounds(flow.sla_seconds)) != self._bounds:
            self._bounds = new
            self._totals.forget_times(len(new) + 1)
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
        partitions = self._totals.add(lease.reports, time.monotonic())
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
                transactions=self._totals.transactions,
                times=self._totals.times,
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


# ---- adds up lease reports into statuses ----
#
# Main type: `LeaseTotals`, one per flow, for its partitions, its topics' times and
# its transactions; counters start with the service and survive restarts of the flow
# and the death of slots. Partitions that are no longer mirrored disappear.
# `slot_loads` shows what each slot did in one lease.


def slot_loads(
    reports: Iterable[PartitionReport], slots: int
) -> tuple[SlotStatus, ...]:
    """What each slot did in one lease; one without partitions did nothing."""
    by_slot: dict[int, list[PartitionReport]] = {slot: [] for slot in range(slots)}
    for report in reports:
        by_slot[report.slot].append(report)
    return tuple(_load(slot, part) for slot, part in by_slot.items())


def _load(slot: int, reports: Sequence[PartitionReport]) -> SlotStatus:
    busy = max((report.slot_busy for report in reports), default=0.0)
    seconds = max((report.slot_seconds for report in reports), default=0.0)
    return SlotStatus(
        number=slot,
        partitions=len(reports),
        busy=busy,
        records_per_second=_rate(sum(r.counts.records for r in reports), seconds),
        bytes_per_second=_rate(sum(r.counts.bytes for r in reports), seconds),
        memory_bytes=max((r.slot_memory_bytes for r in reports), default=0),
        open_files=max((r.slot_open_files for r in reports), default=0),
        open_files_limit=max((r.slot_open_files_limit for r in reports), default=0),
    )


def common_reason(reports: Iterable[PartitionReport]) -> str:
    """Why nothing is copied, if all partitions have the same reason; else empty."""
    awake = [report for report in reports if report.state != PartitionState.PAUSED]
    reasons = {r.reason if r.state == PartitionState.FAULTED else "" for r in awake}
    return reasons.pop() if len(reasons) == 1 else ""


def _rate(count: int, seconds: float) -> float:
    return count / seconds if seconds > 0 else 0.0


def _since(report: PartitionReport, last: PartitionStatus | None) -> float:
    """Since when the state holds: slots report it while they do not copy."""
    if report.since:
        return report.since
    return last.since if last and last.state == report.state else time.time()


class LeaseTotals:
    """The totals of one flow."""

    def __init__(self) -> None:
        self._partitions: dict[TopicPartition, PartitionStatus] = {}
        self._known: dict[TopicPartition, tuple[int, Counts]] = {}
        """The total of each partition that is counted, and since when it is one."""
        self._times: dict[str, TopicTimes] = {}
        self._no_times = HistogramStatus()
        self._transactions = TransactionStatus()
        self._reported_at = 0.0

    def add(
        self, reports: Iterable[PartitionReport], now: float
    ) -> tuple[PartitionStatus, ...]:
        """Add all slots' reports of one lease, which came at `now` (monotonic seconds);
        returns the new statuses.
        """
        reports = tuple(reports)
        before = self._partitions
        self._partitions = {
            (report.topic, report.partition): self._status(report, now)
            for report in reports
        }
        for key in before.keys() - self._partitions.keys():
            # One that comes back goes on from what its progress has counted.
            self._known.pop(key, None)
        self._times = self._times_after(reports)
        self._transactions = _add(self._transactions, reports)
        self._reported_at = now
        return tuple(self._partitions[key] for key in sorted(self._partitions))

    def forget_times(self, buckets: int) -> None:
        """Start counting from zero: the number of buckets has changed."""
        self._times = {}
        self._no_times = HistogramStatus(counts=(0,) * buckets)

    @property
    def times(self) -> tuple[TopicTimes, ...]:
        return tuple(self._times[topic] for topic in sorted(self._times))

    @property
    def transactions(self) -> TransactionStatus:
        return self._transactions

    def _times_after(self, reports: Iterable[PartitionReport]) -> dict[str, TopicTimes]:
        found: dict[str, TopicTimes] = {}
        for report in reports:
            topic = report.topic
            last = found.get(topic) or self._times.get(topic)
            if last is None or last.target_topic != report.target_topic:
                last = TopicTimes(
                    topic=topic,
                    target_topic=report.target_topic,
                    latency=last.latency if last else self._no_times,
                    age=last.age if last else self._no_times,
                )
            if report.latency_counts or report.age_counts:
                last = replace(
                    last,
                    latency=_grown(
                        last.latency, report.latency_counts, report.latency_sum_seconds
                    ),
                    age=_grown(last.age, report.age_counts, report.age_sum_seconds),
                )
            found[topic] = last
        return found

    def _lag_seconds(
        self, report: PartitionReport, last: PartitionStatus | None, now: float
    ) -> float:
        """The reported lag, or the last known one plus the time since, as a slot that
        has just got a partition may not know its lag yet.
        """
        if report.lag_seconds >= 0 or last is None or last.lag_seconds < 0:
            return report.lag_seconds
        return last.lag_seconds + max(now - self._reported_at, 0.0)

    def _news(self, report: PartitionReport) -> Counts:
        """What the report brings that is not counted yet: what its lease committed, and
        what leases had committed that died before they could report.
        """
        if not report.total_since:
            return report.counts
        key = (report.topic, report.partition)
        since, known = self._known.get(key, (0, NOTHING))
        if since != report.total_since:
            known = NOTHING  # another service copied meanwhile, and counts that itself
        elif report.total == known:
            return NOTHING
        news = report.total.beyond(known)
        self._known[key] = report.total_since, known + news
        return news

    def _status(self, report: PartitionReport, now: float) -> PartitionStatus:
        last = self._partitions.get((report.topic, report.partition))
        counts = self._news(report)
        if last is not None:
            counts = last.counts if counts is NOTHING else counts + last.counts
        return PartitionStatus(
            topic=report.topic,
            partition=report.partition,
            target_topic=report.target_topic,
            slot=report.slot,
            state=PartitionState(report.state),
            reason=report.reason,
            since=_since(report, last),
            position=report.position,
            end_offset=report.end_offset,
            lag=report.lag,
            lag_seconds=self._lag_seconds(report, last, now),
            counts=counts,
            failed=_summed(report.failed, last.failed if last else {}),
            bytes_in=report.bytes_in + (last.bytes_in if last else 0),
            latency_p50_ms=report.latency_p50_ms,
            latency_p99_ms=report.latency_p99_ms,
        )


def _summed(
    more: Sequence[tuple[str, int]], last: Mapping[str, int]
) -> Mapping[str, int]:
    return dict(Counter(dict(more)) + Counter(last)) if more else last


def _grown(
    last: HistogramStatus, counts: Sequence[int], sum_seconds: float
) -> HistogramStatus:
    if not counts:
        return last
    return HistogramStatus(
        counts=tuple(map(operator.add, last.counts, counts)),
        sum_seconds=last.sum_seconds + sum_seconds,
    )


def _add(
    last: TransactionStatus, reports: Iterable[PartitionReport]
) -> TransactionStatus:
    """Add each slot once: all reports of a slot have the same slot counters."""
    slots = {report.slot: report for report in reports}.values()
    return TransactionStatus(
        committed=last.committed + sum(r.slot_transactions for r in slots),
        seconds=last.seconds + sum(r.slot_transaction_seconds for r in slots),
        aborted=last.aborted + sum(r.slot_aborted for r in slots),
        takeovers=last.takeovers + sum(r.slot_takeovers for r in slots),
        handovers=last.handovers + sum(r.slot_handovers for r in slots),
    )


# ---- loads kernels once the next take-over would need them ----


_MANY_RECORDS = 5_000
"""Records of progress, some 800 kB. Without kernels these take 40 ms to read."""


class KernelsAhead:
    """Those that the driver of one flow will need. A start reads little and does
    without kernels, which take half a second of CPU and 60 MB. But the next run first
    reads the progress that this one writes: from a megabyte on with kernels, and it
    should not wait for them.
    """

    def __init__(self) -> None:
        self._written = 0
        self._begun = False

    def learn(self, reports: Iterable[PartitionReport]) -> None:
        """A lease has ended."""
        self._written += sum(report.transactions for report in reports)
        if self._written >= _MANY_RECORDS and not self._begun:
            self._begun = True
            threading.Thread(
                target=import_module, args=("mirror.records.batch",), daemon=True
            ).start()
