"""What a row of the table of permissions is made of, in Kafka's own words.

Main type: `Need`, one thing that somebody has to be allowed: on which side of a flow,
to which names, and when. The rows themselves stand in `table`.
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


class Side(StrEnum):
    """Of a flow."""

    SOURCE = "source"
    TARGET = "target"


class ResourceKind(StrEnum):
    """Of a resource, in the words of `kafka-acls.sh`."""

    TOPIC = "topic"
    GROUP = "group"
    CLUSTER = "cluster"
    TRANSACTIONAL_ID = "transactional-id"


class Operation(StrEnum):
    """In the words of Kafka's protocol."""

    READ = "READ"
    WRITE = "WRITE"
    CREATE = "CREATE"
    ALTER = "ALTER"
    DESCRIBE = "DESCRIBE"
    DESCRIBE_CONFIGS = "DESCRIBE_CONFIGS"
    ALTER_CONFIGS = "ALTER_CONFIGS"


class Who(StrEnum):
    """Who needs it."""

    SERVICE = "service"
    COMMANDS = "commands"
    """Of the command line, beside what the service needs."""
    CLIENTS = "clients"
    """Applications that ask where a group goes on (`mirror.client`, or Java's)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Need:
    """One thing that somebody has to be allowed."""

    feature: str
    side: Side
    kind: ResourceKind
    operations: tuple[Operation, ...]
    names: Names
    called: str
    """The names, in words."""
    when: Condition = lambda _flow, _config: True
    setting: str = ""
    """When, in words; empty: always."""
    who: Who = Who.SERVICE
