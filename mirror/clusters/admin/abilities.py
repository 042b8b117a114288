"""What brokers can do: their version, features and settings.

Functions over a connected `Cluster`. Brokers do not report their version; it is
inferred from the requests that they support, as kafka-python does. Settings are read
from one broker and taken for all of them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from kafka.protocol.admin import (
    AlterConfigsRequest,
    CreateAclsRequest,
    DeleteAclsRequest,
    DescribeAclsRequest,
    DescribeConfigsRequest,
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

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from mirror.clusters.cluster import Cluster

OLDEST = (2, 5)
"""The oldest broker version that mirror supports: since then brokers tell a producer
that goes on from another one with its transactional id (KIP-360)."""
_BROKER_RESOURCE = 4
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
    resource = DescribeConfigsRequest.DescribeConfigsResource
    (result,) = cluster.call(
        DescribeConfigsRequest(
            resources=[
                resource(
                    resource_type=_BROKER_RESOURCE,
                    resource_name=str(node),
                    configuration_keys=list(names),
                )
            ],
            include_synonyms=False,
            include_documentation=False,
        ),
        node=node,
    ).results
    if result.error_code != codes.NONE:
        what = f"cluster {cluster.alias}: reading settings of broker {node}"
        raise codes.error_of(result, what)
    return tuple(result.configs)
