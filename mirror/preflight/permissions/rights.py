"""The rights that a configuration needs, cluster by cluster, without duplicates.

Main function: `rights`, from a configuration to frozen `Right`s, each of which is one
ACL. It drops rights that others imply, so every one in the list is needed. Pure: it
does not ask clusters what is already allowed.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
import re
from typing import TYPE_CHECKING

from mirror.config.login_settings import ends
from mirror.preflight.permissions.need import (
    FlowSide,
    Login,
    Operation,
    ResourceKind,
    Who,
)
from mirror.preflight.permissions.table import TABLE

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable

    from mirror.config.cluster_settings import ClusterConfig
    from mirror.config.schema import FlowConfig, MirrorConfig
    from mirror.preflight.permissions.extent import Extent
    from mirror.preflight.permissions.need import Need

_IMPLIED = {
    Operation.READ: {Operation.DESCRIBE},
    Operation.WRITE: {Operation.DESCRIBE},
    Operation.ALTER: {Operation.DESCRIBE},
    Operation.DELETE: {Operation.DESCRIBE},
    Operation.ALTER_CONFIGS: {Operation.DESCRIBE_CONFIGS},
}
"""What Kafka's own authorizer implies, for every kind of resource."""
ANYBODY = "User:ANONYMOUS"
"""The principal of clients without TLS and SASL."""


@dataclass(frozen=True, slots=True, kw_only=True, order=True)
class Right:
    """One ACL that allows something, from any host."""

    cluster: str
    """The alias."""
    login: str
    """The entry of `clusters` whose user needs it: the alias, or a flow's login."""
    kind: ResourceKind
    extent: Extent
    operation: Operation
    features: tuple[str, ...] = ()
    """The features that need it."""
    flows: tuple[str, ...] = ()
    """The flows that need it."""

    def implies(self, other: Right) -> bool:
        """Whether this one implies the other."""
        return (
            (self.login, self.kind) == (other.login, other.kind)
            and (
                self.operation is other.operation
                or other.operation in _IMPLIED.get(self.operation, ())
            )
            and self.extent.covers(other.extent)
        )


def rights(
    config: MirrorConfig, *, who: Collection[Who] = (Who.SERVICE,)
) -> tuple[Right, ...]:
    """The rights needed to run the flows of a configuration, sorted.

    `who`: for whom; several share one list.
    """
    found: dict[tuple[str, ResourceKind, Extent, Operation], Right] = {}
    for flow in config.flows.values():
        if not flow.enabled:
            continue
        for need in TABLE:
            if need.who in who and need.when(flow, config):
                for each in _of(need, flow, config):
                    what = (each.login, each.kind, each.extent, each.operation)
                    known = found.get(what)
                    found[what] = each if known is None else _joined(known, each)
    return _needed(found.values())


def principal(cluster: ClusterConfig, chosen: str | None = None) -> str:
    """The principal that the brokers see, as far as our own settings can tell.

    With a certificate alone this is its whole subject, unless the brokers map it
    (`ssl.principal.mapping.rules`); `chosen` overrides it.
    """
    if chosen is not None:
        return chosen if ":" in chosen else f"User:{chosen}"
    if cluster.principal is not None:
        return cluster.principal
    if cluster.sasl_username is not None:
        return f"User:{cluster.sasl_username}"
    if cluster.sasl_kerberos_principal is not None:
        # What brokers make of it by default (sasl.kerberos.principal.to.local.rules).
        return f"User:{re.split('[/@]', cluster.sasl_kerberos_principal)[0]}"
    if cluster.security_protocol == "PLAINTEXT":
        return ANYBODY
    return f"User:<mirror's user on {cluster.alias}>"


def _of(need: Need, flow: FlowConfig, config: MirrorConfig) -> list[Right]:
    source, target = ends(flow)
    cluster, named = source if need.side is FlowSide.SOURCE else target
    return [
        Right(
            cluster=cluster,
            login=named or cluster if need.login is Login.TASKS else cluster,
            kind=need.kind,
            extent=extent,
            operation=operation,
            features=(need.feature,),
            flows=(flow.name,),
        )
        for extent in need.names(flow, config)
        for operation in need.operations
    ]


def _joined(one: Right, other: Right) -> Right:
    return replace(
        one,
        features=tuple(dict.fromkeys([*one.features, *other.features])),
        flows=tuple(dict.fromkeys([*one.flows, *other.flows])),
    )


def _needed(found: Iterable[Right]) -> tuple[Right, ...]:
    """Those that no other one implies, each with the features of those it implies."""
    known = list(found)
    kept = []
    for each in known:
        if any(other is not each and other.implies(each) for other in known):
            continue
        made = each
        for other in known:
            if other is not each and each.implies(other):
                made = _joined(made, other)
        kept.append(made)
    return tuple(sorted(kept))
