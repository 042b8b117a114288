"""An index over the runs of one partition that stays small however many there are.

Main type: `Track`. It keeps the newest runs in full, and of the older ones every n-th
with its place in the offset map, from which the others can be read. No I/O: if a
question needs those, the answer is a `MapPlace` to read.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from mirror.offsets.progress import NO_ID
from mirror.offsets.runs import COUNT, DOWNSTREAM, UPSTREAM, RunArray, cut_at, falls

if TYPE_CHECKING:
    import uuid

    from mirror.offsets.runs import Block

Offsets = npt.NDArray[np.int64]

_AT = 2
"""The third column of an epoch's starts: an offset in the map."""
_MOST_STARTS = 4096
_MOST_EPOCHS = 32


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

    def of(self, found: RunArray) -> RunArray:
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

    def __init__(self, topic_id: uuid.UUID, copy_id: uuid.UUID = NO_ID) -> None:
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


@dataclass(slots=True)
class Track:
    """Everything known about one source partition and its current copy."""

    target_topic: str
    epochs: list[Epoch] = field(default_factory=list)
    """Oldest first. A re-created topic begins one, and so does a source that was
    truncated, a copy that lost its end, or a flow without exactly-once that copied
    records again. If writers are fenced, each begins after all that is left of the
    earlier ones."""
    copy_id: uuid.UUID = NO_ID
    """The target topic's; NO_ID while it is not known."""
    earlier_ids: set[uuid.UUID] = field(default_factory=set)
    """Of deleted topics that had the copy's name before."""
    cut: bool = False
    """Whether the copy lost its end once."""
    dropped: dict[uuid.UUID, tuple[int, int]] = field(default_factory=dict)
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
    def source_id(self) -> uuid.UUID:
        """The id of the source topic that was copied last; NO_ID if that is gone."""
        return self.epochs[-1].topic_id if self.epochs else NO_ID

    def is_another(self, topic_id: uuid.UUID | None) -> bool:
        """Whether nothing is known about the copy with this id; None: there is none.

        An earlier copy does not come back: a broker that names it is out of date.
        """
        if topic_id is None:
            return True
        return (
            NO_ID not in (topic_id, self.copy_id)
            and topic_id != self.copy_id
            and topic_id not in self.earlier_ids
        )

    def forgotten(self, topic_id: uuid.UUID, column: int, log_start: int) -> int:
        """The end of what is forgotten of a source topic, -1 if nothing of it can be in
        a log that starts there.
        """
        ends = self.dropped.get(topic_id, (-1, -1))
        return ends[column] if ends[DOWNSTREAM] > log_start else -1

    def there(self, copy_id: uuid.UUID | None) -> list[Epoch]:
        """Those that may be of the copy with this id, oldest first."""
        if copy_id != self.copy_id:
            return self.epochs
        return [each for each in self.epochs if each.copy_id in (NO_ID, copy_id)]


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
