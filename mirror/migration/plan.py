"""Takes a flow over from MirrorMaker 2: the plan, and its execution.

Main functions: `plan`, which finds out how far MirrorMaker 2 got and changes nothing;
and `apply`, which writes the plan to progress and offset map, in one transaction.
`mirrormaker` checks beforehand that MirrorMaker 2 is stopped.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from enum import StrEnum
import itertools
from typing import TYPE_CHECKING
import uuid

import numpy as np
import numpy.typing as npt

from mirror.clusters import codes
from mirror.clusters.admin import topic_admin
from mirror.copying import provenance
from mirror.errors import CorruptBatchError, FencedError, MirrorError
from mirror.migration import mirrormaker
from mirror.offsets import progress, runs, starting
from mirror.offsets.offset_syncs import OffsetSync, offset_syncs_topic
from mirror.offsets.progress import Position
from mirror.offsets.runs import COUNT, DOWNSTREAM, UPSTREAM, Block
from mirror.offsets.translation import OffsetMap
from mirror.records import listing, marks, scan, to_columns
from mirror.records.batch import LOG_APPEND_TIME
from mirror.records.reading import TopicReader
from mirror.service.ownership import PositionUpdate, make_topics, rewrite_progress

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence
    from collections.abc import Set as AbstractSet

    from mirror.clusters.cluster import Cluster
    from mirror.clusters.topics import TopicPartition
    from mirror.config.schema import FlowConfig
    from mirror.migration.mirrormaker import KeptPositions
    from mirror.offsets.runs import RunArray
    from mirror.topics.topics import MirroredTopic

MOST_RECORDS = 1_000_000
_ATTEMPTS = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class Adoption:
    """What happens to a flow."""

    flow: str
    partitions: tuple[Adopted, ...]
    not_copied: tuple[str, ...] = ()
    """Topics that MirrorMaker 2 copied and the flow does not."""
    present: int = 0
    """Partitions for which the flow already has a position of its own."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AdoptionTerms:
    """Where MirrorMaker 2 keeps its positions, and how far to look."""

    offsets_topic: str
    connector: str
    most_records: int = MOST_RECORDS


def plan(
    flow: FlowConfig,
    source: Cluster,
    target: Cluster,
    topics: Iterable[MirroredTopic],
    terms: AdoptionTerms,
    *,
    selected: AbstractSet[str],
) -> Adoption:
    """Find where the partitions of some topics continue.

    `selected`: all topics that the flow copies.

    Raises:
        MirrorError: a cluster or the leader of a partition does not answer.
    """
    chosen = tuple(topics)
    kept = mirrormaker.read_positions(
        target, terms.offsets_topic, connector=terms.connector, source_alias=flow.source
    )
    known = _present(flow, target)
    survey = AdoptionSurvey(
        flow=flow,
        source=source,
        target=target,
        kept=kept,
        known=known,
        syncs=read_syncs(flow, source, target),
        most_records=terms.most_records,
    )
    partitions = survey.resume_points(chosen)
    if not kept.last and not any(each.copy_end for each in partitions):
        raise MirrorError(
            f"cluster {target.alias}: {terms.offsets_topic} has no position of "
            f"connector {terms.connector} for cluster {flow.source}, and there are no "
            "copies; choose the positions with --connector and --offsets-topic"
        )
    return Adoption(
        flow=flow.name,
        partitions=partitions,
        not_copied=tuple(sorted({topic for topic, _ in kept.last} - selected)),
        present=sum((each.topic, each.partition) in known for each in partitions),
    )


def apply(
    flow: FlowConfig,
    target: Cluster,
    adoption: Adoption,
    *,
    replace: bool,
) -> None:
    """Write what was planned; all of it, or nothing.

    Raises:
        FencedError: a run of the flow began meanwhile; nothing was written.
        MirrorError: the flow has positions of its own and `replace` is off, or the
            target refuses.
    """

    def decide(known: Mapping[TopicPartition, Position]) -> PositionUpdate:
        taken = [e for e in adoption.partitions if (e.topic, e.partition) in known]
        if taken and not replace:
            raise MirrorError(has_progress(adoption.flow, len(taken)))
        return PositionUpdate(
            positions={(e.topic, e.partition): e.position for e in adoption.partitions},
            blocks=[
                Block(
                    topic=each.topic,
                    partition=each.partition,
                    target_topic=each.target_topic,
                    topic_id=each.position.topic_id,
                    runs=each.runs,
                )
                for each in adoption.partitions
                if each.runs is not None
            ],
        )

    make_topics(flow, target)
    for attempt in range(_ATTEMPTS):
        try:
            rewrite_progress(flow, target, decide)
            break
        except FencedError:
            # The fenced service came back before we were done.
            if attempt == _ATTEMPTS - 1:
                raise


