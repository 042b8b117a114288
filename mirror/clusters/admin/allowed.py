"""What we may do on a cluster, by asking the brokers, never by trying.

Functions over a connected `Cluster`; a result is a set of operations in Kafka's words.
Brokers report them for the cluster, for topics (existing or not) and for groups,
whichever way they are granted. For transactional ids they only report whether we may
see them. `checks.permissions` knows what is needed.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from kafka.protocol.admin import (
    ACLOperation,
    DescribeClusterRequest,
    DescribeGroupsRequest,
    DescribeTransactionsRequest,
)

from mirror.clusters import codes
from mirror.clusters.cluster import in_parts, metadata_request
from mirror.errors import UnsupportedBrokerError

if TYPE_CHECKING:
    from collections.abc import Iterable

    from mirror.clusters.cluster import Cluster

Operations = frozenset[str] | None
"""None: the brokers do not report them."""

_AT_ONCE = 500
_GROUPS_AT_MOST = 5
"""Newer versions report nothing for groups that do not exist."""


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
    """On topics, whether they exist or not.

    Raises:
        ClusterError: the cluster does not answer.
    """
    found: dict[str, Operations] = {}
    for part in in_parts(dict.fromkeys(names), _AT_ONCE):
        answer = cluster.call(
            metadata_request(part, include_topic_authorized_operations=True)
        )
        for topic in answer.topics:
            found[topic.name] = (
                frozenset()
                if topic.error_code == codes.TOPIC_AUTHORIZATION_FAILED
                else _operations(topic.authorized_operations)
            )
    return found


def of_groups(cluster: Cluster, names: Iterable[str]) -> dict[str, Operations]:
    """On groups, whether they exist or not. It asks each broker instead of looking up
    the coordinator: the first such lookup makes a cluster create its offsets topic.

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
    """Whether we may DESCRIBE it, which WRITE implies; None if brokers do not report
    it. Any broker will do: it checks permissions before it checks who coordinates.

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
