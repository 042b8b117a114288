"""What a slot's transactions carry on counting, so that no count dies with a process.

Main type: `RunningCounts`. Each transaction writes beside a partition's position what
was done to it so far. A take-over reads that and goes on from there, if the same
service counted; else it begins at zero. It knows no broker.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from mirror.offsets.progress import RunningCount
from mirror.status.counts import NOTHING, Counts

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    import uuid

TopicPartition = tuple[str, int]


class RunningCounts:
    """Of the partitions of one slot."""

    def __init__(self, service: uuid.UUID) -> None:
        self._service = service
        self._written: dict[TopicPartition, RunningCount] = {}
        self._committed: dict[TopicPartition, RunningCount] = {}

    def take_over(
        self,
        found: Mapping[TopicPartition, bytes],
        partitions: Iterable[TopicPartition],
    ) -> None:
        """Go on from what the progress says; begin at zero where it says nothing.

        Raises:
            ClusterError: what it says is damaged.
        """
        zero = RunningCount(service=self._service, begun=int(time.time() * 1000))
        self._committed = {
            key: known
            if (known := RunningCount.decode(found.get(key, b"")))
            and known.service == self._service
            else zero
            for key in partitions
        }
        self._written = dict(self._committed)

    def write(
        self,
        partitions: Iterable[TopicPartition],
        more: Mapping[TopicPartition, Counts],
    ) -> dict[TopicPartition, RunningCount]:
        """What a transaction has to say that moves these and does so much, behind all
        that were written before it.
        """
        said = {key: self._written[key] + more.get(key, NOTHING) for key in partitions}
        self._written.update(said)
        return said

    def commit(self, said: Mapping[TopicPartition, RunningCount]) -> None:
        """The transaction that says this is committed."""
        self._committed.update(said)

    def committed(self, key: TopicPartition) -> RunningCount | None:
        """None while the slot has not taken over since it got the partition."""
        return self._committed.get(key)
