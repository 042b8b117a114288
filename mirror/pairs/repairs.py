"""Repairs of copies, noted on the target in the transaction that makes them.

Main type: `Repair`, the last one of a flow. Layout: the record stands in the topic of
the pauses, since the service follows that one; key = `repair/<flow>`, value = JSON with
`version`, `id`, `at`, `kind` (`append` or `rebuild`) and `topics`: by source topic, how
many records were appended, or how many a copy that was rebuilt had to have.
"""

from __future__ import annotations

from dataclasses import dataclass, field
import json
from typing import TYPE_CHECKING, Any
import uuid

from mirror.errors import MALFORMED, ClusterError
from mirror.status.events import Event, EventKind

if TYPE_CHECKING:
    from collections.abc import Mapping

VERSION = 1
APPEND = "append"
REBUILD = "rebuild"


@dataclass(frozen=True, slots=True, kw_only=True)
class Repair:
    """What was done to the copies of one flow."""

    flow: str
    at: float
    """Epoch seconds."""
    kind: str
    topics: Mapping[str, int]
    id: str = field(default_factory=lambda: uuid.uuid4().hex)

    def record(self) -> tuple[bytes, bytes]:
        """Key and value, as in the topic."""
        told = {
            "version": VERSION,
            "id": self.id,
            "at": self.at,
            "kind": self.kind,
            "topics": dict(self.topics),
        }
        return key(self.flow), json.dumps(told, ensure_ascii=False).encode()

    def event(self) -> Event:
        """The event that it was done."""
        named = ", ".join(f"{count} to {topic}" for topic, count in self.topics.items())
        text = f"missing records were appended to copies: {named}"
        if self.kind == REBUILD:
            text = f"copies were rebuilt from the source: {', '.join(self.topics)}"
        return Event(
            kind=EventKind.COPY_REPAIRED,
            flow=self.flow,
            text=text,
            details={"repair": self.kind, "at": self.at, "topics": dict(self.topics)},
        )


def key(flow: str) -> bytes:
    """Of the record about a flow's last repair."""
    return f"repair/{flow}".encode()


def decode(flow: str, value: bytes) -> Repair | None:
    """The repair of one record; None if only a newer mirror knows what was done.

    Raises:
        ClusterError: it is damaged.
    """
    try:
        told: dict[str, Any] = json.loads(value)
        if int(told["version"]) != VERSION:
            return None
        return Repair(
            flow=flow,
            id=str(told["id"]),
            at=float(told["at"]),
            kind=str(told["kind"]),
            topics={str(topic): int(n) for topic, n in told["topics"].items()},
        )
    except MALFORMED as error:
        raise ClusterError(f"the note of a repair is damaged: {error!r}") from error
