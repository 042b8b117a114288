"""What a command does with which records of a tail, as values.

Main type: `Order`, with a `Choice`: `choosing` applies that, `settling` carries it out.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from mirror.recovery.tails.exporting import TailFile


@dataclass(frozen=True, slots=True, kw_only=True)
class Choice:
    """Filters, all of which a record must pass."""

    topic: str = ".*"
    """Matches the whole name of the source topic."""
    partition: int | None = None
    key: bytes | None = None
    since_ms: int | None = None
    """Not older than this time."""
    until_ms: int | None = None
    """Older than this time."""


class Way(StrEnum):
    """What a command does with records."""

    REPLAY = "replay"
    EXPORT = "export"
    SKIP = "skip"


@dataclass(frozen=True, slots=True, kw_only=True)
class Order:
    """What to do with which records."""

    way: Way
    choice: Choice
    file: TailFile | None = None
    """Where to export to; else `topic`."""
    topic: str = ""