def has_progress(flow: str, count: int) -> str:
    """Why a flow is not taken over."""
    return (
        f"flow {flow} has positions of its own for {count} partitions, so it has "
        "already copied: pass --replace to overwrite them with MirrorMaker 2's"
    )


def _present(flow: FlowConfig, target: Cluster) -> dict[TopicPartition, Pair]:
    """Partitions that the flow has copied itself: its position, and the offset of the
    copy that everything else follows.
    """
    name = progress.topic_name(flow.source)
    if target.topics([name])[name].error != codes.NONE:
        return {}
    positions = progress.read(target, name).positions
    the_map = runs.topic_name(flow.source, flow.separator)
    if target.topics([the_map])[the_map].error != codes.NONE:
        return {key: (position.offset, 0) for key, position in positions.items()}
    offsets = OffsetMap.of(flow, target)
    offsets.refresh()
    return {
        key: (
            position.offset,
            max(offsets.translate(*key, position.offset).offset, 0),
        )
        for key, position in positions.items()
    }


# ---- where each partition that MirrorMaker 2 has copied continues ----
#
# Main types: `Adopted`, what happens to one partition, and `AdoptionSurvey`, one look
# at all of them: their logs, their copies, MirrorMaker 2's positions and its offset
# syncs. It changes nothing.


class Action(StrEnum):
    """The verdict on a partition."""

    CONTINUE = "CONTINUE"
    """Continue at MirrorMaker 2's position."""
    AHEAD = "AHEAD"
    """Continue after the records that it copied since it wrote its position."""
    UNSURE = "UNSURE"
    """As CONTINUE or AHEAD, and some records may be copied again."""
    BEGIN = "BEGIN"
    """It has no position: begin where the flow's `start` says."""
    RECREATED = "RECREATED"
    """Its position is beyond the source's end: the topic was re-created."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Adopted:
    """What happens to one partition."""

    topic: str
    partition: int
    target_topic: str
    action: Action
    mm2: int | None
    """The next offset by MirrorMaker 2's position; None if it has none."""
    source_end: int
    position: Position
    copied: int = 0
    """Records after MirrorMaker 2's position that are already in the copy."""
    may_repeat: int = 0
    """Records at most that may be copied again."""
    missing: int = 0
    """Records before MirrorMaker 2's position that are not at the copy's end."""
    copy_end: int = 0
    """The end of the copy's log; 0 if it is empty, or not there."""
    lost: int = 0
    """Offsets that the source deleted before they were copied."""
    runs: RunArray | None = field(default=None, repr=False)
    """The first rows of the offset map."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AdoptionSurvey:
    """One look at both clusters."""

    flow: FlowConfig
    source: Cluster
    target: Cluster
    kept: KeptPositions
    known: Mapping[TopicPartition, Pair]
    """What the flow has copied itself: its positions and their places in the copies."""
    syncs: Mapping[TopicPartition, Sequence[Pair]]
    """MirrorMaker 2's, as `read_syncs` finds them."""
    most_records: int

    def resume_points(self, topics: tuple[MirroredTopic, ...]) -> tuple[Adopted, ...]:
        ids = {(t.topic, p): t.topic_id for t in topics for p in range(t.partitions)}
        copies = self._copies(topics)
        committed = self.flow.isolation_level == "read_committed"
        logs = _logs(self.source, ids, committed=committed)
        if missing := [key for key in ids if key not in logs]:
            topic, partition = missing[0]
            raise MirrorError(
                f"cluster {self.source.alias}: {topic}-{partition} and "
                f"{len(missing) - 1} more have no leader that answers; try again"
            )
        copied = _logs(self.target, copies.values())
        if silent := [copy for copy in copies.values() if copy not in copied]:
            raise MirrorError(
                f"cluster {self.target.alias}: {silent[0][0]}-{silent[0][1]} has no "
                "leader that answers; try again"
            )
        new = {key: ids[key] for key in ids if key not in self.kept.last}
        starts = starting.find(self.source, new, starting.start_point(self.flow.start))
        return tuple(
            self._adopted(
                topic,
                logs[topic.topic, partition],
                copied.get((topic.target_topic, partition)),
                starts.get((topic.topic, partition)),
            )
            for topic in topics
            for partition in range(topic.partitions)
        )

    def _copies(
        self, topics: tuple[MirroredTopic, ...]
    ) -> dict[TopicPartition, TopicPartition]:
        """The copy of each partition that has one."""
        shown = self.target.topics({topic.target_topic for topic in topics})
        return {
            (topic.topic, partition): (topic.target_topic, partition)
            for topic in topics
            if (there := shown[topic.target_topic]).error == codes.NONE
            for partition in range(topic.partitions)
            if partition in there.leaders
        }

    def _adopted(
        self,
        topic: MirroredTopic,
        source: SideLog,
        copy: SideLog | None,
        start: Position | None,
    ) -> Adopted:
        key = (source.topic, source.partition)
        last = self.kept.last.get(key)
        mm2 = None if last is None else last + 1
        recreated = mm2 is not None and mm2 > source.log_end
        known = mm2 is not None and not recreated
        found = find(
            source,
            None if recreated else copy,
            mm2 if mm2 is not None and known else source.first,
            exact=known and key in self.kept.exact,
            most=self.most_records,
        )
        offset = found.offset
        if not known and not recreated and not found.copied and start is not None:
            offset = start.offset
        return Adopted(
            topic=source.topic,
            partition=source.partition,
            target_topic=topic.target_topic,
            action=(
                Action.RECREATED if recreated
                else Action.UNSURE if found.may_repeat
                else Action.AHEAD if found.copied
                else Action.CONTINUE if known
                else Action.BEGIN
            ),
            mm2=mm2,
            source_end=source.log_end,
            position=Position(offset=offset, topic_id=uuid.UUID(topic.topic_id)),
            copied=found.copied,
            may_repeat=found.may_repeat,
            missing=found.missing,
            copy_end=0 if copy is None else copy.log_end,
            lost=max(source.first - offset, 0),
            runs=None if copy is None or not copy.log_end else initial_runs(
                found.runs,
                self.syncs.get(key, ()),
                begins=self.known.get(key, (0, copy.first)),
                ends=(offset, copy.log_end),
            ),
        )  # fmt: skip


