"""Checks that target topics are still the ones the slot found at its take-over.

Main type: `Copies`. Produce requests name topics, so a re-created copy accepts records
meant for the deleted one, and the offset map would attribute them to the old topic. A
log that continues at a lower offset reveals this. The first write to a partition gives
no such sign, so `Copies` then asks its leader which topic it wrote to: a leader knows a
topic's id before it takes records for it. In both cases it fails the transaction, and
the slot takes over.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from mirror.clusters import codes
from mirror.errors import ClusterError

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from mirror.clusters.cluster import Cluster
    from mirror.clusters.topics import Topic, TopicPartition
    from mirror.clusters.wire.write import Placed


class Copies:
    """What a slot knows about the logs it writes to."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._ends: dict[TopicPartition, int] = {}

    def begin(self) -> None:
        """Start over: the slot is taking over and asks for metadata itself."""
        self._ends.clear()

    def check(self, placed: Sequence[Placed], topics: Mapping[str, Topic]) -> None:
        """Check where batches were written; `topics` are those the take-over found.

        Raises:
            ClusterError: a topic was deleted or re-created, a log continued below an
                offset that was already in use, or a leader does not answer.
        """
        new = {each.where for each in placed if each.where not in self._ends}
        if new:
            self._check_ids(new, topics)
        for each in placed:
            if each.offset < 0:  # a duplicate: the broker does not name its offset
                continue
            end = self._ends.get(each.where, 0)
            if each.offset < end:
                topic, partition = each.where
                raise ClusterError(
                    f"target {topic}-{partition}: records were written at offset "
                    f"{each.offset}, although offsets up to {end - 1} were in use: the "
                    "topic was re-created or lost its end"
                )
            self._ends[each.where] = each.offset + each.batch.count

    def _check_ids(
        self, partitions: Iterable[TopicPartition], topics: Mapping[str, Topic]
    ) -> None:
        names: dict[int, set[str]] = {}
        for name, partition in partitions:
            leader = topics[name].leaders[partition].node
            names.setdefault(leader, set()).add(name)
        for leader, theirs in names.items():
            for name, topic in self._cluster.topics(theirs, node=leader).items():
                if topic.error:
                    raise codes.error_for(topic.error, f"target topic {name}")
                if topic.topic_id != topics[name].topic_id:
                    raise ClusterError(
                        f"target topic {name} was deleted or re-created: its id was "
                        f"{topics[name].topic_id} and is {topic.topic_id}"
                    )
