"""Heartbeats: a record a second that shows that a flow is alive.

Main type: `Heartbeats`, of one flow. It writes to `heartbeats` on the flow's target, as
MirrorMaker 2 does, and on request also on its source. It watches the copy of the
source's heartbeats on the target, which shows that copying works even without other
records. `policy` lets them be copied.

`Heartbeat` has the format, big-endian, STRING = INT16 length + UTF-8: key source alias
STRING, target alias STRING; value version INT16 = 0, epoch milliseconds INT64. Java's
clients read these, so every byte must match.
"""

from __future__ import annotations

from dataclasses import dataclass
import struct
import time
from typing import TYPE_CHECKING

from mirror.clusters import codes
from mirror.clusters.admin import topic_admin
from mirror.config import own_topics
from mirror.errors import ClusterError, CorruptBatchError, MirrorError
from mirror.policy.naming import HEARTBEATS
from mirror.records.reading import TopicReader
from mirror.records.records import encode_string, read_string
from mirror.records.writing import TopicWriter, ensure_topic

if TYPE_CHECKING:
    from mirror.clusters.cluster import Cluster

_TIME = struct.Struct(">hq")
_LOOK_SECONDS = 5.0
_PAUSE_SECONDS = 30.0
"""Pause before retrying a source that rejects heartbeats."""
_LAST_RECORDS = 20
"""Of the last this many offsets, markers included, one is surely a heartbeat."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Heartbeat:
    """A sign of life of the flow from source to target, on the target."""

    source: str
    target: str
    timestamp: int
    """Epoch milliseconds."""

    def encode(self) -> tuple[bytes, bytes]:
        """Key and value."""
        return (
            encode_string(self.source) + encode_string(self.target),
            _TIME.pack(0, self.timestamp),
        )

    @classmethod
    def decode(cls, key: bytes, value: bytes) -> Heartbeat:
        """Raises CorruptBatchError if it is none."""
        try:
            source, at = read_string(key, 0)
            target, _ = read_string(key, at)
            return cls(
                source=source, target=target, timestamp=_TIME.unpack_from(value)[1]
            )
        except (struct.error, UnicodeDecodeError) as error:
            raise CorruptBatchError(f"not a heartbeat: {error}") from error


@dataclass(frozen=True, slots=True, kw_only=True)
class HeartbeatsResult:
    """What one beat did and saw. Times are epoch seconds, 0 for never."""

    written_at: float
    copied_at: float
    """When the newest heartbeat copied from the source was written there."""
    problem: str = ""
    """Why there is none on the source although requested."""


class Heartbeats:
    """The heartbeats of one flow. Not thread-safe."""

    def __init__(
        self,
        source_alias: str,
        target_alias: str,
        copy_topic: str,
        *,
        on_target: bool = True,
        on_source: bool = False,
        replication_factor: int = -1,
    ) -> None:
        """`copy_topic`: the name of the copy of the source's heartbeats.

        `replication_factor`: of the topics, if they must be created.
        """
        self.watches = True
        """Whether copies may come; without it they are looked at only once."""
        self._aliases = (source_alias, target_alias)
        self._copy_topic = copy_topic
        self._on_target = on_target
        self._on_source = on_source
        self._problem = ""
        self._again_at = 0.0
        self._replication_factor = replication_factor
        self._writers: dict[str, tuple[Cluster, TopicWriter]] = {}
        self._looked_at = 0.0
        self._copied_at = 0.0
        self._position = 0

    def sync(self, source: Cluster, target: Cluster) -> HeartbeatsResult:
        """Write one heartbeat.

        Raises:
            MirrorError: the target does not take it, or the copies cannot be read.
        """
        mine, other = self._aliases
        now = time.time()
        if self._on_target:
            self._write(target, mine, other, now)
        if self._on_source and time.monotonic() >= self._again_at:
            try:
                self._write(source, other, mine, now)
                self._problem = ""
            except MirrorError as error:
                # The target's heartbeats keep their rhythm, whatever the source does.
                self._problem = str(error)
                self._again_at = time.monotonic() + _PAUSE_SECONDS
        due = time.monotonic() - self._looked_at >= _LOOK_SECONDS
        if due and (self.watches or not self._looked_at):
            self._look(target)
            self._looked_at = time.monotonic()
        return HeartbeatsResult(
            written_at=now if self._on_target else 0.0,
            copied_at=self._copied_at,
            problem=self._problem,
        )

    def _write(self, cluster: Cluster, source: str, target: str, now: float) -> None:
        beat = Heartbeat(source=source, target=target, timestamp=int(now * 1000))
        self._writer(cluster).write([beat.encode()])

    def _writer(self, cluster: Cluster) -> TopicWriter:
        known = self._writers.get(cluster.alias)
        if known is not None and known[0] is cluster:
            return known[1]
        ensure_topic(
            cluster,
            own_topics.HEARTBEATS,
            HEARTBEATS,
            replication_factor=self._replication_factor,
        )
        writer = TopicWriter(cluster, HEARTBEATS)
        self._writers[cluster.alias] = (cluster, writer)
        return writer

    def _look(self, target: Cluster) -> None:
        shown = target.topics([self._copy_topic])[self._copy_topic]
        if shown.error == codes.UNKNOWN_TOPIC_OR_PARTITION:
            return
        place = (self._copy_topic, 0)
        end = topic_admin.list_offsets(
            target, [place], timestamp=topic_admin.LATEST
        ).get(place)
        if end is None:
            raise ClusterError(
                f"cluster {target.alias}: {self._copy_topic} has no leader"
            )
        if end < self._position:  # the topic was re-created
            self._position = 0
        position = max(self._position, end - _LAST_RECORDS)
        reader = TopicReader(target, self._copy_topic, position=position)
        for _, key, value in reader.read(end=end):
            try:
                beat = Heartbeat.decode(key, value)
            except CorruptBatchError:  # someone else's topic under this name
                continue
            self._copied_at = max(self._copied_at, beat.timestamp / 1000)
        self._position = reader.position
