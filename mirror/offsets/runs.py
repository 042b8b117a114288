"""Runs: which source offsets are at which target offsets.

A run says that the copies of `count` consecutive source offsets are at consecutive
target offsets. Runs of a partition are one int64 array with the columns UPSTREAM,
DOWNSTREAM and COUNT; main type: `Block`, such an array with its partition and topics.
This module encodes and decodes them; `offset_map` keeps them and answers.

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

`gather` takes runs out of many records of the map at once, and `find_pairs` goes
through the map for every place where it says that one record stands.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
import itertools
from operator import itemgetter
import struct
from typing import TYPE_CHECKING, NamedTuple
import uuid

import numpy as np
import numpy.typing as npt

from mirror.clusters.topics import same_topic
from mirror.config import own_topics
from mirror.errors import CorruptBatchError
from mirror.offsets.progress import NO_ID
from mirror.records import records
from mirror.records.reading import TopicReader

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from mirror.clusters.cluster import Cluster
    from mirror.clusters.topics import Topic
    from mirror.config.schema import FlowConfig
    from mirror.records.reading import Record

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
        return self.target_topic == copy.name and same_topic(
            self.copy_id, copy.topic_id
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


def identical(first: int, end: int) -> RunArray:
    """Of copies that have the offsets of their originals."""
    return np.array([[first, first, end - first]], np.int64)


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


# ---- many records of the map at once ----
#
# A flow of small transactions writes some runs per partition and record, and to take
# each record by itself costs more than all else that a reader does. What stands
# together gets one place in the map, the first: a place begins there, and ends where
# the next one begins. So whatever could begin another epoch (`index.Track`) is taken
# record by record: ids that change, runs that fall.

_AT_ONCE = 256
_MOST_RUNS = 4096
"""Batches of the map, and their runs without the last batch's. A question about an old
offset reads as many at least."""

_EntriesByTopic = dict[str, list[tuple[int, "MapEntry"]]]
"""By topic on the source, with the places in the map."""


def gather(
    answers: Iterable[Iterable[Record]], *, only: Callable[[str], bool] | None = None
) -> Iterator[tuple[int, Block, bool]]:
    """The blocks of these records of the map, with their places, and whether they are
    of late records. Those of a partition are in order. `only` as for `runs.decode`.

    Raises:
        CorruptBatchError: as `runs.decode`; it says where. What follows may be
            skipped: begin again.
    """
    # A reader that breaks off goes on behind the last answer: so none waits here.
    for answer in answers:
        yield from _of_answer(answer, only)


def _of_answer(
    found: Iterable[Record], only: Callable[[str], bool] | None
) -> Iterator[tuple[int, Block, bool]]:
    parts: _EntriesByTopic = {}
    batches = count = 0
    values = _Values()
    for at, batch in itertools.groupby(found, key=itemgetter(0)):
        some = list(batch)
        try:
            entries = [
                each
                for _, _, value in some
                for each in values.entries(value)
                if only is None or only(each.topic)
            ]
        except CorruptBatchError as error:
            raise _damaged(error, at) from error
        topics = {each.topic: each.identity for each in entries}
        alone = len(topics) < len(entries) or any(key for _, key, _ in some)
        if batches and (
            alone
            or batches == _AT_ONCE
            or count >= _MOST_RUNS
            or any(
                topic in parts and parts[topic][0][1].identity != identity
                for topic, identity in topics.items()
            )
        ):
            yield from _taken_together(parts)
            parts, batches, count = {}, 0, 0
        if alone:
            yield from _one_by_one(at, some, only)
            continue
        batches += 1
        for each in entries:
            count += each.row_count
            parts.setdefault(each.topic, []).append((at, each))
    yield from _taken_together(parts)


class _Values:
    """Takes values apart. One that differs from the value before in its rows alone, as
    from one small transaction to the next, is not looked through again.
    """

    def __init__(self) -> None:
        self._before: tuple[MapEntry, bytes] | None = None

    def entries(self, value: bytes) -> list[MapEntry]:
        """As `runs.entries`."""
        if self._before is not None:
            entry, before = self._before
            if (following := entry.following(before, value)) is not None:
                return [following]
        found = list(entries(value))
        self._before = (found[0], value) if len(found) == 1 else None
        return found


def _one_by_one(
    at: int, some: Iterable[Record], only: Callable[[str], bool] | None
) -> Iterator[tuple[int, Block, bool]]:
    try:
        for _, key, value in some:
            for block in decode(value, only=only):
                yield at, block, False
            for block in decode(key, only=only) if key else ():
                yield at, block, True
    except CorruptBatchError as error:
        raise _damaged(error, at) from error


def _damaged(error: CorruptBatchError, at: int) -> CorruptBatchError:
    return CorruptBatchError(f"{error} (offset {at})")


def _taken_together(parts: _EntriesByTopic) -> Iterator[tuple[int, Block, bool]]:
    for each in parts.values():
        found = list(blocks(together([entry for _, entry in each])))
        if len({block.partition for block in found}) == len(found):
            for block in found:
                yield each[0][0], replace(block, runs=joined(block.runs)), False
            continue
        for at, entry in each:
            for block in blocks(entry):
                yield at, block, False


# ---- every place of one record ----
#
# `offset_map` answers with the one place at which a group continues; here, copies that
# were made again count as well, and offsets beside a copy do not.


class Pair(NamedTuple):
    """A record and a copy of it."""

    target: int
    source: int
    topic: str
    """On the source."""
    topic_id: uuid.UUID
    """The source topic's id when it was copied; NO_ID if brokers have none."""
    late: bool = False
    """A repair appended it, behind records that follow it on the source."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Pairs:
    """What the map says about one offset."""

    pairs: tuple[Pair, ...] = ()
    """By target offset."""
    floor: Pair | None = None
    """MirrorMaker 2 copied it: it is at these offsets or after them."""
    first: int = -1
    """The first offset of the partition that the map knows; -1 if it knows none."""
    whole: bool = True
    """Off: the oldest part of the map is gone."""
    deleted: bool = False
    """The record was in a copy that was deleted, or is under another name."""


def find_pairs(
    flow: FlowConfig,
    target: Cluster,
    copy: Topic | None,
    partition: int,
    offset: int,
    *,
    topic: str = "",
    topic_id: uuid.UUID = NO_ID,
) -> Pairs:
    """What the map says about a source offset of a `topic` with this id, or without a
    `topic` about an offset of the copy. Runs of deleted topics with the same names are
    no places; with a `topic`, those of deleted copies say where the flow began, and
    that they had the record. `copy`: None if there is none. NO_ID is any id.

    Raises:
        ClusterError: the target does not answer, or the map cannot be read.
    """
    name = topic_name(flow.source, flow.separator)
    if target.topic(name) is None:
        return Pairs()
    column = UPSTREAM if topic else DOWNSTREAM
    found: list[Pair] = []
    floor: Pair | None = None
    first = reached = -1
    deleted = False
    reader = TopicReader(target, name)
    for _, block, late in gather(
        reader.answers(), only=topic.__eq__ if topic else None
    ):
        is_there = copy is not None and block.is_of(copy)
        if block.partition != partition or not (is_there or topic):
            continue
        begins = block.runs[:, column]
        if flow.exactly_once and is_there and not late:
            # Where the copy lost its end, earlier runs are void.
            lost = int(block.runs[0, DOWNSTREAM])
            found = [each for each in found if each.target < lost]
        if not same_topic(topic_id, block.topic_id):
            continue
        lowest = int(begins[0])
        if not late:
            first = lowest if first < 0 else min(first, lowest)
        row = int(np.searchsorted(begins, offset, "right")) - 1
        into = offset - int(begins[row])
        has_it = row >= 0 and into < block.runs[row, COUNT]
        if not is_there:
            deleted |= bool(has_it)
        elif has_it:
            found.append(_pair(block, row, into, late=late))
        if is_there and row >= 0 and begins[row] >= reached and not late:
            reached = int(begins[row])
            floor = _pair(block, row, 0) if not block.runs[row, COUNT] else None
    return Pairs(
        pairs=tuple(sorted(set(found))),
        floor=floor,
        first=first,
        whole=reader.start == 0,
        deleted=deleted,
    )


def _pair(block: Block, row: int, into: int, *, late: bool = False) -> Pair:
    """The record that stands so far into a run."""
    run = block.runs[row]
    return Pair(
        target=int(run[DOWNSTREAM]) + into,
        source=int(run[UPSTREAM]) + into,
        topic=block.topic,
        topic_id=block.topic_id,
        late=late,
    )
