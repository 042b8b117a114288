"""Notices when partitions that lost their leader have another one.

Main type: `Elections`. A partition whose leader is gone is set aside, and each retry
costs its slot a take-over, so retries become rare (`faults`). Meanwhile this asks the
source who leads, so that the retry comes with the election. Only a newer leader epoch
counts: brokers that are cut off from their cluster go on to name old leaders.
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

_AGAIN_SECONDS = 0.25


class Elections:
    """The partitions of one slot that wait for a leader."""

    def __init__(self, source: Cluster) -> None:
        """Takes over `source`, which need not be connected yet."""
        self._cluster = source
        self._lost: dict[TopicPartition, int] = {}
        self._ask_at = 0.0
        self._beside = Beside("elections", self._ask, source.close)

    @property
    def again_in(self) -> float:
        """Seconds within which to call `held`."""
        return _AGAIN_SECONDS if self._lost else math.inf

    def wait_for(self, key: TopicPartition, epoch: int) -> None:
        """Look out for a leader of a newer epoch than the last one known."""
        self._lost[key] = epoch

    def keep_only(self, keys: Collection[TopicPartition]) -> None:
        """No other partition waits any longer."""
        self._lost = {key: self._lost[key] for key in self._lost.keys() & keys}
        if not (self._lost or self._beside.asks):
            self._cluster.close()

    def held(self) -> list[TopicPartition]:
        """The partitions that have another leader now, each once; never waits."""
        found = []
        for key, epoch in self._beside.answers():
            if self._lost.get(key) == epoch:
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
        self, lost: Mapping[TopicPartition, int]
    ) -> Iterable[tuple[TopicPartition, int]]:
        try:
            if not self._cluster.cluster_id:
                self._cluster.connect()
            topics = self._cluster.topics({topic for topic, _ in lost})
        except MirrorError:
            return  # the retries of `faults` say what is wrong
        for key, epoch in lost.items():
            leader = topics[key[0]].leaders.get(key[1])
            if leader is not None and leader.node >= 0 and leader.epoch > epoch:
                yield key, epoch
