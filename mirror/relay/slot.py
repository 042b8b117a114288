"""A slot: copies its partitions for the length of a lease, then tells what it did.

Main type: `Slot`. There is one way to begin and to recover: take over. It fences
every owner of the slot's ids, reads the committed progress, and goes on from there;
so no error needs a repair of its own. A slot that stays in one process keeps its
connections, epochs and positions from lease to lease and need not take over again.
The driver's side (who gets which partitions, and when) is not known here.
"""

from __future__ import annotations

import contextlib
import select
import time
from typing import TYPE_CHECKING
import uuid

import structlog

from mirror.clusters import admin, codes, fetch
from mirror.clusters.cluster import Cluster
from mirror.complaint import Complaint
from mirror.errors import (
    ClusterError,
    CorruptBatchError,
    FencedError,
    MirrorError,
    PartitionError,
    SupersededError,
    UnreachableError,
)
from mirror.relay import batch, codecs, progress, provenance
from mirror.relay.faults import Faults
from mirror.relay.obstacle import obstacle
from mirror.relay.progress import Position
from mirror.relay.rewrite import Rewriter
from mirror.relay.source import Answer, SourceReader
from mirror.relay.tally import Counts, Tally
from mirror.relay.target import TargetWriter
from mirror.relay.work import Work

if TYPE_CHECKING:
    from collections.abc import Mapping

    from mirror.clusters.cluster import Topic
    from mirror.relay.lease import Assignment, Lease, Plan
    from mirror.relay.report import PartitionReport

TopicPartition = tuple[str, int]

FETCH_BYTES = 16 << 20
PARTITION_BYTES = 4 << 20
_FIRST_PAUSE_SECONDS = 0.05
_LONGEST_PAUSE_SECONDS = 5.0
_SETTLE_SECONDS = 0.02
"""How long more data may be awaited before the last commit's answer is."""
_OFFSET_OUT_OF_RANGE = 1
_STALE_METADATA = frozenset({3, 5, 6, 9, 56, 72, 74, 75, 78, 100, 103})


