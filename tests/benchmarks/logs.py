"""The batches of a topic on a broker's disk.

Main functions: `batch_shape`, because a producer does not always write the batches that
it was configured for; and `committed_records`, which counts what a read_committed
consumer would get, in a hundredth of the time. Only headers are read.
"""

from __future__ import annotations

from dataclasses import dataclass
import itertools
import struct
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from pathlib import Path

_HEADER = struct.Struct(">qiibIhiqqqhii")
_BEFORE_SIZE = 12
_ENOUGH = 2000
_TRANSACTIONAL = 0x10
_CONTROL = 0x20
# A marker is one record: five bytes of lengths and deltas, then its key, which is a
# version and this kind.
_MARKER = slice(7, 9)
_COMMIT = b"\0\1"


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchShape:
    """Averages."""

    records: float
    bytes: float


@dataclass(frozen=True, slots=True, kw_only=True)
class _Batch:
    bytes: int
    records: int
    producer: int
    transactional: bool
    control: bool
    commit: bool
    """Of a control batch: whether it is a commit."""


def batch_shape(data: Path, topic: str) -> BatchShape:
    """Of the first batches of partition 0."""
    found = list(itertools.islice(_batches(data / f"{topic}-0"), _ENOUGH))
    # The last one was cut short by the end of the load.
    whole = found[:-1] or found
    return BatchShape(
        records=sum(each.records for each in whole) / len(whole),
        bytes=sum(each.bytes for each in whole) / len(whole),
    )


def committed_records(data: Path, topic: str, *, partitions: int) -> int:
    """Those of open and of aborted transactions are left out, and so are markers."""
    return sum(
        _committed(_batches(data / f"{topic}-{number}")) for number in range(partitions)
    )


def _committed(batches: Iterable[_Batch]) -> int:
    total = 0
    open_by_producer: dict[int, int] = {}
    for each in batches:
        if each.control:
            records = open_by_producer.pop(each.producer, 0)
            total += records if each.commit else 0
        elif each.transactional:
            before = open_by_producer.get(each.producer, 0)
            open_by_producer[each.producer] = before + each.records
        else:
            total += each.records
    return total


def _batches(partition: Path) -> Iterator[_Batch]:
    for segment in sorted(partition.glob("*.log")):
        with segment.open("rb") as log:
            while len(header := log.read(_HEADER.size)) == _HEADER.size:
                (_, size, _, _, _, attributes, _, _, _, producer, _, _, count) = (
                    _HEADER.unpack(header)
                )
                control = bool(attributes & _CONTROL)
                rest = size + _BEFORE_SIZE - _HEADER.size
                commit = control and log.read(rest)[_MARKER] == _COMMIT
                if not control:
                    log.seek(rest, 1)
                yield _Batch(
                    bytes=size + _BEFORE_SIZE,
                    records=count,
                    producer=producer,
                    transactional=bool(attributes & _TRANSACTIONAL),
                    control=control,
                    commit=commit,
                )
