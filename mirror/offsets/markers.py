"""How a transaction of a flow ended, by the markers that others of its partitions have.

Main type: `MarkerSearch`, as `clusters.hanging` asks it. A coordinator knows of an id's
last transaction alone, and forgets it once the id is taken over. But where a
transaction ended there is a marker, and each v2 transaction (KIP-890) has an epoch of
its own. One that ended nowhere was seen by no reader. If no later one was committed, it
may be aborted whatever its coordinator decided: as its positions go with it, its
records are copied again.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from mirror.errors import ClusterError, CorruptBatchError
from mirror.offsets import progress, runs
from mirror.offsets.log_search import LogSearch

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator, Sequence
    from collections.abc import Set as AbstractSet

    from mirror.clusters.cluster import Cluster
    from mirror.offsets.log_search import LogEntry
    from mirror.offsets.runs import Block

TopicPartition = tuple[str, int]


@dataclass(frozen=True, slots=True, kw_only=True)
class MarkerSearch:
    """What the target's partitions tell about transactions of a flow's ids. Those with
    copies write to the offset map, too; those of slots to progress.
    """

    target: Cluster
    progress: TopicPartition
    offset_map: TopicPartition
    others: AbstractSet[TopicPartition]
    """Where else they may write, besides copies."""

    def was_committed(
        self, producer_id: int, epoch: int, left_open: Collection[TopicPartition]
    ) -> bool | None:
        """Whether to commit a v2 transaction where it was left open, rather than abort
        it; None if that is not known. Call it once its id is taken over.

        Raises:
            ClusterError: a leader does not answer, does not prove that it leads, or has
                a damaged batch.
        """
        try:
            return self._found(producer_id, epoch, left_open)
        except CorruptBatchError as error:
            what = f"cluster {self.target.alias}: looking for a transaction's end"
            raise ClusterError(f"{what}: {error}") from error

    def _found(
        self, producer_id: int, epoch: int, left_open: Collection[TopicPartition]
    ) -> bool | None:
        search = LogSearch(self.target, producer_id, epoch)
        sure, where_else = True, [self.progress, self.offset_map]
        if self.progress in left_open:  # without copies it is in others at most
            where_else += self.others
        for where in where_else:
            if where in left_open:
                continue
            entries = search.back(where, proven=where not in self.others)
            if (ended := _first_end(entries or ())) is not None:
                return ended
            sure &= entries is not None
        if self.offset_map in left_open:
            entries = search.back(self.offset_map, reading=True)
            sure &= entries is not None
            for block in _blocks(entries or []):
                if (ended := self._told_by(block, search, left_open)) is not None:
                    return ended
        if self.progress in left_open:
            entries = search.back(self.progress, proven=True, reading=True)
            sure &= entries is not None
            if entries and _is_followed(entries, search.of_all(self.progress, entries)):
                return True
        # Compaction may have taken the position of one without copies.
        sure &= self.progress in left_open or self.others.isdisjoint(left_open)
        return False if sure else None

    def _told_by(
        self, block: Block, search: LogSearch, left_open: Collection[TopicPartition]
    ) -> bool | None:
        """How the transaction ended that wrote this block, by the copies that it names
        and by the position of their source.
        """
        copy = (block.target_topic, block.partition)
        if copy not in left_open:
            ended = _first_end(search.on(copy, int(block.runs[0, runs.DOWNSTREAM])))
            if ended is not None:
                return ended
        if self.progress in left_open:
            return None
        # Its position is gone if a later one has replaced it, which tells as well.
        known = progress.read_proven(self.target, self.progress[0]).positions
        position = known.get((block.topic, block.partition))
        if position is None:
            return None
        if position.topic_id == block.topic_id:
            passed = position.offset > block.runs[0, runs.UPSTREAM]
        else:
            passed = position.left_id == block.topic_id
        return True if passed else None


def _first_end(entries: Iterable[LogEntry]) -> bool | None:
    """How it ended, if these begin with it; None if it is open."""
    ends = (entry.committed for entry in entries if entry.committed is not None)
    return next(ends, None)


def _parts(entries: Sequence[LogEntry]) -> list[LogEntry]:
    """The batches of the transaction with which these begin."""
    return [
        each
        for each in entries
        if each.transaction == entries[0].transaction and each.committed is None
    ]


def _blocks(entries: Sequence[LogEntry]) -> Iterator[Block]:
    """What the transaction with which these begin wrote to the map."""
    for entry in _parts(entries):
        for key, value in entry.records:
            for text in filter(None, (key, value)):
                yield from runs.decode(text)


def _is_followed(entries: Sequence[LogEntry], all_entries: Iterable[LogEntry]) -> bool:
    """Whether positions of the same partitions were committed after those of the
    transaction with which both begin: those of a slot commit in their order.
    """
    keys = {key for entry in _parts(entries) for key, _ in entry.records}
    waiting: set[int] = set()
    for entry in all_entries:
        if entry.committed is not None:
            if entry.committed and entry.producer_id in waiting:
                return True
            waiting.discard(entry.producer_id)
        elif entry.transaction != entries[0].transaction and any(
            key in keys for key, _ in entry.records
        ):
            waiting.add(entry.producer_id)
    return False
