"""What a reader knows of an offset map: an index that stays small however long it is.

A `Track` has everything known about one source partition and its current copy: its
runs, as `Epoch`s, each of which ascends on both sides. An epoch keeps the newest runs
in full, and of the older ones every n-th with its place in the offset map, from which
the others can be read. No I/O: if a question needs those, the answer is a `MapPlace` to
read. `LateRuns` are the copies that a repair appended behind records that follow them.

A `MapIndex` is all of this, with the map that it is of. A map grows with each
transaction for as long as the copies are kept: once it is days old, it takes minutes to
read. So a service that follows it writes the index to the standby topic now and then
(`IndexKeeper`), and readers of the map begin behind the last one (`read_index`). If
there is none, or none that fits, a reader takes the whole map, and answers the same.
Layout: kind `offset-map`; `docs/reference/formats.md` has the fields.
"""

from __future__ import annotations

import base64
from dataclasses import dataclass, field, replace
import json
import time
from typing import TYPE_CHECKING, Any, NamedTuple
from uuid import UUID
import zlib

import numpy as np
import numpy.typing as npt

from mirror.clusters.topics import same_topic
from mirror.errors import MALFORMED, ClusterError, CorruptBatchError
from mirror.offsets import runs, standby
from mirror.offsets.progress import NO_ID
from mirror.offsets.runs import COUNT, DOWNSTREAM, UPSTREAM, RunArray, cut_at, falls
from mirror.offsets.standby import StandbyWriter

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from mirror.clusters.cluster import Cluster
    from mirror.clusters.topics import TopicPartition
    from mirror.config.schema import FlowConfig
    from mirror.offsets.runs import Block
    from mirror.offsets.standby import Fields

Offsets = npt.NDArray[np.int64]

_AT = 2
"""The third column of an epoch's starts: an offset in the map."""
_MOST_STARTS = 4096


@dataclass(frozen=True, slots=True)
class MapPlace:
    """Where the map has the runs around an offset: from `at`, below `until`."""

    at: int
    until: int | None
    """None: up to the map's end."""
    after: int | None
    """The answer if the offset is after everything there; None if that is the end of
    the epoch."""
    first: tuple[int, int]
    """The first run of the place: its offsets on the source and on the target."""
    below: int | None = None
    """The copy lost everything from this target offset on; None: nothing."""

    def runs_among(self, found: RunArray) -> RunArray:
        """Those of the runs found there that belong to it. Where a copy was re-created
        in the middle of a transaction, one record of the map has runs of both.
        """
        at = found[:, (UPSTREAM, DOWNSTREAM)]
        (begins,) = np.nonzero((at == self.first).all(axis=1))
        if not len(begins):
            return found[:0]
        mine = found[begins[0] :]
        if len(others := np.flatnonzero(falls(mine))):
            mine = mine[: others[0] + 1]
        return mine if self.below is None else cut_at(mine, self.below)


@dataclass(frozen=True, slots=True)
class FoundOffset:
    """The offset on the other side, or the first one after it."""

    offset: int
    sure: bool = True
    """Off: it is a floor's, and the record itself may be anywhere after it."""


