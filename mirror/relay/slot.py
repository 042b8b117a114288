"""A slot: copies its partitions for the length of a lease, then tells what it did.

Main type: `Slot`. There is one way to begin and to recover: take over. It fences
every owner of the slot's ids, reads the committed progress, and goes on from there;
so no error needs a repair of its own. A slot that stays in one process keeps its
connections, epochs and positions from lease to lease and need not take over again.
The driver's side (who gets which partitions, and when) is not known here.
"""

from __future__ import annotations

import contextlib
import time
from typing import TYPE_CHECKING

import structlog

from mirror.clusters.admin import topic_admin
from mirror.clusters.cluster import Cluster
from mirror.clusters.wire import fetch
from mirror.errors import (
    ClusterError,
    FencedError,
    LeaderError,
    MirrorError,
    PartitionError,
    SupersededError,
)
from mirror.log import LogThrottle
from mirror.offsets import progress, starting
from mirror.relay.faults import Faults, obstacle
from mirror.relay.filling import FETCH_BYTES, PARTITION_BYTES, Filling
from mirror.relay.gaps import remade
from mirror.relay.inquiry import Inquiry
from mirror.relay.intake import Intake
from mirror.relay.jumps import begin_new
from mirror.relay.latency import bounds
from mirror.relay.source import SourceReader
from mirror.relay.suspicions import Suspicions
from mirror.relay.tally import Tally
from mirror.relay.target import MAX_IN_FLIGHT, TargetWriter
from mirror.relay.transaction_records import Notes
from mirror.relay.waiting import wait

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from mirror.clusters.topics import Topic
    from mirror.offsets.progress import Position
    from mirror.relay.lease import Assignment, Lease, Plan
    from mirror.relay.pending_transaction import Work
    from mirror.relay.report import PartitionReport

TopicPartition = tuple[str, int]

_FIRST_PAUSE_SECONDS = 0.05
_LONGEST_PAUSE_SECONDS = 5.0
_HEAR_SECONDS = 0.05
"""How soon an inquiry's end is noticed when nothing else happens."""
_SETTLE_SECONDS = 7.0
"""Less than what makes a lease overdue: one slot's trouble shall not end the flow."""