# ---- where copying a partition continues ----
#
# Main function: `find`, which looks at ever longer ends of a partition and its copy
# until they show where copying continues, and how much may be copied again where
# they do not. It reads and changes nothing.


_FIRST_LOOK = 2_000
_TIMES_MORE = 8


@dataclass(frozen=True, slots=True, kw_only=True)
class SideLog:
    """One partition on one side."""

    cluster: Cluster
    topic: str
    partition: int
    first: int
    end: int
    """After the last readable record; records of open transactions are not readable."""
    log_end: int
    committed: bool


def _logs(
    cluster: Cluster, partitions: Iterable[TopicPartition], *, committed: bool = True
) -> dict[TopicPartition, SideLog]:
    """Without partitions whose leader does not answer."""
    asked = list(partitions)
    firsts, ends, log_ends = (
        topic_admin.list_offsets(cluster, asked, timestamp=at, committed=stable)
        for at, stable in (
            (topic_admin.EARLIEST, True),
            (topic_admin.LATEST, True),
            (topic_admin.LATEST, False),
        )
    )
    return {
        key: SideLog(
            cluster=cluster, topic=key[0], partition=key[1], first=firsts[key],
            end=ends[key], log_end=log_ends[key], committed=committed,
        )
        for key in firsts.keys() & ends.keys() & log_ends.keys()
    }  # fmt: skip


def find(
    source: SideLog, copy: SideLog | None, position: int, *, exact: bool, most: int
) -> CopyTail:
    """`position`: the next offset after MirrorMaker 2's own; `exact`: it was written
    with the records. `copy` is None if there is none. At most `most` offsets of each
    side are looked at, in both directions.

    Raises:
        ClusterError: a cluster does not answer.
    """
    if copy is None or copy.end <= copy.first:
        return CopyTail(offset=position, certain=True)
    size = min(_FIRST_LOOK, most)
    before: CopyTail | None = None
    while True:
        tail = _look(source, copy, position, size)
        settled = tail.anchored and tail.complete and (tail.certain or exact)
        no_news = (
            before is not None and before.anchored and before.offset == tail.offset
        )
        if settled or no_news or size >= most or _all(source, copy, position, size):
            break
        before, size = tail, min(size * _TIMES_MORE, most)
    if tail.certain or exact:
        return tail
    copies = tail.unexplained if tail.anchored else copy.end - copy.first
    return replace(tail, may_repeat=max(min(copies, source.end - tail.offset), 0))


