"""The source side of a slot: there is always a Fetch in flight to every leader.

Main type: `SourceReader`. It tracks the next offset of each partition and fetches from
all leaders, each on its own channel (`FetchChannel`) with a fetch session (KIP-227):
requests name only partitions that moved, and answers only those with news. A distant
leader has several channels, each with a share of the partitions and larger fetches.
With a rack it reads from the followers that leaders name (`Nearest`). It drops answers
that a rewind has made stale, and does not decode what it fetches (see `records.batch`).
"""

from __future__ import annotations

from collections import Counter
import contextlib
from dataclasses import dataclass, field
from itertools import chain
import math
from operator import attrgetter
import time
from typing import TYPE_CHECKING, Any

import numpy as np

from mirror.clusters import codes, error_counts
from mirror.clusters.admin import topic_admin
from mirror.clusters.wire import fetch, fetch_by_id
from mirror.config.schema import AT_LEAST_ONCE_LINGER_MS, LINGER_MS
from mirror.errors import (
    AuthenticationError,
    ClusterError,
    LeaderError,
    RecreatedError,
    UnreachableError,
)
from mirror.offsets.progress import NO_ID
from mirror.retry import Backoff

if TYPE_CHECKING:
    from collections.abc import (
        Callable,
        Collection,
        Iterable,
        Iterator,
        Mapping,
        Sequence,
    )
    from collections.abc import Set as AbstractSet
    import uuid

    from mirror.clusters.cluster import Cluster
    from mirror.clusters.topics import Leader, Topic, TopicPartition
    from mirror.clusters.wire.connection import Connection
    from mirror.clusters.wire.fetch import Fetched, Wanted
    from mirror.clusters.wire.pending_response import Pending
    from mirror.config.schema import FlowConfig
    from mirror.offsets.progress import Position
    from mirror.records.batch import Buffer

MAX_WAIT_MS = 500
"""How long a broker waits for news before it answers that there are none."""


# ---- which replica to read: the leader, or a follower in our rack (KIP-392) ----
#
# Main type: `Nearest`, what one slot knows about its partitions. Only a leader
# chooses a follower: it knows who is in sync. A follower is never believed when it
# refuses: the partition goes back to its leader, and is not read from a follower
# for a while. Even if all is well, the leader is asked again every ten seconds: it
# notices a follower that has stopped following, and says where the log ends. Pure:
# `source` sends the requests.


LOOK_SECONDS = 10.0
"""After this time the leader is asked again who is nearest. Java's clients wait for
five minutes; until then they take a follower's word for where the log ends."""
PATIENCE_SECONDS = 10.0
"""How long a follower may take to accept a connection or to answer."""
_FOLLOWER_BACKOFF = Backoff(20.0, 600.0)


class Nearest:
    """The partitions of one slot that may be read from a follower."""

    def __init__(self, rack: str) -> None:
        """`rack`: where we are, as the brokers name it; empty: read from leaders."""
        self.rack = rack
        self._wary: dict[TopicPartition, tuple[float, float]] = {}
        """Partitions whose follower failed: until when to ask the leader alone, and how
        long that is."""

    def rack_for(self, key: TopicPartition) -> str:
        """The rack to name to this partition's leader; empty: it answers itself."""
        until, _ = self._wary.get(key, (0.0, 0.0))
        return self.rack if time.monotonic() >= until else ""

    def failed(self, key: TopicPartition) -> None:
        """Note that a follower does not serve this partition."""
        _, pause = self._wary.get(key, (0.0, 0.0))
        pause = _FOLLOWER_BACKOFF.after(pause)
        self._wary[key] = (time.monotonic() + pause, pause)

    def served(self, key: TopicPartition) -> None:
        """Note that a follower has sent records of it."""
        self._wary.pop(key, None)


_SMALL_BUFFER = 1 << 16
_HIGH_LATENCY_CHANNELS = 4
"""Requests in flight to one distant leader; each partition is in one of them."""
_by_answer = attrgetter("answered")


