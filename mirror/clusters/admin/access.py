"""Who may do what on a cluster, and how much of it: read only.

Functions over a connected `Cluster`: ACLs of all kinds of resources, client quotas, and
SCRAM users without their secrets. `acls` lists and changes those of topics.
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

from kafka.protocol.admin import (
    ACLOperation,
    ACLPermissionType,
    ACLResourcePatternType,
    ACLResourceType,
    DescribeClientQuotasRequest,
    DescribeUserScramCredentialsRequest,
)

from mirror.clusters import codes
from mirror.clusters.admin.acls import Acl, listed, question, told
from mirror.errors import ClusterError, UnreachableError

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from mirror.clusters.cluster import Cluster

_MECHANISMS = {1: "SCRAM-SHA-256", 2: "SCRAM-SHA-512"}
_PURPOSE = "acls"
_AT_ONCE = 16
ANSWER_SECONDS = 5.0
"""How long one broker of several may take before it counts as one that is silent."""
_RESOURCE_NOT_FOUND = 91
"""The answer where no user has SCRAM credentials."""


def acls(cluster: Cluster) -> frozenset[Acl]:
    """ACLs of all kinds that we know. Raises as `acls.describe` does."""
    return _acls(listed(cluster, ACLResourceType.ANY))


def acls_by_broker(cluster: Cluster) -> dict[int, frozenset[Acl] | ClusterError]:
    """The same as each broker knows them, or why it does not answer or refuses. Brokers
    are asked side by side, and silent ones given up after some seconds; then other
    questions go to the others first.

    Raises:
        ClusterError: no broker answers.
    """
    cluster.refresh()

    def ask(node: int) -> frozenset[Acl] | ClusterError:
        # Each thread has a connection of its own.
        try:
            line = cluster.connection(node, _PURPOSE, seconds=ANSWER_SECONDS)
            return _acls(told(cluster, line.call(question(ACLResourceType.ANY))))
        except ClusterError as error:
            return error

    nodes = cluster.nodes
    pool = ThreadPoolExecutor(min(len(nodes), _AT_ONCE))
    answers = pool.map(ask, nodes)
    pool.shutdown(wait=False)  # an interrupt waits for no silent broker
    found = dict(zip(nodes, answers, strict=True))
    for node, answer in found.items():
        if isinstance(answer, UnreachableError):
            cluster.doubt(node)
    return found


def _acls(described: Iterable[tuple[Any, Any]]) -> frozenset[Acl]:
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
        for resource, acl in described
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
