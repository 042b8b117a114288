"""What one transaction writes, and what it changes once it is committed.

Main types: `PendingTransaction`, which the slot fills from fetched answers. Its
positions and counts take effect when it commits, and are dropped with it if it does
not. Until then it owns the buffers that hold its batches. `target` writes it; what goes
to copies with the source's offsets is a part of its own (`same_offsets`).

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
    from collections.abc import Container, Iterable, Mapping
    from collections.abc import Set as AbstractSet

    from mirror.clusters.cluster import Cluster
    from mirror.clusters.topics import Topic
    from mirror.clusters.wire.produce import EncodedBatch
    from mirror.clusters.wire.write import Placed
    from mirror.copying.rewrite import Rewriter
    from mirror.copying.tally import Tallied
    from mirror.offsets.progress import Position, RunningCount
    from mirror.pairs.losses import Loss


@dataclass(slots=True, kw_only=True)
class TransactionContent:
    """Batches by target partition; positions and counts by source partition."""

    batches: dict[TopicPartition, list[EncodedBatch]] = field(default_factory=dict)
    origins: dict[TopicPartition, TopicPartition] = field(default_factory=dict)
    """The source partition of each target partition that has batches."""
    moved: dict[TopicPartition, Position] = field(default_factory=dict)
    counts: dict[TopicPartition, Tallied] = field(default_factory=dict)
    running: dict[TopicPartition, RunningCount] = field(default_factory=dict)
    """Counts of all transactions up to this one; set when it is written."""
    losses: list[Loss] = field(default_factory=list)
    """The gaps that its positions jump over."""
    identical: dict[TopicPartition, tuple[TopicPartition, int]] = field(
        default_factory=dict
    )
    """By source partition that was copied to the same offsets before: its copy, and
    from which offset on the map does not name it yet."""
    begun: float = field(default_factory=time.monotonic)
    """When it was started, monotonic."""
    part_of: PendingTransaction | None = None

    @property
    def size(self) -> int:
        """The size of its batches in bytes."""
        return sum(b.size for queue in self.batches.values() for b in queue)

    def count(self, key: TopicPartition, more: Tallied) -> None:
        """Add to the counts of a source partition."""
        known = self.counts.get(key)
        self.counts[key] = more if known is None else known + more


@dataclass(slots=True, kw_only=True)
class PendingTransaction(TransactionContent):
    """What is filled from fetched answers, and the memory that it lies in."""

    rewriter: Rewriter
    buffers: list[bytearray] = field(default_factory=list)
    """Fetched bytes that relayed batches still point into."""
    fetched_bytes: int = 0
    worked_bytes: int = 0
    """The fetched bytes, counting compressed data at its unpacked size."""
    parts: int = 1
    """How many of its parts are not written yet."""

    def divided(
        self, keys: Container[TopicPartition]
    ) -> tuple[TransactionContent, TransactionContent]:
        """What it has of these source partitions, and of the others."""
        first, other = (
            TransactionContent(begun=self.begun, part_of=self) for _ in range(2)
        )
        for where, batches in self.batches.items():
            key = self.origins.get(where)
            part = first if key is not None and key in keys else other
            part.batches[where] = batches
            if key is not None:
                part.origins[where] = key
        for key, position in self.moved.items():
            part = first if key in keys else other
            part.moved[key] = position
            if key in self.counts:
                part.counts[key] = self.counts[key]
            if key in self.running:
                part.running[key] = self.running[key]
        other.losses = self.losses
        return first, other


# ---- the records that a transaction writes about itself ----

Batches = dict[TopicPartition, list["EncodedBatch"]]


@dataclass(frozen=True, slots=True, kw_only=True)
class TransactionRecords:
    """The partitions for the records of one flow's transactions."""

    progress: TopicPartition
    offset_map: TopicPartition
    losses: TopicPartition

    @classmethod
    def for_source(cls, source_alias: str, separator: str) -> TransactionRecords:
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

    def written_by(self, transaction: TransactionContent) -> list[TopicPartition]:
        """The partitions that this transaction's records go to."""
        partitions = [self.progress]
        mapped = transaction.batches or transaction.identical
        partitions += [self.offset_map] if mapped else []
        partitions += [self.losses] if transaction.losses else []
        return partitions

    def positions(self, transaction: TransactionContent) -> Batches:
        """How far source partitions are copied, once the transaction commits."""
        running = {key: each.encoded() for key, each in transaction.running.items()}
        return {self.progress: progress.encode(transaction.moved, running)}

    def placement(
        self,
        placed: Iterable[Placed],
        transaction: TransactionContent,
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
    transaction: TransactionContent,
    topics: Mapping[str, Topic],
) -> Iterable[runs.Block]:
    found: dict[TopicPartition, list[runs.RunArray]] = {}
    origins = dict(transaction.origins)
    for key, (where, first) in transaction.identical.items():
        found[where] = [runs.identical(first, transaction.moved[key].offset)]
        origins[where] = key
    for each in placed:
        if each.batch.runs is not None and each.offset >= 0:
            part = each.batch.runs.copy()
            part[:, runs.DOWNSTREAM] += each.offset  # was the index in the batch
            found.setdefault(each.where, []).append(part)
    for where, parts in found.items():
        topic, partition = origins[where]
        yield runs.Block(
            topic=topic,
            partition=partition,
            target_topic=where[0],
            topic_id=transaction.moved[topic, partition].topic_id,
            copy_id=topics[where[0]].topic_id,
            runs=runs.joined(np.concatenate(parts) if parts[1:] else parts[0]),
        )
