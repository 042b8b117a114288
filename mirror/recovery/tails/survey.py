"""What a flow's source has and its target does not, after a failover to the target.

Main function: `survey`, which reads the source from the flow's positions to its ends,
or behind an earlier look. Left out is what came through the target, and what is
settled: the offset map knows what was replayed, the loss ledger what was exported or
skipped.

`Unsettled` counts what is left, cheap enough to ask all the time, and `unsettled` looks
only where a failover has left a tail. Whom a tail concerns: `groups_that_read` of it,
and keys `written_since` on the target.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING
import uuid

import numpy as np
import numpy.typing as npt

from mirror.clusters.admin import group_offsets, topic_admin
from mirror.clusters.admin.groups import list_groups
from mirror.clusters.wire import fetch
from mirror.copying import gaps, provenance
from mirror.errors import NoLeaderError
from mirror.offsets import progress, runs
from mirror.offsets.progress import Position
from mirror.offsets.runs import COUNT, DOWNSTREAM, UPSTREAM
from mirror.pairs import losses, risk, roles
from mirror.pairs.losses import Cause
from mirror.policy.selection import GroupFilter
from mirror.proofs.explaining import NO_STAMP
from mirror.proofs.log_stream import LogStream, OffsetRange
from mirror.proofs.survey import settled_ends
from mirror.records import alignment, to_columns
from mirror.records.listing import Loops, listed
from mirror.records.reading import TopicReader
from mirror.recovery.tails.tail import NO_KEY, Offsets, Tail, TailPartition
from mirror.topics.topics import select

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from mirror.clusters.cluster import Cluster
    from mirror.clusters.topics import TopicPartition
    from mirror.config.schema import FlowConfig
    from mirror.offsets.runs import Block
    from mirror.pairs.journal import Entry
    from mirror.proofs.log_stream import Lister
    from mirror.topics.topics import MirroredTopic


_MOST_READ = 200_000
"""Offsets that one look reads."""
_MOST_KEPT = 1_000_000
"""Records that are remembered, 32 bytes each, or 64 in partitions of which some are
settled; behind them nothing is counted."""
MOST_SHOWN = 10
"""Keys of a topic that are shown."""


# ---- what of an earlier look at a tail still holds ----
#
# Main function: `still_there`. A log that is another topic's now, or lost some of
# what was read, is read again as a whole; leaders' epochs tell that also where it
# has grown since, as far as records have them.


def still_there(
    source: Cluster,
    seen: Iterable[TailPartition],
    ends: Mapping[TopicPartition, int],
) -> dict[TopicPartition, TailPartition]:
    """Those whose logs on the source still have all that was read. `ends`: where the
    logs end now.

    Raises:
        ClusterError: the source does not answer.
    """
    asked = {each.key: each for each in seen if each.key in ends}
    topics = source.topics({topic for topic, _ in asked})
    epochs = {key: each.epoch for key, each in asked.items() if each.epoch >= 0}
    common = topic_admin.epoch_ends(source, epochs, topics)
    return {
        key: each
        for key, each in asked.items()
        if key in common or key not in epochs
        if gaps.judge(
            Position(offset=each.end, leader_epoch=each.epoch, topic_id=each.topic_id),
            topic_id=topics[key[0]].topic_id,
            first=0,
            end=ends[key],
            common=common.get(key),
        )
        is None
    }


def survey(
    flow: FlowConfig,
    source: Cluster,
    target: Cluster,
    *,
    seen: Tail | None = None,
    most: int | None = None,
) -> Tail:
    """Find what the target does not have; both clusters are connected. A
    transaction that a command has left open on the target settles nothing, and is not
    waited for. `seen`: an earlier answer, behind which the source is read on, unless a
    log has lost some of that. `most`: how many offsets to read; a partition that is not
    read to its end is open.

    Raises:
        ClusterError: a cluster does not answer, or not for all partitions.
    """
    topics = topics_of(flow, source)
    keys = [(t.topic, n) for t in topics.values() for n in range(t.partitions)]
    committed = flow.isolation_level == "read_committed"
    ends, opened = settled_ends(source, keys)
    if not committed:
        ends = topic_admin.list_offsets(
            source, keys, timestamp=topic_admin.LATEST, committed=False
        )
        opened = set()
    if missing := set(keys) - ends.keys():
        raise NoLeaderError(
            f"cluster {source.alias}: {len(missing)} partitions have no leader, as "
            f"{min(missing)[0]}-{min(missing)[1]}: their tail is not known"
        )
    begins = _positions(flow, source, target, topics, keys)
    behind = [key for key in keys if begins[key] < ends[key] or key in opened]
    known = _replayed(flow, target, topics, {key: begins[key] for key in behind})
    ledger = [
        each
        for each in losses.read(target, flow.source, wait=False)
        if each.flow == flow.name and each.cause is Cause.FAILOVER
    ]
    found: list[TailPartition] = []
    before = {} if seen is None else still_there(source, seen.partitions, ends)
    for topic, number in behind:
        of = topics[topic]
        end, opening = ends[topic, number], (topic, number) in opened
        last = before.get((topic, number))
        if last is not None and begins[topic, number] < last.position:
            last = None  # the position was moved back: that was not read yet
        if most is not None:
            first = max(begins[topic, number], 0 if last is None else last.end)
            opening |= end - first > most
            end = min(end, first + most)
            most -= end - first
        lost = [
            (each.first, each.last + 1)
            for each in ledger
            if (each.topic, each.partition) == (topic, number)
            and each.last is not None
            and each.is_of(of.topic_id)
        ]
        found.append(
            _partition(
                flow, source, target, of, number,
                begin=begins[topic, number], end=end, opened=opening,
                known=known.get((topic, number), []), lost=lost, last=last,
            )
        )  # fmt: skip
    return Tail(partitions=tuple(found))


def topics_of(flow: FlowConfig, source: Cluster) -> dict[str, MirroredTopic]:
    """The topics that may have a tail, by name.

    Raises:
        ClusterError: the source does not answer.
    """
    return {
        each.topic: each
        for each in select(source, flow).topics
        if not flow.is_heartbeats(each.topic)
    }


def within(
    offsets: Offsets, ranges: Iterable[tuple[int, int]]
) -> npt.NDArray[np.bool_]:
    """Which of these offsets, ascending, are in a range: from one up to another."""
    steps = np.zeros(len(offsets) + 1, np.int64)
    pairs = np.array(list(ranges), np.int64).reshape(-1, 2)
    np.add.at(steps, np.searchsorted(offsets, pairs[:, 0]), 1)
    np.add.at(steps, np.searchsorted(offsets, pairs[:, 1]), -1)
    return np.asarray(np.cumsum(steps)[:-1] > 0)


def lister_of(
    flow: FlowConfig, source: Cluster, target: Cluster, key: TopicPartition
) -> Lister:
    """Lists records of a source partition as the flow copies them."""
    seen = provenance.of_flow(
        flow, source_id=source.cluster_id, target_id=target.cluster_id
    )
    if flow.transform is not None:
        from mirror.proofs.function_results import Results  # noqa: PLC0415  with Arrow

        return Results(flow, key, seen).listed
    return partial(
        listed,
        loops=Loops(seen.key, seen.target_suffix, seen.homes),
        most_unpacked=flow.max_unpacked_bytes,
    )


def _positions(
    flow: FlowConfig,
    source: Cluster,
    target: Cluster,
    topics: Mapping[str, MirroredTopic],
    keys: list[TopicPartition],
) -> dict[TopicPartition, int]:
    """Where the tail of each partition begins at the earliest."""
    name = progress.topic_name(flow.source)
    copied = progress.read_existing(target, name)
    starts = topic_admin.list_offsets(source, keys, timestamp=topic_admin.EARLIEST)
    return {
        key: max(
            risk.next_to_copy(copied, key, topics[key[0]].topic_id) or 0,
            starts.get(key, 0),
            0,
        )
        for key in keys
    }


def _replayed(
    flow: FlowConfig,
    target: Cluster,
    topics: Mapping[str, MirroredTopic],
    begins: Mapping[TopicPartition, int],
) -> dict[TopicPartition, list[tuple[int, int]]]:
    """Ranges of source offsets from the positions on that are in the copies."""
    name = runs.topic_name(flow.source, flow.separator)
    if not begins or target.topic(name) is None:
        return {}
    wanted = {topic for topic, _ in begins}
    copies = target.topics({topics[topic].target_topic for topic in wanted})
    ends = topic_admin.list_offsets(
        target,
        [(topics[t].target_topic, n) for t, n in begins],
        timestamp=topic_admin.LATEST,
        committed=False,
    )
    found: dict[TopicPartition, list[tuple[int, int]]] = {}
    for _, key, value in TopicReader(target, name).read(wait=False):
        for part in (value, key):
            for block in runs.decode(part, only=wanted.__contains__) if part else ():
                where = (block.topic, block.partition)
                if where not in begins:
                    continue
                of, copy = topics[block.topic], copies[topics[block.topic].target_topic]
                if block.topic_id.hex != of.topic_id or not block.is_of(copy):
                    continue
                end = ends.get((copy.name, block.partition), 0)
                found.setdefault(where, []).extend(_beyond(block, begins[where], end))
    return found


def _beyond(block: Block, begin: int, end: int) -> list[tuple[int, int]]:
    """The parts of its runs from a source offset on, up to the end of the copy."""
    rows = block.runs[block.runs[:, COUNT] > 0]
    counts = np.minimum(rows[:, COUNT], end - rows[:, DOWNSTREAM])
    firsts = rows[:, UPSTREAM]
    kept = (counts > 0) & (firsts + counts > begin)
    return list(
        zip(firsts[kept].tolist(), (firsts + counts)[kept].tolist(), strict=True)
    )


def _partition(  # noqa: PLR0913  what is known of one partition
    flow: FlowConfig,
    source: Cluster,
    target: Cluster,
    of: MirroredTopic,
    number: int,
    *,
    begin: int,
    end: int,
    opened: bool,
    known: list[tuple[int, int]],
    lost: list[tuple[int, int]],
    last: TailPartition | None,
) -> TailPartition:
    topic_id = uuid.UUID(of.topic_id)
    committed = flow.isolation_level == "read_committed"
    stream = LogStream(
        source,
        OffsetRange(
            topic=of.topic,
            partition=number,
            topic_id=topic_id,
            first=begin if last is None else max(begin, last.end),
            end=end,
        ),
        isolation=fetch.READ_COMMITTED if committed else fetch.READ_UNCOMMITTED,
        lister=lister_of(flow, source, target, (of.topic, number)),
    )
    parts = [np.empty((4, 0), np.int64)]
    if last is not None:
        parts.append(last.rows[:, last.rows[0] >= begin])
    for part in stream.listed():
        places = part.places
        marks, keys = np.empty((2, len(places)), np.int64)
        places = np.ascontiguousarray(places)
        alignment.describe(part.buffer, places, NO_STAMP, 0, marks, keys)
        keys[places[:, to_columns.KEY_SIZE] < 0] = NO_KEY
        sizes = places[:, to_columns.END] - places[:, to_columns.KEY_AT]
        parts.append(
            np.stack(
                [places[:, to_columns.OFFSET], places[:, to_columns.TIME], keys, sizes]
            )
        )
    rows = np.concatenate(parts, axis=1)
    replayed = within(rows[0], known)
    written_off = within(rows[0], lost) & ~replayed
    settled = replayed | written_off
    left = np.compress(~settled, rows, axis=1) if settled.any() else rows
    offsets, times, keys, sizes = left
    return TailPartition(
        topic=of.topic,
        partition=number,
        target_topic=of.target_topic,
        topic_id=topic_id,
        position=begin,
        end=end,
        open=opened,
        replayed_to=max((last for _, last in known), default=begin),
        replayed=int(replayed.sum()),
        written_off=int(written_off.sum()),
        offsets=offsets,
        times=times,
        keys=keys,
        sizes=sizes,
        rows=rows,
        epoch=last.epoch if last is not None and stream.epoch < 0 else stream.epoch,
    )


# ---- how many records are left ----


class Unsettled:
    """Counts the tail of one flow again and again."""

    def __init__(self) -> None:
        self._tail = Tail(partitions=())
        self._ends: object = None

    def look(self, flow: FlowConfig, source: Cluster, target: Cluster) -> int:
        """How many records are known to be unsettled; both clusters are connected.

        Raises:
            ClusterError: a cluster does not answer, or not for all partitions.
        """
        ends = _ends_now(flow, source, target)
        if ends != self._ends or any(each.open for each in self._tail.partitions):
            room = _MOST_KEPT - self._tail.remembered
            most = max(min(_MOST_READ, room), 0)
            self._tail = survey(flow, source, target, seen=self._tail, most=most)
            self._ends = ends
        return self._tail.records


def unsettled(
    flow: FlowConfig,
    source: Cluster,
    target: Cluster,
    entries: Sequence[Entry],
    *,
    seen: Tail | None = None,
) -> Tail:
    """What is not settled of the flow. Only a failover out of its source leaves a tail;
    after anything else no log is read. `entries`: of both journals, about the pair;
    `seen`: as `survey`.

    Raises:
        ClusterError: a cluster does not answer, or not for all partitions.
    """
    if not roles.leaves_tail(entries, flow.source):
        return Tail(partitions=())
    return survey(flow, source, target, seen=seen)


def _ends_now(flow: FlowConfig, source: Cluster, target: Cluster) -> object:
    """Where all ends that the count depends on: the source's logs, and what settles."""
    keys = [
        (each.topic, number)
        for each in topics_of(flow, source).values()
        for number in range(each.partitions)
    ]
    own = [
        (progress.topic_name(flow.source), 0),
        (runs.topic_name(flow.source, flow.separator), 0),
        (losses.topic_name(flow.source), 0),
    ]
    return tuple(
        topic_admin.list_offsets(cluster, where, timestamp=topic_admin.LATEST)
        for cluster, where in ((source, keys), (target, own))
    )


