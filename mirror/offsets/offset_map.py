"""The offset map of a flow: exact translation both ways, as of the last `refresh`.

Main type: `OffsetMap`, which follows the map's topic on the target and keeps an index
over it; old offsets are looked up by seeking. It needs neither the source nor a running
service. Runs come into being in `relay`; who uses the answers, `checkpoints` knows.
"""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from mirror.batches.reading import TopicReader
from mirror.offsets import progress, runs
from mirror.offsets.index import Found, Place, Track, locate, locate_all
from mirror.offsets.places import PlaceReader, Wanted
from mirror.offsets.runs import DOWNSTREAM, UPSTREAM
from mirror.offsets.translation import UNKNOWN, Exactness, Translated

if TYPE_CHECKING:
    from collections.abc import Mapping
    from collections.abc import Set as AbstractSet

    from mirror.clusters.cluster import Cluster
    from mirror.config.schema import FlowConfig
    from mirror.offsets.index import Epoch
    from mirror.offsets.progress import Position
    from mirror.offsets.runs import RunArray

TopicPartition = tuple[str, int]

_TAIL_RUNS = 2_000_000
"""So many of the newest runs are kept, of all partitions together: 96 MB at most."""
_LEAST_TAIL, _LARGEST_TAIL = 64, 8192


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
        self._places = PlaceReader(target, self._topic)

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

    def followed(self) -> set[TopicPartition]:
        """The source partitions that have a position, copied from or still empty."""
        with self._lock:
            return set(self._positions)

    def origins(self) -> dict[TopicPartition, str]:
        """The same the other way: the source topic of every target partition."""
        return {
            (copy, partition): topic
            for (topic, partition), copy in self.partitions().items()
        }

    def translate(self, topic: str, partition: int, offset: int) -> Translated:
        """The target's offset for a source's; see `Translator`."""
        with self._lock:
            return self._answer((topic, partition), offset, UPSTREAM)

    def reverse(self, topic: str, partition: int, offset: int) -> Translated:
        """The source's offset for a target's; see `Translator`."""
        with self._lock:
            return self._answer((topic, partition), offset, DOWNSTREAM)

    def translate_all(
        self, questions: Mapping[TopicPartition, AbstractSet[int]]
    ) -> dict[TopicPartition, dict[int, Translated]]:
        """As `translate`, for many offsets of many partitions: old ones are looked up
        in one pass over the map.

        Raises:
            ClusterError: the map cannot be read.
        """
        answers: dict[TopicPartition, dict[int, Translated]] = {}
        older: dict[Wanted, list[tuple[int, _Older]]] = {}
        with self._lock:
            for key, offsets in questions.items():
                answers[key] = self._among_kept(key, offsets)
                for offset in offsets - answers[key].keys():
                    found = self._search(key, offset, UPSTREAM)
                    if isinstance(found, Translated):
                        answers[key][offset] = found
                    else:
                        older.setdefault(found.wanted, []).append((offset, found))
            for wanted, part in self._places.read(older, self._reader.position):
                for offset, found in older[wanted]:
                    answers[wanted.key][offset] = found.among(part, offset, UPSTREAM)
        return answers

    def _among_kept(
        self, key: TopicPartition, offsets: AbstractSet[int]
    ) -> dict[int, Translated]:
        """Answers for those offsets that need neither map nor position."""
        track = self._tracks.get(key)
        position = self._positions.get(key)
        newest = track.epochs[-1] if track is not None else None
        if newest is None or (
            position is not None and position.topic_id != newest.topic_id
        ):
            return {}
        kept = newest.kept
        asked = np.fromiter(offsets, np.int64, len(offsets))
        asked = asked[(asked >= kept[0, UPSTREAM]) & (asked < newest.end(UPSTREAM))]
        found, sure = locate_all(kept, asked, UPSTREAM)
        answers = map(_copied, found.tolist(), sure.tolist())
        return dict(zip(asked.tolist(), answers, strict=True))

    def _answer(self, key: TopicPartition, offset: int, column: int) -> Translated:
        found = self._search(key, offset, column)
        if isinstance(found, Translated):
            return found
        ((_, part),) = self._places.read([found.wanted], self._reader.position)
        return found.among(part, offset, column)

    def _search(
        self, key: TopicPartition, offset: int, column: int
    ) -> Translated | _Older:
        """An offset of either side, given by its column."""
        track = self._tracks.get(key)
        position = self._positions.get(key)
        if track is None:
            if position is None:
                return UNKNOWN
            return (
                _first(offset, position)
                if column == UPSTREAM
                else Translated(offset=position.offset, exactness=Exactness.TIP)
            )
        newest = track.epochs[-1]
        made_anew = position is not None and position.topic_id != newest.topic_id
        if offset >= newest.end(column) or (column == UPSTREAM and made_anew):
            end = newest.end(1 - column)
            if column == UPSTREAM:
                # Of a topic made anew nothing is copied yet: it will follow the old.
                return Translated(offset=end, exactness=_at_the_end(offset, position))
            if position is not None and not made_anew:
                end = max(end, position.offset)
            return Translated(offset=end, exactness=Exactness.TIP)
        return self._among(track.current(), key, offset, column)

    def _among(
        self, epochs: list[Epoch], key: TopicPartition, offset: int, column: int
    ) -> Translated | _Older:
        """An offset below the last epoch's end. Later epochs win: what was copied again
        is followed by all that came after it.
        """
        following = -1
        for epoch in reversed(epochs):
            if offset < epoch.first(column):
                following = epoch.first(1 - column)
                continue
            found = epoch.find(offset, column)
            if isinstance(found, Place):
                return _Older(Wanted(key, epoch.topic_id, found), following)
            return _known(Found(following) if found is None else found)
        # With the oldest part of the map its oldest runs are gone, too.
        is_first = self._from_first and self._reader.start == 0
        return Translated(
            offset=epochs[0].first(1 - column),
            exactness=Exactness.EXACT if is_first else Exactness.BEFORE,
        )

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


class _Older(NamedTuple):
    """An answer that has to be read from the map."""

    wanted: Wanted
    following: int
    """What the epoch behind it begins with; -1 if it is the last one."""

    def among(self, part: RunArray, offset: int, column: int) -> Translated:
        answer = locate(part, offset, column) if len(part) else None
        if answer is None:
            after = self.wanted.place.after
            answer = Found(self.following if after is None else after)
        return _known(answer)


def _known(found: Found) -> Translated:
    return _copied(found.offset, found.sure)


def _copied(offset: int, sure: bool) -> Translated:
    return Translated(
        offset=offset, exactness=Exactness.EXACT if sure else Exactness.EARLIER
    )


def _first(offset: int, position: Position) -> Translated:
    """Nothing is copied, since there was nothing: the first copy is still to come."""
    return Translated(offset=0, exactness=_at_the_end(offset, position))


def _at_the_end(offset: int, position: Position | None) -> Exactness:
    behind = position is not None and offset > position.offset
    return Exactness.BEHIND if behind else Exactness.TIP
