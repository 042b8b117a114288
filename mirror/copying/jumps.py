"""Positions that move without copying: first positions, and jumps over gaps.

Main type: `Jump`, a new position and the loss that its transaction records.
`first_positions` asks the source where to begin partitions that were never copied.
`gaps` finds the gaps and what is lost in them.
"""

from __future__ import annotations

from dataclasses import dataclass
import time
from typing import TYPE_CHECKING

from mirror.clusters.admin import topic_admin
from mirror.copying.gaps import remade
from mirror.offsets import starting
from mirror.offsets.progress import Position
from mirror.pairs.losses import Loss

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from mirror.clusters.cluster import Cluster
    from mirror.clusters.topics import Topic, TopicPartition
    from mirror.copying.gaps import Gap
    from mirror.copying.lease import Assignment
    from mirror.offsets.progress import Progress
    from mirror.offsets.starting import StartPoint


@dataclass(frozen=True, slots=True, kw_only=True)
class Jump:
    """A position that moves although nothing is copied."""

    to: Position
    loss: Loss


def first_positions(
    source: Cluster,
    keys: Iterable[TopicPartition],
    known: Progress,
    topics: Mapping[str, Topic],
    *,
    place: StartPoint,
) -> dict[TopicPartition, Position]:
    """Partitions without progress begin at their first record. (If a flow begins
    elsewhere, the driver has written that as progress.) Partitions that did not answer
    the driver then begin at `place`, as of that time.
    """
    waiting = {
        key: known.unsettled[key]
        for key in keys
        if key in known.unsettled
        and not remade(topics[key[0]].topic_id, known.unsettled[key])
    }
    settled = starting.find_late(source, waiting, place)
    new = [key for key in keys if key not in known.positions and key not in waiting]
    found = topic_admin.list_offsets(source, new, timestamp=topic_admin.EARLIEST)
    return settled | {
        key: Position(offset=offset, topic_id=topics[key[0]].topic_id)
        for key, offset in found.items()
    }


def loss_of(
    flow: str, assignment: Assignment, gap: Gap, *, old: Position, end: int
) -> Loss:
    """The loss to record for a gap, as of now. `old`: the position before it. `end`:
    the last known end of the log, -1 if unknown.
    """
    last = gap.last
    if last is None and end > gap.first:
        last = end - 1
    return Loss(
        at=time.time(),
        flow=flow,
        topic=assignment.topic,
        partition=assignment.partition,
        target_topic=assignment.target_topic,
        cause=gap.cause,
        first=gap.first,
        last=last,
        topic_id=old.topic_id.hex,
    )
