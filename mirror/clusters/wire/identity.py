"""Which cluster a connection leads to: a name that led to one may lead to another.

Functions: `question`, asked over every new connection of a cluster whose id is known,
and `require`, which judges the answer. Until then nothing but `QUESTIONS` may be sent:
what they bring comes behind that answer, and they change nothing at a stranger's.
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
    """It takes no permission, and names no topic."""
    return MetadataRequest(topics=[], allow_auto_topic_creation=False)


def require(expected: str, found: str | None, *, alias: str, where: str) -> None:
    """Judge an answer's cluster id; a broker that names none is believed.

    Raises:
        ClusterChangedError: it is not the expected one.
    """
    if found and found != expected:
        raise ClusterChangedError(
            f"cluster {alias}: {where} leads to the cluster with id {found}, but "
            f"{alias} is the one with id {expected}: nothing is read from {found} or "
            f"written to it. Point the address to {expected} again; if {found} "
            "replaces it on purpose, restart mirror and use `mirror flow reset`"
        )
