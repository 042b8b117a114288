"""Reads small topics of our own from a position to their end.

Main type: `TopicReader`, over the single partition of a topic such as progress or the
offset map. It keeps its position, so that the next call returns what is new. If the
topic was re-created meanwhile, or a new leader does not have all that was read, it
raises, since what was read is no longer valid. User topics are never copied this way
(see `copying.source`), but migration from MirrorMaker 2 reads their last batches with
`batches`. A process without compiled kernels loads them only for what is large or not
usual (see `plain`).
"""

from __future__ import annotations

import sys
import time
from typing import TYPE_CHECKING

from mirror.clusters import codes
from mirror.clusters.admin import topic_admin
from mirror.clusters.topics import Leader
from mirror.clusters.wire import fetch
from mirror.errors import (
    BrokerError,
    ClusterError,
    CorruptBatchError,
    NoLeaderError,
    RecreatedError,
)
from mirror.records import plain, records
from mirror.retry import patiently

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    import uuid

    from mirror.clusters.cluster import Cluster
    from mirror.clusters.topics import Topic
    from mirror.clusters.wire.pending_response import Pending
    from mirror.records.batch import Batches, Buffer, Rows

Record = tuple[int, bytes, bytes]

_PURPOSE = "reading"
_WAIT_MS = 10
_FETCH_BYTES = 8 << 20
_PATIENCE_SECONDS = 10.0
_KERNELS = "mirror.records.batch"
_PLAIN_BYTES = 1 << 20
"""The largest answer that is sooner read in plain Python than with kernels that are not
loaded yet."""


