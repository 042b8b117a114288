"""Rewriting with a user's function: unpack, decode, call it, encode, pack.

Main type: `TransformingRewriter`, which replaces `Rewriter` in flows with a transform.
If the function fails, the records before are copied and the rest is left, so that the
failure comes first next time. With a dead-letter topic, it tries smaller and smaller
parts instead until it finds the single records that fail. The function never sees
records that the flow leaves out, and cannot change provenance headers.
"""

from __future__ import annotations

from dataclasses import dataclass
import time
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from mirror.copying import dead_letters
from mirror.copying.rewrite import MERGE_BYTES, Holes, Rewriter, Rewritten
from mirror.copying.transform import transform_of
from mirror.errors import TransformError
from mirror.records import codecs, from_columns, merge_loop, scan, to_columns
from mirror.records.arrow import Columns, Decoder
from mirror.records.batch import CODEC_MASK
from mirror.records.schema import KEPT
from mirror.status.values import Counts

if TYPE_CHECKING:
    from collections.abc import Callable

    from mirror.clusters.wire.produce import EncodedBatch
    from mirror.config.schema import FlowConfig
    from mirror.copying.provenance import Provenance
    from mirror.copying.schemas import SchemaBarrier
    from mirror.copying.transform import Transform
    from mirror.records.arrow import Chunk
    from mirror.records.batch import Buffer, Rows

_TRYING_SECONDS = 1.0
"""How long to search for failing records before going on with what is found."""


@dataclass(slots=True, kw_only=True)
class _Tried:
    """The function's results for a chunk."""

    kept: list[pa.RecordBatch]
    failed: list[tuple[int, str]]
    """Records by their index in the chunk, each with its error."""
    count: int
    """How many records were tried, from the first on."""


