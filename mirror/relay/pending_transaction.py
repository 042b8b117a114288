"""What one transaction writes, and what it will have done once it is committed.

Main type: `PendingTransaction`. `filling` makes it from fetched answers; once it is
committed its positions and counts hold, and if it is not they are dropped with it.
Until then it owns the buffers that its batches lie in. How it is written is in
`transaction_path`.
"""

from __future__ import annotations

from dataclasses import dataclass, field
import time
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from mirror.clusters.wire.produce import EncodedBatch
    from mirror.offsets.progress import Position, RunningCount
    from mirror.recovery.losses import Loss
    from mirror.relay.rewrite import Rewriter
    from mirror.relay.tally import Part

TopicPartition = tuple[str, int]


@dataclass(slots=True)
class PendingTransaction:
    """Batches by target partition; positions and counts by source partition."""

    rewriter: Rewriter
    batches: dict[TopicPartition, list[EncodedBatch]] = field(default_factory=dict)
    origins: dict[TopicPartition, TopicPartition] = field(default_factory=dict)
    """Source partition by target partition, for those that have batches."""
    moved: dict[TopicPartition, Position] = field(default_factory=dict)
    counts: dict[TopicPartition, Part] = field(default_factory=dict)
    running: dict[TopicPartition, RunningCount] = field(default_factory=dict)
    """What all transactions up to this one have done, known when it is written."""
    losses: list[Loss] = field(default_factory=list)
    """What its positions jump over."""
    buffers: list[bytearray] = field(default_factory=list)
    """Fetched bytes, in which relayed batches still lie."""
    fetched_bytes: int = 0
    begun: float = field(default_factory=time.monotonic)
    """When it was begun, by the monotonic clock."""
    worked_bytes: int = 0
    """The fetched bytes, with what was compressed counted as unpacked."""

    @property
    def size(self) -> int:
        """Bytes of its batches."""
        return sum(b.size for queue in self.batches.values() for b in queue)

    def count(self, key: TopicPartition, more: Part) -> None:
        """Add to what it does to a source partition."""
        known = self.counts.get(key)
        self.counts[key] = more if known is None else known + more
