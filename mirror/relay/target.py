"""The target side of a slot: transactions that commit in order.

Main type: `TargetWriter`. Two transactional ids take turns, so that the next
transaction is filled while the last one commits; a commit is asked for only after
the last one's is acknowledged. Without exactly-once there is one idempotent
producer: data first, then the progress that tells of it. Nothing is repaired here:
after an error the slot takes over anew.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from mirror.clusters.transactions import Producer

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from mirror.clusters.cluster import Cluster, Topic
    from mirror.clusters.produce import EncodedBatch

TopicPartition = tuple[str, int]
_IN_TURN = 2


def transactional_ids(flow: str, slot: int) -> tuple[str, ...]:
    """All ids of a slot: whoever replaces it must fence every one of them."""
    return tuple(f"mirror.{flow}.{slot}.{turn}" for turn in range(_IN_TURN))


class TargetWriter:
    """Writes what a slot copied, together with its progress."""

    def __init__(
        self,
        cluster: Cluster,
        *,
        flow: str,
        slot: int,
        exactly_once: bool,
        transaction_timeout_ms: int,
    ) -> None:
        ids: Sequence[str | None] = (
            transactional_ids(flow, slot) if exactly_once else (None,)
        )
        self._exactly_once = exactly_once
        self._producers = [
            Producer(
                cluster,
                transactional_id=transactional_id,
                transaction_timeout_ms=transaction_timeout_ms,
            )
            for transactional_id in ids
        ]
        self._turn = 0

    def take_over(self) -> None:
        """Fence whoever held this slot's ids; abort what it left open."""
        for producer in self._producers:
            producer.take_over()

    def write(
        self,
        batches: Mapping[TopicPartition, Sequence[EncodedBatch]],
        progress: tuple[TopicPartition, EncodedBatch],
        topics: Mapping[str, Topic],
    ) -> None:
        """Write one transaction and ask for its commit; `settle` waits for it.

        Call `settle` for the last one first: transactions commit in order.
        """
        where, batch = progress
        producer = self._producers[self._turn]
        if not self._exactly_once:
            producer.write(batches, topics)
            producer.write({where: [batch]}, topics)
            return
        producer.write({**batches, where: [batch]}, topics)
        producer.begin_commit()
        self._turn = (self._turn + 1) % len(self._producers)

    def settle(self) -> None:
        """Wait until the last transaction is committed."""
        if self._exactly_once:
            self._producers[self._turn - 1].end_commit()
