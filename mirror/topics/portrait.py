"""Everything about a cluster that two clusters can be compared by.

Main function: `take`; `complete` asks for topics that should be there. What we may not
see is left out and named with its reason: the rest is compared all the same.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, TypeVar

from mirror.clusters import codes
from mirror.clusters.admin import abilities, access, configs, group_offsets, groups
from mirror.clusters.admin.acls import NoAuthorizerError
from mirror.errors import AuthorizationError, UnsupportedBrokerError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from mirror.clusters.admin.acls import Acl
    from mirror.clusters.admin.configs import TopicConfigs
    from mirror.clusters.cluster import Cluster
    from mirror.clusters.topics import Topic

_T = TypeVar("_T")
TOPIC_ACL = "TOPIC"
ACLS, GROUPS, QUOTAS, USERS = "acl", "group", "quota", "user"


@dataclass(frozen=True, slots=True, kw_only=True)
class Portrait:
    """A cluster at one moment."""

    alias: str
    cluster_id: str
    version: tuple[int, ...]
    topics: Mapping[str, Topic]
    configs: Mapping[str, TopicConfigs]
    acls: frozenset[Acl] = frozenset()
    groups: Mapping[str, frozenset[str]] = field(default_factory=dict)
    """The topics for which each group has committed offsets."""
    quotas: Mapping[str, Mapping[str, float]] = field(default_factory=dict)
    users: Mapping[str, Mapping[str, int]] = field(default_factory=dict)
    """Iterations by SCRAM mechanism."""
    unseen: Mapping[str, str] = field(default_factory=dict)
    """Kinds that we may not see, or that the cluster does not have, with the reason."""


def take(cluster: Cluster) -> Portrait:
    """Look at a cluster; nothing is changed.

    Raises:
        ClusterError: it does not answer.
    """
    unseen: dict[str, str] = {}

    def seen(kind: str, ask: Callable[[], _T], nothing: _T) -> _T:
        try:
            return ask()
        except AuthorizationError:
            unseen[kind] = "not permitted"
        except NoAuthorizerError:
            unseen[kind] = "no authorizer"
        except UnsupportedBrokerError:
            unseen[kind] = "unknown to these brokers"
        return nothing

    topics = cluster.topics()
    return Portrait(
        alias=cluster.alias,
        cluster_id=cluster.cluster_id,
        version=abilities.version(cluster),
        topics=topics,
        configs=configs.describe(cluster, topics),
        acls=seen(ACLS, lambda: access.acls(cluster), frozenset()),
        groups=seen(GROUPS, lambda: _groups(cluster), {}),
        quotas=seen(QUOTAS, lambda: access.quotas(cluster), {}),
        users=seen(USERS, lambda: access.scram_users(cluster), {}),
        unseen=unseen,
    )


def complete(portrait: Portrait, cluster: Cluster, names: Iterable[str]) -> Portrait:
    """Add topics that are there, but hidden from us: with their errors. Brokers list
    only those that we may describe.

    Raises:
        ClusterError: the cluster does not answer.
    """
    hidden = {
        name: topic
        for name, topic in cluster.topics(set(names) - portrait.topics.keys()).items()
        if topic.error == codes.TOPIC_AUTHORIZATION_FAILED
    }
    return replace(
        portrait,
        topics={**portrait.topics, **hidden},
        configs={**portrait.configs, **configs.describe(cluster, hidden)},
    )


def _groups(cluster: Cluster) -> dict[str, frozenset[str]]:
    found = group_offsets.fetch(cluster, groups.list_groups(cluster))
    return {
        group: frozenset(topic for topic, _ in offsets)
        for group, offsets in found.groups.items()
    }
