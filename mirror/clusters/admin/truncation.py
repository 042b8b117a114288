"""Deletes records from the beginning of logs. Main function: `delete_records`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kafka.protocol.admin import DeleteRecordsRequest

from mirror.clusters import codes
from mirror.clusters.admin.topic_admin import TIMEOUT_MS
from mirror.errors import NoLeaderError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from mirror.clusters.cluster import Cluster


def delete_records(cluster: Cluster, topic: str, before: Mapping[int, int]) -> None:
    """Delete the records below an offset, by partition.

    Raises:
        ClusterError: the cluster refuses, or a partition has no leader.
    """
    leaders = cluster.topics([topic])[topic].leaders
    entry = DeleteRecordsRequest.DeleteRecordsTopic
    for number, offset in before.items():
        leader = leaders.get(number)
        if leader is None or leader.node < 0:
            raise NoLeaderError(f"{topic}-{number} has no leader")
        partition = entry.DeleteRecordsPartition(partition_index=number, offset=offset)
        answer = cluster.call(
            DeleteRecordsRequest(
                topics=[entry(name=topic, partitions=[partition])],
                timeout_ms=TIMEOUT_MS,
            ),
            node=leader.node,
        )
        for found in answer.topics[0].partitions:
            if found.error_code != codes.NONE:
                raise codes.error_of(found, f"deleting records of {topic}-{number}")
