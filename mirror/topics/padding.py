"""Fills the head of a copy whose source's log begins at n, so that it ends at n, too.

Main function: `pad`. It writes empty records in transactions that it aborts, so that
consumers of committed records see none of them; each batch has up to a million of them
in 0.8 MB. A marker takes an offset as well, and a coordinator that dies may write
several: so the log's end is asked for after each transaction, and the caller finds out
whether there is too much. What it has written can be deleted once records follow it.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from mirror.clusters.admin import configs, topic_admin
from mirror.clusters.wire.produce import HEADER_SIZE, EncodedBatch
from mirror.clusters.wire.write import Write
from mirror.errors import UnreachableError
from mirror.records import codecs, fillers, records

if TYPE_CHECKING:
    from mirror.clusters.cluster import Cluster
    from mirror.clusters.topics import TopicPartition
    from mirror.clusters.transactions import Producer

_MOST_RECORDS = 1 << 20
"""With more in a batch, offsets would take another byte."""
_IN_ONE_TRANSACTION = 16 << 20
_MARKER_SECONDS = 30.0
_PAUSE_SECONDS = 0.01


def pad(
    target: Cluster,
    where: TopicPartition,
    to: int,
    producer: Producer,
    *,
    until: float,
) -> int:
    """Let a copy end at this offset, or come closer `until` a monotonic time; returns
    where it ends, which may be beyond. The `producer` is transactional and has taken
    over, and alone writes to the copy.

    Raises:
        FencedError: another owner of the id took over.
        ClusterError: the target does not answer, or refuses: look again where it ends.
    """
    limit = topic_admin.max_message_bytes(target, [where[0]])[where[0]]
    keyed = bool(configs.compacted(target, [where[0]]))
    behind = fillers.tail(b"", b"", keyed=keyed)
    end = _end(target, where)
    while end < to and time.monotonic() < until:
        count = min(to - end - 1, _IN_ONE_TRANSACTION)
        if not (count and producer.v2):
            producer.add_partitions([where])
        if count:
            batches = _batches(count, limit, behind)
            topics = target.topics([where[0]])
            Write(target, producer, {where: batches}, topics).finish()
        producer.retake()  # aborts what is open
        end = _wait_for(target, where, end + count + 1)
    return end


def _end(target: Cluster, where: TopicPartition) -> int:
    """Of the leader's log: followers may not have all of it yet."""
    ends = topic_admin.log_ends(target, [where], target.topics([where[0]]))
    if where not in ends:
        raise UnreachableError(
            f"cluster {target.alias}: the leader of {where[0]}-{where[1]} does not say "
            "where it ends"
        )
    return ends[where]


def _wait_for(target: Cluster, where: TopicPartition, end: int) -> int:
    """Until the marker is there: an abort is answered before."""
    deadline = time.monotonic() + _MARKER_SECONDS
    while (now := _end(target, where)) < end:
        if time.monotonic() > deadline:
            raise UnreachableError(
                f"cluster {target.alias}: no marker came to {where[0]}-{where[1]}"
            )
        time.sleep(_PAUSE_SECONDS)
    return now


def _batches(count: int, limit: int, behind: bytes) -> list[EncodedBatch]:
    """Batches with so many empty records, none larger than the limit in bytes.
    `behind`: what records have behind their offsets.
    """

    def made(size: int) -> bytes:
        return fillers.body(size, behind, codecs.ZSTD)

    most = _MOST_RECORDS
    while most > 1 and HEADER_SIZE + len(made(most)) > limit:
        most //= 2
    sizes = [most] * (count // most) + ([count % most] if count % most else [])
    now = int(time.time() * 1000)
    return [
        EncodedBatch(
            header=records.header(
                size=HEADER_SIZE + len(made(size)), attributes=codecs.ZSTD,
                count=size, base_time=now, newest=now,
            ),
            body=made(size),
            count=size,
        )
        for size in sizes
    ]  # fmt: skip
