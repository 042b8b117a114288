"""Where ways back begin now: covers of copies, kept up to date, and looks into holes.

Main type: `Covers`, of some copies of one flow, which it brings up to date as the map
grows; `find_starts` asks once, for a switch. The log's ends are asked for before the
map is read, so that the map names all copies below them.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from mirror.clusters import codes
from mirror.clusters.admin import topic_admin
from mirror.errors import RecreatedError
from mirror.offsets import runs
from mirror.offsets.explained import Cover, end_of_copies, is_same
from mirror.offsets.reverse_start import Start, search
from mirror.offsets.runs import DOWNSTREAM, UPSTREAM
from mirror.records.reading import TopicReader

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping
    import uuid

    from mirror.clusters.cluster import Cluster
    from mirror.clusters.topics import TopicPartition
    from mirror.config.schema import FlowConfig
    from mirror.offsets.runs import Block


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
        if not is_same(cover, edges.topic_id):  # the map does not know this log yet
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
