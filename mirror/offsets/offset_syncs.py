"""Offset syncs: pairs of offsets in MirrorMaker 2's format, for a return to it.

Main type: `OffsetSyncs`, which writes the two offsets of each partition's last copied
record when they change. mirror itself never reads them: its offset map knows every
record. MirrorMaker 2 adds one to a pair's offset, so it must be a record's, not an end.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from mirror.config import own_topics
from mirror.offsets.mm2_records import OffsetSync, offset_syncs_topic
from mirror.offsets.translation import Exactness
from mirror.records.writing import TopicWriter, ensure_topic

if TYPE_CHECKING:
    from collections.abc import Iterable
    import uuid

    from mirror.clusters.cluster import Cluster
    from mirror.clusters.topics import TopicPartition
    from mirror.offsets.groups import Knowing


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
        self, cluster: Cluster, knowing: Knowing, partitions: Iterable[TopicPartition]
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
            if (made := last_copied(knowing, *key)) is not None
            and made != self._last.get(key)
        ]
        self._writer.write([made.encode() for made in changed])
        self._last.update({(made.topic, made.partition): made for made in changed})
        return len(changed)


def last_copied(knowing: Knowing, topic: str, partition: int) -> OffsetSync | None:
    """The two offsets of the last record that was copied; None if there is none."""
    position = knowing.position(topic, partition)
    if position < 0:
        return None
    end = knowing.translate(topic, partition, position)
    if end.exactness is not Exactness.TIP or end.offset < 1:
        return None
    downstream = end.offset - 1
    upstream = knowing.reverse(topic, partition, downstream)
    if upstream.exactness is not Exactness.EXACT:
        return None
    again = knowing.translate(topic, partition, upstream.offset)
    if again.exactness is not Exactness.EXACT or again.offset != downstream:
        return None
    return OffsetSync(
        topic=topic,
        partition=partition,
        upstream=upstream.offset,
        downstream=downstream,
    )
