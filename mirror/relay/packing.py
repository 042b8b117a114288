"""Packs what a kernel has laid out into a batch to send.

Main function: `pack`, for every rewriter. It compresses the records, unless they do not
shrink, and makes the header.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from crc32c import crc32c

from mirror.batches import codecs, merge_loop, records
from mirror.clusters.wire.produce import HEADER_SIZE, EncodedBatch

if TYPE_CHECKING:
    from mirror.batches.batch import Rows
    from mirror.clusters.wire.produce import Runs

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
        # Now, while the body is still in the CPU's cache.
        body_sum=crc32c(body) if len(body) >= _WORTH_SUMMING else None,
    )
