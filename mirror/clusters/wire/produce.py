"""Produce requests from finished record batches, and what their responses mean.

Main type: `EncodedBatch`, a header and a body that may be a view of any buffer.
`send` writes one request without copying bodies; `check` reads every error field
of a response. `transactions` provides sequence numbers and epochs.
"""

from __future__ import annotations

from dataclasses import dataclass
import struct
from typing import TYPE_CHECKING, Any

from crc32c import crc32c
from kafka.partitioner.default import murmur2
from kafka.protocol.producer import ProduceResponse
import numpy as np
import numpy.typing as npt

from mirror.clusters import codes
from mirror.clusters.wire.fields import Fields
from mirror.errors import (
    BrokerError,
    ClusterError,
    FencedError,
    PartitionError,
)

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from collections.abc import Set as AbstractSet

    from mirror.clusters.wire.connection import Connection
    from mirror.clusters.wire.pending_response import Pending

Runs = npt.NDArray[np.int64]

API_KEY = 0
VERSION_PLAIN = 8
"""Newest without tagged fields: idempotent produce and transactions v1."""
VERSION_TRANSACTIONS_V2 = 12
"""KIP-890: the first write adds the partition to the transaction."""

HEADER_SIZE = 61
_TRANSACTIONAL = 0x10
_ALL_REPLICAS = -1
_NOT_ADDED = "Unable to verify the partition has been added to the transaction"
"""How Kafka's ReplicaManager begins the message."""
_ATTRIBUTES = struct.Struct(">h")
PRODUCER = struct.Struct(">qhi")
"""Producer id, epoch and first sequence in the header of a batch of format v2."""
PRODUCER_AT = 43
_MAX_TIMESTAMP = struct.Struct(">q")
_MAX_TIMESTAMP_AT = 35
_CRC = struct.Struct(">I")


@dataclass(slots=True)
class EncodedBatch:
    """A v2 record batch, complete except for producer state and checksum."""

    header: bytearray
    """61 bytes, base offset 0, partition leader epoch -1."""
    body: memoryview | bytes
    count: int
    runs: Runs | None = None
    """The source offsets of its records: rows of (source offset of a run's first
    record, its index in the batch, count), int64; None for our own records."""
    body_sum: int | None = None
    """The body's CRC-32C, if already known."""
    fillers: int = 0
    """How many of its records stand for offsets without a record."""

    @property
    def size(self) -> int:
        return HEADER_SIZE + len(self.body)

    @property
    def newest(self) -> int:
        """The time of its newest record, epoch ms."""
        return int(_MAX_TIMESTAMP.unpack_from(self.header, _MAX_TIMESTAMP_AT)[0])

    @property
    def source_offset(self) -> int:
        """Of its first record, which is one of the source's."""
        assert self.runs is not None, "a batch of the source's records"
        return int(self.runs[0, 0])

    def stamp(
        self, producer_id: int, epoch: int, sequence: int, *, transactional: bool
    ) -> None:
        """Write the producer's state, then the CRC-32C."""
        attributes = _ATTRIBUTES.unpack_from(self.header, 21)[0] & ~_TRANSACTIONAL
        _ATTRIBUTES.pack_into(
            self.header, 21, attributes | (_TRANSACTIONAL if transactional else 0)
        )
        PRODUCER.pack_into(self.header, PRODUCER_AT, producer_id, epoch, sequence)
        checksum = crc32c(memoryview(self.header)[21:])
        if self.body_sum is None:
            checksum = crc32c(self.body, checksum)
        else:
            # Where it is known, kernels have laid the body out: they are loaded.
            from mirror.clusters.wire.checksum import joined  # noqa: PLC0415

            checksum = joined(checksum, self.body_sum, len(self.body))
        _CRC.pack_into(self.header, 17, checksum)


