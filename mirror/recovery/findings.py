"""What a check of a pair finds: for a drill, a dry run and step 1 alike.

Main type: `Finding`. Its level is the same for everyone who meets it; which runs step 1
refuses because of it, it says itself. Pure.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable

    from mirror.pairs.journal import Kind


class Level(StrEnum):
    """How serious it is, from the least on."""

    READY = "READY"
    """Worth knowing; there is nothing to fix."""
    DEGRADED = "DEGRADED"
    """A failover goes through, at a cost."""
    NOT_READY = "NOT READY"
    """Some applications do not go on, or not where they stopped."""


_ORDER = tuple(Level)


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """One thing that a switch or failover meets."""

    level: Level
    subject: str
    """Such as `group billing`."""
    reason: str
    fix: str
    command: str = ""
    """What to run for the fix; empty if no single command does it."""
    refuses: tuple[Kind, ...] = ()
    """The runs that step 1 refuses because of it."""

    def __str__(self) -> str:
        command = self.command and f": {self.command}"
        return f"{self.subject}: {self.reason}; {self.fix}{command}"


def verdict(found: Iterable[Finding]) -> Level:
    """The worst level."""
    return max((each.level for each in found), key=_ORDER.index, default=Level.READY)


def in_order(found: Iterable[Finding]) -> tuple[Finding, ...]:
    """Each once, the most serious first, else as they came."""
    return tuple(
        sorted(dict.fromkeys(found), key=lambda each: -_ORDER.index(each.level))
    )
