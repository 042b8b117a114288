"""Sends batches to their leaders without waiting for responses.

Main type: `Write`, what one producer sends in one go. It splits its batches into
rounds of one batch per partition and requests of bounded size, keeps several in
flight, and reads every response. `advance` never waits; `finish` does. Partitions may
be divided among channels, each with its own connection to every leader. There is no
retry after an error: it ends the write, and the producer must take over.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
import time
from typing import TYPE_CHECKING, Protocol

from mirror import retry
from mirror.clusters import codes
from mirror.clusters.wire import produce
from mirror.errors import ClusterError, UnreachableError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from mirror.clusters.cluster import Cluster
    from mirror.clusters.topics import Topic, TopicPartition
    from mirror.clusters.wire.pending_response import Pending
    from mirror.clusters.wire.produce import EncodedBatch


CHANNELS = 2
"""A broker handles the requests of one connection with one thread at a time."""
PURPOSES = tuple(f"produce {channel}" for channel in range(CHANNELS))
# Nothing after the first round is ever sent again, so it does not matter that brokers
# recognize duplicates only among the last five batches.
_ROUNDS_IN_FLIGHT = 20
_REQUEST_BYTES = 16 << 20
"""Brokers refuse requests above `socket.request.max.bytes`, 100 MiB by default."""
_TIMEOUT_MS = 30_000
_PATIENCE_SECONDS = 30.0
_RESEND = retry.QUESTION


@dataclass(frozen=True, slots=True, kw_only=True)
class Placed:
    """A written batch, and the offset of its first record."""

    where: TopicPartition
    offset: int
    batch: EncodedBatch


@dataclass(frozen=True, slots=True, kw_only=True)
class _Sent:
    """A request in flight. Requests of one round have different partitions."""

    round: int
    pending: Pending
    batches: Mapping[TopicPartition, EncodedBatch]


class Stamping(Protocol):
    """A producer, as far as writing knows it: it gives batches their sequences."""

    transactional_id: str | None
    v2: bool

    def stamp(self, key: TopicPartition, batch: EncodedBatch) -> None:
        """Make a batch the next one for a partition."""


class Write:
    """Batches of one producer, from stamped to acknowledged."""

    def __init__(  # noqa: PLR0913  what may differ between writers
        self,
        cluster: Cluster,
        producer: Stamping,
        batches: Mapping[TopicPartition, Sequence[EncodedBatch]],
        topics: Mapping[str, Topic],
        channels: Mapping[TopicPartition, int] | None = None,
        *,
        purposes: Sequence[str] = PURPOSES,
        rounds: int = _ROUNDS_IN_FLIGHT,
        may_send: Callable[[], bool] = lambda: True,
    ) -> None:
        """Sends nothing before `advance`.

        `channels` maps each partition to one of the `CHANNELS`; None: all to the first.
        Only batches of the same channel are written in the order they are sent in.
        `purposes`: of the channels' connections. `rounds`: how many batches of one
        partition may be in flight. `may_send`: asked before each round, and before
        the rest of a request that was sent in part.
        """
        parts: dict[int, dict[TopicPartition, Sequence[EncodedBatch]]] = {}
        for key, queue in batches.items():
            parts.setdefault(channels[key] if channels is not None else 0, {})[key] = (
                queue
            )
        self._channels = [
            _Channel(
                cluster, producer, part, topics,
                purpose=purposes[number], rounds=rounds, may_send=may_send,
            )
            for number, part in sorted(parts.items())
        ]  # fmt: skip

    @property
    def sent(self) -> bool:
        """Whether everything is sent, and nothing will be sent again."""
        return all(channel.sent for channel in self._channels)

    @property
    def outstanding(self) -> list[Pending]:
        """The outstanding responses."""
        return [
            pending for channel in self._channels for pending in channel.outstanding
        ]

    @property
    def again_in(self) -> float | None:
        """Seconds until `advance` has something to do without a response."""
        pauses = [channel.again_in for channel in self._channels]
        return min((pause for pause in pauses if pause is not None), default=None)

    @property
    def placed(self) -> list[Placed]:
        """The batches written so far; those of a partition in the order of its log."""
        return [placed for channel in self._channels for placed in channel.placed]

    def take_placed(self) -> list[Placed]:
        """Those of `placed` that no earlier call has returned."""
        return [new for channel in self._channels for new in channel.take_placed()]

    @property
    def throttled_seconds(self) -> float:
        """The longest time that a broker has throttled us, because of a quota."""
        return max(
            (channel.throttled_seconds for channel in self._channels), default=0.0
        )

    def advance(self) -> bool:
        """Read the responses that came and send what may be sent now; returns whether
        everything is written.

        Raises:
            UnreachableError: a partition has no leader, or its leader is gone.
            PartitionError: a partition refuses our batches.
            ClusterError: anything else; take over before writing again.
        """
        written = True
        for channel in self._channels:
            written = channel.advance() and written
            # A broker adds a transaction's partitions for one request at a time.
            if channel.opening:
                return False
        return written

    def finish(self) -> None:
        """Wait until everything is written. Raises as `advance` does."""
        while not self.advance():
            for pending in self.outstanding:
                pending.result()
            if self.again_in:
                time.sleep(self.again_in)


class _Channel:
    """The partitions of a `Write` that share a connection to each leader."""

    def __init__(
        self,
        cluster: Cluster,
        producer: Stamping,
        batches: Mapping[TopicPartition, Sequence[EncodedBatch]],
        topics: Mapping[str, Topic],
        *,
        purpose: str,
        rounds: int,
        may_send: Callable[[], bool],
    ) -> None:
        self._most_rounds = rounds
        self._may_send = may_send
        self._cluster = cluster
        self._producer = producer
        self._topics = topics
        self._purpose = purpose
        self._rounds = deque(
            {key: queue[index] for key, queue in batches.items() if index < len(queue)}
            for index in range(max(map(len, batches.values()), default=0))
        )
        # In v2 the first write to each partition adds it to the transaction, which the
        # broker may put off; until then, no later batch may be in flight.
        self._opening = self._rounds[0] if producer.v2 and self._rounds else {}
        self._put_off: set[TopicPartition] = set()
        self._resend_at = self._pause = 0.0
        self._patience = time.monotonic() + _PATIENCE_SECONDS
        self._number = 0
        self._sent: deque[_Sent] = deque()
        self.placed: list[Placed] = []
        self._taken = 0
        """How many of them were taken."""
        self.throttled_seconds = 0.0

    @property
    def opening(self) -> bool:
        """Whether its first round is unanswered and may need to be sent again."""
        return bool(self._opening)

    @property
    def sent(self) -> bool:
        return not self._rounds and not self._opening

    @property
    def outstanding(self) -> Iterable[Pending]:
        return [sent.pending for sent in self._sent]

    @property
    def again_in(self) -> float | None:
        if not self._put_off or self._sent:
            return None
        return max(0.0, self._resend_at - time.monotonic())

    def take_placed(self) -> list[Placed]:
        taken, self._taken = self._taken, len(self.placed)
        return self.placed[taken:]

    def advance(self) -> bool:
        while self._sent and self._sent[0].pending.answered:
            self._read(self._sent.popleft())
        if self._opening and self._number and not self._sent:
            self._open()
        while self._rounds and self._free() and self._may_send():
            self._send(self._rounds.popleft(), stamp=True)
        return not self._sent and self.sent

    def _read(self, sent: _Sent) -> None:
        done = produce.check(sent.pending.result())
        if done.throttle_ms:
            self.throttled_seconds = max(
                self.throttled_seconds, done.throttle_ms / 1000
            )
            sent.pending.connection.hold(done.throttle_ms / 1000)
        if done.again and not self._opening:
            raise _too_late()
        if done.again:
            self._put_off |= done.again
            self._resend_at = time.monotonic() + _RESEND.after(self._pause)
        self.placed += [
            Placed(where=key, offset=offset, batch=sent.batches[key])
            for key, offset in done.offsets.items()
        ]

    def _open(self) -> None:
        """After the first round's responses: resend what was put off, or go on."""
        if not self._put_off:
            self._opening = {}
            return
        if time.monotonic() > self._patience:
            raise _too_late()
        if time.monotonic() >= self._resend_at:
            self._pause = _RESEND.after(self._pause)
            again = {key: self._opening[key] for key in self._put_off}
            self._put_off = set()
            self._send(again, stamp=False)

    def _free(self) -> bool:
        """Whether one more round may be in flight."""
        if self._opening and self._number:
            return False
        in_flight = self._number - self._sent[0].round if self._sent else 0
        return in_flight < self._most_rounds

    def _send(
        self, part: Mapping[TopicPartition, EncodedBatch], *, stamp: bool
    ) -> None:
        requests: list[tuple[int, dict[TopicPartition, EncodedBatch]]] = []
        room: dict[int, int] = {}
        newest: dict[int, dict[TopicPartition, EncodedBatch]] = {}
        for (topic, partition), batch in part.items():
            shown = self._topics[topic].leaders.get(partition)
            if shown is None or shown.node < 0:
                raise UnreachableError(
                    f"cluster {self._cluster.alias}: no leader for {topic}-{partition}"
                )
            leader = shown.node
            if room.get(leader, 0) < batch.size:
                newest[leader] = {}
                requests.append((leader, newest[leader]))
                room[leader] = _REQUEST_BYTES
            newest[leader][topic, partition] = batch
            room[leader] -= batch.size
            if stamp:
                self._producer.stamp((topic, partition), batch)
        self._number += stamp
        for node, batches in requests:
            connection = self._cluster.connection(node, self._purpose)
            connection.may_send_on = self._may_send
            pending = produce.send(
                connection,
                batches,
                transactional_id=self._producer.transactional_id,
                version=produce.VERSION_TRANSACTIONS_V2
                if self._producer.v2
                else produce.VERSION_PLAIN,
                timeout_ms=_TIMEOUT_MS,
            )
            self._sent.append(
                _Sent(round=self._number - 1, pending=pending, batches=batches)
            )


def _too_late() -> ClusterError:
    return codes.error_for(codes.CONCURRENT_TRANSACTIONS, "producing")
