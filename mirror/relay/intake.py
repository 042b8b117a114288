"""From what the source answered to what a transaction writes.

Main type: `Intake`. It judges each partition's answer: its batches are read, rewritten
and added to the work, or the partition is set aside with a reason, or a gap in the
source's log is counted as lost. It sends nothing, and does not know when a
transaction ends.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING
import uuid

from mirror.batches import batch, scan
from mirror.clusters import admin, codes
from mirror.errors import CorruptBatchError, TransformError, UnreachableError
from mirror.offsets.progress import Position
from mirror.relay.tally import Counts

if TYPE_CHECKING:
    from collections.abc import Mapping

    import structlog

    from mirror.batches.batch import Buffer
    from mirror.clusters.cluster import Cluster
    from mirror.clusters.fetch import Fetched
    from mirror.config.schema import FlowConfig
    from mirror.relay.faults import Faults
    from mirror.relay.lease import Assignment
    from mirror.relay.rewrite import Rewritten
    from mirror.relay.source import Answer, SourceReader
    from mirror.relay.tally import Tally
    from mirror.relay.work import Work

TopicPartition = tuple[str, int]

_OFFSET_OUT_OF_RANGE = 1
_STALE_METADATA = frozenset({3, 5, 6, 9, 56, 72, 74, 75, 78, 100, 103})


class Intake:
    """Fills the work of one slot."""

    def __init__(
        self,
        flow: FlowConfig,
        source: Cluster,
        reader: SourceReader,
        *,
        tally: Tally,
        faults: Faults,
        log: structlog.stdlib.BoundLogger,
    ) -> None:
        self._flow = flow
        self._source = source
        self._reader = reader
        self._tally = tally
        self._faults = faults
        self._log = log
        self._scratch = batch.scratch()
        self._wanted: Mapping[TopicPartition, Assignment] = {}
        self._limits: Mapping[str, int] = {}
        self._dead_letter_partitions = 0
        self._dead_lettering: set[TopicPartition] = set()

    def begin(
        self,
        wanted: Mapping[TopicPartition, Assignment],
        limits: Mapping[str, int],
        *,
        dead_letter_partitions: int = 0,
    ) -> None:
        """What answers are for, and the largest batch of each target topic in bytes."""
        self._wanted = wanted
        self._limits = limits
        self._dead_letter_partitions = dead_letter_partitions
        self._dead_lettering.clear()

    def take(self, answer: Answer, work: Work) -> None:
        """Put what one leader answered into the work.

        Raises:
            UnreachableError: another broker has to be asked.
        """
        work.buffers.append(answer.owned)
        for fetched in answer.fetched:
            self._take(fetched, answer.buffer, work)

    def writers_to(self, topic: str, partition: int) -> list[TopicPartition]:
        """Whose records go, or may have gone, to this partition of the target."""
        if topic == self._flow.dead_letter_topic:
            return list(self._dead_lettering)
        return [
            key
            for key, assignment in self._wanted.items()
            if (assignment.target_topic, key[1]) == (topic, partition)
        ]

    def set_aside(self, key: TopicPartition, reason: str) -> None:
        if (known := self._faults.get(key)) is None or known.reason != reason:
            self._log.warning(
                "partition set aside", topic=key[0], partition=key[1], reason=reason
            )
        self._faults.set_aside(key, reason, time.time())
        self._reader.leave_out(key)

    def _take(self, fetched: Fetched, buffer: Buffer, work: Work) -> None:
        key = (fetched.topic, fetched.partition)
        if fetched.error != codes.NONE:
            self._failed(key, fetched.error, work)
            return
        position = self._reader.offset(key)
        end_offset = fetched.last_stable_offset
        if end_offset < 0 or self._flow.isolation_level == "read_uncommitted":
            end_offset = fetched.high_watermark
        size = fetched.end - fetched.start
        self._tally.fetched(
            key,
            end_offset=end_offset,
            size=size,
            behind=size > self._reader.partition_max_bytes // 2,
        )
        if position == end_offset:
            self._faults.clear(key)  # it can be read, and nothing waits to be written
        if not size or position is None:
            return
        assignment = self._wanted[key]
        try:
            found = batch.read(
                buffer,
                fetched.start,
                fetched.end,
                position=position,
                aborted=fetched.aborted,
                scratch=self._scratch,
            )
            done = work.rewriter.rewrite(
                buffer,
                found.rows,
                position=position,
                max_bytes=self._limit(assignment),
                at=key,
            )
        except (CorruptBatchError, TransformError) as error:
            self.set_aside(key, str(error))
            return
        whole = done.stopped_at < 0
        next_offset = found.next_offset if whole else done.stopped_at
        if next_offset == position:
            return
        if done.dead_batches and not self._bury(key, done, work):
            return
        if len(found.rows):
            first = found.rows[0]
            appended = int(first[scan.ATTRIBUTES]) & batch.LOG_APPEND_TIME
            column = scan.MAX_TIME if appended else scan.BASE_TIME
            self._tally.waits(key, int(first[column]))
        work.fetched_bytes += size
        work.worked_bytes += max(size, done.unpacked)
        if done.batches:
            where = (assignment.target_topic, key[1])
            work.batches[where] = done.batches
            work.origins[where] = key
        self._move(key, next_offset, found.leader_epoch, work)
        work.counts[key] = Counts(
            records=done.records,
            bytes=sum(encoded.size for encoded in done.batches),
            filtered=done.filtered,
            skipped=found.skipped if whole else 0,
            removed=done.removed,
            dead_letters=done.dead_letters,
            newest=done.newest,
            read_at=time.time(),
        )

    def _limit(self, assignment: Assignment) -> int:
        """The largest batch that every topic takes to which its records may go."""
        topics = (assignment.target_topic, self._flow.dead_letter_topic)
        return min(self._limits[topic] for topic in topics if topic)

    def _bury(self, key: TopicPartition, done: Rewritten, work: Work) -> bool:
        """Add dead letters to the work; False if there is no topic for them."""
        topic = self._flow.dead_letter_topic
        assert topic is not None
        if not self._dead_letter_partitions:
            self.set_aside(key, f"the dead-letter topic {topic} is not there")
            return False
        where = (topic, key[1] % self._dead_letter_partitions)
        work.batches.setdefault(where, []).extend(done.dead_batches)
        self._dead_lettering.add(key)
        return True

    def _move(
        self, key: TopicPartition, offset: int, leader_epoch: int, work: Work
    ) -> None:
        work.moved[key] = Position(
            offset=offset,
            leader_epoch=leader_epoch,
            topic_id=uuid.UUID(self._wanted[key].topic_id),
        )
        self._reader.advance(key, offset)

    def _failed(self, key: TopicPartition, error: int, work: Work) -> None:
        name = codes.name_of(error)
        if error in _STALE_METADATA:
            raise UnreachableError(f"source partition {key[0]}-{key[1]}: {name}")
        if error != _OFFSET_OUT_OF_RANGE:
            self.set_aside(key, f"reading source partition {key[0]}-{key[1]}: {name}")
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
            self.set_aside(
                key,
                f"the source's log ends at offset {edges[1]}, below the position "
                f"{position}: it was truncated or created again",
            )
