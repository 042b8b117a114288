"""Progress: how far each source partition is copied, kept on the target.

A compacted topic of one partition per source cluster. Its records are written
inside the data transactions, so what they say and what was copied cannot differ.
Main types: `Position`, and `Progress`, as a `ProgressReader` finds it. One more record
names the *generation*: the driver run that may write now. A task that finds another
generation than its own has been replaced, and must stop.

Layout, big-endian: key = topic (INT16 length + UTF-8), partition INT32; value =
version INT16 = 0, next offset INT64, leader epoch INT32, topic id 16 bytes. The
generation's key has an empty topic and partition -1; its value is version INT16 = 0
and UTF-8 text.
"""

from __future__ import annotations

from dataclasses import dataclass, field
import struct
from typing import TYPE_CHECKING
import uuid

from mirror.batches import records
from mirror.batches.reading import TopicReader
from mirror.errors import RecreatedError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from mirror.clusters.cluster import Cluster
    from mirror.clusters.produce import EncodedBatch

TopicPartition = tuple[str, int]

NO_ID = uuid.UUID(int=0)
"""The topic id where brokers have none (before 2.8)."""

TOPIC_CONFIGS = {
    "cleanup.policy": "compact",
    # Small segments: a take-over reads the whole topic, so compaction must be quick.
    "segment.bytes": str(8 << 20),
    "min.cleanable.dirty.ratio": "0.1",
    "max.message.bytes": str(4 << 20),
}

_VALUE = struct.Struct(">hqi16s")
_INT32 = struct.Struct(">i")
_INT16 = struct.Struct(">h")
_GENERATION_KEY = _INT16.pack(0) + _INT32.pack(-1)


@dataclass(frozen=True, slots=True, kw_only=True)
class Position:
    """The next source offset to copy, and what it is an offset of."""

    offset: int
    leader_epoch: int = -1
    topic_id: uuid.UUID = NO_ID


@dataclass(frozen=True, slots=True, kw_only=True)
class Progress:
    """What the progress topic says."""

    generation: str = ""
    positions: Mapping[TopicPartition, Position] = field(default_factory=dict)


def topic_name(source_alias: str) -> str:
    return f"mirror-progress.{source_alias}.internal"


def encode(positions: Mapping[TopicPartition, Position]) -> EncodedBatch:
    """A batch with one record per partition."""
    return records.encode(
        [
            (
                _key(topic, partition),
                _VALUE.pack(
                    0, position.offset, position.leader_epoch, position.topic_id.bytes
                ),
            )
            for (topic, partition), position in positions.items()
        ]
    )


def encode_generation(generation: str) -> EncodedBatch:
    return records.encode([(_GENERATION_KEY, _INT16.pack(0) + generation.encode())])


def read(cluster: Cluster, topic: str, *, committed: bool = True) -> Progress:
    """Everything written so far, or only what is `committed`.

    For the latter it waits until transactions open at the call have ended: call it
    after taking the own ones over. Without, the generation holds (it is written
    outside transactions) and the positions mean nothing.

    Raises:
        ClusterError: the topic cannot be read, or somebody else's transaction on it
            stays open.
    """
    return ProgressReader(cluster, topic, committed=committed).read()


class ProgressReader:
    """Reads the topic once, and later only what was added."""

    def __init__(self, cluster: Cluster, topic: str, *, committed: bool = True) -> None:
        self._cluster = cluster
        self._topic = topic
        self._committed = committed
        self._begin()

    def _begin(self) -> None:
        self._reader = TopicReader(
            self._cluster, self._topic, committed=self._committed
        )
        self._generation = ""
        self._positions: dict[TopicPartition, Position] = {}

    def read(self) -> Progress:
        """As the function; what it returns is not changed by later calls."""
        try:
            self._follow()
        except RecreatedError:
            self._begin()
            self._follow()
        return Progress(generation=self._generation, positions=dict(self._positions))

    def _follow(self) -> None:
        for _, key, value in self._reader.read():
            if key == _GENERATION_KEY:
                self._generation = value[2:].decode()
                continue
            length = _INT16.unpack_from(key)[0]
            name = key[2 : 2 + length].decode()
            _, offset, epoch, topic_id = _VALUE.unpack_from(value)
            partition = _INT32.unpack_from(key, 2 + length)[0]
            self._positions[name, partition] = Position(
                offset=offset, leader_epoch=epoch, topic_id=uuid.UUID(bytes=topic_id)
            )


def _key(topic: str, partition: int) -> bytes:
    name = topic.encode()
    return _INT16.pack(len(name)) + name + _INT32.pack(partition)
