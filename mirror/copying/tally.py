"""Counts what a slot does during one lease.

Main types: `Tally`, and `Tallied`, what one transaction does to one partition,
which counts only once it is committed. `Tally` builds the reports and knows no broker.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter, defaultdict
from dataclasses import dataclass, field, replace
import time
from types import MappingProxyType
from typing import TYPE_CHECKING, NamedTuple

from mirror.copying.lease import PartitionReport
from mirror.offsets.progress import RunningCount
from mirror.status.states import PartitionState
from mirror.status.values import NOTHING, Counts

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping
    import uuid

    from mirror.clusters.topics import TopicPartition
    from mirror.copying.faults import Faults
    from mirror.copying.lease import Assignment
    from mirror.offsets.progress import Position


# ---- running counts, in a slot's transactions ----
#
# Main type: `RunningCounts`. With a partition's position, each transaction writes
# what was done to the partition so far. A take-over reads that and continues
# counting if the same service wrote it; otherwise it starts at zero. It knows no
# broker.


class RunningCounts:
    """The running counts of one slot's partitions."""

    def __init__(self, service: uuid.UUID) -> None:
        self._service = service
        self._written: dict[TopicPartition, RunningCount] = {}
        self._committed: dict[TopicPartition, RunningCount] = {}

    def take_over(
        self,
        found: Mapping[TopicPartition, bytes],
        partitions: Iterable[TopicPartition],
        more: Mapping[TopicPartition, Counts],
    ) -> None:
        """Continue from the counts in the progress, and `more`; start at zero where
        there are none.

        Raises:
            ClusterError: a count in the progress is damaged.
        """
        zero = RunningCount(service=self._service, begun=int(time.time() * 1000))
        self._committed = {
            key: (
                known
                if (known := RunningCount.decode(found.get(key, b"")))
                and known.service == self._service
                else zero
            )
            + more.get(key, NOTHING)
            for key in partitions
        }
        self._written = dict(self._committed)

    def write(
        self,
        partitions: Iterable[TopicPartition],
        more: Mapping[TopicPartition, Counts],
    ) -> dict[TopicPartition, RunningCount]:
        """The counts to write in a transaction that moves these partitions and adds
        `more` to what the transactions before it wrote.
        """
        counts = {
            key: self._written[key] + more.get(key, NOTHING) for key in partitions
        }
        self._written.update(counts)
        return counts

    def commit(self, counts: Mapping[TopicPartition, RunningCount]) -> None:
        """Note that the transaction with these counts is committed."""
        self._committed.update(counts)

    def forget(self) -> None:
        """Other slots may have counted since: nothing is known until a take-over."""
        self._committed.clear()

    def committed(self, key: TopicPartition) -> RunningCount | None:
        """None until a take-over has read it."""
        return self._committed.get(key)


_MOST_SAMPLES = 2000


@dataclass(frozen=True, slots=True)
class Tallied:
    """What one transaction does to one partition."""

    counts: Counts = NOTHING
    newest: int = -1
    """The time of its newest record, epoch ms."""
    read_at: float = 0.0
    """When that record was fetched, epoch seconds."""

    def __add__(self, more: Tallied) -> Tallied:
        return Tallied(
            self.counts + more.counts,
            newest=max(self.newest, more.newest),
            read_at=max(self.read_at, more.read_at),
        )


@dataclass(slots=True)
class _Partition:
    latencies: Latencies
    ages: Latencies
    lateness: Lateness
    counts: Counts = NOTHING
    bytes_in: int = 0
    transactions: int = 0
    failed: Counter[str] = field(default_factory=Counter)
    samples: list[float] = field(default_factory=list)
    behind: bool = False


@dataclass(slots=True, kw_only=True)
class _Slot:
    """What the slot did in this lease."""

    transactions: int = 0
    transaction_seconds: float = 0.0
    aborted: int = 0
    takeovers: int = 0


