"""Every place where an offset map says that one record stands.

Main function: `read`, one pass over the map. `offset_map` answers with the one place at
which a group continues; here, copies that were made again count as well, and offsets
beside a copy do not.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from mirror.offsets import runs
from mirror.offsets.gathering import gather
from mirror.offsets.progress import NO_ID
from mirror.offsets.runs import COUNT, DOWNSTREAM, UPSTREAM
from mirror.records.reading import TopicReader

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    import uuid

    from mirror.clusters.cluster import Cluster
    from mirror.clusters.topics import Topic
    from mirror.config.schema import FlowConfig
    from mirror.offsets.runs import Block


class Pair(NamedTuple):
    """A record and a copy of it."""

    target: int
    source: int
    topic: str
    """On the source."""
    topic_id: uuid.UUID
    """The source topic's id when it was copied; NO_ID if brokers have none."""
    late: bool = False
    """A repair appended it, behind records that follow it on the source."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Pairs:
    """What the map says about one offset."""

    pairs: tuple[Pair, ...] = ()
    """By target offset."""
    floor: Pair | None = None
    """MirrorMaker 2 copied it: it is at these offsets or after them."""
    first: int = -1
    """The first offset of the partition that the map knows; -1 if it knows none."""
    whole: bool = True
    """Off: the oldest part of the map is gone."""
    deleted: bool = False
    """The record was in a copy that was deleted, or is under another name."""


def read(
    flow: FlowConfig,
    target: Cluster,
    copy: Topic | None,
    partition: int,
    offset: int,
    *,
    topic: str = "",
    topic_id: uuid.UUID = NO_ID,
) -> Pairs:
    """What the map says about a source offset of a `topic` with this id, or without a
    `topic` about an offset of the copy. Runs of deleted topics with the same names are
    no places; with a `topic`, those of deleted copies say where the flow began, and
    that they had the record. `copy`: None if there is none. NO_ID is any id.

    Raises:
        ClusterError: the target does not answer, or the map cannot be read.
    """
    name = runs.topic_name(flow.source, flow.separator)
    if target.topic(name) is None:
        return Pairs()
    column = UPSTREAM if topic else DOWNSTREAM
    found: list[Pair] = []
    floor: Pair | None = None
    first = reached = -1
    deleted = False
    reader = TopicReader(target, name)
    for block, late in blocks(reader, only=topic.__eq__ if topic else None):
        is_there = copy is not None and block.is_of(copy)
        if block.partition != partition or not (is_there or topic):
            continue
        begins = block.runs[:, column]
        if flow.exactly_once and is_there and not late:
            # Where the copy lost its end, earlier runs are void.
            lost = int(block.runs[0, DOWNSTREAM])
            found = [each for each in found if each.target < lost]
        if not _same(topic_id, block.topic_id):
            continue
        lowest = int(begins[0])
        if not late:
            first = lowest if first < 0 else min(first, lowest)
        row = int(np.searchsorted(begins, offset, "right")) - 1
        into = offset - int(begins[row])
        has_it = row >= 0 and into < block.runs[row, COUNT]
        if not is_there:
            deleted |= bool(has_it)
        elif has_it:
            found.append(_pair(block, row, into, late=late))
        if is_there and row >= 0 and begins[row] >= reached and not late:
            reached = int(begins[row])
            floor = _pair(block, row, 0) if not block.runs[row, COUNT] else None
    return Pairs(
        pairs=tuple(sorted(set(found))),
        floor=floor,
        first=first,
        whole=reader.start == 0,
        deleted=deleted,
    )


def blocks(
    reader: TopicReader, *, only: Callable[[str], bool] | None
) -> Iterator[tuple[Block, bool]]:
    """What the map says of these source topics, in its order, and whether it is about
    late records.

    Raises:
        ClusterError: the map cannot be read.
    """
    for _, block, late in gather(reader.answers(), only=only):
        yield block, late


def _pair(block: Block, row: int, into: int, *, late: bool = False) -> Pair:
    """The record that stands so far into a run."""
    run = block.runs[row]
    return Pair(
        target=int(run[DOWNSTREAM]) + into,
        source=int(run[UPSTREAM]) + into,
        topic=block.topic,
        topic_id=block.topic_id,
        late=late,
    )


def _same(topic_id: uuid.UUID, other: uuid.UUID) -> bool:
    return NO_ID in (topic_id, other) or topic_id == other