# ---- groups that have read of a tail, and keys that were written again since ----


@dataclass(frozen=True, slots=True, kw_only=True)
class KeysWrittenSince:
    """Keys of one topic's tail that were written on the target since."""

    keys: int
    shown: tuple[str, ...]
    """The first few, in UTF-8."""


def groups_that_read(
    source: Cluster, flow: FlowConfig, tail: Tail
) -> dict[str, dict[TopicPartition, int]]:
    """By group and partition, how many records of the tail the group has read.

    Raises:
        ClusterError: the source does not answer.
    """
    wanted = GroupFilter(include=flow.groups, exclude=flow.groups_exclude)
    names = [name for name in list_groups(source) if wanted.matches(name)]
    committed = group_offsets.fetch(source, names).groups
    found: dict[str, dict[TopicPartition, int]] = {}
    for name, offsets in sorted(committed.items()):
        for part in tail.partitions:
            if part.key in offsets:
                read = int(np.searchsorted(part.offsets, offsets[part.key].offset))
                if read:
                    found.setdefault(name, {})[part.key] = read
    return found


def written_since(
    source: Cluster, target: Cluster, flow: FlowConfig, tail: Tail, *, since: float
) -> dict[str, KeysWrittenSince]:
    """By source topic, which keys of its tail were written on the target `since` this
    time, epoch seconds, in the copy or in the topic of the same name.

    Raises:
        ClusterError: the target cannot be read.
    """
    found = {}
    for topic, copies in _copies(tail).items():
        parts = [each for each in tail.partitions if each.topic == topic]
        marks = np.unique(np.concatenate([each.keys for each in parts]))
        marks = marks[marks != NO_KEY]
        keys: dict[int, str] = {}
        if len(marks):
            for name in copies:
                keys |= _written_on_target(source, target, flow, name, marks, since)
        shown = tuple(list(keys.values())[:MOST_SHOWN])
        found[topic] = KeysWrittenSince(keys=len(keys), shown=shown)
    return found


