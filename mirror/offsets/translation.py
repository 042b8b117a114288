"""Translates offsets by the offset map of a flow: exactly, both ways, as of the last
`refresh`.

Main types: `Translated`, an answer; `Translator`, the protocol that callers use; and
`OffsetMap`, which answers. It follows the map's topic on the target (`MapFollower`),
and looks up old offsets by seeking (`PlaceReader`). Answers apply to the current
copies: it asks for their logs (`read_logs`) before the first answer after each
`refresh`. It needs neither the source nor a running service. `copying` writes the runs;
`checkpoints` uses the answers.
"""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass
from enum import StrEnum
from itertools import repeat
import threading
from typing import TYPE_CHECKING, NamedTuple, Protocol

import numpy as np

from mirror.clusters import codes
from mirror.clusters.admin import topic_admin
from mirror.errors import CorruptBatchError, RecreatedError
from mirror.offsets import progress, runs
from mirror.offsets.index import (
    FoundOffset,
    LateRuns,
    MapIndex,
    MapPlace,
    Track,
    locate,
    locate_all,
    next_late,
    read_index,
)
from mirror.offsets.progress import NO_ID
from mirror.offsets.runs import DOWNSTREAM, UPSTREAM, gather
from mirror.records.reading import TopicReader

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator, Mapping
    from collections.abc import Set as AbstractSet
    import uuid

    from mirror.clusters.cluster import Cluster
    from mirror.clusters.topics import Topic, TopicPartition
    from mirror.clusters.wire.pending_response import Pending
    from mirror.config.schema import FlowConfig
    from mirror.offsets.index import Epoch, IndexKeeper
    from mirror.offsets.progress import Position
    from mirror.offsets.runs import Block, RunArray
    from mirror.records.reading import Record


