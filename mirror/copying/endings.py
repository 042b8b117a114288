"""Whether transactions have ended in every partition that they wrote to.

Main type: `Endings`. Brokers 4.x skip a partition that has no leader when a transaction
is committed (`clusters.hanging`), and a slot need not notice. If the same id wrote
there again and then had to abort, the abort would take the committed records with it.
So a slot uses an id again only when the leaders say that nothing of it is open. Small
transactions are asked about together, once the next one needs the id of one of them. If
that takes too long, the slot takes over, which gets the missing markers written.
"""

from __future__ import annotations

from dataclasses import dataclass, field
import time
from typing import TYPE_CHECKING

from mirror.clusters import codes, hanging
from mirror.errors import ClusterError

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from mirror.clusters.cluster import Cluster
    from mirror.clusters.topics import Topic, TopicPartition
    from mirror.clusters.wire.connection import Connection
    from mirror.clusters.wire.pending_response import Pending


_FIRST_SECONDS = 0.001
"""On a near cluster, markers usually arrive within this time."""
_COMPANY_SECONDS = 0.05
"""How long the ending of an id that is not needed yet waits to be asked with others."""
_LONGEST_SECONDS = 0.1
_PATIENCE_SECONDS = 5.0
"""A take-over before all markers are written waits for them, so this may be short."""


@dataclass(slots=True, kw_only=True)
class _Ending:
    """A transaction, and where it may be open."""

    producer_id: int
    partitions: tuple[TopicPartition, ...]
    at: float
    """From when on to ask, monotonic; while `pending` is empty."""
    patience: float
    pause: float = _FIRST_SECONDS
    pending: list[Pending] = field(default_factory=list)


class Endings:
    """The transactions of a slot that may still be open in some partition."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._endings: dict[str, _Ending] = {}
        self._topics: Mapping[str, Topic] = {}

    def begin(self) -> None:
        """Forget them all: the slot is taking over."""
        self._endings.clear()

    def expect(
        self,
        transactional_id: str,
        producer_id: int,
        partitions: Iterable[TopicPartition],
        topics: Mapping[str, Topic],
    ) -> None:
        """Find out when this id's transaction has ended in these partitions. `topics`
        are those that the last take-over found.
        """
        now = time.monotonic()
        self._topics = topics
        self._endings[transactional_id] = _Ending(
            producer_id=producer_id,
            partitions=tuple(partitions),
            at=now + _FIRST_SECONDS,
            patience=now + _PATIENCE_SECONDS,
        )

    def awaits(self, transactional_id: str | None) -> bool:
        """Whether a transaction of this id may still be open somewhere."""
        return transactional_id in self._endings

    def connections(self) -> list[Connection]:
        """Connections with outstanding answers."""
        return [
            pending.connection
            for ending in self._endings.values()
            for pending in ending.pending
            if not pending.answered
        ]

    def again_in(self, next_id: str | None) -> float | None:
        """Seconds until `advance` has something to do even without an answer."""
        due = [
            each.at + (0 if name == next_id else _COMPANY_SECONDS)
            for name, each in self._endings.items()
            if not each.pending
        ]
        return max(0.0, min(due) - time.monotonic()) if due else None

    def advance(self, next_id: str | None) -> None:
        """Ask leaders, and read what they answered, without waiting. `next_id`: the id
        of the next transaction, which does not wait to be asked about with others.

        Raises:
            ClusterError: a leader cannot be asked or refuses, or a transaction stays
                open: take over.
        """
        for transactional_id, ending in tuple(self._endings.items()):
            if ending.pending and all(each.answered for each in ending.pending):
                self._read(transactional_id, ending)
        if self.again_in(next_id) == 0:
            self._ask()

    def finish(self) -> None:
        """Wait until all have ended. Raises as `advance` does."""
        while self._endings:
            first = next(iter(self._endings))
            time.sleep(self.again_in(first) or 0.0)
            self.advance(first)
            for ending in self._endings.values():
                for pending in ending.pending:
                    pending.result()

    def _ask(self) -> None:
        """Ask about all that may have ended, together."""
        now = time.monotonic()
        due = {
            name: each
            for name, each in self._endings.items()
            if not each.pending and now >= each.at
        }
        where = dict.fromkeys(key for each in due.values() for key in each.partitions)
        sent = [
            hanging.ask(self._cluster, leader, names)
            for leader, names in hanging.by_leader(self._topics, where).items()
        ]
        for name, ending in due.items():
            ending.pending = [each for each in sent if each is not None]
            if not ending.pending:
                del self._endings[name]

    def _read(self, transactional_id: str, ending: _Ending) -> None:
        left = []
        for pending in ending.pending:
            found, errors = hanging.read(pending.result())
            for (topic, partition), error in errors.items():
                raise codes.error_for(error, f"transactions in {topic}-{partition}")
            for (producer_id, _), where in found.items():
                left += where if producer_id == ending.producer_id else []
        if not left:
            del self._endings[transactional_id]
            return
        if time.monotonic() > ending.patience:
            topic, partition = left[0]
            raise ClusterError(
                f"cluster {self._cluster.alias}: a transaction of {transactional_id} "
                f"has ended, but not in {topic}-{partition}"
            )
        ending.pending = []
        ending.at = time.monotonic() + ending.pause
        ending.pause = min(2 * ending.pause, _LONGEST_SECONDS)
