"""Turns fetched batches into batches to send, relayed as they are or rewritten.

Main type: `Rewriter`, one per transaction in flight. It owns the buffers it writes to:
what it returns is valid until its next `begin`. Relaying keeps a batch's bytes and
builds a new header; rewriting unpacks, lets the kernel drop, stamp, renumber and merge
records, and packs them again. `groups` chooses between the two. Neither knows about
producers or transactions.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from crc32c import crc32c
import numpy as np

from mirror.clusters.wire.produce import HEADER_SIZE, EncodedBatch
from mirror.errors import CorruptBatchError
from mirror.records import codecs, fillers, merge_loop, records, scan
from mirror.records.batch import (
    CODEC_MASK,
    DELETE_HORIZON,
    LOG_APPEND_TIME,
    damaged_records,
    sections,
)
from mirror.status.values import NOTHING, Counts

if TYPE_CHECKING:
    from collections.abc import Iterator

    from mirror.clusters.wire.produce import Runs
    from mirror.copying.provenance import Provenance
    from mirror.copying.schemas import SchemaBarrier, Unknown
    from mirror.records.batch import Buffer, Rows


_MOST_RUNS = 1 << 14
"""The most runs per batch: with more holes in its offsets, a batch ends early."""
_UNPACK_BYTES = 4 << 20
"""How much is unpacked before the next batch must wait."""
_ENOUGH_UNPACKED = 64 << 20
_ENOUGH_MADE = 32 << 20
"""How much of one partition is unpacked and written at a time: a few kilobytes may
unpack to gigabytes and must not fill the memory.
"""
_WIDE = 64
"""Offsets in a hole between batches from which on fillers get batches of their own."""
_NOTHING = np.empty(0, np.uint8)
_OF_FILLERS = (merge_loop.COPIED, merge_loop.FILLERS)
_KEPT_BYTES = 8 << 20
"""A larger buffer is not kept for the next transaction."""


@dataclass(frozen=True, slots=True)
class Holes:
    """Which offsets get a filler if no record to copy is there."""

    to: int
    """Those from the position up to this one."""
    seen: Rows
    """All batches in between, for their times."""
    keyed: bool
    """Whether fillers need a key."""

    def time(self, offset: int) -> int:
        """Of a filler there, epoch ms: what the source has there or before it, else
        behind it. So what is old is not new in the copy.
        """
        timed = self.seen[self.seen[:, scan.MAX_TIME] >= 0]
        if not len(timed):  # the log cleaner has emptied all of them
            return -1
        row = np.searchsorted(timed[:, scan.BASE], offset, "right") - 1
        return int(timed[max(int(row), 0), scan.MAX_TIME])


@dataclass(slots=True, kw_only=True)
class Rewritten:
    """The result for some batches. Times are epoch milliseconds, -1 for none."""

    batches: list[EncodedBatch]
    counts: Counts = NOTHING
    """What is not copied, and why; `batches` has what is copied."""
    newest: int = -1
    oldest: int = -1
    """The time of the first record that is copied, as on the source."""
    unpacked: int = 0
    """Bytes of compressed records after unpacking."""
    dead_batches: list[EncodedBatch] = field(default_factory=list)
    """For the dead-letter topic."""
    stopped_at: int = -1
    """The source offset from which nothing was done; -1 if all was."""
    reached: int = -1
    """The source offset up to which everything is done so far."""
    made: int = 0
    """Bytes of the batches, including those for the dead-letter topic."""
    unknown: tuple[Unknown, ...] = ()
    """What the record at `stopped_at` waits for: ids of schemas."""
    hole: bool = False
    """Whether there is no record to copy at `stopped_at`."""
    filled: int = -1
    """The first offset behind those that have a record or a filler; -1: of no use."""

    @property
    def enough(self) -> bool:
        """Whether to leave the rest for another time."""
        return self.made >= _ENOUGH_MADE


class Rewriter:
    """Turns the batches of one partition at a time into batches to send."""

    def __init__(
        self,
        provenance: Provenance,
        *,
        codec: int | None,
        most_unpacked: int = codecs.MOST_UNPACKED,
        schemas: SchemaBarrier | None = None,
    ) -> None:
        """`codec`: what to compress with; None keeps each source batch's codec.
        `most_unpacked`: the most bytes that a batch may unpack to. `schemas`: says
        which records must wait, and which ids they get; None: none wait, and all keep
        theirs.
        """
        self._provenance = provenance
        self._schemas = schemas
        translates = schemas is not None and schemas.translates
        self._relays = not (provenance.changes_records or translates)
        self._codec = codec
        self._most_unpacked = most_unpacked
        self._outputs: list[Buffer] = []
        self._used = 0
        self._unpacked = np.empty(_UNPACK_BYTES, np.uint8)
        self._runs = np.empty((_MOST_RUNS, 3), np.int64)
        self._result = np.zeros(merge_loop.RESULTS, np.int64)
        self._at = ("", 0)
        self._holes: Holes | None = None
        self._filler = _NOTHING
        self.takes_loops = False
        """Whether records that came from the target are copied like others."""

    @property
    def keeps_source(self) -> bool:
        """Whether returned batches may point into the buffers passed in."""
        return self._relays

    def begin(self) -> None:
        """Reuse all output buffers: what was returned before is sent by now."""
        self._used = 0
        self._outputs = [each for each in self._outputs if each.size <= _KEPT_BYTES]
        if self._unpacked.size > _KEPT_BYTES:
            self._unpacked = np.empty(_UNPACK_BYTES, np.uint8)

    def rewrite(
        self,
        buffer: Buffer,
        rows: Rows,
        *,
        position: int,
        max_bytes: int,
        at: tuple[str, int] = ("", 0),
        holes: Holes | None = None,
    ) -> Rewritten:
        """Batches of at most `max_bytes` with the records from `position` on.

        `at`: their topic and partition. `holes`: which get fillers; None: none do. What
        looped, or is away from home, gets none. Stops early if there is too much to do
        at once, or before a damaged batch that is not the first.

        A single record larger than `max_bytes` still gets a batch of its own; the
        broker will reject it.

        Raises:
            CorruptBatchError: records of the first batch do not fit it, or unpack to
                more than is allowed.
        """
        done = Rewritten(batches=[], filled=-1 if holes is None else position)
        self._at, self._holes = at, holes
        self._filler = self._filler_for(holes)
        try:
            for part in _between_wide_holes(rows, holes):
                self._add(buffer, part, position, max_bytes, done)
            if holes is not None:
                self._fill(holes.to, max_bytes, done)
        except CorruptBatchError:
            if (done.reached if holes is None else done.filled) <= position:
                raise
            done.stopped_at = done.reached  # next time it comes first, and raises
        if holes is not None:
            done.stopped_at = -1 if done.filled >= holes.to else done.filled
        elif len(rows) and done.stopped_at > rows[-1, scan.LAST]:
            done.stopped_at = -1
        return done

    def _add(
        self, buffer: Buffer, rows: Rows, position: int, max_bytes: int, done: Rewritten
    ) -> None:
        """Add these batches, and fillers before them."""
        if len(rows):
            self._fill(int(rows[0, scan.BASE]), max_bytes, done, least=_WIDE)
        for first, last, relayed in groups(
            rows, position, max_bytes, codec=self._codec, relays=self._relays
        ):
            if done.stopped_at >= 0:
                return
            if relayed:
                if self._may_go(buffer, rows[first:last], position, done):
                    self._relay(buffer, rows[first], max_bytes, done)
                    if done.unpacked >= _ENOUGH_UNPACKED:  # to look at its records
                        done.stopped_at = done.reached
            else:
                self._merge(buffer, rows[first:last], position, max_bytes, done)

    def _filler_for(self, holes: Holes | None) -> Buffer:
        if holes is None:
            return _NOTHING
        stamp = self._provenance.stamp.tobytes()
        made = fillers.tail(self._provenance.filler, stamp, keyed=holes.keyed)
        return np.frombuffer(bytearray(made), np.uint8)

    def _fill(
        self, to: int, max_bytes: int, done: Rewritten, *, least: int = 1
    ) -> None:
        """Put fillers at all offsets up to one, if they are so many."""
        if (holes := self._holes) is None or to - done.filled < least:
            return
        time = holes.time(done.filled)
        for each in fillers.batches(
            done.filled, to, self._filler.tobytes(), time=time, max_bytes=max_bytes
        ):
            if done.stopped_at >= 0:
                return
            done.batches.append(each)
            done.newest = max(done.newest, time)
            done.filled += each.count
            done.made += each.size
            if done.enough:
                done.stopped_at = done.filled

    def _may_go(
        self, buffer: Buffer, rows: Rows, position: int, done: Rewritten
    ) -> bool:
        """Whether all of these batches may be copied now, by their records' schemas."""
        if self._schemas is None or not self._schemas.looks_at(self._at[0]):
            return True
        codec = int(rows[0, scan.ATTRIBUTES]) & CODEC_MASK
        looked = Rewritten(batches=[])
        for _ in self._sections(buffer, rows, codec, position, looked):
            pass
        done.unpacked += looked.unpacked
        if looked.unknown:
            done.stopped_at, done.unknown = int(rows[0, scan.BASE]), looked.unknown
            return False
        done.counts += looked.counts
        return True

    def _relay(
        self, buffer: Buffer, row: Rows, max_bytes: int, done: Rewritten
    ) -> None:
        self._fill(int(row[scan.BASE]), max_bytes, done)
        if done.stopped_at >= 0:
            return
        at, size = int(row[scan.AT]), int(row[scan.SIZE])
        count, newest = int(row[scan.COUNT]), int(row[scan.MAX_TIME])
        done.batches.append(
            EncodedBatch(
                header=records.header(
                    size=size,
                    attributes=int(row[scan.ATTRIBUTES]) & CODEC_MASK,
                    count=count,
                    base_time=int(row[scan.BASE_TIME]),
                    newest=newest,
                ),
                body=buffer.data[at + HEADER_SIZE : at + size],
                count=count,
                runs=np.array([[int(row[scan.BASE]), 0, count]], np.int64),
            )
        )
        done.reached = int(row[scan.LAST]) + 1
        if self._holes is not None:
            done.filled = done.reached
        done.newest = max(done.newest, newest)
        if done.oldest < 0:
            done.oldest = int(row[scan.BASE_TIME])

    def _merge(
        self, buffer: Buffer, rows: Rows, position: int, max_bytes: int, done: Rewritten
    ) -> None:
        source_codec = int(rows[0, scan.ATTRIBUTES]) & CODEC_MASK
        codec = source_codec if self._codec is None else self._codec
        limit = min(max_bytes, MERGE_BYTES)
        for source, part in self._sections(buffer, rows, source_codec, position, done):
            self._merge_part(source, part, position, (limit, codec), done)

    def _merge_part(
        self,
        source: Buffer,
        part: Rows,
        position: int,
        form: tuple[int, int],
        done: Rewritten,
    ) -> None:
        """Add the records of some sections. `form`: a batch's size limit and codec."""
        limit, codec = form
        state = self._beginning(done)
        provenance, result = self._provenance, self._result
        left_out = provenance.target_suffix[: 0 if self.takes_loops else None]
        homes = self._homes
        capacity, whole = limit, len(part)
        while (row := int(state[merge_loop.ROW])) < whole:
            out = self._output(capacity)
            before = (row, int(state[merge_loop.DONE]))
            merge_loop.merge(
                source,
                part[:whole],
                state,
                position,
                out,
                limit,
                *(provenance.key, provenance.stamp, left_out),
                *(provenance.feeders, homes, self._filler, self._runs, result),
            )
            if (broken := int(result[merge_loop.BROKEN]) - 1) >= 0:
                self._used -= 1
                if broken == row:
                    raise damaged_records(part[row, merge_loop.FIRST_OFFSET])
                whole = broken  # what precedes it is copied
                continue
            copied = int(result[merge_loop.COPIED])
            if not copied and before == (
                int(state[merge_loop.ROW]), int(state[merge_loop.DONE])
            ):  # fmt: skip
                self._used -= 1
                capacity = 2 * out.size  # a single record is larger than the buffer
                continue
            done.reached = _reached(part, state)
            done.filled = int(state[merge_loop.FILLED])
            done.counts += _left_out(result)
            if copied:
                done.newest = max(done.newest, int(result[merge_loop.NEWEST]))
                if done.oldest < 0:
                    done.oldest = int(result[merge_loop.OLDEST])
                batch = self._packed(out, codec, done)
                done.batches.append(batch)
                done.made += batch.size
            if not copied or isinstance(batch.body, bytes):
                self._used -= 1  # nothing points into this output
            if done.enough:
                done.stopped_at = done.reached
                return
        if whole < len(part):
            raise damaged_records(part[whole, merge_loop.FIRST_OFFSET])

    @property
    def _homes(self) -> Buffer:
        homes = self._provenance.homes
        if len(homes) and self._provenance.is_heartbeats(self._at[0]):
            return homes[:0]  # they are ours: their keys have no home
        return homes

    def _beginning(self, done: Rewritten) -> Rows:
        """Of a merge."""
        state = np.zeros(merge_loop.STATES, np.int64)
        state[merge_loop.FILLED] = done.filled
        if self._holes is not None:
            state[merge_loop.TIME] = self._holes.time(done.filled)
        return state

    def _packed(self, out: Buffer, codec: int, done: Rewritten | None) -> EncodedBatch:
        """The records that a kernel has laid out there, with the target's ids of
        schemas, which `done` counts; None: with their own. Only here: what was fetched
        may be worked on again.
        """
        section = out[HEADER_SIZE : int(self._result[merge_loop.END])]
        made, holes = (int(self._result[at]) for at in _OF_FILLERS)
        if codec == codecs.NONE and 2 * holes > made:
            codec = fillers.CODEC  # else a compacted topic's copy may be huge
        if self._schemas is not None and done is not None:
            copied = int(self._result[merge_loop.COPIED])
            changed = self._schemas.translate(self._at[0], section, count=copied)
            done.counts += Counts(translated=changed)
        return pack(section.data, codec, self._result, self._runs)

    def _sections(
        self, buffer: Buffer, rows: Rows, codec: int, position: int, done: Rewritten
    ) -> Iterator[tuple[Buffer, Rows]]:
        """The uncompressed records up to the first one that must wait for its schema,
        in parts that are overwritten when the caller asks for the next ones. There are
        none behind a part in which the caller stops (`done.stopped_at`).
        """
        schemas, left_out = self._schemas, self._provenance
        looks = schemas is not None and schemas.looks_at(self._at[0])
        for source, part in self._whole_sections(buffer, rows, codec, done):
            if schemas is None or not looks:
                yield source, part
                if done.stopped_at >= 0:
                    return
                continue
            cut = schemas.cut(source, part, position, left_out)
            if len(cut.part):
                yield source, cut.part
            strange = cut.strange
            if done.stopped_at >= 0:  # what is behind it comes again, and counts then
                rest = schemas.cut(source, cut.part, done.stopped_at, left_out)
                strange -= rest.strange
            done.counts += Counts(unknown_ids=strange)
            if done.stopped_at >= 0:
                return
            if cut.unknown:
                done.stopped_at, done.unknown = cut.offset, cut.unknown
                return
            if cut.damaged >= 0:
                raise damaged_records(cut.damaged)

    def _whole_sections(
        self, buffer: Buffer, rows: Rows, codec: int, done: Rewritten
    ) -> Iterator[tuple[Buffer, Rows]]:
        """The uncompressed records, some batches at a time: in place, or unpacked into
        a buffer that is overwritten when the caller asks for the next ones.
        """
        found = sections(rows)
        if codec == codecs.NONE:
            yield buffer, found
            done.reached = int(rows[-1, scan.LAST]) + 1
            return
        first = at = 0
        places = rows[:, [scan.AT, scan.SIZE]].tolist()
        for row, (start, size) in enumerate(places):
            section = buffer.data[start + HEADER_SIZE : start + size]
            unpacked, problem = self._unpack(codec, section)
            if at and (problem or at + len(unpacked) > _UNPACK_BYTES):
                yield self._unpacked, found[first:row]
                done.reached = int(rows[row - 1, scan.LAST]) + 1
                if done.unpacked >= _ENOUGH_UNPACKED:
                    done.stopped_at = done.reached
                    return
                first, at = row, 0
            if problem:
                raise CorruptBatchError(
                    f"the batch at offset {rows[row, scan.BASE]}: {problem}"
                )
            end = at + len(unpacked)
            if end > self._unpacked.size:
                self._unpacked = np.empty(end, np.uint8)
            self._unpacked.data[at:end] = unpacked
            found[row, merge_loop.SOURCE_AT], found[row, merge_loop.SOURCE_END] = (
                at,
                end,
            )
            done.unpacked += len(unpacked)
            del unpacked  # do not hold a large one twice
            at = end
        yield self._unpacked, found[first:]
        done.reached = int(rows[-1, scan.LAST]) + 1
        if done.unpacked >= _ENOUGH_UNPACKED:
            done.stopped_at = done.reached

    def _unpack(self, codec: int, section: memoryview) -> tuple[bytes, str]:
        """The records, or what is wrong with them."""
        try:
            return codecs.decompress(codec, section, most=self._most_unpacked), ""
        except CorruptBatchError as error:
            return b"", str(error)

    def _output(self, capacity: int) -> Buffer:
        wanted = max(capacity, MERGE_BYTES) + 4096
        if self._used == len(self._outputs):
            self._outputs.append(np.empty(wanted, np.uint8))
        elif self._outputs[self._used].size < wanted:
            self._outputs[self._used] = np.empty(wanted, np.uint8)
        self._used += 1
        return self._outputs[self._used - 1]


