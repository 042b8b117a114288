"""What one flow's schemas are copied between.

Main type: `Ends`: both registries, who may write, and what the last look found.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

    from mirror.config.schema import FlowConfig
    from mirror.schemas.registry.registry import Registry
    from mirror.schemas.registry.values import SchemaVersion
    from mirror.schemas.schema_claims import SchemaClaims
    from mirror.schemas.schema_compared import ComparedRegistries
    from mirror.schemas.schema_rules import Chosen


@dataclass(slots=True)
class _Last:
    """The last look, for one that finds the same lists: registries give the same object
    if nothing has changed.
    """

    lists: tuple[object, ...] = ()
    chosen: Chosen | None = None
    rest: tuple[object, ...] = ()
    found: ComparedRegistries | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class SubjectLists:
    """Some subjects, as both registries have them now."""

    source: tuple[SchemaVersion, ...]
    target: tuple[SchemaVersion, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Ends:
    """What one flow's schemas are copied between. Not thread-safe."""

    flow: FlowConfig
    source: Registry
    target: Registry
    claims: SchemaClaims
    deletes: bool = True
    """Whether soft deletes are copied; of two opposite flows one does."""
    going_on: Callable[[], bool] = lambda: True
    """Whether to write another version; asked before each one."""
    reserves: bool = False
    """Whether ids are reserved; of two opposite flows one does."""
    lists: SubjectLists | None = None
    """What both registries have; None: all that they list."""
    last: _Last = field(default_factory=_Last)
