"""Lists the records of fetched batches one by one, undecoded.

Main function: `listed`, which unpacks batches and locates the parts of their records.
It serves the few callers that inspect records without copying them (see `marks`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from mirror.batches import codecs, kernels, scan, to_columns
from mirror.batches.batch import CODEC_MASK, damaged_records, sections
from mirror.clusters.wire.produce import HEADER_SIZE

if TYPE_CHECKING:
    from collections.abc import Iterator

    from mirror.batches.batch import Buffer, Rows

_NOTHING = np.empty(0, np.uint8)
_MOST_BYTES = 1 << 62
_AT_ONCE = 1 << 16


def listed(
    buffer: Buffer, rows: Rows, *, position: int = 0
) -> Iterator[tuple[Buffer, Rows]]:
    """The bytes that contain records, and a row per record from `position` on (columns:
    `to_columns.OFFSET` and so on), at least once for each batch.

    Raises:
        CorruptBatchError: records do not fit their batch.
    """
    result = np.zeros(to_columns.RESULTS, np.int64)
    for row in rows:
        source, start = buffer, int(row[scan.AT]) + HEADER_SIZE
        end = int(row[scan.AT] + row[scan.SIZE])
        codec = int(row[scan.ATTRIBUTES]) & CODEC_MASK
        if codec != codecs.NONE:
            unpacked = bytearray(codecs.decompress(codec, buffer.data[start:end]))
            source, start, end = np.frombuffer(unpacked, np.uint8), 0, len(unpacked)
        section = sections(row[None])
        section[0, kernels.SOURCE_AT] = start
        section[0, kernels.SOURCE_END] = end
        state = np.zeros(kernels.STATES, np.int64)
        while state[kernels.ROW] == 0:
            count = min(int(row[scan.COUNT]), _AT_ONCE)
            places = np.empty((count, to_columns.PLACE_COLUMNS), np.int64)
            to_columns.find(
                source, section, state, position,
                _NOTHING, _NOTHING, _NOTHING, _MOST_BYTES, places, result,
            )  # fmt: skip
            if result[to_columns.BROKEN]:
                raise damaged_records(row[scan.BASE])
            yield source, places[: result[to_columns.FOUND]]
