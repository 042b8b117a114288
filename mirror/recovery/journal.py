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
import time
from typing import TYPE_CHECKING, Any

from mirror import retry
from mirror.batches import records
from mirror.batches.reading import TopicReader
from mirror.batches.writing import append, ensure_topic, write
from mirror.clusters import hanging
from mirror.clusters.admin import topic_admin
from mirror.clusters.transactions import Producer
from mirror.errors import (
    MALFORMED,
    BrokerError,
    ClusterError,
    FencedError,
    MirrorError,
    PartitionError,
    RecreatedError,
    UnreachableError,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from mirror.clusters.cluster import Cluster
    from mirror.clusters.topics import Topic
    from mirror.clusters.wire.produce import EncodedBatch

VERSION = 1
TOPIC = "mirror-journal.internal"
_MOST_BYTES = 16 << 20
"""Of one entry: a step may note many groups, partitions and ACLs."""
TOPIC_CONFIGS = {
    "cleanup.policy": "delete",
    "retention.ms": "-1",
    "max.message.bytes": str(_MOST_BYTES),
}
_TIMEOUT_MS = 30_000
"""Brokers abort the transaction of an operator that died after this time; the next
operator does it at once."""
_TOO_FEW_REPLICAS = "NOT_ENOUGH_REPLICAS"
"""Brokers also say so while the coordinator is away."""
_AGAIN = retry.Backoff(0.05, 1.0)
PATIENCE_SECONDS = 30.0
"""How long to try to write an entry, or to read: longer than a coordinator or leader
takes to move."""


class Kind(StrEnum):
    """What a run does."""

    START = "START"
    """The pair gets its first role, from the configuration."""
    SWITCH = "SWITCH"
    FAILOVER = "FAILOVER"
    FENCE = "FENCE"
    """The fence that a failover owed is laid: an entry of its own, of the same epoch,
    written while no run is open."""


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

    @property
    def identity(self) -> tuple[str, str, int, str, StepState]:
        """The same wherever, and however often, it is written. The number alone is not:
        two operators that each reach one journal may use it twice.
        """
        return self.pair, self.run, self.number, self.step, self.state

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

    def read(
        self, *, wait: bool = True, seconds: float = PATIENCE_SECONDS
    ) -> tuple[Entry, ...]:
        """All entries in order; none while there is no journal. Without `wait` it stops
        before an operator's open transaction. A leader that moves or dies is waited for
        so long, unless the whole cluster does not answer.

        Raises:
            ClusterError: the cluster does not answer, or an entry cannot be read.
        """
        until = time.monotonic() + seconds
        pause = 0.0
        while True:
            if (shown := self._cluster.topic(TOPIC)) is None:
                self._begin()
                return ()
            try:
                self._follow(shown, wait=wait)
            except RecreatedError:
                self._begin()
            except (UnreachableError, BrokerError) as error:
                passes = not isinstance(error, BrokerError) or error.retriable
                if time.monotonic() > until or not passes:
                    if isinstance(error, BrokerError):
                        raise
                    where = f"cluster {self._cluster.alias}: {TOPIC}"
                    raise UnreachableError(
                        f"{where} cannot be read: {error}"
                    ) from error
                pause = _AGAIN.after(pause)
                time.sleep(pause)
            else:
                return tuple(self._entries)

    def _follow(self, shown: Topic, *, wait: bool) -> None:
        for _, key, value in self._reader.read(wait=wait, shown=shown):
            self._entries.append(decode(key, value))


class JournalWriter:
    """The only operator of a pair, as far as one cluster knows. Not thread-safe."""

    def __init__(
        self, cluster: Cluster, pair: str, reader: JournalReader | None = None
    ) -> None:
        """Fences earlier operators of the pair: they can write no more. `reader`: one
        of this cluster that has read the journal before.

        Raises:
            ClusterError: the cluster does not answer, or refuses.
        """
        create(cluster)
        self.alias = cluster.alias
        self.in_doubt = False
        """Whether the last entry may be there although `write` failed."""
        self._cluster = cluster
        self._reader = reader or JournalReader(cluster)
        self._most = topic_admin.max_message_bytes(cluster, [TOPIC])[TOPIC]
        self._producer = Producer(
            cluster,
            transactional_id=transactional_id(pair),
            transaction_timeout_ms=_TIMEOUT_MS,
        )
        self._producer.take_over()
        self._end_hanging()

    def entries(self, *, seconds: float = 0.0) -> tuple[Entry, ...]:
        """What the journal says now. Raises as `JournalReader.read`."""
        return self._reader.read(seconds=seconds)

    def require_place(self) -> None:
        """Raises:
        FencedError: a later operator took over.
        ClusterError: the cluster does not answer.
        """
        self._producer.require_owner()

    def require_room(self, entry: Entry) -> None:
        """Raises:
        ClusterError: the topic does not take an entry as large as this one.
        """
        self._encoded(entry)

    def _encoded(self, entry: Entry) -> EncodedBatch:
        batch = records.encode([entry.record()])
        most = min(self._most, _MOST_BYTES)
        if batch.size > most:
            raise ClusterError(
                f"cluster {self.alias}: what step {entry.step} notes takes {batch.size}"
                f" bytes, and {TOPIC} takes {most} at most (max.message.bytes)"
            )
        return batch

    def write(self, entry: Entry, *, seconds: float = PATIENCE_SECONDS) -> None:
        """Write one entry once, and wait until everyone can read it. A leader or
        coordinator that moves or dies is waited for.

        Raises:
            FencedError: a later operator took over.
            ClusterError: it was not written, or `in_doubt`: it may have been.
        """
        batch = self._encoded(entry)
        until = time.monotonic() + seconds
        self.in_doubt = False
        pause = 0.0
        while True:
            try:
                if pause and self._retaken(entry):
                    return
                self._write(entry, batch)
            except MirrorError as error:
                if time.monotonic() > until or not _passes(error):
                    raise
            else:
                return
            pause = _AGAIN.after(pause)
            time.sleep(pause)

    def _write(self, entry: Entry, batch: EncodedBatch) -> None:
        write(self._cluster, {TOPIC: [batch]}, self._producer)
        self.in_doubt = True
        self._producer.commit()
        # Waits for the transaction's end, without which the next one could undo it.
        if not self._shows(entry):
            raise ClusterError(
                f"cluster {self.alias}: {TOPIC} does not show what was written"
            )
        self.in_doubt = False

    def _retaken(self, entry: Entry) -> bool:
        """After a failed attempt, whether the entry is there all the same.

        Raises:
            FencedError: a later operator took over, or wrote this entry's successor.
        """
        self._producer.retake()  # which ends what is open, one way or the other
        self._end_hanging()
        there = self._shows(entry)
        self.in_doubt = False
        if not there:
            self._require_alone(entry)
        return there

    def _shows(self, entry: Entry) -> bool:
        return entry.identity in {each.identity for each in self.entries()}

    def _require_alone(self, entry: Entry) -> None:
        for each in self.entries():
            if each.run == entry.run and each.number >= entry.number:
                raise FencedError(
                    f"cluster {self.alias}: {each.by} goes on with "
                    f"{entry.kind.lower()} {entry.source}->{entry.target}"
                )

    def _end_hanging(self) -> None:
        """A transaction that was left open would keep everyone from reading on.

        Raises:
            ClusterError: there is one that only people can end.
        """
        topics = self._cluster.topics([TOPIC])
        looked = hanging.complete(self._cluster, [self._producer], topics, [(TOPIC, 0)])
        for each in looked.hanging:
            if not each.ended:
                why = each.refused or "brokers do not know how it ended"
                raise ClusterError(
                    f"cluster {self.alias}: a transaction of {each.transactional_id} "
                    f"was left open in {TOPIC}, and {why}: end it with "
                    "`kafka-transactions.sh abort`, then run the command again"
                )


def require_place(writers: Sequence[JournalWriter]) -> None:
    """Before a change that is not noted one by one. A journal that is silent is no
    matter while another one answers: the next note needs it.

    Raises:
        FencedError: a later operator took over.
        ClusterError: no journal answers, or one refuses.
    """
    silent = []
    for each in writers:
        try:
            each.require_place()
        except UnreachableError as error:
            silent.append(error)
    if silent and len(silent) == len(writers):
        raise silent[0]


def _passes(error: MirrorError) -> bool:
    """Whether a later attempt may succeed."""
    if isinstance(error, PartitionError):
        return error.reason.startswith(_TOO_FEW_REPLICAS)
    return isinstance(error, UnreachableError | BrokerError | RecreatedError)


def transactional_id(pair: str) -> str:
    """Under which operators of a pair write; one for all pairs of two clusters."""
    members, _, _ = pair.partition("/")
    return f"mirror.pair.{members.replace('<->', '.')}"


def create(cluster: Cluster) -> None:
    """Create the journal, unless it is there."""
    ensure_topic(cluster, TOPIC, replication_factor=-1, configs=TOPIC_CONFIGS)


def missing(entries: Iterable[Entry], there: Iterable[Entry]) -> tuple[Entry, ...]:
    """The entries that a journal does not have, in order."""
    known = {each.identity for each in there}
    return tuple(each for each in entries if each.identity not in known)


def copy(cluster: Cluster, entries: Iterable[Entry]) -> None:
    """Add entries that the other cluster has, or a pair's first one; they mean the same
    when they are written twice.

    Raises:
        ClusterError: the cluster does not answer, or refuses.
    """
    create(cluster)
    append(cluster, TOPIC, [entry.record() for entry in entries])
