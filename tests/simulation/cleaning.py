"""The log cleaner: takes records out of a log and leaves offsets, epochs and times.

Main function: `clean`. It removes records of aborted transactions, records that the
caller calls superseded, and markers of transactions of which no batch is left. Batches
that lose all their records go, or stay without any: Kafka keeps the last batch of each
producer, and that of a cleaning round. Source: Kafka's `Cleaner`.
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, Any

from crc32c import crc32c
from kafka.record.default_records import DefaultRecordBatchBuilder
from kafka.record.memory_records import MemoryRecords

from tests.simulation.partition import HEAD_SIZE, Batch

if TYPE_CHECKING:
    from collections.abc import Callable
    import random

    from tests.simulation.partition import PartitionLog


def clean(
    log: PartitionLog,
    random: random.Random,
    superseded: Callable[[int, bytes | None], bool],
) -> None:
    """Clean what is below the last stable offset, except for the newest batch.
    `superseded` gets a record's offset and key.
    """
    stable = log.stable
    aborted = log.aborted_in(log.start, stable)
    kept: list[Batch] = []
    seen: set[int] = set()
    """Producers whose transaction has a batch, even an empty one."""
    for batch in log.batches:
        cleaned: Batch | None = batch
        if batch.last >= stable or batch is log.batches[-1]:
            pass
        elif batch.control:
            if batch.producer not in seen:
                cleaned = _emptied(batch, random)
                log.aborted = [each for each in log.aborted if each.last != batch.base]
        elif batch.transactional and any(
            each.producer == batch.producer and each.first <= batch.base < each.last
            for each in aborted
        ):
            cleaned = _emptied(batch, random)
        else:
            cleaned = _without(batch, random, superseded)
        (seen.discard if batch.control else seen.add)(batch.producer)
        if cleaned is not None:
            kept.append(cleaned)
    log.batches = kept


def _emptied(batch: Batch, random: random.Random) -> Batch | None:
    if random.random() < 0.5:
        return None
    return _with_records(batch, b"", 0)


def _without(
    batch: Batch,
    random: random.Random,
    superseded: Callable[[int, bytes | None], bool],
) -> Batch | None:
    records = _records(batch)
    left = [each for each in records if not superseded(each.offset, each.key)]
    if len(left) == len(records):
        return batch
    if not left:
        return _emptied(batch, random)
    builder = DefaultRecordBatchBuilder(
        magic=2, compression_type=0, is_transactional=False, producer_id=-1,
        producer_epoch=-1, base_sequence=-1, batch_size=1 << 20,
    )  # fmt: skip
    first = struct.unpack_from(">q", batch.data, 27)[0]
    builder.append(0, first, None, None, [])  # times are relative to the first one
    size = len(builder.build())
    for each in left:
        builder.append(
            each.offset - batch.base, each.timestamp, each.key, each.value, each.headers
        )
    return _with_records(batch, bytes(builder.build()[size:]), len(left))


def _records(batch: Batch) -> list[Any]:
    found: list[Any] = []
    parts = MemoryRecords(batch.data)
    while (part := parts.next_batch()) is not None:
        found += part
    return found


def _with_records(batch: Batch, section: bytes, count: int) -> Batch:
    """The batch with an uncompressed section of other records."""
    head = bytearray(batch.data[:HEAD_SIZE])
    struct.pack_into(">i", head, 8, HEAD_SIZE - 12 + len(section))
    attributes = struct.unpack_from(">h", head, 21)[0]
    struct.pack_into(">h", head, 21, attributes & ~0x07)
    struct.pack_into(">i", head, 57, count)
    struct.pack_into(">I", head, 17, crc32c(bytes(head[21:]) + section))
    return batch._replace(data=bytes(head) + section)
