"""What tests of topic metadata share: flows over bare clusters, and a witness.

`Sides` makes a configuration's flows and connects to their clusters, so that a job can
run once without Spark. `overrides`, `acls_of` and the like query a cluster with
confluent-kafka, which shares no code with mirror.
"""

from __future__ import annotations

import contextlib
import time
from typing import TYPE_CHECKING, Any, Self

from confluent_kafka.admin import (
    AclBinding,
    AclBindingFilter,
    AclOperation,
    AclPermissionType,
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    ConfigSource,
    ResourcePatternType,
    ResourceType,
)

from mirror.clusters.reach import Reach
from mirror.topics import acls, configs, topics
from mirror.topics.merging import Merging
from tests.harness.configurations import configuration
from tests.harness.waiting import deadline_in, wait_for

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from mirror.clusters.cluster import Cluster
    from mirror.config.schema import FlowConfig
    from mirror.status.values import TopicDrift
    from mirror.topics.acls import AclsResult
    from mirror.topics.configs import ConfigsResult
    from mirror.topics.topics import TopicsResult


class Sides:
    """Flows, and single turns of their control work; a context manager."""

    def __init__(
        self,
        clusters: Mapping[str, str | Mapping[str, str]],
        flows: Mapping[str, Mapping[str, Any]],
    ) -> None:
        """`clusters` are addresses, or whole sections of a configuration. Other tests'
        heartbeats are not copied unless a flow says so.
        """
        self.config = configuration(
            {
                "clusters": {
                    alias: {"bootstrap_servers": given}
                    if isinstance(given, str)
                    else given
                    for alias, given in clusters.items()
                },
                "flows": {
                    name: {"heartbeats_replication": False, **settings}
                    for name, settings in flows.items()
                },
            }
        )
        self.reach = Reach(self.config.clusters, client_id="test")

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.reach.__exit__(None, None, None)

    def flow(self, name: str) -> FlowConfig:
        return self.config.flows[name]

    def clusters(self, name: str) -> tuple[Cluster, Cluster]:
        flow = self.flow(name)
        return self.reach(flow.source), self.reach(flow.target)

    def sync_topics(self, name: str = "A->B") -> TopicsResult:
        return topics.sync(*self.clusters(name), self.flow(name))

    def sync_configs(self, name: str = "A->B") -> ConfigsResult:
        return configs.sync(*self._asked(name))

    def look_at_configs(self, name: str = "A->B") -> ConfigsResult:
        return configs.look(*self._asked(name))

    def sync_acls(self, name: str = "A->B") -> AclsResult:
        return acls.sync(*self.clusters(name), self.flow(name))

    def look_at_acls(self, name: str = "A->B") -> AclsResult:
        return acls.look(*self.clusters(name), self.flow(name))

    def _asked(self, name: str) -> Any:
        merging = Merging(self.config.enabled_flows)
        return (*self.clusters(name), self.flow(name), merging, self.reach)


def of(result: ConfigsResult, topic: str) -> TopicDrift:
    """What a look found about one topic."""
    return next(each for each in result.topics if each.topic == topic)


def overrides(bootstrap: str, topic: str) -> dict[str, str]:
    """The configs that are set on a topic itself."""
    admin = AdminClient({"bootstrap.servers": bootstrap})
    resource = ConfigResource(ResourceType.TOPIC, topic)
    deadline = deadline_in()
    while True:  # a broker may not have heard of a topic just created
        try:
            entries = admin.describe_configs([resource])[resource].result(30)
        except Exception:
            if time.monotonic() > deadline:
                raise
            time.sleep(0.1)
            continue
        return {
            name: entry.value
            for name, entry in entries.items()
            if entry.source == ConfigSource.DYNAMIC_TOPIC_CONFIG.value
        }


def effective(bootstrap: str, topic: str, name: str) -> str:
    admin = AdminClient({"bootstrap.servers": bootstrap})
    resource = ConfigResource(ResourceType.TOPIC, topic)
    return admin.describe_configs([resource])[resource].result(30)[name].value


def remove_override(bootstrap: str, topic: str, name: str) -> None:
    _alter(
        bootstrap,
        ConfigResource(
            ResourceType.TOPIC,
            topic,
            incremental_configs=[
                ConfigEntry(name, None, incremental_operation=AlterConfigOpType.DELETE)
            ],
        ),
    )


def set_on_broker(bootstrap: str, name: str, value: str) -> None:
    """A default of the only broker, which it takes at once, without a restart."""
    _alter(
        bootstrap,
        ConfigResource(
            ResourceType.BROKER,
            "1",
            incremental_configs=[
                ConfigEntry(name, value, incremental_operation=AlterConfigOpType.SET)
            ],
        ),
    )


def _alter(bootstrap: str, resource: ConfigResource) -> None:
    admin = AdminClient({"bootstrap.servers": bootstrap})
    admin.incremental_alter_configs([resource])[resource].result(30)


Acl = tuple[str, str, str, str, str]
"""Principal, operation, permission, topic, pattern; from any host."""


def allow(
    bootstrap: str, principal: str, operation: str, topic: str, *,
    pattern: str = "LITERAL", permission: str = "ALLOW",
    kind: ResourceType = ResourceType.TOPIC,
) -> None:  # fmt: skip
    """Create an ACL, and wait until brokers know it."""
    admin = AdminClient({"bootstrap.servers": bootstrap})
    binding = AclBinding(*_acl(kind, topic, pattern, principal, operation, permission))
    admin.create_acls([binding])[binding].result(30)
    wanted = (f"User:{principal}", operation, permission, topic, pattern)
    wait_for(lambda: wanted in acls_of(bootstrap, kind=kind))


def revoke(
    bootstrap: str, principal: str, operation: str, topic: str, *,
    pattern: str = "LITERAL", permission: str = "ALLOW",
    kind: ResourceType = ResourceType.TOPIC,
) -> None:  # fmt: skip
    """Delete an ACL, and wait until brokers know it."""
    admin = AdminClient({"bootstrap.servers": bootstrap})
    exactly = AclBindingFilter(
        *_acl(kind, topic, pattern, principal, operation, permission)
    )
    admin.delete_acls([exactly])[exactly].result(30)
    gone = (f"User:{principal}", operation, permission, topic, pattern)
    wait_for(lambda: gone not in acls_of(bootstrap, kind=kind))


def _acl(
    kind: ResourceType, topic: str, pattern: str, principal: str, operation: str,
    permission: str,
) -> tuple[Any, ...]:  # fmt: skip
    return (
        kind,
        topic,
        ResourcePatternType[pattern],
        f"User:{principal}",
        "*",
        AclOperation[operation],
        AclPermissionType[permission],
    )


def acls_of(
    bootstrap: str, *, about: str = "", kind: ResourceType = ResourceType.TOPIC
) -> set[Acl]:
    """All ACLs of topics whose names contain this text."""
    admin = AdminClient({"bootstrap.servers": bootstrap})
    every = AclBindingFilter(
        kind,
        None,
        ResourcePatternType.ANY,
        None,
        None,
        AclOperation.ANY,
        AclPermissionType.ANY,
    )
    return {
        (
            acl.principal,
            acl.operation.name,
            acl.permission_type.name,
            acl.name,
            acl.resource_pattern_type.name,
        )
        for acl in admin.describe_acls(every).result(30)
        if about in acl.name
    }


@contextlib.contextmanager
def sides(
    clusters: Mapping[str, str | Mapping[str, str]],
    flow: str = "A->B",
    **settings: Any,
) -> Iterator[Sides]:
    """One flow with these settings."""
    with Sides(clusters, {flow: settings}) as made:
        yield made
