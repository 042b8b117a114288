"""From fetched batches to batches to send: relayed as they are, or rewritten.

Main type: `Rewriter`, one per slot, which owns the buffers it writes to: what it
returns is valid until its next `begin`. Relay keeps a batch's bytes and makes a new
header; rewrite unpacks, lets the kernel drop, stamp, renumber and merge, and packs
again. `grouping` says which it is. Neither knows of partitions, producers or
transactions.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from crc32c import crc32c
import numpy as np

from mirror.batches import codecs, kernels, records, scan
from mirror.batches.batch import CODEC_MASK, sections
from mirror.clusters.wire.produce import HEADER_SIZE, EncodedBatch
from mirror.errors import CorruptBatchError
from mirror.relay.grouping import MERGE_BYTES, groups
from mirror.status.counts import NOTHING, Counts

if TYPE_CHECKING:
    from collections.abc import Iterator

    from mirror.batches.batch import Buffer, Rows
    from mirror.clusters.wire.produce import Runs
    from mirror.relay.provenance import Provenance

_WORTH_SUMMING = 16 << 10
"""Bytes of a batch whose sum is better made apart from its header's."""
_MOST_RUNS = 1 << 14
"""Of a batch; so many holes, and it ends."""
_UNPACK_BYTES = 4 << 20
"""So much is unpacked before the next batch waits its turn."""
_ENOUGH_UNPACKED = 64 << 20
_ENOUGH_MADE = 32 << 20
"""So much of one partition is unpacked and made at a time: a few kilobytes may unpack
to gigabytes, and must not fill the memory.
"""
_KEPT_BYTES = 8 << 20
"""A larger buffer is not kept for the next transaction."""


@dataclass(slots=True, kw_only=True)
class Rewritten:
    """What became of some batches. Times are epoch milliseconds, -1 for none."""

    batches: list[EncodedBatch]
    counts: Counts = NOTHING
    """What is not copied, and why; `batches` say what is."""
    newest: int = -1
    oldest: int = -1
    """Of the first record that is copied, as the source has it."""
    unpacked: int = 0
    """Bytes of records that were compressed, and had to be unpacked."""
    dead_batches: list[EncodedBatch] = field(default_factory=list)
    """For the dead-letter topic."""
    stopped_at: int = -1
    """The source offset from which on nothing was done, -1: all was."""
    reached: int = -1
    """The source offset up to which all is done so far."""
    made: int = 0
    """Bytes of the batches, those for the dead-letter topic too."""

    @property
    def enough(self) -> bool:
        """Whether what is left shall be done another time."""
        return self.made >= _ENOUGH_MADE


