"""Topics and offsets of a cluster: create, grow, describe, list, delete.

Functions over a connected `Cluster`; each returns values or raises one of our errors.
`topics` decides which topics there should be. A topic is deleted by its id, so that a
late repetition cannot delete its successor (DeleteTopics since version 6, KIP-516);
`deletion_obstacle` says beforehand why that would be refused.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any
import uuid

from kafka.protocol.admin import (
    CreatePartitionsRequest,
    CreateTopicsRequest,
    DeleteRecordsRequest,
    DeleteTopicsRequest,
    DescribeConfigsRequest,
)
from kafka.protocol.consumer import ListOffsetsRequest, OffsetForLeaderEpochRequest

from mirror.clusters import codes
from mirror.clusters.admin import allowed
from mirror.errors import NoLeaderError, UnreachableError
from mirror.retry import patiently

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence

    from mirror.clusters.cluster import Cluster
    from mirror.clusters.topics import Topic
    from mirror.errors import ClusterError

EARLIEST = -2
LATEST = -1
_NEWEST = -3
CONSUMER, DEBUGGING = -1, -2
"""Ids of a replica: what a client asks as."""
_WITH_NEWEST = 7
"""From this version on, a request can ask for the largest timestamp."""
TIMEOUT_MS = 30_000
TOPIC, BROKER = 2, 4
"""Kinds of resources that have configs."""
_TOPICS_PER_REQUEST = 50
_PARTITIONS_PER_REQUEST = 2_000
"""Kafka creates 10,000 at once, services fewer. A larger topic is asked for alone."""
_TOO_MUCH = frozenset({codes.INVALID_REQUEST, codes.POLICY_VIOLATION})
"""How brokers refuse what is too much for one request."""
_TOO_LARGE = 1 << 30
_BY_ID = 6
"""The version of DeleteTopics that takes ids."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NewTopic:
    """A topic to create."""

    name: str
    partitions: int
    replication_factor: int
    """-1 for the brokers' default."""
    configs: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Creation:
    """The result of creating topics; those not listed existed already."""

    created: tuple[str, ...]
    refused: Mapping[str, ClusterError]


def create_topics(
    cluster: Cluster, topics: Sequence[NewTopic], *, validate_only: bool = False
) -> Creation:
    """Create topics, many per request: alone, each would wait for the one before. What
    is refused as a whole is asked for in halves. With `validate_only`, only ask whether
    that would be possible.

    Raises:
        ClusterError: the cluster does not answer.
    """
    created: list[str] = []
    refused: dict[str, ClusterError] = {}
    waiting = _requests(topics)
    while waiting:
        some = waiting.pop()
        answer = on_controller(
            cluster, _create_request(some, validate_only=validate_only)
        )
        said = {result.error_code for result in answer.topics}
        if len(some) > 1 and len(said) == 1 and said <= _TOO_MUCH:
            half = len(some) // 2
            waiting += [some[half:], some[:half]]
            continue
        for result in answer.topics:
            if result.error_code == codes.NONE:
                created.append(result.name)
            elif result.error_code != codes.TOPIC_ALREADY_EXISTS:
                what = f"cluster {cluster.alias}: creating topic {result.name}"
                refused[result.name] = codes.error_of(result, what)
    return Creation(created=tuple(created), refused=refused)


def _requests(topics: Sequence[NewTopic]) -> list[Sequence[NewTopic]]:
    """The topics of each request, the first ones last."""
    found: list[list[NewTopic]] = []
    partitions = 0
    for topic in topics:
        partitions += max(topic.partitions, 1)
        if (
            not found
            or len(found[-1]) == _TOPICS_PER_REQUEST
            or partitions > _PARTITIONS_PER_REQUEST
        ):
            found.append([])
            partitions = max(topic.partitions, 1)
        found[-1].append(topic)
    return [*reversed(found)]


def _create_request(
    topics: Sequence[NewTopic], *, validate_only: bool
) -> CreateTopicsRequest:
    entry = CreateTopicsRequest.CreatableTopic
    config = entry.CreatableTopicConfig
    return CreateTopicsRequest(
        topics=[
            entry(
                name=topic.name,
                num_partitions=topic.partitions,
                replication_factor=topic.replication_factor,
                assignments=[],
                configs=[
                    config(name=key, value=value)
                    for key, value in topic.configs.items()
                ],
            )
            for topic in topics
        ],
        timeout_ms=TIMEOUT_MS,
        validate_only=validate_only,
    )


