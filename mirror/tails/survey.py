"""What a flow's source has and its target does not, after a failover to the target.

Main function: `survey`, which reads the source from the flow's positions to its ends;
main type: `Tail`. Left out is what came through the target, and what is settled: the
offset map knows what was replayed, the loss ledger what was exported or skipped.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING
import uuid

import numpy as np
import numpy.typing as npt

from mirror.batches import alignment, to_columns
from mirror.batches.listing import Loops, listed
from mirror.batches.reading import TopicReader
from mirror.clusters.admin import topic_admin
from mirror.clusters.wire import fetch
from mirror.errors import NoLeaderError
from mirror.metadata.topics import select
from mirror.offsets import progress, runs
from mirror.offsets.runs import COUNT, DOWNSTREAM, UPSTREAM
from mirror.policy.names import is_heartbeats
from mirror.proving.locating import NO_STAMP
from mirror.proving.log_stream import LogStream, Stretch
from mirror.proving.logs import settled_ends
from mirror.proving.results import Results
from mirror.recovery import losses, risk
from mirror.recovery.losses import Cause
from mirror.relay import provenance
from mirror.status.wording import some

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from mirror.clusters.cluster import Cluster
    from mirror.config.schema import FlowConfig
    from mirror.metadata.topics import MirroredTopic
    from mirror.offsets.runs import Block
    from mirror.proving.log_stream import Lister

TopicPartition = tuple[str, int]
Offsets = npt.NDArray[np.int64]

NO_KEY = 0
"""Instead of the mark of a key: the record has none."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TailPartition:
    """What is not settled of one source partition."""

    topic: str
    partition: int
    target_topic: str
    topic_id: uuid.UUID
    """The source topic's."""
    position: int
    """Where the flow stands; what is below it is copied, or settled."""
    end: int
    """Where the tail ends."""
    open: bool
    """Whether a transaction is open on the source, and may hide more."""
    replayed_to: int
    """After the last record that is on the target; the position, if none is behind
    it."""
    replayed: int
    """Records at or after the position that are on the target."""
    written_off: int
    """Records at or after the position that the loss ledger names."""
    offsets: Offsets = field(repr=False)
    """Those that are not settled, ascending."""
    times: Offsets = field(repr=False)
    """Theirs, epoch milliseconds."""
    keys: Offsets = field(repr=False)
    """A mark of each one's key; `NO_KEY`: it has none."""
    sizes: Offsets = field(repr=False)
    """Bytes of key, value and headers."""

    @property
    def key(self) -> TopicPartition:
        return self.topic, self.partition

    @property
    def records(self) -> int:
        return len(self.offsets)

    @property
    def bytes(self) -> int:
        return int(self.sizes.sum())

    @property
    def unmoved(self) -> bool:
        """Whether nothing is left, but the flow would copy again what is settled."""
        return not self.records and bool(self.replayed or self.written_off)

    @property
    def settled(self) -> bool:
        return not (self.open or self.records or self.unmoved)


@dataclass(frozen=True, slots=True, kw_only=True)
class Tail:
    """All partitions of a flow that have a tail, or had one."""

    partitions: tuple[TailPartition, ...]

    @property
    def records(self) -> int:
        return sum(each.records for each in self.partitions)

    @property
    def bytes(self) -> int:
        return sum(each.bytes for each in self.partitions)

    @property
    def settled(self) -> bool:
        return all(each.settled for each in self.partitions)

    def left(self, flow: FlowConfig) -> str:
        """What is left to settle, in words; empty if nothing is."""
        if self.records:
            return f"{flow.source} has {some(self.records, 'record')} not copied"
        if any(each.open for each in self.partitions):
            return f"a transaction is open on {flow.source}, and may hide more records"
        if self.settled:
            return ""
        return f"the position of {flow.name} is not behind what was settled"


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
    waited for. `seen`: an earlier answer, behind which the source is read on. `most`:
    how many offsets to read; a partition that is not read to its end is open.

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
    before = {each.key: each for each in seen.partitions} if seen is not None else {}
    for topic, number in behind:
        of = topics[topic]
        end, opening = ends[topic, number], (topic, number) in opened
        last = before.get((topic, number))
        if last is not None and (last.topic_id.hex != of.topic_id or last.end > end):
            last = None  # the topic is another one, or lost its end
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
        if not is_heartbeats(each.topic)
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
    copied = progress.Progress()
    if target.topic(name) is not None:
        copied = progress.read(target, name, wait=False)
    starts = topic_admin.list_offsets(source, keys, timestamp=topic_admin.EARLIEST)
    return {
        key: max(
            risk.position(copied, key, topics[key[0]].topic_id) or 0,
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
        Stretch(
            topic=of.topic,
            partition=number,
            topic_id=topic_id,
            first=begin if last is None else max(begin, last.end),
            end=end,
        ),
        isolation=fetch.READ_COMMITTED if committed else fetch.READ_UNCOMMITTED,
        lister=lister_of(flow, source, target, (of.topic, number)),
    )
    rows = [np.empty((0, 4), np.int64)]
    if last is not None:
        kept = np.stack([last.offsets, last.times, last.keys, last.sizes], axis=1)
        rows.append(kept[last.offsets >= begin])
    for part in stream.listed():
        places = part.places
        marks, keys = np.empty((2, len(places)), np.int64)
        places = np.ascontiguousarray(places)
        alignment.describe(part.buffer, places, NO_STAMP, 0, marks, keys)
        keys[places[:, to_columns.KEY_SIZE] < 0] = NO_KEY
        sizes = places[:, to_columns.END] - places[:, to_columns.KEY_AT]
        rows.append(
            np.stack(
                [places[:, to_columns.OFFSET], places[:, to_columns.TIME], keys, sizes],
                axis=1,
            )
        )
    all_rows = np.concatenate(rows)
    replayed = within(all_rows[:, 0], known)
    written_off = within(all_rows[:, 0], lost) & ~replayed
    left = all_rows[~replayed & ~written_off]
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
        offsets=left[:, 0].copy(),
        times=left[:, 1].copy(),
        keys=left[:, 2].copy(),
        sizes=left[:, 3].copy(),
    )
