"""Checks that target topics are still the ones the slot found at its take-over.

Main type: `Copies`. Produce requests name topics, so a re-created copy accepts records
meant for the deleted one, and the offset map would attribute them to the old topic. A
log that continues at a lower offset reveals this. Before the first write to a partition
there is no such sign, so `Copies` asks for metadata again. In both cases it fails the
transaction, and the slot takes over.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from mirror.clusters import codes
from mirror.errors import ClusterError

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from mirror.clusters.cluster import Cluster
    from mirror.clusters.topics import Topic
    from mirror.clusters.wire.write import Placed

TopicPartition = tuple[str, int]

_FRESH_SECONDS = 5.0
"""How long metadata is trusted."""


class Copies:
    """What a slot knows about the logs it writes to."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._ends: dict[TopicPartition, int] = {}
        self._fresh: dict[str, float] = {}
        self._fresh_until = time.monotonic() + _FRESH_SECONDS

    def begin(self) -> None:
        """Start over: the slot is taking over and asks for metadata itself."""
        self._ends.clear()
        self._fresh.clear()
        self._fresh_until = time.monotonic() + _FRESH_SECONDS

    def before(
        self, partitions: Iterable[TopicPartition], topics: Mapping[str, Topic]
    ) -> None:
        """Check partitions before a write; `topics` are those the take-over found.

        Raises:
            ClusterError: a topic was re-created, or the target does not answer.
        """
        now = time.monotonic()
        asked = {
            key[0]
            for key in partitions
            if key not in self._ends
            and now > self._fresh.get(key[0], self._fresh_until)
        }
        if not asked:
            return
        # Ask for all topics, so that the next transactions need not ask again.
        names = [name for name, topic in topics.items() if not topic.error]
        for name, topic in self._cluster.topics(names).items():
            if topic.topic_id == topics[name].topic_id and not topic.error:
                self._fresh[name] = now + _FRESH_SECONDS
            elif name in asked and topic.error:
                raise codes.error_for(topic.error, f"target topic {name}")
            elif name in asked:
                raise ClusterError(
                    f"target topic {name} was deleted or re-created: its id was "
                    f"{topics[name].topic_id} and is {topic.topic_id}"
                )

    def after(self, placed: Iterable[Placed]) -> None:
        """Check where batches were written.

        Raises:
            ClusterError: a log continued below an offset that was already in use.
        """
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
