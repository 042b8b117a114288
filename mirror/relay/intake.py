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
from mirror.errors import CorruptBatchError, UnreachableError
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

    def begin(
        self,
        wanted: Mapping[TopicPartition, Assignment],
        limits: Mapping[str, int],
    ) -> None:
        """What answers are for, and the largest batch of each target topic in bytes."""
        self._wanted = wanted
        self._limits = limits

    def take(self, answer: Answer, work: Work) -> None:
        """Put what one leader answered into the work.

        Raises:
            UnreachableError: another broker has to be asked.
        """
        work.buffers.append(answer.owned)
        for fetched in answer.fetched:
            self._take(fetched, answer.buffer, work)

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
                max_bytes=self._limits[assignment.target_topic],
            )
        except CorruptBatchError as error:
            self.set_aside(key, str(error))
            return
        if found.next_offset == position:
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
        self._move(key, found.next_offset, found.leader_epoch, work)
        work.counts[key] = Counts(
            records=done.records,
            bytes=sum(encoded.size for encoded in done.batches),
            filtered=done.filtered,
            skipped=found.skipped,
            newest=done.newest,
            read_at=time.time(),
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
