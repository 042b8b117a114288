"""What stands in the way of mirroring one partition, in words for its owner.

One pure function, `obstacle`, over what metadata and progress say. What brokers
answer later, to a Fetch or a Produce, is judged in `slot`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from mirror.clusters import codes
from mirror.offsets.progress import NO_ID

if TYPE_CHECKING:
    from mirror.clusters.cluster import Topic
    from mirror.offsets.progress import Position
    from mirror.relay.lease import Assignment


def obstacle(
    assignment: Assignment, *, source: Topic, target: Topic, position: Position | None
) -> str:
    """Why this partition cannot be read or written now; empty if it can."""
    topic, partition = assignment.topic, assignment.partition
    if source.error:
        return f"source topic {topic}: {codes.name_of(source.error)}"
    if partition not in source.leaders or source.leaders[partition].node < 0:
        return f"source partition {topic}-{partition} has no leader"
    if position is None:
        return f"no start offset for {topic}-{partition}"
    if source.topic_id != position.topic_id and NO_ID not in (
        source.topic_id,
        position.topic_id,
    ):
        return (
            f"source topic {topic} was deleted and created again: its copy so far "
            f"ends at offset {position.offset} of the old one"
        )
    if target.error:
        return f"target topic {target.name}: {codes.name_of(target.error)}"
    if partition not in target.leaders:
        return f"target topic {target.name} has only {target.partitions} partitions"
    if target.leaders[partition].node < 0:
        return f"target partition {target.name}-{partition} has no leader"
    return ""