def _look(source: SideLog, copy: SideLog, position: int, size: int) -> CopyTail:
    first = max(position - size, source.first)
    end = min(position + size, source.end)
    begin = max(copy.end - size, copy.first)
    last = read_window(copy, begin, copy.end)
    timed = last.own_times
    if not timed:
        last = read_window(copy, begin, copy.end, timed=False)
    around = read_window(source, first, end, timed=timed)
    tail = compare(around, last, position, from_first=first == 0)
    # Beyond the source's end there is nothing more to see.
    return replace(tail, complete=tail.complete or end >= source.end)


def _all(source: SideLog, copy: SideLog, position: int, size: int) -> bool:
    return (
        position - size <= source.first
        and position + size >= source.end
        and copy.end - size <= copy.first
    )


# ---- how far a partition was copied, seen from the last records of its copy ----
#
# Main function: `compare`, which is pure. Unless it runs exactly-once, MirrorMaker
# 2 writes its position after the records: only the copy shows what it has copied
# since. It copies in order, and restarts at its position or before. So the records
# from the position on that are in the copy are done, up to the first one that is
# missing. If that is unclear the answer errs on the safe side: records are copied
# again rather than left out.


Longs = npt.NDArray[np.int64]

_NO_RUNS = np.empty((0, 3), np.int64)


@dataclass(frozen=True, slots=True, kw_only=True)
class CopyTail:
    """What a copy's last records say."""

    offset: int
    """The next source offset to copy."""
    copied: int = 0
    """How many records from the position on are in the copy already."""
    anchored: bool = False
    """Whether any record was found on both sides."""
    certain: bool = False
    """Whether everything in the copy after the last record found is explained."""
    unexplained: int = 0
    """How many records of the copy are not: they may be copied again."""
    missing: int = 0
    """How many records before the position come after the last one found: they
    should be in the copy, and are not at its end."""
    may_repeat: int = 0
    """The most records that are already in the copy and may be copied again."""
    complete: bool = True
    """Whether the source's window went far enough to see where the copy ends."""
    runs: RunArray = field(default_factory=lambda: _NO_RUNS)
    """The offsets of the last records on both sides, with floors where those of single
    records are not known."""


def compare(
    source: Window, target: Window, position: int, *, from_first: bool = False
) -> CopyTail:
    """`source`: records from before the position on; `target`: the last of the copy.

    `from_first`: the source never had a record before its window.
    """
    begin = int(np.searchsorted(source.offsets, position))
    if not len(target.marks):
        return CopyTail(offset=position, certain=True)
    if not from_first:
        # What precedes the source's window might look like records in it.
        first = max(len(target.marks) - begin, 0)
        target = Window(offsets=target.offsets[first:], marks=target.marks[first:])
    where = _places(source, target)
    anchor = _last_copied(source, where, begin)
    if anchor < 0:
        return CopyTail(offset=position, unexplained=len(target.marks), missing=begin)
    at = int(np.flatnonzero(where == anchor)[-1])
    rest = target.marks[at + 1 :]
    following = source.marks[anchor + 1 : anchor + 1 + len(rest)]
    walked = 0
    if len(rest) == len(following) and bool((rest == following).all()):
        # Records like others, which alone would prove nothing, but in this order do.
        walked = len(rest)
    last = anchor + walked
    end = max(begin, last + 1)
    unknown = rest[walked:]
    # Begun again, it repeats what it had copied before.
    unexplained = int((~np.isin(unknown, source.marks[:end])).sum())
    return CopyTail(
        offset=position if end == begin else int(source.offsets[end - 1]) + 1,
        copied=end - begin,
        anchored=True,
        certain=unexplained == 0,
        unexplained=unexplained,
        missing=max(begin - last - 1, 0),
        complete=end < len(source.marks) or unexplained == 0,
        runs=_runs(source, target, where, at, walked),
    )


def _places(source: Window, target: Window) -> Longs:
    """Which record of the source each one of the copy is; -1 where that is not known,
    or where the source has several that are the same.
    """
    known, first, count = np.unique(source.marks, return_index=True, return_counts=True)
    known, first = known[count == 1], first[count == 1]
    if not len(known):
        return np.full(len(target.marks), -1, np.int64)
    at = np.minimum(np.searchsorted(known, target.marks), len(known) - 1)
    return np.where(known[at] == target.marks, first[at], -1).astype(np.int64)


