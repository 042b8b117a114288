"""Where the way back of a copy begins: at its first record that did not come that way.

A flow back reads the log that the flow there writes; what the flow there copied is not
to be read again, however much it is. The offset map explains most of that log: `Cover`
takes its blocks and knows which holes they leave. An offset of the log is a copy that a
run names, the marker that each transaction of the flow leaves in each partition it
wrote, or anything else: a record of another flow or of a producer, another marker, an
aborted record.

Each transaction leaves one marker, so it is enough to look into a few holes: where
there are more offsets than markers, something else stands. Only if this does not
account for everything does `search` look into one hole after the other. Both are pure;
`holes` looks into the log.

Main type: `Covers`, of some copies of one flow, which it brings up to date as the map
grows; `find_starts` asks once, for a switch. The log's ends are asked for before the
map is read, so that the map names all copies below them.
"""

from __future__ import annotations

from array import array
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import numpy.typing as npt

from mirror.clusters import codes
from mirror.clusters.admin import topic_admin
from mirror.clusters.topics import same_topic
from mirror.errors import RecreatedError
from mirror.offsets import runs
from mirror.offsets.progress import NO_ID
from mirror.offsets.runs import COUNT, DOWNSTREAM, UPSTREAM
from mirror.records.reading import TopicReader

if TYPE_CHECKING:
    from collections.abc import Collection, Generator, Mapping
    import uuid

    from mirror.clusters.cluster import Cluster
    from mirror.clusters.topics import TopicPartition
    from mirror.config.schema import FlowConfig
    from mirror.offsets.holes import Hole, HoleLook
    from mirror.offsets.runs import Block

_BEFORE = 4
"""Holes to look into before one with too many offsets: as long as other markers are
still to come, a record takes their place in the count. Slots have three transactions
under way at once."""
_MOST_SUSPECTS = 2_000
_AT_ONCE = 64


class Start(NamedTuple):
    """Where the flow back begins."""

    offset: int
    """Of the first record that was not copied by the flow there; else the cut."""
    sure: bool
    """Off: that record is there or later. Too many holes were left to look into."""


def search(
    holes: Holes, cut: int, *, outstanding: int | None, most: int | None = None
) -> Generator[list[Hole], list[HoleLook], Start]:
    """Yields holes to look into, wants to be sent what is in each, returns the answer.

    `outstanding`: of how many transactions whose records all stand below the cut the
    marker stands behind it, or more; None if that is not known: then each hole is
    looked into. `most`: the limit for holes that are not suspect.
    """
    sizes = holes.ends - holes.firsts
    expected = 0
    if outstanding is not None:
        expected = max(len(holes.markers) - outstanding, 0)
    if expected and expected == sizes.sum():
        return Start(cut, sure=True)
    left = np.ones(len(sizes), np.bool_)
    found = _Found()
    # Fewer offsets than markers: the map and the log do not belong together.
    if 0 < expected < sizes.sum():
        suspects = _suspects(holes)
        if len(suspects) <= _MOST_SUSPECTS:
            found.take((yield _asked(holes, suspects)))
            left[suspects] = False
            if sizes[left].sum() <= expected - found.markers:
                return found.start(cut)
    return (yield from _one_by_one(holes, cut, np.flatnonzero(left), found, most))


def _one_by_one(
    holes: Holes, cut: int, left: np.ndarray, found: _Found, most: int | None
) -> Generator[list[Hole], list[HoleLook], Start]:
    """Look into the holes that are left, up to the first record."""
    for at in range(0, len(left), _AT_ONCE):
        part = left[at : at + _AT_ONCE]
        if found.born >= 0:
            part = part[holes.firsts[part] < found.born]
        if not len(part):
            break
        if most is not None and at >= most:
            return Start(int(holes.firsts[part[0]]), sure=False)
        answers = yield _asked(holes, part)
        found.take(answers)
        if any(each.born >= 0 for each in answers):
            break
    return found.start(cut)


