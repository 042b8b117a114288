"""Counting what a slot did during one lease.

Main types: `Tally`, and `Counts` of one transaction, which count only once it is
committed. It makes the reports, and knows no broker.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field
import time
from typing import TYPE_CHECKING

from mirror.relay.report import PartitionReport, PartitionState

if TYPE_CHECKING:
    from collections.abc import Mapping

    from mirror.offsets.progress import Position
    from mirror.relay.faults import Faults
    from mirror.relay.lease import Assignment

TopicPartition = tuple[str, int]
_MOST_SAMPLES = 2000


@dataclass(slots=True, kw_only=True)
class Counts:
    """What one transaction does to one partition."""

    records: int = 0
    bytes: int = 0
    filtered: int = 0
    skipped: int = 0
    lost: int = 0
    newest: int = -1


@dataclass(slots=True)
class _Partition:
    done: Counts = field(default_factory=Counts)
    transactions: int = 0
    latencies: list[float] = field(default_factory=list)
    end_offset: int = -1
    behind: bool = False


class Tally:
    """The counters of one slot."""

    def __init__(self, *, slot: int) -> None:
        self._slot = slot
        self._partitions: defaultdict[TopicPartition, _Partition] = defaultdict(
            _Partition
        )
        self._slot_error = ""
        self._slot_error_since = 0.0

    def begin(self) -> None:
        """A new lease: counters start at zero, what is known of the source stays."""
        ends = {key: known.end_offset for key, known in self._partitions.items()}
        self._partitions.clear()
        for key, end in ends.items():
            self._partitions[key].end_offset = end

    def fetched(self, key: TopicPartition, *, end_offset: int, behind: bool) -> None:
        partition = self._partitions[key]
        partition.end_offset = end_offset
        partition.behind = behind

    def committed(self, counts: Mapping[TopicPartition, Counts], now: float) -> None:
        """A transaction is committed that did this; `now` in epoch seconds."""
        for key, part in counts.items():
            partition = self._partitions[key]
            done = partition.done
            done.records += part.records
            done.bytes += part.bytes
            done.filtered += part.filtered
            done.skipped += part.skipped
            done.lost += part.lost
            partition.transactions += 1
            if part.newest >= 0 and len(partition.latencies) < _MOST_SAMPLES:
                partition.latencies.append(now * 1000 - part.newest)

    def slot_failed(self, reason: str) -> None:
        if not self._slot_error:
            self._slot_error_since = time.time()
        self._slot_error = reason

    def slot_works(self) -> None:
        self._slot_error = ""

    def reports(
        self,
        wanted: Mapping[TopicPartition, Assignment],
        positions: Mapping[TopicPartition, Position],
        faults: Faults,
    ) -> list[PartitionReport]:
        """One report per wanted partition."""
        return [
            self._report(key, assignment, positions.get(key), faults)
            for key, assignment in wanted.items()
        ]

    def _report(
        self,
        key: TopicPartition,
        assignment: Assignment,
        position: Position | None,
        faults: Faults,
    ) -> PartitionReport:
        partition = self._partitions[key]
        fault = faults.get(key)
        state, reason, since = PartitionState.RUNNING, "", 0.0
        if fault is not None:
            state, reason, since = PartitionState.FAULTED, fault.reason, fault.since
        elif self._slot_error:
            state, reason = PartitionState.FAULTED, self._slot_error
            since = self._slot_error_since
        elif partition.behind:
            state = PartitionState.CATCHING_UP
        latencies = sorted(partition.latencies)
        return PartitionReport(
            slot=self._slot,
            topic=key[0],
            partition=key[1],
            target_topic=assignment.target_topic,
            state=state.value,
            reason=reason,
            since=since,
            position=position.offset if position else -1,
            end_offset=partition.end_offset,
            records=partition.done.records,
            bytes=partition.done.bytes,
            filtered=partition.done.filtered,
            skipped=partition.done.skipped,
            lost=partition.done.lost,
            transactions=partition.transactions,
            latency_p50_ms=_quantile(latencies, 0.5),
            latency_p99_ms=_quantile(latencies, 0.99),
        )


def _quantile(ordered: list[float], share: float) -> float:
    if not ordered:
        return -1.0
    return ordered[min(int(len(ordered) * share), len(ordered) - 1)]
