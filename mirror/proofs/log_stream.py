"""Streams the records of one range of a partition, with the next fetch on its way.

Main type: `LogStream`. It lists the records without decoding them, goes on past damaged
batches, which it names, and past offsets that retention deletes meanwhile, and finds
the new leader when one is lost.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
import contextlib
from dataclasses import dataclass
import time
from typing import TYPE_CHECKING, Any, NamedTuple

from mirror.clusters import codes
from mirror.clusters.admin import topic_admin
from mirror.clusters.topics import same_topic
from mirror.copying.source import SourceReader
from mirror.copying.waiting import wait
from mirror.errors import (
    BrokerError,
    ClusterError,
    CorruptBatchError,
    LeaderError,
    NoLeaderError,
    RecreatedError,
    UnreachableError,
)
from mirror.offsets.progress import Position
from mirror.records import batch, former, scan, to_columns
from mirror.records.batch import LOG_APPEND_TIME
from mirror.records.listing import Listed, listed
from mirror.retry import SLOT, patiently

if TYPE_CHECKING:
    import uuid

    from mirror.clusters.cluster import Cluster
    from mirror.clusters.wire.fetch import Fetched
    from mirror.proofs.account import CopiedPartition
    from mirror.records.batch import Buffer, Rows

Lister = Callable[["Buffer", "Rows", int, int], Iterator[Listed]]
"""Makes records of batches, from one offset up to another: `listed`, or that of
`function_results`."""

FETCH_BYTES = 16 << 20
_HIGH_LATENCY_FETCH_BYTES = 32 << 20
_LEAST_BYTES = 64 << 10
PATIENCE_SECONDS = 60.0
_WAIT_SECONDS = 0.5
_OFFSET_OUT_OF_RANGE = 1
_buffers: list[bytearray] = []
"""Of answers that this process has read, for its next ones: fresh memory is slow."""


@dataclass(frozen=True, slots=True, kw_only=True)
class OffsetRange:
    """Some offsets of one partition, from `first` up to `end`."""

    topic: str
    partition: int
    topic_id: uuid.UUID
    """The only topic to read; NO_ID if brokers have no ids."""
    first: int
    end: int

    @classmethod
    def within(
        cls, copied: CopiedPartition, first: int, end: int, *, on_source: bool
    ) -> OffsetRange:
        """Of one side of a partition that is being proven."""
        name, topic_id = copied.target_topic, copied.copy_id
        if on_source:
            name, topic_id = copied.topic, copied.topic_id
        return cls(
            topic=name, partition=copied.partition, topic_id=topic_id, first=first,
            end=end,
        )  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class Damage:
    """Offsets whose records cannot be read."""

    first: int
    end: int
    reason: str


class Stored(NamedTuple):
    """Batches as they came, valid until the next ones are requested."""

    buffer: Buffer
    rows: Rows
    first: int
    """The first offset that is wanted."""

    @property
    def end(self) -> int:
        return int(self.rows[-1, scan.LAST]) + 1


class Meter:
    """Bytes that this process has fetched, over all streams."""

    fetched_bytes = 0


def metered(task: Callable[[], Any]) -> tuple[Any, int]:
    """What a task returns, and how many bytes it has fetched."""
    before = Meter.fetched_bytes
    result = task()
    return result, Meter.fetched_bytes - before


class LogStream:
    """Reads one range, once."""

    def __init__(
        self,
        cluster: Cluster,
        wanted: OffsetRange,
        *,
        isolation: int,
        lister: Lister = listed,
        fetch_bytes: int | None = None,
    ) -> None:
        """`lister` makes records of batches; those that it leaves out are counted.
        `fetch_bytes`: the most to ask for at once; None: what suits long ranges.
        """
        self.start = 0
        """The log's first offset, as far as the leader has named it."""
        self.own_times = True
        """Off: brokers wrote the time when they got the records (LogAppendTime)."""
        self.looped = 0
        """How many records were left out."""
        self.damages: list[Damage] = []
        self.fetched_bytes = 0
        self.epoch = -1
        """Of the leader that wrote the last batch; -1: not known."""
        self._cluster = cluster
        self._wanted = wanted
        self._key = (wanted.topic, wanted.partition)
        self._where = f"cluster {cluster.alias}: {wanted.topic}-{wanted.partition}"
        self._isolation = isolation
        self._lister = lister
        self._fetch_bytes = fetch_bytes
        self._position = wanted.first
        self._bytes_each = 0
        """Per offset of the last answer; 0: there was none."""
        self._scratch = batch.scratch()

    def listed(self) -> Iterator[Listed]:
        """The records, some at a time; each part is valid until the next is requested.

        Raises:
            ClusterError: as `stored` does.
        """
        for each in self.stored():
            yield from self.records(each, each.first, self._wanted.end)

    def stored(self) -> Iterator[Stored]:
        """The batches that have the records.

        Raises:
            RecreatedError: the topic was re-created, or the log lost its end.
            ClusterError: it cannot be read, or not to the end.
        """
        reader: SourceReader | None = None
        deadline = time.monotonic() + PATIENCE_SECONDS
        pause = 0.0
        problem: ClusterError | None = None
        lent = False
        while (begun := self._position) < self._wanted.end:
            try:
                if reader is None:
                    reader = self._reader()
                reader.ask()
                ready, _ = wait(reader.connections(), None, _WAIT_SECONDS)
                if not lent:
                    with contextlib.suppress(IndexError):
                        reader.give_back([_buffers.pop()])
                        lent = True
                for answer in reader.read(set(ready)):
                    lent = False
                    for fetched in answer.fetched:
                        yield from self._take(reader, answer.buffer, fetched)
                    _buffers.append(answer.owned)
            except (UnreachableError, LeaderError, NoLeaderError, BrokerError) as error:
                if isinstance(error, BrokerError) and not error.retriable:
                    raise
                problem, reader, lent = error, None, False
                pause = SLOT.after(pause)
                time.sleep(pause)
            if self._position > begun:
                deadline, pause = time.monotonic() + PATIENCE_SECONDS, 0.0
                problem = None
            elif time.monotonic() > deadline:
                raise problem or ClusterError(
                    f"{self._where} does not show offset {self._position}, which was "
                    f"committed: is its leader cut off?"
                )

    def _reader(self) -> SourceReader:
        topic = self._cluster.topics([self._key[0]])[self._key[0]]
        if topic.error != codes.NONE:
            raise codes.error_for(topic.error, self._where)
        if not same_topic(self._wanted.topic_id, topic.topic_id):
            raise RecreatedError(f"{self._where} was re-created")
        leader = topic.leaders.get(self._key[1])
        if leader is None or leader.node < 0:
            raise NoLeaderError(f"{self._where} has no leader")
        size = self._size()
        reader = SourceReader(
            self._cluster,
            isolation=self._isolation,
            max_bytes=size,
            partition_max_bytes=size,
        )
        # An answer may still be on its way there; with a login, a new connection takes
        # longer than to read a short range.
        self._cluster.drop("fetch 0", idle=False)
        position = Position(offset=self._position, topic_id=topic.topic_id)
        reader.assign({self._key: position}, {self._key[0]: topic})
        return reader

    def _size(self) -> int:
        """How much to ask for: little more than what is left, by what came last."""
        far = self._cluster.high_latency
        most = self._fetch_bytes or (_HIGH_LATENCY_FETCH_BYTES if far else FETCH_BYTES)
        left = self._bytes_each * (self._wanted.end - self._position)
        return min(most, max(left + left // 8, _LEAST_BYTES)) if left else most

    def _take(
        self, reader: SourceReader, buffer: Buffer, fetched: Fetched
    ) -> Iterator[Stored]:
        if fetched.error == _OFFSET_OUT_OF_RANGE:
            self._move_to_start(reader)
            return
        if fetched.error != codes.NONE:
            raise codes.error_for(fetched.error, f"reading {self._where}")
        self.start = max(self.start, fetched.log_start_offset)
        size = fetched.end - fetched.start
        if not size:
            return
        self.fetched_bytes += size
        Meter.fetched_bytes += size
        begun = self._position
        try:
            made, start, end = former.modern(buffer, fetched.start, fetched.end)
            found = batch.read(
                made,
                start,
                end,
                position=begun,
                aborted=fetched.aborted,
                scratch=self._scratch,
            )
        except CorruptBatchError as error:
            self._pass(reader, buffer, fetched, error)
            return
        if found.next_offset == begun:
            return
        self._bytes_each = 1 + size // (found.next_offset - begun)
        self._seek(reader, found.next_offset, found.leader_epoch)
        if (found.rows[:, scan.ATTRIBUTES] & LOG_APPEND_TIME).any():
            self.own_times = False
        if len(found.rows):
            yield Stored(made, found.rows.copy(), begun)

    def records(self, stored: Stored, begun: int, end: int) -> Iterator[Listed]:
        """Those from one offset up to another, not beyond what is wanted."""
        buffer, rows, _ = stored
        end = min(end, self._wanted.end)
        rows = rows[(rows[:, scan.LAST] >= begun) & (rows[:, scan.BASE] < end)]
        if not len(rows):
            return
        try:
            for part in self._lister(buffer, rows, begun, end):
                if len(part.places):
                    begun = int(part.places[-1, to_columns.OFFSET]) + 1
                self.looped += part.looped
                yield part
        except CorruptBatchError:
            # One by one, to know which.
            for row in rows[rows[:, scan.LAST] >= begun]:
                try:
                    for part in self._lister(buffer, row[None], begun, end):
                        self.looped += part.looped
                        yield part
                except CorruptBatchError as error:
                    self._damaged(int(row[scan.BASE]), int(row[scan.LAST]), error)

    def _seek(self, reader: SourceReader, offset: int, epoch: int) -> None:
        """Go on there; while the caller works, the answer comes."""
        self._position, self.epoch = offset, epoch
        reader.seek(self._key, offset, epoch)
        if offset < self._wanted.end:
            size = self._size()
            reader.pace.ask_for(size, size)
            reader.ask()

    def _pass(
        self,
        reader: SourceReader,
        buffer: Buffer,
        fetched: Fetched,
        error: CorruptBatchError,
    ) -> None:
        """Go on after the first batch, which is damaged, if its header says where."""
        count, _ = scan.index(buffer, fetched.start, fetched.end, self._scratch)
        rows = self._scratch[: max(count, 0)]
        rows = rows[rows[:, scan.LAST] >= self._position]
        if not len(rows):
            raise error
        first, last = int(rows[0, scan.BASE]), int(rows[0, scan.LAST])
        self._damaged(first, last, error)
        self._seek(reader, last + 1, -1)

    def _damaged(self, first: int, last: int, error: CorruptBatchError) -> None:
        first = max(first, self._wanted.first)
        end = min(last + 1, self._wanted.end)
        found = Damage(first=first, end=end, reason=str(error))
        if found not in self.damages[-1:]:  # a batch may be listed in parts
            self.damages.append(found)

    def _move_to_start(self, reader: SourceReader) -> None:
        """Retention has deleted the next offset."""

        def ask() -> int:
            found = topic_admin.list_offsets(
                self._cluster, [self._key], timestamp=topic_admin.EARLIEST
            )
            if not found:
                raise NoLeaderError(f"{self._where} has no leader")
            return found[self._key]

        start = patiently(ask)
        if start <= self._position:
            raise RecreatedError(f"{self._where} lost its end before it was read")
        self.start = start
        self._seek(reader, min(start, self._wanted.end), -1)
