"""What brokers can do: their version, features and settings.

Functions over a connected `Cluster`. Brokers do not report their version; it is
inferred from the requests that they support, as kafka-python does. Settings are read
from one broker and taken for all of them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from kafka.protocol.admin import DescribeConfigsRequest
from kafka.protocol.broker_version_data import infer_broker_version_from_api_versions

from mirror.clusters import codes

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from mirror.clusters.cluster import Cluster

OLDEST = (2, 8)
"""The oldest broker version that mirror supports."""
_BROKER_RESOURCE = 4
_TRANSACTIONS = "transaction.version"
_V2 = 2


def version(cluster: Cluster) -> tuple[int, ...]:
    """The inferred Kafka version; the real one may be newer."""
    spoken = cluster.any_connection().versions
    return tuple(infer_broker_version_from_api_versions(spoken))


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
