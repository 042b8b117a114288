"""What one transaction writes, and what it changes once it is committed.

Main types: `PendingTransaction`, which the slot fills from fetched answers. Its
positions and counts take effect when it commits, and are dropped with it if it does
not. Until then it owns the buffers that hold its batches. `target` writes it.

`TransactionRecords`, one per flow, are the records that it writes in addition to the
data: positions go to the progress topic, runs to the offset map, gaps to the loss
ledger, all within the transaction. Runs must wait until the brokers have said at which
offsets they wrote the data.
"""

from __future__ import annotations

from dataclasses import dataclass, field
import time
from typing import TYPE_CHECKING

import numpy as np

from mirror.clusters.topics import TopicPartition
from mirror.offsets import progress, runs
from mirror.offsets.markers import MarkerSearch
from mirror.pairs import losses
from mirror.records import records

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from collections.abc import Set as AbstractSet

    from mirror.clusters.cluster import Cluster
    from mirror.clusters.topics import Topic
    from mirror.clusters.wire.produce import EncodedBatch
    from mirror.clusters.wire.write import Placed
    from mirror.copying.rewrite import Rewriter
    from mirror.copying.tally import Tallied
    from mirror.offsets.progress import Position, RunningCount
    from mirror.pairs.losses import Loss


@dataclass(slots=True)
class PendingTransaction:
    """Batches by target partition; positions and counts by source partition."""

    rewriter: Rewriter
    batches: dict[TopicPartition, list[EncodedBatch]] = field(default_factory=dict)
    origins: dict[TopicPartition, TopicPartition] = field(default_factory=dict)
    """The source partition of each target partition that has batches."""
    moved: dict[TopicPartition, Position] = field(default_factory=dict)
    counts: dict[TopicPartition, Tallied] = field(default_factory=dict)
    running: dict[TopicPartition, RunningCount] = field(default_factory=dict)
    """Counts of all transactions up to this one; set when it is written."""
    losses: list[Loss] = field(default_factory=list)
    """The gaps that its positions jump over."""
    buffers: list[bytearray] = field(default_factory=list)
    """Fetched bytes that relayed batches still point into."""
    fetched_bytes: int = 0
    begun: float = field(default_factory=time.monotonic)
    """When it was started, monotonic."""
    worked_bytes: int = 0
    """The fetched bytes, counting compressed data at its unpacked size."""

    @property
    def size(self) -> int:
        """The size of its batches in bytes."""
        return sum(b.size for queue in self.batches.values() for b in queue)

    def count(self, key: TopicPartition, more: Tallied) -> None:
        """Add to the counts of a source partition."""
        known = self.counts.get(key)
        self.counts[key] = more if known is None else known + more


# ---- the records that a transaction writes about itself ----

Batches = dict[TopicPartition, list["EncodedBatch"]]


@dataclass(frozen=True, slots=True, kw_only=True)
class TransactionRecords:
    """The partitions for the records of one flow's transactions."""

    progress: TopicPartition
    offset_map: TopicPartition
    losses: TopicPartition

    @classmethod
    def of(cls, source_alias: str, separator: str) -> TransactionRecords:
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

    def search(
        self, target: Cluster, others: AbstractSet[TopicPartition]
    ) -> MarkerSearch:
        """For how transactions ended that may have written to `others` as well."""
        return MarkerSearch(
            target=target,
            progress=self.progress,
            offset_map=self.offset_map,
            others=others | {self.losses},
        )

    def written_by(self, transaction: PendingTransaction) -> list[TopicPartition]:
        """The partitions that this transaction's records go to."""
        partitions = [self.progress]
        partitions += [self.offset_map] if transaction.batches else []
        partitions += [self.losses] if transaction.losses else []
        return partitions

    def positions(self, transaction: PendingTransaction) -> Batches:
        """How far source partitions are copied, once the transaction commits."""
        running = {key: each.encoded() for key, each in transaction.running.items()}
        return {self.progress: progress.encode(transaction.moved, running)}

    def placement(
        self,
        placed: Iterable[Placed],
        transaction: PendingTransaction,
        topics: Mapping[str, Topic],
    ) -> Batches:
        """Where the data was `placed` in `topics`, and what was lost."""
        batches: Batches = {}
        if values := runs.encode(_blocks(placed, transaction, topics)):
            batches[self.offset_map] = [
                records.encode([(b"", value)]) for value in values
            ]
        if transaction.losses:
            batches[self.losses] = losses.encode(transaction.losses)
        return batches


def _blocks(
    placed: Iterable[Placed],
    transaction: PendingTransaction,
    topics: Mapping[str, Topic],
) -> Iterable[runs.Block]:
    found: dict[TopicPartition, list[runs.RunArray]] = {}
    for each in placed:
        if each.batch.runs is not None and each.offset >= 0:
            part = each.batch.runs.copy()
            part[:, runs.DOWNSTREAM] += each.offset  # was the index in the batch
            found.setdefault(each.where, []).append(part)
    for where, parts in found.items():
        topic, partition = transaction.origins[where]
        yield runs.Block(
            topic=topic,
            partition=partition,
            target_topic=where[0],
            topic_id=transaction.moved[topic, partition].topic_id,
            copy_id=topics[where[0]].topic_id,
            runs=runs.joined(np.concatenate(parts) if parts[1:] else parts[0]),
        )
