"""Progress: how far each source partition is copied, kept on the target.

A compacted topic of one partition per source cluster. Its records are written
inside the data transactions, so what they say and what was copied cannot differ.
Main types: `Position`, and `Progress` as read back. One more record names the
*generation*: the driver run that may write now. A task that finds another
generation than its own has been replaced, and must stop.

Layout, big-endian: key = topic (INT16 length + UTF-8), partition INT32; value =
version INT16 = 0, next offset INT64, leader epoch INT32, topic id 16 bytes. The
generation's key has an empty topic and partition -1; its value is version INT16 = 0
and UTF-8 text.
"""

from __future__ import annotations

from dataclasses import dataclass, field
import struct
import time
from typing import TYPE_CHECKING
import uuid

import numpy as np

from mirror.batches import batch, records
from mirror.clusters import admin, codes, fetch
from mirror.errors import BrokerError, UnreachableError

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

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
_PURPOSE = "progress"
_FETCH_BYTES = 8 << 20
_PATIENCE_SECONDS = 10.0


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
    generation = ""
    positions: dict[TopicPartition, Position] = {}
    for key, value in _records(cluster, topic, committed=committed):
        if key == _GENERATION_KEY:
            generation = value[2:].decode()
            continue
        length = _INT16.unpack_from(key)[0]
        name = key[2 : 2 + length].decode()
        _, offset, epoch, topic_id = _VALUE.unpack_from(value)
        positions[name, _INT32.unpack_from(key, 2 + length)[0]] = Position(
            offset=offset, leader_epoch=epoch, topic_id=uuid.UUID(bytes=topic_id)
        )
    return Progress(generation=generation, positions=positions)


def _records(
    cluster: Cluster, topic: str, *, committed: bool
) -> Iterator[tuple[bytes, bytes]]:
    position, end = (
        _edge(cluster, topic, timestamp) for timestamp in (admin.EARLIEST, admin.LATEST)
    )
    leader = cluster.topics([topic])[topic].leaders.get(0)
    if leader is None or leader.node < 0:
        raise UnreachableError(f"cluster {cluster.alias}: {topic} has no leader")
    connection = cluster.connection(leader.node, _PURPOSE)
    rows = batch.scratch()
    deadline = time.monotonic() + _PATIENCE_SECONDS
    while position < end:
        request = fetch.encode(
            [fetch.Wanted(topic=topic, partition=0, offset=position, leader_epoch=-1)],
            isolation=fetch.READ_COMMITTED if committed else fetch.READ_UNCOMMITTED,
            max_wait_ms=10,
            max_bytes=_FETCH_BYTES,
            partition_max_bytes=_FETCH_BYTES,
        )
        body = connection.send_buffers(
            fetch.API_KEY, fetch.VERSION, [request], flexible=False
        ).result()
        (fetched,) = fetch.decode(body)
        if fetched.error != codes.NONE:
            raise codes.error_for(fetched.error, f"reading {topic}")
        buffer = np.frombuffer(body, np.uint8)
        found_batches = batch.read(
            buffer,
            fetched.start,
            fetched.end,
            position=position,
            aborted=fetched.aborted,
            scratch=rows,
        )
        yield from records.decode(buffer, found_batches.rows)
        if found_batches.next_offset == position and time.monotonic() > deadline:
            raise BrokerError(
                name="a transaction on it stays open",
                what=f"reading {topic} to its end",
                retriable=True,
            )
        position = found_batches.next_offset


def _edge(cluster: Cluster, topic: str, timestamp: int) -> int:
    """The log's start or end, waiting for a leader that has just been elected."""
    deadline = time.monotonic() + _PATIENCE_SECONDS
    while True:
        found = admin.list_offsets(
            cluster, [(topic, 0)], timestamp=timestamp, committed=False
        )
        if found:
            return found[topic, 0]
        if time.monotonic() > deadline:
            raise UnreachableError(f"cluster {cluster.alias}: {topic} has no leader")
        time.sleep(0.05)


def _key(topic: str, partition: int) -> bytes:
    name = topic.encode()
    return _INT16.pack(len(name)) + name + _INT32.pack(partition)
