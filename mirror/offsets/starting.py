"""Where to begin: a place in words, as offsets of partitions.

Main type: `Place`, the first record there is, the end, a moment, or an offset. It only
asks the source; who writes what it answers as progress are `ownership` and `reset`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING
import uuid

from mirror.clusters import admin
from mirror.offsets.progress import Position

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from mirror.clusters.cluster import Cluster

TopicPartition = tuple[str, int]


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """Where partitions shall begin; an offset is brought within what there is."""

    timestamp: int = admin.EARLIEST
    """Epoch milliseconds, `admin.EARLIEST` or `admin.LATEST`."""
    offset: int | None = None
    """Instead of the timestamp."""


def place_of(start: str | int) -> Place:
    """The place that the setting `start` names."""
    words = {"earliest": admin.EARLIEST, "latest": admin.LATEST}
    return Place(timestamp=words[start] if isinstance(start, str) else start)


def find(
    source: Cluster, partitions: Mapping[TopicPartition, str], place: Place
) -> dict[TopicPartition, Position]:
    """The positions of partitions, given with their topic ids in hex. One that does
    not answer now is left out.

    Raises:
        ClusterError: the source does not answer.
    """
    found = (
        admin.list_offsets(source, partitions, timestamp=place.timestamp)
        if place.offset is None
        else _within(source, partitions, place.offset)
    )
    if late := [key for key, offset in found.items() if offset < 0]:
        # No record is as young as that: begin with the next one.
        found |= admin.list_offsets(source, late, timestamp=admin.LATEST)
    return {
        key: Position(offset=offset, topic_id=uuid.UUID(partitions[key]))
        for key, offset in found.items()
    }


def _within(
    source: Cluster, partitions: Iterable[TopicPartition], offset: int
) -> dict[TopicPartition, int]:
    first = admin.list_offsets(source, partitions, timestamp=admin.EARLIEST)
    last = admin.list_offsets(source, first, timestamp=admin.LATEST)
    return {key: min(max(offset, first[key]), end) for key, end in last.items()}
