"""Offset syncs: pairs of offsets in MirrorMaker 2's format, for a return to it.

Main type: `OffsetSyncs`, which writes the two offsets of each partition's last copied
record when they change. mirror itself never reads them: its offset map knows every
record. MirrorMaker 2 adds one to a pair's offset, so it must be a record's, not an end.

`OffsetSync` has the format, big-endian, STRING = INT16 length + UTF-8: key source topic
STRING, partition INT32; value upstream INT64, downstream INT64. MirrorMaker 2 reads
these, so every byte must match.
"""

from __future__ import annotations

from dataclasses import dataclass
import struct
from typing import TYPE_CHECKING

from mirror.config import own_topics
from mirror.errors import CorruptBatchError
from mirror.offsets.translation import Exactness
from mirror.records.records import encode_string, read_string
from mirror.records.writing import TopicWriter, ensure_topic

if TYPE_CHECKING:
    from collections.abc import Iterable
    import uuid

    from mirror.clusters.cluster import Cluster
    from mirror.clusters.topics import TopicPartition
    from mirror.offsets.translation import Translator

_INT32 = struct.Struct(">i")
_OFFSETS = struct.Struct(">qq")


def offset_syncs_topic(other_alias: str, separator: str = ".") -> str:
    """On the source for the target's alias, on the target for the source's."""
    return own_topics.OFFSET_SYNCS.named(other_alias, separator)


def offsets_topic(source_alias: str) -> str:
    """Of Kafka Connect in dedicated mode, on the target, whatever the separator."""
    return f"mm2-offsets.{source_alias}.internal"


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
            encode_string(self.topic) + _INT32.pack(self.partition),
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


class OffsetSyncs:
    """The offset syncs of one flow. Not thread-safe."""

    def __init__(
        self, other_alias: str, *, separator: str = ".", replication_factor: int = -1
    ) -> None:
        """`other_alias`: the cluster that they are not written to."""
        self._topic = offset_syncs_topic(other_alias, separator)
        self._replication_factor = replication_factor
        self._cluster: Cluster | None = None
        self._writer: TopicWriter | None = None
        self._topic_id: uuid.UUID | None = None
        self._last: dict[TopicPartition, OffsetSync] = {}

    def sync(
        self,
        cluster: Cluster,
        translator: Translator,
        partitions: Iterable[TopicPartition],
    ) -> int:
        """Write what changed; returns how many.

        Raises:
            MirrorError: they are not written: the next round tries again.
        """
        if (
            self._writer is None
            or self._cluster is not cluster
            or cluster.topics([self._topic])[self._topic].topic_id != self._topic_id
        ):
            ensure_topic(
                cluster,
                own_topics.OFFSET_SYNCS,
                self._topic,
                replication_factor=self._replication_factor,
            )
            self._topic_id = cluster.topics([self._topic])[self._topic].topic_id
            self._cluster, self._writer = cluster, TopicWriter(cluster, self._topic)
            self._last.clear()
        changed = [
            made
            for key in partitions
            if (made := last_copied(translator, *key)) is not None
            and made != self._last.get(key)
        ]
        self._writer.write([made.encode() for made in changed])
        self._last.update({(made.topic, made.partition): made for made in changed})
        return len(changed)


def last_copied(
    translator: Translator, topic: str, partition: int
) -> OffsetSync | None:
    """The two offsets of the last record that was copied; None if there is none."""
    position = translator.position(topic, partition)
    if position < 0:
        return None
    end = translator.translate(topic, partition, position)
    if end.exactness is not Exactness.TIP or end.offset < 1:
        return None
    downstream = end.offset - 1
    upstream = translator.reverse(topic, partition, downstream)
    if upstream.exactness is not Exactness.EXACT:
        return None
    again = translator.translate(topic, partition, upstream.offset)
    if again.exactness is not Exactness.EXACT or again.offset != downstream:
        return None
    return OffsetSync(
        topic=topic,
        partition=partition,
        upstream=upstream.offset,
        downstream=downstream,
    )
