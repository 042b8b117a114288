"""One connection of a slot to one broker, and the fetch session on it (KIP-227).

Main type: `FetchChannel`: makes the session's next request, which names only what has
changed, and takes its answer. It uses topic ids if the broker supports them. `source`
decides which partitions are read on which channel, and what to believe of an
`FetchAnswer`.
"""

from __future__ import annotations

from dataclasses import dataclass, field
import time
from typing import TYPE_CHECKING, Any

from mirror.clusters import codes, error_counts
from mirror.clusters.wire import fetch, fetch_by_id
from mirror.config.schema import AT_LEAST_ONCE_LINGER_MS, LINGER_MS
from mirror.offsets.progress import NO_ID

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence
    import uuid

    from mirror.clusters.topics import TopicPartition
    from mirror.clusters.wire.connection import Connection
    from mirror.clusters.wire.fetch import Fetched, Wanted
    from mirror.clusters.wire.pending_response import Pending
    from mirror.config.schema import FlowConfig
    from mirror.records.batch import Buffer

Place = tuple[int, int, str]
"""Of a channel: the broker, its number there, and its rack."""

MAX_WAIT_MS = 500
"""How long a broker waits for news before it answers that there are none."""
LINGER_BYTES = 64 << 10
"""A broker that lingers answers as soon as it has this much."""
_LAST_EPOCH = (1 << 31) - 1


def longest_linger_ms(flow: FlowConfig) -> int:
    """For how long brokers wait for more records while few come; 0: they do not."""
    if flow.linger_ms is not None:
        return flow.linger_ms
    return LINGER_MS if flow.exactly_once else AT_LEAST_ONCE_LINGER_MS


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
    """When its last request was sent, monotonic."""
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
        if not goes_on:
            spoken = connection.versions.get(fetch.API_KEY, (0, 0))[1]
            self.by_id = spoken >= fetch_by_id.VERSION and NO_ID not in ids.values()
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