class SourceReader:
    """Reads a set of partitions, from their leaders or from what these name."""

    def __init__(
        self,
        cluster: Cluster,
        *,
        isolation: int,
        max_bytes: int,
        partition_max_bytes: int,
        rack: str = "",
        linger_ms: int = 0,
    ) -> None:
        self.pace = Pace(max_bytes, partition_max_bytes)
        self._nearest = Nearest(rack)
        self._linger_ms = linger_ms
        self._cluster = cluster
        self._isolation = isolation
        self._offsets: dict[TopicPartition, int] = {}
        self._epochs: dict[TopicPartition, int] = {}
        self._leaders: dict[TopicPartition, Leader] = {}
        """Each partition's leader; a replica in another epoch refuses."""
        self._leads: set[int] = set()
        """Brokers that lead a partition."""
        self._ids: dict[str, uuid.UUID] = {}
        self._names: dict[bytes, str] = {}
        self._channel_of: dict[TopicPartition, FetchChannel] = {}
        self._channels: dict[Place, FetchChannel] = {}
        self._spare: list[bytearray] = []
        self._foreseen: dict[TopicPartition, tuple[int, int]] = {}

    def assign(
        self, positions: Mapping[TopicPartition, Position], topics: Mapping[str, Topic]
    ) -> None:
        """Read exactly these partitions, from these positions; forget all others."""
        for purpose in {channel.purpose for channel in self._channels.values()}:
            self._cluster.drop(purpose)
        far = self._cluster.high_latency
        self.pace.channels_each = _HIGH_LATENCY_CHANNELS if far else 1
        self._offsets = {key: each.offset for key, each in positions.items()}
        self._epochs = {key: each.leader_epoch for key, each in positions.items()}
        self._ids = {topic: topics[topic].topic_id for topic, _ in positions}
        self._names = {each.bytes: topic for topic, each in self._ids.items()}
        self._channels = {at: each.renewed() for at, each in self._channels.items()}
        self._channel_of = {}
        self._leaders = {}
        self._leads = set()
        self._foreseen = {}
        dealt: Counter[int] = Counter()
        for topic, partition in positions:
            leader = topics[topic].leaders.get(partition) if topic in topics else None
            if leader is not None and leader.node >= 0:
                self._leaders[topic, partition] = leader
                self._leads.add(leader.node)
                self._read_from(leader.node, (topic, partition), dealt[leader.node])
                dealt[leader.node] += 1

    def _read_from(self, node: int, key: TopicPartition, number: int) -> None:
        """Read a partition on the channel with this number, in turn, of a broker."""
        rack = self._nearest.rack_for(key)
        at = (node, number % self.pace.channels_each, rack)
        if at not in self._channels:
            self._channels[at] = FetchChannel(*at, self._linger_ms)
        if (last := self._channel_of.get(key)) is not None:
            last.moved[key] = None
        self._channel_of[key] = self._channels[at]
        self._has_moved(key)

    @property
    def again_in(self) -> float:
        """Seconds until the flow's limit allows to ask for more; 0: it does."""
        pending = (each.size for each in self._channels.values() if each.pending)
        return self.pace.waits(sum(pending))

    @property
    def assigned(self) -> int:
        """How many partitions are read."""
        return len(self._offsets)

    def offset(self, key: TopicPartition) -> int | None:
        return self._offsets.get(key)

    def leader(self, key: TopicPartition) -> Leader | None:
        return self._leaders.get(key)

    def ends_of(self, keys: Collection[TopicPartition]) -> dict[TopicPartition, int]:
        """The end offsets of partitions that are not read; empty if the source does not
        answer, which shows once they are read.
        """
        if not keys:
            return {}
        with contextlib.suppress(ClusterError):
            return topic_admin.list_offsets(
                self._cluster, keys, timestamp=topic_admin.LATEST
            )
        return {}

    def last_epoch(self, key: TopicPartition) -> int:
        """The leader epoch of the record before the offset; -1 if unknown."""
        return self._epochs.get(key, -1)

    def answered(self, key: TopicPartition) -> float:
        """When its broker last answered, with news of it or without; 0: not yet."""
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

    def ask(self, *, together: bool = False) -> None:
        """Send a Fetch on every channel that has none in flight. `together`: leaders
        that linger are asked later, at the same time.

        Raises:
            LeaderError: one of them cannot be reached, or refuses us.
            RecreatedError: one that is asked by name means another topic now.
        """
        for key in self._foreseen:
            self._has_moved(key)
        self._foreseen = {}
        self._ask_all(together=together)

    def _ask_all(self, *, together: bool = False) -> None:
        if self._nearest.rack:
            self._look_again()
        for channel in sorted(self._channels.values(), key=_by_answer):
            if channel.pending is None and self._reads(channel):
                if channel.rests(together=together):
                    continue
                if self.again_in:
                    return
                try:
                    self._ask(channel)
                except ClusterError as error:
                    self._lost(channel, error)
                    self._ask_all(together=together)  # perhaps on new channels
                    return

    def _look_again(self) -> None:
        """Ask leaders again who is nearest to us, now and then."""
        now = time.monotonic()
        for channel in list(self._channels.values()):
            if channel.pending is None and now - channel.looked >= LOOK_SECONDS:
                channel.looked = now
                for key in dict.fromkeys((*channel.asked, *channel.moved)):
                    if self._is_read(key, channel) and (
                        self._is_near(key, channel)
                        or channel.rack != self._nearest.rack_for(key)
                    ):
                        self._ask_leader(key)

    def _ask_leader(self, key: TopicPartition) -> None:
        self._read_from(self._leaders[key].node, key, self._channel_of[key].number)

    def _is_read(self, key: TopicPartition, channel: FetchChannel) -> bool:
        return key in self._offsets and self._channel_of.get(key) is channel

    def _is_near(self, key: TopicPartition, channel: FetchChannel) -> bool:
        """Whether this channel leads to a follower of the partition."""
        return self._leaders[key].node != channel.node

    def _reads(self, channel: FetchChannel) -> bool:
        """Whether there is anything to ask for: a broker would keep us waiting for
        nothing, and what is read next with it.
        """
        keys = chain(channel.moved, channel.asked)
        if not (reads := any(self._is_read(key, channel) for key in keys)):
            channel.forget()
        return reads

    def _ask(self, channel: FetchChannel) -> None:
        moved: dict[TopicPartition, int] = {}
        forgotten = []
        for key in channel.moved:
            # Partitions just served go last: brokers answer in the order of requests.
            channel.asked.pop(key, None)
            if self._is_read(key, channel):
                moved[key] = self._next(key)[0]
            else:
                forgotten.append(key)
        channel.asked |= moved
        channel.moved.clear()
        wanted = [
            fetch.Wanted(
                topic=key[0],
                partition=key[1],
                offset=offset,
                leader_epoch=self._leaders[key].epoch,
                last_epoch=self._next(key)[1],
            )
            for key, offset in (moved if channel.epoch > 0 else channel.asked).items()
        ]
        seconds = math.inf if channel.node in self._leads else PATIENCE_SECONDS
        connection = self._cluster.connection(
            channel.node, channel.purpose, seconds=seconds
        )
        channel.negotiate(connection, self._ids)
        require_same_topics(self._cluster, channel, self._ids)
        channel.ask(
            connection,
            wanted,
            forgotten,
            self._ids,
            isolation=self._isolation,
            max_bytes=self.pace.most_bytes,
            partition_max_bytes=self.pace.partition_most_bytes,
        )

    def connections(self) -> list[Connection]:
        """Connections with a Fetch in flight."""
        pending = (channel.pending for channel in self._channels.values())
        return [each.connection for each in pending if each is not None]

    @property
    def lingers(self) -> bool:
        """Whether a leader that was asked lingers."""
        return any(each.pending and each.lingers for each in self._channels.values())

    def read_on(self) -> None:
        """Receive what has arrived meanwhile, so that leaders can keep sending."""
        for connection in self.connections():
            connection.read_on()

    def read(self, ready: AbstractSet[Connection]) -> Iterator[FetchAnswer]:
        """The answers on connections that have something to read. The leader read least
        recently comes first, since callers may stop after any answer.

        Raises:
            LeaderError: a connection failed, or an answer is overdue.
            ClusterError: a leader refused the request.
        """
        channels = sorted(self._channels.values(), key=_by_answer)
        waiting = [(at, at.pending) for at in channels if at.pending is not None]
        for channel, pending in waiting:
            connection = pending.connection
            patience = MAX_WAIT_MS / 1000 + connection.timeout_seconds
            try:
                if connection in ready:
                    connection.read_on()
                if not (pending.answered or connection.whole):
                    connection.require_answer(patience)
                    continue
                answer = self._read(channel, pending)
            except ClusterError as error:
                self._lost(channel, error)
                continue
            if answer is not None:
                yield answer

    def _lost(self, channel: FetchChannel, error: ClusterError) -> None:
        """What a follower served that fails is read from leaders.

        Raises:
            LeaderError: it is a leader, and not to be reached.
            ClusterError: it is a leader, and refused the request.
        """
        theirs = [
            key
            for key, its in self._channel_of.items()
            if its.node == channel.node and key in self._offsets
        ]
        near = [key for key in theirs if self._is_near(key, channel)]
        for key in near:
            self.distrust(key)
        if channel.node not in self._leads:
            channel.forget()
            return
        if not isinstance(error, (UnreachableError, AuthenticationError)):
            raise error
        led = (key for key in theirs if key not in near)
        raise LeaderError(str(error), tuple(led)) from error

    def distrust(self, key: TopicPartition) -> None:
        """A follower does not serve it, or not as it should: ask its leader."""
        self._nearest.failed(key)
        self._ask_leader(key)

    def _read(self, channel: FetchChannel, pending: Pending) -> FetchAnswer | None:
        body = pending.result()
        self.pace.take(len(body))
        if (found := channel.take(body, self._names, self._cluster.alias)) is None:
            return None
        fetched = tuple(part for part in found if self._is_answer(part, channel))
        keys = ((part.topic, part.partition) for part in fetched)
        near = frozenset(key for key in keys if self._is_near(key, channel))
        spare = self._spare.pop() if self._spare else bytearray(_SMALL_BUFFER)
        owned = pending.connection.take_buffer(spare)
        return FetchAnswer(fetched, np.frombuffer(body, np.uint8), owned, near)

    def _is_answer(self, part: Fetched, channel: FetchChannel) -> bool:
        """Whether it belongs to what we ask now, and is to be believed."""
        key = (part.topic, part.partition)
        asked = channel.asked.get(key)
        if not self._is_read(key, channel) or self._offsets[key] != asked:
            return False
        if channel.rack and 0 <= part.nearer != channel.node:
            self._read_from(part.nearer, key, channel.number)
        elif self._is_near(key, channel):
            if part.error != codes.NONE or part.diverging >= 0:
                self.distrust(key)
                return False
            self._nearest.served(key)
        return True

    def give_back(self, buffers: Iterable[bytearray]) -> None:
        """Reuse the buffers of answers that are no longer needed."""
        self._spare += buffers


