"""Fills topics that were re-created on the cluster that is back, from the active one.

Main function: `restore`. Records that were born there come home as they were, without
our provenance header; those born on the active cluster are copied as the flow home does
it. Both stand in the active cluster's order, up to where the flow home stands, which
rests for these topics meanwhile. Each transaction has records and their part of the
offset map. A run that was killed left topics that still count as re-created: the next
one empties and fills them again. Once the flow out is moved behind what came home,
nothing is left to do.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial
import re
from types import MappingProxyType
from typing import TYPE_CHECKING

import numpy as np

from mirror.batches import codecs, records, to_columns
from mirror.batches.listing import Loops, headers_of, listed, take_stamp
from mirror.clusters.admin import topic_admin
from mirror.clusters.admin.truncation import delete_records
from mirror.clusters.transactions import Producer
from mirror.clusters.wire import fetch
from mirror.clusters.wire.write import Write
from mirror.driver import ownership
from mirror.driver.way_back import pass_copies
from mirror.offsets import progress, runs
from mirror.offsets.covers import edges, find_starts
from mirror.offsets.runs import DOWNSTREAM, UPSTREAM, Block
from mirror.proving.log_stream import LogStream, Stretch
from mirror.proving.repairs import missing
from mirror.proving.repairs.missing import MissingRecord
from mirror.recovery import pauses
from mirror.relay import provenance
from mirror.switching.stage import StepError

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
    import uuid

    from mirror.batches.listing import Listed
    from mirror.clusters.cluster import Cluster
    from mirror.offsets.covers import Edges
    from mirror.offsets.runs import RunArray
    from mirror.relay.provenance import Provenance
    from mirror.switching.stage import Stage

TopicPartition = tuple[str, int]

_PIECE_BYTES = 16 << 20


@dataclass(frozen=True, slots=True, kw_only=True)
class _Part:
    """One partition to fill."""

    topic: str
    partition: int
    topic_id: uuid.UUID
    """On the active cluster."""
    copy_id: uuid.UUID
    first: int
    end: int
    """Where the flow home goes on."""


def require_possible(stage: Stage, topics: Collection[str]) -> None:
    """Check that these topics can be filled.

    Raises:
        StepError: with the reason.
    """
    home, out = stage.flow, stage.reverse
    both = (home, out)
    reason = ""
    names = home.replication_policy.target_topic, out.replication_policy.target_topic
    if any(name(topic) != topic for topic in topics for name in names):
        reason = "their copies have other names: only the policy identity can"
    elif not all(flow.provenance and flow.exactly_once for flow in both):
        reason = "that needs provenance and exactly_once in both flows"
    elif any(flow.transform is not None for flow in both):
        reason = "a flow with a function changes records"
    if reason:
        raise StepError(
            f"`--restore` cannot fill {', '.join(sorted(topics))}: {reason}; nothing "
            "has changed"
        )
    here, there = stage.target.topics(topics), stage.source.topics(topics)
    for topic in sorted(topics):
        if here[topic].partitions < there[topic].partitions:
            raise StepError(
                f"{topic} on {home.target} has {here[topic].partitions} partitions, "
                f"on {home.source} {there[topic].partitions}: add the missing ones "
                "first"
            )
    own = (runs.topic_name(home.source, home.separator), 0)
    log = edges(stage.target, [own]).get(own)
    if log is None or log.cut == log.end:
        _require_no_own(stage, topics)
    # Else a restore that was killed may hide the map's end: `restore` looks.


def restore(
    stage: Stage, topics: Collection[str], *, show: Callable[[str], None]
) -> None:
    """Fill these topics; `show` gets a line for each.

    Raises:
        FencedError: another command began meanwhile.
        MirrorError: a cluster refuses or does not answer; run it again.
    """
    require_possible(stage, topics)
    home, active, back = stage.flow, stage.source, stage.target
    producer = Producer(
        back,
        transactional_id=f"mirror.{home.name}.restore",
        transaction_timeout_ms=int(home.transaction_timeout_seconds * 1000),
    )
    producer.take_over()
    _require_no_own(stage, topics)
    for topic in sorted(topics):
        pauses.change(back, home, re.escape(topic), paused=True)
    # A driver reads the pauses after it takes over, so none copies these from here on.
    ownership.take_over(home, back)
    # A later command fences this one before it writes: `retake` finds that, or all that
    # it writes is behind these.
    ends = _ends(back, topics)
    parts = _parts(stage, topics)
    _require_no_own(stage, topics, ends)
    came_home: list[Block] = []
    for topic in sorted(topics):
        mine = [part for part in parts if part.topic == topic]
        producer.retake()
        _empty(back, mine, ends)
        count = sum(_fill(stage, producer, part, came_home) for part in mine)
        show(f"{topic} on {home.target} has {count} records again")
    producer.retake()
    for topic in sorted(topics):
        pauses.change(back, home, re.escape(topic), paused=False)
    # The last change: from now on these topics are what they were.
    pass_copies(
        stage.config, home, stage.reverse, back, active, renewed=True, blocks=came_home
    )


def _parts(stage: Stage, topics: Collection[str]) -> list[_Part]:
    """
    Raises:
        StepError: the flow home does not stand somewhere in a partition.
    """
    home, active, back = stage.flow, stage.source, stage.target
    known = progress.read_proven(back, progress.topic_name(home.source)).positions
    there, here = active.topics(topics), back.topics(topics)
    keys = [(name, n) for name in topics for n in range(there[name].partitions)]
    starts = topic_admin.list_offsets(active, keys, timestamp=topic_admin.EARLIEST)
    parts = []
    for topic, number in keys:
        at = known.get((topic, number))
        if (
            at is None
            or at.topic_id != there[topic].topic_id
            or (topic, number) not in starts
        ):
            raise StepError(
                f"{home.name} does not stand in {topic}-{number} yet: let it copy first"
            )
        first = starts[topic, number]
        parts.append(
            _Part(
                topic=topic, partition=number, topic_id=there[topic].topic_id,
                copy_id=here[topic].topic_id, first=first, end=max(first, at.offset),
            )
        )  # fmt: skip
    return parts


def _require_no_own(
    stage: Stage,
    topics: Collection[str],
    ends: Mapping[TopicPartition, int] = MappingProxyType({}),
) -> None:
    """Refuse where a re-created topic has records that did not come from the active
    cluster: they would go when it is emptied, up to these ends. Behind those there may
    be no records at all.
    """
    home, back = stage.flow, stage.target
    if back.topic(runs.topic_name(home.source, home.separator)) is None:
        raise StepError(f"{home.name} has never copied: let it run first")
    here = back.topics(topics)
    keys = [(name, n) for name in topics for n in range(here[name].partitions)]
    logs = edges(back, keys)
    filled = [key for key in keys if key not in logs or logs[key].start < logs[key].end]
    found = find_starts(home, back, {key: key for key in filled}, {})
    for key in filled:
        if key in ends.keys() & logs.keys() and (
            logs[key].cut < ends[key] or _has_records(back, key, logs[key], ends[key])
        ):
            raise StepError(
                f"another command or a client writes to {key[0]}-{key[1]} on "
                f"{home.target}: run this one again"
            )
        if key not in found or _has_records(back, key, logs[key], found[key].offset):
            raise StepError(
                f"{key[0]}-{key[1]} was re-created on {home.target} and has records "
                f"that did not come from {home.source}: move them away and delete the "
                "topic, then create it again"
            )


def _has_records(cluster: Cluster, key: TopicPartition, log: Edges, first: int) -> bool:
    stretch = Stretch(
        topic=key[0], partition=key[1], topic_id=log.topic_id, first=first, end=log.cut
    )
    if first >= log.cut:
        return False
    stream = LogStream(cluster, stretch, isolation=fetch.READ_COMMITTED)
    return any(len(some.places) for some in stream.listed())


def _ends(cluster: Cluster, topics: Collection[str]) -> dict[TopicPartition, int]:
    here = cluster.topics(topics)
    keys = [(name, n) for name in topics for n in range(here[name].partitions)]
    return topic_admin.list_offsets(
        cluster, keys, timestamp=topic_admin.LATEST, committed=False
    )


def _empty(
    cluster: Cluster, parts: Sequence[_Part], ends: Mapping[TopicPartition, int]
) -> None:
    topic = parts[0].topic
    if cluster.topics([topic])[topic].topic_id != parts[0].copy_id:
        raise StepError(f"{topic} on {cluster.alias} was re-created meanwhile")
    before = {n: end for (name, n), end in ends.items() if name == topic and end}
    delete_records(cluster, topic, before)


def _fill(stage: Stage, producer: Producer, part: _Part, came_home: list[Block]) -> int:
    """Returns how many records it has written. `came_home` receives of what the flow
    out copied where it stands now.
    """
    home, back = stage.flow, stage.target
    codec = codecs.BY_NAME.get(home.compression)
    limit = topic_admin.max_message_bytes(back, [part.topic])[part.topic]
    own = runs.topic_name(home.source, home.separator)
    key, count = (part.topic, part.partition), 0
    for piece, originals in _pieces(stage, part):
        batches = list(
            missing.batches(
                piece,
                codec=codecs.NONE if codec is None else codec,
                max_bytes=limit,
            )
        )
        if not producer.v2:
            producer.add_partitions([key, (own, 0)])
        writing = Write(back, producer, {key: batches}, back.topics([part.topic]))
        writing.finish()
        rows = []
        for each in writing.placed:
            assert each.batch.runs is not None
            row = each.batch.runs.copy()
            row[:, DOWNSTREAM] += each.offset
            rows.append(row)
        block = Block(
            topic=part.topic, partition=part.partition, target_topic=part.topic,
            topic_id=part.topic_id, copy_id=part.copy_id,
            runs=runs.joined(np.concatenate(rows)),
        )  # fmt: skip
        if len(back_home := _of(block.runs, originals)):
            came_home.append(
                replace(
                    block, topic_id=part.copy_id, copy_id=part.topic_id, runs=back_home
                )
            )
        values = records.encode_all((b"", value) for value in runs.encode([block]))
        Write(back, producer, {(own, 0): values}, back.topics([own])).finish()
        ownership.commit(back, producer, [key, (own, 0)])
        count += len(piece)
    return count


def _of(rows: RunArray, offsets: Sequence[int]) -> RunArray:
    """The runs of these offsets, the other way round."""
    single = np.ones((len(offsets), 3), np.int64)
    single[:, UPSTREAM] = offsets
    index = np.searchsorted(rows[:, UPSTREAM], single[:, UPSTREAM], "right") - 1
    single[:, DOWNSTREAM] = single[:, UPSTREAM] + (
        rows[index, DOWNSTREAM] - rows[index, UPSTREAM]
    )
    single[:, [UPSTREAM, DOWNSTREAM]] = single[:, [DOWNSTREAM, UPSTREAM]]
    return runs.joined(single)


def _pieces(
    stage: Stage, part: _Part
) -> Iterator[tuple[Sequence[MissingRecord], Sequence[int]]]:
    """What one transaction takes, as it is to stand on the cluster that is back, and
    the offsets of what was born there.
    """
    home, active, back = stage.flow, stage.source, stage.target
    stream = LogStream(
        active,
        Stretch(
            topic=part.topic, partition=part.partition, topic_id=part.topic_id,
            first=part.first, end=part.end,
        ),
        isolation=fetch.READ_COMMITTED,
        lister=partial(listed, most_unpacked=home.max_unpacked_bytes),
    )  # fmt: skip
    via = provenance.via(
        source_alias=home.source,
        source_id=active.cluster_id,
        target_id=back.cluster_id,
    )
    piece: list[MissingRecord] = []
    originals: list[int] = []
    size = 0
    for some in stream.listed():
        for each, is_original in _at_home(some, part, via):
            piece.append(each)
            if is_original:
                originals.append(each.offset)
            size += len(each.content)
            if size >= _PIECE_BYTES:
                yield piece, originals
                piece, originals, size = [], [], 0
    if stream.damages:
        raise StepError(
            f"{part.topic}-{part.partition} on {home.source} has damaged records from "
            f"offset {stream.damages[0].first} on: nothing of them can come home"
        )
    if piece:
        yield piece, originals


def _at_home(
    some: Listed, part: _Part, via: Provenance
) -> Iterator[tuple[MissingRecord, bool]]:
    """Each record, and whether it was born on the cluster that is back."""
    name, born = via.key.tobytes(), via.target_suffix.tobytes()
    loops, stamp = Loops(via.key, via.target_suffix), via.stamp.tobytes()
    for place in some.places:
        offset = int(place[to_columns.OFFSET])
        original = take_stamp(some.buffer, place, loops)
        if any(
            header == name and (value or b"").endswith(born)
            for header, value in headers_of(some.buffer, place)
        ):
            raise StepError(
                f"{part.topic}-{part.partition}: the record at offset {offset} came "
                "through other clusters after it was here: it cannot be restored"
            )
        made = MissingRecord(
            offset=offset,
            time=int(place[to_columns.TIME]),
            key_mark=0,
            content=missing.encoded(some.buffer, place, b"" if original else stamp),
        )
        yield made, original
