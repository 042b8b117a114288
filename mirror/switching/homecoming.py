"""Fills one partition of a topic that is empty, from the active cluster.

Main function: `fill`. Records that were born on the cluster that is back come home as
they were, without our provenance header; others get it, as the flow home does it. They
stand in the active cluster's order. Each transaction has records and their part of the
flow home's offset map, which says that they did not come from a producer.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

import numpy as np

from mirror.batches import home_stamps, records, to_columns
from mirror.batches.listing import listed
from mirror.clusters.wire import fetch
from mirror.clusters.wire.write import Write
from mirror.driver import ownership
from mirror.offsets import runs
from mirror.offsets.runs import DOWNSTREAM, UPSTREAM, Block
from mirror.proving.log_stream import LogStream, Stretch
from mirror.relay import provenance
from mirror.switching.stage import StepError
from mirror.tails.packing import Packer, ahead

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    import uuid

    from mirror.batches.listing import Listed
    from mirror.clusters.transactions import Producer
    from mirror.clusters.wire.produce import EncodedBatch
    from mirror.offsets.runs import RunArray
    from mirror.switching.stage import Stage

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
        Stretch(
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
