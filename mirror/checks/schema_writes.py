"""What runs would write to schema registries, for the plan.

Main function: `schema_writes`, over all flows that copy schemas, one after the other.
It asks both registries by the service's rules (`schemas.sync`) and changes nothing.
`planned_schemas` does so for one flow, for commands too.
"""

from __future__ import annotations

import contextlib
from dataclasses import dataclass
from typing import TYPE_CHECKING

from mirror.errors import MirrorError
from mirror.schemas.comparing import RegistryPair, copies_deletes
from mirror.schemas.sync import look
from mirror.status.states import SchemaState

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from mirror.clusters.cluster import Cluster
    from mirror.config.schema import FlowConfig, MirrorConfig
    from mirror.schemas.rules import SchemasResult


@dataclass(frozen=True, slots=True, kw_only=True, order=True)
class SchemaToWrite:
    """A version or a level in a target's registry."""

    cluster: str
    flow: str
    change: str
    """`register`, `delete` or `set level`."""
    subject: str
    """With its context; empty for the level of the default context."""
    version: int = 0
    """0 for a level."""
    id: int = 0
    level: str = ""
    """Empty: no longer set on the subject itself."""
    force: bool = False
    """The subject exists, so mode IMPORT is forced."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SchemaWrites:
    """What all flows would write."""

    writes: tuple[SchemaToWrite, ...]
    """In the order of writing, flow by flow."""
    problems: Mapping[str, tuple[str, ...]]
    """Subjects that would not be copied, by flow."""
    synced: Mapping[str, tuple[int, int]]
    """Subjects that need nothing, of all; by flow."""
    failures: tuple[str, ...]


def schema_writes(
    config: MirrorConfig, flows: Sequence[FlowConfig], reach: Callable[[str], Cluster]
) -> SchemaWrites:
    """`flows`: those whose clusters answer, in order of precedence."""
    writes: list[SchemaToWrite] = []
    problems, synced, failures = {}, {}, []
    for flow in flows:
        if flow.schemas == "off":
            continue
        try:
            found = planned_schemas(config, flow, flows, reach)
        except MirrorError as error:
            failures.append(f"flow {flow.name}: {error}")
            continue
        writes += _writes(flow, found)
        problems[flow.name] = found.problems
        count = found.states[SchemaState.SYNCED]
        synced[flow.name] = (count, len(found.subjects))
    return SchemaWrites(
        writes=tuple(writes),
        problems=problems,
        synced=synced,
        failures=tuple(failures),
    )


def planned_schemas(
    config: MirrorConfig,
    flow: FlowConfig,
    order: Sequence[FlowConfig],
    reach: Callable[[str], Cluster],
) -> SchemasResult:
    """What the service would do for one flow. `order`: all flows by precedence.

    Raises:
        MirrorError: a registry or the target does not answer.
    """
    with contextlib.closing(
        RegistryPair.open(
            flow,
            config.clusters,
            reach(flow.target),
            deletes=copies_deletes(flow, order),
        )
    ) as registries:
        return look(registries)


def _writes(flow: FlowConfig, found: SchemasResult) -> list[SchemaToWrite]:
    return [
        *(
            SchemaToWrite(
                cluster=flow.target,
                flow=flow.name,
                change="delete" if each.delete else "register",
                subject=str(each.version.full_subject),
                version=each.version.version,
                id=each.version.id,
                force=each.force and not each.delete,
            )
            for each in found.writes
        ),
        *(
            SchemaToWrite(
                cluster=flow.target,
                flow=flow.name,
                change="set level",
                subject=str(each.subject),
                level=each.then or "",
            )
            for each in found.levels
        ),
    ]
