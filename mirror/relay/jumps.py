"""Positions that move although nothing was copied: first ones, and those over gaps.

Main type: `Jump`, a new position and the loss that its transaction notes. `begin_new`
and `begin_anew` ask the source where topics begin that were never copied, or that were
made anew; gaps within a log are `intake`'s to find.
"""

from __future__ import annotations

from dataclasses import dataclass
import time
from typing import TYPE_CHECKING

from mirror.clusters import admin
from mirror.offsets import starting
from mirror.offsets.progress import Position
from mirror.recovery.losses import Cause, Loss
from mirror.relay.obstacle import made_anew

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping
    import uuid

    from mirror.clusters.cluster import Cluster, Topic
    from mirror.offsets.progress import Progress
    from mirror.offsets.starting import Place
    from mirror.relay.lease import Assignment

TopicPartition = tuple[str, int]


@dataclass(frozen=True, slots=True, kw_only=True)
class Jump:
    """A position that moves without anything being copied."""

    to: Position
    loss: Loss


def begin_new(
    source: Cluster,
    keys: Iterable[TopicPartition],
    known: Progress,
    topics: Mapping[str, Topic],
    *,
    place: Place,
) -> dict[TopicPartition, Position]:
    """Partitions without progress begin at their first record. (Where a flow is to
    begin elsewhere, the driver has written that as progress.) Those that did not
    answer when it did so begin at `place`, as it was then.
    """
    waiting = {
        key: known.unsettled[key]
        for key in keys
        if key in known.unsettled
        and not made_anew(topics[key[0]], known.unsettled[key])
    }
    settled = starting.settle(source, waiting, place)
    new = [key for key in keys if key not in known.positions and key not in waiting]
    found = admin.list_offsets(source, new, timestamp=admin.EARLIEST)
    return settled | {
        key: Position(offset=offset, topic_id=topics[key[0]].topic_id)
        for key, offset in found.items()
    }


def begin_anew(
    source: Cluster,
    wanted: Mapping[TopicPartition, Assignment],
    positions: Mapping[TopicPartition, Position],
    topics: Mapping[str, Topic],
    *,
    flow: str,
    end_offset: Callable[[TopicPartition], int],
) -> dict[TopicPartition, Jump]:
    """Partitions of topics that were made anew begin at the new first record.

    `end_offset` tells how far the old one was last seen to reach, -1 if it was not.
    """
    anew = [
        key
        for key in wanted
        if key in positions and made_anew(topics[key[0]], positions[key])
    ]
    jumps = {}
    found = admin.list_offsets(source, anew, timestamp=admin.EARLIEST)
    for key, offset in found.items():
        old, end = positions[key], end_offset(key)
        jumps[key] = Jump(
            to=Position(offset=offset, topic_id=topics[key[0]].topic_id),
            loss=loss_of(
                flow,
                wanted[key],
                Cause.RECREATED,
                first=old.offset,
                last=end - 1 if end > old.offset else None,
                topic_id=old.topic_id,
            ),
        )
    return jumps


def loss_of(
    flow: str,
    assignment: Assignment,
    cause: Cause,
    *,
    first: int,
    last: int | None,
    topic_id: uuid.UUID,
) -> Loss:
    """What to note about offsets that are gone, as of now."""
    return Loss(
        at=time.time(),
        flow=flow,
        topic=assignment.topic,
        partition=assignment.partition,
        target_topic=assignment.target_topic,
        cause=cause,
        first=first,
        last=last,
        topic_id=topic_id.hex,
    )
