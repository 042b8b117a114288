"""Turns what the source answers into what a transaction writes.

Main type: `Intake`. For each partition's answer it reads and rewrites the batches and
adds them to the transaction, or sets the partition aside with a reason. An offset that
its leader does not have raises a suspicion (`gaps`); the `Jump` over missing
offsets comes back as a verdict, and the transaction records the loss. It sends nothing
to the target and does not know when a transaction ends.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial
import time
from typing import TYPE_CHECKING

from mirror.clusters import codes
from mirror.copying.lease import DIVERGED, HOLE
from mirror.copying.rewrite import Holes
from mirror.copying.tally import Tallied
from mirror.errors import CorruptBatchError, TransformError, UnreachableError
from mirror.offsets.progress import NO_ID, Position
from mirror.offsets.runs import COUNT
from mirror.offsets.terms import diverged
from mirror.records import batch, former, scan
from mirror.status.values import NOTHING, TRANSFORM, Counts

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
    import uuid

    import structlog

    from mirror.clusters.topics import TopicPartition
    from mirror.clusters.wire.fetch import Fetched
    from mirror.config.schema import FlowConfig
    from mirror.copying.faults import Faults
    from mirror.copying.gaps import Jump, Suspicions, Verdict
    from mirror.copying.lease import Assignment
    from mirror.copying.rewrite import Rewritten
    from mirror.copying.schemas import SchemaBarrier
    from mirror.copying.source import FetchAnswer, SourceReader
    from mirror.copying.tally import Tally
    from mirror.copying.transaction import PendingTransaction
    from mirror.offsets.terms import CopyEnd
    from mirror.records.batch import Batches, Buffer, Rows


_WORTH_FORESEEING = 256 << 10
"""Bytes of an answer that take longer to process than to request the next one."""
_ENOUGH_BYTES = 64 << 20
"""A few kilobytes may unpack to gigabytes: a transaction takes no further partition
beyond this size.
"""
_OFFSET_OUT_OF_RANGE = 1
_STALE_METADATA = frozenset({3, 5, 6, 9, 56, 72, 74, 75, 78, 100, 103})


@dataclass(slots=True)
class _SameCopy:
    """A copy with the source's offsets."""

    end: int
    until: int
    """Below this offset it takes records that came from there, too."""
    begun: bool
    """Whether the next record of the source is written at its end."""
    passed: bool = False
    """Whether records that came from there were read since its end was asked for."""


def _following(done: Rewritten, position: int) -> tuple[int, int]:
    """How many batches follow on each other from a position on, and up to where."""
    good = 0
    for each in done.batches:
        assert each.runs is not None, "a batch of the source's records"
        if len(each.runs) != 1 or each.source_offset != position:
            break
        position += each.count
        good += 1
    return good, position


def _rewritten_up_to_holes(
    rewrite: Callable[..., Rewritten],
    found: Batches,
    rows: Rows,
    position: int,
    holes: Holes | None,
) -> Rewritten:
    """The batches with a record for each source offset from a position on; or none,
    where records come first that came from the target: then what is done ends before
    the next other one. `rows`: of `found`, from its first one on. `holes`: which get
    fillers.
    """
    if holes is None:
        rows = rows[: scan.before_hole(rows, position)]
        end = int(rows[-1, scan.LAST]) + 1 if len(rows) else position
    else:
        end = holes.to
    done = rewrite(rows, holes=holes)
    if done.stopped_at < 0 and end < found.next_offset:
        done.stopped_at, done.hole = end, holes is None
    reached = end if done.stopped_at < 0 else done.stopped_at
    good, expected = _following(done, position)
    if expected == reached:
        return done
    first = done.batches[0].source_offset if done.batches else reached
    copied = sum(each.count for each in done.batches)
    if first > position and reached - position - copied == done.counts.looped:
        if done.batches:
            done.batches.clear()
            done.stopped_at, done.hole, done.oldest = first, False, -1
            done.counts = Counts(looped=first - position)
        return done
    if first == position and not good:
        # One batch has records of before and behind what is left out.
        runs = done.batches[0].runs
        assert runs is not None
        until = position + int(runs[0, COUNT])
        before = rows[rows[:, scan.LAST] < until]
        if holes is not None:
            holes = replace(holes, to=until)
        if len(before) or holes is not None:
            return _rewritten_up_to_holes(rewrite, found, before, position, holes)
    del done.batches[good:]
    done.stopped_at, done.hole, done.counts = expected, True, NOTHING
    return done


