"""What brokers say that we may do: asked, never tried.

Functions over a connected `Cluster`; an answer is a set of operations in Kafka's words.
Brokers tell them for the cluster, for topics (also for those that are not there yet)
and for groups, however they came about. Of transactional ids they only tell whether we
may see them. What is needed is `permissions`' to say.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from kafka.protocol.admin import (
    ACLOperation,
    DescribeClusterRequest,
    DescribeGroupsRequest,
    DescribeTransactionsRequest,
)
from kafka.protocol.metadata import MetadataRequest

from mirror.clusters import codes
from mirror.errors import UnsupportedBrokerError

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from mirror.clusters.cluster import Cluster

Operations = frozenset[str] | None
"""None: the brokers do not tell."""

_AT_ONCE = 500
_GROUPS_AT_MOST = 5
"""Newer versions say nothing of groups that are not there."""


def of_cluster(cluster: Cluster) -> Operations:
    """On the cluster itself.

    Raises:
        ClusterError: the cluster does not answer.
    """
    try:
        answer = cluster.call(
            DescribeClusterRequest(include_cluster_authorized_operations=True)
        )
    except UnsupportedBrokerError:  # before 2.8
        return None
    return _operations(answer.authorized_operations)


def of_topics(cluster: Cluster, names: Iterable[str]) -> dict[str, Operations]:
    """On topics, be they there or not.

    Raises:
        ClusterError: the cluster does not answer.
    """
    entry = MetadataRequest.MetadataRequestTopic
    found: dict[str, Operations] = {}
    for part in _parts(names):
        answer = cluster.call(
            MetadataRequest(
                topics=[entry(name=name) for name in part],
                allow_auto_topic_creation=False,
                include_topic_authorized_operations=True,
            )
        )
        for topic in answer.topics:
            found[topic.name] = (
                frozenset()
                if topic.error_code == codes.TOPIC_AUTHORIZATION_FAILED
                else _operations(topic.authorized_operations)
            )
    return found


def of_groups(cluster: Cluster, names: Iterable[str]) -> dict[str, Operations]:
    """On groups, be they there or not. Each broker is asked, and not for the
    coordinator: at the first such question a cluster makes a topic for groups.

    Raises:
        ClusterError: the cluster does not answer.
    """
    wanted = list(dict.fromkeys(names))
    found: dict[str, Operations] = dict.fromkeys(wanted)
    for node in cluster.nodes if wanted else ():
        answer = cluster.connection(node).call(
            DescribeGroupsRequest(groups=wanted, include_authorized_operations=True),
            at_most=_GROUPS_AT_MOST,
        )
        for group in answer.groups:
            if group.error_code == codes.GROUP_AUTHORIZATION_FAILED:
                found[group.group_id] = frozenset()
            elif group.error_code == codes.NONE:
                found[group.group_id] = _operations(group.authorized_operations)
    return found


def sees_transactional_id(cluster: Cluster, transactional_id: str) -> bool | None:
    """Whether we may DESCRIBE it, which everybody may who may WRITE; None: not told.
    Any broker is asked, since whether we may comes before whether it coordinates.

    Raises:
        ClusterError: the cluster does not answer.
    """
    try:
        (state,) = cluster.call(
            DescribeTransactionsRequest(transactional_ids=[transactional_id])
        ).transaction_states
    except UnsupportedBrokerError:  # before 3.0
        return None
    return bool(state.error_code != codes.TRANSACTIONAL_ID_AUTHORIZATION_FAILED)


def _operations(told: Iterable[int] | None) -> Operations:
    if told is None:
        return None
    known = {int(operation) for operation in ACLOperation}
    return frozenset(ACLOperation(each).name for each in told if each in known)


def _parts(names: Iterable[str]) -> Iterator[Sequence[str]]:
    listed = list(dict.fromkeys(names))
    for at in range(0, len(listed), _AT_ONCE):
        yield listed[at : at + _AT_ONCE]
