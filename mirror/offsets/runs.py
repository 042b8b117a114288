"""Runs: which source offsets are at which target offsets.

A run says that the copies of `count` consecutive source offsets are at consecutive
target offsets. Runs of a partition are one int64 array with the columns UPSTREAM,
DOWNSTREAM and COUNT; main type: `Block`, such an array with its partition and topics.
This module encodes, decodes and searches them; `offset_map` keeps them.

Layout of a record's value, big-endian: version INT16 = 0, then for each topic: source
topic STRING, target topic STRING (INT16 length + UTF-8), source topic id 16 bytes,
number of runs INT32, then per run: partition INT32, count INT32, upstream INT64,
downstream INT64. Runs of a partition are adjacent, in the order of the log. The key is
empty. A run of count 0 is a *floor*: the copies of what follows it on the source, up to
the next run, are at its target offset or after; they are not known one by one.

A topic with an empty source topic and no runs gives the id of the *target* topic of the
next one: which copy the offsets are of. Readers that do not know it see no runs there.

Runs of *late* records, which a repair appended behind records that follow them on the
source, stand in the key of a record whose value has none: they replace no other run.
"""

from __future__ import annotations

from dataclasses import dataclass
import itertools
import struct
from typing import TYPE_CHECKING, NamedTuple
import uuid

import numpy as np
import numpy.typing as npt

from mirror.config import own_topics
from mirror.errors import CorruptBatchError
from mirror.offsets.progress import NO_ID
from mirror.records import records

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from mirror.clusters.topics import Topic

RunArray = npt.NDArray[np.int64]
UPSTREAM, DOWNSTREAM, COUNT = range(3)
VERSION = 0

_INT16 = struct.Struct(">h")
_INT32 = struct.Struct(">i")
_LENGTH = struct.Struct(">I")
_RUN = np.dtype(
    [("partition", ">i4"), ("count", ">i4"), ("up", ">i8"), ("down", ">i8")]
)
_ID_SIZE = 16
_MOST_BYTES = records.BATCH_BYTES - 1024
"""The size of one value: with its batch, any topic accepts it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Block:
    """Runs of one partition, as one transaction wrote them."""

    topic: str
    """On the source."""
    partition: int
    target_topic: str
    topic_id: uuid.UUID
    """The source topic's id: a re-created topic's offsets mean something else."""
    copy_id: uuid.UUID = NO_ID
    """The target topic's, for the same reason; NO_ID if the writer did not say."""
    runs: RunArray

    def is_of(self, copy: Topic) -> bool:
        """Whether they are of the copy that is there now."""
        return self.target_topic == copy.name and (
            NO_ID in (self.copy_id, copy.topic_id) or self.copy_id == copy.topic_id
        )


class MapEntry(NamedTuple):
    """Runs of one topic, as a value has them; ids are as of `Block`."""

    topic: str
    target_topic: str
    topic_id: bytes
    copy_id: bytes
    rows: bytes
    """As they are written, with their partitions."""

    @property
    def identity(self) -> tuple[str, bytes, bytes]:
        """What the rows are of, besides the topic on the source."""
        return self[1:4]

    @property
    def row_count(self) -> int:
        """How many rows there are."""
        return len(self.rows) // _RUN.itemsize

    def following(self, before: bytes, value: bytes) -> MapEntry | None:
        """The entry of `value`, if that differs in its rows alone from the value
        `before`, whose only entry this is.
        """
        head = len(before) - len(self.rows) - _LENGTH.size
        at = head + _LENGTH.size
        if value[:head] != before[:head] or len(value) < at:
            return None
        if _LENGTH.unpack_from(value, head)[0] * _RUN.itemsize != len(value) - at:
            return None
        return MapEntry(*self[:4], value[at:])


def topic_name(source_alias: str, separator: str = ".") -> str:
    """The target topic that contains the map for a source cluster."""
    return own_topics.OFFSET_MAP.named(source_alias, separator)


