"""How a transaction of a flow ended, by what it wrote to the offset map.

Main type: `MapWitness`, as `clusters.hanging` asks it. A coordinator knows of an id's
last transaction alone, and forgets it once the id is taken over. But a transaction with
copies always writes to the map, and each v2 transaction (KIP-890) has an epoch of its
own. If a `read_committed` reader of the map sees it, it was committed. If not, although
the map has an earlier one of this producer, it was aborted.
"""

from __future__ import annotations

from dataclasses import dataclass
import struct
from typing import TYPE_CHECKING

from mirror.batches.reading import TopicReader
from mirror.batches.writing import prove_leader
from mirror.clusters.admin import topic_admin

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator

    from mirror.clusters.cluster import Cluster

TopicPartition = tuple[str, int]

_PROOF_KEY = b""
"""Readers of the map leave out what has no value."""
_FIRST_OFFSETS = 10_000
"""How far back to look at first; each further time twice as far."""
_EPOCH = struct.Struct(">h")
_EPOCH_AT = 51
"""Where a batch of message format v2 has its producer's epoch."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MapWitness:
    """What the map of one flow says about transactions of its producers."""

    target: Cluster
    offset_map: TopicPartition
    no_copies: Collection[TopicPartition]
    """Partitions that a transaction may write to without writing to the map."""

    def was_committed(
        self, producer_id: int, epoch: int, left_open: Collection[TopicPartition]
    ) -> bool | None:
        """Whether a v2 transaction was committed that is still open in some partitions;
        None if the map does not tell. Call it after fencing.

        Raises:
            MirrorError: the map's leader does not answer, does not prove that it leads,
                or a transaction stays open there.
        """
        if self.offset_map in left_open:
            return None
        for seen in self._epochs(producer_id):
            if seen == epoch:
                return True
            if seen < epoch:
                has_copies = not set(left_open) <= set(self.no_copies)
                return False if has_copies else None
        return None

    def _epochs(self, producer_id: int) -> Iterator[int]:
        """The epochs in which the producer committed, as the map shows, from the newest
        one back.
        """
        from mirror.batches import scan  # noqa: PLC0415  loads kernels, and is rare

        topic, partition = self.offset_map
        # A leader that is cut off would not show what was committed since.
        end = prove_leader(self.target, topic, _PROOF_KEY) + 1
        start = topic_admin.list_offsets(
            self.target, [self.offset_map], timestamp=topic_admin.EARLIEST
        )[topic, partition]
        offsets = _FIRST_OFFSETS
        while end > start:
            begin = max(start, end - offsets)
            found = []
            for buffer, seen in TopicReader(self.target, topic, position=begin).seen(
                end
            ):
                ours = seen.rows[seen.rows[:, scan.PRODUCER] == producer_id]
                found += [
                    _EPOCH.unpack_from(buffer.data, at + _EPOCH_AT)[0]
                    for at in ours[:, scan.AT].tolist()
                ]
            yield from reversed(found)
            end, offsets = begin, 2 * offsets
