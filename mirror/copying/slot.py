"""A slot: copies its partitions for the length of a lease, then reports what it did.

Main type: `Slot`. It starts and recovers in the same way: it takes over. A take-over
fences every earlier owner of the slot's ids, reads the committed progress and continues
from there, so no error needs its own repair. A slot that stays in one process keeps its
connections, epochs and positions from lease to lease and need not take over again. The
driver decides which partitions it gets, and when.
"""

from __future__ import annotations

import contextlib
from dataclasses import replace
from functools import partial
import math
import time
from typing import TYPE_CHECKING

import structlog

from mirror import patience, retry
from mirror.clusters.cluster import Cluster
from mirror.clusters.topics import TopicPartition
from mirror.clusters.wire import fetch
from mirror.copying import provenance
from mirror.copying.background import BackgroundQuery
from mirror.copying.faults import Faults, blamed
from mirror.copying.gaps import Inquiry, Suspicions, first_positions, remade
from mirror.copying.intake import Intake
from mirror.copying.lease import DIVERGED
from mirror.copying.rewrite import Rewriter
from mirror.copying.source import LINGER_BYTES, SourceReader, longest_linger_ms
from mirror.copying.take_over import TakeOverSurvey
from mirror.copying.tally import Tally, latency_bounds
from mirror.copying.target import MAX_IN_FLIGHT, TargetWriter
from mirror.copying.transaction import (
    PendingTransaction,
    TransactionContent,
    TransactionRecords,
)
from mirror.copying.waiting import wait
from mirror.errors import (
    ClusterError,
    FencedError,
    LeaderError,
    MirrorError,
    PartitionError,
    SupersededError,
)
from mirror.log import LogThrottle
from mirror.offsets import starting
from mirror.offsets.progress import NO_ID, Position
from mirror.records import codecs
from mirror.status.values import Counts

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Mapping
    from collections.abc import Set as AbstractSet

    from mirror.clusters.topics import Topic
    from mirror.clusters.wire.connection import Connection
    from mirror.copying.lease import Assignment, Lease, LeasePlan, PartitionReport
    from mirror.copying.schemas import SchemaBarrier
    from mirror.copying.take_over import Found


# ---- notices when partitions that lost their leader have another one ----
#
# Main type: `Elections`, of one cluster. A partition whose leader is gone, on the
# source or on the target, is set aside, and each retry costs its slot a take-over,
# so retries become rare (`faults`). Meanwhile this asks the cluster who leads, so
# that the retry comes with the election. Only a newer leader epoch counts: brokers
# that are cut off from their cluster go on to name old leaders.


_Lost = tuple[TopicPartition, int]
"""A partition, and the epoch of its last known leader."""

_AGAIN_SECONDS = 0.25


class Elections:
    """The partitions of one slot that wait for a leader."""

    def __init__(self, cluster: Cluster) -> None:
        """Takes over `cluster`, which need not be connected yet."""
        self._cluster = cluster
        self._lost: dict[TopicPartition, _Lost] = {}
        self._ask_at = 0.0
        self._background = BackgroundQuery("elections", self._ask, cluster.close)

    @property
    def again_in(self) -> float:
        """Seconds within which to call `held`."""
        return _AGAIN_SECONDS if self._lost else math.inf

    def wait_for(self, key: TopicPartition, led: TopicPartition, epoch: int) -> None:
        """Wait until the partition `led` of this cluster has a leader of a newer epoch
        than the last one known; `key`: what the slot calls it, the source's partition.
        """
        self._lost[key] = (led, epoch)

    def keep_only(self, keys: Collection[TopicPartition]) -> None:
        """No other partition waits any longer."""
        self._lost = {key: self._lost[key] for key in self._lost.keys() & keys}
        if not (self._lost or self._background.asks):
            self._cluster.close()

    def held(self) -> list[TopicPartition]:
        """The partitions that have another leader now, each once; never waits."""
        found = []
        for key, lost in self._background.answers():
            if self._lost.get(key) == lost:
                del self._lost[key]
                found.append(key)
        now = time.monotonic()
        if self._lost and now >= self._ask_at and not self._background.asks:
            self._ask_at = now + _AGAIN_SECONDS
            self._background.start(self._lost.copy())
        return found

    def close(self) -> None:
        """Close the connections, at once or when the last question ends."""
        self._lost.clear()
        self._background.close()

    def _ask(
        self, lost: Mapping[TopicPartition, _Lost]
    ) -> Iterable[tuple[TopicPartition, _Lost]]:
        try:
            if not self._cluster.cluster_id:
                self._cluster.connect()
            topics = self._cluster.topics({led[0] for led, _ in lost.values()})
        except MirrorError:
            return  # the retries of `faults` say what is wrong
        for key, (led, epoch) in lost.items():
            leader = topics[led[0]].leaders.get(led[1])
            if leader is not None and leader.node >= 0 and leader.epoch > epoch:
                yield key, (led, epoch)