def add_partitions(
    cluster: Cluster, name: str, *, count: int, validate_only: bool = False
) -> None:
    """Grow a topic to `count` partitions. With `validate_only`, only ask whether that
    would be possible.

    Raises:
        ClusterError: the cluster refuses, in its own words.
    """
    topic = CreatePartitionsRequest.CreatePartitionsTopic
    answer = on_controller(
        cluster,
        CreatePartitionsRequest(
            topics=[topic(name=name, count=count, assignments=None)],
            timeout_ms=TIMEOUT_MS,
            validate_only=validate_only,
        ),
    )
    _check(
        answer.results[0],
        f"cluster {cluster.alias}: growing topic {name} to {count} partitions",
    )


def max_message_bytes(cluster: Cluster, names: Iterable[str]) -> dict[str, int]:
    """`max.message.bytes` per topic. A topic whose configs we may not read has no
    limit here; the broker refuses what is too large.
    """
    limits = dict.fromkeys(names, _TOO_LARGE)
    if limits:
        for result in describe_configs(cluster, limits, ["max.message.bytes"]):
            if result.error_code == codes.NONE and result.configs:
                limits[result.resource_name] = int(result.configs[0].value)
    return limits


def describe_configs(
    cluster: Cluster,
    names: Iterable[str],
    keys: list[str] | None,
    *,
    kind: int = TOPIC,
    node: int | None = None,
) -> Sequence[Any]:
    """What a broker (any if none is given) says of these resources' configs: with these
    keys, or all.
    """
    resource = DescribeConfigsRequest.DescribeConfigsResource
    request = DescribeConfigsRequest(
        resources=[
            resource(resource_type=kind, resource_name=name, configuration_keys=keys)
            for name in names
        ],
        include_synonyms=False,
        include_documentation=False,
    )
    return tuple(cluster.call(request, node=node).results)


def empty(
    cluster: Cluster, partitions: Iterable[tuple[str, int]]
) -> dict[tuple[str, int], int]:
    """The partitions without records, with the offset of the next record."""
    firsts = list_offsets(cluster, partitions, timestamp=EARLIEST, committed=False)
    ends = list_offsets(cluster, firsts, timestamp=LATEST, committed=False)
    return {key: end for key, end in ends.items() if end == firsts[key]}


def list_offsets(
    cluster: Cluster,
    partitions: Iterable[tuple[str, int]],
    *,
    timestamp: int,
    committed: bool = True,
    topics: Mapping[str, Topic] | None = None,
    replica: int = CONSUMER,
) -> dict[tuple[str, int], int]:
    """The offset at a timestamp (`EARLIEST`, `LATEST`, or epoch milliseconds).

    With `committed`, `LATEST` is the last stable offset. `topics` names the leaders;
    by default any broker is asked for them. Partitions without a leader or with an
    error are left out. Consumers see no more than the high watermark; to a `replica`
    `DEBUGGING`, `LATEST` is where the broker's own log ends, if it leads or not.
    """
    return {
        key: answer.offset
        for key, answer in _listed(
            cluster,
            partitions,
            timestamp=timestamp,
            committed=committed,
            topics=topics,
            replica=replica,
        )
    }


def offsets_of_all(
    cluster: Cluster,
    partitions: Collection[tuple[str, int]],
    *,
    timestamp: int,
    committed: bool = True,
) -> dict[tuple[str, int], int]:
    """As `list_offsets`, of all of them: it waits while one has no leader, or while the
    leader of a new one does not lead it yet.

    Raises:
        ClusterError: the cluster does not answer, or not for all within 30 seconds.
    """

    def ask() -> dict[tuple[str, int], int]:
        found = list_offsets(
            cluster, partitions, timestamp=timestamp, committed=committed
        )
        if missing := set(partitions) - found.keys():
            topic, number = min(missing)
            raise NoLeaderError(
                f"cluster {cluster.alias}: {topic}-{number} has no leader"
            )
        return found

    return patiently(ask)


