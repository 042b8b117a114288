"""Rebuilds of copies, noted on the target so that any machine can go on with them.

Main types: `Rebuild`, one topic's, which also pauses the topic, and `KeptGroup`, where
a group goes on. Layout: records of the topic of the pauses, in transactions of the
flow's owner. Key = `rebuild/<flow>/<topic>`, value = JSON with `version` and the fields
of `Rebuild`; key = `rebuild/<flow>/<topic>/<group>`, value = JSON with `version`, `id`
(of the rebuild), `settled` and `offsets`: by partition, the next source offset to read
(-1: the copy's first record) and the metadata that the group committed.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from enum import StrEnum
import json
from typing import TYPE_CHECKING, Any
import uuid

from mirror.errors import MALFORMED, ClusterError
from mirror.records.reading import TopicReader

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from mirror.clusters.cluster import Cluster

VERSION = 1


class RebuildStep(StrEnum):
    """How far a rebuild is."""

    PAUSED = "paused"
    """The topic is not copied any more; nothing else has changed."""
    DELETING = "deleting"
    """It is known where groups go on; the copy may be gone already."""
    COPYING = "copying"
    """The new copy is there, and the flow copies it from the first record."""
    DONE = "done"
    """It is over, or was withdrawn before anything changed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Rebuild:
    """One rebuild of a topic's copy."""

    topic: str
    """On the source."""
    target_topic: str
    step: RebuildStep
    at: float
    """When it began, epoch seconds."""
    source_id: str
    """The source's cluster id."""
    topic_id: str
    """The source topic's, in hex."""
    copy_id: str
    """The topic id of the copy to delete, in hex."""
    partitions: int
    """Of the copy, like the next two."""
    replication_factor: int
    configs: Mapping[str, str] = field(default_factory=dict)
    """Those that are set on the topic itself."""
    records: int = 0
    """How many records the source had copied when it was proven."""
    ends: tuple[int, ...] = ()
    """By partition, from COPYING on: groups go on once the flow has copied up to this
    source offset."""
    id: str = field(default_factory=lambda: uuid.uuid4().hex)

    @property
    def unfinished(self) -> bool:
        return self.step is not RebuildStep.DONE

    @property
    def pauses(self) -> bool:
        """Whether the topic must not be copied now."""
        return self.step in (RebuildStep.PAUSED, RebuildStep.DELETING)

    def record(self, flow: str) -> tuple[bytes, bytes]:
        """Key and value, as in the topic."""
        told = {"version": VERSION, **asdict(self)}
        return prefix(flow) + self.topic.encode(), _json(told)


@dataclass(frozen=True, slots=True, kw_only=True)
class KeptGroup:
    """Where a group goes on that read the copy."""

    topic: str
    group: str
    id: str
    """Of the rebuild."""
    offsets: Mapping[int, tuple[int, str]]
    """By partition: the next source offset (-1: the first record), and metadata."""
    settled: bool = False
    """Whether the group has its offsets in the new copy."""

    def record(self, flow: str) -> tuple[bytes, bytes]:
        """Key and value, as in the topic."""
        told = {
            "version": VERSION,
            "id": self.id,
            "settled": self.settled,
            "offsets": {str(number): [*at] for number, at in self.offsets.items()},
        }
        return prefix(flow) + f"{self.topic}/{self.group}".encode(), _json(told)


def prefix(flow: str) -> bytes:
    """Of the keys of a flow's records."""
    return f"rebuild/{flow}/".encode()


def decode(flow: str, key: bytes, value: bytes) -> Rebuild | KeptGroup | None:
    """One record of the topic; None if it is about something else.

    Raises:
        ClusterError: it is damaged, or a newer mirror has written it.
    """
    if not key.startswith(prefix(flow)):
        return None
    try:
        told: dict[str, Any] = json.loads(value)
        if (version := told.pop("version")) != VERSION:
            raise ClusterError(
                f"there is a rebuild of version {version}; this mirror reads "
                f"{VERSION}: use the newest mirror for this target"
            )
        topic, slash, group = key[len(prefix(flow)) :].decode().partition("/")
        if not slash:
            return _rebuild(topic, told)
        return KeptGroup(
            topic=topic,
            group=group,
            id=str(told["id"]),
            settled=bool(told["settled"]),
            offsets={
                int(number): (int(offset), str(metadata))
                for number, (offset, metadata) in told["offsets"].items()
            },
        )
    except MALFORMED as error:
        raise ClusterError(f"the note of a rebuild is damaged: {error!r}") from error


def groups(
    target: Cluster, control: str, flow: str, rebuild: Rebuild
) -> Iterator[KeptGroup]:
    """The groups of a rebuild that have no offsets in the new copy yet; `control` is
    the topic's name.

    Raises:
        ClusterError: the target does not answer, or a record is damaged.
    """
    found: dict[str, KeptGroup] = {}
    for _, key, value in TopicReader(target, control).read():
        each = decode(flow, key, value)
        if isinstance(each, KeptGroup) and each.topic == rebuild.topic:
            found[each.group] = each
    for each in found.values():
        if each.id == rebuild.id and not each.settled:
            yield each


def _rebuild(topic: str, told: dict[str, Any]) -> Rebuild:
    return Rebuild(
        topic=topic,
        target_topic=str(told["target_topic"]),
        step=RebuildStep(told["step"]),
        at=float(told["at"]),
        source_id=str(told["source_id"]),
        topic_id=uuid.UUID(told["topic_id"]).hex,
        copy_id=uuid.UUID(told["copy_id"]).hex,
        partitions=int(told["partitions"]),
        replication_factor=int(told["replication_factor"]),
        configs={str(name): str(value) for name, value in told["configs"].items()},
        records=int(told["records"]),
        ends=tuple(map(int, told["ends"])),
        id=str(told["id"]),
    )


def _json(told: Mapping[str, Any]) -> bytes:
    return json.dumps(told, ensure_ascii=False).encode()
