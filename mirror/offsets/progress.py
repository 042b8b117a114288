"""Progress: how far each source partition is copied, kept on the target.

A compacted topic of one partition per source cluster. Its records are written inside
the data transactions, so progress and copies cannot differ. Main types: `Position`, and
`Progress`, as a `ProgressReader` finds it; `RunningCount`, what was copied on the way
there. One more record names the *generation*: the driver run that may write now. A task
that finds a generation other than its own has been replaced and must stop.

Layout, big-endian: key = topic (INT16 length + UTF-8), partition INT32; value = version
INT16 = 0, next offset INT64 (-1: `UNSETTLED`), leader epoch INT32, topic id 16 bytes,
the id before the topic was re-created 16 bytes (zeros: none), running count: service 16
bytes, begun INT64 in epoch ms, n INT16, n INT64; `oldest_leader` INT32. What is at the
end may be missing: earlier releases do not write it, and ignore it. The generation's
key has an empty topic and partition -1; its value is version INT16 = 0 and UTF-8 text.
For notes about copies with the source's offsets see `terms`.
Tombstones with partition -2 mean nothing: a leader proves with them that it leads.
"""

from __future__ import annotations

from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
import json
import struct
import threading
from typing import TYPE_CHECKING
import uuid

from mirror.clusters import topics
from mirror.config import own_topics
from mirror.errors import MALFORMED, ClusterError, RecreatedError
from mirror.offsets import terms
from mirror.records import records
from mirror.records.reading import TopicReader
from mirror.records.writing import prove_leader
from mirror.status.values import NOTHING, Counts

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from mirror.clusters.cluster import Cluster
    from mirror.clusters.topics import TopicPartition
    from mirror.clusters.wire.produce import EncodedBatch
    from mirror.offsets.terms import TermNote


NO_ID = topics.NO_ID

UNSETTLED = -1
"""Of a partition that did not answer when the flow first started."""

_VALUE = struct.Struct(">hqi16s")
_COUNT = struct.Struct(">16sqh")
_NO_COUNT = _COUNT.pack(bytes(16), 0, 0)
_INT32 = struct.Struct(">i")
_INT16 = struct.Struct(">h")
_LENGTH = struct.Struct(">H")
_GENERATION_KEY = _INT16.pack(0) + _INT32.pack(-1)
PROOF_KEY = _INT16.pack(0) + _INT32.pack(-2)
_OFFSET = slice(_INT16.size, _INT16.size + 8)
"""Where a value has its next offset."""
_UNSETTLED = struct.pack(">q", UNSETTLED)
MARK = (_OFFSET.start, _UNSETTLED)
"""Of records that only replace their like."""

