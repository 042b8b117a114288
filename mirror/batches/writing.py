"""Writing a few records of our own to small topics, outside of the data's transactions.

Main function: `append`, to partition 0 of a topic such as a flow's control topics. It
returns when the records are acknowledged by all replicas in sync. Topics of users
never come this way (see `relay.target`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from mirror.batches import records
from mirror.clusters.transactions import Producer
from mirror.clusters.write import Write

if TYPE_CHECKING:
    from collections.abc import Sequence

    from mirror.clusters.cluster import Cluster

_RECORDS_PER_BATCH = 1000


def append(
    cluster: Cluster, topic: str, entries: Sequence[tuple[bytes, bytes]]
) -> None:
    """Write (key, value) records, in this order.

    Raises:
        ClusterError: they were not acknowledged; some of them may be written.
    """
    if not entries:
        return
    producer = Producer(cluster, transactional_id=None, transaction_timeout_ms=0)
    producer.take_over()
    batches = [
        records.encode(entries[at : at + _RECORDS_PER_BATCH])
        for at in range(0, len(entries), _RECORDS_PER_BATCH)
    ]
    Write(cluster, producer, {(topic, 0): batches}, cluster.topics([topic])).finish()
