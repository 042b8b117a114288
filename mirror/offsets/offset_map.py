"""The offset map of a flow: exact translation both ways, as of the last `refresh`.

Main type: `OffsetMap`, which follows the map's topic on the target and keeps an index
over it; old offsets are looked up by seeking. It needs neither the source nor a running
service. Runs come into being in `relay`; who uses the answers, `checkpoints` knows.
"""

from __future__ import annotations

from collections import OrderedDict
import threading
from typing import TYPE_CHECKING

import numpy as np

from mirror.batches.reading import TopicReader
from mirror.offsets import progress, runs
from mirror.offsets.index import Place, Track, locate
from mirror.offsets.runs import DOWNSTREAM, UPSTREAM, RunArray
from mirror.offsets.translation import UNKNOWN, Exactness, Translated

if TYPE_CHECKING:
    from collections.abc import Mapping

    from mirror.clusters.cluster import Cluster
    from mirror.config.schema import FlowConfig
    from mirror.offsets.index import Epoch
    from mirror.offsets.progress import Position

TopicPartition = tuple[str, int]

_TAIL_RUNS = 2_000_000
"""So many of the newest runs are kept, of all partitions together: 96 MB at most."""
_LEAST_TAIL, _LARGEST_TAIL = 64, 8192
_CACHED_RUNS = 1_000_000