class Exactness(StrEnum):
    """How an answer was found. Only BEFORE and EARLIER may make a consumer read
    records again.
    """

    EXACT = "EXACT"
    """Exactly the next record, or the first one after a hole without copies."""
    TIP = "TIP"
    """The end of the copy: everything up to the position was copied or had no copy."""
    BEHIND = "BEHIND"
    """The same place as TIP for an offset that is not copied yet."""
    BEFORE = "BEFORE"
    """Older than everything known about the current copy: the copy's start."""
    EARLIER = "EARLIER"
    """Copied by MirrorMaker 2, whose copies are only partly known: the last known one
    at or before the record. Or, on the way back, a record that a repair appended behind
    records that follow it."""
    UNKNOWN = "UNKNOWN"
    """Nothing of the partition was ever copied: there is no answer."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Translated:
    """An offset on the other side; -1 if it is UNKNOWN."""

    offset: int
    exactness: Exactness
    renewed: bool = False
    """The copy was re-created or lost its end: larger answers from before, for the
    same source offset or a lower one, are no longer valid."""
    joint: bool = False
    """Found in the maps of all flows that write the copy: a larger answer from before
    may be that of one map alone."""


UNKNOWN = Translated(offset=-1, exactness=Exactness.UNKNOWN)


class Translator(Protocol):
    """Answers for the partitions of one flow, named as on the source."""

    def translate(self, topic: str, partition: int, offset: int) -> Translated:
        """The target's offset for a source's: of the next record to read."""

    def reverse(self, topic: str, partition: int, offset: int) -> Translated:
        """The source's offset for a target's: of the next record to read that came
        from the source.
        """

    def translate_all(
        self, questions: Mapping[TopicPartition, AbstractSet[int]]
    ) -> Mapping[TopicPartition, Mapping[int, Translated]]:
        """As `translate`, for many offsets of each partition."""

    def position(self, topic: str, partition: int) -> int:
        """The next source offset to copy, -1 while not known."""


# ---- following the map's topic ----
#
# `MapFollower` has a `Track` per partition of the source. It begins where the index on
# the target ends. If there is none, and once the map was re-created or lost its end, it
# begins at the map's start.


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

    def take(self, asked: Pending) -> set[TopicPartition]:
        """Take what answers the last `reader.ask`; returns whose runs that were.

        Raises:
            ClusterError: as `follow`.
            CorruptBatchError: as `follow`.
        """
        return self._take_all([self.reader.take(asked)])

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
        index = read_index(
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
        self._take_all(self.reader.answers(wait=wait))

    def _take_all(self, answers: Iterable[Iterable[Record]]) -> set[TopicPartition]:
        keep = _TAIL_RUNS // max(len(self.tracks), 1)
        keep = min(max(keep, _LEAST_TAIL), _LARGEST_TAIL)
        seen = set()
        for at, block, is_late in gather(answers):
            seen.add((block.topic, block.partition))
            if is_late:
                self.late.add(block)
            else:
                self._take(block, at, keep)
        return seen

    def _take(self, block: Block, at: int, keep: int) -> None:
        key = (block.topic, block.partition)
        if (track := self.tracks.get(key)) is None:
            track = self.tracks[key] = Track(block.target_topic)
        track.target_topic = block.target_topic
        if self._fenced:
            self.late.truncate_from(block)
        track.add(block, at, keep=keep, fenced=self._fenced)


class OffsetMap:
    """Translates offsets of one source. Thread-safe."""

    def __init__(
        self,
        target: Cluster,
        source_alias: str,
        separator: str = ".",
        *,
        from_first: bool = False,
        exactly_once: bool = True,
    ) -> None:
        """`target` belongs to this object from here on. `from_first`: the flow began at
        the first record of each partition, so nothing comes before its first run.
        Without `exactly_once` records of the map may come late.
        """
        self._from_first = from_first
        self._fenced = exactly_once
        self._target = target
        self._lock = threading.RLock()
        self._map = MapFollower(target, source_alias, separator, fenced=exactly_once)
        self._progress = progress.reader(target, progress.topic_name(source_alias))
        self._positions: Mapping[TopicPartition, Position] = {}
        self._logs: dict[TopicPartition, Log] = {}
        """By source partition: its copy, if it was asked about since `refresh`."""

    @classmethod
    def of(cls, flow: FlowConfig, target: Cluster) -> OffsetMap:
        """The map of a flow; `target` as above."""
        return cls(
            target,
            flow.source,
            flow.separator,
            from_first=flow.start == "earliest",
            exactly_once=flow.exactly_once,
        )

    def refresh(self, *, wait: bool = True) -> None:
        """Read what was committed since the last time, at first everything; without
        `wait` nothing behind an open transaction.

        Raises:
            ClusterError: the target does not answer, or the topics are not there.
        """
        with self._lock:
            # First: then the map has all runs up to these positions when it is read.
            positions = self._progress.read(wait=wait).positions
            self._map.follow(wait=wait)
            self._positions = positions
            self._logs.clear()

    def keep_index(self, keeper: IndexKeeper) -> bool:
        """Have the next reader begin where this one is, if that is far enough from
        where the last one is to begin; returns whether that was written.

        Raises:
            MirrorError: it could not be written.
        """
        with self._lock:
            return keeper.keep(self._target, self._map.index())

    def position(self, topic: str, partition: int) -> int:
        """The next source offset to copy, -1 while not known."""
        with self._lock:
            known = self._positions.get((topic, partition))
            return known.offset if known is not None else -1

    def source_id(self, topic: str, partition: int) -> uuid.UUID:
        """The id of the topic that the newest runs are of; NO_ID while not known."""
        with self._lock:
            track = self._map.tracks.get((topic, partition))
            return track.source_id if track is not None else NO_ID

    def is_of(self, topic: str, partition: int, topic_id: uuid.UUID) -> bool:
        """Whether it knows a partition of the source's topic with this id, or one of
        unknown id.
        """
        with self._lock:
            position = self._positions.get((topic, partition))
            newest = NO_ID if position is None else position.topic_id
            ids = {newest, self.source_id(topic, partition)}
            return topic_id == NO_ID or not ids.isdisjoint({NO_ID, topic_id})

    def oldest(self, topic: str, partition: int) -> tuple[int, int] | None:
        """The first offsets, on the source and on the target, that it knows of the
        present copy; None if there were others under these names.

        Raises:
            ClusterError: the target does not answer.
        """
        with self._lock:
            if (track := self._map.tracks.get((topic, partition))) is None:
                return None
            self._look_for((topic, partition))
            copy_id = self._logs[topic, partition].topic_id
            return None if track.is_another(copy_id) else track.oldest

    def partitions(self) -> dict[TopicPartition, str]:
        """The target topic of every source partition of which something was copied."""
        with self._lock:
            return {key: track.target_topic for key, track in self._map.tracks.items()}

    def followed(self) -> set[TopicPartition]:
        """The source partitions that have a position, copied from or still empty."""
        with self._lock:
            return set(self._positions)

    def origins(self) -> dict[TopicPartition, str]:
        """The reverse of `partitions`: the source topic of every target partition."""
        return {
            (copy, partition): topic
            for (topic, partition), copy in self.partitions().items()
        }

    def translate(self, topic: str, partition: int, offset: int) -> Translated:
        """The target's offset for a source's; see `Translator`.

        Raises:
            ClusterError: the target does not answer.
        """
        with self._lock:
            self._look_for((topic, partition))
            return self._answer((topic, partition), offset, UPSTREAM)

    def reverse(self, topic: str, partition: int, offset: int) -> Translated:
        """The source's offset for a target's; see `Translator`.

        Raises:
            ClusterError: the target does not answer.
        """
        key = (topic, partition)
        with self._lock:
            late = next_late(self.late(topic, partition), offset)
            self._look_for(key)
            found = self._answer(key, offset, DOWNSTREAM)
            if late is None or (
                found.exactness is not Exactness.TIP
                and self._answer(key, found.offset, UPSTREAM).offset < late.offset
            ):
                return found
            # What follows it on the source was read already, and is read again.
            return Translated(offset=late.source, exactness=Exactness.EARLIER)

    def late(self, topic: str, partition: int) -> RunArray:
        """The late records (see `LateRuns`) of a partition's present copy.

        Raises:
            ClusterError: the target does not answer.
        """
        key = (topic, partition)
        with self._lock:
            if (track := self._map.tracks.get(key)) is None:
                return np.empty((0, 3), np.int64)
            self._look_for(key)
            copy_id = self._logs[key].topic_id
            topic_id = track.there(copy_id)[-1].topic_id
            return self._map.late.runs_of(key, topic_id, copy_id)

    @property
    def is_whole(self) -> bool:
        """Whether the map still has its oldest part."""
        with self._lock:
            return self._map.reader.start == 0

    def ascends(self, topic: str, partition: int) -> bool:
        """Whether all that it says of a partition is of the present copy, and ascends
        on both sides: nothing was re-created, copied again, lost or repaired.

        Raises:
            ClusterError: the target does not answer.
        """
        with self._lock:
            track = self._map.tracks.get((topic, partition))
            return (
                self._fenced
                and track is not None
                and len(track.epochs) == 1
                and self.oldest(topic, partition) is not None
                and not len(self.late(topic, partition))
            )

    def runs_around(
        self, windows: Mapping[TopicPartition, Iterable[tuple[int, int]]]
    ) -> dict[TopicPartition, RunArray]:
        """The runs of these windows of source offsets, with the last one before and the
        first one behind each; of partitions that ascend. There may be more than these.

        Raises:
            ClusterError: the target does not answer.
        """
        with self._lock:
            return self._map.runs_around(windows)

    def translate_all(
        self, questions: Mapping[TopicPartition, AbstractSet[int]]
    ) -> dict[TopicPartition, dict[int, Translated]]:
        """As `translate`, for many offsets of many partitions: old ones are looked up
        in one pass over the map.

        Raises:
            ClusterError: the target does not answer.
        """
        answers: dict[TopicPartition, dict[int, Translated]] = {}
        older: dict[PlaceQuery, list[tuple[int, Older]]] = {}
        with self._lock:
            self._look(questions)
            for key, offsets in questions.items():
                answers[key] = self._among_kept(key, offsets)
                for offset in offsets - answers[key].keys():
                    found = self._search(key, offset, UPSTREAM)
                    if isinstance(found, Translated):
                        answers[key][offset] = found
                    else:
                        older.setdefault(found.wanted, []).append((offset, found))
            for wanted, part in self._map.places.read(older, self._map.reader):
                for offset, found in older[wanted]:
                    answer = found.among(part, offset, UPSTREAM)
                    answers[wanted.key][offset] = self._there(wanted.key, answer)
        return answers

    def _look_for(self, key: TopicPartition) -> None:
        """Questions rarely come alone: ask about all copies at once."""
        if key not in self._logs:
            self._look(self._map.tracks)

    def _look(self, partitions: Iterable[TopicPartition]) -> None:
        """Ask about the copies of these, unless that was done since the last time that
        the map was read: what is copied later is not to be taken for another copy.
        """
        copies = {
            key: (self._map.tracks[key].target_topic, key[1])
            for key in partitions
            if key in self._map.tracks and key not in self._logs
        }
        if copies:
            found = read_logs(self._target, set(copies.values()))
            for key, copy in copies.items():
                self._logs[key] = found.get(copy, Log())

    def _among_kept(
        self, key: TopicPartition, offsets: AbstractSet[int]
    ) -> dict[int, Translated]:
        """Answers for those offsets that need neither map nor position."""
        track = self._map.tracks.get(key)
        position = self._positions.get(key)
        if track is None or track.cut or track.is_another(self._logs[key].topic_id):
            return {}
        newest, kept, log = track.epochs[-1], track.epochs[-1].kept, self._logs[key]
        first, end = int(kept[0, DOWNSTREAM]), newest.end(DOWNSTREAM)
        if (position is not None and position.topic_id != newest.topic_id) or (
            log.within(first),
            log.within(end),
        ) != (first, end):
            return {}
        least = kept[0, UPSTREAM]
        if not self._fenced:
            ends = (epoch.end(UPSTREAM) for epoch in track.epochs[:-1])
            least = max(least, track.forgotten(newest.topic_id, UPSTREAM, 0), *ends)
        asked = np.fromiter(offsets, np.int64, len(offsets))
        asked = asked[(asked >= least) & (asked < newest.end(UPSTREAM))]
        found, sure = locate_all(kept, asked, UPSTREAM)
        answers = map(answer_of, found.tolist(), sure.tolist(), repeat(track.renewed))
        return dict(zip(asked.tolist(), answers, strict=False))

    def _answer(self, key: TopicPartition, offset: int, column: int) -> Translated:
        found = self._search(key, offset, column)
        if isinstance(found, Translated):
            return found
        ((_, part),) = self._map.places.read([found.wanted], self._map.reader)
        answer = found.among(part, offset, column)
        return self._there(key, answer) if column == UPSTREAM else answer

    def _there(self, key: TopicPartition, answer: Translated) -> Translated:
        return within_copy(
            answer, self._logs[key], renewed=self._map.tracks[key].renewed
        )

    def _search(
        self, key: TopicPartition, offset: int, column: int
    ) -> Translated | Older:
        """An offset of either side, given by its column."""
        track = self._map.tracks.get(key)
        position = self._positions.get(key)
        if track is None:
            if position is None:
                return UNKNOWN
            if column == UPSTREAM:  # nothing is copied: there was nothing to copy yet
                return Translated(offset=0, exactness=at_the_end(offset, position))
            return Translated(offset=position.offset, exactness=Exactness.TIP)
        if track.is_another(self._logs[key].topic_id):
            return of_another(track, position, self._logs[key], offset, column)
        found = self._of_copy(track, key, offset, column)
        if column == UPSTREAM and isinstance(found, Translated):
            return self._there(key, found)
        return found

    def _of_copy(
        self, track: Track, key: TopicPartition, offset: int, column: int
    ) -> Translated | Older:
        log = self._logs[key]
        there = track.there(log.topic_id)
        newest = last = there[-1]
        epochs = of_newest_topic(there)
        forgotten = track.forgotten(newest.topic_id, column, log.start)
        end = newest.end(column)
        if not self._fenced:
            last = max(epochs, key=lambda epoch: epoch.end(column))
            end = max(last.end(column), forgotten)
        position = self._positions.get(key)
        made_anew = position is not None and position.topic_id != newest.topic_id
        if (
            position is not None
            and column == DOWNSTREAM
            and position.topic_id not in {NO_ID, newest.topic_id}
        ):
            # Nothing of the new topic is copied, so no group has read it here.
            return Translated(offset=position.offset, exactness=Exactness.TIP)
        if offset >= end or (column == UPSTREAM and made_anew):
            end = last.end(1 - column)
            if column == UPSTREAM:
                # Nothing of a re-created topic is copied yet: it will follow the old.
                return Translated(offset=end, exactness=at_the_end(offset, position))
            if position is not None and not made_anew:
                end = max(end, position.offset)
            return Translated(offset=end, exactness=Exactness.TIP)
        if all(offset < epoch.first(column) for epoch in epochs):
            return self._oldest(track, key, column)
        lost = log.within(newest.end(DOWNSTREAM)) < newest.end(DOWNSTREAM)
        if self._fenced and not (column == UPSTREAM and (track.cut or lost)):
            return last_of(epochs, key, offset, column)
        if offset < forgotten:
            first = 0 if column == DOWNSTREAM else log.start
            return Translated(offset=first, exactness=Exactness.BEFORE)
        beyond = [epoch for epoch in epochs if offset < epoch.end(column)]
        return lowest_of(beyond, key, offset, column)

    def _oldest(self, track: Track, key: TopicPartition, column: int) -> Translated:
        """For offsets older than everything known about the copy."""
        there = track.there(self._logs[key].topic_id)
        epochs = of_newest_topic(there)
        # With the oldest part of the map its oldest runs are gone too.
        whole = self._from_first and self._map.reader.start == 0 and not track.renewed
        first = min(epoch.first(1 - column) for epoch in epochs)
        before = 0 if column == DOWNSTREAM else self._logs[key].start
        begins_it = not track.dropped and there[0] is epochs[0]
        if epochs[0].topic_id in track.dropped or (
            column == UPSTREAM and begins_it and before < first
        ):
            # Earlier offsets may be copies that the map no longer knows.
            first, whole = before, False
        return Translated(
            offset=first, exactness=Exactness.EXACT if whole else Exactness.BEFORE
        )


# ---- answers among the epochs of one partition ----
#
# `last_of` and `lowest_of` differ in which copy wins where records were copied more
# than once; `of_another` answers where nothing is known of the copy. No I/O: what is
# not in memory comes back as an `Older`, whose place `PlaceReader` reads.


class Older(NamedTuple):
    """An answer that must be read from the map."""

    wanted: PlaceQuery
    following: int
    """The start of the next epoch; -1 if it is the last one."""

    def among(self, part: RunArray, offset: int, column: int) -> Translated:
        answer = locate(part, offset, column) if len(part) else None
        if answer is None:
            after = self.wanted.place.after
            answer = FoundOffset(self.following if after is None else after)
        return _known(answer)


def last_of(
    epochs: list[Epoch], key: TopicPartition, offset: int, column: int
) -> Translated | Older:
    """An offset between the first and the end. Later epochs win: records that were
    copied again are followed by everything that came after them.
    """
    following = -1
    for epoch in reversed(epochs):
        if offset >= epoch.first(column):
            break
        following = epoch.first(1 - column)
    return _found(epoch, key, offset, column, following)


def lowest_of(
    epochs: list[Epoch], key: TopicPartition, offset: int, column: int
) -> Translated | Older:
    """The same where a copy lost its end, or may have: the later copy of a record may
    be lost, and only an earlier one remain. So the first copy wins, among all `epochs`,
    which reach beyond the offset. If only the map can tell which one that is, the
    answer is the first place where it may be.
    """
    found = [_candidate(epoch, key, offset, column) for epoch in epochs]
    least = min(each.least for each in found)
    best = min(found, key=lambda each: each.most)
    if all(best.most <= each.least for each in found if each is not best):
        return best.answer
    return Translated(offset=least, exactness=Exactness.BEFORE)


class _Candidate(NamedTuple):
    """What one epoch answers, and between which offsets that lies."""

    least: int
    most: int
    answer: Translated | Older


def _candidate(
    epoch: Epoch, key: TopicPartition, offset: int, column: int
) -> _Candidate:
    end = epoch.end(1 - column)
    if offset < epoch.first(column):
        found: FoundOffset | MapPlace = FoundOffset(epoch.first(1 - column))
    else:
        found = epoch.find(offset, column) or FoundOffset(end)
    if isinstance(found, FoundOffset):
        return _Candidate(found.offset, found.offset, _known(found))
    older = Older(PlaceQuery(key, epoch.topic_id, found), end)
    most = end if found.after is None else found.after
    return _Candidate(found.first[1 - column], most, older)


def _found(
    epoch: Epoch, key: TopicPartition, offset: int, column: int, following: int
) -> Translated | Older:
    found = epoch.find(offset, column)
    if isinstance(found, MapPlace):
        return Older(PlaceQuery(key, epoch.topic_id, found), following)
    return _known(FoundOffset(following) if found is None else found)


def _known(found: FoundOffset) -> Translated:
    return answer_of(found.offset, found.sure)


def answer_of(offset: int, sure: bool, renewed: bool = False) -> Translated:
    return Translated(
        offset=offset,
        exactness=Exactness.EXACT if sure else Exactness.EARLIER,
        renewed=renewed and sure,
    )


def within_copy(answer: Translated, log: Log, *, renewed: bool) -> Translated:
    """The target's offset as far as the copy reaches now."""
    within, exactness = log.within(answer.offset), answer.exactness
    if within > answer.offset and exactness is not Exactness.BEHIND:
        exactness = Exactness.BEFORE
    elif within < answer.offset and exactness is not Exactness.BEHIND:
        exactness = Exactness.TIP
    # An end that looks too low for a moment is no reason to go back.
    renewed &= within >= answer.offset and exactness is not Exactness.EARLIER
    return Translated(offset=within, exactness=exactness, renewed=renewed)


