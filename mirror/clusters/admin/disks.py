"""Replicas and disks of a cluster: which replicas are missing, and what room is left.

Functions over a connected `Cluster`. Main types: `Disk`, one log directory of one
broker, and `Replicas` of one topic.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from kafka.protocol.admin import DescribeLogDirsRequest
from kafka.protocol.metadata import MetadataRequest

from mirror.clusters import codes
from mirror.clusters.topics import NO_ID

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

    from mirror.clusters.cluster import Cluster

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
    names = sorted(topics)
    for at in range(0, len(names), _TOPICS_AT_ONCE):
        answer = cluster.call(_request(names[at : at + _TOPICS_AT_ONCE]))
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


def _request(names: Collection[str]) -> MetadataRequest:
    topic = MetadataRequest.MetadataRequestTopic
    return MetadataRequest(
        topics=[topic(topic_id=NO_ID, name=name) for name in names],
        allow_auto_topic_creation=False,
    )
