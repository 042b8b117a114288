"""Where a log begins and ends, in one round trip.

One function, `edges`: who reads a small topic to its end asks for both each time.
`topic_admin` lists offsets of many partitions.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from kafka.protocol.consumer import ListOffsetsRequest

from mirror.clusters import codes
from mirror.clusters.admin.topic_admin import CONSUMER, EARLIEST, LATEST, TIMEOUT_MS

if TYPE_CHECKING:
    from mirror.clusters.cluster import Cluster
    from mirror.clusters.topics import Topic


def edges(
    cluster: Cluster, shown: Topic, partition: int, *, committed: bool
) -> tuple[int, int] | None:
    """The log's start and its latest offset, as `topic_admin.list_offsets` finds them;
    None if the leader that is `shown` does not tell.

    Raises:
        ClusterError: it does not answer.
    """
    leader = shown.leaders[partition]
    topic = ListOffsetsRequest.ListOffsetsTopic
    requests = [
        ListOffsetsRequest(
            replica_id=CONSUMER,
            isolation_level=int(committed),
            topics=[
                topic(
                    name=shown.name,
                    partitions=[
                        topic.ListOffsetsPartition(
                            partition_index=partition,
                            current_leader_epoch=leader.epoch,
                            timestamp=timestamp,
                        )
                    ],
                )
            ],
            timeout_ms=TIMEOUT_MS,
        )
        for timestamp in (EARLIEST, LATEST)
    ]
    answers = cluster.calls(requests, node=leader.node)
    first, last = (answer.topics[0].partitions[0] for answer in answers)
    if first.error_code != codes.NONE or last.error_code != codes.NONE:
        return None
    return first.offset, last.offset