class Slot:
    """Copies a set of partitions, lease after lease."""

    def __init__(self, plan: Plan, number: int) -> None:
        flow = plan.flow
        self._plan = plan
        client = f"mirror.{flow.name}.{number}"
        self._source = Cluster(plan.source, client_id=client)
        self._target = Cluster(plan.target, client_id=client)
        self._reader = SourceReader(
            self._source,
            isolation=fetch.READ_COMMITTED
            if flow.isolation_level == "read_committed"
            else fetch.READ_UNCOMMITTED,
            max_bytes=FETCH_BYTES,
            partition_max_bytes=PARTITION_BYTES,
        )
        self._writer = TargetWriter(
            self._target,
            flow=flow.name,
            slot=number,
            exactly_once=flow.exactly_once,
            transaction_timeout_ms=int(flow.transaction_timeout_seconds * 1000),
        )
        self._rewriter = Rewriter(
            provenance.via(
                source_alias=flow.source,
                source_id=plan.source_id,
                target_id=plan.target_id,
            )
            if flow.provenance
            else provenance.none(),
            codec=codecs.BY_NAME.get(flow.compression),
        )
        self._faults = Faults()
        self._tally = Tally(slot=number)
        self._scratch = batch.scratch()
        self._progress_at = (progress.topic_name(flow.source), 0)
        self._target_topics: dict[str, Topic] = {}
        self._limits: dict[str, int] = {}
        self._lease: Lease | None = None
        self._wanted: dict[TopicPartition, Assignment] = {}
        self._positions: dict[TopicPartition, Position] = {}
        self._unsettled: Work | None = None
        self._complaint = Complaint()
        self._log = structlog.get_logger().bind(flow=flow.name, slot=number)
        self._owner = False

    def run(self, lease: Lease, *, bell: int | None = None) -> list[PartitionReport]:
        """Copy until the lease ends or the bell (a file descriptor) is readable.

        Ends with no transaction open.

        Raises:
            FencedError: a newer owner is at work; this one did no harm.
        """
        deadline = time.monotonic() + lease.seconds
        self._begin(lease)
        pause = _FIRST_PAUSE_SECONDS
        fenced = False
        while time.monotonic() < deadline:
            try:
                rung = self._step(lease, deadline, bell)
                pause = _FIRST_PAUSE_SECONDS
            except FencedError as error:
                # Once is normal: another process had this slot for a lease, or a
                # replaced one woke up late. Taking over tells who is wanted.
                self._owner = False
                if fenced or isinstance(error, SupersededError):
                    raise
                fenced = True
                continue
            except (ClusterError, PartitionError) as error:
                self._owner = False
                if self._set_aside_target(error):
                    continue
                self._tally.slot_failed(str(error))
                if self._complaint.due(str(error)):
                    self._log.warning("slot recovers", error=str(error))
                rung = _wait(min(pause, deadline - time.monotonic()), bell)
                pause = min(pause * 2, _LONGEST_PAUSE_SECONDS)
            if rung:
                break
        self._finish()
        return self._tally.reports(self._wanted, self._positions, self._faults)

    def close(self) -> None:
        self._source.close()
        self._target.close()

    def _begin(self, lease: Lease) -> None:
        last, self._lease = self._lease, lease
        self._wanted = {(a.topic, a.partition): a for a in lease.assignments}
        self._faults.keep_only(set(self._wanted))
        self._tally.begin()
        self._owner = self._owner and (
            last is not None
            and last.number + 1 == lease.number
            and last.generation == lease.generation
            and last.assignments == lease.assignments
        )

    def _step(self, lease: Lease, deadline: float, bell: int | None) -> bool:
        """One round: take over if need be, fetch, copy. True if the bell rang."""
        if self._owner and self._faults.due(time.time()):
            self._settle()
            self._owner = False
        if not self._owner:
            self._take_over(lease)
        remaining = max(0.0, deadline - time.monotonic())
        # A commit is confirmed soon, also when no more data come.
        longest = 1.0 if self._unsettled is None else _SETTLE_SECONDS
        nodes, rung = self._reader.wait(min(remaining, longest), bell)
        if not nodes:
            self._settle()
            return rung
        work = Work()
        self._rewriter.begin()
        for node in nodes:
            for answer in self._reader.read(node):
                self._take(answer, work)
        self._reader.ask()
        if work.moved:
            self._settle()
            self._write(work)
        return rung

    def _finish(self) -> None:
        try:
            self._settle()
        except ClusterError as error:
            self._owner = False
            self._tally.slot_failed(str(error))

    def _settle(self) -> None:
        """The last transaction is committed from here on."""
        work, self._unsettled = self._unsettled, None
        if work is None:
            return
        self._writer.settle()
        self._positions.update(work.moved)
        now = time.time()
        for key in work.moved:
            self._faults.clear(key)
        self._tally.committed(work.counts, now)

    def _write(self, work: Work) -> None:
        self._writer.write(
            work.batches,
            (self._progress_at, progress.encode(work.moved)),
            self._target_topics,
        )
        self._unsettled = work  # from here on: a write that failed is nothing to settle

    def _take_over(self, lease: Lease) -> None:
        """Become the slot's owner and stand where the committed progress says."""
        now = time.time()
        # What went wrong at the source leaves a commit alone: it still counts.
        with contextlib.suppress(ClusterError):
            self._settle()
        if not self._target.cluster_id:
            self._target.connect()
        if not self._source.cluster_id:
            self._source.connect()
        self._target.drop("produce")
        self._writer.take_over()
        known = progress.read(self._target, self._progress_at[0])
        if known.generation != lease.generation:
            raise SupersededError(
                f"flow {self._plan.flow.name}: a newer run of the flow is at work"
            )
        names = {a.target_topic for a in self._wanted.values()}
        self._target_topics = self._target.topics({*names, self._progress_at[0]})
        self._limits = admin.max_message_bytes(self._target, names)
        topics = self._source.topics({topic for topic, _ in self._wanted})
        aside = self._faults.aside(now)
        self._faults.start_retry(now)
        keys = [key for key in self._wanted if key not in aside]
        self._positions = {
            key: known.positions[key] for key in self._wanted if key in known.positions
        }
        self._start_new(keys)
        usable = [key for key in keys if self._usable(key, topics, now)]
        self._reader.assign(
            {key: self._positions[key].offset for key in usable}, topics
        )
        self._owner = True
        self._tally.slot_works()

    def _start_new(self, keys: list[TopicPartition]) -> None:
        """Partitions without progress begin at their first record. (Where a flow is
        to begin elsewhere, the driver has written that as progress.)
        """
        new = [key for key in keys if key not in self._positions]
        if new:
            found = admin.list_offsets(self._source, new, timestamp=admin.EARLIEST)
            for key, offset in found.items():
                self._positions[key] = Position(
                    offset=offset, topic_id=uuid.UUID(self._wanted[key].topic_id)
                )

    def _usable(
        self, key: TopicPartition, topics: Mapping[str, Topic], now: float
    ) -> bool:
        """Whether a partition can be read and written now; if not, it is set aside."""
        reason = obstacle(
            self._wanted[key],
            source=topics[key[0]],
            target=self._target_topics[self._wanted[key].target_topic],
            position=self._positions.get(key),
        )
        if reason:
            self._set_aside(key, reason, now)
        return not reason

    def _take(self, answer: Answer, work: Work) -> None:
        """Put what a partition answered into the transaction."""
        fetched = answer.fetched
        key = (fetched.topic, fetched.partition)
        if fetched.error != codes.NONE:
            self._source_failed(key, fetched.error, work)
            return
        position = self._reader.offset(key)
        end_offset = fetched.last_stable_offset
        if end_offset < 0 or self._plan.flow.isolation_level == "read_uncommitted":
            end_offset = fetched.high_watermark
        size = fetched.end - fetched.start
        self._tally.fetched(
            key, end_offset=end_offset, behind=size > PARTITION_BYTES // 2
        )
        if position == end_offset:
            self._faults.clear(key)  # it can be read, and nothing waits to be written
        if not size or position is None:
            return
        assignment = self._wanted[key]
        try:
            found = batch.read(
                answer.buffer,
                fetched.start,
                fetched.end,
                position=position,
                aborted=fetched.aborted,
                scratch=self._scratch,
            )
            done = self._rewriter.rewrite(
                answer.buffer,
                found.rows,
                position=position,
                max_bytes=self._limits[assignment.target_topic],
            )
        except CorruptBatchError as error:
            self._set_aside(key, str(error), time.time())
            return
        if found.next_offset == position:
            return
        if done.batches:
            work.batches[assignment.target_topic, key[1]] = done.batches
        self._move(key, found.next_offset, found.leader_epoch, work)
        work.counts[key] = Counts(
            records=done.records,
            bytes=sum(encoded.size for encoded in done.batches),
            filtered=done.filtered,
            skipped=found.skipped,
            newest=done.newest,
        )

    def _move(
        self, key: TopicPartition, offset: int, leader_epoch: int, work: Work
    ) -> None:
        work.moved[key] = Position(
            offset=offset,
            leader_epoch=leader_epoch,
            topic_id=uuid.UUID(self._wanted[key].topic_id),
        )
        self._reader.advance(key, offset)

    def _source_failed(self, key: TopicPartition, error: int, work: Work) -> None:
        name = codes.name_of(error)
        if error in _STALE_METADATA:
            raise UnreachableError(f"source partition {key[0]}-{key[1]}: {name}")
        if error != _OFFSET_OUT_OF_RANGE:
            self._set_aside(
                key, f"reading source partition {key[0]}-{key[1]}: {name}", time.time()
            )
            return
        position = self._reader.offset(key)
        edges = [
            admin.list_offsets(self._source, [key], timestamp=edge).get(key, -1)
            for edge in (admin.EARLIEST, admin.LATEST)
        ]
        if position is None or min(edges) < 0:
            raise UnreachableError(f"source partition {key[0]}-{key[1]}: {name}")
        if position < edges[0]:
            self._log.error(
                "records lost before they were copied", topic=key[0],
                partition=key[1], first=position, last=edges[0] - 1,
            )  # fmt: skip
            work.counts[key] = Counts(lost=edges[0] - position)
            self._move(key, edges[0], -1, work)
        else:
            self._set_aside(
                key,
                f"the source's log ends at offset {edges[1]}, below the position "
                f"{position}: it was truncated or created again",
                time.time(),
            )

    def _set_aside(self, key: TopicPartition, reason: str, now: float) -> None:
        if (known := self._faults.get(key)) is None or known.reason != reason:
            self._log.warning(
                "partition set aside", topic=key[0], partition=key[1], reason=reason
            )
        self._faults.set_aside(key, reason, now)
        self._reader.leave_out(key)

    def _set_aside_target(self, error: MirrorError) -> bool:
        """Whether the target refuses what goes to one partition of ours, which is
        then set aside.
        """
        if not isinstance(error, PartitionError):
            return False
        for key, assignment in self._wanted.items():
            if (assignment.target_topic, key[1]) == (error.topic, error.partition):
                reason = f"target {error.topic}-{error.partition}: {error.reason}"
                self._set_aside(key, reason, time.time())
                return True
        return False


def _wait(seconds: float, bell: int | None) -> bool:
    """Wait, or until the bell rings: whether it did."""
    poller = select.poll()
    if bell is not None:
        poller.register(bell, select.POLLIN)
    return bool(poller.poll(max(0, int(seconds * 1000))))
