"""Leader epochs: where in a log the records of one leader end.

Main function: `ends`, over a connected `Cluster` (OffsetForLeaderEpoch). Which epoch a
partition is in, its metadata say (`cluster.Leader`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from kafka.protocol.consumer import OffsetForLeaderEpochRequest

from mirror.clusters import codes

if TYPE_CHECKING:
    from collections.abc import Mapping

    from mirror.clusters.cluster import Cluster

TopicPartition = tuple[str, int]
_CONSUMER = -1


def ends(
    cluster: Cluster, epochs: Mapping[TopicPartition, int]
) -> dict[TopicPartition, int]:
    """The offset behind the last record of each partition's epoch, or of the newest
    one before it; -1 where the log has nothing of any later epoch either.

    Partitions without a leader or with an error are left out.

    Raises:
        ClusterError: a leader does not answer.
    """
    if not epochs:
        return {}
    topics = cluster.topics({topic for topic, _ in epochs})
    entry = OffsetForLeaderEpochRequest.OffsetForLeaderTopic
    partition_entry = entry.OffsetForLeaderPartition
    by_node: dict[int, dict[str, list[Any]]] = {}
    for (topic, partition), epoch in epochs.items():
        leader = topics[topic].leaders.get(partition)
        if leader is not None and leader.node >= 0:
            by_node.setdefault(leader.node, {}).setdefault(topic, []).append(
                partition_entry(
                    partition=partition, current_leader_epoch=-1, leader_epoch=epoch
                )
            )
    found = {}
    for node, asked in by_node.items():
        request = OffsetForLeaderEpochRequest(
            replica_id=_CONSUMER,
            topics=[entry(topic=name, partitions=each) for name, each in asked.items()],
        )
        for topic_answer in cluster.call(request, node=node).topics:
            for answer in topic_answer.partitions:
                if answer.error_code == codes.NONE:
                    key = (topic_answer.topic, answer.partition)
                    found[key] = int(answer.end_offset)
    return found