def _copies(tail: Tail) -> Mapping[str, set[str]]:
    return {
        each.topic: {each.topic, each.target_topic}
        for each in tail.partitions
        if each.records
    }


def _written_on_target(  # noqa: PLR0917  both clusters, and what to look for
    source: Cluster,
    target: Cluster,
    flow: FlowConfig,
    name: str,
    marks: np.ndarray,
    since: float,
) -> dict[int, str]:
    """By mark, the keys among these that a topic of the target has of its own."""
    topic = target.topics([name])[name]
    if topic.error:
        return {}
    where = [(name, number) for number in topic.leaders]
    firsts = topic_admin.list_offsets(target, where, timestamp=round(since * 1000))
    ends = topic_admin.list_offsets(target, where, timestamp=topic_admin.LATEST)
    through = provenance.via(
        source_alias=flow.target, source_id=target.cluster_id,
        target_id=source.cluster_id,
    )  # fmt: skip
    found: dict[int, str] = {}
    for key, first in firsts.items():
        if first < 0 or key not in ends:
            continue
        stream = LogStream(
            target,
            OffsetRange(
                topic=name, partition=key[1], topic_id=topic.topic_id,
                first=first, end=ends[key],
            ),
            isolation=fetch.READ_COMMITTED,
            lister=partial(
                listed, loops=Loops(through.key, through.target_suffix),
                most_unpacked=flow.max_unpacked_bytes,
            ),
        )  # fmt: skip
        for part in stream.listed():
            places = np.ascontiguousarray(part.places)
            made, keys = np.empty((2, len(places)), np.int64)
            alignment.describe(part.buffer, places, NO_STAMP, 0, made, keys)
            there = np.isin(keys, marks) & (places[:, to_columns.KEY_SIZE] >= 0)
            for row in np.flatnonzero(there).tolist():
                if int(keys[row]) not in found:
                    at, size = places[row, [to_columns.KEY_AT, to_columns.KEY_SIZE]]
                    text = part.buffer[at : at + size].tobytes()
                    found[int(keys[row])] = text.decode(errors="replace")
    return found
