"""Late records: copies that a repair appended behind records that follow them.

Main type: `LateRuns`, for all partitions of a map. The map's other runs stay as they
are: a group where the record is missing goes on behind that place, and meets the record
later. Only the way back and a proof need these runs.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from mirror.offsets.progress import NO_ID
from mirror.offsets.runs import COUNT, DOWNSTREAM, cut_at

if TYPE_CHECKING:
    import uuid

    from mirror.clusters.topics import TopicPartition
    from mirror.offsets.runs import Block, RunArray


class LateRecord(NamedTuple):
    """One of them."""

    offset: int
    """On the target."""
    source: int
    """On the source."""


class LateRuns:
    """What the map says about late records, in its order."""

    def __init__(self) -> None:
        self._blocks: dict[TopicPartition, list[Block]] = {}

    def add(self, block: Block) -> None:
        self._blocks.setdefault((block.topic, block.partition), []).append(block)

    def blocks(self) -> list[Block]:
        """All of them; those of a partition in the map's order."""
        return [block for blocks in self._blocks.values() for block in blocks]

    def heed(self, block: Block) -> None:
        """Runs of other records that the map names after these: what stood there, and
        behind it, the copy has lost.
        """
        key = (block.topic, block.partition)
        if (known := self._blocks.get(key)) is None:
            return
        begins = int(block.runs[0, DOWNSTREAM])
        cut = (
            replace(each, runs=cut_at(each.runs, begins))
            if each.copy_id == block.copy_id
            else each
            for each in known
        )
        self._blocks[key] = [each for each in cut if len(each.runs)]

    def of(
        self, key: TopicPartition, topic_id: uuid.UUID, copy_id: uuid.UUID | None
    ) -> RunArray:
        """Those of one topic on the source and one copy; they ascend on the target."""
        return np.concatenate(
            [
                np.empty((0, 3), np.int64),
                *(
                    each.runs
                    for each in self._blocks.get(key, ())
                    if NO_ID in (topic_id, each.topic_id) or each.topic_id == topic_id
                    if NO_ID in (copy_id, each.copy_id) or each.copy_id == copy_id
                ),
            ]
        )


def next_late(late: RunArray, offset: int) -> LateRecord | None:
    """The first one at a target offset or after it."""
    index = int(np.searchsorted(late[:, DOWNSTREAM] + late[:, COUNT], offset, "right"))
    if index == len(late):
        return None
    up, down, _ = late[index].tolist()
    into = max(offset - down, 0)
    return LateRecord(offset=down + into, source=up + into)
