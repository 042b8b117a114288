"""Start offsets of share groups (KIP-932): read from coordinators, and set.

`group_offsets` reads and sets them as it does the offsets of other groups. All records
before a partition's start offset are done. Which later ones are done, too, or are with
a member, and how often each was delivered, no request tells or sets.

Brokers know these requests in their present form as of 4.2; before, share groups were
a preview.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from kafka.protocol.api_message import ApiMessage

from mirror.clusters import codes
from mirror.clusters.cluster import in_parts

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from mirror.clusters.cluster import Cluster
    from mirror.clusters.topics import TopicPartition
    from mirror.clusters.wire.connection import Connection
    from mirror.clusters.wire.pending_response import Pending


class DescribeShareGroupOffsetsRequest(ApiMessage, load_json=__package__):
    """From Kafka's own schema, in the file of this name: kafka-python has none."""


class DescribeShareGroupOffsetsResponse(ApiMessage, load_json=__package__):
    """Its response; kafka-python finds it by its API key."""


class AlterShareGroupOffsetsRequest(ApiMessage, load_json=__package__):
    """From Kafka's own schema, too."""


class AlterShareGroupOffsetsResponse(ApiMessage, load_json=__package__):
    """Its response."""


# Classes that the files make, which type checkers do not see.
_DESCRIBE: Any = DescribeShareGroupOffsetsRequest
_ALTER: Any = AlterShareGroupOffsetsRequest
_IN_FLIGHT = 32
_PREVIEW = 0
"""The version of `_DESCRIBE` that brokers before 4.2 have."""


def is_known(connection: Connection) -> bool:
    """Whether the broker knows the requests. It may have share groups switched off."""
    return connection.versions.get(_DESCRIBE.API_KEY, (0, -1))[1] > _PREVIEW


def are_covered(cluster: Cluster, groups: Sequence[str]) -> bool:
    """Whether the cluster can tell and set where these share groups start.

    Raises:
        ClusterError: the cluster does not answer.
    """
    connection = cluster.any_connection()
    return is_known(connection) and not any(
        each.error_code == codes.UNSUPPORTED_VERSION
        for each in ask(connection, groups[:1])
    )


def ask(connection: Connection, groups: Iterable[str]) -> Iterator[Any]:
    """The coordinator's answer for each group; a group of another kind has no topics.
    Where nothing is done yet, the start offset is -1.
    """
    entry = _DESCRIBE.DescribeShareGroupOffsetsRequestGroup
    # One by one: for a request with many share groups brokers 4.3 take seconds, for
    # many requests with one each milliseconds.
    for some in in_parts(list(groups), _IN_FLIGHT):
        asked = [
            connection.send(_DESCRIBE(groups=[entry(group_id=group, topics=None)]))
            for group in some
        ]
        for each in asked:
            yield from each.result().groups


def send(
    connection: Connection, group: str, offsets: Mapping[TopicPartition, int]
) -> Pending:
    """Set where a share group starts. It is created if it does not exist."""
    entry = _ALTER.AlterShareGroupOffsetsRequestTopic
    place = entry.AlterShareGroupOffsetsRequestPartition
    by_topic: dict[str, list[Any]] = {}
    for (topic, partition), offset in offsets.items():
        of_partition = place(partition_index=partition, start_offset=offset)
        by_topic.setdefault(topic, []).append(of_partition)
    return connection.send(
        _ALTER(
            group_id=group,
            topics=[
                entry(topic_name=topic, partitions=places)
                for topic, places in by_topic.items()
            ],
        )
    )


def refused(
    answer: Any, asked: Iterable[TopicPartition]
) -> Iterator[tuple[TopicPartition, int]]:
    """What an answer to `send` refuses, each with the error code."""
    if answer.error_code != codes.NONE:
        yield from ((key, answer.error_code) for key in asked)
    for topic in answer.responses:
        for each in topic.partitions:
            if each.error_code != codes.NONE:
                yield (topic.topic_name, each.partition_index), each.error_code