class TopicReader:
    """One reader of one partition of a topic. Not thread-safe, like its cluster."""

    def __init__(  # noqa: PLR0913  what to read, and how
        self,
        cluster: Cluster,
        topic: str,
        *,
        committed: bool = True,
        position: int = 0,
        partition: int = 0,
        fetch_bytes: int = _FETCH_BYTES,
        topic_id: uuid.UUID | None = None,
        newest: records.Mark | None = None,
    ) -> None:
        """`committed`: leave out records of open and aborted transactions.

        `fetch_bytes`: the size of one answer, unless a batch is larger. `topic_id`: the
        only topic to read; None: the one found first. `newest`: as of `records.decode`.
        """
        self.position = position
        """The next offset to read."""
        self.epoch = -1
        """Of the newest leader that was read from; -1 before the first read."""
        self.topic_id = topic_id
        """The topic that is read; None until the first read."""
        self.start = 0
        """The topic's first offset when it was last read."""
        self._cluster = cluster
        self._topic = topic
        self._partition = partition
        self._committed = committed
        self._fetch_bytes = fetch_bytes
        self._newest = newest
        self._leads = Leader(node=-1, epoch=-1)
        self._asked_at = -1

    def read(
        self,
        *,
        end: int | None = None,
        at_least: int = 0,
        wait: bool = True,
        shown: Topic | None = None,
    ) -> Iterator[Record]:
        """The batch offset, key and value of every record up to `end`, or up to the
        topic's current end if None.

        With `committed` it waits until transactions that are open now have ended;
        without `wait` it stops before the first of them. It also waits until the
        leader shows the offsets below `at_least`. Records with a null key or value are
        left out. `shown`: the topic as the cluster has just shown it, if it was asked.

        Raises:
            RecreatedError: the topic was re-created or lost its end: what was read is
                no longer valid; start with a new reader.
            ClusterError: the topic cannot be read, its leader does not reach
                `at_least`, or a transaction on it stays open.
        """
        for some in self.answers(end=end, at_least=at_least, wait=wait, shown=shown):
            yield from some

    def answers(
        self,
        *,
        end: int | None = None,
        at_least: int = 0,
        wait: bool = True,
        shown: Topic | None = None,
    ) -> Iterator[Iterable[Record]]:
        """As `read`, but the records of one answer at a time, with whole batches. Where
        it breaks off, the position is behind all those that were asked for before.
        """
        given = [] if shown is None else [shown]  # for the first attempt

        def ask() -> tuple[Leader, int, int]:
            shown = given.pop() if given else self._shown()
            found = self._edges(shown, committed=self._committed and not wait)
            self._hold_against(shown)
            return found

        leader, self.start, latest = patiently(ask, seconds=_PATIENCE_SECONDS)
        self.position = max(self.position, self.start)
        if end is None:
            if latest < self.position:
                raise self._recreated()
            end = max(latest, at_least)
        if self.position >= end:
            return
        try:
            yield from self._answers(end, leader)
        except CorruptBatchError as error:
            raise self._unreadable(error) from error

    def _answers(self, end: int, leader: Leader) -> Iterator[Iterable[Record]]:
        for body, fetched in self._fetches(end, leader):
            some, behind = self._decoded(body, fetched)
            yield some
            self.position = behind

    def _decoded(
        self, body: bytes, fetched: fetch.Fetched
    ) -> tuple[Iterable[Record], int]:
        """The records of an answer, and the offset behind them."""
        if fetched.end - fetched.start <= _PLAIN_BYTES and not _kernels_are_loaded():
            found = plain.read(
                memoryview(body),
                fetched.start,
                fetched.end,
                position=self.position,
                aborted=fetched.aborted,
            )
            if found is not None:
                return found
        buffer, seen = self._judged(body, fetched)
        return records.decode(buffer, seen.rows, newest=self._newest), seen.next_offset

    def ask(self, purpose: str, seconds: float) -> Pending:
        """Ask for what follows, on a connection for this `purpose`: the leader that was
        last read from answers once there is something, or when time is up. To be called
        after `read`; `take` has the records.

        Raises:
            ClusterError: the leader cannot be reached.
        """
        self._asked_at = self.position
        return self._ask(self._leads, purpose, int(seconds * 1000))

    def take(self, asked: Pending) -> list[Record]:
        """The records that answer the last `ask`, if nothing was read since; else none.
        It waits for the answer.

        Raises:
            ClusterError: the leader does not answer, or leads no more: use `read`.
        """
        body, fetched = self._answer(asked)
        if self._asked_at != self.position:
            return []
        try:
            some, behind = self._decoded(body, fetched)
            found = list(some)
        except CorruptBatchError as error:
            raise self._unreadable(error) from error
        self.position = behind
        return found

    def batches(self, end: int) -> Iterator[tuple[Buffer, Rows]]:
        """The batches up to `end` that `read` decodes. The first and last batch may
        also contain offsets outside the range. Each is valid until the next one is
        requested.

        Raises:
            ClusterError: as `read`.
        """
        for buffer, found in self.seen(end):
            yield buffer, found.rows

    def seen(self, end: int) -> Iterator[tuple[Buffer, Batches]]:
        """As `batches`, with those that `read` leaves out.

        Raises:
            ClusterError: as `read`.
        """
        for body, fetched in self._fetches(end, self._leader(self._shown())):
            buffer, found = self._judged(body, fetched)
            yield buffer, found
            self.position = found.next_offset

    def _fetches(
        self, end: int, leader: Leader
    ) -> Iterator[tuple[bytes, fetch.Fetched]]:
        """Answers, until who takes them has moved the position to the end."""
        deadline = time.monotonic() + _PATIENCE_SECONDS
        while (before := self.position) < end:
            yield self._fetch(leader)
            if self.position > before:
                deadline = time.monotonic() + _PATIENCE_SECONDS
            elif time.monotonic() > deadline:
                raise BrokerError(
                    name="a transaction on it stays open, or its leader is cut off",
                    what=f"reading {self._topic} up to offset {end}",
                    retriable=True,
                )

    def _judged(self, body: bytes, fetched: fetch.Fetched) -> tuple[Buffer, Batches]:
        """The batches of an answer that may be read."""
        import numpy as np  # noqa: PLC0415  with the kernels, as in `records.decode`

        from mirror.records import batch, former  # noqa: PLC0415

        buffer, start, stop = former.modern(
            np.frombuffer(body, np.uint8), fetched.start, fetched.end
        )
        found = batch.read(
            buffer,
            start,
            stop,
            position=self.position,
            aborted=fetched.aborted,
            scratch=batch.scratch(),  # 5 MB: a run has many readers
        )
        return buffer, found

    def _shown(self) -> Topic:
        return self._cluster.topics([self._topic])[self._topic]

    def _leader(self, shown: Topic) -> Leader:
        leader = shown.leaders.get(self._partition)
        if leader is None or leader.node < 0:
            raise self._no_leader()
        if self.topic_id not in (None, shown.topic_id):
            raise self._recreated()
        self.topic_id = shown.topic_id
        self._leads = leader
        return leader

    def _fetch(self, leader: Leader) -> tuple[bytes, fetch.Fetched]:
        return self._answer(self._ask(leader, _PURPOSE, _WAIT_MS))

    def _ask(self, leader: Leader, purpose: str, max_wait_ms: int) -> Pending:
        request = fetch.encode(
            [
                fetch.Wanted(
                    topic=self._topic,
                    partition=self._partition,
                    offset=self.position,
                    leader_epoch=leader.epoch,
                )
            ],
            isolation=fetch.READ_COMMITTED
            if self._committed
            else fetch.READ_UNCOMMITTED,
            max_wait_ms=max_wait_ms,
            max_bytes=self._fetch_bytes,
            partition_max_bytes=self._fetch_bytes,
        )
        return self._cluster.connection(leader.node, purpose).send_buffers(
            fetch.API_KEY, fetch.VERSION, [request], flexible=False
        )

    def _answer(self, asked: Pending) -> tuple[bytes, fetch.Fetched]:
        body = asked.result()
        (fetched,) = fetch.decode(body)
        if fetched.error != codes.NONE:
            raise codes.error_for(fetched.error, f"reading {self._topic}")
        return body, fetched

    def _edges(self, shown: Topic, *, committed: bool) -> tuple[Leader, int, int]:
        """The leader that is `shown`, and by its word the log's start and its latest
        offset. Raises NoLeaderError while one is being elected.
        """
        leader = self._leader(shown)
        found = topic_admin.edges(
            self._cluster, shown, self._partition, committed=committed
        )
        if found is None:
            raise self._no_leader()
        return leader, *found

    def _hold_against(self, shown: Topic) -> None:
        """Whether the log of the leader that is `shown` has what others have shown."""
        leader = shown.leaders[self._partition]
        if 0 <= self.epoch < leader.epoch and self.position:
            where = (self._topic, self._partition)
            ends = topic_admin.epoch_ends(
                self._cluster, {where: self.epoch}, {self._topic: shown}
            )
            if where not in ends:
                raise self._no_leader()
            if ends[where].offset < self.position:
                raise self._recreated()
        self.epoch = max(self.epoch, leader.epoch)

    def _recreated(self) -> RecreatedError:
        return RecreatedError(
            f"cluster {self._cluster.alias}: {self._topic} was re-created or lost its "
            f"end after it was read up to offset {self.position}"
        )

    def _unreadable(self, error: CorruptBatchError) -> ClusterError:
        where = f"cluster {self._cluster.alias}: {self._topic}"
        return ClusterError(f"{where} cannot be read: {error}")

    def _no_leader(self) -> NoLeaderError:
        return NoLeaderError(
            f"cluster {self._cluster.alias}: {self._topic} has no leader"
        )


def _kernels_are_loaded() -> bool:
    """Not while another thread loads them: that is not waited for, either."""
    return hasattr(sys.modules.get(_KERNELS), "read")


def has_records(
    cluster: Cluster,
    partition: tuple[str, int],
    first: int,
    end: int,
    *,
    committed: bool = True,
) -> bool:
    """Whether there is a record between these offsets; markers do not count: brokers
    write them when they end a dead transaction.

    Raises:
        ClusterError: as `TopicReader.read`.
    """
    topic, number = partition
    reader = TopicReader(
        cluster, topic, partition=number, position=first, committed=committed
    )
    return any(len(rows) for _, rows in reader.batches(end))