class Epoch:
    """Runs that ascend on both sides: of one topic and one copy, without a rewind."""

    __slots__ = (
        *("_added_at", "_closed_at", "_cut", "_due", "_starts", "_stride", "_tail"),
        *("copy_id", "starts", "tail", "topic_id"),
    )

    def __init__(self, topic_id: UUID, copy_id: UUID = NO_ID) -> None:
        self.topic_id = topic_id
        self.copy_id = copy_id
        self.starts = 0
        """How many starts are known."""
        self.tail = 0
        """How many runs are kept; they are the newest."""
        self._starts = np.empty((4, 3), np.int64)
        self._tail = np.empty((4, 3), np.int64)
        self._stride = 1
        self._due = 0
        self._added_at = -1
        self._closed_at: int | None = None
        self._cut: tuple[int, int] | None = None

    @property
    def nbytes(self) -> int:
        """The memory of the arrays."""
        return self._starts.nbytes + self._tail.nbytes

    def first(self, column: int) -> int:
        """The first offset known, upstream or downstream."""
        return int(self._starts[0, column])

    def end(self, column: int) -> int:
        """After the last offset."""
        if self._cut is not None:
            return self._cut[column]
        last = self._tail[self.tail - 1]
        return int(last[column] + last[COUNT])

    def follows(self, runs: RunArray) -> bool:
        """Whether these runs start where the epoch ends, or later."""
        return bool(
            runs[0, UPSTREAM] >= self.end(UPSTREAM)
            and runs[0, DOWNSTREAM] >= self.end(DOWNSTREAM)
        )

    @property
    def kept(self) -> RunArray:
        """The newest runs, up to the end."""
        return self._tail[: self.tail]

    def add(self, runs: RunArray, at: int, *, keep: int) -> None:
        """Runs at the map's offset `at`; `keep` at least the newest."""
        if self._due == 0:
            self._add_start(runs, at)
        self._due -= 1
        self._added_at = at
        if self.tail and _continues(self._tail[self.tail - 1], runs[0]):
            self._tail[self.tail - 1, COUNT] += runs[0, COUNT]
            runs = runs[1:]
        if len(runs) > keep:
            self.tail, runs = 0, runs[-keep:]
        needed = self.tail + len(runs)
        if needed > len(self._tail):
            kept = self._tail[max(0, self.tail - keep) : self.tail]
            size = min(2 * len(self._tail), 2 * keep)
            grown = np.empty((max(size, len(kept) + len(runs)), 3), np.int64)
            grown[: len(kept)] = kept
            self._tail, self.tail = grown, len(kept)
        self._tail[self.tail : self.tail + len(runs)] = runs
        self.tail += len(runs)

    def close(self, at: int) -> None:
        """Another epoch begins at this offset of the map, perhaps in the record with
        the last runs of this one.
        """
        self._closed_at = max(at, self._added_at + 1)

    def cut(self, downstream: int) -> None:
        """The copy lost its end, and continued at this offset."""
        starts = self._starts[: self.starts]
        tail = cut_at(self.kept, downstream)
        left = int(np.searchsorted(starts[:, DOWNSTREAM], downstream))
        if len(tail) and tail[-1, COUNT]:
            upstream = int(tail[-1, UPSTREAM] + tail[-1, COUNT])
        else:  # at the first that is lost for certain, perhaps before
            gone = [*self.kept[len(tail) :, UPSTREAM][:1], *starts[left:, UPSTREAM][:1]]
            upstream = int(min([self.end(UPSTREAM), *gone]))
        self.starts = left
        self._tail, self.tail = tail.copy(), len(tail)
        self._cut = (upstream, downstream)

    def forget(self, before: int) -> None:
        """The map no longer has what was below this offset."""
        gone = int(np.searchsorted(self._starts[: self.starts, _AT], before))
        # Kept in memory is kept: the newest runs need no map.
        gone = min(gone, self.starts - 1)
        if gone > 0:
            self._starts[: self.starts - gone] = self._starts[gone : self.starts].copy()
            self.starts -= gone

    def find(self, offset: int, column: int) -> FoundOffset | MapPlace | None:
        """The offset on the other side, or the first one after it.

        `column`: UPSTREAM to go downstream, DOWNSTREAM for the way back. If the answer
        is a `MapPlace`, read that and ask it instead; None: it is beyond the end.
        """
        if offset >= self.end(column):
            return None
        tail = self.kept
        if len(tail) and offset >= tail[0, column]:
            return locate(tail, offset, column)
        starts = self._starts[: self.starts]
        index = int(np.searchsorted(starts[:, column], offset, "right")) - 1
        if index < 0:
            return FoundOffset(int(starts[0, 1 - column]))
        up, down, at = starts[index].tolist()
        below = self._cut[DOWNSTREAM] if self._cut is not None else None
        if index + 1 == len(starts):
            return MapPlace(at, self._closed_at, None, (up, down), below)
        following = starts[index + 1]
        until, after = max(int(following[_AT]), at + 1), int(following[1 - column])
        return MapPlace(at, until, after, (up, down), below)

    def around(self, windows: Iterable[tuple[int, int]]) -> RunArray | list[MapPlace]:
        """The runs of these windows of source offsets, with one before and one behind
        each of them at least, if there are any; if they are not kept, where the map has
        them.
        """
        windows = list(windows)
        tail, starts = self.kept, self._starts[: self.starts]
        low = min((first for first, _ in windows), default=self.end(UPSTREAM))
        if len(tail) and tail[0, UPSTREAM] < low:
            return tail[int(np.searchsorted(tail[:, UPSTREAM], low)) - 1 :].copy()
        ups, ats = starts[:, UPSTREAM], starts[:, _AT]
        # A start that stands in one record of the map with the next ends behind it.
        ends = np.maximum(np.append(ats[1:], -1), ats + 1).tolist()
        chosen: list[tuple[int, int]] = []
        for first, end in sorted(windows):
            begin = max(int(np.searchsorted(ups, first)) - 1, 0)
            last = min(int(np.searchsorted(ups, end)), len(ups) - 1)
            if chosen and ats[begin] < ends[chosen[-1][1]]:
                chosen[-1] = chosen[-1][0], max(chosen[-1][1], last)
            else:
                chosen.append((begin, last))
        return [
            MapPlace(
                at=int(ats[begin]),
                until=ends[last] if last + 1 < len(starts) else self._closed_at,
                after=None,
                first=(int(ups[begin]), int(starts[begin, DOWNSTREAM])),
            )
            for begin, last in chosen
        ]

    def document(self, most: int) -> dict[str, Any]:
        """What JSON can say of it, with at most `most` starts and as many runs."""
        starts = self._starts[: self.starts]
        step = -(-self.starts // most) or 1
        return {
            "topic_id": self.topic_id.hex,
            "copy_id": self.copy_id.hex,
            "starts": _differences(starts[::step]),
            "runs": _differences(self.kept[-most:]),
            "stride": self._stride * step,
            "due": self._due,
            "added_at": self._added_at,
            "closed_at": self._closed_at,
            "cut": self._cut,
        }

    @classmethod
    def from_document(cls, document: Mapping[str, Any]) -> Epoch:
        """The reverse. Raises one of `errors.MALFORMED` if it is damaged."""
        made = cls(UUID(document["topic_id"]), UUID(document["copy_id"]))
        made._starts, made._tail = (
            _sums(document[name]) for name in ("starts", "runs")
        )
        made.starts, made.tail = len(made._starts), len(made._tail)
        made._stride, made._due = int(document["stride"]), int(document["due"])
        made._added_at = int(document["added_at"])
        if (closed_at := document["closed_at"]) is not None:
            made._closed_at = int(closed_at)
        if (cut := document["cut"]) is not None:
            upstream, downstream = map(int, cut)
            made._cut = upstream, downstream
        elif not made.tail:
            raise ValueError("an epoch without runs has no end")
        if not made.starts:
            raise ValueError("an epoch without starts")
        return made

    def _add_start(self, runs: RunArray, at: int) -> None:
        if self.starts == _MOST_STARTS:
            self.starts //= 2
            self._starts[: self.starts] = self._starts[::2].copy()
            self._stride *= 2
        elif self.starts == len(self._starts):
            grown = np.empty((2 * self.starts, 3), np.int64)
            grown[: self.starts] = self._starts
            self._starts = grown
        self._starts[self.starts] = (runs[0, UPSTREAM], runs[0, DOWNSTREAM], at)
        self.starts += 1
        self._due = self._stride


def _differences(rows: Offsets) -> list[list[int]]:
    """By column, each value as what it has more than the one before: that is short."""
    found: list[list[int]] = np.diff(rows, axis=0, prepend=0).T.tolist()
    return found


def _sums(columns: list[list[int]]) -> Offsets:
    rows = np.array(columns, np.int64)
    if rows.ndim != 2 or len(rows) != 3:
        raise ValueError("these are not rows of three offsets")
    return np.ascontiguousarray(rows.cumsum(axis=1).T)


def locate(runs: RunArray, offset: int, column: int) -> FoundOffset | None:
    """The offset on the other side, or the first one after it; None if it is
    after all the runs, which ascend.
    """
    index = int(np.searchsorted(runs[:, column], offset, "right")) - 1
    if index >= 0:
        beyond = int(offset - runs[index, column])
        if beyond < runs[index, COUNT]:
            return FoundOffset(int(runs[index, 1 - column]) + beyond)
        if runs[index, COUNT] == 0:
            return FoundOffset(int(runs[index, 1 - column]), sure=beyond == 0)
    if index + 1 < len(runs):
        return FoundOffset(int(runs[index + 1, 1 - column]))
    return None


def locate_all(
    runs: RunArray, offsets: Offsets, column: int
) -> tuple[Offsets, npt.NDArray[np.bool_]]:
    """As `locate`, for many offsets, none of which is before or after all the runs: the
    answers, and whether each is sure.
    """
    index = np.searchsorted(runs[:, column], offsets, "right") - 1
    found = runs[index]
    into = offsets - found[:, column]
    following = runs[np.minimum(index + 1, len(runs) - 1), 1 - column]
    floors = found[:, COUNT] == 0
    beyond = np.where(into < found[:, COUNT], found[:, 1 - column] + into, following)
    return (
        np.where(floors, found[:, 1 - column], beyond),
        ~floors | (into == 0),
    )


def _continues(last: RunArray, following: RunArray) -> bool:
    return bool(
        last[UPSTREAM] + last[COUNT] == following[UPSTREAM]
        and last[DOWNSTREAM] + last[COUNT] == following[DOWNSTREAM]
    )


# ---- one source partition ----

_MOST_EPOCHS = 32


@dataclass(slots=True)
class Track:
    """Everything known about one source partition and its current copy."""

    target_topic: str
    epochs: list[Epoch] = field(default_factory=list)
    """Oldest first. A re-created topic begins one, and so does a source that was
    truncated, a copy that lost its end, or a flow without exactly-once that copied
    records again. If writers are fenced, each begins after all that is left of the
    earlier ones."""
    copy_id: UUID = NO_ID
    """The target topic's; NO_ID while it is not known."""
    earlier_ids: set[UUID] = field(default_factory=set)
    """Of deleted topics that had the copy's name before."""
    cut: bool = False
    """Whether the copy lost its end once."""
    dropped: dict[UUID, tuple[int, int]] = field(default_factory=dict)
    """The source topics whose oldest epochs are forgotten, and where these ended."""

    @property
    def renewed(self) -> bool:
        """Whether offsets that were true once need not be so any more."""
        return self.cut or bool(self.earlier_ids)

    def add(self, block: Block, at: int, *, keep: int, fenced: bool = True) -> None:
        """Runs at the map's offset `at`; `keep` at least the newest. Those of writers
        that are not `fenced` may come late, and then say nothing about others.
        """
        if block.copy_id not in (NO_ID, self.copy_id):
            if self.copy_id != NO_ID:
                self.earlier_ids.add(self.copy_id)
                if fenced:
                    self._begin_again()
                else:
                    self.cut = True
            self.copy_id = block.copy_id
        newest = self.epochs[-1] if self.epochs else None
        if (
            newest is None
            or newest.topic_id != block.topic_id
            or (not fenced and newest.copy_id != block.copy_id)
            or not newest.follows(block.runs)
        ):
            if newest is not None:
                newest.close(at)
                self._cut(int(block.runs[0, DOWNSTREAM]), block, fenced=fenced)
            newest = Epoch(block.topic_id, block.copy_id)
            self.epochs.append(newest)
            if len(self.epochs) > _MOST_EPOCHS:
                self._drop(self.epochs.pop(0))
        newest.add(block.runs, at, keep=keep)

    def _begin_again(self) -> None:
        self.epochs.clear()
        self.cut = False
        self.dropped.clear()

    def _drop(self, epoch: Epoch) -> None:
        up, down = self.dropped.get(epoch.topic_id, (0, 0))
        up, down = max(up, epoch.end(UPSTREAM)), max(down, epoch.end(DOWNSTREAM))
        self.dropped[epoch.topic_id] = up, down

    def _cut(self, downstream: int, block: Block, *, fenced: bool) -> None:
        """Everything from an offset of the copy on is gone, if there was anything."""
        if downstream >= self.epochs[-1].end(DOWNSTREAM):
            return
        self.cut = True
        self.copy_id = block.copy_id
        if not fenced:
            return
        while self.epochs and self.epochs[-1].first(DOWNSTREAM) >= downstream:
            self.epochs.pop()
        if self.epochs and downstream < self.epochs[-1].end(DOWNSTREAM):
            self.epochs[-1].cut(downstream)

    def forget(self, before: int) -> None:
        for epoch in self.epochs:
            epoch.forget(before)

    @property
    def oldest(self) -> tuple[int, int] | None:
        """The first offsets known, on both sides; None if anything was re-created, lost
        its end, or is forgotten.
        """
        topics = {epoch.topic_id for epoch in self.epochs}
        if self.renewed or self.dropped or len(topics) > 1:
            return None
        first = self.epochs[0]
        return first.first(UPSTREAM), first.first(DOWNSTREAM)

    @property
    def source_id(self) -> UUID:
        """The id of the source topic that was copied last; NO_ID if that is gone."""
        return self.epochs[-1].topic_id if self.epochs else NO_ID

    def is_another(self, topic_id: UUID | None) -> bool:
        """Whether nothing is known about the copy with this id; None: there is none.

        An earlier copy does not come back: a broker that names it is out of date.
        """
        if topic_id is None:
            return True
        return (
            not same_topic(topic_id, self.copy_id) and topic_id not in self.earlier_ids
        )

    def forgotten(self, topic_id: UUID, column: int, log_start: int) -> int:
        """The end of what is forgotten of a source topic, -1 if nothing of it can be in
        a log that starts there.
        """
        ends = self.dropped.get(topic_id, (-1, -1))
        return ends[column] if ends[DOWNSTREAM] > log_start else -1

    def there(self, copy_id: UUID | None) -> list[Epoch]:
        """Those that may be of the copy with this id, oldest first."""
        if copy_id != self.copy_id:
            return self.epochs
        return [each for each in self.epochs if each.copy_id in (NO_ID, copy_id)]

    def document(self, most: int) -> dict[str, Any]:
        """What JSON can say of it; `most` as for `Epoch.document`."""
        return {
            "target_topic": self.target_topic,
            "copy_id": self.copy_id.hex,
            "earlier_ids": [each.hex for each in self.earlier_ids],
            "cut": self.cut,
            "dropped": {topic.hex: ends for topic, ends in self.dropped.items()},
            "epochs": [each.document(most) for each in self.epochs],
        }

    @classmethod
    def from_document(cls, document: Mapping[str, Any]) -> Track:
        """The reverse. Raises one of `errors.MALFORMED` if it is damaged."""
        return cls(
            target_topic=str(document["target_topic"]),
            epochs=[Epoch.from_document(each) for each in document["epochs"]],
            copy_id=UUID(document["copy_id"]),
            earlier_ids={UUID(each) for each in document["earlier_ids"]},
            cut=bool(document["cut"]),
            dropped={
                UUID(topic): (int(up), int(down))
                for topic, (up, down) in document["dropped"].items()
            },
        )


# ---- late records ----
#
# The map's other runs stay as they are: a group where the record is missing goes on
# behind that place, and meets the record later. Only the way back and a proof need
# these runs.


class LateRecord(NamedTuple):
    """One of them."""

    offset: int
    """On the target."""
    source: int
    """On the source."""


class LateRuns:
    """What the map says about late records, in its order."""

    def __init__(self) -> None:
        self._blocks: dict[TopicPartition, list[Block]] = {}

    def add(self, block: Block) -> None:
        self._blocks.setdefault((block.topic, block.partition), []).append(block)

    def blocks(self) -> list[Block]:
        """All of them; those of a partition in the map's order."""
        return [block for blocks in self._blocks.values() for block in blocks]

    def truncate_from(self, block: Block) -> None:
        """Runs of other records that the map names after these: what stood there, and
        behind it, the copy has lost.
        """
        key = (block.topic, block.partition)
        if (known := self._blocks.get(key)) is None:
            return
        begins = int(block.runs[0, DOWNSTREAM])
        cut = (
            replace(each, runs=cut_at(each.runs, begins))
            if each.copy_id == block.copy_id
            else each
            for each in known
        )
        self._blocks[key] = [each for each in cut if len(each.runs)]

    def runs_of(
        self, key: TopicPartition, topic_id: UUID, copy_id: UUID | None
    ) -> RunArray:
        """Those of one topic on the source and one copy; they ascend on the target."""
        return np.concatenate(
            [
                np.empty((0, 3), np.int64),
                *(
                    each.runs
                    for each in self._blocks.get(key, ())
                    if same_topic(topic_id, each.topic_id)
                    and same_topic(copy_id, each.copy_id)
                ),
            ]
        )


def next_late(late: RunArray, offset: int) -> LateRecord | None:
    """The first one at a target offset or after it."""
    index = int(np.searchsorted(late[:, DOWNSTREAM] + late[:, COUNT], offset, "right"))
    if index == len(late):
        return None
    up, down, _ = late[index].tolist()
    into = max(offset - down, 0)
    return LateRecord(offset=down + into, source=up + into)


# ---- the index of a whole map, kept on the target ----


KIND = "offset-map"
_MOST_ROWS = 32_768
"""Starts and runs in one index, over all partitions: a third of a megabyte."""
_LEAST_ROWS, _LARGEST_ROWS = 16, 4096
_PART_ROWS = 16_384
_TRACK_ROWS = 8
"""What else a partition takes."""
_PART_BYTES = 64 << 20
"""What a part takes at most when it is unpacked; far more than any has."""
_SECONDS = 60.0
_LEAST_GROWTH = 100_000
_GROWTH_OF_PARTITION = 20
"""Offsets of the map after which there is a new one, and more for each partition: to
read these takes longer than to read the index."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MapIndex:
    """What there is to know about an offset map up to one of its offsets."""

    topic: str
    """The map's."""
    topic_id: UUID
    until: int
    epoch: int
    """Of the leader that showed the map up to there."""
    exactly_once: bool
    """Whether the flow is; if not, runs mean something else (see `Track.add`)."""
    tracks: Mapping[TopicPartition, Track]
    late: LateRuns

    def fields(self) -> tuple[dict[str, Fields], Fields]:
        """Its parts by name, and what the record of the look says."""
        parts = {
            str(number): {"until": self.until, "index": _packed(part)}
            for number, part in enumerate(self._parts())
        }
        return parts, {
            "topic": self.topic,
            "topic_id": self.topic_id.hex,
            "until": self.until,
            "epoch": self.epoch,
            "exactly_once": self.exactly_once,
            "parts": len(parts),
        }

    def _parts(self) -> Iterator[Fields]:
        epochs = sum(len(track.epochs) for track in self.tracks.values())
        most = _MOST_ROWS // max(2 * epochs, 1)  # starts, and runs
        most = min(max(most, _LEAST_ROWS), _LARGEST_ROWS)
        late = [
            base64.b64encode(value).decode()
            for block in self.late.blocks()
            for value in runs.encode([block])
        ]
        tracks: list[Fields] = []
        rows = 0
        for (topic, partition), track in self.tracks.items():
            tracks.append(
                {"topic": topic, "partition": partition, **track.document(most)}
            )
            rows += _TRACK_ROWS + sum(
                min(each.starts, most) + min(each.tail, most) for each in track.epochs
            )
            if rows >= _PART_ROWS:
                yield {"tracks": tracks, "late": late}
                tracks, late, rows = [], [], 0
        if tracks or late:
            yield {"tracks": tracks, "late": late}

    @classmethod
    def from_fields(cls, look: Fields, parts: Sequence[Fields]) -> MapIndex:
        """The reverse of `fields`, with the parts in order. Raises one of
        `errors.MALFORMED`, or CorruptBatchError, if anything is damaged.
        """
        tracks: dict[TopicPartition, Track] = {}
        late = LateRuns()
        for part in parts:
            found = _unpacked(part["index"])
            for each in found["tracks"]:
                tracks[str(each["topic"]), int(each["partition"])] = (
                    Track.from_document(each)
                )
            for value in found["late"]:
                for block in runs.decode(base64.b64decode(value, validate=True)):
                    late.add(block)
        return cls(
            topic=str(look["topic"]),
            topic_id=UUID(look["topic_id"]),
            until=int(look["until"]),
            epoch=int(look["epoch"]),
            exactly_once=bool(look["exactly_once"]),
            tracks=tracks,
            late=late,
        )


def read_index(
    target: Cluster, source_alias: str, topic: str, *, exactly_once: bool
) -> MapIndex | None:
    """The last index of this map that is there as a whole. None if there is none: why
    one that is there cannot be read is in the log.
    """
    try:
        kept = standby.read(target, source_alias, {KIND})
        look = None if kept is None else kept.looks.get(KIND)
        if kept is None or look is None:
            return None
        told, entries = look.fields, kept.entries[KIND]
        names = [str(number) for number in range(int(told["parts"]))]
        parts = [entries[name].fields for name in names if name in entries]
        if len(parts) < len(names) or {p["until"] for p in parts} != {told["until"]}:
            return None  # the next one is being written
        index = MapIndex.from_fields(told, parts)
    except (ClusterError, CorruptBatchError, zlib.error, *MALFORMED) as error:
        import structlog  # noqa: PLC0415  takes a command a twentieth of a second

        where = standby.topic_name(source_alias)
        structlog.get_logger().warning(
            "the offset map is read whole, since its index cannot be read",
            cluster=target.alias, topic=where, reason=str(error),
        )  # fmt: skip
        return None
    fits = (index.topic, index.exactly_once) == (topic, exactly_once)
    return index if fits and index.topic_id != NO_ID else None


class IndexKeeper:
    """Writes the index of one flow's map. Not thread-safe."""

    def __init__(self, flow: FlowConfig) -> None:
        self._writer = StandbyWriter(flow, {KIND})
        self._at = -float("inf")

    def keep(self, target: Cluster, index: MapIndex) -> bool:
        """Write this one, if the map has grown enough since the last, or that was not
        of this map; returns whether it was written.

        Raises:
            MirrorError: it was not, or perhaps not as a whole.
        """
        at = time.time()
        if time.monotonic() < self._at + _SECONDS or index.topic_id == NO_ID:
            return False
        last = self._writer.known(target).looks.get(KIND)
        told: Fields = {} if last is None else last.fields
        before = told.get("until") if told.get("topic_id") == index.topic_id.hex else 0
        grown = index.until - (before if isinstance(before, int) else 0)
        least = _LEAST_GROWTH + _GROWTH_OF_PARTITION * len(index.tracks)
        if 0 <= grown < least:
            return False
        parts, look = index.fields()
        self._writer.keep(target, KIND, parts, at=at, look=look)
        self._at = time.monotonic()
        return True


def _packed(part: Fields) -> str:
    text = json.dumps(part, separators=(",", ":"))
    return base64.b64encode(zlib.compress(text.encode())).decode()


def _unpacked(index: str) -> Any:
    unpacker = zlib.decompressobj()
    text = unpacker.decompress(base64.b64decode(index, validate=True), _PART_BYTES)
    if not unpacker.eof:
        raise ValueError("a part of the index is cut off, or too long")
    return json.loads(text)
