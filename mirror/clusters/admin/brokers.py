"""Brokers of a cluster: what they can do, how they are set, their racks, replicas and
disks.

Functions over a connected `Cluster`; main types: `Disk`, one log directory of one
broker, and `Replicas` of one topic. Brokers do not report their version; it is inferred
from the requests that they support, as kafka-python does. Settings are read from one
broker and taken for all of them.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from kafka.protocol.admin import (
    AlterConfigsRequest,
    CreateAclsRequest,
    DeleteAclsRequest,
    DescribeAclsRequest,
    DescribeLogDirsRequest,
    DescribeProducersRequest,
    DescribeTransactionsRequest,
    DescribeUserScramCredentialsRequest,
)
from kafka.protocol.broker_version_data import infer_broker_version_from_api_versions
from kafka.protocol.consumer import FetchRequest
from kafka.protocol.metadata import MetadataRequest
from kafka.protocol.producer import (
    AddPartitionsToTxnRequest,
    EndTxnRequest,
    InitProducerIdRequest,
)

from mirror.clusters import codes
from mirror.clusters.admin import topic_admin
from mirror.clusters.cluster import in_parts, metadata_request

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping, Sequence

    from mirror.clusters.cluster import Cluster

OLDEST = (2, 5)
"""The oldest broker version that mirror supports: since then brokers tell a producer
that goes on from another one with its transactional id (KIP-360)."""
_TRANSACTIONS = "transaction.version"
_V2 = 2


def version(cluster: Cluster) -> tuple[int, ...]:
    """The inferred Kafka version; the real one may be newer."""
    spoken = cluster.any_connection().versions
    return tuple(infer_broker_version_from_api_versions(spoken))


def missing(cluster: Cluster) -> tuple[str, ...]:
    """What these brokers cannot do, and what mirror does instead; see
    docs/reference/versions.md.
    """
    return tuple(
        text
        for request, least, text in _LATER
        if not cluster.speaks(request.API_KEY, least)
    )


def lacking(cluster: Cluster, setting: str) -> tuple[str, ...]:
    """The requests of Kafka's that a flow's setting needs on its target, and that these
    brokers do not offer, as services that speak a part of the protocol.
    """
    return tuple(
        request.__name__.removesuffix("Request")
        for request in _NEEDED[setting]
        if not cluster.speaks(request.API_KEY, 0)
    )


_NEEDED = {
    "exactly_once": (
        InitProducerIdRequest, AddPartitionsToTxnRequest, EndTxnRequest,
    ),
    "offsets": (DescribeProducersRequest,),
    "sync_topic_configs": (AlterConfigsRequest,),
    "sync_topic_acls": (DescribeAclsRequest, CreateAclsRequest, DeleteAclsRequest),
}  # fmt: skip
NO_TOPIC_IDS = (
    "no topic ids (2.8): a topic that is created again is taken for the old one, or "
    "waits for a decision if it is shorter"
)
_LATER = (
    (MetadataRequest, 10, NO_TOPIC_IDS),
    (
        FetchRequest, 13,
        ("no fetch by topic id (3.1): a log that lost its end is noticed when a slot "
        "takes over, or once reading fails"),
    ),
    (
        DescribeProducersRequest, 0,
        ("leaders do not tell of open transactions (2.8): a switch sees that there are "
        "some, not whose"),
    ),
    (
        DescribeTransactionsRequest, 0,
        ("coordinators do not tell of transactions (3.0): fencing alone shows that "
        "another owner took over, and rights on transactional ids are not checked"),
    ),
    (
        DescribeUserScramCredentialsRequest, 0,
        "no list of users with passwords (2.7): `mirror compare` does not show them",
    ),
)  # fmt: skip
"""Requests that came after `OLDEST`: from which version of theirs on."""


def has_transactions_v2(cluster: Cluster) -> bool:
    """Whether transactions are v2 (KIP-890), which fences every transaction."""
    return cluster.feature(_TRANSACTIONS) >= _V2


def settings(cluster: Cluster, names: Iterable[str]) -> dict[str, str]:
    """Settings of the first broker, by name; those that it does not know, or has no
    value for, are left out.

    Raises:
        AuthorizationError: we may not see them.
        ClusterError: the cluster does not answer.
    """
    return {
        config.name: config.value
        for config in _described(cluster, names)
        if config.value is not None
    }


def is_set(cluster: Cluster, name: str) -> bool:
    """Whether the first broker has this setting, also where it hides the value. Raises
    as `settings` does.
    """
    return any(config.name == name for config in _described(cluster, [name]))


def _described(cluster: Cluster, names: Iterable[str]) -> Sequence[Any]:
    node = cluster.nodes[0]
    (result,) = topic_admin.describe_configs(
        cluster, [str(node)], list(names), kind=topic_admin.BROKER, node=node
    )
    if result.error_code != codes.NONE:
        what = f"cluster {cluster.alias}: reading settings of broker {node}"
        raise codes.error_of(result, what)
    return tuple(result.configs)


def racks(cluster: Cluster) -> frozenset[str]:
    """The racks of all brokers (`broker.rack`); those without one do not count.

    Raises:
        ClusterError: the cluster does not answer.
    """
    answer = cluster.call(metadata_request([]))
    return frozenset(broker.rack for broker in answer.brokers if broker.rack)


# ---- replicas and disks ----

_TOPICS_AT_ONCE = 500


@dataclass(frozen=True, slots=True, kw_only=True)
class Disk:
    """One log directory of one broker."""

    node: int
    total: int
    """Bytes of its volume; -1: the broker does not tell (before 3.3)."""
    usable: int
    sizes: Mapping[str, int]
    """Bytes by topic."""
    failed: bool = False
    """Whether the broker cannot use it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Replicas:
    """Of one topic."""

    least: int
    """The fewest that any partition has."""
    out_of_sync: int
    """Partitions of which a replica is not in sync, or offline."""
    leaderless: int
    """Partitions without a leader."""


def disks(cluster: Cluster) -> tuple[Disk, ...]:
    """All log directories of all brokers.

    Raises:
        AuthorizationError: we may not see them: this needs DESCRIBE on the cluster.
        ClusterError: a broker does not answer.
    """
    found = []
    for node in cluster.nodes:
        answer = cluster.call(DescribeLogDirsRequest(topics=None), node=node)
        if answer.error_code:
            raise codes.error_for(
                answer.error_code, f"cluster {cluster.alias}: looking at disks"
            )
        for each in answer.results:
            sizes: dict[str, int] = {}
            for topic in each.topics or ():
                size = sum(p.partition_size for p in topic.partitions)
                sizes[topic.name] = sizes.get(topic.name, 0) + size
            found.append(
                Disk(
                    node=node,
                    total=each.total_bytes,
                    usable=each.usable_bytes,
                    sizes=sizes,
                    failed=each.error_code != codes.NONE,
                )
            )
    return tuple(found)


def replicas(cluster: Cluster, topics: Collection[str]) -> dict[str, Replicas]:
    """Of those topics that are there.

    Raises:
        ClusterError: the cluster does not answer.
    """
    found = {}
    for names in in_parts(sorted(topics), _TOPICS_AT_ONCE):
        answer = cluster.call(metadata_request(names))
        for topic in answer.topics:
            if topic.error_code == codes.NONE and topic.partitions:
                found[topic.name] = Replicas(
                    least=min(len(p.replica_nodes) for p in topic.partitions),
                    out_of_sync=sum(
                        len(p.isr_nodes) < len(p.replica_nodes)
                        for p in topic.partitions
                    ),
                    leaderless=sum(p.leader_id < 0 for p in topic.partitions),
                )
    return found