def joined(runs: RunArray) -> RunArray:
    """The same, with neighbours merged where both sides continue without a hole. A run
    does not take in the floor that follows it; a floor that says nothing, because runs
    go on in its place, is gone.
    """
    if len(runs) < 2:
        return runs
    ups, downs, counts = runs[:, UPSTREAM], runs[:, DOWNSTREAM], runs[:, COUNT]
    begins = np.ones(len(runs), np.bool_)
    begins[1:] = ups[1:] - ups[:-1] != counts[:-1]
    begins[1:] |= downs[1:] - downs[:-1] != counts[:-1]
    begins[1:] |= (counts[1:] == 0) & (counts[:-1] > 0)
    if begins.all():
        return runs
    firsts = np.flatnonzero(begins)
    out = runs[firsts].copy()
    out[:, COUNT] = np.add.reduceat(runs[:, COUNT], firsts)
    return out


def falls(runs: RunArray) -> npt.NDArray[np.bool_]:
    """For each run but the first, whether it is below the end of the one before."""
    ups, downs, counts = runs[:, UPSTREAM], runs[:, DOWNSTREAM], runs[:, COUNT]
    return (ups[1:] < ups[:-1] + counts[:-1]) | (downs[1:] < downs[:-1] + counts[:-1])


def cut_at(runs: RunArray, downstream: int) -> RunArray:
    """Those, and parts of those, below an offset of the target; they ascend there."""
    kept = runs[: int(np.searchsorted(runs[:, DOWNSTREAM], downstream))]
    if len(kept) and kept[-1, DOWNSTREAM] + kept[-1, COUNT] > downstream:
        kept = kept.copy()
        kept[-1, COUNT] = downstream - kept[-1, DOWNSTREAM]
    return kept


def between(runs: RunArray, first: int, end: int, column: int) -> RunArray:
    """Those, and parts of those, from `first` up to `end` on one side."""
    begins = runs[:, column]
    ends = begins + runs[:, COUNT]
    within = (begins < end) & (ends > first)
    if within.all():
        if begins.min(initial=end) >= first and ends.max(initial=first) <= end:
            return runs
        kept = runs.copy()
    else:
        kept = runs[within]
    into = np.maximum(first - kept[:, column], 0)
    beyond = np.maximum(kept[:, column] + kept[:, COUNT] - end, 0)
    kept[:, UPSTREAM] += into
    kept[:, DOWNSTREAM] += into
    kept[:, COUNT] -= into + beyond
    return kept


def encode(blocks: Iterable[Block]) -> list[bytes]:
    """Values with all the blocks, each small enough for any topic."""
    values: list[bytearray] = []
    ordered = sorted(blocks, key=lambda block: (block.topic, block.partition))
    for _, group in itertools.groupby(ordered, key=lambda block: block.topic):
        for part in _parts(list(group)):
            if not values or len(values[-1]) + len(part) > _MOST_BYTES:
                values.append(bytearray(_INT16.pack(VERSION)))
            values[-1] += part
    return [bytes(value) for value in values]


def encode_late(blocks: Iterable[Block]) -> list[tuple[bytes, bytes]]:
    """Keys and values with blocks of late records. Readers that do not know them see
    records of the map without runs.
    """
    return [(value, _INT16.pack(VERSION)) for value in encode(blocks)]


def decode(
    value: bytes, *, only: Callable[[str], bool] | None = None
) -> Iterator[Block]:
    """The blocks of one value; of those source topics alone that `only` lets through.
    The runs of each ascend on both sides: where they do not, another block begins.

    Raises:
        CorruptBatchError: it is of an unknown version, or does not end where it should.
    """
    for found in entries(value):
        if only is None or only(found.topic):
            yield from blocks(found)


def entries(value: bytes) -> Iterator[MapEntry]:
    """The same before the runs are sorted out.

    Raises:
        CorruptBatchError: as `decode`.
    """
    version = _INT16.unpack_from(value)[0] if len(value) >= _INT16.size else -1
    if version != VERSION:
        raise CorruptBatchError(
            f"the offset map has a record of version {version}; this mirror reads "
            f"version {VERSION}: use the newest mirror for this target"
        )
    at = _INT16.size
    copy, copy_id = "", NO_ID.bytes
    try:
        while at < len(value):
            topic, at = _string(value, at)
            target_topic, at = _string(value, at)
            topic_id = value[at : at + _ID_SIZE]
            at += _ID_SIZE
            count = _LENGTH.unpack_from(value, at)[0]
            at += _LENGTH.size
            rows, at = _rows_at(value, at, count)
            if not topic:
                copy, copy_id = target_topic, topic_id
                continue
            yield MapEntry(
                topic,
                target_topic,
                topic_id,
                copy_id if copy == target_topic else NO_ID.bytes,
                rows,
            )
    except (ValueError, struct.error) as error:
        raise CorruptBatchError(
            f"a record of the offset map is damaged: {error}"
        ) from error