class OffsetMap:
    """Translates offsets of one source. Thread-safe."""

    def __init__(
        self,
        target: Cluster,
        source_alias: str,
        separator: str = ".",
        *,
        from_first: bool = False,
    ) -> None:
        """`target` is this object's alone from here on. `from_first`: the flow began at
        the first record of each partition, so that nothing stood before its first run.
        """
        self._from_first = from_first
        self._target = target
        self._topic = runs.topic_name(source_alias, separator)
        self._lock = threading.RLock()
        self._reader = TopicReader(target, self._topic)
        self._progress = progress.ProgressReader(
            target, progress.topic_name(source_alias)
        )
        self._positions: Mapping[TopicPartition, Position] = {}
        self._tracks: dict[TopicPartition, Track] = {}
        self._cache: OrderedDict[tuple[TopicPartition, int], RunArray] = OrderedDict()
        self._cached = 0

    @classmethod
    def of(cls, flow: FlowConfig, target: Cluster) -> OffsetMap:
        """The map of a flow; `target` as above."""
        return cls(
            target,
            flow.source,
            flow.separator,
            from_first=flow.start == "earliest",
        )

    def refresh(self) -> None:
        """Take in what was committed since the last time; the first time, all.

        Raises:
            ClusterError: the target does not answer, or the topics are not there.
        """
        with self._lock:
            # First: then all runs of what it says are in the map when that is read.
            positions = self._progress.read().positions
            keep = _TAIL_RUNS // max(len(self._tracks), 1)
            keep = min(max(keep, _LEAST_TAIL), _LARGEST_TAIL)
            for at, _, value in self._reader.read():
                for block in runs.decode(value):
                    self._take(block, at, keep)
            self._positions = positions
            self._forget()

    def position(self, topic: str, partition: int) -> int:
        """The next source offset to copy, -1 while not known."""
        with self._lock:
            known = self._positions.get((topic, partition))
            return known.offset if known is not None else -1

    def partitions(self) -> dict[TopicPartition, str]:
        """The target topic of every source partition of which something was copied."""
        with self._lock:
            return {key: track.target_topic for key, track in self._tracks.items()}

    def origins(self) -> dict[TopicPartition, str]:
        """The same the other way: the source topic of every target partition."""
        return {
            (copy, partition): topic
            for (topic, partition), copy in self.partitions().items()
        }

    def translate(self, topic: str, partition: int, offset: int) -> Translated:
        """The target's offset for a source's; see `Translator`."""
        with self._lock:
            track = self._tracks.get((topic, partition))
            position = self._positions.get((topic, partition))
            if track is None:
                return UNKNOWN if position is None else _first(offset, position)
            newest = track.epochs[-1]
            made_anew = position is not None and position.topic_id != newest.topic_id
            if made_anew or offset >= newest.end(UPSTREAM):
                # Of a topic made anew nothing is copied yet: it will follow the old.
                return Translated(
                    offset=newest.end(DOWNSTREAM),
                    exactness=_at_the_end(offset, position),
                )
            return self._among(track.current(), (topic, partition), offset, UPSTREAM)

    def reverse(self, topic: str, partition: int, offset: int) -> Translated:
        """The source's offset for a target's; see `Translator`."""
        with self._lock:
            track = self._tracks.get((topic, partition))
            if track is None:
                return UNKNOWN
            newest = track.epochs[-1]
            if offset >= newest.end(DOWNSTREAM):
                position = self._positions.get((topic, partition))
                upstream = newest.end(UPSTREAM)
                if position is not None and position.topic_id == newest.topic_id:
                    upstream = max(upstream, position.offset)
                return Translated(offset=upstream, exactness=Exactness.TIP)
            return self._among(track.current(), (topic, partition), offset, DOWNSTREAM)

    def _among(
        self, epochs: list[Epoch], key: TopicPartition, offset: int, column: int
    ) -> Translated:
        """An offset below the last epoch's end. Later epochs win: what was copied again
        is followed by all that came after it.
        """
        for index in reversed(range(len(epochs))):
            epoch = epochs[index]
            if offset < epoch.first(column):
                continue
            found = self._find(epoch, key, offset, column)
            if found is None:
                found = epochs[index + 1].first(1 - column)
            return Translated(offset=found, exactness=Exactness.EXACT)
        # With the oldest part of the map its oldest runs are gone, too.
        is_first = self._from_first and self._reader.start == 0
        return Translated(
            offset=epochs[0].first(1 - column),
            exactness=Exactness.EXACT if is_first else Exactness.BEFORE,
        )

    def _find(
        self, epoch: Epoch, key: TopicPartition, offset: int, column: int
    ) -> int | None:
        found = epoch.find(offset, column)
        if not isinstance(found, Place):
            return found
        part = self._read(found, key, epoch)
        if not len(part):
            return found.after
        answer = locate(part, offset, column)
        return found.after if answer is None else answer

    def _read(self, place: Place, key: TopicPartition, epoch: Epoch) -> RunArray:
        """The runs of one partition that stand at a place of the map."""
        known = self._cache.get((key, place.at))
        if known is not None:
            self._cache.move_to_end((key, place.at))
            return known
        reader = TopicReader(self._target, self._topic, position=place.at)
        until = self._reader.position if place.until is None else place.until
        parts = [
            block.runs
            for at, _, value in reader.read(end=until)
            if at < until
            for block in runs.decode(value)
            if (block.topic, block.partition) == key
            and block.topic_id == epoch.topic_id
        ]
        part = np.concatenate(parts) if parts else np.empty((0, 3), np.int64)
        if place.until is not None:
            self._cache[key, place.at] = part
            self._cached += len(part)
            while self._cached > _CACHED_RUNS:
                self._cached -= len(self._cache.popitem(last=False)[1])
        return part

    def _take(self, block: runs.Block, at: int, keep: int) -> None:
        key = (block.topic, block.partition)
        track = self._tracks.get(key)
        if track is None:
            track = self._tracks[key] = Track(block.target_topic, [])
        track.target_topic = block.target_topic
        track.add(block.topic_id, block.runs, at, keep=keep)

    def _forget(self) -> None:
        for track in self._tracks.values():
            track.forget(self._reader.start)


def _first(offset: int, position: Position) -> Translated:
    """Nothing is copied, since there was nothing: the first copy is still to come."""
    return Translated(offset=0, exactness=_at_the_end(offset, position))


def _at_the_end(offset: int, position: Position | None) -> Exactness:
    behind = position is not None and offset > position.offset
    return Exactness.BEHIND if behind else Exactness.TIP