def _suspects(holes: Holes) -> np.ndarray:
    """Where the holes have more offsets than there were transactions: more than ever
    before, or than there will ever be fewer of again. The latter finds a record while
    some marker is always still to come.
    """
    markers = np.searchsorted(holes.markers, holes.firsts, "right")
    excess = np.cumsum(holes.ends - holes.firsts) - markers
    highest = np.maximum.accumulate(np.maximum(excess, 0))
    lowest = np.minimum.accumulate(excess[::-1])[::-1]
    rises = np.diff(highest, prepend=0) > 0
    rises |= np.diff(lowest, prepend=lowest[0]) > 0
    around = np.flatnonzero(rises)[:, None] - np.arange(_BEFORE + 1)
    return np.unique(around[around >= 0])


def _asked(holes: Holes, indexes: np.ndarray) -> list[Hole]:
    firsts, ends = holes.firsts[indexes].tolist(), holes.ends[indexes].tolist()
    return list(zip(firsts, ends, strict=True))


class _Found:
    """What was found so far."""

    def __init__(self) -> None:
        self.born = -1
        self.markers = 0

    def take(self, answers: list[HoleLook]) -> None:
        born = [each.born for each in answers if each.born >= 0]
        if self.born >= 0:
            born.append(self.born)
        self.born = min(born, default=-1)
        self.markers += sum(each.markers for each in answers)

    def start(self, cut: int) -> Start:
        return Start(cut if self.born < 0 else self.born, sure=True)


# ---- what the map explains of a log, and which holes it leaves ----

Offsets = npt.NDArray[np.int64]

_MOST_ROWS = 8_000
"""A transaction with more runs of one partition may have split them over records of the
map; it leaves one marker all the same. See `runs.encode`."""


class Holes(NamedTuple):
    """The offsets below a cut that no run names."""

    firsts: Offsets
    ends: Offsets
    """After the last offset of each."""
    markers: Offsets
    """For each transaction whose copies all stand below the cut, where they end: one of
    the offsets from there on is its marker."""


class Cover:
    """One partition of a copy, from an offset on. It needs 24 bytes per transaction."""

    def __init__(self, begin: int = 0, column: int = DOWNSTREAM) -> None:
        """`column` UPSTREAM: of the source's log, what the flow copied from it."""
        self._column = column
        self.begin = begin
        """What is below it is of no interest."""
        self.topic_id = NO_ID
        """The log's topic, as far as the map names it."""
        self._last_at = -1
        self._clear(begin)

    def _clear(self, begin: int) -> None:
        self.begin = self.end = begin
        self._firsts, self._ends = array("q"), array("q")
        self._markers = array("q")

    def add(self, block: Block, at: int, *, late: bool = False) -> None:
        """A block of the map's record at the offset `at`. `late`: of late records."""
        topic_id = block.copy_id if self._column == DOWNSTREAM else block.topic_id
        if topic_id not in (NO_ID, self.topic_id):
            if self.topic_id != NO_ID:  # it was deleted: its offsets begin again
                self._clear(0)
            self.topic_id = topic_id
        # `mirror adopt` names no copy's id, and its copies left no marker of ours.
        # What a repair appended late may be in one transaction with other records.
        leaves_marker = block.copy_id != NO_ID and not late and at != self._last_at
        leaves_marker &= self._column == DOWNSTREAM
        self._last_at = at
        floors = not block.runs[:, COUNT].all()
        runs = block.runs[block.runs[:, COUNT] > 0] if floors else block.runs
        if not len(runs):
            return
        firsts = runs[:, self._column]
        ends = firsts + runs[:, COUNT]
        last = int(ends[-1])
        if int(firsts[0]) < self.end:
            if late:
                return
            self._cut(int(firsts[0]))
        if last <= self.begin:
            return
        self._note(firsts, ends)
        if leaves_marker and not floors and len(runs) <= _MOST_ROWS:
            self._markers.append(last)

    def _note(self, firsts: Offsets, ends: Offsets) -> None:
        begun = self.end
        self.end = int(ends[-1])
        if len(firsts) == 1:  # as most have it
            if firsts[0] > begun:
                self._firsts.append(begun)
                self._ends.append(int(firsts[0]))
            return
        before = np.maximum(np.concatenate(([begun], ends[:-1])), begun)
        is_hole = firsts > before
        self._firsts.extend(before[is_hole].tolist())
        self._ends.extend(firsts[is_hole].tolist())

    def _cut(self, offset: int) -> None:
        """The copy lost everything from this offset on, or it lies before the first."""
        while self._firsts and self._firsts[-1] >= offset:
            self._firsts.pop()
            self._ends.pop()
        if self._ends and self._ends[-1] > offset:
            self._ends[-1] = offset
        while self._markers and self._markers[-1] > offset:
            self._markers.pop()
        self.end = max(self.begin, min(self.end, offset))

    def begin_at(self, offset: int) -> None:
        """Forget what is below an offset: it is known to be explained, or gone."""
        if offset <= self.begin:
            return
        holes = self.holes(max(self.end, offset))
        kept = holes.ends > offset
        self.begin, self.end = offset, max(self.end, offset)
        firsts = np.maximum(holes.firsts[kept], offset)
        self._firsts = array("q", firsts.tolist())
        self._ends = array("q", holes.ends[kept].tolist())
        left = [end for end in self._markers if end > offset]
        self._markers = array("q", left)

    def holes(self, cut: int) -> Holes:
        """Those between `begin` and the cut."""
        firsts = np.array(self._firsts, np.int64)
        ends = np.array(self._ends, np.int64)
        if cut > self.end:
            firsts, ends = np.append(firsts, self.end), np.append(ends, cut)
        below = firsts < cut
        markers = np.array(self._markers, np.int64)
        return Holes(
            firsts=firsts[below],
            ends=np.minimum(ends[below], cut),
            markers=markers[markers <= cut],
        )