# ---- whether a leader that is asked by name still means the same topics ----
#
# Brokers before 3.1 fetch by name. A fetch that waits there is answered when its
# topic is deleted. While none waits, a topic may be deleted and created again, and
# a slot would go on in the middle of the new one. So before its first fetch, and after
# a pause (a process was suspended, the target is slow), it asks the leader for the
# topics' ids.


_PAUSE_SECONDS = 2 * MAX_WAIT_MS / 1000
"""After this time since the last request, the broker must have answered it."""


def require_same_topics(
    cluster: Cluster, channel: FetchChannel, ids: Mapping[str, uuid.UUID]
) -> None:
    """Check the topics of a channel that begins by name, or goes on after a pause.
    `ids`: of the topics that are read; brokers before 2.8 have none.

    Raises:
        RecreatedError: the broker means another topic.
        UnreachableError: it does not answer.
    """
    paused = channel.sent < time.monotonic() - _PAUSE_SECONDS
    if channel.by_id or not paused or NO_ID in ids.values():
        return
    read = {name for name, _ in channel.asked}
    for name, topic in cluster.topics(read, node=channel.node).items():
        if topic.topic_id != ids.get(name, topic.topic_id):
            raise RecreatedError(f"source topic {name} was deleted or created again")


# ---- how much a slot reads: at a time, and per second if the flow has a limit ----
#
# Main type: `Pace`. What has arrived counts, so that it is exact however large an
# answer turns out: after an answer that was more than allowed, nothing is asked
# until the time has made up for it. Pure: the reader asks and counts, the slot says
# what there is room for, the driver divides the limit.


