"""Reads the log of a broker, and changes records in it while the broker is stopped.

Main function: `rewrite`, which lets a test change the batches of one partition's first
segment, and writes them with right checksums. Offsets stay, and so does everything that
the test does not touch. `attributes` tells codecs and transactions of running brokers'
batches. None uses mirror's own code for batches.
"""

from __future__ import annotations

from dataclasses import dataclass, field
import struct
from typing import TYPE_CHECKING

from tests.harness import hostile_batches
from tests.harness.hostile_batches import HEADER_SIZE

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from mirror.playground.cluster import PlaygroundCluster

_HEADER = struct.Struct(">qiibIhiqqqhii")
_CODEC = 0x07
_CONTROL = 0x20


@dataclass(slots=True)
class StoredRecord:
    """One record, as it lies in a log."""

    offset: int
    time: int
    key: bytes | None
    value: bytes | None
    headers: list[tuple[bytes, bytes | None]]


@dataclass(slots=True)
class StoredBatch:
    """A batch of them; `raw` is its bytes, and stays if the records do not change."""

    raw: bytes
    records: list[StoredRecord] = field(default_factory=list)

    @property
    def is_control(self) -> bool:
        return bool(_HEADER.unpack_from(self.raw)[5] & _CONTROL)


def rewrite(
    cluster: PlaygroundCluster,
    topic: str,
    change: Callable[[list[StoredBatch]], list[StoredBatch]],
    *,
    partition: int = 0,
) -> None:
    """`change` gets all batches, markers included, and returns those to write."""
    log = _log(cluster, topic, partition)
    before = log.read_bytes()
    after = b"".join(_encoded(each) for each in change(_parsed(before)))
    log.write_bytes(after)
    if len(after) != len(before):
        # Otherwise they hold, and the broker checks no batch when it starts.
        _forget_indexes(log.parent)


def attributes(
    cluster: PlaygroundCluster, topic: str, *, partition: int = 0
) -> set[int]:
    """Those of all batches of records, as the broker stores them."""
    data = _log(cluster, topic, partition).read_bytes()
    found = {_HEADER.unpack_from(raw)[5] for raw in _raw(data)}
    return {each for each in found if not each & _CONTROL}


def _log(cluster: PlaygroundCluster, topic: str, partition: int) -> Path:
    assert cluster.folder is not None
    (log,) = cluster.folder.glob(f"**/{topic}-{partition}/{0:020}.log")
    return log


def _forget_indexes(folder: Path) -> None:
    """The broker builds them again."""
    for kind in ("index", "timeindex"):
        for file in folder.glob(f"*.{kind}"):
            file.unlink()


def _parsed(data: bytes) -> list[StoredBatch]:
    return [decoded(raw) for raw in _raw(data)]


def _raw(data: bytes) -> Iterator[bytes]:
    at = 0
    while at < len(data):
        size = struct.unpack_from(">i", data, at + 8)[0] + 12
        yield data[at : at + size]
        at += size


def decoded(raw: bytes) -> StoredBatch:
    """A batch as a broker stores it."""
    base, _, _, _, _, attributes, _, first_time, *_, count = _HEADER.unpack_from(raw)
    batch = StoredBatch(raw)
    assert not attributes & _CODEC, "this is for batches that are not compressed"
    section, at = raw[HEADER_SIZE:], 0
    for _ in range(count):
        _, at = _varint(section, at)
        time, at = _varint(section, at + 1)
        delta, at = _varint(section, at)
        key, at = _sized(section, at)
        value, at = _sized(section, at)
        headers = []
        number, at = _varint(section, at)
        for _ in range(number):
            name, at = _sized(section, at)
            content, at = _sized(section, at)
            headers.append((name or b"", content))
        batch.records.append(
            StoredRecord(base + delta, first_time + time, key, value, headers)
        )
    return batch


def _encoded(batch: StoredBatch) -> bytes:
    fields = list(_HEADER.unpack_from(batch.raw))
    base, first_time = fields[0], fields[7]
    if batch.is_control or batch.records == decoded(batch.raw).records:
        return batch.raw
    section = b"".join(
        hostile_batches.record(
            each.key,
            each.value,
            each.headers,
            delta=each.offset - base,
            time=each.time - first_time,
        )
        for each in batch.records
    )
    fields[1] = len(section) + HEADER_SIZE - 12
    fields[8] = max((each.time for each in batch.records), default=-1)
    fields[12] = len(batch.records)
    return bytes(hostile_batches.sealed(bytearray(_HEADER.pack(*fields) + section)))


def _varint(data: bytes, at: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        byte = data[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return (value >> 1) ^ -(value & 1), at
        shift += 7


def _sized(data: bytes, at: int) -> tuple[bytes | None, int]:
    size, at = _varint(data, at)
    return (None, at) if size < 0 else (data[at : at + size], at + size)
