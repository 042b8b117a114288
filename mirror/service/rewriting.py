"""What a command, or a flow that begins, decides about positions.

Main type: `Rewriting`, which `ownership.rewrite_progress` asks for and writes in one
transaction. A plain value; nothing is read or written here.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence

    from mirror.clusters.topics import TopicPartition
    from mirror.offsets.progress import Position
    from mirror.offsets.runs import Block
    from mirror.pairs.losses import Loss


@dataclass(frozen=True, slots=True, kw_only=True)
class Rewriting:
    """Positions to write, and what to record with them."""

    positions: Mapping[TopicPartition, Position]
    losses: Sequence[Loss] = ()
    blocks: Sequence[Block] = ()
    """Entries to add to the offset map."""
    notes: Sequence[tuple[bytes, bytes]] = ()
    """Keys and values for the topic of the pauses."""
    epoch: int = 0
    """The role of the pair that feeds the target for which this was decided."""
    begun: bool = False
    """Whether partitions without a position begin at their first record from now on,
    whatever `start` says."""
    copied: Collection[TopicPartition] | None = None
    """All partitions that the flow copies; None: those with a position."""
    accepts_cut: bool = False
    """Whether these positions stand for those that were deleted from the topic."""