def edges(
    cluster: Cluster, shown: Topic, partition: int, *, committed: bool
) -> tuple[int, int] | None:
    """The log's start and its latest offset, as `list_offsets` finds them, in one round
    trip: who reads a small topic to its end asks for both each time. None if the leader
    that is `shown` does not tell.

    Raises:
        ClusterError: it does not answer.
    """
    leader = shown.leaders[partition]
    asked = {shown.name: [(partition, leader.epoch)]}
    requests = [
        _list_request(asked, timestamp=timestamp, committed=committed)
        for timestamp in (EARLIEST, LATEST)
    ]
    answers = cluster.calls(requests, node=leader.node)
    first, last = (answer.topics[0].partitions[0] for answer in answers)
    if first.error_code != codes.NONE or last.error_code != codes.NONE:
        return None
    return first.offset, last.offset


@dataclass(frozen=True, slots=True, kw_only=True)
class EpochEnd:
    """The end of a log's newest leader epoch that is not after the requested one."""

    epoch: int
    """-1 if the log has none."""
    offset: int
    """The offset after the epoch's last record."""


def epoch_ends(
    cluster: Cluster,
    epochs: Mapping[tuple[str, int], int],
    topics: Mapping[str, Topic],
) -> dict[tuple[str, int], EpochEnd]:
    """For each partition, the newest epoch up to the given one in its leader's log, and
    where it ends. `topics` names the leaders. Partitions whose leader answers with an
    error are left out.

    Source: OffsetForLeaderEpoch (KIP-320).
    """
    entry = OffsetForLeaderEpochRequest.OffsetForLeaderTopic
    partition_entry = entry.OffsetForLeaderPartition
    ends: dict[tuple[str, int], EpochEnd] = {}
    for node, asked in _by_leader(epochs, topics).items():
        answer = cluster.call(
            OffsetForLeaderEpochRequest(
                replica_id=-1,
                topics=[
                    entry(
                        topic=topic,
                        partitions=[
                            partition_entry(
                                partition=partition,
                                current_leader_epoch=epoch,
                                leader_epoch=epochs[topic, partition],
                            )
                            for partition, epoch in partitions
                        ],
                    )
                    for topic, partitions in asked.items()
                ],
            ),
            node=node,
        )
        for topic_answer in answer.topics:
            for found in topic_answer.partitions:
                if found.error_code == codes.NONE:
                    ends[topic_answer.topic, found.partition] = EpochEnd(
                        epoch=found.leader_epoch, offset=found.end_offset
                    )
    return ends


def log_ends(
    cluster: Cluster,
    partitions: Iterable[tuple[str, int]],
    topics: Mapping[str, Topic],
) -> dict[tuple[str, int], int]:
    """Where logs end, not only as far as followers have them. Partitions without a
    leader in `topics`, or whose leader does not lead under that epoch, are left out.
    """
    epochs = {
        key: leader.epoch
        for key in partitions
        if (leader := topics[key[0]].leaders.get(key[1])) is not None
        and leader.node >= 0
    }
    return {
        key: end.offset
        for key, end in epoch_ends(cluster, epochs, topics).items()
        if end.epoch == epochs[key]
    }


def newest_timestamps(
    cluster: Cluster, partitions: Iterable[tuple[str, int]]
) -> dict[tuple[str, int], int]:
    """The latest timestamp of any record, in epoch milliseconds. Partitions without
    records are left out; brokers before 3.0 report none at all.
    """
    spoken = cluster.any_connection().version(ListOffsetsRequest)
    if spoken < _WITH_NEWEST:
        return {}
    return {
        key: int(answer.timestamp)
        for key, answer in _listed(
            cluster, partitions, timestamp=_NEWEST, committed=False
        )
        if answer.timestamp >= 0
    }


