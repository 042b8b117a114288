"""The loss ledger: source offsets that were lost, kept on the target.

Main type: `Loss`, one range of one partition and why it is gone. A slot writes it in
the transaction whose position jumps over the range, so the ledger and the copy cannot
differ. A topic of one partition per source cluster; each record is one JSON document
with its `version`. The flow's settings decide what to do about a loss.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime
from enum import StrEnum
import json
from typing import TYPE_CHECKING, Any

from mirror.clusters.topics import NO_ID
from mirror.config import own_topics
from mirror.errors import MALFORMED, ClusterError
from mirror.records import records
from mirror.records.reading import TopicReader

if TYPE_CHECKING:
    from collections.abc import Iterable

    from mirror.clusters.cluster import Cluster
    from mirror.clusters.wire.produce import EncodedBatch

VERSION = 1


class Cause(StrEnum):
    """Why offsets are gone."""

    DELETED = "DELETED"
    """Retention, or a person, deleted them before they were copied."""
    TRUNCATED = "TRUNCATED"
    """The source lost them in an unclean election. What had been copied is still in
    the copy; the source's new records at these offsets follow it."""
    RECREATED = "RECREATED"
    """The topic was deleted and re-created; its old end is not always known."""
    SKIPPED = "SKIPPED"
    """`mirror flow reset` moved the position forward."""
    FAILOVER = "FAILOVER"
    """Not copied before a failover, then exported or skipped by `mirror tail`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Loss:
    """A range of source offsets that will not be copied."""

    at: float
    """When it was found, epoch seconds."""
    flow: str
    topic: str
    partition: int
    target_topic: str
    cause: Cause
    first: int
    last: int | None
    """Inclusive; None if it is not known."""
    topic_id: str
    """The source topic's id, in hex."""

    @property
    def count(self) -> int | None:
        """How many offsets; some may have been markers or aborted records."""
        return None if self.last is None else self.last - self.first + 1

    @property
    def span(self) -> str:
        """The range in words."""
        if self.last is None:
            return f"from offset {self.first} on"
        return f"offsets {self.first} to {self.last}"

    def is_of(self, topic_id: str) -> bool:
        """Whether it is about records that the topic with this id (hex) has or had:
        not about those of a deleted topic, nor about those that an election cut off,
        since the records that came in their place are copied.
        """
        unknown = NO_ID.hex in {self.topic_id, topic_id}
        return (unknown or self.topic_id == topic_id) and (
            self.cause is not Cause.TRUNCATED
        )

    def document(self) -> dict[str, Any]:
        """As in the ledger."""
        at = datetime.fromtimestamp(self.at, UTC).isoformat(timespec="milliseconds")
        return {
            "version": VERSION,
            "at": at.replace("+00:00", "Z"),
            "flow": self.flow,
            "cause": self.cause.value,
            "topic": self.topic,
            "partition": self.partition,
            "target_topic": self.target_topic,
            "topic_id": self.topic_id,
            "first": self.first,
            "last": self.last,
            "count": self.count,
        }

    @classmethod
    def decode(cls, value: bytes) -> Loss:
        """A record of the ledger.

        Raises:
            ClusterError: it is damaged, or from a newer version of mirror.
        """
        try:
            told = json.loads(value)
            if (version := told.get("version")) != VERSION:
                raise ClusterError(
                    f"the loss ledger has a record of version {version}; this mirror "
                    f"reads {VERSION}: use the newest mirror for this target"
                )
            return cls(
                at=datetime.fromisoformat(told["at"]).timestamp(),
                flow=told["flow"],
                topic=told["topic"],
                partition=told["partition"],
                target_topic=told["target_topic"],
                cause=Cause(told["cause"]),
                first=told["first"],
                last=told["last"],
                topic_id=told["topic_id"],
            )
        except MALFORMED as error:
            raise ClusterError(
                f"a record of the loss ledger is damaged: {error!r}"
            ) from error


def topic_name(source_alias: str) -> str:
    return own_topics.LOSSES.named(source_alias)


def encode(losses: Iterable[Loss]) -> list[EncodedBatch]:
    """Batches that every topic takes, with one record per loss."""
    return records.encode_all(
        (
            f"{loss.topic}-{loss.partition}".encode(),
            json.dumps(loss.document(), ensure_ascii=False).encode(),
        )
        for loss in losses
    )


def read(target: Cluster, source_alias: str, *, wait: bool = True) -> tuple[Loss, ...]:
    """Everything in the ledger, oldest first; nothing if there is no ledger yet.
    Without `wait`, what precedes the first open transaction.

    Raises:
        ClusterError: the target does not answer, or does not let us read it, or it
            contains a record that is not ours.
    """
    topic = topic_name(source_alias)
    if target.topic(topic) is None:
        return ()
    return tuple(
        Loss.decode(value) for _, _, value in TopicReader(target, topic).read(wait=wait)
    )
