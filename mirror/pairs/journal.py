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
from mirror.clusters import hanging
from mirror.clusters.admin import topic_admin
from mirror.clusters.transactions import Producer
from mirror.clusters.wire.write import Write
from mirror.config import own_topics
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
from mirror.records import records
from mirror.records.reading import TopicReader
from mirror.records.writing import append, ensure_topic

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from mirror.clusters.cluster import Cluster
    from mirror.clusters.topics import Topic
    from mirror.clusters.wire.produce import EncodedBatch

VERSION = 1
TOPIC = own_topics.JOURNAL.named()
_MOST_BYTES = int(own_topics.JOURNAL.configs[own_topics.LARGEST])
"""Of one entry: a step may note many groups, partitions and ACLs."""
_TIMEOUT_MS = 30_000
"""After which brokers abort an operator's transaction; the next one does it at once."""
_TOO_FEW_REPLICAS = "NOT_ENOUGH_REPLICAS"
"""Brokers also say so while the coordinator is away."""
_AGAIN = retry.Backoff(0.05, 1.0)
PATIENCE_SECONDS = 30.0
"""To write an entry, or to read: longer than a coordinator or leader takes to move."""


class Kind(StrEnum):
    """What a run does."""

    START = "START"
    """The pair gets its first role, from the configuration."""
    SWITCH = "SWITCH"
    FAILOVER = "FAILOVER"
    FENCE = "FENCE"
    """An owed fence is laid: one entry, of the same epoch, while no run is open."""


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
        self,
        *,
        wait: bool = True,
        seconds: float = PATIENCE_SECONDS,
        shown: Topic | None = None,
    ) -> tuple[Entry, ...]:
        """All entries in order; none while there is no journal. Without `wait` it stops
        before an operator's open transaction. A leader that moves or dies is waited for
        so long, unless the whole cluster does not answer. `shown`: by the cluster.

        Raises:
            ClusterError: the cluster does not answer, or an entry cannot be read.
        """
        until = time.monotonic() + seconds
        pause = 0.0
        while True:
            known, shown = shown or self._cluster.topic(TOPIC), None
            if known is None:
                self._begin()
                return ()
            try:
                self._follow(known, wait=wait)
            except RecreatedError:
                self._begin()
            except (UnreachableError, BrokerError) as error:
                passes = not isinstance(error, BrokerError) or error.retriable
                if time.monotonic() > until or not passes:
                    if isinstance(error, BrokerError):
                        raise
                    where = f"cluster {self._cluster.alias}: {TOPIC} cannot be read"
                    raise UnreachableError(f"{where}: {error}") from error
                pause = _AGAIN.after(pause)
                time.sleep(pause)
            else:
                return tuple(self._entries)

    def _follow(self, shown: Topic, *, wait: bool) -> None:
        if not wait and self._reader.topic_id == shown.topic_id:  # mostly no more
            where, topics = (TOPIC, 0), {TOPIC: shown}
            latest = topic_admin.list_offsets(
                self._cluster, [where], timestamp=topic_admin.LATEST, topics=topics
            )
            if latest.get(where) == self._reader.position:
                return
        for _, key, value in self._reader.read(wait=wait, shown=shown):
            try:
                self._entries.append(decode(key, value))
            except ClusterError:
                self._begin()  # else what stands before it is there twice next time
                raise