def end_of_copies(cover: Cover, offset: int) -> int:
    """The first offset at or after one that no run names."""
    holes = cover.holes(max(cover.end, offset) + 1)
    index = int(np.searchsorted(holes.ends, offset, "right"))
    return max(offset, int(holes.firsts[index]))


# ---- the starts of copies, kept up to date ----


_FEW = 32
"""So many markers are looked at, rather than what comes after them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Edges:
    """The log of one partition of a copy, at one moment."""

    topic_id: uuid.UUID
    start: int
    cut: int
    """Its last stable offset."""
    end: int
    """Its end. If that is the cut, no transaction was open, and no marker on its way;
    else the markers of what is below the cut are below the end."""


class Covers:
    """The covers of one flow's copies. Not thread-safe."""

    def __init__(
        self,
        flow: FlowConfig,
        target: Cluster,
        topics: Collection[str],
        begins: Mapping[TopicPartition, int],
        *,
        source: Cluster | None = None,
    ) -> None:
        """`topics` are the source's; `begins`: by partition, the first offset of the
        copy that matters, else 0. With `source` the logs are the source's, of which
        the map says what was copied.
        """
        self._target = target
        self._logs_of = target if source is None else source
        self._column = DOWNSTREAM if source is None else UPSTREAM
        self._map = runs.topic_name(flow.source, flow.separator)
        self._topics = frozenset(topics)
        self._begins = dict(begins)
        self._begin()

    def _begin(self) -> None:
        self._reader = TopicReader(self._target, self._map)
        self._covers: dict[TopicPartition, Cover] = {}

    def follow(self) -> None:
        """Take in what the map says since the last time.

        Raises:
            ClusterError: the target does not answer, or there is no map.
        """
        try:
            self._read()
        except RecreatedError:
            self._begin()
            self._read()

    def _read(self) -> None:
        only = self._topics.__contains__
        for at, key, value in self._reader.read():
            for block in runs.decode(value, only=only):
                self._take(block, at)
            for block in runs.decode(key, only=only) if key else ():
                self._take(block, at, late=True)

    def _take(self, block: Block, at: int, *, late: bool = False) -> None:
        self._cover((block.topic, block.partition)).add(block, at, late=late)

    def _cover(self, key: TopicPartition) -> Cover:
        if (cover := self._covers.get(key)) is None:
            cover = Cover(self._begins.get(key, 0), self._column)
            self._covers[key] = cover
        return cover

    def start(
        self,
        key: TopicPartition,
        copy: TopicPartition,
        edges: Edges,
        position: int,
        *,
        most: int | None = None,
    ) -> Start:
        """The first record from a position on that no run names, in the log of `copy`
        up to the edges' cut; if there is none, the end of what runs name there. `key`:
        the source's partition. `most`: holes to look into.

        Raises:
            ClusterError: the target does not answer.
        """
        cover = self._cover(key)
        if not same_topic(cover.topic_id, edges.topic_id):  # not known to the map yet
            return Start(max(position, edges.start), sure=False)
        if edges.cut < max(position, cover.begin):  # its end is lost, or not shown yet
            return Start(max(min(position, edges.cut), edges.start), sure=False)
        cover.begin_at(max(position, edges.start))
        if edges.cut <= cover.begin:
            return Start(end_of_copies(cover, cover.begin), sure=True)
        from mirror.offsets import holes  # noqa: PLC0415  loads kernels

        left = cover.holes(edges.cut)
        outstanding: int | None = None
        if edges.cut == edges.end:
            outstanding = 0
        elif len(left.markers) > _FEW:
            outstanding = holes.outstanding(
                self._logs_of, *copy, edges.topic_id, (edges.cut, edges.end)
            )
        searching = search(left, edges.cut, outstanding=outstanding, most=most)
        try:
            wanted = next(searching)
            while True:
                found = holes.look(self._logs_of, *copy, edges.topic_id, wanted)
                wanted = searching.send(found)
        except StopIteration as done:
            start: Start = done.value
        cover.begin_at(start.offset)  # what is before it needs no second look
        if start.sure and start.offset >= edges.cut:
            return Start(end_of_copies(cover, edges.cut), sure=True)
        return start


