"""Running counts in a slot's transactions, so that no count is lost with a process.

Main type: `RunningCounts`. With a partition's position, each transaction writes what
was done to the partition so far. A take-over reads that and continues counting if the
same service wrote it; otherwise it starts at zero. It knows no broker.
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
    """The running counts of one slot's partitions."""

    def __init__(self, service: uuid.UUID) -> None:
        self._service = service
        self._written: dict[TopicPartition, RunningCount] = {}
        self._committed: dict[TopicPartition, RunningCount] = {}

    def take_over(
        self,
        found: Mapping[TopicPartition, bytes],
        partitions: Iterable[TopicPartition],
    ) -> None:
        """Continue from the counts in the progress; start at zero where there are none.

        Raises:
            ClusterError: a count in the progress is damaged.
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
        """The counts to write in a transaction that moves these partitions and adds
        `more` to what the transactions before it wrote.
        """
        counts = {
            key: self._written[key] + more.get(key, NOTHING) for key in partitions
        }
        self._written.update(counts)
        return counts

    def commit(self, counts: Mapping[TopicPartition, RunningCount]) -> None:
        """Note that the transaction with these counts is committed."""
        self._committed.update(counts)

    def forget(self) -> None:
        """Other slots may have counted since: nothing is known until a take-over."""
        self._committed.clear()

    def committed(self, key: TopicPartition) -> RunningCount | None:
        """None until a take-over has read it."""
        return self._committed.get(key)
