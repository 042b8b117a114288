"""Checks with the brokers which of the required rights we have.

Main function: `findings`, of one cluster. `permissions` says what is required. A right
for a name prefix is checked for the names that exist now, or for one that could.
"""

from __future__ import annotations

from itertools import groupby
from typing import TYPE_CHECKING

from mirror.checks.finding import fail, ok, some
from mirror.checks.permissions.rights import commands, principal
from mirror.checks.permissions.table import LITERAL, Extent, Operation, ResourceKind
from mirror.clusters import codes
from mirror.clusters.admin import acls, allowed
from mirror.clusters.admin.acls import NoAuthorizerError
from mirror.errors import AuthorizationError, UnsupportedBrokerError

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from mirror.checks.finding import Finding
    from mirror.checks.permissions.rights import Right
    from mirror.clusters.cluster import Cluster
    from mirror.config.schema import MirrorConfig

CHECK = "rights"
_COULD_BE = "mirror-check"
_WORDS = {
    ResourceKind.TOPIC: "topic",
    ResourceKind.GROUP: "group",
    ResourceKind.TRANSACTIONAL_ID: "transactional id",
}


def findings(
    cluster: Cluster,
    config: MirrorConfig,
    needed: Sequence[Right],
    copied: Mapping[str, Iterable[str]],
) -> list[Finding]:
    """One for each resource to which rights are missing; a single one if none is.

    `needed`: by the user that is connected; `copied`: by flow, its topics on this
    cluster, sources or copies.

    Raises:
        ClusterError: the cluster does not answer.
    """
    where = f"cluster {cluster.alias}"
    if without := _without_acls(cluster):
        for pair in config.recovery.values():
            if cluster.alias in pair.members and pair.fence == "acl":
                return [
                    fail(
                        where, CHECK,
                        "no authorizer, so ACLs keep no one from writing, and "
                        f"recovery.{pair.name}.fence is acl",
                        "set it to hook or confirmed", mistake=True,
                    )
                ]  # fmt: skip
        return [ok(where, CHECK, without)]
    asked = _AskedRights(cluster, needed, copied)
    found, untold = [], 0
    for _, rights in groupby(
        needed, key=lambda each: (each.login, each.kind, each.extent)
    ):
        missing: dict[Right, list[str]] = {}
        for right in rights:
            answers = {name: asked.may(right, name) for name in asked.names[right]}
            refused = [name for name, held in answers.items() if held is False]
            untold += not refused and None in answers.values()
            if refused:
                missing[right] = refused
        if missing:
            found.append(_missing(where, config, missing))
    if not found:
        # WRITE on a transactional id shows only when it is used.
        not_told = f"; brokers do not tell about {untold} others" if untold else ""
        detail = f"{len(needed) - untold} needed, all granted{not_told}"
        found.append(ok(where, CHECK, detail))
    return found


def _missing(
    where: str, config: MirrorConfig, missing: Mapping[Right, list[str]]
) -> Finding:
    """About one resource, by each right to it the names that lack it."""
    right = next(iter(missing))
    names = list(dict.fromkeys(name for each in missing.values() for name in each))
    features = dict.fromkeys(name for each in missing for name in each.features)
    return fail(
        where, CHECK,
        f"{principal(config.clusters[right.login])} has no "
        f"{', '.join(each.operation for each in missing)} on {_what(right, names)}, "
        f"needed for {', '.join(features)}",
        commands(config, missing, {})[0],
    )  # fmt: skip


def _without_acls(cluster: Cluster) -> str:
    """Why there are no ACLs to go by, in words; empty if there are."""
    try:
        acls.describe(cluster)
    except NoAuthorizerError as error:
        if isinstance(error.__cause__, UnsupportedBrokerError):
            return "not checked: the brokers do not show them"
        return "no authorizer: everything is allowed"
    except AuthorizationError:
        pass  # it refuses us, so it has some
    return ""


def _what(right: Right, missing: list[str]) -> str:
    if right.kind is ResourceKind.CLUSTER:
        return "the cluster"
    if right.extent.pattern != LITERAL or right.extent.name == "*":
        names = "" if missing == [_could_be(right)] else f" ({some(missing)})"
        return f"{_WORDS[right.kind]} {right.extent}{names}"
    return f"{_WORDS[right.kind]} {right.extent}"


def _could_be(right: Right) -> str:
    start = "" if right.extent.name == "*" else right.extent.name
    return f"{start}{_COULD_BE}"


class _AskedRights:
    """The brokers' answers, asked once for all rights."""

    def __init__(
        self,
        cluster: Cluster,
        needed: Sequence[Right],
        copied: Mapping[str, Iterable[str]],
    ) -> None:
        self._cluster = cluster
        self.names = {right: _names(right, copied) for right in needed}
        by_kind: dict[ResourceKind, dict[str, None]] = {
            kind: {} for kind in ResourceKind
        }
        for right, names in self.names.items():
            by_kind[right.kind].update(dict.fromkeys(names))
        self._of_cluster = allowed.of_cluster(cluster)
        topics = list(by_kind[ResourceKind.TOPIC])
        self._of_topics = allowed.of_topics(cluster, topics)
        self._there = {
            name
            for name, topic in cluster.topics(topics).items()
            if topic.error == codes.NONE
        }
        self._of_groups = allowed.of_groups(cluster, by_kind[ResourceKind.GROUP])
        self._sees = {
            name: allowed.sees_transactional_id(cluster, name)
            for name in by_kind[ResourceKind.TRANSACTIONAL_ID]
        }

    def may(self, right: Right, name: str) -> bool | None:
        """None: brokers do not tell."""
        if right.kind is ResourceKind.TRANSACTIONAL_ID:
            return self._sees.get(name)
        told = {
            ResourceKind.CLUSTER: {name: self._of_cluster},
            ResourceKind.TOPIC: self._of_topics,
            ResourceKind.GROUP: self._of_groups,
        }[right.kind].get(name)
        if told is None:
            return None
        if right.kind is ResourceKind.TOPIC and right.operation is Operation.CREATE:
            everywhere = self._of_cluster or frozenset()
            return (
                name in self._there
                or right.operation in told
                or right.operation in everywhere
            )
        return right.operation in told


def _names(right: Right, copied: Mapping[str, Iterable[str]]) -> tuple[str, ...]:
    """The names to ask about."""
    extent = right.extent
    if right.kind is ResourceKind.CLUSTER or (
        extent.pattern == LITERAL and extent.name != "*"
    ):
        return (extent.name,)
    if right.kind is ResourceKind.TRANSACTIONAL_ID:
        return (f"{extent.name}0.0",)
    found: tuple[str, ...] = ()
    if right.kind is ResourceKind.TOPIC:
        found = tuple(
            dict.fromkeys(
                name
                for flow in right.flows
                for name in copied.get(flow, ())
                if extent.covers(Extent(name=name))
            )
        )
    return found or (_could_be(right),)
