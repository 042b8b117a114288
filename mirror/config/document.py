"""A configuration as it was written, before it is checked.

Main type: `Document`. Readers of file formats make one, `environment` lays variables
over it, `build` turns it into the model's types. It remembers how each setting was
spelled, so that messages name what the user wrote.
"""

from __future__ import annotations

from dataclasses import dataclass, field
import re
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping

Path = tuple[str, ...]
"""Where a setting stands: section, name within it, field."""

_PLAIN = re.compile(r"[A-Za-z0-9_-]+")


@dataclass(slots=True, kw_only=True)
class Findings:
    """What a reader has to say about a file, as it reads."""

    warnings: list[str] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)
    by_hand: list[str] = field(default_factory=list)
    """As of `Document`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Document:
    """Sections as plain mappings, with the warnings and problems so far."""

    raw: Mapping[str, Any]
    spelled: Mapping[Path, str] = field(default_factory=dict)
    """How a setting was written, where it was not written as `dotted` would."""
    warnings: tuple[str, ...] = ()
    problems: tuple[str, ...] = ()
    by_hand: tuple[str, ...] = ()
    """What has no counterpart that could be written down: problems to all that runs,
    comments in a conversion."""


def dotted(path: Path) -> str:
    """A setting's name in messages, such as `flows."A->B".topics`."""
    return ".".join(
        part if _PLAIN.fullmatch(part) else f'"{part}"' for part in map(str, path)
    )