_VERDICT_POLL_SECONDS = 0.05
"""How soon the end of an inquiry is noticed when nothing else happens."""
_FINISH_SECONDS = 7.0
"""Less than what makes a lease overdue, so that one slow slot does not end the flow."""


class Slot:
    """Copies a set of partitions, lease after lease."""

    def __init__(self, plan: LeasePlan, number: int) -> None:
        flow = plan.flow
        self._plan = plan
        client = f"mirror.{flow.name}.{number}"
        to_source, to_target = (
            partial(Cluster, config, client_id=client, cluster_id=cluster_id)
            for config, cluster_id in (
                (plan.source, plan.source_id), (plan.target, plan.target_id)
            )
        )  # fmt: skip
        self._source = to_source()
        self._target = to_target()
        self._reader = SourceReader(
            self._source,
            isolation=fetch.READ_COMMITTED
            if flow.isolation_level == "read_committed"
            else fetch.READ_UNCOMMITTED,
            max_bytes=FETCH_BYTES, partition_max_bytes=PARTITION_BYTES,
            rack=flow.rack or "", linger_ms=longest_linger_ms(flow),
        )  # fmt: skip
        records = TransactionRecords.for_source(flow.source, flow.separator)
        self._writer = TargetWriter(self._target, records, flow, slot=number)
        if flow.offsets == "same":
            # Only here: it loads loops that other flows do not need.
            from mirror.copying.same_offsets import SameOffsetsWriter  # noqa: PLC0415

            self._writer = SameOffsetsWriter(
                self._target, records, flow,
                slot=number, fresh_seconds=plan.fresh_seconds,
            )  # fmt: skip
        self._faults = Faults()
        self._elections = Elections(to_source())
        self._target_elections = Elections(to_target())
        self._tally = Tally(
            slot=number, bounds=latency_bounds(flow.sla_seconds), service=plan.service
        )
        self._target_topics: Mapping[str, Topic] = {}
        self._lease: Lease | None = None
        self._wanted: dict[TopicPartition, Assignment] = {}
        self._positions: dict[TopicPartition, Position] = {}
        self._throttle = LogThrottle()
        self._log = structlog.get_logger().bind(flow=flow.name, slot=number)
        self._owner = False
        self._alone = False
        """Whether no process that had an earlier lease of this run can still write."""
        self.on_credit = False
        """Whether the last report said that it copies on."""
        self._after_error = True
        """Whether the next take-over follows an error, or a start; else it only gives
        partitions that were set aside another chance."""
        self._survey = TakeOverSurvey(
            plan, self._source, self._target, self._writer, records, log=self._log
        )
        self._suspicions = Suspicions(
            flow, self._source, self._reader, Inquiry(to_source()), tally=self._tally
        )
        self._schemas: SchemaBarrier | None = None
        self._inquiring: list[Suspicions | SchemaBarrier] = [self._suspicions]
        if flow.requires_schemas:
            # Other flows need neither an HTTP client nor one more compiled loop.
            from mirror.copying.schemas import barrier_of  # noqa: PLC0415

            self._schemas = barrier_of(plan, client)
            self._inquiring.append(self._schemas)
        self._intake = Intake(
            flow, self._reader, self._suspicions, tally=self._tally,
            faults=self._faults, log=self._log, schemas=self._schemas,
        )  # fmt: skip
        self._filling = Filling(
            plan, self._reader, self._intake, self._writer, self._target,
            schemas=self._schemas,
        )  # fmt: skip

    def run(self, lease: Lease, *, wakeup: int | None = None) -> list[PartitionReport]:
        """Copy until the lease ends or the wakeup (a file descriptor) is readable.

        Leaves no transaction open, unless a quota of the target delays its commit, or
        there was an error: `finish` if no lease follows at once.

        Raises:
            FencedError: a newer owner is active; this one did no harm.
        """
        with patience.until(time.monotonic() + lease.seconds + _FINISH_SECONDS):
            self._begin(lease)
            woken = self._copy(lease, wakeup)
            goes_on = lease.credit and self._owner and not woken
            self.on_credit = goes_on and bool(self._wanted)
            if not self.on_credit:
                self._end_writing()
            if self._owner:
                resting = [key for key, a in self._wanted.items() if a.paused_since]
                self._tally.ends(self._reader.ends_of(resting))
        reports = self._tally.reports(
            self._wanted, self._positions, self._faults,
            answered=self._reader.answered, seeding=self._writer.is_seeding,
        )  # fmt: skip
        copies_on = self.on_credit or not self._alone
        return [replace(report, slot_copies_on=copies_on) for report in reports]

    def copy_on(self, seconds: float, *, wakeup: int | None = None) -> bool:
        """Copy on credit after `run`, until the wakeup is readable or the time is over,
        and at most to the first error: only a lease takes over. Returns whether it
        could go on; `finish` if no lease follows at once.
        """
        deadline = time.monotonic() + seconds
        try:
            while time.monotonic() < deadline:
                if self._step(deadline, wakeup):
                    break
        except (ClusterError, PartitionError) as error:
            self._set_aside(error)
        return self._owner

    def _copy(self, lease: Lease, wakeup: int | None) -> bool:
        """Copy until the lease's time is over; returns whether it was woken instead."""
        deadline = time.monotonic() + lease.seconds
        pause = 0.0
        fenced = 0
        while time.monotonic() < deadline:
            try:
                self._be_owner(lease)
                woken = self._step(deadline, wakeup)
                pause = 0.0
            except FencedError as error:
                # Another process had this slot for a lease, or a superseded one woke up
                # late and fences one id after the other until it finds out. A take-over
                # shows which of the two is superseded.
                self._owner = False
                fenced += 1
                if fenced > MAX_IN_FLIGHT or isinstance(error, SupersededError):
                    raise
                continue
            except (ClusterError, PartitionError) as error:
                if self._set_aside(error):
                    continue
                pause = retry.SLOT.after(pause)
                _, woken = wait([], wakeup, min(pause, deadline - time.monotonic()))
            if woken:
                return True
        return False

    def close(self) -> None:
        for each in self._inquiring:
            each.close()
        self._elections.close()
        self._target_elections.close()
        self._source.close()
        self._target.close()

    def _begin(self, lease: Lease) -> None:
        last, self._lease = self._lease, lease
        follows = last is not None and lease.follows(last)
        same = follows and last is not None and last.assignments == lease.assignments
        assert same or not (follows and self.on_credit), "another slot may copy these"
        self._wanted = {(a.topic, a.partition): a for a in lease.assignments}
        self._faults.keep_only(set(self._wanted))
        if not same:
            self._writer.drop_uncommitted()  # another slot may have its partitions now
        self._owner = self._owner and same
        self._alone = lease.number == 1 or (follows and self._alone)
        self._tally.begin(owner=self._owner)
        self._reader.pace.allow(lease.bytes_per_second, from_now=lease.takes_turns)

    def _be_owner(self, lease: Lease) -> None:
        """Take over if necessary."""
        # A take-over would forget the suspicions that are being investigated.
        due = self._owner and self._faults.due()
        if due and not (self._suspicions.pending or self._writer.held_up):
            self._writer.finish(_FINISH_SECONDS)
            self._owner = self._after_error = False
        if not self._owner:
            self._take_over(lease)

    def _step(self, deadline: float, wakeup: int | None) -> bool:
        """One round: read, fill, write. True if woken."""
        for each in self._inquiring:
            self._intake.apply_verdicts(each.verdicts())
        for elections in (self._elections, self._target_elections):
            self._faults.hasten(elections.held())
        self._filling.ask()
        room = self._filling.room
        of_target = self._writer.connections()
        of_source = self._reader.connections() if room else []
        again_in = self._writer.again_in
        longest = 1.0 if again_in is None else again_in
        longest = min(longest, self._filling.again_in, self._elections.again_in)
        longest = min(longest, self._target_elections.again_in)
        longest = min(longest, self._reader.again_in or longest)
        if any(each.pending for each in self._inquiring):
            longest = min(longest, _VERDICT_POLL_SECONDS)
        if room and self._intake.jumps_wait:
            longest = 0.0
        ready, woken = wait(
            [*of_target, *of_source],
            wakeup,
            min(max(0.0, deadline - time.monotonic()), longest),
        )
        self._go_on_writing(set(of_target).intersection(ready))
        if of_source or (room and self._intake.jumps_wait):
            self._filling.fill(set(of_source).intersection(ready), self._meanwhile)
        if not self._filling.again_in:
            self._write_next()
        return woken

    def _go_on_writing(self, ready: Iterable[Connection]) -> None:
        self._writer.advance(ready)
        self._count_committed()

    def _write_next(self) -> None:
        if (transaction := self._filling.take()) is not None:
            transaction.running = self._tally.written(
                transaction.counts, transaction.moved
            )
            self._writer.write(transaction, self._target_topics)
            self._count_committed()

    def _meanwhile(self) -> None:
        """While the next transaction is filled, keep those in flight going, and keep
        receiving from leaders before there is room for their answers.
        """
        self._reader.read_on()
        ready, _ = wait(self._writer.connections(), None, 0.0)
        if ready:
            self._go_on_writing(ready)

    def finish(self, unless: Callable[[], bool] = lambda: False) -> None:
        """After a lease: end what is being written, start nothing, and leave nothing
        open; `unless` the slot may go on.
        """
        with patience.until(time.monotonic() + _FINISH_SECONDS):
            self._end_writing(unless)
        if not self._owner:
            with contextlib.suppress(MirrorError):  # the next take-over does it
                self._writer.abort_failed(unless)

    def _end_writing(self, unless: Callable[[], bool] = lambda: False) -> None:
        ended = partial(self._writer.finish, _FINISH_SECONDS, unless=unless)
        try:
            if self._owner and self._filling.transaction and ended(one_more=True):
                self._write_next()
            ended()
        except (ClusterError, PartitionError) as error:
            self._set_aside(error)
        self._count_committed()

    def _count_committed(self) -> None:
        """Count committed transactions and take over their positions."""
        for event in self._writer.take_events():
            transaction = event.transaction
            self._positions.update(transaction.moved)
            for key in transaction.moved:
                # A partition no longer read was set aside since: its fault stays.
                if self._reader.offset(key) is not None:
                    self._faults.clear(key)
            self._tally.committed(
                transaction.counts,
                transaction.moved,
                transaction.running,
                seconds=event.seconds,
            )
            self._filling.written(transaction)

    def _take_over(self, lease: Lease) -> None:
        """Become the slot's owner and continue from the committed progress."""
        # An error at the source does not concern the target; and a requested commit
        # counts, whatever failed after it.
        with contextlib.suppress(ClusterError, PartitionError):
            self._writer.finish()
        self._count_committed()
        for cluster in (self._target, self._source):
            if not cluster.cluster_id:
                cluster.connect()
        self._writer.take_over()
        self._alone = True
        self._tally.aborted(self._filling.drop_all())
        self._resume_from(self._survey.find(lease, self._wanted.values()))
        self._owner = True

    def _resume_from(self, found: Found) -> None:
        """Continue from the progress with the partitions that can be copied now."""
        aside = self._faults.start_retry(after_error=self._after_error)
        self._after_error = True
        for elections in (self._elections, self._target_elections):
            elections.keep_only(aside)
        wanted = {
            key: assignment
            for key, assignment in self._wanted.items()
            if key not in aside and not assignment.paused_since
        }
        known = found.progress.positions
        # Where one began that was set aside before its first commit, only we know.
        self._positions = {
            key: position for key, position in self._positions.items() if key in aside
        }
        self._positions |= {key: known[key] for key in self._wanted if key in known}
        self._positions |= first_positions(
            self._source,
            wanted,
            found.progress,
            found.source_topics,
            place=starting.start_point(self._plan.flow.start),
        )
        more = self._go_on_at_ends(found)
        self._target_topics = found.target_topics
        resumption = found.resumption(wanted, self._positions)
        self._reader.assign(resumption.read, found.source_topics)
        self._suspicions.begin(self._wanted, found.ids)
        if self._schemas is not None:
            self._schemas.begin(found.progress.generation)
        self._intake.begin(
            self._wanted,
            found.limits,
            found.ids,
            {key: position.left_id for key, position in resumption.read.items()},
            found.ends,
            dead_letter_partitions=found.dead_letter_partitions,
            compacted=found.compacted,
        )
        for key, reason in resumption.obstacles.items():
            end = found.ends.get(key)
            diverged = end is not None and end.diverged
            self._intake.set_aside(key, reason, failed=DIVERGED if diverged else "")
            self._await_leaders(self._wanted[key], found)
        for key, position in resumption.first.items():
            self._intake.commit_first(key, position)
        for key, position in resumption.doubtful.items():
            self._suspicions.look_into(key, position)
        for key, position in resumption.unchecked.items():
            self._suspicions.look_into(key, position, refused=False)
        self._tally.slot_works(found.progress.running, self._wanted, more)

    def _go_on_at_ends(self, found: Found) -> dict[TopicPartition, Counts]:
        """Where copies have the source's offsets, their ends are the positions. Returns
        what they have beyond the noted ones.
        """
        more = {}
        for key, end in found.ends.items():
            position = self._positions.get(key)
            topic_id = found.source_topics[key[0]].topic_id
            known = not end.reason and end.position == end.offset
            if not known or (position is not None and remade(topic_id, position)):
                continue
            noted = found.progress.positions.get(key)
            more[key] = Counts(
                records=max(end.offset - (0 if noted is None else noted.offset), 0)
            )
            self._positions[key] = Position(
                offset=end.offset,
                leader_epoch=end.leader_epoch,
                topic_id=topic_id,
                left_id=NO_ID if position is None else position.left_id,
            )
        return more

    def _await_leaders(self, wanted: Assignment, found: Found) -> None:
        """Retry a partition once it and its copy have leaders, if one has none now."""
        key = (wanted.topic, wanted.partition)
        copy = (wanted.target_topic, wanted.partition)
        source = found.source_topics[key[0]].leaders.get(key[1])
        if source is not None and source.node < 0:
            self._elections.wait_for(key, key, source.epoch)
        target = found.target_topics[copy[0]].leaders.get(copy[1])
        if target is not None and (target.node < 0 or copy in found.silent):
            self._target_elections.wait_for(key, copy, target.epoch)

    def _set_aside(self, error: MirrorError) -> bool:
        """Take over next, after a failure. If only some partitions are to blame, set
        them aside and return True.
        """
        self._owner, self._after_error = False, True
        busy = self._suspicions.pending or self._intake.jumps_wait
        guilty = blamed(
            error,
            writers_to=self._intake.writers_to,
            fewer_than=None if busy else self._reader.assigned,
        )
        for key, (reason, name) in guilty.items():
            at = self._positions.get(key)
            self._intake.set_aside(key, reason, failed=name, at=at)
            if isinstance(error, LeaderError) and (led := self._reader.leader(key)):
                self._elections.wait_for(key, key, led.epoch)
        if not guilty:
            self._tally.slot_failed(str(error))
            if self._throttle.due(str(error)):
                self._log.warning("slot takes over again", error=str(error))
        return bool(guilty)


