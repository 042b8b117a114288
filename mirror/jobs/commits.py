"""Reads the source's `__consumer_offsets` as groups commit, if mirror may.

Main type: `CommitReader`, over all partitions, from their ends on. It follows their
leaders. What it cannot read (a leader that is down, a damaged batch, what came before
the end) the next survey of the groups has. Open transactions hold up nothing:
`offsets.commits` knows what counts; it and the kernels behind it load with the first
commit, since a start need not wait for them.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import numpy as np
import structlog

from mirror.clusters import codes, error_counts
from mirror.clusters.admin import allowed, topic_admin
from mirror.clusters.topics import NO_ID
from mirror.clusters.wire import fetch
from mirror.errors import CorruptBatchError, UnreachableError
from mirror.log import LogThrottle
from mirror.offsets.commit_records import TOPIC

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator

    from mirror.batches.batch import Buffer, Rows
    from mirror.clusters.cluster import Cluster
    from mirror.clusters.topics import Topic
    from mirror.clusters.wire.fetch import Fetched
    from mirror.offsets.commits import CommitLog

log = structlog.get_logger()

_PURPOSE = "commits"
_ASK_AGAIN_SECONDS = 60.0
"""Brokers may log each time that a right is missing."""
_READ_SECONDS = 2.0
"""For one call; the next one continues."""
_FETCH_BYTES, _PARTITION_BYTES = 4 << 20, 1 << 20
_OFFSET_OUT_OF_RANGE = 1
_NOT_STARTED = "not read yet"
NO_COMMITS = f"there is no {TOPIC} yet"
"""A reason that is no problem: the cluster makes its topic with the first commit."""


class CommitReader:
    """One reader of a source. Not thread-safe, like its cluster."""

    def __init__(self) -> None:
        self.reason = _NOT_STARTED
        """Why it does not follow; empty while it does."""
        self._source: Cluster | None = None
        self._topic: Topic | None = None
        """None: ask for the leaders."""
        self._topic_id = NO_ID
        self._logs: dict[int, CommitLog] = {}
        self._positions: dict[int, int] = {}
        self._ask_at = -float("inf")
        self._rows: Rows | None = None
        self._throttle = LogThrottle()

    def begin(self, source: Cluster) -> None:
        """Follow the partitions that are not followed, from their ends. For what came
        before, look at the groups after this.

        Raises:
            ClusterError: the source does not answer, or refuses.
        """
        if source is not self._source:
            self.stop(_NOT_STARTED)
            self._source = source
        if self.reason:
            if time.monotonic() < self._ask_at:
                return
            told = allowed.of_topics(source, [TOPIC])[TOPIC]
            if told is not None and "READ" not in told:
                self._ask_at = time.monotonic() + _ASK_AGAIN_SECONDS
                self.reason = f"no READ on topic {TOPIC}"
                return
            if source.topic(TOPIC) is None:
                self.reason = NO_COMMITS
                return
        topic = self._look(source)
        missing = [(TOPIC, p) for p in topic.leaders if p not in self._positions]
        ends = topic_admin.list_offsets(
            source, missing, timestamp=topic_admin.LATEST, committed=False
        )
        for (_, partition), end in ends.items():
            self._positions[partition] = end
        self.reason = ""

    def stop(self, reason: str) -> None:
        """Follow no more, until `begin`."""
        self.reason = reason
        self._topic = None
        self._logs.clear()
        self._positions.clear()

    def read(self) -> dict[bytes, bytes | None]:
        """What has changed since the last call: values of commits by key, null if one
        is gone.

        A partition that is not read to its end has nothing to say: a survey in between
        may know newer commits.

        Raises:
            ClusterError: the source does not answer, or refuses.
        """
        if self.reason or self._source is None:
            return {}
        topic = self._look(self._source)
        at_end: set[int] = set()
        behind: Collection[int] = tuple(self._positions)
        deadline = time.monotonic() + _READ_SECONDS
        while behind and time.monotonic() < deadline:
            answered = dict(self._ask(self._source, topic, behind))
            at_end.update(p for p, ends in answered.items() if ends)
            behind = [p for p, ends in answered.items() if not ends]
        fresh: dict[bytes, bytes | None] = {}
        for partition in at_end & self._logs.keys():
            fresh.update(self._logs[partition].take())
        return fresh

    def _look(self, source: Cluster) -> Topic:
        """The leaders; another topic of the name is followed from its end."""
        if self._topic is None:
            topic = source.topics([TOPIC])[TOPIC]
            if topic.error != codes.NONE:
                what = f"cluster {source.alias}: reading {TOPIC}"
                raise codes.error_for(topic.error, what)
            if topic.topic_id != self._topic_id:
                self._topic_id = topic.topic_id
                self._logs.clear()
                self._positions.clear()
            self._topic = topic
        return self._topic

    def _forget(self, partition: int) -> None:
        self._logs.pop(partition, None)
        self._positions.pop(partition, None)

    def _ask(
        self, source: Cluster, topic: Topic, partitions: Collection[int]
    ) -> Iterator[tuple[int, bool]]:
        """The partitions that were read, and whether to their ends."""
        by_node: dict[int, list[fetch.Wanted]] = {}
        for partition in partitions:
            leader = topic.leaders[partition]
            wanted = fetch.Wanted(
                topic=TOPIC,
                partition=partition,
                offset=self._positions[partition],
                leader_epoch=leader.epoch,
            )
            by_node.setdefault(leader.node, []).append(wanted)
        if by_node.pop(-1, None):
            self._topic = None
        pending = []
        for node, asked in by_node.items():
            request = fetch.encode(
                asked,
                isolation=fetch.READ_UNCOMMITTED,
                max_wait_ms=0,
                max_bytes=_FETCH_BYTES,
                partition_max_bytes=_PARTITION_BYTES,
            )
            try:
                connection = source.connection(node, _PURPOSE)
                pending.append(
                    connection.send_buffers(
                        fetch.API_KEY, fetch.VERSION, [request], flexible=False
                    )
                )
            except UnreachableError as error:
                self._warn(error)
        for each in pending:
            try:
                body = each.result()
            except UnreachableError as error:
                self._warn(error)
                continue
            buffer = np.frombuffer(body, np.uint8)
            parts = fetch.decode(body)
            for fetched in error_counts.noting(source.alias, parts):
                if (ends := self._take(buffer, fetched)) is not None:
                    yield fetched.partition, ends

    def _take(self, buffer: Buffer, fetched: Fetched) -> bool | None:
        """Whether it is read to its end; None if it cannot be read now."""
        partition = fetched.partition
        if fetched.error == codes.TOPIC_AUTHORIZATION_FAILED:
            raise codes.error_for(fetched.error, f"reading {TOPIC}")
        if fetched.error != codes.NONE:
            self._topic = None
            if fetched.error == _OFFSET_OUT_OF_RANGE:
                self._forget(partition)
            return None
        position = self._positions[partition]
        if fetched.start == fetched.end:
            return position >= fetched.high_watermark
        from mirror.batches import batch, former  # noqa: PLC0415  see the first lines
        from mirror.offsets.commits import CommitLog  # noqa: PLC0415

        if self._rows is None:
            self._rows = batch.scratch()
        try:
            buffer, start, end = former.modern(buffer, fetched.start, fetched.end)
            found = batch.read(
                buffer,
                start,
                end,
                position=position,
                aborted=(),
                scratch=self._rows,
            )
            if found.seen is not None:
                known = self._logs.setdefault(partition, CommitLog())
                known.read(buffer, found.seen, position)
        except CorruptBatchError as error:
            self._warn(error)
            self._forget(partition)
            return None
        self._positions[partition] = found.next_offset
        return found.next_offset >= fetched.high_watermark

    def _warn(self, error: Exception) -> None:
        assert self._source is not None
        self._topic = None
        if self._throttle.due(str(error)):
            log.warning("commits are not followed for now", error=str(error),
                        cluster=self._source.alias)  # fmt: skip