def of_newest_topic(epochs: list[Epoch]) -> list[Epoch]:
    return [epoch for epoch in epochs if epoch.topic_id == epochs[-1].topic_id]


def at_the_end(offset: int, position: Position | None) -> Exactness:
    behind = position is not None and offset > position.offset
    return Exactness.BEHIND if behind else Exactness.TIP


def of_another(
    track: Track, position: Position | None, log: Log, offset: int, column: int
) -> Translated:
    """The copy is gone, and nothing is known about its replacement: everything that
    will be copied is still to be read. What is in it already, a slot has written that
    took it for the copy before, or somebody else.
    """
    newest, filled = track.epochs[-1], log.end or log.start
    end = newest.end(UPSTREAM)
    if column == DOWNSTREAM and offset < filled:
        first = newest.first(UPSTREAM)
        return Translated(offset=first, exactness=Exactness.BEFORE)
    if column == DOWNSTREAM:
        following = end if position is None else position.offset
        return Translated(offset=following, exactness=Exactness.TIP)
    exactness = at_the_end(offset, position)
    if offset < end or log.start < filled:
        exactness = Exactness.BEFORE
    known = log.topic_id is not None
    return Translated(offset=log.start, exactness=exactness, renewed=known)


# ---- runs at places of the map's topic ----


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
    """Reads places of one map: many at once, in one pass over the topic, however many
    partitions and groups they belong to. It caches what it read last. Not thread-safe,
    like its cluster.
    """

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
        part = wanted.place.runs_among(found)
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