def send(
    connection: Connection,
    batches: Mapping[tuple[str, int], EncodedBatch],
    *,
    transactional_id: str | None,
    version: int,
    timeout_ms: int,
) -> Pending:
    """Send one Produce request: at most one batch per partition, acks=all."""
    flexible = version >= 9
    topics: dict[str, list[tuple[int, EncodedBatch]]] = {}
    for (topic, partition), batch in batches.items():
        topics.setdefault(topic, []).append((partition, batch))

    fields = Fields(flexible=flexible)
    fields.string(transactional_id)
    fields.raw(struct.pack(">hi", _ALL_REPLICAS, timeout_ms))
    fields.array(len(topics))
    for topic, partitions in topics.items():
        fields.string(topic)
        fields.array(len(partitions))
        for partition, batch in partitions:
            fields.raw(struct.pack(">i", partition))
            fields.bytes_of(batch.size)
            fields.buffer(batch.header)
            fields.buffer(batch.body)
            fields.tags()
        fields.tags()
    fields.tags()
    return fields.send(connection, API_KEY, version, ProduceResponse)


@dataclass(frozen=True, slots=True)
class Produced:
    """The result of one request's batches."""

    offsets: Mapping[tuple[str, int], int]
    """The base offsets of the written batches on the target."""
    again: AbstractSet[tuple[str, int]]
    """Partitions whose batches were not written and must be sent again unchanged: the
    broker is still ending the producer's last transaction."""
    throttle_ms: int = 0
    """For how long the broker will not read from this connection."""


def check(answer: Any) -> Produced:
    """Read every error field of a response.

    Raises:
        FencedError: another owner took over.
        PartitionError: some partitions refuse our batches; others may go on.
        ClusterError: anything else, retriable or not.
    """
    offsets: dict[tuple[str, int], int] = {}
    again: set[tuple[str, int]] = set()
    errors = []
    for topic in answer.responses:
        for result in topic.partition_responses:
            if _is_not_added(result):
                again.add((topic.name, result.index))
            elif result.error_code != codes.NONE:
                errors.append(_error(topic.name, result))
            else:
                offsets[topic.name, result.index] = result.base_offset
    if errors:
        raise _worst(errors)
    throttle_ms = int(answer.throttle_time_ms or 0)
    return Produced(offsets=offsets, again=again, throttle_ms=throttle_ms)


def _is_not_added(result: Any) -> bool:
    """Whether the partition could not be added to the transaction yet (KIP-890). A
    leader that does not reach the coordinator hides that behind another code.
    """
    if result.error_code == codes.NOT_ENOUGH_REPLICAS:
        return (result.error_message or "").startswith(_NOT_ADDED)
    return bool(result.error_code == codes.CONCURRENT_TRANSACTIONS)


def _worst(errors: Sequence[ClusterError | PartitionError]) -> Exception:
    worst = min(errors, key=_rank)
    if not isinstance(worst, PartitionError):
        return worst
    return PartitionError(
        topic=worst.topic,
        partition=worst.partition,
        reason=worst.reason,
        error=worst.error,
        others=tuple(
            each
            for each in errors
            if isinstance(each, PartitionError) and each is not worst
        ),
    )


def _rank(error: Exception) -> int:
    if isinstance(error, FencedError):
        return 0
    return 1 if isinstance(error, PartitionError) else 2


def _error(topic: str, result: Any) -> ClusterError | PartitionError:
    what = f"producing to {topic}-{result.index}"
    error = codes.error_for(result.error_code, what)
    details = [m for m in [result.error_message] if m]
    details += [
        f"record {bad.batch_index}: {bad.batch_index_error_message}"
        for bad in (result.record_errors or ())[:1]
    ]
    name = codes.name_of(result.error_code)
    text = "; ".join([name, *details])
    if result.error_code in codes.GUILTY_PARTITION:
        return PartitionError(
            topic=topic, partition=result.index, reason=text, error=name
        )
    if isinstance(error, BrokerError):
        return BrokerError(name=text, what=what, retriable=error.retriable)
    return error


def partition_of(key: bytes, partitions: int) -> int:
    """The partition that a Java producer with default settings would choose."""
    return int(murmur2(key) & 0x7FFFFFFF) % partitions