_SAVED_SECONDS = 2.0
"""What is not used is kept for this long: over the time between two leases."""
_AT_ONCE_SECONDS = 0.5
"""One answer brings no more than this, so that the rate is even."""
_LEAST_BYTES = 16 << 10


class Pace:
    """What one slot may ask for."""

    def __init__(
        self,
        max_bytes: int,
        partition_max_bytes: int,
        *,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """As `ask_for` takes them."""
        self.channels_each = 1
        """Channels per leader. A partition is in one request at a time, so each fetches
        as many times more of it."""
        self._max_bytes = max_bytes
        self._partition_max_bytes = partition_max_bytes
        self._clock = clock
        self._rate = 0.0
        self._saved = 0.0
        """Bytes that may be read now; negative: that were read too early."""
        self._at = clock()

    def allow(self, bytes_per_second: float, *, from_now: bool = False) -> None:
        """From now on, read so much; 0: without a limit. A lower limit makes up for
        what was read too early in the same time as the one before. `from_now`: the time
        since it was last asked does not count.
        """
        if from_now:
            self._at = self._clock()
        self._count()
        if bytes_per_second < self._rate:
            self._saved *= bytes_per_second / self._rate
        self._rate = bytes_per_second

    def ask_for(self, max_bytes: int, partition_max_bytes: int) -> None:
        """Set how much to fetch at a time from a leader, and of one partition."""
        self._max_bytes = max_bytes
        self._partition_max_bytes = partition_max_bytes

    @property
    def most_bytes(self) -> int:
        """The most to ask a leader for at a time."""
        if not self._rate:
            return self._max_bytes
        allowed = max(int(self._rate * _AT_ONCE_SECONDS), _LEAST_BYTES)
        return min(self._max_bytes, allowed)

    @property
    def partition_most_bytes(self) -> int:
        """The most that a broker returns of one partition."""
        return min(self._partition_max_bytes * self.channels_each, self.most_bytes)

    def waits(self, on_the_way: int) -> float:
        """Seconds until more may be asked for; 0: now. `on_the_way`: what has been
        asked for may bring so many bytes.
        """
        if not self._rate:
            return 0.0
        self._count()
        return max((on_the_way - self._saved) / self._rate, 0.0)

    def take(self, size: int) -> None:
        """Count bytes that have arrived."""
        if self._rate:
            self._count()
            self._saved -= size

    def _count(self) -> None:
        now = self._clock()
        most = self._rate * _SAVED_SECONDS
        self._saved = min(self._saved + (now - self._at) * self._rate, most)
        self._at = now


# ---- one connection to one broker, and the fetch session on it (KIP-227) ----
#
# Main type: `FetchChannel`: makes the session's next request, which names only what has
# changed, and takes its answer. It uses topic ids if the broker supports them.

Place = tuple[int, int, str]
"""Of a channel: the broker, its number there, and its rack."""

LINGER_BYTES = 64 << 10
"""A broker that lingers answers as soon as it has this much."""
_LAST_EPOCH = (1 << 31) - 1


def longest_linger_ms(flow: FlowConfig) -> int:
    """For how long brokers wait for more records while few come; 0: they do not."""
    if flow.linger_ms is not None:
        return flow.linger_ms
    in_transactions = flow.exactly_once and flow.offsets != "same"
    return LINGER_MS if in_transactions else AT_LEAST_ONCE_LINGER_MS


@dataclass(frozen=True, slots=True)
class FetchAnswer:
    """What one broker answered: its partitions, and the bytes they lie in.

    The bytes are not reused until they are given back.
    """

    fetched: tuple[Fetched, ...]
    buffer: Buffer
    owned: bytearray
    near: frozenset[TopicPartition] = frozenset()
    """Those that a follower sent, which may not know the log's end yet."""


@dataclass(slots=True, eq=False)
class FetchChannel:
    """One connection to one broker, and the state of its fetch session."""

    node: int
    number: int
    rack: str = ""
    """Where we are, if the broker may name a replica there instead of answering."""
    linger_ms: int = 0
    """How long the broker waits for more records when few come."""
    session: int = 0
    epoch: int = 0
    asked: dict[TopicPartition, int] = field(default_factory=dict)
    """The offsets that the broker has in the session."""
    moved: dict[TopicPartition, None] = field(default_factory=dict)
    """Partitions whose offset the broker does not have yet, the last served last, and
    those that it is to forget."""
    pending: Pending | None = None
    by_id: bool = False
    """Whether requests name topics by id."""
    rests_until: float = 0.0
    """Until when the broker throttles us and reads no requests; monotonic."""
    sent: float = 0.0
    """When its last request was sent, monotonic; 0 if none was."""
    answered: float = 0.0
    """When it last answered, monotonic; 0 if it has not."""
    size: int = 0
    """Of its last answer, in bytes: what the next one may bring."""
    lingers: bool = False
    """Whether records come so fast that waiting for more of them is worth it."""
    served: float = 0.0
    """When its last records came, monotonic; 0 if none have."""
    looked: float = field(default_factory=time.monotonic)
    """When its partitions' replicas were last chosen, monotonic."""

    @property
    def purpose(self) -> str:
        """Of its connection: one for requests with a rack, one for those without."""
        return f"fetch {self.number}" + (" nearest" if self.rack else "")

    def rests(self, *, together: bool) -> bool:
        """Whether it is not to be asked now. `together`: later, if it lingers. But only
        a fetch by name that waits hears that a topic was deleted.
        """
        if together and self.lingers and self.by_id:
            return True
        return time.monotonic() < self.rests_until

    def renewed(self) -> FetchChannel:
        """The same without partitions. It replaces the old session instead of adding to
        it: brokers keep only so many.
        """
        return FetchChannel(
            self.node, self.number, self.rack, self.linger_ms,
            session=self.session, answered=self.answered,
        )  # fmt: skip

    def forget(self) -> None:
        """Begin a new session with the next request."""
        self.epoch = 0
        self.asked.clear()
        self.moved.clear()
        self.pending = None

    def negotiate(self, connection: Connection, ids: Mapping[str, uuid.UUID]) -> None:
        """Whether a session that begins names topics by id, if they have ids."""
        if self.epoch == 0:
            spoken = connection.versions.get(fetch.API_KEY, (0, 0))[1]
            self.by_id = spoken >= fetch_by_id.VERSION and NO_ID not in ids.values()

    def ask(
        self,
        connection: Connection,
        wanted: Sequence[Wanted],
        forgotten: Iterable[TopicPartition],
        ids: Mapping[str, uuid.UUID],
        **terms: int,
    ) -> None:
        """Send a request for all that is `wanted` of the session, or new in it."""
        goes_on = self.epoch > 0
        all_terms: dict[str, Any] = {
            **terms,
            "max_wait_ms": self.linger_ms if self.lingers else MAX_WAIT_MS,
            "min_bytes": LINGER_BYTES if self.lingers else 1,
            "session": fetch.Session(self.session, self.epoch),
            "forgotten": forgotten if goes_on else (),
            "rack": self.rack,
        }
        if self.by_id:
            version = fetch_by_id.VERSION
            request = fetch_by_id.encode(wanted, ids=ids, **all_terms)
        else:
            version = fetch.VERSION
            request = fetch.encode(wanted, **all_terms)
        self.sent = time.monotonic()
        self.pending = connection.send_buffers(
            fetch.API_KEY, version, [request], flexible=self.by_id
        )

    def take(
        self, body: memoryview, names: Mapping[bytes, str], cluster: str
    ) -> list[Fetched] | None:
        """What the broker has answered; None if it has no such session any more. Its
        errors count as those of the `cluster`.

        Raises:
            ClusterError: it refused the request, or the answer cannot be decoded.
        """
        self.pending = None
        read_head = fetch_by_id.head if self.by_id else fetch.head
        throttle_ms, error, session = read_head(body)
        error_counts.note(cluster, error_counts.FETCH, error)
        now = time.monotonic()
        self.rests_until = now + throttle_ms / 1000
        if error in fetch.SESSION_LOST:
            self.session = self.epoch = 0
            return None
        if error != codes.NONE:
            raise codes.error_for(error, "fetching")
        self.answered = now
        self.size = len(body)
        self.session = session
        self.epoch = self.epoch % _LAST_EPOCH + 1 if session else 0
        decoded = fetch_by_id.decode(body, names) if self.by_id else fetch.decode(body)
        found = list(error_counts.noting(cluster, decoded))
        self._learn_linger(now, any(part.start < part.end for part in found))
        return found

    def _learn_linger(self, now: float, served: bool) -> None:
        """Let the broker linger from the second of two answers on that come faster
        than it would, until it waits in vain: a lone record does not wait.
        """
        soon = now - self.served < self.linger_ms / 1000
        self.lingers = served and (self.lingers or soon)
        if served:
            self.served = now
