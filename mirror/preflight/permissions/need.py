"""A row of the table of permissions, in Kafka's own terms.

Main type: `Need`, one required right: on which side of a flow, for which names, and
when. `table` has the rows.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from mirror.config.schema import FlowConfig, MirrorConfig
    from mirror.preflight.permissions.extent import Extent

    Names = Callable[[FlowConfig, MirrorConfig], Iterable[Extent]]
    Condition = Callable[[FlowConfig, MirrorConfig], bool]


class FlowSide(StrEnum):
    """The side of a flow."""

    SOURCE = "source"
    TARGET = "target"


class ResourceKind(StrEnum):
    """The kind of resource, as in `kafka-acls.sh`."""

    TOPIC = "topic"
    GROUP = "group"
    CLUSTER = "cluster"
    TRANSACTIONAL_ID = "transactional-id"


class Operation(StrEnum):
    """The operation, as in Kafka's protocol."""

    READ = "READ"
    WRITE = "WRITE"
    CREATE = "CREATE"
    DELETE = "DELETE"
    ALTER = "ALTER"
    DESCRIBE = "DESCRIBE"
    DESCRIBE_CONFIGS = "DESCRIBE_CONFIGS"
    ALTER_CONFIGS = "ALTER_CONFIGS"


class Who(StrEnum):
    """Who needs it."""

    SERVICE = "service"
    COMMANDS = "commands"
    """The command line, on top of what the service needs."""
    RECOVERY = "recovery"
    """`mirror switch` and `mirror failover`, on top of what the service needs."""
    CLIENTS = "clients"
    """Applications that translate a group's offsets (`mirror.client`, or Java's)."""


class Login(StrEnum):
    """As which of mirror's users on a cluster; often they are one."""

    OWN = "own"
    """The cluster's own: the driver, its jobs, and commands."""
    TASKS = "tasks"
    """The one that a flow names for its tasks (`source_login`, `target_login`)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Need:
    """One required right."""

    feature: str
    side: FlowSide
    kind: ResourceKind
    operations: tuple[Operation, ...]
    names: Names
    called: str
    """The names, in words."""
    when: Condition = lambda _flow, _config: True
    setting: str = ""
    """When, in words; empty: always."""
    who: Who = Who.SERVICE
    login: Login = Login.OWN
