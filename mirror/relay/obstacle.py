"""What stands in the way of mirroring one partition, in words for its owner.

Pure functions, `obstacle` above all, over what metadata and progress say. What brokers
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
    if made_anew(source, position):
        return (
            f"source topic {topic} was deleted and created again: its copy so far "
            f"ends at offset {position.offset} of the old one; `mirror flow reset` "
            "says where to go on, on_recreated_topic: continue goes on by itself"
        )
    if target.error:
        return f"target topic {target.name}: {codes.name_of(target.error)}"
    if partition not in target.leaders:
        return f"target topic {target.name} has only {target.partitions} partitions"
    if target.leaders[partition].node < 0:
        return f"target partition {target.name}-{partition} has no leader"
    return ""


def made_anew(source: Topic, position: Position) -> bool:
    """Whether the position is one of an earlier topic of the same name."""
    ids = (source.topic_id, position.topic_id)
    return not source.error and ids[0] != ids[1] and NO_ID not in ids