class Tally:
    """The counters of one slot."""

    def __init__(
        self, *, slot: int, bounds: tuple[float, ...], service: uuid.UUID
    ) -> None:
        self._slot = slot
        self._running = RunningCounts(service)
        self._bounds = bounds
        self._of_slot = _Slot()
        self._lateness: defaultdict[TopicPartition, Lateness] = defaultdict(Lateness)
        self._partitions: dict[TopicPartition, _Partition] = {}
        self._failed: dict[TopicPartition, tuple[str, int]] = {}
        """The last record of each partition that failed: why, and its offset."""
        self._slot_error = ""
        self._slot_error_since = 0.0

    def begin(self, *, owner: bool) -> None:
        """Start a lease. `owner`: the slot still is one, so its running counts are
        right; else they and what was not reported are forgotten, but not what is known
        about the source.
        """
        if not owner:
            for key, partition in self._partitions.items():
                if partition.failed:
                    self._failed.pop(key, None)  # it counts when it is tried again
            self._reset()
            self._running.forget()

    def _reset(self) -> None:
        self._partitions.clear()
        self._of_slot = _Slot()

    def _of(self, key: TopicPartition) -> _Partition:
        if (found := self._partitions.get(key)) is None:
            found = self._partitions[key] = _Partition(
                Latencies(self._bounds), Latencies(self._bounds), self._lateness[key]
            )
        return found

    def fetched(
        self, key: TopicPartition, *, end_offset: int, size: int, behind: bool
    ) -> None:
        partition = self._of(key)
        partition.lateness.told(end_offset, time.monotonic())
        partition.bytes_in += size
        partition.behind = behind

    def end_offset(self, key: TopicPartition) -> int:
        """The source's end offset as last seen, -1 while unknown."""
        return self._lateness[key].end_offset

    def ends(self, found: Mapping[TopicPartition, int]) -> None:
        """Note the end offsets of partitions whose records were not sent."""
        for key, end_offset in found.items():
            self._lateness[key].told(end_offset, time.monotonic())

    def waits(self, key: TopicPartition, oldest: int) -> None:
        """Note that records wait to be written. `oldest`: the first one's time, epoch
        ms.
        """
        self._of(key).lateness.fetched(oldest / 1000)

    def written(
        self,
        parts: Mapping[TopicPartition, Tallied],
        moved: Mapping[TopicPartition, Position],
    ) -> dict[TopicPartition, RunningCount]:
        """The running counts that a transaction with these parts must write: all that
        was done up to its positions.
        """
        counts = {key: part.counts for key, part in parts.items()}
        return self._running.write(moved, counts)

    def committed(
        self,
        parts: Mapping[TopicPartition, Tallied],
        moved: Mapping[TopicPartition, Position],
        running: Mapping[TopicPartition, RunningCount],
        *,
        seconds: float,
    ) -> None:
        """Count a committed transaction and the time it took."""
        self._running.commit(running)
        now = time.time()
        self._of_slot.transactions += 1
        self._of_slot.transaction_seconds += seconds
        for key, position in moved.items():
            part = parts.get(key, Tallied())
            partition = self._of(key)
            partition.lateness.committed(position.offset, part.newest / 1000, now)
            partition.counts += part.counts
            partition.transactions += 1
            copied = part.counts.records
            if part.newest < 0 or not copied:
                continue
            latency = now - part.newest / 1000
            partition.latencies.add(latency, copied)
            partition.ages.add(part.read_at - part.newest / 1000, copied)
            if len(partition.samples) < _MOST_SAMPLES:
                partition.samples.append(latency * 1000)

    def failed(self, key: TopicPartition, reason: str, offset: int) -> None:
        """The record at this offset cannot be copied. It counts once, however often it
        is tried.
        """
        if self._failed.get(key) != (reason, offset):
            self._failed[key] = reason, offset
            self._of(key).failed[reason] += 1

    def aborted(self, transactions: int) -> None:
        """Count aborted transactions."""
        self._of_slot.aborted += transactions

    def slot_failed(self, reason: str) -> None:
        if not self._slot_error:
            self._slot_error_since = time.time()
        self._slot_error = reason

    def slot_works(
        self,
        running: Mapping[TopicPartition, bytes],
        wanted: Iterable[TopicPartition],
        more: Mapping[TopicPartition, Counts] = MappingProxyType({}),
    ) -> None:
        """Note that the slot has taken over. `running`: the counts in the progress;
        `more`: what was done since.
        """
        self._running.take_over(running, wanted, more)
        self._slot_error = ""
        self._of_slot.takeovers += 1

    def reports(
        self,
        wanted: Mapping[TopicPartition, Assignment],
        positions: Mapping[TopicPartition, Position],
        faults: Faults,
        *,
        answered: Callable[[TopicPartition], float],
        seeding: Callable[[TopicPartition], bool],
    ) -> list[PartitionReport]:
        """One report per wanted partition, of what was done since the last ones.
        `answered` returns when a partition's leader last answered, in monotonic
        seconds; `seeding`, whether one that is behind is `SEEDING`.
        """
        for key in self._lateness.keys() - wanted.keys():
            del self._lateness[key]
        for key in self._failed.keys() - wanted.keys():
            del self._failed[key]
        reports = [
            self._report(key, assignment, positions.get(key), faults, answered(key))
            for key, assignment in wanted.items()
        ]
        reports = [
            replace(each, state=PartitionState.SEEDING.value)
            if each.state == PartitionState.CATCHING_UP
            and seeding((each.topic, each.partition))
            else each
            for each in reports
        ]
        self._reset()
        return reports

    def _report(
        self,
        key: TopicPartition,
        assignment: Assignment,
        position: Position | None,
        faults: Faults,
        answered: float,
    ) -> PartitionReport:
        partition = self._of(key)
        now = Now.read()
        lag = partition.lateness.seconds(
            position.offset if position else -1, answered=answered, now=now
        )
        running = self._running.committed(key)
        fault = faults.get(key)
        state, reason, since = PartitionState.RUNNING, "", 0.0
        if assignment.paused_since:
            state, since = PartitionState.PAUSED, assignment.paused_since
        elif self._slot_error:
            # It outlasts what set the partition aside before: nothing is copied now.
            state, reason = PartitionState.FAULTED, self._slot_error
            since = self._slot_error_since
            if fault is not None:
                since = min(since, fault.since)
        elif fault is not None:
            state, reason, since = PartitionState.FAULTED, fault.reason, fault.since
        elif partition.behind:
            state = PartitionState.CATCHING_UP
        if lag is None and since:
            lag = now.of_day - since  # it has been stuck for at least this long
        samples = sorted(partition.samples)
        return PartitionReport(
            slot=self._slot,
            topic=key[0],
            partition=key[1],
            target_topic=assignment.target_topic,
            state=state.value,
            reason=reason,
            since=since,
            position=position.offset if position else -1,
            end_offset=partition.lateness.end_offset,
            counts=partition.counts,
            total=running.counts if running else NOTHING,
            total_since=running.begun if running else 0,
            bytes_in=partition.bytes_in,
            failed=tuple(sorted(partition.failed.items())),
            transactions=partition.transactions,
            latency_p50_ms=_quantile(samples, 0.5),
            latency_p99_ms=_quantile(samples, 0.99),
            lag_seconds=-1.0 if lag is None else lag,
            latency_counts=partition.latencies.each,
            latency_sum_seconds=partition.latencies.sum_seconds,
            age_counts=partition.ages.each,
            age_sum_seconds=partition.ages.sum_seconds,
            slot_transactions=self._of_slot.transactions,
            slot_transaction_seconds=self._of_slot.transaction_seconds,
            slot_aborted=self._of_slot.aborted,
            slot_takeovers=self._of_slot.takeovers,
        )


