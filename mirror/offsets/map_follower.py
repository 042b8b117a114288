"""Follows an offset map's topic, and keeps what it says in a form that stays small.

Main type: `MapFollower`, with a `Track` per partition of the source. It begins where
the index on the target ends (`kept_index`). If there is none, and once the map was
re-created or lost its end, it begins at the map's start.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from mirror.batches.reading import TopicReader
from mirror.errors import CorruptBatchError, RecreatedError
from mirror.offsets import kept_index, runs
from mirror.offsets.gathering import gather
from mirror.offsets.kept_index import MapIndex
from mirror.offsets.late import LateRuns
from mirror.offsets.places import PlaceQuery, PlaceReader
from mirror.offsets.progress import NO_ID
from mirror.offsets.track import Track

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from mirror.clusters.cluster import Cluster
    from mirror.offsets.runs import Block, RunArray

TopicPartition = tuple[str, int]

_TAIL_RUNS = 2_000_000
"""The newest runs kept, over all partitions: at most 96 MB."""
_LEAST_TAIL, _LARGEST_TAIL = 64, 8192


class MapFollower:
    """What one source's map says. Not thread-safe, like its cluster."""

    def __init__(
        self, target: Cluster, source_alias: str, separator: str, *, fenced: bool
    ) -> None:
        """`fenced`: whether the flow is exactly once: if not, records of the map may
        come late.
        """
        self.topic = runs.topic_name(source_alias, separator)
        self._target = target
        self._source_alias = source_alias
        self._fenced = fenced
        self._recalled = False
        self._begin()

    def _begin(self) -> None:
        """Forget everything; read the map from its start."""
        self.reader = TopicReader(self._target, self.topic)
        self.places = PlaceReader(self._target, self.topic)
        self.tracks: dict[TopicPartition, Track] = {}
        self.late = LateRuns()

    def follow(self, *, wait: bool) -> None:
        """Read what was committed since the last time; `wait` as for `TopicReader`.

        Raises:
            ClusterError: the target does not answer, or there is no map.
            CorruptBatchError: a record of the map is damaged.
        """
        if not self._recalled:
            self._recall()
            self._recalled = True
        try:
            self._read_on(wait=wait)
        except RecreatedError:
            self._begin()
            self._read_on(wait=wait)
        except CorruptBatchError:
            self._begin()  # the reader would go on behind it
            self._recalled = False
            raise
        for track in self.tracks.values():
            track.forget(self.reader.start)

    def index(self) -> MapIndex:
        """All that is known now; its tracks change with the next `follow`."""
        return MapIndex(
            topic=self.topic,
            topic_id=self.reader.topic_id or NO_ID,
            until=self.reader.position,
            epoch=self.reader.epoch,
            exactly_once=self._fenced,
            tracks=self.tracks,
            late=self.late,
        )

    def runs_around(
        self, windows: Mapping[TopicPartition, Iterable[tuple[int, int]]]
    ) -> dict[TopicPartition, RunArray]:
        """As `OffsetMap.runs_around`."""
        found: dict[TopicPartition, list[RunArray]] = {}
        places = []
        for key, some in windows.items():
            if (track := self.tracks.get(key)) is None:
                continue
            (epoch,) = track.epochs
            part = epoch.around(some)
            if isinstance(part, list):
                places += [PlaceQuery(key, epoch.topic_id, place) for place in part]
            else:
                found[key] = [part]
        for query, part in self.places.read(places, self.reader):
            found.setdefault(query.key, []).append(part)
        return {key: np.concatenate(parts) for key, parts in found.items()}

    def _recall(self) -> None:
        index = kept_index.read(
            self._target, self._source_alias, self.topic, exactly_once=self._fenced
        )
        if index is None:
            return
        self.reader = TopicReader(
            self._target, self.topic, position=index.until, topic_id=index.topic_id
        )
        self.reader.epoch = index.epoch
        self.tracks, self.late = {**index.tracks}, index.late

    def _read_on(self, *, wait: bool) -> None:
        keep = _TAIL_RUNS // max(len(self.tracks), 1)
        keep = min(max(keep, _LEAST_TAIL), _LARGEST_TAIL)
        for at, block, is_late in gather(self.reader.answers(wait=wait)):
            if is_late:
                self.late.add(block)
            else:
                self._take(block, at, keep)

    def _take(self, block: Block, at: int, keep: int) -> None:
        key = (block.topic, block.partition)
        if (track := self.tracks.get(key)) is None:
            track = self.tracks[key] = Track(block.target_topic)
        track.target_topic = block.target_topic
        if self._fenced:
            self.late.heed(block)
        track.add(block, at, keep=keep, fenced=self._fenced)
