"""Whether the target topics that a slot writes to are still those that it took over.

Main type: `Copies`. Produce requests name topics, so a copy that somebody deleted and
created again takes what is meant for the old one, and the offset map would count those
records to the old one. A log that goes on at a lower offset shows it; before the first
write to a partition nothing does, so `Copies` asks for metadata again. In both cases it
fails the transaction, and the slot takes over.
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
"""So long what metadata say is believed."""


class Copies:
    """What is known of the logs that a slot writes."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._ends: dict[TopicPartition, int] = {}
        self._fresh: dict[str, float] = {}
        self._fresh_until = time.monotonic() + _FRESH_SECONDS

    def begin(self) -> None:
        """The slot takes over, and asks for metadata."""
        self._ends.clear()
        self._fresh.clear()
        self._fresh_until = time.monotonic() + _FRESH_SECONDS

    def before(
        self, partitions: Iterable[TopicPartition], topics: Mapping[str, Topic]
    ) -> None:
        """These are written next, and `topics` are what the take-over found.

        Raises:
            ClusterError: a topic is another one by now, or the target does not answer.
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
        # All of them, so that later transactions need not ask for a while.
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
        """These were written.

        Raises:
            ClusterError: a log went on below an offset that was in use.
        """
        for each in placed:
            if each.offset < 0:  # written before, so that the broker names no offset
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