def _passed_over(done: Rewritten, found: Batches, position: int, end: int) -> Rewritten:
    """What the source has from a position on before its next record that did not come
    from the target, if the copy, which ends at `end`, has something there: what came
    from there, and holes since then.
    """
    first = found.next_offset if done.stopped_at < 0 else done.stopped_at
    if done.batches:
        first = done.batches[0].source_offset
    if first > position:
        done.batches.clear()
        done.stopped_at, done.oldest = min(first, end), -1
        looped = min(done.counts.looped, done.stopped_at - position)
        done.counts = Counts(looped=looped)
    return done


class Intake:
    """Fills the transactions of one slot."""

    def __init__(
        self,
        flow: FlowConfig,
        reader: SourceReader,
        suspicions: Suspicions,
        *,
        tally: Tally,
        faults: Faults,
        log: structlog.stdlib.BoundLogger,
        schemas: SchemaBarrier | None = None,
    ) -> None:
        self._flow = flow
        self._schemas = schemas
        self._reader = reader
        self._suspicions = suspicions
        self._tally = tally
        self._faults = faults
        self._log = log
        self._scratch = batch.scratch()
        self._wanted: Mapping[TopicPartition, Assignment] = {}
        self._limits: Mapping[str, int] = {}
        self._fills = flow.fill == "visible"
        self._compacted: Collection[str] = ()
        self._dead_letter_partitions = 0
        self._dead_lettering: set[TopicPartition] = set()
        self._ids: Mapping[str, uuid.UUID] = {}
        self._left: dict[TopicPartition, uuid.UUID] = {}
        self._settled: dict[TopicPartition, Position] = {}
        self._jumps: dict[TopicPartition, Jump] = {}
        self._same: dict[TopicPartition, _SameCopy] = {}

    def begin(
        self,
        wanted: Mapping[TopicPartition, Assignment],
        limits: Mapping[str, int],
        ids: Mapping[str, uuid.UUID],
        left: Mapping[TopicPartition, uuid.UUID],
        ends: Mapping[TopicPartition, CopyEnd],
        *,
        dead_letter_partitions: int = 0,
        compacted: Collection[str] = (),
    ) -> None:
        """Set the partitions to read and each target topic's largest batch in bytes.

        `ids`: the ids of the source topics. `left`: the ids of the topics that
        partitions belonged to before. `ends`: where copies end that have the source's
        offsets. `compacted`: target topics that take no null keys.
        """
        self._same = {
            key: _SameCopy(each.offset, each.term.until, each.position == each.offset)
            for key, each in ends.items()
            if each.term is not None
        }
        self._wanted = wanted
        self._limits = limits
        self._compacted = compacted
        self._dead_letter_partitions = dead_letter_partitions
        self._dead_lettering.clear()
        self._ids = ids
        self._left = dict(left)
        self._jumps = {}
        self._settled = {}

    def open(self, transaction: PendingTransaction) -> None:
        """Put what needs no answer into the transaction: jumps and first positions."""
        for key, jump in self._jumps.items():
            self._jump(key, jump, transaction)
        self._jumps = {}
        for key, position in self._settled.items():
            transaction.moved.setdefault(key, position)
        self._settled = {}

    def commit_first(self, key: TopicPartition, position: Position) -> None:
        """Commit a first position, with or without a record."""
        self._settled[key] = position

    def foresee(self, answer: FetchAnswer) -> dict[TopicPartition, tuple[int, int]]:
        """Where its partitions will be, and after which leader epoch, if all goes well:
        a quick guess that may be wrong.
        """
        if len(answer.buffer) < _WORTH_FORESEEING:
            return {}
        ends = {
            (part.topic, part.partition): batch.leads_to(
                answer.buffer, part.start, part.end, scratch=self._scratch
            )
            for part in answer.fetched
            if part.error == codes.NONE and part.diverging < 0
        }
        return {key: (end, epoch) for key, (end, epoch) in ends.items() if end >= 0}

    def take(
        self, answer: FetchAnswer, transaction: PendingTransaction
    ) -> Iterator[None]:
        """Put what one leader answered into the transaction, a partition at a time.

        Raises:
            UnreachableError: another broker must be asked.
        """
        for fetched in answer.fetched:
            if transaction.worked_bytes > _ENOUGH_BYTES:
                break  # the rest is fetched again
            key = (fetched.topic, fetched.partition)
            if fetched.error != codes.NONE:
                self._failed(key, fetched.error)
            elif fetched.diverging >= 0:
                self._doubt(key)
            elif fetched.nearer >= 0 and fetched.start == fetched.end:
                self._tally.ends({key: self._end(fetched)})
            else:
                self._take(fetched, answer, transaction)
            yield
        if transaction.rewriter.keeps_source:
            transaction.buffers.append(answer.owned)
        else:
            self._reader.give_back([answer.owned])

    def writers_to(self, topic: str, partition: int) -> list[TopicPartition]:
        """Source partitions whose records (may) go to this target partition."""
        if topic == self._flow.dead_letter_topic:
            return list(self._dead_lettering)
        return [
            key
            for key, assignment in self._wanted.items()
            if (assignment.target_topic, key[1]) == (topic, partition)
        ]

    def set_aside(
        self,
        key: TopicPartition,
        reason: str,
        *,
        failed: str = "",
        at: Position | None = None,
    ) -> None:
        """`failed`: why its next record cannot be copied, in one word; empty: it is not
        the record. `at`: where that is; None: where the partition is read next.
        """
        if failed:
            offset = at.offset if at is not None else self._reader.offset(key)
            self._tally.failed(key, failed, -1 if offset is None else offset)
        if (known := self._faults.get(key)) is None or known.reason != reason:
            self._log.warning(
                "partition set aside", topic=key[0], partition=key[1], reason=reason
            )
        self._faults.set_aside(key, reason)
        self._reader.leave_out(key)

    def _take(
        self, fetched: Fetched, answer: FetchAnswer, transaction: PendingTransaction
    ) -> None:
        key = (fetched.topic, fetched.partition)
        position = self._reader.offset(key)
        end_offset = self._end(fetched)
        if key in answer.near:
            # It learns of new ends after its leader, which has told us its own.
            end_offset = max(end_offset, self._tally.end_offset(key))
        size = fetched.end - fetched.start
        self._tally.fetched(
            key,
            end_offset=end_offset,
            size=size,
            behind=size > self._reader.pace.partition_most_bytes // 2,
        )
        if position == end_offset:
            self._faults.clear(key)  # readable, and nothing is left to write
        if not size or position is None:
            return
        assignment = self._wanted[key]
        if (made := self._rewritten(fetched, answer, position, transaction)) is None:
            return
        buffer, found, done = made
        whole = done.stopped_at < 0
        next_offset, leader_epoch = found.next_offset, found.leader_epoch
        if not whole:
            next_offset, leader_epoch = self._until(key, buffer, found, done.stopped_at)
        if not self._goes_on(key, position, next_offset, done):
            return
        if done.dead_batches and not self._dead_letter(key, done, transaction):
            return
        if done.oldest >= 0:
            self._tally.waits(key, done.oldest)
        transaction.fetched_bytes += size
        transaction.worked_bytes += max(size, done.unpacked)
        if done.batches:
            where = (assignment.target_topic, key[1])
            transaction.batches.setdefault(where, []).extend(done.batches)
            transaction.origins[where] = key
        self._move(key, next_offset, leader_epoch, transaction)
        counts = done.counts + Counts(
            records=sum(each.count - each.fillers for each in done.batches),
            fillers=sum(each.fillers for each in done.batches),
            bytes=sum(encoded.size for encoded in done.batches),
            skipped=found.skipped if whole else 0,
        )
        transaction.count(key, Tallied(counts, newest=done.newest, read_at=time.time()))
        self._hold(key, done)

    def _until(
        self, key: TopicPartition, buffer: Buffer, found: Batches, offset: int
    ) -> tuple[int, int]:
        """Where a partition goes on if what precedes an offset is done, and after which
        leader epoch.
        """
        end, epoch = found.until(buffer, offset)
        if end < offset and self._fills and key in self._same:
            return offset, -1  # in a hole, and no record tells who led
        return end, epoch

    def _goes_on(
        self, key: TopicPartition, position: int, end: int, done: Rewritten
    ) -> bool:
        """Whether a partition can be copied from a position on up to an end; else it is
        held or set aside.
        """
        if end == position:
            self._wait_at(key, position, done)
            return False
        return key not in self._same or self._has_place(key, position, end, done)

    def _wait_at(self, key: TopicPartition, offset: int, done: Rewritten) -> None:
        """Nothing can be copied from this offset on, for now."""
        if not done.hole:
            self._hold(key, done)
            return
        self.set_aside(
            key,
            f"source offset {offset} has no record to copy (a transaction's marker, or "
            "an aborted, compacted or left-out record), so the copy cannot keep the "
            "source's offsets: fill: visible writes a record without a value there; "
            "with on_hole: translate, or once offsets_exclude names the topic, the "
            "copy has offsets of its own from here on",
            failed=HOLE,
        )

    def _has_place(
        self, key: TopicPartition, position: int, end: int, done: Rewritten
    ) -> bool:
        """Whether source offsets from a position up to an end have their place in a
        copy with the source's offsets: in `batches`, or as what came from there and is
        there still. Else the partition is set aside.
        """
        copy = self._same[key]
        name = f"{self._wanted[key].target_topic}-{key[1]} on {self._flow.target}"
        if not done.batches:
            if end <= copy.end:
                copy.begun, copy.passed = False, True
                return True
            reason = (
                f"{name} ends at offset {copy.end}, and had the records from there up "
                f"to {end - 1} before they came to {self._flow.source}"
            )
            self.set_aside(key, reason)
            return False
        if copy.begun:
            copy.end = end
            return True
        if copy.passed:
            self.set_aside(key, f"the end of {name} is asked for, to go on there")
            self._faults.hasten([key])
            return False
        reason = f"{name} has records at offsets {position} to {copy.end - 1} that did "
        reason += f"not come from {self._flow.source}, or came twice"
        self.set_aside(key, diverged(reason), failed=DIVERGED)
        return False

    def _hold(self, key: TopicPartition, done: Rewritten) -> None:
        """Do not read on before the next record's schema is on the target."""
        if self._schemas is not None and done.unknown:
            if (position := self._position(key)) is not None:
                self._schemas.hold(key, position, done.unknown)
            self._reader.leave_out(key)

    def _end(self, fetched: Fetched) -> int:
        """Where the log ends, for this flow, in the broker's view."""
        end = fetched.last_stable_offset
        if end < 0 or self._flow.isolation_level == "read_uncommitted":
            return fetched.high_watermark
        return end

    def _rewritten(
        self,
        fetched: Fetched,
        answer: FetchAnswer,
        position: int,
        transaction: PendingTransaction,
    ) -> tuple[Buffer, Batches, Rewritten] | None:
        """The batches in a partition's answer, with the bytes that they lie in, and the
        rewritten ones; None if they make it set the partition aside, or ask its leader
        for them.
        """
        key = (fetched.topic, fetched.partition)
        try:
            buffer, start, end = former.modern(
                answer.buffer, fetched.start, fetched.end,
                most=self._flow.max_unpacked_bytes,
            )  # fmt: skip
            found = batch.read(
                buffer, start, end, position=position, aborted=fetched.aborted,
                scratch=self._scratch,
            )  # fmt: skip
            rewrite = partial(
                transaction.rewriter.rewrite, buffer, position=position,
                max_bytes=self._limit(self._wanted[key]), at=key,
            )  # fmt: skip
            copy = self._same.get(key)
            loops = copy is not None and position < copy.until
            transaction.rewriter.takes_loops = loops
            if copy is None:
                done = rewrite(found.rows)
            elif self._fills and position < copy.end:
                done = _passed_over(rewrite(found.rows), found, position, copy.end)
            else:
                rows, to = found.rows, found.next_offset
                if loops:  # in one go only up to there
                    rows = rows[rows[:, scan.LAST] < copy.until]
                    to = min(to, copy.until)
                holes = None
                if self._fills and found.seen is not None:
                    compacted = self._wanted[key].target_topic in self._compacted
                    holes = Holes(to, found.seen, keyed=compacted)
                done = _rewritten_up_to_holes(rewrite, found, rows, position, holes)
        except CorruptBatchError as error:
            if key in answer.near:
                # Its disk may be damaged while the leader's is not.
                self._log.warning(
                    "a follower's records are damaged: the leader is asked",
                    topic=key[0], partition=key[1], reason=str(error),
                )  # fmt: skip
                self._reader.distrust(key)
                return None
            self.set_aside(key, str(error), failed="CORRUPT_BATCH")
            return None
        except TransformError as error:
            self.set_aside(key, str(error), failed=TRANSFORM)
            return None
        except MemoryError:
            self.set_aside(
                key,
                f"the batches from offset {position} on need more memory than is "
                "available: give the worker more, or lower max_unpacked_bytes, now "
                f"{self._flow.max_unpacked_bytes}",
                failed="OUT_OF_MEMORY",
            )
            return None
        return buffer, found, done

    def _limit(self, assignment: Assignment) -> int:
        """The largest batch that every topic accepts to which its records may go."""
        topics = (assignment.target_topic, self._flow.dead_letter_topic)
        return min(self._limits[topic] for topic in topics if topic)

    def _dead_letter(
        self, key: TopicPartition, done: Rewritten, transaction: PendingTransaction
    ) -> bool:
        """Add dead letters to the transaction; False if their topic does not exist."""
        topic = self._flow.dead_letter_topic
        assert topic is not None
        if not self._dead_letter_partitions:
            reason = f"the dead-letter topic {topic} does not exist"
            self.set_aside(key, reason, failed="NO_DEAD_LETTER_TOPIC")
            return False
        where = (topic, key[1] % self._dead_letter_partitions)
        transaction.batches.setdefault(where, []).extend(done.dead_batches)
        self._dead_lettering.add(key)
        return True

    def _move(
        self,
        key: TopicPartition,
        offset: int,
        leader_epoch: int,
        transaction: PendingTransaction,
    ) -> None:
        transaction.moved[key] = Position(
            offset=offset,
            leader_epoch=leader_epoch,
            topic_id=self._ids[key[0]],
            left_id=self._left.get(key, NO_ID),
        )
        self._reader.seek(key, offset, leader_epoch)

    def _jump(
        self, key: TopicPartition, jump: Jump, transaction: PendingTransaction
    ) -> None:
        loss = jump.loss
        self._log.error(
            "source offsets are gone", topic=key[0], partition=key[1],
            cause=loss.cause.value, first=loss.first, last=loss.last,
            goes_on_at=jump.to.offset,
        )  # fmt: skip
        transaction.losses.append(loss)
        transaction.count(key, Tallied(Counts(lost=loss.count or 0)))
        transaction.moved[key] = jump.to
        self._reader.seek(key, jump.to.offset, jump.to.leader_epoch)

    def _failed(self, key: TopicPartition, error: int) -> None:
        name = codes.name_of(error)
        if error in _STALE_METADATA:
            raise UnreachableError(f"source partition {key[0]}-{key[1]}: {name}")
        if error == _OFFSET_OUT_OF_RANGE:
            self._doubt(key)
        else:
            reason = f"reading source partition {key[0]}-{key[1]}: {name}"
            self.set_aside(key, reason, failed=name)

    def _doubt(self, key: TopicPartition) -> None:
        """Raise a suspicion: a leader's log does not fit the position to read from."""
        if (position := self._position(key)) is not None:
            self._suspicions.look_into(key, position)

    def _position(self, key: TopicPartition) -> Position | None:
        """Where a partition is read next; None: it is not."""
        if (offset := self._reader.offset(key)) is None:
            return None
        return Position(
            offset=offset,
            leader_epoch=self._reader.last_epoch(key),
            topic_id=self._ids[key[0]],
            left_id=self._left.get(key, NO_ID),
        )

    @property
    def jumps_wait(self) -> bool:
        """Whether `open` has something to put into a transaction."""
        return bool(self._jumps or self._settled)

    def apply_verdicts(self, verdicts: Iterable[Verdict]) -> None:
        """Carry out verdicts: jump, go on, or set the partition aside."""
        for verdict in verdicts:
            same = self._wanted[verdict.key].term is not None
            if (jump := verdict.jump) is not None and same:
                loss = jump.loss
                what = f"the source has lost {loss.span} ({loss.cause.value})"
                self.set_aside(verdict.key, diverged(what), failed=DIVERGED)
            elif jump is not None:
                self._left[verdict.key] = jump.to.left_id
                self._jumps[verdict.key] = jump
            elif (at := verdict.stays) is not None:
                self._reader.seek(verdict.key, at.offset, at.leader_epoch)
            else:
                self.set_aside(verdict.key, verdict.reason)
