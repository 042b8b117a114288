"""ACLs of a cluster: list those of topics, create and delete any.

Functions over a connected `Cluster`; main types: `Acl`, in Kafka's own words, and
`Binding`, the same of topics only. A cluster without an authorizer has no
ACLs: `NoAuthorizerError`. `metadata` decides which ACLs there should be.
"""

from __future__ import annotations

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
)

from mirror.clusters import codes
from mirror.errors import ClusterError, UnsupportedBrokerError

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

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
    return tuple(
        sorted(
            Binding(
                topic=resource.resource_name,
                pattern=ACLResourcePatternType(resource.pattern_type).name,
                principal=acl.principal,
                host=acl.host,
                operation=ACLOperation(acl.operation).name,
                permission=ACLPermissionType(acl.permission_type).name,
            )
            for resource, acl in listed(cluster, ACLResourceType.TOPIC)
        )
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
    for part in _parts(bindings):
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
    for part in _parts(bindings):
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


def _parts(bindings: Iterable[AnyAcl]) -> Iterable[Sequence[AnyAcl]]:
    listed, step = list(bindings), _BINDINGS_PER_REQUEST
    return (listed[at : at + step] for at in range(0, len(listed), step))


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
