"""The source side of a slot: there is always a Fetch in flight to every leader.

Main type: `SourceReader`. It tracks the next offset of each partition and fetches from
all leaders, each with its own session (KIP-227): requests name only partitions that
moved, and answers only those with news. It uses topic ids if brokers support them. For
a distant leader it uses several channels, each with a share of the partitions and
larger fetches. It drops answers that a rewind has made stale, and does not decode what
it fetches (see `batches.batch`).
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from itertools import chain
import time
from typing import TYPE_CHECKING, Any

import numpy as np

from mirror.clusters import codes, error_counts
from mirror.clusters.wire import fetch, fetch_by_id
from mirror.errors import AuthenticationError, LeaderError, UnreachableError
from mirror.offsets.progress import NO_ID

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping
    from collections.abc import Set as AbstractSet
    import uuid

    from mirror.batches.batch import Buffer
    from mirror.clusters.cluster import Cluster
    from mirror.clusters.topics import Topic
    from mirror.clusters.wire.connection import Connection
    from mirror.clusters.wire.fetch import Fetched
    from mirror.clusters.wire.pending_response import Pending
    from mirror.errors import ClusterError
    from mirror.offsets.progress import Position

TopicPartition = tuple[str, int]

_PURPOSE = "fetch"
_MAX_WAIT_MS = 500
_SMALL_BUFFER = 1 << 16
_LAST_EPOCH = (1 << 31) - 1
_HIGH_LATENCY_CHANNELS = 4
"""Requests in flight to one distant leader; each partition is in one of them."""


@dataclass(frozen=True, slots=True)
class Answer:
    """What one leader answered: its partitions, and the bytes they lie in.

    The bytes are not reused until they are given back.
    """

    fetched: tuple[Fetched, ...]
    buffer: Buffer
    owned: bytearray


@dataclass(slots=True)
class _FetchChannel:
    """One connection to one broker, and the state of its fetch session."""

    node: int
    purpose: str
    session: int = 0
    epoch: int = 0
    asked: dict[TopicPartition, int] = field(default_factory=dict)
    """The offsets that the broker has in the session."""
    moved: dict[TopicPartition, None] = field(default_factory=dict)
    """Partitions whose offset the broker does not have yet, the last served last."""
    pending: Pending | None = None
    by_id: bool = False
    """Whether requests name topics by id."""
    rests_until: float = 0.0
    """Until when the broker throttles us and reads no requests; monotonic."""
    answered: float = 0.0
    """When it last answered, monotonic; 0 if it has not."""


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
        self._channels_each = 1
        """Channels per leader. A partition is in one request at a time, so each fetches
        as many times more of it."""
        self._offsets: dict[TopicPartition, int] = {}
        self._epochs: dict[TopicPartition, int] = {}
        self._leader_epochs: dict[TopicPartition, int] = {}
        """The epoch of each partition's leader; a leader of another epoch refuses."""
        self._ids: dict[str, uuid.UUID] = {}
        self._names: dict[bytes, str] = {}
        self._channel_of: dict[TopicPartition, _FetchChannel] = {}
        self._channels: dict[tuple[int, int], _FetchChannel] = {}
        self._spare: list[bytearray] = []
        self._foreseen: dict[TopicPartition, tuple[int, int]] = {}

    def assign(
        self, positions: Mapping[TopicPartition, Position], topics: Mapping[str, Topic]
    ) -> None:
        """Read exactly these partitions, from these positions; forget all others."""
        for purpose in {channel.purpose for channel in self._channels.values()}:
            self._cluster.drop(purpose)
        self._channels_each = (
            _HIGH_LATENCY_CHANNELS if self._cluster.high_latency else 1
        )
        self._offsets = {key: each.offset for key, each in positions.items()}
        self._epochs = {key: each.leader_epoch for key, each in positions.items()}
        self._ids = {topic: topics[topic].topic_id for topic, _ in positions}
        self._names = {each.bytes: topic for topic, each in self._ids.items()}
        # Replace old sessions instead of adding to them: brokers keep only so many.
        self._channels = {
            at: _FetchChannel(
                channel.node,
                channel.purpose,
                channel.session,
                answered=channel.answered,
            )
            for at, channel in self._channels.items()
        }
        self._channel_of = {}
        self._leader_epochs = {}
        self._foreseen = {}
        dealt: Counter[int] = Counter()
        for topic, partition in positions:
            leader = topics[topic].leaders.get(partition) if topic in topics else None
            if leader is not None and leader.node >= 0:
                channel = self._channel(leader.node, dealt[leader.node])
                dealt[leader.node] += 1
                channel.moved[topic, partition] = None
                self._channel_of[topic, partition] = channel
                self._leader_epochs[topic, partition] = leader.epoch

    def _channel(self, node: int, number: int) -> _FetchChannel:
        """The channel for a leader's partition with this number, in turn."""
        at = (node, number % self._channels_each)
        if at not in self._channels:
            self._channels[at] = _FetchChannel(node, f"{_PURPOSE} {at[1]}")
        return self._channels[at]

    def ask_for(self, max_bytes: int, partition_max_bytes: int) -> None:
        """Set how much to fetch at a time from a leader, and of one partition."""
        self._max_bytes = max_bytes
        self._partition_max_bytes = partition_max_bytes

    @property
    def partition_max_bytes(self) -> int:
        """The most that a leader returns of one partition."""
        return min(self._partition_max_bytes * self._channels_each, self._max_bytes)

    @property
    def assigned(self) -> int:
        """How many partitions are read."""
        return len(self._offsets)

    def offset(self, key: TopicPartition) -> int | None:
        return self._offsets.get(key)

    def last_epoch(self, key: TopicPartition) -> int:
        """The leader epoch of the record before the offset; -1 if unknown."""
        return self._epochs.get(key, -1)

    def answered(self, key: TopicPartition) -> float:
        """When this partition's leader last answered, with or without news of it;
        monotonic, 0 if it has not answered or is not asked.
        """
        channel = self._channel_of.get(key)
        return channel.answered if channel is not None and key in self._offsets else 0.0

    def seek(self, key: TopicPartition, offset: int, last_epoch: int) -> None:
        """Continue from this offset, after the other partitions had their turn.
        `last_epoch`: the leader epoch of the record before it, -1 if unknown.
        """
        self._offsets[key] = offset
        self._epochs[key] = last_epoch
        if self._foreseen.get(key) == (offset, last_epoch):
            del self._foreseen[key]
        else:
            self._has_moved(key)

    def _has_moved(self, key: TopicPartition) -> None:
        moved = self._channel_of[key].moved
        moved.pop(key, None)
        moved[key] = None

    def _next(self, key: TopicPartition) -> tuple[int, int]:
        """The offset to fetch, and the leader epoch of the record before it."""
        return self._foreseen.get(key) or (self._offsets[key], self._epochs[key])

    def leave_out(self, key: TopicPartition) -> None:
        self._offsets.pop(key, None)
        if (channel := self._channel_of.get(key)) is not None:
            channel.moved[key] = None

    def ask_ahead(self, foreseen: Mapping[TopicPartition, tuple[int, int]]) -> None:
        """Fetch what comes next before processing what came. `foreseen`: the likely
        arguments of `seek` for each partition. If `seek` is not called with them before
        `ask`, the answer is dropped and the partition fetched again.

        Raises:
            LeaderError: as `ask` does.
        """
        if foreseen:
            self._foreseen = dict(foreseen)
            for key in foreseen:
                self._has_moved(key)
            self._ask_all()

    def ask(self) -> None:
        """Send a Fetch on every channel that has none in flight.

        Raises:
            LeaderError: one of them cannot be reached, or refuses us.
        """
        for key in self._foreseen:
            self._has_moved(key)
        self._foreseen = {}
        self._ask_all()

    def _ask_all(self) -> None:
        for channel in self._channels.values():
            if channel.pending is None and self._reads(channel):
                if time.monotonic() < channel.rests_until:
                    continue
                try:
                    self._ask(channel)
                except (UnreachableError, AuthenticationError) as error:
                    raise self._lost(channel, error) from error

    def _reads(self, channel: _FetchChannel) -> bool:
        """Whether there is anything to ask for: a leader would keep us waiting for
        nothing, and what is read next with it.
        """
        return any(key in self._offsets for key in chain(channel.moved, channel.asked))

    def _ask(self, channel: _FetchChannel) -> None:
        goes_on = channel.epoch > 0
        forgotten = [key for key in channel.moved if key not in self._offsets]
        for key in forgotten:
            channel.asked.pop(key, None)
        moved = {
            key: self._next(key)[0] for key in channel.moved if key in self._offsets
        }
        # Partitions just served go last: brokers fill answers in the order of requests.
        for key in moved:
            channel.asked.pop(key, None)
        channel.asked |= moved
        channel.moved.clear()
        connection = self._cluster.connection(channel.node, channel.purpose)
        wanted = [
            fetch.Wanted(
                topic=key[0],
                partition=key[1],
                offset=offset,
                leader_epoch=self._leader_epochs[key],
                last_epoch=self._next(key)[1],
            )
            for key, offset in (moved if goes_on else channel.asked).items()
        ]
        terms: dict[str, Any] = {
            "isolation": self._isolation,
            "max_wait_ms": _MAX_WAIT_MS,
            "max_bytes": self._max_bytes,
            "partition_max_bytes": self.partition_max_bytes,
            "session": fetch.Session(channel.session, channel.epoch),
            "forgotten": forgotten if goes_on else (),
        }
        if not goes_on:
            spoken = connection.versions.get(fetch.API_KEY, (0, 0))[1]
            channel.by_id = spoken >= fetch_by_id.VERSION and NO_ID.bytes not in (
                self._names
            )
        if channel.by_id:
            version = fetch_by_id.VERSION
            request = fetch_by_id.encode(wanted, ids=self._ids, **terms)
        else:
            version = fetch.VERSION
            request = fetch.encode(wanted, **terms)
        channel.pending = connection.send_buffers(
            fetch.API_KEY, version, [request], flexible=channel.by_id
        )

    def connections(self) -> list[Connection]:
        """Connections with a Fetch in flight."""
        return [
            channel.pending.connection
            for channel in self._channels.values()
            if channel.pending is not None
        ]

    def read_on(self) -> None:
        """Receive what has arrived meanwhile, so that leaders can keep sending."""
        for connection in self.connections():
            connection.read_on()

    def read(self, ready: AbstractSet[Connection]) -> Iterator[Answer]:
        """The answers on connections that have something to read. The leader read least
        recently comes first, since callers may stop after any answer.

        Raises:
            LeaderError: a connection failed, or an answer is overdue.
            ClusterError: a leader refused the request.
        """
        waiting = [
            (channel, channel.pending)
            for channel in sorted(
                self._channels.values(), key=lambda channel: channel.answered
            )
            if channel.pending is not None
        ]
        for channel, pending in waiting:
            connection = pending.connection
            patience = _MAX_WAIT_MS / 1000 + connection.timeout_seconds
            try:
                if connection in ready:
                    connection.read_on()
                if not (pending.answered or connection.whole):
                    connection.require_answer(patience)
                    continue
                answer = self._read(channel, pending)
            except UnreachableError as error:
                raise self._lost(channel, error) from error
            if answer is not None:
                yield answer

    def _lost(self, channel: _FetchChannel, error: ClusterError) -> LeaderError:
        theirs = [
            key for key, its in self._channel_of.items() if its.node == channel.node
        ]
        return LeaderError(
            str(error), tuple(key for key in theirs if key in self._offsets)
        )

    def _read(self, channel: _FetchChannel, pending: Pending) -> Answer | None:
        body = pending.result()
        channel.pending = None
        read_head = fetch_by_id.head if channel.by_id else fetch.head
        throttle_ms, error, session = read_head(body)
        error_counts.note(self._cluster.alias, error_counts.FETCH, error)
        channel.rests_until = time.monotonic() + throttle_ms / 1000
        if error in fetch.SESSION_LOST:
            channel.session = channel.epoch = 0
            return None
        if error != codes.NONE:
            raise codes.error_for(error, "fetching")
        channel.answered = time.monotonic()
        channel.session = session
        channel.epoch = channel.epoch % _LAST_EPOCH + 1 if session else 0
        fetched = tuple(
            part
            for part in error_counts.noting(
                self._cluster.alias,
                fetch_by_id.decode(body, self._names)
                if channel.by_id
                else fetch.decode(body),
            )
            if (key := (part.topic, part.partition)) in self._offsets
            and self._offsets[key] == channel.asked.get(key)
        )
        spare = self._spare.pop() if self._spare else bytearray(_SMALL_BUFFER)
        owned = pending.connection.take_buffer(spare)
        return Answer(fetched, np.frombuffer(body, np.uint8), owned)

    def give_back(self, buffers: Iterable[bytearray]) -> None:
        """Reuse the buffers of answers that are no longer needed."""
        self._spare += buffers