# ---- the logs of copies on the target ----
#
# What the map knows about a deleted copy does not apply to a new one of that name.


_LOOKS = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class Log:
    """One partition of a copy."""

    topic_id: uuid.UUID | None = NO_ID
    """None: there is no such partition. NO_ID: brokers have no ids (before 2.8)."""
    start: int = 0
    """Its first offset."""
    end: int | None = None
    """After its last record; None while it has no leader to ask."""

    def within(self, offset: int) -> int:
        """The offset, or the nearest one that a reader can start at."""
        return max(self.below_end(offset), self.start)

    def below_end(self, offset: int) -> int:
        """The offset, or the log's end if that is lower."""
        return offset if self.end is None else min(offset, self.end)


def read_logs(
    target: Cluster, partitions: Collection[TopicPartition]
) -> dict[TopicPartition, Log]:
    """The logs of these partitions; without those that we may not ask about.

    Raises:
        ClusterError: the target does not answer.
    """
    names = {topic for topic, _ in partitions}
    topics = target.topics(names)
    for _ in range(_LOOKS):
        there = [key for key in partitions if key[1] in topics[key[0]].leaders]
        starts, ends = (
            topic_admin.list_offsets(
                target, there, timestamp=timestamp, committed=False, topics=topics
            )
            for timestamp in (topic_admin.EARLIEST, topic_admin.LATEST)
        )
        before, topics = topics, target.topics(names)
        if _ids(before) == _ids(topics):
            break
    else:  # re-created at every look: unclear which topic the offsets belong to
        starts, ends = {}, {}
    return {
        key: _log(topics[key[0]], key, starts, ends)
        for key in partitions
        if topics[key[0]].error in (codes.NONE, codes.UNKNOWN_TOPIC_OR_PARTITION)
    }


def _ids(topics: dict[str, Topic]) -> dict[str, uuid.UUID]:
    return {name: topic.topic_id for name, topic in topics.items()}


def _log(
    topic: Topic,
    key: TopicPartition,
    starts: dict[TopicPartition, int],
    ends: dict[TopicPartition, int],
) -> Log:
    if key[1] not in topic.leaders:
        return Log(topic_id=None)
    return Log(topic_id=topic.topic_id, start=starts.get(key, 0), end=ends.get(key))
