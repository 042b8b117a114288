"""What a model's broker answers: Kafka's protocol in front of `model`.

Main function: `serve`, which decodes a request, has a handler fill in the answer, and
sends it. `faults` has its own, which lets faults strike on the way.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any
import uuid

from tests.simulation import administration, groups, membership, reading, writing
from tests.simulation.requests import (
    NEWEST,
    NEWEST_BY_ID,
    NEWEST_V2,
    REQUESTS,
    TIMED_OUT,
    TOPIC_EXISTS,
    UNKNOWN_TOPIC,
    UNKNOWN_TOPIC_ID,
    Request,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.simulation.model import ModelBroker
    from tests.simulation.network import Wire

_NO_ID = uuid.UUID(int=0)


def serve(broker: ModelBroker, frame: bytes, wire: Wire) -> None:
    """Handle one request; see `ModelCluster.serve`."""
    handle(Request(broker, frame, wire))


def handle(request: Request) -> None:
    """Do what is asked, and answer, now or later."""
    if _HANDLERS[request.api](request):
        request.send()


def answer_with(request: Request, code: int) -> None:
    """Refuse the whole request."""
    body, answer = request.body, request.answer
    if request.api == "CreateTopics":
        entry = request.kind.CreatableTopicResult
        answer.topics = [
            entry(
                name=topic.name, topic_id=_NO_ID, error_code=code, error_message=None,
                num_partitions=-1, replication_factor=-1, configs=[],
            )
            for topic in body.topics
        ]  # fmt: skip
    elif request.api == "AddPartitionsToTxn":
        writing.added(request, lambda _: code)
    else:
        answer.error_code = code
        answer.producer_id = answer.producer_epoch = -1
    request.send()


def _versions(request: Request) -> bool:
    cluster = request.cluster
    newest = dict(NEWEST)
    if cluster.transactions.v2:
        newest |= NEWEST_V2
    if cluster.by_id:
        newest |= NEWEST_BY_ID
    request.answer.error_code = 0
    request.answer.api_keys = [
        request.kind.ApiVersion(api_key=key, min_version=0, max_version=newest[api])
        for key, (api, _) in REQUESTS.items()
    ]
    request.answer.finalized_features_epoch = 0
    request.answer.finalized_features = (
        [
            request.kind.FinalizedFeatureKey(
                name="transaction.version", max_version_level=2, min_version_level=2
            )
        ]
        if cluster.transactions.v2
        else []
    )
    return True


def _metadata(request: Request) -> bool:
    cluster, broker = request.cluster, request.broker
    answer = request.answer
    # A broker that is cut off still lists those that it knew.
    answer.brokers = [
        request.kind.MetadataResponseBroker(
            node_id=b.node, host=b.address[0], port=b.address[1], rack=None
        )
        for b in cluster.brokers
        if b.up and (broker.isolated or not b.isolated or b is broker)
    ]
    answer.cluster_id, answer.controller_id = cluster.id, broker.node
    names = request.body.topics
    asked = list(broker.view) if names is None else [each.name for each in names]
    answer.topics = [_topic(request, name) for name in asked]
    return True


def _topic(request: Request, name: str) -> Any:
    entry = request.kind.MetadataResponseTopic
    partition = entry.MetadataResponsePartition
    seen = request.broker.view.get(name)
    operations = administration.EVERYTHING
    if seen is None:
        return entry(
            error_code=UNKNOWN_TOPIC, name=name, topic_id=_NO_ID, is_internal=False,
            partitions=[], authorized_operations=operations,
        )  # fmt: skip
    return entry(
        error_code=0,
        name=name,
        topic_id=seen.id,
        is_internal=False,
        authorized_operations=operations,
        partitions=[
            partition(
                error_code=0 if leader >= 0 else 5, partition_index=index,
                leader_id=leader, leader_epoch=epoch, replica_nodes=[max(leader, 1)],
                isr_nodes=[max(leader, 1)], offline_replicas=[],
            )
            for index, (leader, epoch) in enumerate(seen.leaders)
        ],
    )  # fmt: skip


def _create(request: Request) -> bool:
    entry = request.kind.CreatableTopicResult
    found = []
    for topic in request.body.topics:
        error = 0
        if not administration.reaches_controller(request):
            error = TIMED_OUT
        elif topic.name in request.cluster.topics:
            error = TOPIC_EXISTS
        else:
            request.cluster.create(
                topic.name,
                max(topic.num_partitions, 1),
                {each.name: each.value for each in topic.configs},
            )
        found.append(
            entry(
                name=topic.name, topic_id=_NO_ID, error_code=error, error_message=None,
                num_partitions=topic.num_partitions, replication_factor=1, configs=[],
            )
        )  # fmt: skip
    request.answer.topics = found
    return True


def _delete(request: Request) -> bool:
    """By ids."""
    entry = request.kind.DeletableTopicResult
    found = []
    for asked in request.body.topics:
        if not administration.reaches_controller(request):
            found.append(
                entry(
                    name=None, topic_id=asked.topic_id, error_code=TIMED_OUT,
                    error_message=None,
                )
            )  # fmt: skip
            continue
        names = [n for n, t in request.cluster.topics.items() if t.id == asked.topic_id]
        for name in names:
            request.cluster.deleting(name)
            request.cluster.delete(name)
        found.append(
            entry(
                name=names[0] if names else None, topic_id=asked.topic_id,
                error_code=0 if names else UNKNOWN_TOPIC_ID, error_message=None,
            )
        )  # fmt: skip
    request.answer.responses = found
    return True


_HANDLERS: dict[str, Callable[[Request], bool]] = {
    "ApiVersions": _versions,
    "Metadata": _metadata,
    "FindCoordinator": writing.find_coordinator,
    "InitProducerId": writing.init,
    "AddPartitionsToTxn": writing.add,
    "EndTxn": writing.end,
    "Produce": writing.produce,
    "Fetch": reading.fetch,
    "ListOffsets": reading.list_offsets,
    "OffsetForLeaderEpoch": reading.epoch_ends,
    "DescribeProducers": reading.describe_producers,
    "DescribeTransactions": writing.describe_transactions,
    "CreateTopics": _create,
    "DeleteTopics": _delete,
    "CreatePartitions": administration.create_partitions,
    "DescribeConfigs": administration.describe_configs,
    "IncrementalAlterConfigs": administration.alter_configs,
    "DescribeAcls": administration.describe_acls,
    "CreateAcls": administration.create_acls,
    "DeleteAcls": administration.delete_acls,
    "DescribeCluster": administration.describe_cluster,
    "DescribeGroups": administration.describe_groups,
    "DescribeLogDirs": administration.describe_log_dirs,
    "ListGroups": groups.list_groups,
    "OffsetFetch": groups.fetch_offsets,
    "OffsetCommit": groups.commit_offsets,
    "JoinGroup": membership.handle,
    "SyncGroup": membership.handle,
    "Heartbeat": membership.handle,
    "LeaveGroup": membership.handle,
}
"""Each fills in the answer, and returns whether it is to be sent now."""