def _left_out(result: Rows) -> Counts:
    """The records that a merge did not copy."""
    if not (result[merge_loop.LOOPED] or result[merge_loop.AWAY]):
        return NOTHING
    return Counts(
        looped=int(result[merge_loop.LOOPED]),
        unexplained=int(result[merge_loop.UNEXPLAINED]),
        away=int(result[merge_loop.AWAY]),
    )


def _reached(part: Rows, state: Rows) -> int:
    """The source offset that a merge reached."""
    row = int(state[merge_loop.ROW])
    if state[merge_loop.DONE]:
        return int(part[row, merge_loop.FIRST_OFFSET] + state[merge_loop.REACHED]) + 1
    last = part[row - 1]
    return int(last[merge_loop.FIRST_OFFSET] + last[merge_loop.LAST_DELTA]) + 1


# ---- packs what a kernel has laid out into a batch to send ----
#
# Main function: `pack`, for every rewriter. It compresses the records, unless they
# do not shrink, and makes the header.


_WORTH_SUMMING = 16 << 10
"""From this size on, a batch body's checksum is worth computing in advance."""


def pack(section: memoryview, codec: int, result: Rows, runs: Runs) -> EncodedBatch:
    """A batch of the records that `merge_loop.merge` laid out, as `result` says."""
    body: memoryview | bytes = section
    used = codecs.NONE
    if codec != codecs.NONE:
        packed = codecs.compress(codec, section)
        # Send uncompressed what does not shrink: then the limit that held for the
        # uncompressed records also holds for the batch.
        if len(packed) < len(section):
            body, used = packed, codec
    count = int(result[merge_loop.COPIED])
    header = records.header(
        size=HEADER_SIZE + len(body),
        attributes=used,
        count=count,
        base_time=int(result[merge_loop.OLDEST]),
        newest=int(result[merge_loop.NEWEST]),
    )
    return EncodedBatch(
        header=header,
        body=body,
        count=count,
        runs=runs[: int(result[merge_loop.RUNS])].copy(),
        fillers=int(result[merge_loop.FILLERS]),
        # Now, while the body is still in the CPU's cache.
        body_sum=crc32c(body) if len(body) >= _WORTH_SUMMING else None,
    )


