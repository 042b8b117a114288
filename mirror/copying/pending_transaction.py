"""What one transaction writes, and what it changes once it is committed.

Main type: `PendingTransaction`. `Filling` builds it from fetched answers. Its positions
and counts take effect when it commits, and are dropped with it if it does not. Until
then it owns the buffers that hold its batches. `target` writes it.
"""

from __future__ import annotations

from dataclasses import dataclass, field
import time
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from mirror.clusters.topics import TopicPartition
    from mirror.clusters.wire.produce import EncodedBatch
    from mirror.copying.rewrite import Rewriter
    from mirror.copying.tally import Tallied
    from mirror.offsets.progress import Position, RunningCount
    from mirror.pairs.losses import Loss


@dataclass(slots=True)
class PendingTransaction:
    """Batches by target partition; positions and counts by source partition."""

    rewriter: Rewriter
    batches: dict[TopicPartition, list[EncodedBatch]] = field(default_factory=dict)
    origins: dict[TopicPartition, TopicPartition] = field(default_factory=dict)
    """The source partition of each target partition that has batches."""
    moved: dict[TopicPartition, Position] = field(default_factory=dict)
    counts: dict[TopicPartition, Tallied] = field(default_factory=dict)
    running: dict[TopicPartition, RunningCount] = field(default_factory=dict)
    """Counts of all transactions up to this one; set when it is written."""
    losses: list[Loss] = field(default_factory=list)
    """The gaps that its positions jump over."""
    buffers: list[bytearray] = field(default_factory=list)
    """Fetched bytes that relayed batches still point into."""
    fetched_bytes: int = 0
    begun: float = field(default_factory=time.monotonic)
    """When it was started, monotonic."""
    worked_bytes: int = 0
    """The fetched bytes, counting compressed data at its unpacked size."""

    @property
    def size(self) -> int:
        """The size of its batches in bytes."""
        return sum(b.size for queue in self.batches.values() for b in queue)

    def count(self, key: TopicPartition, more: Tallied) -> None:
        """Add to the counts of a source partition."""
        known = self.counts.get(key)
        self.counts[key] = more if known is None else known + more