def edges(
    target: Cluster, partitions: Collection[TopicPartition]
) -> dict[TopicPartition, Edges]:
    """Of those that have a leader and may be read.

    Raises:
        ClusterError: the target does not answer.
    """
    if not partitions:
        return {}
    topics = target.topics({topic for topic, _ in partitions})
    there = [
        key
        for key in partitions
        if topics[key[0]].error == codes.NONE and key[1] in topics[key[0]].leaders
    ]
    starts = topic_admin.list_offsets(target, there, timestamp=topic_admin.EARLIEST)
    latest = topic_admin.LATEST
    stable = topic_admin.list_offsets(target, starts, timestamp=latest)
    # In this order: a stable offset that is still the end afterwards was so at once.
    ends = topic_admin.list_offsets(target, stable, timestamp=latest, committed=False)
    return {
        key: Edges(
            topic_id=topics[key[0]].topic_id,
            start=starts[key],
            cut=stable[key],
            end=end,
        )
        for key, end in ends.items()
    }


def find_starts(
    flow: FlowConfig,
    target: Cluster,
    copies: Mapping[TopicPartition, TopicPartition],
    positions: Mapping[TopicPartition, int],
) -> dict[TopicPartition, Start]:
    """Where a flow back from the target begins, by partition of the target: at the
    first record from its position on that `flow` did not copy there, or where the log
    ends now. `copies`: the source's partition of each of the target's; `positions`
    those of the flow back, also by the target's partition; 0 if it has none.

    Partitions without a leader are left out.

    Raises:
        ClusterError: the target does not answer, or there is no map.
    """
    found = edges(target, copies.keys())
    covers = Covers(
        flow,
        target,
        {topic for topic, _ in copies.values()},
        {copies[key]: max(positions.get(key, 0), found[key].start) for key in found},
    )
    covers.follow()
    return {
        key: covers.start(copies[key], key, each, positions.get(key, 0))
        for key, each in found.items()
    }
