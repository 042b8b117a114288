"""The rights that a configuration needs, as ACLs, as commands, and all as a page.

Main function: `rights`, cluster by cluster, from a configuration to frozen `Right`s,
each of which is one ACL. It drops rights that others imply, so every one in the list is
needed. Pure: it does not ask clusters what is already allowed.

`commands` prints them for `kafka-acls.sh`, one line for each resource. `reference` is
the whole table in Markdown, which `make settings` writes to
docs/reference/permissions.md.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from itertools import groupby
import re
import shlex
from typing import TYPE_CHECKING

from mirror.checks.permissions.table import (
    PREFIXED,
    TABLE,
    FlowSide,
    Login,
    Operation,
    ResourceKind,
    Who,
)
from mirror.config.schema import login_ends

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping

    from mirror.checks.permissions.table import Extent, Need
    from mirror.config.cluster_settings import ClusterConfig
    from mirror.config.schema import FlowConfig, MirrorConfig

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
    source, target = login_ends(flow)
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


# ---- as commands and as a page ----

_TITLES = {
    FlowSide.SOURCE: "On the source of a flow",
    FlowSide.TARGET: "On the target of a flow",
}
_INTRODUCTION = """# Permissions

Generated by `make settings` from `mirror/checks/permissions`; do not edit. It lists
the rights that mirror needs, by feature. `mirror config acls` lists the ACLs that a
given configuration needs; [least privilege](../howto/least-privilege.md) shows how to
grant them.

Operations that others imply are left out: READ, WRITE and ALTER imply DESCRIBE,
ALTER_CONFIGS implies DESCRIBE_CONFIGS. Names use the separator `.` here.

Tasks copy and compare records; they log in as the flow's `source_login` and
`target_login`. Everything else logs in as the cluster's own user. If a flow names no
login, its tasks do so, too, and that user needs the rights of both.
"""


def commands(
    config: MirrorConfig, needed: Iterable[Right], principals: Mapping[str, str]
) -> list[str]:
    """The commands that grant these rights; `principals` by alias, where chosen."""
    lines = []
    resources = groupby(
        needed, key=lambda each: (each.cluster, each.login, each.kind, each.extent)
    )
    for (alias, login, kind, extent), rights in resources:
        words = config.clusters[alias].tool("kafka-acls.sh")
        words += ["--add", "--allow-principal"]
        words.append(principal(config.clusters[login], principals.get(login)))
        for each in rights:
            words += ["--operation", _camel(each.operation)]
        words.append(f"--{kind}")
        if kind is not ResourceKind.CLUSTER:
            words.append(extent.name)
        if extent.pattern == PREFIXED:
            words += ["--resource-pattern-type", "prefixed"]
        lines.append(shlex.join(words))
    return lines


def reference() -> str:
    """The whole table, for people."""
    lines = [_INTRODUCTION.rstrip()]
    for side, title in _TITLES.items():
        lines += ["", f"## {title}", *_table(_rows(Who.SERVICE, side))]
        rows = _table(_rows(Who.SERVICE, side, Login.TASKS))
        lines += ["", f"### {title}, for its tasks", *rows]
    lines += ["", "## For commands", "", "In addition to what the service needs."]
    for side, title in _TITLES.items():
        lines += ["", f"### {title}, for commands", *_table(_rows(Who.COMMANDS, side))]
    rows = _table(_rows(Who.COMMANDS, FlowSide.TARGET, Login.TASKS))
    lines += ["", "### On the target of a flow, for the tasks of commands", *rows]
    lines += ["", "## For switches and failovers", ""]
    lines += ["In addition to what the service needs, on both clusters of a pair."]
    for side, title in _TITLES.items():
        rows = _table(_rows(Who.RECOVERY, side))
        lines += ["", f"### {title}, for switches and failovers", *rows]
    lines += [
        "",
        "## For applications",
        "",
        "Applications that look up on the target where their group continues, with",
        "`mirror.client` or Kafka's own client. They also need rights to their topics",
        "and groups.",
        *_table(_rows(Who.CLIENTS, FlowSide.TARGET)),
    ]
    return "\n".join(lines) + "\n"


def _rows(who: Who, side: FlowSide, login: Login = Login.OWN) -> list[Need]:
    wanted = (who, side, login)
    return [need for need in TABLE if (need.who, need.side, need.login) == wanted]


def _table(needs: Iterable[Need]) -> list[str]:
    return [
        "",
        "| For | Resource | Names | Operations | When |",
        "|---|---|---|---|---|",
        *(
            f"| {need.feature} | {need.kind} | {need.called} | "
            f"{', '.join(need.operations)} | {need.setting or 'always'} |"
            for need in needs
        ),
    ]


def _camel(operation: str) -> str:
    return "".join(word.capitalize() for word in operation.split("_"))