def together(entries: Sequence[MapEntry]) -> MapEntry:
    """The rows of several entries of one topic and copy, by partition, in their order
    within each.
    """
    rows = np.frombuffer(b"".join([each.rows for each in entries]), _RUN)
    ordered = rows[np.argsort(rows["partition"], kind="stable")]
    return MapEntry(*entries[0][:4], ordered.tobytes())


def blocks(of: MapEntry) -> Iterator[Block]:
    """A block per partition; a further one where its runs do not ascend."""
    topic_id, copy_id = uuid.UUID(bytes=of.topic_id), uuid.UUID(bytes=of.copy_id)
    for partition, runs in _by_partition(np.frombuffer(of.rows, _RUN)):
        yield Block(
            topic=of.topic,
            partition=partition,
            target_topic=of.target_topic,
            topic_id=topic_id,
            copy_id=copy_id,
            runs=runs,
        )


def _parts(blocks: list[Block]) -> Iterator[bytes]:
    """Blocks of one topic, encoded, cut so that each part has room in a value."""
    most = (_MOST_BYTES - _INT16.size - len(_head(blocks[0], 0))) // _RUN.itemsize
    part: list[bytes] = []
    count = 0
    for block in blocks:
        for first in range(0, len(block.runs), most):
            piece = block.runs[first : first + most]
            if count + len(piece) > most:
                yield _head(blocks[0], count) + b"".join(part)
                part, count = [], 0
            count += len(piece)
            part.append(_rows(block.partition, piece))
    if part:
        yield _head(blocks[0], count) + b"".join(part)


def _head(block: Block, count: int) -> bytes:
    head = _entry(block.topic, block.target_topic, block.topic_id, count)
    if block.copy_id == NO_ID:
        return head
    return _entry("", block.target_topic, block.copy_id, 0) + head


def _entry(topic: str, target_topic: str, topic_id: uuid.UUID, count: int) -> bytes:
    source, target = topic.encode(), target_topic.encode()
    return b"".join(
        (
            _INT16.pack(len(source)),
            source,
            _INT16.pack(len(target)),
            target,
            topic_id.bytes,
            _INT32.pack(count),
        )
    )


def _rows(partition: int, runs: RunArray) -> bytes:
    rows = np.empty(len(runs), _RUN)
    rows["partition"] = partition
    rows["count"] = runs[:, COUNT]
    rows["up"] = runs[:, UPSTREAM]
    rows["down"] = runs[:, DOWNSTREAM]
    return rows.tobytes()


def _rows_at(value: bytes, at: int, count: int) -> tuple[bytes, int]:
    end = at + count * _RUN.itemsize
    if end > len(value):
        raise ValueError(f"{count} runs in {len(value) - at} bytes")
    return value[at:end], end


def _string(value: bytes, at: int) -> tuple[str, int]:
    length = _INT16.unpack_from(value, at)[0]
    at += _INT16.size
    if length < 0 or at + length > len(value):
        raise ValueError(f"a string of {length} bytes at {at}")
    return value[at : at + length].decode(), at + length


def _by_partition(rows: npt.NDArray[np.void]) -> Iterator[tuple[int, RunArray]]:
    runs = np.empty((len(rows), 3), np.int64)
    runs[:, UPSTREAM] = rows["up"]
    runs[:, DOWNSTREAM] = rows["down"]
    runs[:, COUNT] = rows["count"]
    partitions = rows["partition"]
    if len(rows) == 1:
        yield int(partitions[0]), runs
        return
    begins = (partitions[1:] != partitions[:-1]) | falls(runs)
    cuts = (np.flatnonzero(begins) + 1).tolist()
    for first, last in itertools.pairwise([0, *cuts, len(rows)]):
        if first < last:
            yield int(partitions[first]), runs[first:last]
