"""Where a flow begins that has never run when a failover makes its source active.

Its own positions would be in the cluster that is gone, so the step that moves the role
notes them in the journal, before anyone may write: `noted` and `read`. The flow takes
them at its first start, instead of what `start` says by then.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any
import uuid

from mirror.offsets.progress import Position

if TYPE_CHECKING:
    from collections.abc import Mapping

    from mirror.clusters.topics import TopicPartition

BEGINS = "begins"
"""The detail of the entry. Per topic: `id` (hex), and for each partition in `places`
the offset and the leader epoch, as in `progress`."""


def noted(positions: Mapping[TopicPartition, Position]) -> dict[str, Any]:
    """As JSON; `read` reads it."""
    found: dict[str, Any] = {}
    for (topic, number), each in sorted(positions.items()):
        of_topic = found.setdefault(topic, {"id": each.topic_id.hex, "places": {}})
        of_topic["places"][str(number)] = [each.offset, each.leader_epoch]
    return found


def read(details: Mapping[str, Any]) -> dict[TopicPartition, Position] | None:
    """What the details of an entry say; None if they say nothing."""
    if BEGINS not in details:
        return None
    return {
        (topic, int(number)): Position(
            offset=offset, leader_epoch=epoch, topic_id=uuid.UUID(of_topic["id"])
        )
        for topic, of_topic in details[BEGINS].items()
        for number, (offset, epoch) in of_topic["places"].items()
    }