class Slot:
    """Copies a set of partitions, lease after lease."""

    def __init__(self, plan: Plan, number: int) -> None:
        flow = plan.flow
        self._plan = plan
        client = f"mirror.{flow.name}.{number}"
        self._source = Cluster(plan.source, client_id=client, cluster_id=plan.source_id)
        self._target = Cluster(plan.target, client_id=client, cluster_id=plan.target_id)
        self._reader = SourceReader(
            self._source,
            isolation=fetch.READ_COMMITTED
            if flow.isolation_level == "read_committed"
            else fetch.READ_UNCOMMITTED,
            max_bytes=FETCH_BYTES,
            partition_max_bytes=PARTITION_BYTES,
        )
        self._notes = Notes.of(flow.source, flow.separator)
        self._writer = TargetWriter(
            self._target,
            self._notes,
            flow=flow.name,
            slot=number,
            exactly_once=flow.exactly_once,
            transaction_timeout_ms=int(flow.transaction_timeout_seconds * 1000),
        )
        self._faults = Faults()
        self._tally = Tally(
            slot=number, bounds=bounds(flow.sla_seconds), service=plan.service
        )
        self._target_topics: dict[str, Topic] = {}
        self._limits: dict[str, int] = {}
        self._closed: dict[TopicPartition, str] = {}
        """Partitions of the target that nothing may be written to, and why."""
        self._lease: Lease | None = None
        self._wanted: dict[TopicPartition, Assignment] = {}
        self._positions: dict[TopicPartition, Position] = {}
        self._throttle = LogThrottle()
        self._log = structlog.get_logger().bind(flow=flow.name, slot=number)
        self._owner = False
        self._suspicions = Suspicions(
            flow,
            self._source,
            self._reader,
            Inquiry(Cluster(plan.source, client_id=client, cluster_id=plan.source_id)),
            tally=self._tally,
        )
        self._intake = Intake(
            flow,
            self._reader,
            self._suspicions,
            tally=self._tally,
            faults=self._faults,
            log=self._log,
        )
        self._filling = Filling(
            plan, self._reader, self._intake, self._writer, self._target
        )

    def run(self, lease: Lease, *, wakeup: int | None = None) -> list[PartitionReport]:
        """Copy until the lease ends or the wakeup (a file descriptor) is readable.

        Ends with no transaction open.

        Raises:
            FencedError: a newer owner is at work; this one did no harm.
        """
        deadline = time.monotonic() + lease.seconds
        self._begin(lease)
        pause = _FIRST_PAUSE_SECONDS
        fenced = 0
        while time.monotonic() < deadline:
            try:
                woken = self._step(lease, deadline, wakeup)
                pause = _FIRST_PAUSE_SECONDS
            except FencedError as error:
                # Another process had this slot for a lease, or a replaced one woke up
                # late, and takes id by id before it learns that. Taking over tells
                # who is wanted.
                self._owner = False
                fenced += 1
                if fenced > MAX_IN_FLIGHT or isinstance(error, SupersededError):
                    raise
                continue
            except (ClusterError, PartitionError) as error:
                if self._set_aside(error):
                    continue
                if self._throttle.due(str(error)):
                    self._log.warning("slot recovers", error=str(error))
                _, woken = wait([], wakeup, min(pause, deadline - time.monotonic()))
                pause = min(pause * 2, _LONGEST_PAUSE_SECONDS)
            if woken:
                break
        self._finish()
        self._look_at_resting()
        return self._tally.reports(
            self._wanted,
            self._positions,
            self._faults,
            answered=self._reader.answered,
        )

    def close(self) -> None:
        self._suspicions.close()
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

    def _step(self, lease: Lease, deadline: float, wakeup: int | None) -> bool:
        """One round: take over if need be, read, fill, write. True when woken."""
        # Taking over would forget what is being looked into.
        if self._owner and self._faults.due() and not self._suspicions.pending:
            self._settled(self._writer.settle(_SETTLE_SECONDS))
            self._owner = False
        if not self._owner:
            self._take_over(lease)
        self._intake.heed(self._suspicions.verdicts())
        self._reader.ask()
        room = self._filling.room
        of_target = self._writer.connections()
        of_source = self._reader.connections() if room else []
        again_in = self._writer.again_in
        longest = 1.0 if again_in is None else again_in
        if self._suspicions.pending:
            longest = min(longest, _HEAR_SECONDS)
        if room and self._intake.jumps_wait:
            longest = 0.0
        ready, woken = wait(
            [*of_target, *of_source],
            wakeup,
            min(max(0.0, deadline - time.monotonic()), longest),
        )
        self._writer.receive(set(of_target).intersection(ready))
        self._settled(self._writer.advance())
        if of_source or (room and self._intake.jumps_wait):
            self._filling.fill(set(of_source).intersection(ready), self._go_on_writing)
        if self._writer.ready:
            self._write_next()
        return woken

    def _write_next(self) -> None:
        if (work := self._filling.take()) is not None:
            work.running = self._tally.written(work.counts, work.moved)
            self._settled(self._writer.write(work, self._target_topics))

    def _go_on_writing(self) -> None:
        """What is under way shall not wait until the next transaction is filled, nor
        leaders until there is room for it.
        """
        self._reader.read_on()
        ready, _ = wait(self._writer.connections(), None, 0.0)
        if ready:
            self._writer.receive(ready)
            self._settled(self._writer.advance())

    def _finish(self) -> None:
        end = time.monotonic() + _SETTLE_SECONDS
        try:
            if self._owner and self._filling.work is not None:
                self._settled(
                    self._writer.settle(_SETTLE_SECONDS, left=MAX_IN_FLIGHT - 1)
                )
                self._write_next()
            self._settled(self._writer.settle(max(0.0, end - time.monotonic())))
        except (ClusterError, PartitionError) as error:
            self._set_aside(error)

    def _look_at_resting(self) -> None:
        """Where the source's ends are of what is not read: their lag is shown, too."""
        resting = [key for key, a in self._wanted.items() if a.paused_since]
        if resting and self._owner:
            # Only a figure: whatever is wrong there will be said by who reads there.
            with contextlib.suppress(ClusterError):
                self._tally.ends(
                    topic_admin.list_offsets(
                        self._source, resting, timestamp=topic_admin.LATEST
                    )
                )

    def _settled(self, done: Iterable[Work]) -> None:
        """These transactions are committed."""
        now = time.monotonic()
        for work in done:
            self._positions.update(work.moved)
            for key in work.moved:
                # What is read no longer was set aside behind this: not to be forgotten.
                if self._reader.offset(key) is not None:
                    self._faults.clear(key)
            self._tally.committed(
                work.counts, work.moved, work.running, seconds=now - work.begun
            )
            self._filling.give_back(work)

    def _take_over(self, lease: Lease) -> None:
        """Become the slot's owner and stand where the committed progress says."""
        # What went wrong at the source leaves the target's side alone; and a commit
        # that was asked for counts, whatever went wrong behind it.
        with contextlib.suppress(ClusterError, PartitionError):
            self._settled(self._writer.settle())
        if not self._target.cluster_id:
            self._target.connect()
        if not self._source.cluster_id:
            self._source.connect()
        self._writer.take_over()
        self._tally.aborted(self._filling.begin_anew())
        names = {a.target_topic for a in self._wanted.values()}
        if (dead := self._plan.flow.dead_letter_topic) is not None:
            names.add(dead)
        self._target_topics = self._target.topics({*names, *self._notes.topics})
        self._complete_transactions(dead)
        known = progress.read_proven(self._target, self._notes.progress[0])
        if known.generation != lease.generation:
            raise SupersededError(
                f"flow {self._plan.flow.name}: a newer run of the flow is at work"
            )
        self._limits = topic_admin.max_message_bytes(self._target, names)
        topics = self._source.topics({topic for topic, _ in self._wanted})
        aside = self._faults.start_retry()
        keys = [
            key
            for key, assignment in self._wanted.items()
            if key not in aside and not assignment.paused_since
        ]
        self._positions = {
            key: known.positions[key] for key in self._wanted if key in known.positions
        }
        place = starting.place_of(self._plan.flow.start)
        self._positions |= begin_new(self._source, keys, known, topics, place=place)
        usable = [key for key in keys if self._usable(key, topics)]
        self._reader.assign({key: self._positions[key] for key in usable}, topics)
        ids = {name: topic.topic_id for name, topic in topics.items()}
        self._suspicions.begin(self._wanted, ids)
        self._intake.begin(
            self._wanted,
            self._limits,
            ids,
            {key: self._positions[key].left_id for key in usable},
            dead_letter_partitions=self._target_topics[dead].partitions if dead else 0,
        )
        for key in usable:
            if key not in known.positions and key in known.unsettled:
                self._intake.settle(key, self._positions[key])
            if _doubtful(self._positions[key], topics[key[0]], key[1]):
                self._suspicions.look_into(key, self._positions[key])
        self._tally.slot_works(known.running, self._wanted)
        self._owner = True

    def _complete_transactions(self, dead: str | None) -> None:
        """What partitions missed the end of an earlier transaction get it now."""
        partitions = {(a.target_topic, a.partition) for a in self._wanted.values()}
        partitions.update(self._notes.partitions)
        if dead is not None:
            partitions |= {(dead, n) for n in self._target_topics[dead].leaders}
        looked = self._writer.complete(self._target_topics, partitions)
        known, self._closed = set(self._closed.values()), dict(looked.unseen)
        for each in looked.hanging:
            if each.text not in known:
                self._log.warning("transaction left open", what=each.text)
            if not each.ended:
                # The next end of a transaction would decide on what is open there.
                self._closed |= dict.fromkeys(each.partitions, each.text)

    def _usable(self, key: TopicPartition, topics: Mapping[str, Topic]) -> bool:
        """Whether a partition can be read and written now; if not, it is set aside."""
        wanted = self._wanted[key]
        reason = self._closed.get((wanted.target_topic, wanted.partition)) or obstacle(
            wanted,
            source=topics[key[0]],
            target=self._target_topics[wanted.target_topic],
            position=self._positions.get(key),
        )
        if reason:
            self._intake.set_aside(key, reason)
        return not reason

    def _set_aside(self, error: MirrorError) -> bool:
        """What is under way failed, and has to be taken over: whether because of some
        partitions of ours alone, which are then set aside.
        """
        self._owner = False
        guilty: dict[TopicPartition, str] = {}
        if isinstance(error, PartitionError):
            for each in error.each:
                reason = f"target {each.topic}-{each.partition}: {each.reason}"
                for key in self._intake.writers_to(each.topic, each.partition):
                    guilty[key] = reason
        elif isinstance(error, LeaderError) and (
            len(error.partitions) < self._reader.assigned
            or self._suspicions.pending
            or self._intake.jumps_wait
        ):
            guilty = dict.fromkeys(error.partitions, str(error))
        for key, reason in guilty.items():
            self._intake.set_aside(key, reason)
        if not guilty:
            self._tally.slot_failed(str(error))
        return bool(guilty)


def _doubtful(position: Position, topic: Topic, partition: int) -> bool:
    """Whether the source shows another topic, or an older leader, than was copied."""
    older = topic.leaders[partition].epoch < position.leader_epoch
    return older or remade(topic.topic_id, position)
