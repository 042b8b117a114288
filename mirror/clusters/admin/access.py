"""Who may do what on a cluster, and how much of it: read only.

Functions over a connected `Cluster`: ACLs of all kinds of resources, client quotas, and
SCRAM users without their secrets. `acls` lists and changes those of topics.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from kafka.protocol.admin import (
    ACLOperation,
    ACLPermissionType,
    ACLResourcePatternType,
    ACLResourceType,
    DescribeClientQuotasRequest,
    DescribeUserScramCredentialsRequest,
)

from mirror.clusters import codes
from mirror.clusters.admin.acls import Acl, listed

if TYPE_CHECKING:
    from collections.abc import Mapping

    from mirror.clusters.cluster import Cluster

_MECHANISMS = {1: "SCRAM-SHA-256", 2: "SCRAM-SHA-512"}
_RESOURCE_NOT_FOUND = 91
"""The answer where no user has SCRAM credentials."""


def acls(cluster: Cluster, *, node: int | None = None) -> frozenset[Acl]:
    """ACLs of all kinds that we know, as a broker knows them (any if none is given).
    Raises as `acls.describe` does.
    """
    return frozenset(
        Acl(
            kind=ACLResourceType(resource.resource_type).name,
            name=resource.resource_name,
            pattern=ACLResourcePatternType(resource.pattern_type).name,
            principal=acl.principal,
            host=acl.host,
            operation=ACLOperation(acl.operation).name,
            permission=ACLPermissionType(acl.permission_type).name,
        )
        for resource, acl in listed(cluster, ACLResourceType.ANY, node=node)
    )


def quotas(cluster: Cluster) -> dict[str, Mapping[str, float]]:
    """Client quotas by entity, such as `user alice, client-id default`.

    Raises:
        AuthorizationError: we may not see them.
        ClusterError: the cluster does not answer.
    """
    answer = cluster.call(DescribeClientQuotasRequest(components=[], strict=False))
    if answer.error_code != codes.NONE:
        raise codes.error_of(answer, f"cluster {cluster.alias}: listing quotas")
    return {
        ", ".join(
            f"{part.entity_type} {_name(part.entity_name)}"
            for part in sorted(entry.entity, key=lambda each: each.entity_type)
        ): {each.key: each.value for each in entry.values}
        for entry in answer.entries or ()
    }


def scram_users(cluster: Cluster) -> dict[str, Mapping[str, int]]:
    """Iterations by user and SCRAM mechanism.

    Raises:
        AuthorizationError: we may not see them.
        ClusterError: the cluster does not answer.
    """
    # Null means all, too, but brokers 4.3 never answer that to users without the right.
    answer = cluster.call(DescribeUserScramCredentialsRequest(users=[]))
    if answer.error_code not in (codes.NONE, _RESOURCE_NOT_FOUND):
        raise codes.error_of(answer, f"cluster {cluster.alias}: listing SCRAM users")
    return {
        result.user: {
            _MECHANISMS.get(each.mechanism, f"mechanism {each.mechanism}"):
                each.iterations
            for each in result.credential_infos
        }
        for result in answer.results
        if result.error_code == codes.NONE
    }  # fmt: skip


def _name(entity: str | None) -> str:
    return "(default)" if entity is None else entity
