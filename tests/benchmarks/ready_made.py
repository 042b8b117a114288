"""A topic of ready-made batches: smaller or larger ones than a client makes quickly.

Main function: `fill_ready_made`. A client library can hardly write single records, nor
a hundred million compressed ones, in the time that a benchmark has. So whole Produce
requests are made beforehand, with a batch for each partition, and sent again and again.
"""

from __future__ import annotations

from contextlib import closing
import itertools
import struct
import time
from typing import TYPE_CHECKING

import numpy as np

from mirror.clusters.cluster import Cluster
from mirror.clusters.wire import produce
from mirror.clusters.wire.produce import HEADER_SIZE, EncodedBatch
from mirror.config.cluster_settings import ClusterConfig
from mirror.records import codecs
from mirror.records import records as batches

if TYPE_CHECKING:
    from collections.abc import Sequence

    from mirror.clusters.wire.connection import Connection
    from mirror.clusters.wire.pending_response import Pending

_MOST_REQUESTS = 60
_ENOUGH_RECORDS = 200_000
"""So many different ones are as good as all of them."""
_IN_FLIGHT = 16
_CONNECTIONS = 3
_TIMEOUT_MS = 30_000
# Of a Produce answer: what is before its partitions, and each partition without
# error. With an error it would be longer.
_PARTITION = np.dtype(
    [("index", ">i4"), ("error", ">i2"), ("offset", ">i8"), ("times", ">i8", 2),
     ("errors", ">i4"), ("message", ">i2")]
)  # fmt: skip


class _Request:
    """A Produce request with one batch per partition, ready to be sent."""

    def __init__(
        self, topic: str, parts: Sequence[Sequence[bytes]], *, compression: str
    ) -> None:
        name = topic.encode()
        self.records = sum(map(len, parts))
        self.payload_bytes = sum(len(value) for part in parts for value in part)
        self.body = b"".join(
            (
                struct.pack(">hhii", -1, -1, _TIMEOUT_MS, 1),
                struct.pack(">h", len(name)) + name,
                struct.pack(">i", len(parts)),
                *(
                    partition_entry(number, values, compression=compression)
                    for number, values in enumerate(parts)
                ),
            )
        )


def partition_entry(number: int, values: Sequence[bytes], *, compression: str) -> bytes:
    """Of a Produce request: number, size, and the batch."""
    batch = _compressed(batches.encode([(b"", value) for value in values]), compression)
    batch.stamp(-1, -1, -1, transactional=False)
    return struct.pack(">ii", number, batch.size) + batch.header + bytes(batch.body)


def _compressed(batch: EncodedBatch, compression: str) -> EncodedBatch:
    codec = codecs.BY_NAME[compression]
    if codec == codecs.NONE:
        return batch
    body = codecs.compress(codec, memoryview(batch.body))
    now = round(time.time() * 1000)
    return EncodedBatch(
        header=batches.header(
            size=HEADER_SIZE + len(body),
            attributes=codec,
            count=batch.count,
            base_time=now,
            newest=now,
        ),
        body=body,
        count=batch.count,
    )


def fill_ready_made(
    bootstrap: str,
    topic: str,
    *,
    partitions: int,
    pool: Sequence[bytes],
    records: int,
    batch_records: Sequence[int],
    compression: str = "none",
) -> tuple[int, int]:
    """Write at least `records` records; gives how many, and their payload's bytes.

    `batch_records` is how many there are in a batch, and the next one, and so on.
    """
    requests = _requests(
        topic, partitions, pool=pool, sizes=batch_records, compression=compression
    )
    config = ClusterConfig(alias="load", bootstrap_servers=(bootstrap,))
    with closing(Cluster(config).connect()) as cluster:
        leaders = cluster.wait_for_topic(topic).leaders
        lines = [
            _Line(cluster.connection(leaders[0].node, f"load {number}"), partitions)
            for number in range(_CONNECTIONS)
        ]
        written = payload_bytes = 0
        for request, line in zip(
            itertools.cycle(requests), itertools.cycle(lines), strict=False
        ):
            if written >= records:
                break
            line.send(request)
            written += request.records
            payload_bytes += request.payload_bytes
        for line in lines:
            line.drain(0)
    return written, payload_bytes


def _requests(
    topic: str,
    partitions: int,
    *,
    pool: Sequence[bytes],
    sizes: Sequence[int],
    compression: str,
) -> list[_Request]:
    values, counts = itertools.cycle(pool), itertools.cycle(sizes)
    requests: list[_Request] = []
    made = 0
    while len(requests) < _MOST_REQUESTS and made < _ENOUGH_RECORDS:
        parts = [
            list(itertools.islice(values, next(counts))) for _ in range(partitions)
        ]
        requests.append(_Request(topic, parts, compression=compression))
        made += requests[-1].records
    return requests


class _Line:
    """One connection, several requests in flight."""

    def __init__(self, connection: Connection, partitions: int) -> None:
        self._connection = connection
        self._answer_bytes = partitions * _PARTITION.itemsize
        self._pending: list[Pending] = []

    def send(self, request: _Request) -> None:
        # Half of them at once: an answer more or less does not wake us each time.
        if len(self._pending) >= _IN_FLIGHT:
            self.drain(_IN_FLIGHT // 2)
        self._pending.append(
            self._connection.send_buffers(
                produce.API_KEY, produce.VERSION_PLAIN, [request.body], flexible=False
            )
        )

    def drain(self, left: int) -> None:
        """Wait until no more than `left` answers are owed."""
        ended = self._pending[: len(self._pending) - left]
        self._pending = self._pending[len(ended) :]
        for pending in ended:
            answer = bytes(pending.result())
            # Topics, one name, partitions; at the end the throttle time.
            parts = answer[-4 - self._answer_bytes : -4]
            if np.frombuffer(parts, _PARTITION)["error"].any():
                raise RuntimeError(f"a batch was refused: {answer!r}")