def _listed(
    cluster: Cluster,
    partitions: Iterable[tuple[str, int]],
    *,
    timestamp: int,
    committed: bool,
    topics: Mapping[str, Topic] | None = None,
    replica: int = CONSUMER,
) -> Iterator[tuple[tuple[str, int], Any]]:
    """The leaders' answers for partitions, without those that have an error."""
    wanted = set(partitions)
    if not wanted:
        return
    if topics is None:
        topics = cluster.topics({topic for topic, _ in wanted})
    for node, asked in _by_leader(wanted, topics).items():
        request = _list_request(
            asked, timestamp=timestamp, committed=committed, replica=replica
        )
        answer = cluster.call(request, node=node)
        for topic_answer in answer.topics:
            for partition_answer in topic_answer.partitions:
                if partition_answer.error_code == codes.NONE:
                    key = (topic_answer.name, partition_answer.partition_index)
                    yield key, partition_answer


def _list_request(
    asked: Mapping[str, Sequence[tuple[int, int]]],
    *,
    timestamp: int,
    committed: bool,
    replica: int = CONSUMER,
) -> ListOffsetsRequest:
    """`asked`: partitions and their leader epochs, by topic."""
    entry = ListOffsetsRequest.ListOffsetsTopic
    return ListOffsetsRequest(
        replica_id=replica,
        isolation_level=int(committed),
        topics=[
            entry(
                name=topic,
                partitions=[
                    entry.ListOffsetsPartition(
                        partition_index=index,
                        current_leader_epoch=epoch,
                        timestamp=timestamp,
                    )
                    for index, epoch in indexes
                ],
            )
            for topic, indexes in asked.items()
        ],
        timeout_ms=TIMEOUT_MS,
    )


def _by_leader(
    partitions: Iterable[tuple[str, int]], topics: Mapping[str, Topic]
) -> dict[int, dict[str, list[tuple[int, int]]]]:
    """Partitions and their leader epochs, by leading broker and topic."""
    by_node: dict[int, dict[str, list[tuple[int, int]]]] = {}
    for topic, partition in partitions:
        leader = topics[topic].leaders.get(partition)
        if leader is not None and leader.node >= 0:
            of_node = by_node.setdefault(leader.node, {})
            of_node.setdefault(topic, []).append((partition, leader.epoch))
    return by_node


def on_controller(cluster: Cluster, request: Any) -> Any:
    """Send a request that the controller answers. In KRaft any broker forwards it;
    older clusters do not.

    Raises:
        ClusterError: no broker answers.
    """
    try:
        return cluster.call(request, node=cluster.controller)
    except UnreachableError:
        cluster.connect()
        return cluster.call(request)


def _check(result: Any, what: str) -> None:
    if result.error_code != codes.NONE:
        raise codes.error_of(result, what)


# ---- deletion ----


def deletion_obstacle(cluster: Cluster, *names: str) -> str:
    """Why `delete_topic` would be refused for one of these topics; empty if nothing
    speaks against it.

    Raises:
        ClusterError: the cluster does not answer.
    """
    if not cluster.speaks(DeleteTopicsRequest.API_KEY, _BY_ID):
        return f"cluster {cluster.alias} cannot delete topics by id, as since Kafka 2.8"
    for name, rights in allowed.of_topics(cluster, names).items():
        if rights is not None and "DELETE" not in rights:
            return f"cluster {cluster.alias} does not allow us to DELETE topic {name}"
    # No topic has a random id: a broker only says whether it deletes topics at all.
    if _deletion(cluster, uuid.uuid4()).error_code == codes.TOPIC_DELETION_DISABLED:
        return (
            f"cluster {cluster.alias} does not delete topics: delete.topic.enable is "
            "false on its brokers"
        )
    return ""


def delete_topic(cluster: Cluster, topic_id: uuid.UUID, name: str) -> None:
    """Delete the topic with this id; nothing happens if there is none any more. `name`
    is for messages.

    Raises:
        ClusterError: the cluster refuses, in its own words, or does not answer: then
            it may be deleted or not.
    """
    result = _deletion(cluster, topic_id)
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


def _deletion(cluster: Cluster, topic_id: uuid.UUID) -> Any:
    entry = DeleteTopicsRequest.DeleteTopicState
    answer = on_controller(
        cluster,
        DeleteTopicsRequest(
            topics=[entry(name=None, topic_id=topic_id)], timeout_ms=TIMEOUT_MS
        ),
    )
    return answer.responses[0]
