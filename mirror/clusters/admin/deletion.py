"""Deletes a topic by its id, so that a late repetition cannot delete its successor; and
records from the beginning of logs.

Functions over a connected `Cluster`; `delete` does it, `obstacle` says beforehand why
it would be refused; `delete_records`. Source: DeleteTopics since version 6 (KIP-516).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any
import uuid

from kafka.protocol.admin import DeleteRecordsRequest, DeleteTopicsRequest

from mirror.clusters import codes
from mirror.clusters.admin import allowed
from mirror.clusters.admin.topic_admin import TIMEOUT_MS, on_controller
from mirror.errors import NoLeaderError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from mirror.clusters.cluster import Cluster

_BY_ID = 6


def obstacle(cluster: Cluster, name: str) -> str:
    """Why `delete` would be refused for this topic; empty if nothing speaks against it.

    Raises:
        ClusterError: the cluster does not answer.
    """
    if not cluster.speaks(DeleteTopicsRequest.API_KEY, _BY_ID):
        return f"cluster {cluster.alias} cannot delete topics by id, as since Kafka 2.8"
    rights = allowed.of_topics(cluster, [name])[name]
    if rights is not None and "DELETE" not in rights:
        return f"cluster {cluster.alias} does not allow us to DELETE topic {name}"
    # No topic has a random id: a broker only says whether it deletes topics at all.
    if _request(cluster, uuid.uuid4()).error_code == codes.TOPIC_DELETION_DISABLED:
        return (
            f"cluster {cluster.alias} does not delete topics: delete.topic.enable is "
            "false on its brokers"
        )
    return ""


def delete(cluster: Cluster, topic_id: uuid.UUID, name: str) -> None:
    """Delete the topic with this id; nothing happens if there is none any more. `name`
    is for messages.

    Raises:
        ClusterError: the cluster refuses, in its own words, or does not answer: then
            it may be deleted or not.
    """
    result = _request(cluster, topic_id)
    if result.error_code not in (codes.NONE, codes.UNKNOWN_TOPIC_ID):
        raise codes.error_of(result, f"cluster {cluster.alias}: deleting topic {name}")


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


def _request(cluster: Cluster, topic_id: uuid.UUID) -> Any:
    entry = DeleteTopicsRequest.DeleteTopicState
    answer = on_controller(
        cluster,
        DeleteTopicsRequest(
            topics=[entry(name=None, topic_id=topic_id)], timeout_ms=TIMEOUT_MS
        ),
    )
    return answer.responses[0]