class TransformingRewriter(Rewriter):
    """Applies the function to the batches of one partition at a time."""

    def __init__(
        self,
        provenance: Provenance,
        *,
        codec: int | None,
        transform: Transform,
        dead_letters_of: str | None,
        spares: Callable[[str], bool] = lambda _topic: False,
        most_unpacked: int = codecs.MOST_UNPACKED,
        schemas: SchemaBarrier | None = None,
    ) -> None:
        """`dead_letters_of`: the source's alias if failing records become dead letters;
        None if they hold up their partition. `spares`: says which topics bypass the
        function.
        """
        super().__init__(
            provenance, codec=codec, most_unpacked=most_unpacked, schemas=schemas
        )
        self._relays = False
        self._transform = transform
        self._spares = spares
        self._dead_letters_of = dead_letters_of
        self._decoder = Decoder(
            via=provenance.key,
            target_suffix=provenance.target_suffix,
            feeders=provenance.feeders,
            homes=provenance.homes,
        )
        self._deadline = 0.0

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
        """As `Rewriter` does.

        Raises:
            CorruptBatchError: records do not fit their batch.
            TransformError: the function fails on the first records.
        """
        self._deadline = time.monotonic() + _TRYING_SECONDS
        return super().rewrite(
            buffer, rows, position=position, max_bytes=max_bytes, at=at, holes=holes
        )

    def _merge(
        self, buffer: Buffer, rows: Rows, position: int, max_bytes: int, done: Rewritten
    ) -> None:
        if self._spares(self._at[0]):
            super()._merge(buffer, rows, position, max_bytes, done)
            return
        source_codec = int(rows[0, scan.ATTRIBUTES]) & CODEC_MASK
        codec = source_codec if self._codec is None else self._codec
        limit = min(max_bytes, MERGE_BYTES)
        for source, part in self._sections(buffer, rows, source_codec, position, done):
            for chunk in self._decoder.read(
                source, part, at=self._at, position=position
            ):
                if not self._take(chunk, codec, limit, done):
                    break

    def _take(self, chunk: Chunk, codec: int, limit: int, done: Rewritten) -> bool:
        """Add one chunk to `done`; False if what follows must wait."""
        offsets = chunk.offsets
        left_out = Counts(
            looped=chunk.looped, unexplained=chunk.unexplained, away=chunk.away
        )
        if not len(offsets):
            done.counts += left_out
            return True
        try:
            tried = self._try(chunk.batch)
        except TransformError as error:
            if done.batches or done.counts.removed or done.counts.dead_letters:
                done.stopped_at = int(offsets[0])
                return False
            raise TransformError(
                f"{self._transform.name} fails on offsets {offsets[0]} to "
                f"{offsets[-1]} of {self._at[0]}-{self._at[1]}: {error}"
            ) from error
        kept = _joined(tried.kept)
        if done.oldest < 0:
            done.oldest = int(chunk.places[0, to_columns.TIME])
        before = len(done.batches)
        if kept.num_rows:
            newest = self._encode(chunk, kept, (limit, codec), done.batches, done)
            done.newest = max(done.newest, newest)
        if tried.failed:
            letters = dead_letters.letters(
                chunk.batch, tried.failed, cluster=self._dead_letters_of or ""
            )
            dead: list[EncodedBatch] = []
            # They are for people: with the source's ids, as the function saw them.
            self._encode(chunk, letters, (limit, codec), dead, None)
            for batch in dead:
                batch.runs = None  # a dead letter is not a copy: no group resumes there
            done.dead_batches += dead
            done.made += sum(batch.size for batch in dead)
        done.counts += Counts(
            removed=tried.count - kept.num_rows - len(tried.failed),
            dead_letters=len(tried.failed),
        )
        done.made += sum(batch.size for batch in done.batches[before:])
        if tried.count < len(offsets):
            done.stopped_at = int(offsets[tried.count])
            return False
        done.counts += left_out
        done.reached = int(offsets[-1]) + 1
        if done.enough:
            done.stopped_at = done.reached
        return not done.enough

    def _try(self, batch: pa.RecordBatch) -> _Tried:
        """Try all records at once; if that fails, halves, down to single records."""
        tried = _Tried(kept=[], failed=[], count=0)
        waiting = [(0, batch.num_rows)]
        while waiting:
            first, count = waiting.pop()
            if tried.count and time.monotonic() > self._deadline:
                break
            try:
                tried.kept.append(self._transform(batch.slice(first, count)))
            except TransformError as error:
                if self._dead_letters_of is None:
                    raise
                if count > 1:
                    half = count // 2
                    waiting += [(first + half, count - half), (first, half)]
                    continue
                tried.failed.append((first, str(error)))
            tried.count = first + count
        return tried

    def _encode(
        self,
        chunk: Chunk,
        rows: pa.RecordBatch,
        form: tuple[int, int],
        batches: list[EncodedBatch],
        done: Rewritten | None,
    ) -> int:
        """Add batches; returns the newest time in them. `form`: a batch's size limit
        and codec. `done` counts records that get other ids; None: all keep theirs.
        """
        limit, codec = form
        wanted = Columns.of(chunk, rows)
        provenance, result = self._provenance, self._result
        state = np.zeros(1, np.int64)
        capacity, newest = limit, -1
        while (first := int(state[0])) < wanted.count:
            out = self._output(capacity)
            from_columns.put(
                *wanted.records,
                provenance.key,
                provenance.stamp,
                state,
                out,
                limit,
                self._runs,
                result,
            )
            if first == state[0]:
                self._used -= 1
                capacity = 2 * out.size  # a single record is larger than the buffer
                continue
            newest = max(newest, int(result[merge_loop.NEWEST]))
            batch = self._packed(out, codec, done)
            batches.append(batch)
            if isinstance(batch.body, bytes):
                self._used -= 1  # nothing points into this output
        return newest


def rewriters(
    flow: FlowConfig,
    provenance: Provenance,
    *,
    codec: int | None,
    count: int,
    schemas: SchemaBarrier | None = None,
) -> list[Rewriter]:
    """As many rewriters with the flow's function as requested.

    Raises:
        TransformError: the function cannot be imported or called.
    """
    transform = transform_of(flow)
    assert transform is not None
    return [
        TransformingRewriter(
            provenance,
            codec=codec,
            transform=transform,
            dead_letters_of=flow.source if flow.dead_letter_topic else None,
            # Mirrors on every hop read heartbeats as they were written.
            spares=flow.is_heartbeats,
            most_unpacked=flow.max_unpacked_bytes,
            schemas=schemas,
        )
        for _ in range(count)
    ]


def _joined(parts: list[pa.RecordBatch]) -> pa.RecordBatch:
    if len(parts) == 1:
        return parts[0]
    table = pa.Table.from_batches(parts, schema=KEPT)
    return pa.RecordBatch.from_arrays(
        [column.combine_chunks() for column in table.columns], schema=KEPT
    )
