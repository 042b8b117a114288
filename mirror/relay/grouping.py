"""Which fetched batches are relayed as they are, and which are merged.

Main function: `groups`, which is pure: it splits the batches of one partition, in
order, into single batches to relay and runs of neighbours to merge.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from mirror.batches import codecs, scan
from mirror.batches.batch import CODEC_MASK, DELETE_HORIZON, LOG_APPEND_TIME

if TYPE_CHECKING:
    from collections.abc import Iterator

    from mirror.batches.batch import Rows

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
