"""What the batches of a topic look like on a broker's disk.

Main function: `batch_shape`. A scenario that promises tiny or large batches looks
here, because what a producer was asked for is not always what it wrote.
"""

from __future__ import annotations

from dataclasses import dataclass
import struct
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path

_HEADER = struct.Struct(">qiibIhiqqqhii")
_BEFORE_SIZE = 12
_ENOUGH = 2000


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchShape:
    """Averages."""

    records: float
    bytes: float


def batch_shape(data: Path, topic: str) -> BatchShape:
    """Of the first batches of partition 0."""
    counts, sizes = [], []
    with (data / f"{topic}-0" / f"{0:020}.log").open("rb") as log:
        while len(sizes) < _ENOUGH:
            header = log.read(_HEADER.size)
            if len(header) < _HEADER.size:
                break
            _offset, size, *_, count = _HEADER.unpack(header)
            counts.append(count)
            sizes.append(size + _BEFORE_SIZE)
            log.seek(size + _BEFORE_SIZE - _HEADER.size, 1)
    # The last ones were cut short by the end of the load.
    counts, sizes = counts[:-1] or counts, sizes[:-1] or sizes
    return BatchShape(records=sum(counts) / len(counts), bytes=sum(sizes) / len(sizes))
