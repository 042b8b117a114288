"""Who may do what on a cluster, and how much of it: ACLs, quotas and SCRAM users.

Functions over a connected `Cluster`; main types: `Acl`, in Kafka's own words, and
`Binding`, the same of topics only. ACLs are listed, created and deleted; client quotas
are read, and SCRAM users without their secrets. A cluster without an authorizer has no
ACLs: `NoAuthorizerError`. `topics` decides which ACLs there should be.
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, TypeVar

from kafka.protocol.admin import (
    ACLOperation,
    ACLPermissionType,
    ACLResourcePatternType,
    ACLResourceType,
    CreateAclsRequest,
    DeleteAclsRequest,
    DescribeAclsRequest,
    DescribeClientQuotasRequest,
    DescribeUserScramCredentialsRequest,
)

from mirror.clusters import codes
from mirror.clusters.cluster import in_parts
from mirror.errors import ClusterError, UnreachableError, UnsupportedBrokerError

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from mirror.clusters.cluster import Cluster

AnyAcl = TypeVar("AnyAcl", bound="Binding | Acl")
ANY_TOPIC = "*"
"""As the name of a literal pattern, it stands for every topic."""
_RESOURCES = frozenset(ACLResourceType) - {
    ACLResourceType.UNKNOWN,
    ACLResourceType.ANY,
}
_ANY = 1
_BINDINGS_PER_REQUEST = 500
_MECHANISMS = {1: "SCRAM-SHA-256", 2: "SCRAM-SHA-512"}
_PURPOSE = "acls"
_AT_ONCE = 16
ANSWER_SECONDS = 5.0
"""How long one broker of several may take before it counts as one that is silent."""
_RESOURCE_NOT_FOUND = 91
"""The answer where no user has SCRAM credentials."""


class NoAuthorizerError(ClusterError):
    """The cluster has no authorizer, or does not show ACLs."""


@dataclass(frozen=True, slots=True, kw_only=True, order=True)
class Acl:
    """One ACL, in Kafka's own words."""

    kind: str
    """TOPIC, GROUP, CLUSTER, TRANSACTIONAL_ID or DELEGATION_TOKEN."""
    name: str
    pattern: str
    """LITERAL or PREFIXED."""
    principal: str
    host: str
    operation: str
    permission: str
    """ALLOW or DENY."""

    def covers(self, name: str) -> bool:
        """Whether it is about the resource of its kind with this name."""
        if self.pattern == "PREFIXED":
            return name.startswith(self.name)
        return self.name in (name, ANY_TOPIC)

    @property
    def binding(self) -> Binding:
        """The same of a topic."""
        return Binding(
            topic=self.name,
            pattern=self.pattern,
            principal=self.principal,
            host=self.host,
            operation=self.operation,
            permission=self.permission,
        )

    def __str__(self) -> str:
        return f"{self.text} on {self.kind.lower().replace('_', ' ')} {self.name}"

    @property
    def text(self) -> str:
        """Who may do what, without the name of the resource."""
        star = " *" if self.pattern == "PREFIXED" else ""
        host = "" if self.host == "*" else f" from {self.host}"
        deny = "DENY " if self.permission == "DENY" else ""
        return f"{deny}{self.principal} {self.operation}{star}{host}"


@dataclass(frozen=True, slots=True, kw_only=True, order=True)
class Binding:
    """Who may, or may not, do what with which topics."""

    topic: str
    """A name or a prefix; a literal `*` stands for all topics."""
    pattern: str
    """LITERAL or PREFIXED."""
    principal: str
    host: str
    operation: str
    permission: str
    """ALLOW or DENY."""
    kind: ClassVar[str] = "TOPIC"

    @property
    def name(self) -> str:
        """As `Acl` calls it."""
        return self.topic

    @property
    def acl(self) -> Acl:
        """The same as one of any kind."""
        return Acl(
            kind=self.kind,
            name=self.topic,
            pattern=self.pattern,
            principal=self.principal,
            host=self.host,
            operation=self.operation,
            permission=self.permission,
        )

    def __str__(self) -> str:
        star = "*" if self.pattern == "PREFIXED" else ""
        host = "" if self.host == "*" else f" from {self.host}"
        return (
            f"{self.permission} {self.principal} {self.operation} "
            f"{self.topic}{star}{host}"
        )


def describe(cluster: Cluster) -> tuple[Binding, ...]:
    """All ACLs of topics, sorted; kinds that newer brokers have added are left out.

    Raises:
        NoAuthorizerError: the cluster keeps no ACLs.
        AuthorizationError: we may not see them.
        ClusterError: the cluster does not answer.
    """
    described = _made(listed(cluster, ACLResourceType.TOPIC))
    return tuple(sorted(each.binding for each in described))


