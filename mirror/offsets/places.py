"""Reads the runs at places of the map's topic that an index points to.

Main type: `PlaceReader`. It takes many places at once and goes through the topic once,
in order, however many partitions and groups they belong to; it caches what it read
last. `index` says which place an offset belongs to.
"""

from __future__ import annotations

from collections import OrderedDict
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from mirror.offsets import runs
from mirror.records.reading import TopicReader

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    import uuid

    from mirror.clusters.cluster import Cluster
    from mirror.clusters.topics import TopicPartition
    from mirror.offsets.index import MapPlace
    from mirror.offsets.runs import RunArray


_CACHED_RUNS = 1_000_000
_FETCH_BYTES = 256 << 10
"""Most places are a few records; a long one takes several fetches."""
_NEAR = 256
"""A place no more offsets than this after the last one is reached by reading on."""


class PlaceQuery(NamedTuple):
    """The runs of one partition at one place."""

    key: TopicPartition
    """Topic and partition on the source."""
    topic_id: uuid.UUID
    place: MapPlace


class PlaceReader:
    """Reads places of one map. Not thread-safe, like its cluster."""

    def __init__(self, cluster: Cluster, topic: str) -> None:
        self._cluster = cluster
        self._topic = topic
        self._cache: OrderedDict[PlaceQuery, RunArray] = OrderedDict()
        self._cached = 0

    def read(
        self, wanted: Iterable[PlaceQuery], follower: TopicReader
    ) -> Iterator[tuple[PlaceQuery, RunArray]]:
        """The runs at each place, as they are found; `follower` has read the map.

        Raises:
            ClusterError: the map cannot be read, or was re-created.
        """
        end = follower.position
        missing = []
        for each in dict.fromkeys(wanted):
            if (known := self._cache.get(each)) is None:
                missing.append(each)
            else:
                self._cache.move_to_end(each)
                yield each, known
        missing.sort(key=lambda each: each.place.at)
        for stretch in _stretches(missing, end):
            yield from self._sweep(stretch, end, follower.topic_id)

    def _sweep(
        self, stretch: list[PlaceQuery], end: int, topic_id: uuid.UUID | None
    ) -> Iterator[tuple[PlaceQuery, RunArray]]:
        """One reading from the first place to the end of the last."""
        by_key: dict[TopicPartition, list[PlaceQuery]] = {}
        for each in reversed(stretch):
            by_key.setdefault(each.key, []).append(each)
        parts: dict[TopicPartition, list[RunArray]] = {key: [] for key in by_key}
        topics = {topic for topic, _ in by_key}
        until = max(_until(each, end) for each in stretch)
        reader = TopicReader(
            self._cluster,
            self._topic,
            position=stretch[0].place.at,
            fetch_bytes=_FETCH_BYTES,
            topic_id=topic_id,
        )
        for at, _, value in reader.read(end=until):
            for block in runs.decode(value, only=topics.__contains__):
                key = (block.topic, block.partition)
                waiting = by_key.get(key)
                while waiting and at >= _until(waiting[-1], end):
                    yield self._keep(waiting.pop(), parts[key])
                    parts[key] = []
                if (
                    waiting
                    and at >= waiting[-1].place.at
                    and block.topic_id == waiting[-1].topic_id
                ):
                    parts[key].append(block.runs)
        for key, waiting in by_key.items():
            while waiting:
                yield self._keep(waiting.pop(), parts[key])
                parts[key] = []

    def _keep(
        self, wanted: PlaceQuery, parts: list[RunArray]
    ) -> tuple[PlaceQuery, RunArray]:
        found = np.concatenate(parts) if parts else np.empty((0, 3), np.int64)
        part = wanted.place.of(found)
        if wanted.place.until is not None:  # else it grows
            self._cache[wanted] = part
            self._cached += len(part)
            while self._cached > _CACHED_RUNS:
                self._cached -= len(self._cache.popitem(last=False)[1])
        return wanted, part


def _until(wanted: PlaceQuery, end: int) -> int:
    return end if wanted.place.until is None else wanted.place.until


def _stretches(wanted: list[PlaceQuery], end: int) -> Iterator[list[PlaceQuery]]:
    """Places that are read in one pass, given in order."""
    stretch: list[PlaceQuery] = []
    until = 0
    for each in wanted:
        if stretch and each.place.at > until + _NEAR:
            yield stretch
            stretch = []
        stretch.append(each)
        until = max(until, _until(each, end))
    if stretch:
        yield stretch
