"""Writes copies whose records have the source's offsets, on any Kafka.

Main type: `SameOffsetsWriter`, in place of `TargetWriter` where a flow says `offsets:
same`. All owners of a copy write it as one idempotent producer, with sequence = offset
minus a constant (`Term`). So the leader takes what follows its last record and nothing
else, from any of them: a record that is sent twice, or by a slot that was believed
dead, is refused or already there. **The end of the copy is the progress**: `copy_ends`
asks its leader for it at each take-over. Data needs no transaction around it. Once a
second a transaction notes for others how far copies are: progress and offset map.

In a pair applications write to the copy while its cluster is active. Then the copy ends
with records of others, which the flow back has copied to the source, and a term begins:
with the next epoch of the producer, and sequence 0 at the copy's end. The copy's last
batch tells which term it is, so no note can be wrong about it.

A leader forgets a producer whose last record is old (`producer.id.expiration.ms`), by
the record's own time. Until it shows that it remembers, or has acknowledged a fresh
record, one batch is in flight. Each answer says where the leader wrote the batch: any
other offset than the source's is damage, and the partition stops as DIVERGED.

With `fill: visible` records without a value stand where the source has none
(`records.fillers`); to leaders and here they are records like others.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, replace
import math
import time
from typing import TYPE_CHECKING, NamedTuple

from mirror.clusters.admin import topic_admin
from mirror.clusters.wire import write
from mirror.clusters.wire.write import Write
from mirror.copying.copy_ends import find_ends, name_of
from mirror.copying.lease import DIVERGED
from mirror.copying.target import (
    MAX_IN_FLIGHT,
    WORTH_OVERLAPPING,
    Committed,
    KnownCopies,
    TargetWriter,
)
from mirror.copying.transaction import PendingTransaction, TransactionContent
from mirror.errors import (
    ClusterError,
    PartitionError,
)
from mirror.offsets.progress import RunningCount
from mirror.offsets.terms import PROOF_SECONDS, CopyEnd, diverged

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from mirror.clusters.cluster import Cluster
    from mirror.clusters.topics import Topic, TopicPartition
    from mirror.clusters.wire.connection import Connection
    from mirror.clusters.wire.produce import EncodedBatch
    from mirror.clusters.wire.write import Placed
    from mirror.config.schema import FlowConfig
    from mirror.copying.transaction import TransactionRecords
    from mirror.offsets.progress import Position
    from mirror.offsets.terms import Term


PURPOSES = tuple(f"same offsets {channel}" for channel in range(write.CHANNELS))
_NOTE_SECONDS = 1.0
"""How often positions are noted; groups and lag follow the notes."""


class _SequencedProducer:
    """Stamps batches by the offsets of their records."""

    transactional_id: str | None = None
    v2 = False

    def __init__(self) -> None:
        self.terms: dict[TopicPartition, Term] = {}
        """By copy."""

    def stamp(self, key: TopicPartition, batch: EncodedBatch) -> None:
        term = self.terms[key]
        sequence = term.sequence(batch.source_offset)
        batch.stamp(term.producer_id, term.epoch, sequence, transactional=False)


@dataclass(slots=True)
class _Flight:
    """Batches on their way to copies."""

    content: TransactionContent
    size: int
    write: Write
    alone: bool
    """Whether nothing else may be in flight meanwhile."""
    begun: bool = False

    @property
    def is_sent(self) -> bool:
        """Whether all of it has left this process."""
        return self.write.sent and not any(
            pending.connection.unsent for pending in self.write.outstanding
        )


class _Noted(NamedTuple):
    """What was noted of one partition."""

    key: TopicPartition
    position: Position
    running: RunningCount | None


class SameOffsetsWriter(TargetWriter):
    """Writes copies with the source's offsets, and other copies as `TargetWriter`."""

    def __init__(
        self,
        cluster: Cluster,
        records: TransactionRecords,
        flow: FlowConfig,
        *,
        slot: int,
        fresh_seconds: float,
    ) -> None:
        """`fresh_seconds`: as of `LeasePlan`."""
        super().__init__(cluster, records, flow, slot=slot)
        self._fresh_ms = fresh_seconds * 1000
        self._producer_of_copies = _SequencedProducer()
        self._copy_topics: Mapping[str, Topic] = {}
        self._copies_of: dict[TopicPartition, TopicPartition] = {}
        """The copy of each source partition that has a term."""
        self._translates = False
        """Whether the slot has other partitions, too."""
        self._newest: dict[TopicPartition, int] = {}
        """The time of the last record that a copy's leader remembers, epoch ms."""
        self._flights: deque[_Flight] = deque()
        self._copied: list[Committed] = []
        self._unsure: set[TopicPartition] = set()
        self._divided_copies = False
        self._noted: dict[TopicPartition, int] = {}
        """By source partition, up to where notes name its copy."""
        self._to_note = TransactionContent()
        self._note: TransactionContent | None = None
        """The one being written."""
        self._note_at = math.inf
        self._note_began = self._proven_at = -math.inf
        self._alone_from = math.inf
        """When no earlier owner sends anything any more."""
        self._settled: set[TopicPartition] = set()
        """Copies that ended as expected then."""
        self._last_noted: _Noted | None = None
        """What can be noted once more."""
        self._broken = False
        self._note_failed = False
        """Then a note comes before further records, or none would ever be written."""

    # ---- taking over ----

    def take_over(self) -> None:
        self._drop_flights()
        began = time.monotonic()
        for purpose in PURPOSES:
            self._cluster.drop(purpose)
        super().take_over()
        self._proven_at = -math.inf if self._note_failed else began
        self._alone_from = time.monotonic() + PROOF_SECONDS
        self._settled.clear()

    def find_ends(self, known: KnownCopies) -> Mapping[TopicPartition, CopyEnd]:
        """As the function; then go on from there."""
        found = find_ends(self._cluster, known, self._unsure)
        self._unsure.clear()
        self._copies_of, self._newest, self._noted = {}, {}, {}
        self._producer_of_copies.terms = {}
        self._copied.clear()
        self._to_note, self._note = TransactionContent(), None
        self._last_noted = None
        self._broken = False  # not before: a take-over that fails here has no notes
        self._copy_topics = known.target_topics
        self._translates = any(each.term is None for each in known.wanted)
        for each in known.wanted:
            key, where = (
                (each.topic, each.partition),
                (each.target_topic, each.partition),
            )
            if each.term is None or (end := found.get(key)) is None or end.reason:
                continue
            self._copies_of[key] = where
            assert end.term is not None, "it has a reason, or a term"
            self._producer_of_copies.terms[where] = end.term
            self._newest[where] = end.newest
            at = known.positions.get(key)
            noted = 0 if at is None else min(at.offset, end.offset)
            self._noted[key] = max(noted, each.term.first)
            if self._note_failed and at is not None and end.position > at.offset:
                # What was noted can be noted once more, and that proves nothing.
                self._to_note.moved[key] = replace(
                    at, offset=end.position, leader_epoch=end.leader_epoch
                )
        if one := next((k for k in self._copies_of if k in known.positions), None):
            count = RunningCount.decode(known.running.get(one, b""))
            self._last_noted = _Noted(one, known.positions[one], count)
        return found

    # ---- what the slot asks ----

    @property
    def ready(self) -> bool:
        if len(self._flights) == MAX_IN_FLIGHT or (
            self._translates and not super().ready
        ):
            return False
        last = self._flights[-1] if self._flights else None
        return last is None or (last.write.sent and not last.alone)

    @property
    def room(self) -> bool:
        if self._translates:
            return super().room
        last = self._flights[-1] if self._flights else None
        return self.ready or (last is not None and last.size >= WORTH_OVERLAPPING)

    @property
    def again_in(self) -> float | None:
        pauses = [super().again_in]
        if self._flights:
            first = self._flights[0]
            pauses.append(first.write.again_in)
            waits = self._alone_from - time.monotonic()
            if first.alone and not first.begun and waits > 0:
                pauses.append(waits)
        if self._note is None and self._to_note.moved and super().ready:
            pauses.append(max(0.0, self._note_at - time.monotonic()))
        return min((pause for pause in pauses if pause is not None), default=None)

    def connections(self) -> list[Connection]:
        return list(
            dict.fromkeys(
                pending.connection
                for flight in self._flights
                for pending in flight.write.outstanding
            )
            | dict.fromkeys(super().connections())
        )

    def take_events(self) -> list[Committed]:
        copied, self._copied = self._copied, []
        return copied + super().take_events()

    # ---- writing ----

    def write(
        self, transaction: PendingTransaction, topics: Mapping[str, Topic]
    ) -> None:
        ours, others = transaction.divided(self._copies_of)
        if not ours.moved:
            super().write(transaction, topics)
            return
        if others.moved:
            transaction.parts = 2
            self._begin(others, topics)
        if not self._flights:
            self._divided_copies = self._worth_dividing(self._producer_of_copies, ours)
        alone = not all(map(self._is_fresh, ours.batches, ours.batches.values()))
        self._flights.append(
            _Flight(
                ours,
                ours.size,
                Write(
                    self._cluster, self._producer_of_copies, ours.batches, topics,
                    self._channels if self._divided_copies else None,
                    purposes=PURPOSES, may_send=self._is_proven,
                    **({"rounds": 1} if alone else {}),
                ),
                alone,
            )
        )  # fmt: skip
        self.advance()

    def is_seeding(self, key: TopicPartition) -> bool:
        where = self._copies_of.get(key)
        return where is not None and not self._is_fresh(where, ())

    def _is_fresh(self, where: TopicPartition, batches: Sequence[EncodedBatch]) -> bool:
        """Whether the copy's leader remembers us now, and does so all the way."""
        oldest = min([self._newest[where], *(each.newest for each in batches)])
        return time.time() * 1000 - oldest < self._fresh_ms

    def _advance_each(self) -> None:
        self._advance_flights()
        self._write_note()
        super()._advance_each()
        left = [each for each in self._events if not self._is_noted(each.transaction)]
        if len(left) < len(self._events):
            self._events = left
            self._advance_flights()  # the note has proven that this slot may write

    def _advance_flights(self) -> None:
        before: _Flight | None = None
        for flight in tuple(self._flights):
            # Send nothing behind what may not be sent completely.
            if before is not None and (
                before.alone or flight.alone or not before.write.sent
            ):
                break
            if not (flight.begun or self._may_begin(flight)):
                break
            flight.begun = True
            if not flight.is_sent:
                self._is_proven()  # what is left to send may wait for a note
            done = flight.write.advance()
            for each in flight.write.take_placed():
                self._check_one(each)
            before = flight
            if done and flight is self._flights[0]:
                self.quota.learn(flight.size, flight.write.throttled_seconds)
                self._flights.popleft()
                self._has_copied(flight.content)
                before = None

    def _may_begin(self, flight: _Flight) -> bool:
        """Whether no earlier owner can write to these copies any more. Leaders refuse
        what it sends late as long as they remember the producer. Else it must be over:
        an owner sends nothing later than `PROOF_SECONDS` after its last note, and then
        the copy ends where this slot found its end.

        Raises:
            ClusterError: a copy has grown meanwhile, or its leader does not answer:
                take over again.
        """
        if not self._is_proven():
            return False
        if not flight.alone:
            return True
        if time.monotonic() < self._alone_from:
            return False
        batches = flight.content.batches
        if asked := batches.keys() - self._settled:
            ends = topic_admin.log_ends(self._cluster, asked, self._copy_topics)
            for where in asked:
                if ends.get(where) != batches[where][0].source_offset:
                    raise ClusterError(f"{name_of(where)} does not end where it did")
            self._settled |= asked
        return True

    def _is_proven(self) -> bool:
        """Whether this slot has just been the owner of its ids; else a note is to tell,
        if there was ever one.
        """
        if time.monotonic() - self._proven_at < PROOF_SECONDS:
            return True
        last = self._last_noted
        if self._note is None and not self._to_note.moved and last is not None:
            self._to_note.moved = {last.key: last.position}
            if last.running is not None:
                self._to_note.running = {last.key: last.running}
        self._note_at = 0.0
        return self._note is None and not self._to_note.moved

    def _check_one(self, each: Placed) -> None:
        """Hold an answer against the source's offsets.

        Raises:
            PartitionError: a record has another offset.
            ClusterError: a broker does not say where it wrote.
        """
        wanted = each.batch.source_offset
        if each.offset < 0:
            raise ClusterError(f"{name_of(each.where)}: no offset in an answer")
        if each.offset != wanted:
            first, last = sorted((wanted, each.offset))
            raise PartitionError(
                topic=each.where[0],
                partition=each.where[1],
                reason=diverged(
                    f"the record of offset {wanted} was written at {each.offset}; "
                    f"offsets {first} to {last} differ"
                ),
                error=DIVERGED,
            )
        self._newest[each.where] = each.batch.newest

    def _has_copied(self, content: TransactionContent) -> None:
        seconds = time.monotonic() - content.begun
        self._copied.append(Committed(transaction=content, seconds=seconds))
        if not self._to_note.moved:
            self._note_at = time.monotonic() + _NOTE_SECONDS
        self._to_note.moved |= content.moved
        self._to_note.running |= content.running

    # ---- notes ----

    def _write_note(self) -> None:
        """Note positions in a transaction, when it is time."""
        due = self._to_note.moved and time.monotonic() >= self._note_at
        if self._note is not None or self._broken or not due or not super().ready:
            return
        self._note, self._to_note = self._to_note, TransactionContent()
        self._note_began = time.monotonic()
        self._note.identical = {
            key: (self._copies_of[key], self._noted[key])
            for key, position in self._note.moved.items()
            if position.offset > self._noted[key]
        }
        self._begin(self._note, self._copy_topics)

    def _is_noted(self, content: TransactionContent) -> bool:
        """Whether this was a note, which is written now."""
        if content is not self._note:
            return False
        self._noted |= {key: each.offset for key, each in content.moved.items()}
        self._proven_at, self._note_failed = self._note_began, False
        key, at = next(iter(content.moved.items()))
        self._last_noted = _Noted(key, at, content.running.get(key))
        self._note = None
        return True

    # ---- ending ----

    def drop_uncommitted(self) -> None:
        self._broken = True
        self._note_failed |= self._note is not None
        self._drop_flights()
        super().drop_uncommitted()

    def _drop_flights(self) -> None:
        for flight in self._flights:
            if flight.alone:
                self._unsure |= flight.content.batches.keys()
        self._flights.clear()

    def _is_finished(self, *, one_more: bool) -> bool:
        if one_more:
            return self.ready
        if self._to_note.moved and not self._broken:
            self._note_at = 0.0
            self._advance_each()
            return False
        if self._flights or (self._note is not None and not self._broken):
            return False
        return super()._is_finished(one_more=False)
