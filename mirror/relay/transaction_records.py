"""What a transaction writes about itself: how far it got, and where records went.

Main type: `Notes`, the topics on the target that take it. The positions go to the
progress topic, the runs to the offset map, gaps to the loss ledger, all in the same
transaction; the runs once it is known where the data beside them stands.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from mirror.batches import records
from mirror.offsets import progress, runs
from mirror.recovery import losses

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from mirror.clusters.topics import Topic
    from mirror.clusters.wire.produce import EncodedBatch
    from mirror.clusters.wire.write import Placed
    from mirror.relay.pending_transaction import Work

TopicPartition = tuple[str, int]
Batches = dict[TopicPartition, list["EncodedBatch"]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Notes:
    """The topics that take notes of one flow."""

    progress: TopicPartition
    offset_map: TopicPartition
    losses: TopicPartition

    @classmethod
    def of(cls, source_alias: str, separator: str) -> Notes:
        return cls(
            progress=(progress.topic_name(source_alias), 0),
            offset_map=(runs.topic_name(source_alias, separator), 0),
            losses=(losses.topic_name(source_alias), 0),
        )

    @property
    def partitions(self) -> tuple[TopicPartition, ...]:
        return (self.progress, self.offset_map, self.losses)

    @property
    def topics(self) -> set[str]:
        return {topic for topic, _ in self.partitions}

    def takers(self, work: Work) -> list[TopicPartition]:
        """Where notes on this work will go."""
        takers = [self.progress]
        takers += [self.offset_map] if work.batches else []
        takers += [self.losses] if work.losses else []
        return takers

    def where(
        self, placed: Iterable[Placed], work: Work, topics: Mapping[str, Topic]
    ) -> Batches:
        """The map's part, runs of what was placed; and what is lost. `topics` are those
        that it was placed in.
        """
        batches: Batches = {}
        if values := runs.encode(_blocks(placed, work, topics)):
            batches[self.offset_map] = [
                records.encode([(b"", value)]) for value in values
            ]
        if work.losses:
            batches[self.losses] = losses.encode(work.losses)
        return batches

    def how_far(self, work: Work) -> Batches:
        """The progress: positions, which hold as soon as they can be read."""
        running = {key: each.encoded() for key, each in work.running.items()}
        return {self.progress: progress.encode(work.moved, running)}


def _blocks(
    placed: Iterable[Placed], work: Work, topics: Mapping[str, Topic]
) -> Iterable[runs.Block]:
    found: dict[TopicPartition, list[runs.RunArray]] = {}
    for each in placed:
        if each.batch.runs is not None and each.offset >= 0:
            part = np.empty((len(each.batch.runs), 3), np.int64)
            part[:, runs.UPSTREAM] = each.batch.runs[:, 0]
            part[:, runs.DOWNSTREAM] = each.batch.runs[:, 1] + each.offset
            part[:, runs.COUNT] = each.batch.runs[:, 2]
            found.setdefault(each.where, []).append(part)
    for where, parts in found.items():
        topic, partition = work.origins[where]
        yield runs.Block(
            topic=topic,
            partition=partition,
            target_topic=where[0],
            topic_id=work.moved[topic, partition].topic_id,
            copy_id=topics[where[0]].topic_id,
            runs=runs.joined(np.concatenate(parts) if parts[1:] else parts[0]),
        )