_Written = tuple[int, bytes]
"""The offset of a record's batch, and its value."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Position:
    """The next source offset to copy, and the topic and epoch that it belongs to."""

    offset: int
    """`UNSETTLED`: the end of `leader_epoch`'s records, not known yet."""
    leader_epoch: int = -1
    """The epoch under which the record before it was written; -1 if unknown."""
    topic_id: uuid.UUID = NO_ID
    left_id: uuid.UUID = NO_ID
    """The topic's id before it was re-created: it never comes back."""
    oldest_leader: int = -1
    """Leaders of an earlier epoch may still show what the source lost before this
    position, and are not believed; -1: nothing was lost just before it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RunningCount:
    """What was done to a partition since `begun`, up to the position beside it."""

    service: uuid.UUID
    """Identifies a flow in one process of the service, for which the slots count."""
    begun: int
    """When it was zero, epoch ms: distinguishes a service's counts of a partition."""
    counts: Counts = NOTHING

    def __add__(self, more: Counts) -> RunningCount:
        return RunningCount(
            service=self.service, begun=self.begun, counts=self.counts + more
        )

    def encoded(self) -> bytes:
        each = self.counts.each
        # Most of the later ones are zero, and a take-over reads all records.
        while each and not each[-1]:
            each = each[:-1]
        head = _COUNT.pack(self.service.bytes, self.begun, len(each))
        return head + struct.pack(f">{len(each)}q", *each)

    @classmethod
    def decode(cls, written: bytes) -> RunningCount | None:
        """None if nothing is written.

        Raises:
            ClusterError: it is damaged.
        """
        if not written:
            return None
        try:
            service, begun, count = _COUNT.unpack_from(written)
            each = struct.unpack_from(f">{max(count, 0)}q", written, _COUNT.size)
        except struct.error as error:
            raise damaged(error) from error
        return cls(
            service=uuid.UUID(bytes=service), begun=begun, counts=Counts.in_order(*each)
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Progress:
    """What the progress topic says."""

    generation: str = ""
    positions: Mapping[TopicPartition, Position] = field(default_factory=dict)
    unsettled: Mapping[TopicPartition, Position] = field(default_factory=dict)
    """Of partitions that have no position yet; see `starting.settle`."""
    running: Mapping[TopicPartition, bytes] = field(default_factory=dict)
    """The encoded `RunningCount` written with each position; empty if there is none.
    Only the slot that continues it decodes it."""
    terms: Mapping[str, TermNote] = field(default_factory=dict)
    """By source topic, of copies with the source's offsets."""
    start: int = 0
    """The topic's first offset. Above 0: what stood before it was deleted, which
    compaction never does."""

    def require_whole(self, flow: str) -> None:
        """
        Raises:
            ClusterError: positions were deleted since `mirror flow reset` last said
                where to continue, or the generation is damaged.
        """
        if not self.start:
            return
        try:
            accepted = json.loads(self.generation or "{}").get("start", 0)
        except MALFORMED as error:
            raise damaged(error) from error
        if self.start > accepted:
            raise ClusterError(
                f"{topic_name(flow.partition('->')[0])} begins at offset {self.start}: "
                "somebody has deleted what stood there before, so positions are "
                "missing, and records would be copied twice. See what the copies have "
                f"with `mirror verify --flow {flow}`, then set where to continue with "
                f"`mirror flow reset {flow}`"
            )


def topic_name(source_alias: str) -> str:
    return own_topics.PROGRESS.named(source_alias)


def encode(
    positions: Mapping[TopicPartition, Position],
    running: Mapping[TopicPartition, bytes] | None = None,
) -> list[EncodedBatch]:
    """Batches that every topic accepts, with one record per partition."""
    running = running or {}
    return records.encode_all(
        (_key(*where), _value(position, running.get(where, b"")))
        for where, position in positions.items()
    )


def decode(key: bytes, value: bytes) -> str | tuple[TopicPartition, Position, bytes]:
    """The content of one record: the generation, or a partition's position, with its
    encoded `RunningCount`, if there is one.

    Raises:
        ClusterError: it is neither.
    """
    try:
        if key == _GENERATION_KEY:
            return value[_INT16.size :].decode()
        length = _LENGTH.unpack_from(key)[0]
        name = key[2 : 2 + length].decode()
        _, offset, epoch, topic_id = _VALUE.unpack_from(value)
        partition = _INT32.unpack_from(key, 2 + length)[0]
        running, rest = _split(value[_VALUE.size + 16 :])
        oldest = _INT32.unpack(rest)[0] if rest else -1
    except (struct.error, ValueError) as error:
        raise damaged(error) from error
    position = Position(
        offset=offset,
        leader_epoch=epoch,
        topic_id=uuid.UUID(bytes=topic_id),
        left_id=_left_id(value),
        oldest_leader=oldest,
    )
    return (name, partition), position, running


def encode_generation(generation: str) -> EncodedBatch:
    return records.encode([(_GENERATION_KEY, _INT16.pack(0) + generation.encode())])


def read(
    cluster: Cluster, topic: str, *, committed: bool = True, wait: bool = True
) -> Progress:
    """Everything written so far, or only what is `committed`.

    For the latter it waits until transactions open at the call have ended: call it
    after taking over our own, or without `wait`, which stops before the first open
    one. Uncommitted records only show that someone was there.

    Raises:
        ClusterError: the topic cannot be read, or a foreign transaction on it stays
            open, or it contains a record that is not ours.
    """
    return reader(cluster, topic, committed=committed).read(wait=wait)


def read_existing(cluster: Cluster, topic: str) -> Progress:
    """As `read` without `wait`; empty where there is no such topic."""
    if cluster.topic(topic) is None:
        return Progress()
    return read(cluster, topic, wait=False)


@contextmanager
def reading_once() -> Iterator[None]:
    """Within it this thread reads each topic once, and later only what was added: a
    run that begins, a switch or a drill asks four times or more for what may be 100,000
    records.
    """
    before = _readers.set({})
    try:
        yield
    finally:
        _readers.reset(before)


def reader(cluster: Cluster, topic: str, *, committed: bool = True) -> ProgressReader:
    """A new one, or within `reading_once` the one that this thread has."""
    made = ProgressReader(cluster, topic, committed=committed)
    kept = _readers.get()
    return made if kept is None else kept.setdefault((cluster, topic, committed), made)


def read_proven(cluster: Cluster, topic: str, *, committed: bool = True) -> Progress:
    """As `read`, from a leader that has just proven that it leads.

    A leader that is cut off from its cluster shows old data. Positions read there would
    go back, and records would be copied twice.

    Raises:
        MirrorError: as `read`, or the leader cannot prove it.
    """
    proof = prove_leader(cluster, topic, PROOF_KEY)
    return reader(cluster, topic, committed=committed).read(at_least=proof + 1)


class ProgressReader:
    """Reads the topic once, and later only what was added. Of each partition the newest
    record counts: what it replaces is not looked into, damaged or not, as compaction
    may delete it any time. Thread-safe.
    """

    def __init__(self, cluster: Cluster, topic: str, *, committed: bool = True) -> None:
        self._lock = threading.Lock()
        self._cluster = cluster
        self._topic = topic
        self._committed = committed
        self._begin()

    def _begin(self) -> None:
        self._reader = TopicReader(
            self._cluster,
            self._topic,
            committed=self._committed,
            newest=MARK,
        )
        self._newest: dict[bytes, _Written] = {}
        self._marks: dict[bytes, _Written] = {}
        """`UNSETTLED`, of keys without a newer position."""
        self._generation = ""
        self._positions: dict[TopicPartition, Position] = {}
        self._unsettled: dict[TopicPartition, Position] = {}
        self._running: dict[TopicPartition, bytes] = {}
        self._terms: dict[str, TermNote] = {}

    def read(self, *, at_least: int = 0, wait: bool = True) -> Progress:
        """As the function `read`; later calls do not change what it returned. It waits
        until the leader shows the offsets below `at_least`.
        """
        with self._lock:
            try:
                self._follow(at_least=at_least, wait=wait)
            except RecreatedError:
                self._begin()
                self._follow(at_least=at_least, wait=wait)
            return Progress(
                generation=self._generation,
                positions=dict(self._positions),
                unsettled=dict(self._unsettled),
                running=dict(self._running),
                terms=dict(self._terms),
                start=self._reader.start,
            )

    def _follow(self, *, at_least: int, wait: bool) -> None:
        # Small transactions write thousands of records per partition: to decode them
        # all takes most of the time.
        for offset, key, value in self._reader.read(at_least=at_least, wait=wait):
            about_offset = key != _GENERATION_KEY and not terms.is_note(key)
            if value[_OFFSET] == _UNSETTLED and about_offset:
                self._marks[key] = offset, value
            else:
                self._marks.pop(key, None)
                self._newest[key] = offset, value
        for key, written in self._newest.items():
            self._keep(key, written)
        for key, written in self._marks.items():
            self._keep(key, written)
        # Only now: what is damaged is so in the next read, too, unless replaced.
        self._newest.clear()
        self._marks.clear()

    def _keep(self, key: bytes, written: _Written) -> None:
        offset, value = written
        try:
            if terms.is_note(key):
                topic, note = terms.decode(key, value)
                self._terms[topic] = note
                return
            found = decode(key, value)
        except ClusterError as error:
            place = f"{self._topic}, offset {offset}"
            raise ClusterError(f"{place}: {error}") from error
        if isinstance(found, str):
            self._generation = found
            return
        where, position, running = found
        if position.offset == UNSETTLED:
            self._unsettled[where] = position
            return
        self._unsettled.pop(where, None)
        self._positions[where] = position
        self._running[where] = running


_readers: ContextVar[dict[tuple[Cluster, str, bool], ProgressReader] | None] = (
    ContextVar("readers", default=None)
)
"""By cluster, topic and `committed`, within `reading_once`."""


def _key(topic: str, partition: int) -> bytes:
    name = topic.encode()
    return _INT16.pack(len(name)) + name + _INT32.pack(partition)


def _value(position: Position, running: bytes) -> bytes:
    oldest = b""
    if position.oldest_leader >= 0:
        running = running or _NO_COUNT
        oldest = _INT32.pack(position.oldest_leader)
    left = position.left_id.bytes if running or position.left_id != NO_ID else b""
    fixed = _VALUE.pack(
        0, position.offset, position.leader_epoch, position.topic_id.bytes
    )
    return fixed + left + running + oldest


def _split(written: bytes) -> tuple[bytes, bytes]:
    """A count, empty if there is none, and what follows it."""
    if len(written) < _COUNT.size:
        return written, b""
    end = _COUNT.size + 8 * max(_COUNT.unpack_from(written)[2], 0)
    count = written[:end]
    return (b"" if count == _NO_COUNT else count), written[end : end + _INT32.size]


def _left_id(value: bytes) -> uuid.UUID:
    left = value[_VALUE.size : _VALUE.size + 16]
    if len(left) < 16 or left == NO_ID.bytes:
        return NO_ID
    return uuid.UUID(bytes=left)


def damaged(error: Exception) -> ClusterError:
    return ClusterError(
        f"a record of the progress topic is damaged ({error}). Nothing is copied, as a "
        "position may be missing: see docs/explanation/failures.md"
    )
