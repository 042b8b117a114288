"""What a running service knows of its flows' schemas, as a part of the status.

Main types: `SchemaStatus`, of one flow, and `SubjectStatus`, of a subject that is not
as it should be.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

    from mirror.status.states import SchemaState

MOST_SUBJECTS = 200
"""How many subjects a status names."""
WAITS = "schema "
"""What the reasons of partitions begin with that wait for a schema."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SubjectStatus:
    """One subject, as of the last look."""

    subject: str
    """On the target, with its context."""
    state: SchemaState
    """How its copy is doing."""
    reason: str
    """Why it is in this state, or what differs on purpose; empty if nothing does."""
    versions: int
    """How many the target should have."""
    there: int
    """How many of them it has."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SchemaStatus:
    """The schemas of one flow. Counters are since the service started."""

    mode: str = "off"
    """The flow's setting `schemas`."""
    states: Mapping[str, int] = field(default_factory=dict)
    """How many subjects are in each state."""
    synced_at: float = 0.0
    """When a look last came to its end, epoch seconds, or when the service began to
    copy schemas; 0 while it does not."""
    versions_copied: int = 0
    """Versions written to the target."""
    versions_deleted: int = 0
    """Versions deleted there, softly, as on the source."""
    levels_set: int = 0
    """Compatibility levels set there."""
    request_failures: int = 0
    """Requests without an answer, or that failed in a registry."""
    subjects: tuple[SubjectStatus, ...] = ()
    """Those that are not SYNCED, and those with a reason; 200 at most."""

    @property
    def is_on(self) -> bool:
        return self.mode != "off"

    @property
    def is_required(self) -> bool:
        """Whether records wait for their schemas."""
        return self.mode == "require"
