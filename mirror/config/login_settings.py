"""Settings of a flow about whom its tasks log in as, and who counts as mirror.

Main type: `LoginSettings`, a part of `FlowConfig`. A login is another entry of
`clusters` with another user of the same cluster. `for_tasks` says how tasks reach a
flow's clusters; everything else logs in as the cluster's own user. `principals` are all
that mirror is to a cluster: a fence keeps none of them out. `problems` finds names that
lead to no login.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from mirror.config.section import Alias, Section
from mirror.config.traits import setting
from mirror.config.values import near

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from mirror.config.cluster_settings import ClusterConfig
    from mirror.config.schema import FlowConfig, MirrorConfig


_NAMES = ("source_login", "target_login")


class LoginSettings(Section):
    """Whom the brokers take a flow's tasks for."""

    source_login: Alias | None = setting(
        default=None,
        description="Another entry of `clusters`, with another user of the source: the "
        "flow's tasks read records as that user. The driver, its jobs and commands log "
        "in as the source's own, who then needs no right to read records. Null: tasks, "
        "too, log in as the source's own.",
    )
    target_login: Alias | None = setting(
        default=None,
        description="Another entry of `clusters`, with another user of the target: the "
        "flow's tasks write records as that user, and `verify` reads copies. Null: as "
        "the target's own.",
    )


def for_tasks(
    config: MirrorConfig, flow: FlowConfig
) -> tuple[ClusterConfig, ClusterConfig]:
    """Source and target of a flow, with the users that its tasks log in as. Registries
    are the clusters' own, as logins have none, and only where tasks ask them.
    """
    clusters = config.clusters
    source, target = (
        clusters[login or alias].model_copy(
            update={
                "alias": alias,
                "schema_registry": clusters[alias].schema_registry
                if flow.requires_schemas
                else None,
            }
        )
        for alias, login in ends(flow)
    )
    return source, target


def ends(flow: FlowConfig) -> tuple[tuple[str, str | None], tuple[str, str | None]]:
    """Source and target of a flow, each with its tasks' login, if it names one."""
    return (flow.source, flow.source_login), (flow.target, flow.target_login)


def principals(config: MirrorConfig, alias: str) -> dict[str, str | None]:
    """Whom the brokers of a cluster take mirror for, by the entry that says so, its own
    first; None: only they know.
    """
    flows = (*config.flows.values(), *config.everywhere)
    logins = {
        login for flow in flows for end, login in ends(flow) if login and end == alias
    }
    return {
        each: config.clusters[each].own_principal for each in (alias, *sorted(logins))
    }


def problems(config: MirrorConfig, names: Mapping[str, str]) -> Iterator[str]:
    """Logins that are none; `names`: how the user wrote each flow's name."""
    pairs = (pair.members for pair in config.recovery.values())
    used = {
        *(alias for flow in config.flows.values() for alias, _ in ends(flow)),
        *(alias for members in pairs for alias in members),
        (config.service.audit or ("",))[0],
    }
    logins_of: dict[str, str] = {}
    for name, flow in config.flows.items():
        for setting_name, (alias, login) in zip(_NAMES, ends(flow), strict=True):
            where = f"{names[name]}.{setting_name}"
            if login is None:
                continue
            if login not in config.clusters:
                yield f'{where}: there is no cluster "{login}"' + near(
                    login, config.clusters
                )
            elif login in used:
                yield (
                    f"{where}: {login} is a cluster of its own here; name an entry of "
                    f"clusters that has another user of {alias}, and that no flow, "
                    "pair or audit topic uses"
                )
            elif (other := logins_of.setdefault(login, alias)) != alias:
                yield (
                    f"{where}: {login} is a login of {other}, and cannot be one of "
                    f"{alias} as well"
                )
            else:
                yield from _left_over(config.clusters[alias], config.clusters[login])


def _left_over(own: ClusterConfig, login: ClusterConfig) -> Iterator[str]:
    """What a login cannot have. A YAML anchor merged into it also brings the cluster's
    registry, which changes nothing, and its principal, which is another user's.
    """
    if login.schema_registry not in (None, own.schema_registry):
        yield (
            f"clusters.{login.alias}.schema_registry: not used by a login, whose tasks "
            f"ask that of {own.alias}: leave it out here, or write null after a merged "
            "anchor (<<)"
        )
    if (
        login.principal is not None
        and login.principal == own.principal
        and login.sasl_username != own.sasl_username
    ):
        yield (
            f"clusters.{login.alias}.principal: {login.principal} is that of "
            f"{own.alias}, where mirror logs in as {own.sasl_username}; write that of "
            f"{login.sasl_username}, or null after a merged anchor (<<)"
        )
