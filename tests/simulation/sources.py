"""What is written to the source: records with names, in and out of transactions.

Main type: `Writer`, which appends batches to the model's logs and keeps the truth about
each record. A record's key names it: topic, partition and number, in the order of its
partition; nothing else writes there.
"""

from __future__ import annotations

from dataclasses import dataclass, field
import struct
from typing import TYPE_CHECKING

from crc32c import crc32c
from kafka.record.default_records import DefaultRecordBatchBuilder

from tests.simulation.world import NOON

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.simulation.model import ModelCluster

TopicPartition = tuple[str, int]
_TRANSACTIONAL = 0x10
_CODECS = (0, 1, 4)


@dataclass(eq=False)
class Written:
    """The truth about one source record."""

    name: bytes
    value: bytes | None
    topic_id: str
    where: TopicPartition
    offset: int
    producer: int
    """-1: in no transaction."""
    committed: bool | None = None
    """None while its transaction is open."""


@dataclass(eq=False)
class _Open:
    """An open transaction of one of the source's own producers."""

    producer: int
    epoch: int
    sequences: dict[TopicPartition, int] = field(default_factory=dict)
    records: list[Written] = field(default_factory=list)


class Writer:
    """Writes to the topics of one cluster."""

    def __init__(self, cluster: ModelCluster, topics: list[str]) -> None:
        self.cluster = cluster
        self.records: dict[bytes, Written] = {}
        self.topics = topics
        self.schema_id: Callable[[str], int] = lambda _: 0
        """The id with which values of a topic begin; 0: they have none."""
        self.with_transactions = True
        self.age: Callable[[], float] | None = None
        """How old a record is when it is written, in seconds; None: its time means
        nothing."""
        self._numbers: dict[TopicPartition, int] = {}
        self._open: list[_Open] = []

    def step(self) -> None:
        """Write a little: a plain batch, or something about a transaction."""
        random = self.cluster.world.random
        dice = random.random()
        if dice < 0.55 or not self.with_transactions:
            self._append(None)
        elif dice < 0.7 and len(self._open) < 2:
            self._open.append(_Open(self.cluster.transactions.new_producer(), 0))
            self._append(self._open[-1])
        elif self._open and dice < 0.9:
            self._append(random.choice(self._open))
        elif self._open:
            self.end(random.choice(self._open), commit=random.random() < 0.6)

    def end_all(self) -> None:
        """Nothing stays open."""
        for each in tuple(self._open):
            self.end(each, commit=True)

    def _append(self, transaction: _Open | None) -> None:
        cluster = self.cluster
        random = cluster.world.random
        topic = random.choice(self.topics)
        if topic not in cluster.topics:
            return
        there = cluster.topics[topic]
        number = random.randrange(len(there.partitions))
        partition = there.partitions[number]
        if partition.leader < 0:
            return
        where = (topic, number)
        made = []
        schema = self.schema_id(topic)
        builder = DefaultRecordBatchBuilder(
            magic=2,
            compression_type=random.choice(_CODECS),
            is_transactional=transaction is not None,
            producer_id=-1,
            producer_epoch=-1,
            base_sequence=-1,
            batch_size=1 << 20,
        )
        count = random.choice((1, 1, 2, 3, 7, 30))
        for index in range(count):
            at = self._numbers.get(where, 0)
            self._numbers[where] = at + 1
            name = b"%s:%d:%d" % (topic.encode(), number, at)
            value = random.choice((None, b"", name * random.randrange(1, 20)))
            if schema:
                value = struct.pack(">bI", 0, schema) + (value or b"")
            headers = [("h", b"x")] if random.random() < 0.3 else []
            builder.append(index, self._now(), name, value, headers)
            made.append(
                Written(
                    name, value, there.id.hex, where, -1,
                    -1 if transaction is None else transaction.producer,
                    True if transaction is None else None,
                )
            )  # fmt: skip
        data = bytearray(builder.build())
        sequence = -1
        if transaction is not None:
            sequence = transaction.sequences.get(where, 0)
            transaction.sequences[where] = sequence + count
            struct.pack_into(
                ">qhi", data, 43, transaction.producer, transaction.epoch, sequence
            )
            transaction.records += made
        else:
            struct.pack_into(">qhi", data, 43, -1, -1, -1)
        struct.pack_into(">I", data, 17, crc32c(bytes(data[21:])))
        done = partition.log.append(bytes(data), cluster.world.now)
        if done.error:
            # After an election with loss its sequence is no longer in order.
            if transaction is not None:
                transaction.records = transaction.records[:-count]
            return
        for index, record in enumerate(made):
            record.offset = done.base + index
            self.records[record.name] = record
        cluster.stir()

    def _now(self) -> int:
        """The time of a record, epoch ms."""
        if self.age is None:
            return int(self.cluster.world.now * 1000)
        return int((NOON + self.cluster.world.now - self.age()) * 1000)

    def _marked_at(self) -> float:
        """The time of a marker."""
        now = self.cluster.world.now
        return now if self.age is None else NOON + now

    def end(self, transaction: _Open, *, commit: bool) -> None:
        """Write the markers."""
        self._open.remove(transaction)
        for where in transaction.sequences:
            partition = self.cluster.partition(where)
            if partition is not None:
                partition.log.end_transaction(
                    transaction.producer,
                    transaction.epoch,
                    commit=commit,
                    at=self._marked_at(),
                )
        for record in transaction.records:
            record.committed = commit
        self.cluster.stir()