def describe_all(cluster: Cluster) -> frozenset[Acl]:
    """ACLs of all kinds that we know. Raises as `acls.describe` does."""
    return _made(listed(cluster, ACLResourceType.ANY))


def describe_by_broker(cluster: Cluster) -> dict[int, frozenset[Acl] | ClusterError]:
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
            return _made(told(cluster, line.call(question(ACLResourceType.ANY))))
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


def _made(described: Iterable[tuple[Any, Any]]) -> frozenset[Acl]:
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


def listed(cluster: Cluster, kind: int) -> Iterator[tuple[Any, Any]]:
    """Each ACL of a kind of resource (or of ANY), as any broker describes resource and
    ACL. Raises as `describe` does.
    """
    try:
        answer = cluster.call(question(kind))
    except UnsupportedBrokerError as error:  # a service that manages them elsewhere
        what = f"cluster {cluster.alias}: listing ACLs"
        raise NoAuthorizerError(f"{what}: it does not offer that") from error
    return told(cluster, answer)


def question(kind: int) -> DescribeAclsRequest:
    """Asks for all ACLs of a kind of resource (or of ANY)."""
    return DescribeAclsRequest(
        resource_type_filter=kind,
        resource_name_filter=None,
        pattern_type_filter=_ANY,
        principal_filter=None,
        host_filter=None,
        operation=_ANY,
        permission_type=_ANY,
    )


def told(cluster: Cluster, answer: Any) -> Iterator[tuple[Any, Any]]:
    """What `listed` yields, from the answer to the `question`."""
    what = f"cluster {cluster.alias}: listing ACLs"
    if answer.error_code == codes.SECURITY_DISABLED:
        raise NoAuthorizerError(f"{what}: it has no authorizer")
    if answer.error_code != codes.NONE:
        raise codes.error_of(answer, what)
    for resource in answer.resources:
        for acl in resource.acls:
            if _is_known(resource, acl):
                yield resource, acl


def create(cluster: Cluster, bindings: Iterable[AnyAcl]) -> dict[AnyAcl, ClusterError]:
    """Create ACLs; existing ones stay. Returns the refused ones with the
    reasons.

    Raises:
        ClusterError: the cluster does not answer.
    """
    creation = CreateAclsRequest.AclCreation
    refused = {}
    for part in in_parts(bindings, _BINDINGS_PER_REQUEST):
        answer = cluster.call(
            CreateAclsRequest(
                creations=[
                    creation(
                        resource_type=ACLResourceType[binding.kind],
                        resource_name=binding.name,
                        resource_pattern_type=ACLResourcePatternType[binding.pattern],
                        principal=binding.principal,
                        host=binding.host,
                        operation=ACLOperation[binding.operation],
                        permission_type=ACLPermissionType[binding.permission],
                    )
                    for binding in part
                ]
            )
        )
        for binding, result in zip(part, answer.results, strict=True):
            if result.error_code != codes.NONE:
                refused[binding] = _refusal(cluster, "creating", binding, result)
    return refused


def delete(cluster: Cluster, bindings: Iterable[AnyAcl]) -> dict[AnyAcl, ClusterError]:
    """Delete exactly these ACLs, if they exist. Returns the refused ones with the
    reasons.

    Raises:
        ClusterError: the cluster does not answer.
    """
    exactly = DeleteAclsRequest.DeleteAclsFilter
    refused = {}
    for part in in_parts(bindings, _BINDINGS_PER_REQUEST):
        answer = cluster.call(
            DeleteAclsRequest(
                filters=[
                    exactly(
                        resource_type_filter=ACLResourceType[binding.kind],
                        resource_name_filter=binding.name,
                        pattern_type_filter=ACLResourcePatternType[binding.pattern],
                        principal_filter=binding.principal,
                        host_filter=binding.host,
                        operation=ACLOperation[binding.operation],
                        permission_type=ACLPermissionType[binding.permission],
                    )
                    for binding in part
                ]
            )
        )
        for binding, result in zip(part, answer.filter_results, strict=True):
            for each in (result, *result.matching_acls):
                if each.error_code != codes.NONE:
                    refused[binding] = _refusal(cluster, "deleting", binding, each)
    return refused


def _is_known(resource: Any, acl: Any) -> bool:
    return (
        resource.resource_type in _RESOURCES
        and resource.pattern_type in (3, 4)
        and acl.permission_type in (2, 3)
        and 2 <= acl.operation <= max(ACLOperation)
    )


def _refusal(cluster: Cluster, verb: str, binding: object, result: Any) -> ClusterError:
    what = f"cluster {cluster.alias}: {verb} ACL {binding}"
    return codes.error_of(result, what)


# ---- quotas and users ----


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
