"""The journal of pairs: every step of every switch, on both clusters.

A topic of one partition per cluster, never deleted, so that either cluster alone tells
which member is active and how to finish or undo a run. Layout: key = the pair, value =
JSON with `version`, `run`, `number` (0, 1, ... within the run), `kind`, `epoch`,
`from`, `to`, `step`, `state`, `at` (ISO 8601, UTC), `by` and `details`. Main types:
`Entry`, `JournalReader`, and `JournalWriter`, of which a later one fences earlier ones.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import UTC, datetime
from enum import StrEnum
import json
from typing import TYPE_CHECKING, Any

from mirror.batches import records
from mirror.batches.reading import TopicReader
from mirror.batches.writing import append, ensure_topic, write
from mirror.clusters.transactions import Producer
from mirror.errors import MALFORMED, ClusterError, RecreatedError

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from mirror.clusters.cluster import Cluster

VERSION = 1
TOPIC = "mirror-journal.internal"
TOPIC_CONFIGS = {"cleanup.policy": "delete", "retention.ms": "-1"}
_TIMEOUT_MS = 30_000
"""Brokers abort the transaction of an operator that died after this time; the next
operator does it at once."""


class Kind(StrEnum):
    """What a run does."""

    START = "START"
    """The pair gets its first role, from the configuration."""
    SWITCH = "SWITCH"
    FAILOVER = "FAILOVER"


class StepState(StrEnum):
    """What an entry says about its step."""

    BEGUN = "BEGUN"
    DONE = "DONE"
    FAILED = "FAILED"
    UNDONE = "UNDONE"


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """One record of the journal."""

    pair: str
    run: str
    number: int
    kind: Kind
    epoch: int
    """The pair's epoch once the run is through."""
    source: str
    """The member that was active before."""
    target: str
    """The member that is to be active."""
    step: str
    state: StepState
    at: float
    """Epoch seconds."""
    by: str
    """user@host, or the service's name."""
    details: Mapping[str, Any] = field(default_factory=dict)

    def record(self) -> tuple[bytes, bytes]:
        """Key and value."""
        at = datetime.fromtimestamp(self.at, UTC).isoformat(timespec="milliseconds")
        told = {
            "version": VERSION,
            "run": self.run,
            "number": self.number,
            "kind": self.kind,
            "epoch": self.epoch,
            "from": self.source,
            "to": self.target,
            "step": self.step,
            "state": self.state,
            "at": at.replace("+00:00", "Z"),
            "by": self.by,
            "details": dict(self.details),
        }
        return self.pair.encode(), json.dumps(told, ensure_ascii=False).encode()


def decode(key: bytes, value: bytes) -> Entry:
    """The reverse of `Entry.record`.

    Raises:
        ClusterError: it is damaged, or from a newer version of mirror.
    """
    try:
        told = json.loads(value)
        if told["version"] == VERSION:
            return Entry(
                pair=key.decode(),
                run=str(told["run"]),
                number=int(told["number"]),
                kind=Kind(told["kind"]),
                epoch=int(told["epoch"]),
                source=str(told["from"]),
                target=str(told["to"]),
                step=str(told["step"]),
                state=StepState(told["state"]),
                at=datetime.fromisoformat(told["at"]).timestamp(),
                by=str(told["by"]),
                details=dict(told["details"]),
            )
        version = told["version"]
    except MALFORMED as error:
        raise ClusterError(f"{TOPIC}: a record is damaged: {error!r}") from error
    raise ClusterError(
        f"{TOPIC} has a record of version {version}; this mirror reads {VERSION}: use "
        "the newest mirror for this cluster"
    )


class JournalReader:
    """Reads the journal of one cluster once, and later only what was added."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._begin()

    def _begin(self) -> None:
        self._reader = TopicReader(self._cluster, TOPIC)
        self._entries: list[Entry] = []

    def read(self, *, wait: bool = True) -> tuple[Entry, ...]:
        """All entries in order; none while there is no journal. Without `wait` it stops
        before an operator's open transaction.

        Raises:
            ClusterError: the cluster does not answer, or an entry cannot be read.
        """
        if self._cluster.topic(TOPIC) is None:
            self._begin()
            return ()
        try:
            self._follow(wait=wait)
        except RecreatedError:
            self._begin()
            self._follow(wait=wait)
        return tuple(self._entries)

    def _follow(self, *, wait: bool) -> None:
        for _, key, value in self._reader.read(wait=wait):
            self._entries.append(decode(key, value))


class JournalWriter:
    """The only operator of a pair, as far as one cluster knows. Not thread-safe."""

    def __init__(self, cluster: Cluster, pair: str) -> None:
        """Fences earlier operators of the pair: they can write no more.

        Raises:
            ClusterError: the cluster does not answer, or refuses.
        """
        create(cluster)
        self._cluster = cluster
        self._reader = JournalReader(cluster)
        self._producer = Producer(
            cluster,
            transactional_id=transactional_id(pair),
            transaction_timeout_ms=_TIMEOUT_MS,
        )
        self._producer.take_over()

    def entries(self) -> tuple[Entry, ...]:
        """What the journal says now. Raises as `JournalReader.read`."""
        return self._reader.read()

    def write(self, entry: Entry) -> None:
        """Write one entry, and wait until everyone can read it.

        Raises:
            FencedError: a later operator took over; nothing was written.
            ClusterError: it may be written or not: look, with a new writer.
        """
        batch = records.encode([entry.record()])
        write(self._cluster, {TOPIC: [batch]}, self._producer)
        self._producer.commit()
        # Waits for the transaction's end, without which the next one could undo it.
        written = {(each.run, each.number) for each in self._reader.read()}
        if (entry.run, entry.number) not in written:
            raise ClusterError(
                f"cluster {self._cluster.alias}: {TOPIC} does not show what was written"
            )


def transactional_id(pair: str) -> str:
    """Under which operators of a pair write."""
    return f"mirror.pair.{pair.replace('<->', '.')}"


def create(cluster: Cluster) -> None:
    """Create the journal, unless it is there."""
    ensure_topic(cluster, TOPIC, replication_factor=-1, configs=TOPIC_CONFIGS)


def copy(cluster: Cluster, entries: Iterable[Entry]) -> None:
    """Add entries that the other cluster has, or a pair's first one; they mean the same
    when they are written twice.

    Raises:
        ClusterError: the cluster does not answer, or refuses.
    """
    create(cluster)
    append(cluster, TOPIC, [entry.record() for entry in entries])
