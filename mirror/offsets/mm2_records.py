"""Records in MirrorMaker 2's format: heartbeats, checkpoints, offset syncs.

Main types: `Heartbeat`, `Checkpoint`, `OffsetSync`, each with `encode` and `decode`,
and the names of their topics. Java's clients read these, so every byte must match.
`checkpoints` and `heartbeats` decide when to write one.

Layout, big-endian, STRING = INT16 length + UTF-8. Heartbeat: key source alias STRING,
target alias STRING; value version INT16 = 0, epoch milliseconds INT64. Checkpoint: key
group STRING, target topic STRING, partition INT32; value version INT16 = 0, upstream
INT64, downstream INT64, metadata STRING. Offset sync: key source topic STRING,
partition INT32; value upstream INT64, downstream INT64.
"""

from __future__ import annotations

from dataclasses import dataclass
import struct
from typing import NamedTuple

from mirror.config import own_topics
from mirror.errors import CorruptBatchError

_INT16 = struct.Struct(">h")
_INT32 = struct.Struct(">i")
_TIME = struct.Struct(">hq")
_OFFSETS = struct.Struct(">qq")
_VERSIONED_OFFSETS = struct.Struct(">hqq")
_LONGEST = 0x7FFF


def checkpoints_topic(source_alias: str, separator: str = ".") -> str:
    """On the target."""
    return own_topics.CHECKPOINTS.named(source_alias, separator)


def offsets_topic(source_alias: str) -> str:
    """Of Kafka Connect in dedicated mode, on the target, whatever the separator."""
    return f"mm2-offsets.{source_alias}.internal"


def offset_syncs_topic(other_alias: str, separator: str = ".") -> str:
    """On the source for the target's alias, on the target for the source's."""
    return own_topics.OFFSET_SYNCS.named(other_alias, separator)


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
            _string(self.source) + _string(self.target),
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


class Checkpoint(NamedTuple):
    """A group's offsets on both sides, as of a look at the source."""

    group: str
    topic: str
    """On the target."""
    partition: int
    upstream: int
    downstream: int
    metadata: str = ""

    @property
    def key(self) -> tuple[str, str, int]:
        """Group, topic and partition."""
        return self.group, self.topic, self.partition

    def encode(self) -> tuple[bytes, bytes]:
        """Key and value."""
        return (
            _string(self.group) + _string(self.topic) + _INT32.pack(self.partition),
            _VERSIONED_OFFSETS.pack(0, self.upstream, self.downstream)
            + _string(self.metadata),
        )

    @classmethod
    def decode(cls, key: bytes, value: bytes) -> Checkpoint:
        """Raises CorruptBatchError if it is none."""
        try:
            group, at = read_string(key, 0)
            topic, at = read_string(key, at)
            (partition,) = _INT32.unpack_from(key, at)
            _, upstream, downstream = _VERSIONED_OFFSETS.unpack_from(value)
            metadata, _ = read_string(value, _VERSIONED_OFFSETS.size)
            # By position: a survey reads 100,000 of them.
            return cls(group, topic, partition, upstream, downstream, metadata)
        except (struct.error, UnicodeDecodeError) as error:
            raise CorruptBatchError(f"not a checkpoint: {error}") from error


def group_of(key: bytes) -> str:
    """The group that a checkpoint is of, by its key. Raises CorruptBatchError."""
    try:
        return read_string(key, 0)[0]
    except (struct.error, UnicodeDecodeError) as error:
        raise CorruptBatchError(f"not a checkpoint: {error}") from error


@dataclass(frozen=True, slots=True, kw_only=True)
class OffsetSync:
    """A source offset and the target offset of its copy."""

    topic: str
    """On the source."""
    partition: int
    upstream: int
    downstream: int

    def encode(self) -> tuple[bytes, bytes]:
        """Key and value."""
        return (
            _string(self.topic) + _INT32.pack(self.partition),
            _OFFSETS.pack(self.upstream, self.downstream),
        )

    @classmethod
    def decode(cls, key: bytes, value: bytes) -> OffsetSync:
        """Raises CorruptBatchError if it is none."""
        try:
            topic, at = read_string(key, 0)
            upstream, downstream = _OFFSETS.unpack_from(value)
            return cls(
                topic=topic,
                partition=_INT32.unpack_from(key, at)[0],
                upstream=upstream,
                downstream=downstream,
            )
        except (struct.error, UnicodeDecodeError) as error:
            raise CorruptBatchError(f"not an offset sync: {error}") from error


def _string(text: str) -> bytes:
    encoded = text.encode()
    if len(encoded) > _LONGEST:
        # Commit metadata may be as long as a broker allows; Java reads no more.
        encoded = encoded[:_LONGEST].decode(errors="ignore").encode()
    return _INT16.pack(len(encoded)) + encoded


def read_string(data: bytes, at: int) -> tuple[str, int]:
    """A STRING, and where it ends. Raises struct.error or UnicodeDecodeError."""
    size = _INT16.unpack_from(data, at)[0]
    begin, end = at + _INT16.size, at + _INT16.size + size
    if size < 0 or end > len(data):
        raise struct.error("a string runs past the end")
    return data[begin:end].decode(), end
