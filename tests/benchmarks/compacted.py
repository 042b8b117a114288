"""Topics with a hole after each record, left by compaction.

Main functions: `fill_with_keys`, which writes a record of one key behind each record
that is to stay, and `leave_holes`, which has the broker remove these and then makes an
ordinary topic of it, so that nothing more changes.
"""

from __future__ import annotations

import itertools
import struct
import time
from typing import TYPE_CHECKING

from confluent_kafka import Producer
from confluent_kafka.admin import (
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    ResourceType,
)

from tests.benchmarks import payloads
from tests.benchmarks.load import QUIET, queue
from tests.benchmarks.logs import committed_records
from tests.harness.waiting import wait_for

if TYPE_CHECKING:
    from tests.benchmarks.clusters import BenchCluster

_KEY = struct.Struct(">q")
_REMOVED = {"key": b"x", "value": b""}
_LAST = {"key": b"end", "value": b""}
_CHUNK = 4096
_ROLL_SECONDS = 1.0
_CLEAN_SECONDS = 600.0
_COMPACTING = {
    "cleanup.policy": "compact",
    "min.cleanable.dirty.ratio": "0",
    "segment.ms": str(round(_ROLL_SECONDS * 1000)),
}


def fill_with_keys(
    bootstrap: str,
    topic: str,
    *,
    partitions: int,
    records: int,
    value_bytes: int,
    followed: bool,
) -> None:
    """Write `records` records, each with a key of its own; `followed`: each by one that
    compaction removes.
    """
    producer = _producer(bootstrap)
    values = itertools.cycle(payloads.incompressible(value_bytes))
    size = min(_CHUNK, -(-records // partitions))  # something for each partition
    for number, first in enumerate(range(0, records, size)):
        chunk = []
        for key in range(first, min(first + size, records)):
            chunk.append({"key": _KEY.pack(key), "value": next(values)})
            if followed:
                chunk.append(_REMOVED)
        queue(producer, topic, chunk, number % partitions)
    _flush(producer)


def leave_holes(
    cluster: BenchCluster, topic: str, *, partitions: int, records: int
) -> int:
    """Returns how many more than `records` are left once the holes are there: a last
    one of the key that is removed, and one more, in each partition.
    """
    _alter(cluster.near, topic, AlterConfigOpType.SET)
    time.sleep(_ROLL_SECONDS)  # the next record is late enough for a new segment
    producer = _producer(cluster.near)
    for partition in range(partitions):
        queue(producer, topic, [_LAST], partition)
    _flush(producer)

    def is_clean() -> bool:
        try:
            left = committed_records(cluster.data, topic, partitions=partitions)
        except FileNotFoundError:  # the broker replaces a segment right now
            return False
        return left == records + 2 * partitions

    wait_for(is_clean, _CLEAN_SECONDS, pause=1)
    _alter(cluster.near, topic, AlterConfigOpType.DELETE)
    return 2 * partitions


def _alter(bootstrap: str, topic: str, operation: AlterConfigOpType) -> None:
    entries = [
        ConfigEntry(name, value, incremental_operation=operation)
        for name, value in _COMPACTING.items()
    ]
    resource = ConfigResource(ResourceType.TOPIC, topic, incremental_configs=entries)
    admin = AdminClient({"bootstrap.servers": bootstrap, **QUIET})
    for future in admin.incremental_alter_configs([resource]).values():
        future.result()


def _producer(bootstrap: str) -> Producer:
    return Producer(
        {
            "bootstrap.servers": bootstrap, "acks": "all", "enable.idempotence": True,
            "linger.ms": 50, "batch.size": 64 << 10, "batch.num.messages": 100_000,
            "queue.buffering.max.messages": 1_000_000, **QUIET,
        }
    )  # fmt: skip


def _flush(producer: Producer) -> None:
    if waiting := producer.flush(120):
        raise RuntimeError(f"{waiting} records were not acknowledged")
