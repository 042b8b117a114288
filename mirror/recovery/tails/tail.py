"""A tail, and what a command does with which records of it, as values.

Main types: `TailPartition`, what is left of one source partition, and `Tail`, all of
them, which also keep what the next survey need not read again; `Order`, with a `Choice`
of records: `settling` carries it out.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from mirror.status.wording import some

if TYPE_CHECKING:
    import uuid

    from mirror.clusters.topics import TopicPartition
    from mirror.config.schema import FlowConfig

Offsets = npt.NDArray[np.int64]

NO_KEY = 0
"""Instead of the mark of a key: the record has none."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TailPartition:
    """What is not settled of one source partition."""

    topic: str
    partition: int
    target_topic: str
    topic_id: uuid.UUID
    """The source topic's."""
    position: int
    """Where the flow stands; what is below it is copied, or settled."""
    end: int
    """Where the tail ends."""
    open: bool
    """Whether a transaction is open on the source, and may hide more."""
    replayed_to: int
    """After the last record that is on the target; the position, if none is behind
    it."""
    replayed: int
    """Records at or after the position that are on the target."""
    written_off: int
    """Records at or after the position that the loss ledger names."""
    offsets: Offsets = field(repr=False)
    """Those that are not settled, ascending."""
    times: Offsets = field(repr=False)
    """Theirs, epoch milliseconds."""
    keys: Offsets = field(repr=False)
    """A mark of each one's key; `NO_KEY`: it has none."""
    sizes: Offsets = field(repr=False)
    """Bytes of key, value and headers."""
    rows: Offsets = field(repr=False)
    """For the next look: of all that was read and did not come from the target, settled
    or not, the offsets, the times, the keys and the sizes."""
    epoch: int
    """The leader's, of the last record before the end; -1: not known."""

    @property
    def key(self) -> TopicPartition:
        return self.topic, self.partition

    @property
    def records(self) -> int:
        return len(self.offsets)

    @property
    def bytes(self) -> int:
        return int(self.sizes.sum())

    @property
    def unmoved(self) -> bool:
        """Whether nothing is left, but the flow would copy again what is settled."""
        return not self.records and bool(self.replayed or self.written_off)

    @property
    def settled(self) -> bool:
        return not (self.open or self.records or self.unmoved)


@dataclass(frozen=True, slots=True, kw_only=True)
class Tail:
    """All partitions of a flow that have a tail, or had one."""

    partitions: tuple[TailPartition, ...]

    @property
    def records(self) -> int:
        return sum(each.records for each in self.partitions)

    @property
    def bytes(self) -> int:
        return sum(each.bytes for each in self.partitions)

    @property
    def remembered(self) -> int:
        """Records that the next look need not read."""
        return sum(each.rows.shape[1] for each in self.partitions)

    @property
    def settled(self) -> bool:
        return all(each.settled for each in self.partitions)

    def left(self, flow: FlowConfig) -> str:
        """What is left to settle, in words; empty if nothing is."""
        if self.records:
            return f"{flow.source} has {some(self.records, 'record')} not copied"
        if any(each.open for each in self.partitions):
            return f"a transaction is open on {flow.source}, and may hide more records"
        if self.settled:
            return ""
        return f"the position of {flow.name} is not behind what was settled"


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
    topic: str = ""
    """Where to export to, if there is no file."""
