"""The source side of a slot: one Fetch on its way to every leader, always.

Main type: `SourceReader`. It knows from which offset each partition is read next,
asks all leaders, waits for whichever answers, and drops answers to questions that
a rewind has made stale. What is fetched is undecoded (see `batch`).
"""

from __future__ import annotations

from dataclasses import dataclass
import select
import time
from typing import TYPE_CHECKING

import numpy as np

from mirror.clusters import fetch
from mirror.errors import UnreachableError

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from mirror.clusters.cluster import Cluster, Topic
    from mirror.clusters.connection import Connection, Pending
    from mirror.clusters.fetch import Fetched
    from mirror.relay.batch import Buffer

TopicPartition = tuple[str, int]

_PURPOSE = "fetch"
_MAX_WAIT_MS = 500


@dataclass(frozen=True, slots=True)
class Answer:
    """What one partition answered, and where its bytes lie.

    `buffer` is valid until the next `poll`.
    """

    fetched: Fetched
    buffer: Buffer


@dataclass(slots=True)
class _Asked:
    pending: Pending
    connection: Connection
    offsets: dict[TopicPartition, int]
    overdue_at: float


class SourceReader:
    """Reads a set of partitions from their leaders."""

    def __init__(
        self,
        cluster: Cluster,
        *,
        isolation: int,
        max_bytes: int,
        partition_max_bytes: int,
    ) -> None:
        self._cluster = cluster
        self._isolation = isolation
        self._max_bytes = max_bytes
        self._partition_max_bytes = partition_max_bytes
        # Ordered: brokers fill an answer in the order asked, so who was served
        # goes to the back.
        self._offsets: dict[TopicPartition, int] = {}
        self._leaders: dict[TopicPartition, int] = {}
        self._asked: dict[int, _Asked] = {}

    def assign(
        self, offsets: Mapping[TopicPartition, int], topics: Mapping[str, Topic]
    ) -> None:
        """Read exactly these partitions from these offsets, forgetting all else."""
        self._cluster.drop(_PURPOSE)
        self._asked.clear()
        self._offsets = dict(offsets)
        self._leaders = {}
        for topic, partition in offsets:
            leader = topics[topic].leaders.get(partition) if topic in topics else None
            self._leaders[topic, partition] = leader.node if leader else -1

    @property
    def without_leader(self) -> list[TopicPartition]:
        return [key for key in self._offsets if self._leaders[key] < 0]

    def offset(self, key: TopicPartition) -> int | None:
        return self._offsets.get(key)

    def advance(self, key: TopicPartition, offset: int) -> None:
        """Read on from here, after the others had their turn."""
        del self._offsets[key]
        self._offsets[key] = offset

    def leave_out(self, key: TopicPartition) -> None:
        self._offsets.pop(key, None)

    def ask(self) -> None:
        """Send a Fetch to every leader that owes no answer."""
        by_leader: dict[int, list[fetch.Wanted]] = {}
        for key, offset in self._offsets.items():
            node = self._leaders[key]
            if node >= 0 and node not in self._asked:
                by_leader.setdefault(node, []).append(
                    fetch.Wanted(
                        topic=key[0], partition=key[1], offset=offset, leader_epoch=-1
                    )
                )
        for node, wanted in by_leader.items():
            connection = self._cluster.connection(node, _PURPOSE)
            request = fetch.encode(
                wanted,
                isolation=self._isolation,
                max_wait_ms=_MAX_WAIT_MS,
                max_bytes=self._max_bytes,
                partition_max_bytes=self._partition_max_bytes,
            )
            pending = connection.send_buffers(
                fetch.API_KEY, fetch.VERSION, [request], flexible=False
            )
            self._asked[node] = _Asked(
                pending,
                connection,
                {(want.topic, want.partition): want.offset for want in wanted},
                time.monotonic() + _MAX_WAIT_MS / 1000 + connection.timeout_seconds,
            )

    def wait(self, timeout: float, bell: int | None) -> tuple[list[int], bool]:
        """Wait for answers: the leaders that have one, and whether the bell rang.

        Raises:
            UnreachableError: a leader has owed its answer for too long.
        """
        self.ask()
        buffered = [n for n, asked in self._asked.items() if asked.connection.readable]
        poller = select.poll()
        nodes: dict[int, int] = {}
        for node, asked in self._asked.items():
            descriptor = asked.connection.fileno()
            nodes[descriptor] = node
            poller.register(descriptor, select.POLLIN)
        if bell is not None:
            poller.register(bell, select.POLLIN)
        milliseconds = 0 if buffered else max(0, int(timeout * 1000))
        ready = [descriptor for descriptor, _ in poller.poll(milliseconds)]
        rung = bell is not None and bell in ready
        found = {nodes[descriptor] for descriptor in ready if descriptor in nodes}
        found.update(buffered)
        now = time.monotonic()
        for node, asked in self._asked.items():
            if node not in found and now > asked.overdue_at:
                raise UnreachableError(
                    f"source broker {node} at {asked.connection.address} does not "
                    "answer a Fetch in time"
                )
        return sorted(found), rung

    def read(self, node: int) -> Iterator[Answer]:
        """The partitions of one leader's answer; call it after `wait` named it."""
        asked = self._asked.pop(node)
        body = asked.pending.result()
        buffer = np.frombuffer(body, np.uint8)
        for fetched in fetch.decode(body):
            key = (fetched.topic, fetched.partition)
            if self._offsets.get(key) == asked.offsets.get(key, -1):
                yield Answer(fetched, buffer)
