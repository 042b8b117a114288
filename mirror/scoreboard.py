"""From lease reports to statuses: adding up what the leases did.

Main type: `Scoreboard`, one per flow, for its partitions; counters are since the
service started and survive restarts of the flow. Partitions that are no longer
mirrored disappear. `slot_loads` says what each slot did in one lease.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from mirror.observe.status import PartitionStatus, SlotStatus

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from mirror.relay.report import PartitionReport

TopicPartition = tuple[str, int]


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
        records_per_second=_rate(sum(r.records for r in reports), seconds),
        bytes_per_second=_rate(sum(r.bytes for r in reports), seconds),
    )


def _rate(count: int, seconds: float) -> float:
    return count / seconds if seconds > 0 else 0.0


class Scoreboard:
    """The partitions of one flow."""

    def __init__(self) -> None:
        self._partitions: dict[TopicPartition, PartitionStatus] = {}

    def add(self, reports: Iterable[PartitionReport]) -> tuple[PartitionStatus, ...]:
        """Take the reports of one lease of all slots; the statuses after it."""
        self._partitions = {
            (report.topic, report.partition): self._status(report) for report in reports
        }
        return tuple(self._partitions[key] for key in sorted(self._partitions))

    def _status(self, report: PartitionReport) -> PartitionStatus:
        last = self._partitions.get((report.topic, report.partition))
        return PartitionStatus(
            topic=report.topic,
            partition=report.partition,
            target_topic=report.target_topic,
            slot=report.slot,
            state=report.state,
            reason=report.reason,
            since=report.since,
            position=report.position,
            end_offset=report.end_offset,
            lag=report.lag,
            records=report.records + (last.records if last else 0),
            bytes=report.bytes + (last.bytes if last else 0),
            filtered=report.filtered + (last.filtered if last else 0),
            skipped=report.skipped + (last.skipped if last else 0),
            lost=report.lost + (last.lost if last else 0),
            latency_p50_ms=report.latency_p50_ms,
            latency_p99_ms=report.latency_p99_ms,
        )