def _last_copied(source: Window, where: Longs, begin: int) -> int:
    """The last record of which it is proven that all before it are copied; -1: none."""
    there = np.zeros(len(source.marks), np.bool_)
    there[where[where >= 0]] = True
    _, places, count = np.unique(source.marks, return_inverse=True, return_counts=True)
    single = np.flatnonzero(count[places] == 1)
    ahead = single[single >= begin]
    missing = np.flatnonzero(~there[ahead])
    proven = ahead[: missing[0]] if len(missing) else ahead
    if len(proven):
        return int(proven[-1])
    before = np.flatnonzero(there[:begin])
    return int(before[-1]) if len(before) else -1


def _runs(
    source: Window, target: Window, where: Longs, at: int, walked: int
) -> RunArray:
    """What is known about the stretch with the last record copied: back to where
    MirrorMaker 2 restarted, if it did.
    """
    down = np.flatnonzero(where[: at + 1] >= 0)
    up = where[down]
    steps = np.flatnonzero(np.diff(up) <= 0)
    since = int(steps[-1]) + 1 if len(steps) else 0
    up, down = _filled(source, target, up[since:], down[since:])
    if walked:
        more = np.arange(1, walked + 1)
        up, down = np.append(up, up[-1] + more), np.append(down, down[-1] + more)
    upstream, downstream = source.offsets[up], target.offsets[down]
    cuts = np.flatnonzero((np.diff(upstream) != 1) | (np.diff(downstream) != 1)) + 1
    rows: list[tuple[int, int, int]] = []
    edges = [0, *cuts.tolist(), len(up)]
    for first, end in itertools.pairwise(edges):
        rows.append((int(upstream[first]), int(downstream[first]), end - first))
        if end < len(up) and up[end] - up[end - 1] > 1:
            # There are source records in between, whose copies are unknown.
            rows.append((int(upstream[end - 1]) + 1, int(downstream[end - 1]) + 1, 0))
    return np.array(rows, np.int64).reshape(-1, 3)


def _filled(
    source: Window, target: Window, up: Longs, down: Longs
) -> tuple[Longs, Longs]:
    """With the records between two known ones that are the same on both sides, one by
    one.
    """
    ups, downs = [up[:1]], [down[:1]]
    gaps = np.flatnonzero((np.diff(up) > 1) & (np.diff(up) == np.diff(down)))
    taken = 1
    for gap in gaps.tolist():
        between = np.arange(1, up[gap + 1] - up[gap])
        us, ds = up[gap] + between, down[gap] + between
        if (source.marks[us] == target.marks[ds]).all():
            ups += [up[taken : gap + 1], us]
            downs += [down[taken : gap + 1], ds]
            taken = gap + 1
    ups.append(up[taken:])
    downs.append(down[taken:])
    return np.concatenate(ups), np.concatenate(downs)


# ---- the records of a range of one partition, as marks (hashes) of their content ----
#
# Main type: `Window`, offsets with their marks; `read_window` fetches one. Two records
# with the same mark are the same record, on either cluster.


Marks = npt.NDArray[np.uint64]