# ---- fills the transaction that a slot writes next with what leaders answer ----
#
# Main type: `Filling`, which fills at most one `PendingTransaction` at a time. It
# decides how much goes into a transaction and how much to fetch, and owns one
# rewriter for every transaction being filled or written (`rewriters_for`). It
# writes nothing.


FETCH_BYTES = 16 << 20
PARTITION_BYTES = 4 << 20
_HIGH_LATENCY_FACTOR = 4
"""How many times larger transactions are if the target is far away: they commit one
after the other, each at least a round trip behind the last.
"""
_LEAST_BYTES = 1 << 20
_TELLING_BYTES = 64 << 10
_LOOK_BYTES = 1 << 20
_GROWTH_WEIGHT = 0.3
_ANSWER_MS = 1
"""What an answer of a near leader takes, beyond the time for which it lingers."""


class Filling:
    """The next transaction of a slot, and the rewriters for all of them."""

    def __init__(
        self,
        plan: LeasePlan,
        reader: SourceReader,
        intake: Intake,
        writer: TargetWriter,
        target: Cluster,
        *,
        schemas: SchemaBarrier | None = None,
    ) -> None:
        self._reader = reader
        self._intake = intake
        self._writer = writer
        self._target = target
        self._rewriters = rewriters_for(plan, MAX_IN_FLIGHT + 1, schemas)
        self._free = list(self._rewriters)
        self._growth = 1.0
        self._apart_seconds = (longest_linger_ms(plan.flow) + _ANSWER_MS) / 1000
        self._taken = -math.inf
        self.transaction: PendingTransaction | None = None
        """The one being filled, until it can be written."""

    @property
    def room(self) -> bool:
        """Whether one more answer can be taken into a transaction."""
        if self.transaction is not None:
            most = self._most_bytes
            enough = min(max(most - FETCH_BYTES, _LEAST_BYTES), most)
            return self.transaction.worked_bytes < enough
        return self._writer.room and bool(self._free)

    @property
    def _most_bytes(self) -> int:
        """The approximate largest size of one transaction."""
        times = _HIGH_LATENCY_FACTOR if self._target.high_latency else 1
        return min(FETCH_BYTES, self._writer.quota.most_bytes) * times

    def fill(
        self, ready: AbstractSet[Connection], meanwhile: Callable[[], None]
    ) -> None:
        """Put what leaders answered into the next transaction, and ask for more.

        Calls `meanwhile` now and then, so that transactions in flight make progress.
        """
        if self.transaction is None:
            self.transaction = PendingTransaction(rewriter=self._free.pop())
            self.transaction.rewriter.begin()
        transaction = self.transaction
        self._intake.open(transaction)
        for answer in self._reader.read(ready):
            looked = transaction.worked_bytes
            self._reader.ask_ahead(self._intake.foresee(answer))
            for _ in self._intake.take(answer, transaction):
                if transaction.worked_bytes - looked >= _LOOK_BYTES:
                    looked = transaction.worked_bytes
                    meanwhile()
            self._measure(transaction)
            # Ask now, not after the next answer: a leader may be far away.
            self._reader.ask(together=self._is_small)
            if transaction.worked_bytes >= self._most_bytes:
                break
        if not transaction.moved:
            self.transaction = None
            self.give_back(transaction)

    @property
    def again_in(self) -> float:
        """Seconds until the transaction being filled is to be written; infinite if it
        cannot be, or there is none. A small one waits for the leaders that linger.
        """
        if self.transaction is None or not self._writer.ready:
            return math.inf
        if not (self._is_small and self._reader.lingers):
            return 0.0
        return max(0.0, self._taken + self._apart_seconds - time.monotonic())

    @property
    def _is_small(self) -> bool:
        filled = self.transaction
        return filled is not None and filled.fetched_bytes < LINGER_BYTES

    def ask(self) -> None:
        """Ask leaders for more. Those that linger are asked at the same time, when what
        they sent is being written.

        Raises:
            LeaderError: as `SourceReader.ask`.
        """
        self._reader.ask(together=0 < self.again_in < math.inf)

    def take(self) -> PendingTransaction | None:
        """Hand over the filled transaction, to write it now."""
        self._taken = time.monotonic()
        transaction, self.transaction = self.transaction, None
        return transaction

    def written(self, part: TransactionContent) -> None:
        """Reclaim the memory of a transaction once all of its parts are committed."""
        whole = part if isinstance(part, PendingTransaction) else part.part_of
        assert whole is not None
        whole.parts -= 1
        if not whole.parts:
            self.give_back(whole)

    def give_back(self, transaction: PendingTransaction) -> None:
        """Reclaim the rewriter and buffers of a transaction, committed or empty."""
        self._free.append(transaction.rewriter)
        self._reader.give_back(transaction.buffers)

    def drop_all(self) -> int:
        """Drop all transactions that were not given back, and return how many of them
        were taken for writing. Do not fill again while any of these is being sent.
        """
        dropped = len(self._rewriters) - len(self._free)
        dropped -= self.transaction is not None
        self._free = list(self._rewriters)
        self.transaction = None
        return dropped

    def _measure(self, transaction: PendingTransaction) -> None:
        """Fetch less of data that grows when unpacked, so that no transaction takes
        long and no busy partition holds up the others.
        """
        if transaction.fetched_bytes >= _TELLING_BYTES:
            growth = transaction.worked_bytes / transaction.fetched_bytes
            self._growth += _GROWTH_WEIGHT * (growth - self._growth)
        share = max(int(PARTITION_BYTES / self._growth), _LEAST_BYTES // 4)
        allowed = self._writer.quota.most_bytes
        self._reader.pace.ask_for(
            min(max(int(FETCH_BYTES / self._growth), _LEAST_BYTES), allowed),
            min(share, allowed),
        )


def rewriters_for(
    plan: LeasePlan, count: int, schemas: SchemaBarrier | None = None
) -> list[Rewriter]:
    """One rewriter for each transaction that is being filled or in flight.

    Raises:
        TransformError: the flow's own function cannot be used.
    """
    flow = plan.flow
    stamp = provenance.of_flow(
        flow, source_id=plan.source_id, target_id=plan.target_id, feeders=plan.feeders
    )
    codec = codecs.BY_NAME.get(flow.compression)
    if flow.transform is None:
        most = flow.max_unpacked_bytes
        return [
            Rewriter(stamp, codec=codec, most_unpacked=most, schemas=schemas)
            for _ in range(count)
        ]

    # Flows without a transform need not wait for these loops to compile.
    from mirror.copying.transforming import rewriters  # noqa: PLC0415

    return rewriters(flow, stamp, codec=codec, count=count, schemas=schemas)
