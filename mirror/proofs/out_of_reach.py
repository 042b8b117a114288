"""Remembers what can no longer be compared, so that a proof ends soon without it.

Main type: `OutOfReach`. A task waits for a minute until a cluster answers, or a topic
is there. One such wait is enough: ranges that would end the same way are not tried.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from mirror.clusters import codes
from mirror.errors import ClusterError, UnreachableError
from mirror.offsets.progress import NO_ID

if TYPE_CHECKING:
    import uuid

    from mirror.clusters.cluster import Cluster
    from mirror.proofs.copied_partition import CopiedPartition


class OutOfReach:
    """For one proof. Uses the connections of its driver."""

    def __init__(self, source: Cluster, target: Cluster) -> None:
        self._source, self._target = source, target
        self._reasons: dict[tuple[str | int, ...], str] = {}
        """By what is gone: a partition, a topic, or all of a cluster."""

    def reason(self, of: CopiedPartition) -> str:
        """Why a partition need not be tried; empty if it may work."""
        for gone in ((), (of.topic,), (of.topic, of.partition)):
            if reason := self._reasons.get(gone):
                return reason
        return ""

    def note(self, of: CopiedPartition, reason: str) -> None:
        """A task failed for this reason: look what else it concerns."""
        if self.reason(of):
            return
        for cluster, topic, topic_id in (
            (self._source, of.topic, of.topic_id),
            (self._target, of.target_topic, of.copy_id),
        ):
            try:
                gone = _gone(cluster, topic, topic_id, of.partition)
            except UnreachableError:
                self._reasons[()] = reason
                return
            except ClusterError:
                continue  # this task's own reason says it better
            if gone:
                self._reasons[of.topic, *gone[1:]] = reason
                return


def _gone(
    cluster: Cluster, topic: str, topic_id: uuid.UUID, partition: int
) -> tuple[str | int, ...]:
    """The topic or the partition, if it is not there; else nothing."""
    shown = cluster.topics([topic])[topic]
    other = NO_ID not in (topic_id, shown.topic_id) and shown.topic_id != topic_id
    if shown.error == codes.UNKNOWN_TOPIC_OR_PARTITION or other:
        return (topic,)
    leader = shown.leaders.get(partition)
    return () if leader is not None and leader.node >= 0 else (topic, partition)
