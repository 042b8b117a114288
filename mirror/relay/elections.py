"""Notices when partitions that lost their leader have another one.

Main type: `Elections`, of one cluster. A partition whose leader is gone, on the source
or on the target, is set aside, and each retry costs its slot a take-over, so retries
become rare (`faults`). Meanwhile this asks the cluster who leads, so that the retry
comes with the election. Only a newer leader epoch counts: brokers that are cut off from
their cluster go on to name old leaders.
"""

from __future__ import annotations

import math
import time
from typing import TYPE_CHECKING

from mirror.errors import MirrorError
from mirror.relay.beside import Beside

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping

    from mirror.clusters.cluster import Cluster

TopicPartition = tuple[str, int]
_Lost = tuple[TopicPartition, int]
"""A partition, and the epoch of its last known leader."""

_AGAIN_SECONDS = 0.25


class Elections:
    """The partitions of one slot that wait for a leader."""

    def __init__(self, cluster: Cluster) -> None:
        """Takes over `cluster`, which need not be connected yet."""
        self._cluster = cluster
        self._lost: dict[TopicPartition, _Lost] = {}
        self._ask_at = 0.0
        self._beside = Beside("elections", self._ask, cluster.close)

    @property
    def again_in(self) -> float:
        """Seconds within which to call `held`."""
        return _AGAIN_SECONDS if self._lost else math.inf

    def wait_for(self, key: TopicPartition, led: TopicPartition, epoch: int) -> None:
        """Wait until the partition `led` of this cluster has a leader of a newer epoch
        than the last one known; `key`: what the slot calls it, the source's partition.
        """
        self._lost[key] = (led, epoch)

    def keep_only(self, keys: Collection[TopicPartition]) -> None:
        """No other partition waits any longer."""
        self._lost = {key: self._lost[key] for key in self._lost.keys() & keys}
        if not (self._lost or self._beside.asks):
            self._cluster.close()

    def held(self) -> list[TopicPartition]:
        """The partitions that have another leader now, each once; never waits."""
        found = []
        for key, lost in self._beside.answers():
            if self._lost.get(key) == lost:
                del self._lost[key]
                found.append(key)
        now = time.monotonic()
        if self._lost and now >= self._ask_at and not self._beside.asks:
            self._ask_at = now + _AGAIN_SECONDS
            self._beside.start(self._lost.copy())
        return found

    def close(self) -> None:
        """Close the connections, at once or when the last question ends."""
        self._lost.clear()
        self._beside.close()

    def _ask(
        self, lost: Mapping[TopicPartition, _Lost]
    ) -> Iterable[tuple[TopicPartition, _Lost]]:
        try:
            if not self._cluster.cluster_id:
                self._cluster.connect()
            topics = self._cluster.topics({led[0] for led, _ in lost.values()})
        except MirrorError:
            return  # the retries of `faults` say what is wrong
        for key, (led, epoch) in lost.items():
            leader = topics[led[0]].leaders.get(led[1])
            if leader is not None and leader.node >= 0 and leader.epoch > epoch:
                yield key, (led, epoch)