def _quantile(ordered: list[float], share: float) -> float:
    if not ordered:
        return -1.0
    return ordered[min(int(len(ordered) * share), len(ordered) - 1)]


# ---- how late a partition's copy is, in time: its lag in seconds ----
#
# Main type: `Lateness`, what one slot knows about one source partition. A complete
# copy is not late at all, however old its newest record is; an incomplete one is as
# late as the oldest record it misses. Record times are epoch seconds; the times of
# the source's answers are monotonic seconds, so that setting the clock hides
# nothing. Callers pass in both; this module knows no records or connections.


_SILENCE_SECONDS = 3.0
"""How long a leader's last answer is trusted; it answers every half second."""


class Now(NamedTuple):
    """A moment on both clocks of the host."""

    of_day: float
    """Epoch seconds, by the clock that can be set."""
    running: float
    """Monotonic seconds."""

    @classmethod
    def read(cls) -> Now:
        return cls(time.time(), time.monotonic())


@dataclass(slots=True)
class Lateness:
    """What the source has reported, and how much of that is copied."""

    end_offset: int = -1
    """The source's last stable offset as last reported, -1 while unknown."""
    _told_at: float = 0.0
    _waiting: float = -1.0
    """The time of the oldest record that is fetched but not committed."""
    _newest: float = -1.0
    """The time of the newest record that is committed."""
    _complete: float = -1.0
    """When the copy was last complete, monotonic."""

    def told(self, end_offset: int, now: float) -> None:
        """Note where the leader says that its log ends; `now` is monotonic."""
        self.end_offset = end_offset
        self._told_at = now

    def fetched(self, oldest: float) -> None:
        """Note the time of the first of the records just fetched."""
        if self._waiting < 0:
            self._waiting = oldest

    def committed(self, position: int, newest: float, now: float) -> None:
        """Note that all before `position` is copied. `newest`: the time of the newest
        record committed. `now`: the time of day.
        """
        self._waiting = -1.0
        # Producers choose the times of records: one in the future proves nothing.
        self._newest = max(self._newest, min(newest, now))
        if 0 <= self.end_offset <= position:
            self._complete = max(self._complete, self._told_at)

    def seconds(self, position: int, *, answered: float, now: Now) -> float | None:
        """The lag, None while unknown.

        `answered`: when the partition's leader last answered, with or without news, in
        monotonic seconds; 0 if it has not answered or is not read. A silent leader may
        have new records: the copy is as late as that leader's last answer.

        A record not yet copied is no older than the newest copied one, and no older
        than the moment when the copy was last complete. So the result is the age of
        the oldest missing record if that was fetched, otherwise the smallest known
        upper bound for it.
        """
        if self.end_offset < 0 or position < 0:
            return None
        if position >= self.end_offset:
            self._complete = max(self._complete, self._told_at, answered)
            late = now.running - self._complete
            return late if late > _SILENCE_SECONDS else 0.0
        ages = [now.of_day - at for at in (self._waiting, self._newest) if at >= 0]
        if self._complete >= 0:
            ages.append(now.running - self._complete)
        # A record from the future may be waiting for any time.
        return min((age for age in ages if age >= 0), default=None)


# ---- latencies of one lease as a histogram, whose counts can be added up anywhere ----
#
# Main type: `Latencies`. `latency_bounds` returns the upper ends of its buckets; one
# is the flow's SLA, so that the share of records within it is exact.


_BOUNDS = (
    *(0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5),
    *(1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 300.0, 3600.0),
)


def latency_bounds(sla_seconds: float) -> tuple[float, ...]:
    """Upper ends of the buckets in seconds; one more bucket takes all above them."""
    return tuple(sorted({*_BOUNDS, sla_seconds}))


class Latencies:
    """Counts of records per latency bucket."""

    def __init__(self, bounds: tuple[float, ...]) -> None:
        self._bounds = bounds
        self.counts = [0] * (len(bounds) + 1)
        self.sum_seconds = 0.0

    def add(self, seconds: float, count: int) -> None:
        """Count records that took this long."""
        # Clocks differ: a record may be copied before its own time.
        seconds = max(seconds, 0.0)
        self.counts[bisect_left(self._bounds, seconds)] += count
        self.sum_seconds += seconds * count

    @property
    def each(self) -> tuple[int, ...]:
        """The counts; empty if there are none, which most partitions of many report."""
        return tuple(self.counts) if any(self.counts) else ()
