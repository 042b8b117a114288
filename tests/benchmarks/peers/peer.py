"""What every peer is asked to do, and how it is driven.

A peer turns a `Task` into a running `Service`. Its settings are its own duty; each
says in `about` how it was tuned, so that the figures can be judged.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from tests.benchmarks.processes import Service


@dataclass(frozen=True, slots=True, kw_only=True)
class Task:
    """Copy topics from one cluster to another."""

    source: str
    """Bootstrap address."""
    target: str
    alias: str
    """The source's alias: another one per run, so that no run finds another's state."""
    topic: str
    """Its name, or a regular expression."""
    compression: str
    """The source's codec, which the copy has to have too."""
    folder: Path
    """Empty; for settings, logs and state."""
    tasks: int | None = None
    """How many copy side by side. None: as the peer thinks best."""
    replicas: int = 1
    """Of all that it creates on the target."""
    lease_seconds: float | None = None
    """For peers that have leases. None: their default."""
    groups: bool = False
    """Whether to translate the offsets of consumer groups, every second."""
    security: Mapping[str, str] | None = None
    """Both clusters', in the words of mirror's configuration. None: plaintext."""

    registries: tuple[str, str] | None = None
    """The schema registries of source and target; records then wait for their schemas.
    None: no schemas are copied."""
    translates: bool = False
    """Whether records get the ids of the target's registry."""

    @property
    def target_topic(self) -> str:
        return f"{self.alias}.{self.topic}"


class Peer(Protocol):
    @property
    def about(self) -> str: ...

    def missing(self) -> str | None:
        """Why it cannot run on this machine; None when it can."""

    def prepare(self) -> None:
        """Fetch and compile what a first start would; not measured."""

    def start(self, task: Task) -> Service: ...
