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
from typing import TYPE_CHECKING, NamedTuple

from mirror.clusters.admin import topic_admin
from mirror.clusters.wire.produce import PRODUCER, PRODUCER_AT
from mirror.errors import (
    AuthorizationError,
    ClusterError,
    CorruptBatchError,
    NoLeaderError,
)
from mirror.offsets import progress, runs
from mirror.offsets.progress import PROOF_KEY
from mirror.records import records
from mirror.records.reading import TopicReader
from mirror.records.writing import prove_leader

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator, Sequence
    from collections.abc import Set as AbstractSet

    from mirror.clusters.cluster import Cluster
    from mirror.clusters.topics import TopicPartition
    from mirror.offsets.runs import Block


# ---- looks for what one producer wrote to a log in one of its transactions ----
#
# Main types: `LogSearch`, and the `LogEntry`s that it finds: batches and markers,
# decided or not. Each v2 transaction (KIP-890) has an epoch of its own, so producer
# id and epoch name it. The end of a log is looked through first.


_FIRST_OFFSETS = 10_000
"""How far back to look at first; each further time twice as far."""
_MOST_OFFSETS = 2_000_000
"""How far back at most: a take-over waits meanwhile."""


class LogEntry(NamedTuple):
    """A batch in a log, or a marker."""

    offset: int
    producer_id: int
    epoch: int
    committed: bool | None
    """Of a marker; None: it is a batch."""
    records: tuple[tuple[bytes, bytes], ...] = ()
    """Keys and values of a batch, if they were to be read."""

    @property
    def transaction(self) -> tuple[int, int]:
        return self.producer_id, self.epoch


class LogSearch:
    """Looks for one transaction in logs."""

    def __init__(self, target: Cluster, producer_id: int, epoch: int) -> None:
        self._target = target
        self._producer_id = producer_id
        self._epoch = epoch

    def back(
        self, where: TopicPartition, *, proven: bool = False, reading: bool = False
    ) -> list[LogEntry] | None:
        """What the producer wrote from this transaction on, as it stands in the log;
        empty if the transaction is not there, None if it may be further back, or we may
        not read. `proven`: by a leader that is not cut off, and shows what came last.
        """
        try:
            return self._back(where, proven=proven, reading=reading)
        except AuthorizationError:
            return None

    def _back(
        self, where: TopicPartition, *, proven: bool, reading: bool
    ) -> list[LogEntry] | None:
        proof = prove_leader(self._target, where[0], PROOF_KEY) if proven else -1
        end = max(proof + 1, self._offset(where, topic_admin.LATEST))
        start = self._offset(where, topic_admin.EARLIEST)
        least, offsets = max(start, end - _MOST_OFFSETS), _FIRST_OFFSETS
        found: list[LogEntry] = []
        first: int | None = None
        while end > least and not first:  # of several batches, the first one
            begin = max(least, end - offsets)
            found = [*self._ours(where, begin, end, reading=reading), *found]
            first = next((n for n, e in enumerate(found) if self._is_part(e)), None)
            if first is None and any(self._is_earlier(entry) for entry in found):
                return []
            end, offsets = begin, 2 * offsets
        if first is not None:
            return found[first:]
        return [] if least == start else None

    def on(self, where: TopicPartition, offset: int) -> Iterator[LogEntry]:
        """What the producer wrote to a partition from this offset on, if it exists."""
        if self._target.topic(where[0]) is None:
            return iter(())
        return self._ours(where, offset, self._offset(where, topic_admin.LATEST))

    def of_all(
        self, where: TopicPartition, entries: Sequence[LogEntry]
    ) -> Iterator[LogEntry]:
        """What all producers wrote from these entries on, of which there are some."""
        end = max(entries[-1].offset + 1, self._offset(where, topic_admin.LATEST))
        return self._entries(where, entries[0].offset, end, reading=True)

    def _is_part(self, entry: LogEntry) -> bool:
        return entry.committed is None and entry.epoch == self._epoch

    def _is_earlier(self, entry: LogEntry) -> bool:
        return entry.committed is None and entry.epoch < self._epoch

    def _offset(self, where: TopicPartition, timestamp: int) -> int:
        found = topic_admin.list_offsets(
            self._target, [where], timestamp=timestamp, committed=False
        )
        if where not in found:
            name = f"{where[0]}-{where[1]}"
            raise NoLeaderError(f"cluster {self._target.alias}: {name} has no leader")
        return found[where]

    def _ours(
        self, where: TopicPartition, begin: int, end: int, *, reading: bool = False
    ) -> Iterator[LogEntry]:
        return self._entries(
            *(where, begin, end), reading=reading, producer_id=self._producer_id
        )

    def _entries(
        self,
        where: TopicPartition,
        begin: int,
        end: int,
        *,
        reading: bool,
        producer_id: int | None = None,
    ) -> Iterator[LogEntry]:
        """What this producer, or all, wrote there, in the order of the log."""
        from mirror.records import batch, scan  # noqa: PLC0415  kernels, and it is rare

        topic, partition = where
        reader = TopicReader(
            self._target, topic, partition=partition, position=begin, committed=False
        )
        columns = [scan.BASE, scan.PRODUCER, scan.AT]
        for buffer, answer in reader.seen(end):
            rows = answer.rows if answer.seen is None else answer.seen
            # An answer has whole batches, of which more may stand outside. The cleaner
            # leaves empty ones, whose markers may be gone.
            base = rows[:, scan.BASE]
            wanted = (base >= begin) & (base < end) & (rows[:, scan.COUNT] > 0)
            if producer_id is not None:
                wanted &= rows[:, scan.PRODUCER] == producer_id
            rows = rows[wanted]
            is_marker = (rows[:, scan.ATTRIBUTES] & batch.CONTROL) != 0
            ends = iter(batch.markers(buffer, rows[is_marker]).tolist())
            for n, (offset, pid, at) in enumerate(rows[:, columns].tolist()):
                _, epoch, _ = PRODUCER.unpack_from(buffer.data, at + PRODUCER_AT)
                if is_marker[n]:
                    committed = next(ends) != batch.ABORT_MARKER
                    yield LogEntry(offset, pid, epoch, committed)
                    continue
                decoded = records.decode(buffer, rows[n : n + 1]) if reading else ()
                found = tuple((key, value) for _, key, value in decoded)
                yield LogEntry(offset, pid, epoch, None, found)


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