_VIA = np.frombuffer(bytearray(provenance.HEADER.encode()), np.uint8)
"""mirror itself adds this one on every hop: it says nothing about what was copied."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Window:
    """Records in the order of their log; offsets ascend, and may have holes."""

    offsets: Longs
    marks: Marks
    own_times: bool = True
    """Off: the brokers wrote the time when they got the record (LogAppendTime)."""


def read_window(log: SideLog, first: int, end: int, *, timed: bool = True) -> Window:
    """The records from `first` up to `end`; with `timed` their times count.

    Raises:
        ClusterError: the partition cannot be read.
        CorruptBatchError: a batch is damaged.
    """
    reader = TopicReader(
        log.cluster, log.topic, partition=log.partition, position=first,
        committed=log.committed,
    )  # fmt: skip
    offsets: list[Longs] = []
    found: list[Marks] = []
    own_times = True
    for buffer, rows in reader.batches(end):
        if (rows[:, scan.ATTRIBUTES] & LOG_APPEND_TIME).any():
            own_times = False
        for source, places, *_ in listing.listed(buffer, rows, position=first):
            made = np.empty(len(places), np.uint64)
            marks.mark(source, places, _VIA, int(timed), made)
            offsets.append(places[:, to_columns.OFFSET].copy())
            found.append(made)
    if not offsets:
        return Window(offsets=np.empty(0, np.int64), marks=np.empty(0, np.uint64))
    all_offsets, all_marks = np.concatenate(offsets), np.concatenate(found)
    wanted = int(np.searchsorted(all_offsets, end))
    return Window(
        offsets=all_offsets[:wanted], marks=all_marks[:wanted], own_times=own_times
    )


# ---- the start of the offset map: what MirrorMaker 2 copied before mirror ----
#
# Main functions: `read_syncs`, MirrorMaker 2's offset syncs on either cluster, and
# `initial_runs`, which is pure: the rows that a partition's map begins with. A sync
# is one record known on both sides; the copies between two syncs are not known one by
# one, so a floor follows each, which gives the answers that MirrorMaker 2 would give.
# The last records are known exactly, from the copy.


Pair = tuple[int, int]
"""Offsets of one record, on the source and on the target."""

_MOST_SYNCS = 1000
"""Of a partition; the older ones are thinned out."""


def read_syncs(
    flow: FlowConfig, source: Cluster, target: Cluster
) -> dict[TopicPartition, list[Pair]]:
    """The pairs of every partition, in the order in which they were written; those on
    the cluster that the flow's `offset_syncs_location` does not name come first.

    Raises:
        ClusterError: a cluster does not answer.
    """
    places = [
        (source, offset_syncs_topic(flow.target, flow.mm2_separator)),
        (target, offset_syncs_topic(flow.source, flow.mm2_separator)),
    ]
    if flow.offset_syncs_location == "source":
        places.reverse()
    found: dict[TopicPartition, list[Pair]] = {}
    for cluster, topic in places:
        if cluster.topics([topic])[topic].error != codes.NONE:
            continue
        for _, key, value in TopicReader(cluster, topic, committed=False).read():
            try:
                sync = OffsetSync.decode(key, value)
            except CorruptBatchError:  # Java's reader would skip it too
                continue
            pairs = found.setdefault((sync.topic, sync.partition), [])
            pairs.append((sync.upstream, sync.downstream))
            if len(pairs) > 2 * _MOST_SYNCS:
                pairs[: 2 * _MOST_SYNCS - 100] = pairs[: 2 * _MOST_SYNCS - 100 : 2]
    return found


def ascending(pairs: Sequence[Pair]) -> list[Pair]:
    """Without those that later ones contradict: MirrorMaker 2 began again, or the copy
    was re-created.
    """
    kept: list[Pair] = []
    for pair in pairs:
        while kept and (kept[-1][0] >= pair[0] or kept[-1][1] >= pair[1]):
            kept.pop()
        kept.append(pair)
    return kept


def initial_runs(
    tail: RunArray,
    syncs: Sequence[Pair],
    *,
    begins: Pair,
    ends: Pair,
) -> RunArray:
    """Rows from `begins`, where nothing older is known, to `ends`: the next offset to
    copy, and the copy's end, where everything copied from now on follows.
    """
    if ends[0] < begins[0]:
        return np.array([(*ends, 0)], np.int64)  # everything is copied again
    tail = _behind(tail, begins)
    until = (int(tail[0, UPSTREAM]), int(tail[0, DOWNSTREAM])) if len(tail) else ends
    rows: list[tuple[int, int, int]] = []
    known = [
        (up, down)
        for up, down in ascending(syncs)
        if begins[0] <= up < until[0] and begins[1] <= down < until[1]
    ]
    if known[:1] != [begins] and until != begins:
        rows.append((*begins, 0))
    for up, down in known:
        rows += [(up, down, 1), (up + 1, down + 1, 0)]
    rows += [(int(up), int(down), int(count)) for up, down, count in tail.tolist()]
    if not rows or (rows[-1][0] + rows[-1][2], rows[-1][1] + rows[-1][2]) != ends:
        rows.append((*ends, 0))
    made = np.array(rows, np.int64)
    assert (made[:, COUNT] >= 0).all()
    return made


def _behind(tail: RunArray, begins: Pair) -> RunArray:
    """The rows, or parts of them, after a place on both sides."""
    over = np.maximum(
        np.maximum(begins[0] - tail[:, UPSTREAM], begins[1] - tail[:, DOWNSTREAM]), 0
    )
    cut = tail.copy()
    cut[:, UPSTREAM] += over
    cut[:, DOWNSTREAM] += over
    cut[:, COUNT] -= over
    kept: RunArray = cut[(over == 0) | (cut[:, COUNT] > 0)]
    return kept