def _between_wide_holes(rows: Rows, holes: Holes | None) -> list[Rows]:
    """The rows in parts before which a wide hole is, except for the first one."""
    if holes is None or not len(rows):
        return [rows]
    wide = rows[1:, scan.BASE] - rows[:-1, scan.LAST] > _WIDE
    return np.split(rows, np.flatnonzero(wide) + 1)


# ---- which fetched batches are relayed as they are, and which are merged ----
#
# Main function: `groups`, which is pure: it splits the batches of one partition, in
# order, into single batches to relay and runs of neighbours to merge.


MERGE_BYTES = 1 << 20
"""The approximate largest size of a merged batch."""
_RELAY_AT_LEAST = 16 << 10
"""A smaller batch is worth merging with its neighbours."""


def groups(
    rows: Rows, position: int, max_bytes: int, *, codec: int | None, relays: bool
) -> Iterator[tuple[int, int, bool]]:
    """Split the rows into (first, last, relayed): one batch to relay, or neighbours of
    one codec to merge.

    `codec`: the codec that all output must have; None keeps each batch's own.
    `relays`: whether any batch may stay as it is.
    """
    relayable = (
        _relayable(rows, position, max_bytes, codec) if relays else [False] * len(rows)
    )
    packing = rows[:, scan.ATTRIBUTES] & CODEC_MASK
    if not (any(relayable) or packing.any()):
        if len(rows):
            yield 0, len(rows), False
        return
    codecs_of = packing.tolist()
    sizes = rows[:, scan.SIZE].tolist()
    first, size = 0, 0
    for row in range(len(rows)):
        if relayable[row]:
            if first < row:
                yield first, row, False
            yield row, row + 1, True
            first, size = row + 1, 0
            continue
        packed = codecs_of[row] != codecs.NONE
        # The kernel takes any number of uncompressed neighbours at once and splits its
        # output itself. Compressed ones are unpacked about 1 MiB at a time.
        if row > first and (
            codecs_of[row] != codecs_of[first] or (packed and size > MERGE_BYTES)
        ):
            yield first, row, False
            first, size = row, 0
        size += sizes[row] * (4 if packed else 1)
    if first < len(rows):
        yield first, len(rows), False


def _relayable(
    rows: Rows, position: int, max_bytes: int, codec: int | None
) -> list[bool]:
    attributes = rows[:, scan.ATTRIBUTES]
    ok = (
        (rows[:, scan.SIZE] >= _RELAY_AT_LEAST)
        & (rows[:, scan.SIZE] <= max_bytes)
        & (rows[:, scan.BASE] >= position)
        & ((attributes & (LOG_APPEND_TIME | DELETE_HORIZON)) == 0)
        # Compaction leaves holes, which brokers reject in a producer's batch.
        & (rows[:, scan.COUNT] == rows[:, scan.LAST] - rows[:, scan.BASE] + 1)
    )
    if codec is not None:
        ok &= (attributes & CODEC_MASK) == codec
    return [bool(value) for value in ok]
