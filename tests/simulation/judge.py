"""Looks at the clusters from outside, at every commit and at the end.

Main type: `Judge`. It reads the model's logs, not what the product says, and knows the
truth about each source record from the one who wrote it. Records are decoded by
kafka-python.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from kafka.record.memory_records import MemoryRecords

if TYPE_CHECKING:
    from tests.simulation.model import ModelCluster
    from tests.simulation.partition import Batch, PartitionLog
    from tests.simulation.sources import Writer

TopicPartition = tuple[str, int]


class WrongError(AssertionError):
    """What no history may show."""


def records_of(batch: Batch) -> list[tuple[int, bytes | None, bytes | None]]:
    """Offset, key and value of a batch's records."""
    found = []
    records = MemoryRecords(batch.data)
    while (each := records.next_batch()) is not None:
        found += [(r.offset, r.key, r.value) for r in each]
    return found


class Judge:
    """Judges the copies that one flow makes."""

    def __init__(
        self, writer: Writer, target: ModelCluster, prefix: str, *, once: bool
    ) -> None:
        self.copies: dict[bytes, list[tuple[TopicPartition, int]]] = {}
        """Where each record's copies are, in the order in which they became visible."""
        self._writer = writer
        self._target = target
        self._prefix = prefix
        self._once = once
        self._read: dict[TopicPartition, int] = {}
        self._last: dict[TopicPartition, tuple[int, bytes]] = {}

    def look(self) -> None:
        """Read what became visible to `read_committed` since the last look.

        Raises:
            WrongError: it is not as promised.
        """
        for name, topic in self._target.topics.items():
            if name.removeprefix(self._prefix) in self._writer.topics:
                for number, partition in enumerate(topic.partitions):
                    self._follow((name, number), partition.log)

    def _follow(self, where: TopicPartition, log: PartitionLog) -> None:
        at, end = self._read.get(where, 0), log.stable
        if at >= end:
            return
        aborted = log.aborted_in(at, end)
        for batch in log.batches:
            if batch.base < at or batch.control:
                continue
            if batch.base >= end:
                break
            if not (
                batch.transactional
                and any(
                    a.producer == batch.producer and a.first <= batch.base < a.last
                    for a in aborted
                )
            ):
                for offset, key, value in records_of(batch):
                    self._judge(where, offset, key, value)
        self._read[where] = end

    def _judge(
        self,
        where: TopicPartition,
        offset: int,
        key: bytes | None,
        value: bytes | None,
    ) -> None:
        record = self._writer.records.get(key or b"")
        place = f"{where[0]}-{where[1]}@{offset}"
        if record is None:
            raise WrongError(f"{place}: {key!r} was never written")
        if not record.committed:
            raise WrongError(f"{place}: {key!r} was not committed on the source")
        if (record.where[0], record.where[1]) != (
            where[0].removeprefix(self._prefix),
            where[1],
        ):
            raise WrongError(f"{place}: {key!r} belongs to {record.where}")
        if record.value != value:
            raise WrongError(f"{place}: {key!r} has another value")
        if self._once and record.name in self.copies:
            raise WrongError(
                f"{place}: {key!r} is a second copy of {self.copies[record.name][0]}"
            )
        number = int(record.name.rsplit(b":", 1)[1])
        last, of = self._last.get(where, (-1, b""))
        if number <= last and self._once:
            raise WrongError(f"{place}: {key!r} comes after {of!r}")
        if number > last:
            self._last[where] = (number, record.name)
        self.copies.setdefault(record.name, []).append((where, offset))

    def missing(self, lost: dict[TopicPartition, list[tuple[str, int, int]]]) -> str:
        """The first record that is on the source and not on the target, though no loss
        explains it; empty if there is none.
        """
        source = self._writer.cluster
        for record in self._writer.records.values():
            topic = source.topics.get(record.where[0])
            if topic is None or topic.id.hex != record.topic_id:
                continue
            log = topic.partitions[record.where[1]].log
            if not record.committed or record.name in self.copies:
                continue
            if record.offset < log.start or not _has(log, record.offset, record.name):
                continue
            if any(
                topic_id == record.topic_id and first <= record.offset <= last
                for topic_id, first, last in lost.get(record.where, ())
            ):
                continue
            return f"{record.name!r} at {record.where}@{record.offset}"
        return ""


def _has(log: PartitionLog, offset: int, name: bytes) -> bool:
    """Whether the log still has this record there."""
    for batch in log.batches:
        if batch.base <= offset <= batch.last:
            return any(at == offset and key == name for at, key, _ in records_of(batch))
    return False
