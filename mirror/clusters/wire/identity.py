"""Checks which cluster a connection leads to: an address may lead to another one later.

Functions: `question`, sent over every new connection to a cluster whose id is known,
and `require`, which checks the response. Until then only `QUESTIONS` may be sent: they
are answered after that response, and they change nothing on the wrong cluster.
"""

from __future__ import annotations

from kafka.protocol.admin import (
    DescribeAclsRequest,
    DescribeClusterRequest,
    DescribeConfigsRequest,
    DescribeGroupsRequest,
    DescribeTransactionsRequest,
    ListGroupsRequest,
    ListTransactionsRequest,
)
from kafka.protocol.consumer import (
    FetchRequest,
    ListOffsetsRequest,
    OffsetFetchRequest,
    OffsetForLeaderEpochRequest,
)
from kafka.protocol.metadata import FindCoordinatorRequest, MetadataRequest

from mirror.errors import ClusterChangedError

QUESTIONS = frozenset(
    request.API_KEY
    for request in (
        DescribeAclsRequest, DescribeClusterRequest, DescribeConfigsRequest,
        DescribeGroupsRequest, DescribeTransactionsRequest, FetchRequest,
        FindCoordinatorRequest, ListGroupsRequest, ListOffsetsRequest,
        ListTransactionsRequest, MetadataRequest, OffsetFetchRequest,
        OffsetForLeaderEpochRequest,
    )
)  # fmt: skip
"""The API keys of requests that change nothing, so that they may be sent twice."""


def question() -> MetadataRequest:
    """It needs no permission and names no topic."""
    return MetadataRequest(topics=[], allow_auto_topic_creation=False)


def require(expected: str, found: str | None, *, alias: str, where: str) -> None:
    """Check the cluster id in a response; a broker that gives none is accepted.

    Raises:
        ClusterChangedError: it is not the expected one.
    """
    if found and found != expected:
        raise ClusterChangedError(
            f"cluster {alias}: {where} leads to the cluster with id {found}, but "
            f"{alias} is the one with id {expected}: nothing is read from {found} or "
            f"written to it. Point the address at {expected} again; if {found} "
            "replaces it on purpose, restart mirror and use `mirror flow reset`"
        )
