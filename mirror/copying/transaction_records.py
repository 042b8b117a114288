"""The records that a transaction writes about itself, in addition to the data.

Main type: `TransactionRecords`, one per flow. Positions go to the progress topic, runs
to the offset map, gaps to the loss ledger, all within the transaction. Runs must wait
until the brokers have said at which offsets they wrote the data.
"""

from __future__ import annotations

from dataclasses import dataclass
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
    from mirror.copying.pending_transaction import PendingTransaction

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
