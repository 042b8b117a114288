"""Fills topics again that are gone or new on the cluster that is back.

Main function: `restore`. It pauses the topics in the flow home, creates what is missing
as on the active cluster, empties the rest and fills all (`fill`), up to where the
flow home stands. A run that was killed left topics that still count as re-created: the
next one empties and fills them again. Once the flow out is moved behind what came home,
nothing is left to do. Of two commands the later one fences the other, on both clusters.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
import re
from typing import TYPE_CHECKING

import numpy as np

from mirror.clusters.admin import topic_admin
from mirror.clusters.admin.topic_admin import delete_records
from mirror.clusters.transactions import Producer
from mirror.clusters.wire import fetch
from mirror.clusters.wire.write import Write
from mirror.config import scopes
from mirror.copying import provenance
from mirror.offsets import progress, runs
from mirror.offsets.progress import NO_ID, Position
from mirror.offsets.runs import DOWNSTREAM, UPSTREAM, Block
from mirror.pairs import control
from mirror.proofs.log_stream import LogStream, OffsetRange
from mirror.records import home_stamps, records, to_columns, writing
from mirror.records.listing import listed
from mirror.recovery.restorable import (
    copied_home,
    origins,
    require_no_own,
    require_possible,
)
from mirror.recovery.stage import StepError
from mirror.recovery.tails.packing import Packer, ahead
from mirror.service import ownership
from mirror.service.ownership import Generation, PositionUpdate, rewrite_progress
from mirror.service.positions import behind_copies, both_write
from mirror.topics import topics as topic_job
from mirror.topics.sides import Live

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
    import uuid

    from mirror.clusters.cluster import Cluster
    from mirror.clusters.topics import TopicPartition
    from mirror.clusters.wire.produce import EncodedBatch
    from mirror.offsets.progress import Progress
    from mirror.offsets.runs import RunArray
    from mirror.records.listing import Listed
    from mirror.recovery.stage import Stage


def restore(
    stage: Stage, topics: Collection[str], *, show: Callable[[str], None]
) -> None:
    """Fill these topics; `show` gets a line for each.

    Raises:
        FencedError: another command began meanwhile.
        MirrorError: a cluster refuses or does not answer; run it again.
    """
    require_possible(stage, topics)
    home, back = stage.flow, stage.target
    names = origins(stage, topics)
    producer = Producer(
        back,
        transactional_id=f"mirror.{home.name}.restore",
        transaction_timeout_ms=int(home.transaction_timeout_seconds * 1000),
    )
    producer.take_over()
    known = _fence_others(stage, topics)
    # The flow home writes copies of other names nowhere near these.
    paused = sorted(set(topics) & copied_home(stage).keys())
    for topic in paused:
        control.change_pauses(back, home, re.escape(topic), paused=True)
    # A driver reads the pauses after it takes over, so none copies these from here on.
    ownership.take_over(home, back)
    _make(stage, names)
    require_no_own(stage, names)
    # A later command fences this one before it writes: `retake` finds that, or all that
    # it writes is behind these.
    ends = _ends(back, topics)
    parts = _parts(stage, names, paused)
    require_no_own(stage, names, ends)
    former = Generation.parse(known.generation).source_ids
    ids = [back.cluster_id, *(each for each in former if each != back.cluster_id)]
    came_home: list[Block] = []
    for topic in sorted(topics):
        mine = [part for part in parts if part.topic == topic]
        producer.retake()
        _empty(back, mine, ends)
        count = 0
        for part in mine:
            written, blocks = fill(stage, producer, part, ids)
            count += written
            came_home += blocks
        show(f"{topic} on {home.target} has {count} records again")
    _resume(stage, producer, parts, paused)
    _pass(stage, producer, names, came_home)


def _fence_others(stage: Stage, topics: Collection[str]) -> Progress:
    """Fence the last step of earlier commands, and return what the flow out has
    copied.

    Raises:
        StepError: one of them came to its end meanwhile.
    """
    out, active = stage.reverse, stage.source
    ownership.take_over(out, active)
    known = progress.read_proven(active, progress.topic_name(out.source))
    here = stage.target.topics(topics)
    for (topic, _), at in known.positions.items():
        if topic in here and NO_ID != at.topic_id == here[topic].topic_id:
            raise StepError(f"another command has filled {topic}: run this one again")
    return known


def _make(stage: Stage, names: Mapping[str, str]) -> None:
    """Create the topics that are missing, and add missing partitions, as the flow home
    would.

    Raises:
        ClusterError: a cluster refuses.
    """
    home, active, back = stage.flow, stage.source, stage.target
    here, there = back.topics(names), active.topics(names.values())
    missing = {
        topic: origin for topic, origin in names.items() if not here[topic].partitions
    }
    _, problems = topic_job.create(back, topic_job.like(Live(active), home, missing))
    if problems:
        raise StepError("; ".join(problems))
    for topic, origin in sorted(names.items()):
        count = there[origin].partitions
        if topic not in missing and here[topic].partitions < count:
            topic_admin.add_partitions(back, topic, count=count)
        back.wait_for_topic(topic, partitions=count)


def _parts(
    stage: Stage, names: Mapping[str, str], paused: Collection[str]
) -> list[PartitionToFill]:
    """
    Raises:
        StepError: the flow home stands in an earlier topic.
    """
    home, active, back = stage.flow, stage.source, stage.target
    known = progress.read_proven(back, progress.topic_name(home.source)).positions
    there, here = active.topics(names.values()), back.topics(names)
    keys = [
        (origin, n)
        for origin in names.values()
        for n in range(there[origin].partitions)
    ]
    starts = topic_admin.offsets_of_all(active, keys, timestamp=topic_admin.EARLIEST)
    ends = topic_admin.offsets_of_all(active, keys, timestamp=topic_admin.LATEST)
    parts = []
    for topic, origin in names.items():
        for number in range(there[origin].partitions):
            key = (origin, number)
            at = known.get(key) if topic in paused else None
            if at is not None and at.topic_id != there[origin].topic_id:
                raise StepError(
                    f"{home.name} does not stand in {origin}-{number} yet: let it copy "
                    "first"
                )
            end = ends[key] if at is None else at.offset
            parts.append(
                PartitionToFill(
                    topic=topic, partition=number, origin=origin,
                    origin_id=there[origin].topic_id, topic_id=here[topic].topic_id,
                    first=starts[key], end=max(starts[key], end),
                    begins=at is None and topic in paused,
                )
            )  # fmt: skip
    return parts


def _ends(cluster: Cluster, topics: Collection[str]) -> dict[TopicPartition, int]:
    here = cluster.topics(topics)
    keys = [(name, n) for name in topics for n in range(here[name].partitions)]
    return topic_admin.offsets_of_all(
        cluster, keys, timestamp=topic_admin.LATEST, committed=False
    )


def _empty(
    cluster: Cluster,
    parts: Sequence[PartitionToFill],
    ends: Mapping[TopicPartition, int],
) -> None:
    topic = parts[0].topic
    if cluster.topics([topic])[topic].topic_id != parts[0].topic_id:
        raise StepError(f"{topic} on {cluster.alias} was re-created meanwhile")
    before = {n: end for (name, n), end in ends.items() if name == topic and end}
    delete_records(cluster, topic, before)


def _resume(
    stage: Stage,
    producer: Producer,
    parts: Sequence[PartitionToFill],
    paused: Sequence[str],
) -> None:
    """Let the flow home go on, where it has not begun behind what came home. A later
    command fences this: else it would end that one's pauses.
    """
    home, back = stage.flow, stage.target
    producer.retake()
    batches = {}
    if paused:
        patterns = map(re.escape, paused)
        _, record = control.changed_pauses(back, home, patterns, paused=False)
        batches[control.topic_name(home.source)] = records.encode_all([record])
    begins = {
        (part.origin, part.partition): Position(
            offset=part.end, topic_id=part.origin_id
        )
        for part in parts
        if part.begins
    }
    if begins:
        batches[progress.topic_name(home.source)] = progress.encode(begins)
    if batches:
        writing.write(back, batches, producer)
        ownership.commit(back, producer, [(topic, 0) for topic in batches])


def _pass(
    stage: Stage,
    producer: Producer,
    names: Mapping[str, str],
    came_home: Sequence[Block],
) -> None:
    """Move the flow out behind what came home: from now on the topics are what was
    copied, also of another cluster than before.
    """
    home, out = stage.flow, stage.reverse
    back, active = stage.target, stage.source
    copies = both_write(stage.config, home, out, active)
    here = back.topics(names)
    copies |= {
        (topic, n): (origin, n)
        for topic, origin in names.items()
        for n in range(here[topic].partitions)
    }

    def decide(known: Mapping[TopicPartition, Position]) -> PositionUpdate:
        producer.retake()
        moved = behind_copies(home, back, copies, known)
        others = {
            key: each
            for key, each in known.items()
            if not scopes.has_topic(stage.pair, key[0], home)
        }
        return PositionUpdate(
            positions=others | moved, blocks=came_home, copied=copies.keys()
        )

    rewrite_progress(out, active, decide, source_id=back.cluster_id)


# ---- fills one partition of a topic that is empty, from the active cluster ----
#
# Main function: `fill`. Records that were born on the cluster that is back come
# home as they were, without our provenance header; others get it, as the flow home
# does it. They stand in the active cluster's order. Each transaction has records
# and their part of the flow home's offset map, which says that they did not come
# from a producer.


_PIECE_BYTES = 32 << 20
_NO_OFFSETS = np.empty(0, np.int64)


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionToFill:
    """One partition to fill."""

    topic: str
    partition: int
    origin: str
    """The topic on the active cluster that has what was copied of it."""
    origin_id: uuid.UUID
    topic_id: uuid.UUID
    first: int
    """On the active cluster."""
    end: int
    begins: bool
    """Whether the flow home has no position here yet: it begins at the end."""

    @property
    def where(self) -> str:
        return f"{self.origin}-{self.partition}"


@dataclass(slots=True, kw_only=True)
class _Piece:
    """What one transaction takes."""

    batches: list[EncodedBatch]
    size: int = 0
    count: int = 0
    born: list[RunArray]
    """The offsets on the active cluster of what was born at home."""


def fill(
    stage: Stage, producer: Producer, part: PartitionToFill, ids: Sequence[str]
) -> tuple[int, list[Block]]:
    """Returns how many records it has written, and what the flow out has copied of what
    is there now. `ids`: of the cluster that is back, also before it was rebuilt.

    Raises:
        FencedError: another command began meanwhile.
        MirrorError: a cluster refuses or does not answer, or records cannot come home.
    """
    home, back = stage.flow, stage.target
    own = runs.topic_name(home.source, home.separator)
    key, count = (part.topic, part.partition), 0
    came_home: list[Block] = []
    for piece in ahead(_pieces(stage, part, ids)):
        if not producer.v2:
            producer.add_partitions([key, (own, 0)])
        writing = Write(back, producer, {key: piece.batches}, back.topics([part.topic]))
        writing.finish()
        rows = []
        for each in writing.placed:
            assert each.batch.runs is not None
            row = each.batch.runs.copy()
            row[:, DOWNSTREAM] += each.offset
            rows.append(row)
        written = runs.joined(np.concatenate(rows))
        block = Block(
            topic=part.origin, partition=part.partition, target_topic=part.topic,
            topic_id=part.origin_id, copy_id=part.topic_id, runs=written,
        )  # fmt: skip
        born = np.concatenate([_NO_OFFSETS, *piece.born])
        if len(born):
            came_home.append(
                Block(
                    topic=part.topic, partition=part.partition,
                    target_topic=part.origin, topic_id=part.topic_id,
                    copy_id=part.origin_id, runs=_reversed(written, born),
                )
            )  # fmt: skip
        values = records.encode_all((b"", value) for value in runs.encode([block]))
        Write(back, producer, {(own, 0): values}, back.topics([own])).finish()
        ownership.commit(back, producer, [key, (own, 0)])
        count += piece.count
    return count, came_home


def _reversed(rows: RunArray, offsets: RunArray) -> RunArray:
    """The runs of these offsets, the other way round."""
    single = np.ones((len(offsets), 3), np.int64)
    index = np.searchsorted(rows[:, UPSTREAM], offsets, "right") - 1
    single[:, UPSTREAM] = offsets + rows[index, DOWNSTREAM] - rows[index, UPSTREAM]
    single[:, DOWNSTREAM] = offsets
    return runs.joined(single)


def _pieces(
    stage: Stage, part: PartitionToFill, ids: Sequence[str]
) -> Iterator[_Piece]:
    home, active, back = stage.flow, stage.source, stage.target
    stream = LogStream(
        active,
        OffsetRange(
            topic=part.origin, partition=part.partition, topic_id=part.origin_id,
            first=part.first, end=part.end,
        ),
        isolation=fetch.READ_COMMITTED,
        lister=partial(listed, most_unpacked=home.max_unpacked_bytes),
    )  # fmt: skip
    seen = [
        provenance.via(
            source_alias=home.source, source_id=active.cluster_id, target_id=each
        )
        for each in ids
    ]
    packer = Packer(home, back, part.topic, stamp=seen[0].stamp)
    piece = _Piece(batches=[], born=[])
    for some in stream.listed():
        born = _taken(some, part, seen)
        packed = packer.pack(some.buffer, some.places, plain=born, where=part.where)
        piece.batches += packed
        piece.size += sum(each.size for each in packed)
        piece.count += len(some.places)
        piece.born.append(some.places[born > 0, to_columns.OFFSET])
        if piece.size >= _PIECE_BYTES:
            yield piece
            piece = _Piece(batches=[], born=[])
    if stream.damages:
        raise StepError(
            f"{part.where} on {home.source} has damaged records from offset "
            f"{stream.damages[0].first} on: nothing of them can come home"
        )
    if piece.batches:
        yield piece


def _taken(
    some: Listed, part: PartitionToFill, seen: Sequence[provenance.Provenance]
) -> provenance.Bytes:
    """Take the stamps of the cluster that is back off the records that were born there;
    returns 1 for each of these.
    """
    born = np.zeros(len(some.places), np.uint8)
    for each in seen:
        left = home_stamps.take(
            some.buffer, some.places, each.key, each.target_suffix, born
        )
        if left:
            offset = some.places[left - 1, to_columns.OFFSET]
            raise StepError(
                f"{part.where}: the record at offset {offset} came through other "
                "clusters after it was here: it cannot be restored"
            )
    return born
