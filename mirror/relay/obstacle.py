"""What stands in the way of mirroring one partition, in words for its owner.

Pure functions, `obstacle` above all, over what metadata and progress say. What brokers
answer later, to a Fetch or a Produce, is judged in `slot`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from mirror.clusters import codes

if TYPE_CHECKING:
    from mirror.clusters.topics import Topic
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
    if target.error:
        return f"target topic {target.name}: {codes.name_of(target.error)}"
    if partition not in target.leaders:
        return f"target topic {target.name} has only {target.partitions} partitions"
    if target.leaders[partition].node < 0:
        return f"target partition {target.name}-{partition} has no leader"
    return ""