def await_agreement(clusters: Iterable[Cluster]) -> None:
    """Wait until the brokers of each cluster agree whether it has a journal. One that
    has just started may not know its topics yet, and a journal without entries says
    that its pairs never had a role.

    Raises:
        UnreachableError: they do not agree in time.
        ClusterError: no broker of a cluster answers.
    """
    until = time.monotonic() + PATIENCE_SECONDS
    for cluster in clusters:
        pause = 0.0
        while True:
            answers = cluster.views([TOPIC]).answers.values()
            if len({answer[TOPIC].error for answer in answers}) == 1:
                break
            if time.monotonic() > until:
                raise UnreachableError(
                    f"cluster {cluster.alias}: not all brokers know {TOPIC}"
                )
            pause = _AGAIN.after(pause)
            time.sleep(pause)


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
        self._shown: Mapping[str, Topic] | None = None
        """The journal as it was when the last entries were written."""
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
        self.tells_place = self._producer.tells_owner
        """Whether `require_place` finds out; brokers before 3.0 do not tell."""

    def entries(self, *, seconds: float = 0.0) -> tuple[Entry, ...]:
        """What the journal says now. Raises as `JournalReader.read`."""
        return self._reader.read(seconds=seconds)

    def require_place(self) -> None:
        """Raises:
        FencedError: a later operator took over.
        ClusterError: the cluster does not answer.
        """
        self._producer.require_owner()

    def require_room(self, *entries: Entry) -> EncodedBatch:
        """The entries as a batch.

        Raises:
            ClusterError: the topic does not take one as large as this.
        """
        batch = records.encode([entry.record() for entry in entries])
        most = min(self._most, _MOST_BYTES)
        if batch.size > most:
            step = entries[0].step
            raise ClusterError(
                f"cluster {self.alias}: what step {step} notes takes {batch.size}"
                f" bytes, and {TOPIC} takes {most} at most (max.message.bytes)"
            )
        return batch

    def write(self, *entries: Entry, seconds: float = PATIENCE_SECONDS) -> None:
        """Write entries of one run once, in one transaction, and wait until everyone
        can read them. A leader or coordinator that moves or dies is waited for.

        Raises:
            FencedError: a later operator took over.
            ClusterError: none was written, or `in_doubt`: all may have been.
        """
        batch = self.require_room(*entries)
        until = time.monotonic() + seconds
        self.in_doubt = False
        pause = 0.0
        while True:
            try:
                if pause and self._retaken(entries):
                    return
                self._write(entries, batch)
            except MirrorError as error:
                if time.monotonic() > until or not _passes(error):
                    raise
            else:
                return
            pause = _AGAIN.after(pause)
            time.sleep(pause)

    def _write(self, entries: Sequence[Entry], batch: EncodedBatch) -> None:
        # Who took the last entries leads it still, or says that it does not: a note
        # waits for no more answers than it must, as producers may be blocked meanwhile.
        topics = self._shown or self._cluster.topics([TOPIC])
        self._shown = None
        if not self._producer.v2:
            self._producer.add_partitions([(TOPIC, 0)])
        Write(self._cluster, self._producer, {(TOPIC, 0): [batch]}, topics).finish()
        self.in_doubt = True
        self._producer.commit()
        # Waits for the transaction's end, without which the next one could undo it.
        if missing(entries, self._reader.read(seconds=0.0, shown=topics[TOPIC])):
            raise ClusterError(
                f"cluster {self.alias}: {TOPIC} does not show what was written"
            )
        self.in_doubt = False
        self._shown = topics

    def _retaken(self, entries: Sequence[Entry]) -> bool:
        """After a failed attempt, whether the entries are there all the same.

        Raises:
            FencedError: a later operator took over, or wrote what follows.
        """
        self._producer.retake()  # which ends what is open, one way or the other
        self._end_hanging()
        there = not missing(entries, self.entries())
        self.in_doubt = False
        if not there:
            self._require_alone(entries[0])
        return there

    def _require_alone(self, entry: Entry) -> None:
        for each in self.entries():
            if each.run == entry.run and each.number >= entry.number:
                run = f"{entry.kind.lower()} {entry.source}->{entry.target}"
                raise FencedError(f"cluster {self.alias}: {each.by} goes on with {run}")

    def _end_hanging(self) -> None:
        """A transaction that was left open would keep everyone from reading on. Who
        wrote it has not gone on: `_write` waits until the journal shows what it wrote.

        Raises:
            ClusterError: there is one that only people can end.
        """
        where = self._cluster.topics([TOPIC]), [(TOPIC, 0)]
        looked = hanging.complete(
            self._cluster, [self._producer], *where, aborts_unknown=True
        )
        for each in looked.hanging:
            if not each.ended:
                why = each.refused or "brokers do not know how it ended"
                raise ClusterError(
                    f"cluster {self.alias}: a transaction of {each.transactional_id} "
                    f"was left open in {TOPIC}, and {why}: end it with "
                    "`kafka-transactions.sh abort`, then run the command again"
                )


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
    replicas = cluster.own_replicas
    ensure_topic(cluster, own_topics.JOURNAL, TOPIC, replication_factor=replicas)


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