class Rewriter:
    """Turns the batches of one partition at a time into batches to send."""

    def __init__(
        self,
        provenance: Provenance,
        *,
        codec: int | None,
        most_unpacked: int = codecs.MOST_UNPACKED,
    ) -> None:
        """`codec`: what to compress with; None keeps what each source batch had.
        `most_unpacked`: bytes that a batch may unpack to.
        """
        self._provenance = provenance
        self._relays = not provenance.changes_records
        self._codec = codec
        self._most_unpacked = most_unpacked
        self._outputs: list[Buffer] = []
        self._used = 0
        self._unpacked = np.empty(_UNPACK_BYTES, np.uint8)
        self._runs = np.empty((_MOST_RUNS, 3), np.int64)
        self._result = np.zeros(kernels.RESULTS, np.int64)
        self._at = ("", 0)

    @property
    def keeps_source(self) -> bool:
        """Whether what it returns may lie in the buffers that it was given."""
        return self._relays

    def begin(self) -> None:
        """Take all output buffers back: what was returned before is sent by now."""
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
    ) -> Rewritten:
        """Batches of at most `max_bytes` with the records from `position` on.

        `at`: the topic and partition that they are of. What would be too much for one
        time is left, and so is all from a damaged batch on that is not the first.

        A single record larger than that gets a batch of its own all the same: the
        broker will say so.

        Raises:
            CorruptBatchError: records of the first batch do not fit it, or unpack to
                more than is allowed.
        """
        done = Rewritten(batches=[])
        self._at = at
        try:
            for first, last, relayed in groups(
                rows, position, max_bytes, codec=self._codec, relays=self._relays
            ):
                if relayed:
                    self._relay(buffer, rows[first], done)
                else:
                    self._merge(buffer, rows[first:last], position, max_bytes, done)
                if done.stopped_at >= 0:
                    break
        except CorruptBatchError:
            if done.reached <= position:
                raise
            done.stopped_at = done.reached  # the next time it comes first
        if len(rows) and done.stopped_at > rows[-1, scan.LAST]:
            done.stopped_at = -1
        return done

    def _relay(self, buffer: Buffer, row: Rows, done: Rewritten) -> None:
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
        done.newest = max(done.newest, newest)
        if done.oldest < 0:
            done.oldest = int(row[scan.BASE_TIME])

    def _merge(
        self, buffer: Buffer, rows: Rows, position: int, max_bytes: int, done: Rewritten
    ) -> None:
        source_codec = int(rows[0, scan.ATTRIBUTES]) & CODEC_MASK
        codec = source_codec if self._codec is None else self._codec
        limit = min(max_bytes, MERGE_BYTES)
        for source, part in self._sections(buffer, rows, source_codec, done):
            self._merge_part(source, part, position, (limit, codec), done)
            if done.stopped_at >= 0:
                return

    def _merge_part(
        self,
        source: Buffer,
        part: Rows,
        position: int,
        form: tuple[int, int],
        done: Rewritten,
    ) -> None:
        """Add the records of some sections. `form`: a batch's size and its codec."""
        limit, codec = form
        state = np.zeros(kernels.STATES, np.int64)
        provenance, result = self._provenance, self._result
        capacity, whole = limit, len(part)
        while (row := int(state[kernels.ROW])) < whole:
            out = self._output(capacity)
            before = (row, int(state[kernels.DONE]))
            kernels.merge(
                source,
                part[:whole],
                state,
                position,
                out,
                limit,
                *(provenance.key, provenance.stamp, provenance.target_suffix),
                *(provenance.feeders, self._runs, result),
            )
            if (broken := int(result[kernels.BROKEN]) - 1) >= 0:
                self._used -= 1
                if broken == row:
                    raise _damaged(part[row])
                whole = broken  # what stands before it is copied
                continue
            if before == (int(state[kernels.ROW]), int(state[kernels.DONE])):
                self._used -= 1
                capacity = 2 * out.size  # one record larger than all that
                continue
            done.reached = _reached(part, state)
            done.counts += Counts(
                looped=int(result[kernels.LOOPED]),
                unexplained=int(result[kernels.UNEXPLAINED]),
            )
            copied = int(result[kernels.COPIED])
            if copied:
                done.newest = max(done.newest, int(result[kernels.NEWEST]))
                if done.oldest < 0:
                    done.oldest = int(result[kernels.OLDEST])
                section = out.data[HEADER_SIZE : int(result[kernels.END])]
                batch = _pack(section, codec, result, self._runs)
                done.batches.append(batch)
                done.made += batch.size
            if not copied or isinstance(batch.body, bytes):
                self._used -= 1  # nothing points into this output
            if done.enough:
                done.stopped_at = done.reached
                return
        if whole < len(part):
            raise _damaged(part[whole])

    def _sections(
        self, buffer: Buffer, rows: Rows, codec: int, done: Rewritten
    ) -> Iterator[tuple[Buffer, Rows]]:
        """Where the uncompressed records lie, some batches at a time: in place, or
        unpacked, which holds until the next are asked for. Who asks is done with what
        was given.
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
            found[row, kernels.SOURCE_AT], found[row, kernels.SOURCE_END] = at, end
            done.unpacked += len(unpacked)
            del unpacked  # a large one need not be there twice
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


def _reached(part: Rows, state: Rows) -> int:
    """Up to which source offset a merge got."""
    row = int(state[kernels.ROW])
    if state[kernels.DONE]:
        return int(part[row, kernels.FIRST_OFFSET] + state[kernels.REACHED]) + 1
    last = part[row - 1]
    return int(last[kernels.FIRST_OFFSET] + last[kernels.LAST_DELTA]) + 1


def _damaged(section: Rows) -> CorruptBatchError:
    return CorruptBatchError(
        f"the batch at offset {section[kernels.FIRST_OFFSET]} is damaged: its records "
        "have wrong lengths"
    )


def _pack(section: memoryview, codec: int, result: Rows, runs: Runs) -> EncodedBatch:
    """A batch of what `kernels.merge` laid out and told of it."""
    body: memoryview | bytes = section
    used = codecs.NONE
    if codec != codecs.NONE:
        packed = codecs.compress(codec, section)
        # What does not shrink is sent plain: so the limit that held for the
        # uncompressed records holds for the batch.
        if len(packed) < len(section):
            body, used = packed, codec
    count = int(result[kernels.COPIED])
    header = records.header(
        size=HEADER_SIZE + len(body),
        attributes=used,
        count=count,
        base_time=int(result[kernels.OLDEST]),
        newest=int(result[kernels.NEWEST]),
    )
    return EncodedBatch(
        header=header,
        body=body,
        count=count,
        runs=runs[: int(result[kernels.RUNS])].copy(),
        # Later the processor has other things at hand.
        body_sum=crc32c(body) if len(body) >= _WORTH_SUMMING else None,
    )
