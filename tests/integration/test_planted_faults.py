"""Faults planted in the log of a copy: verify finds each of them, and nothing else.

One slot copies a topic per fault, in two transactions. Then the target's broker is
stopped, its segment files are changed, and it is started again.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
import time
from typing import TYPE_CHECKING, Any

import pytest

from mirror.offsets import runs
from mirror.proofs.account import FindingKind
from tests.harness import hostile_batches, segments
from tests.harness.admin import create_topic
from tests.harness.load import producer
from tests.harness.proofs import checked
from tests.harness.slots import SparklessFlow, copy_until
from tests.harness.witness import Witness

if TYPE_CHECKING:
    from collections.abc import Callable

    from mirror.playground.cluster import PlaygroundCluster
    from tests.harness.segments import StoredBatch, StoredRecord

pytestmark = pytest.mark.integration

_FIRST, _SECOND = 60, 30
"""Records in each transaction; in the copy a marker follows each."""
_END = _FIRST + _SECOND + 2
_VIA = b"mirror.via"
_MAP = "A.offset-map.internal"
_NO_RUNS = b"\0\0"
"""A record of the map without any."""
_PARTED = "of-another-partition"
_OTHER, _OTHER_TIME = b"of partition 1", int(time.time() * 1000)
"""Of today: brokers look for expired records 30 s after their start, and delete it."""
Found = tuple[FindingKind, int | None, int | None, int]
"""Kind, source offset, target offset, count."""
Plant = "Callable[[list[StoredBatch]], list[StoredBatch]]"


@dataclass(frozen=True)
class Fault:
    """How a copy is changed, and what verify must say."""

    plant: Callable[[list[StoredBatch]], list[StoredBatch]]
    expected: set[Found]


def _of(batches: list[StoredBatch], offset: int) -> StoredRecord:
    (found,) = (r for each in batches for r in each.records if r.offset == offset)
    return found


def _changed(change: Callable[[StoredRecord], object], offset: int = 20) -> Plant:
    def plant(batches: list[StoredBatch]) -> list[StoredBatch]:
        change(_of(batches, offset))
        return batches

    return plant


def _flip(data: bytes | None) -> bytes:
    assert data
    return bytes([data[0] ^ 1]) + data[1:]


def _headers(change: Callable[[list[Any]], list[Any]]) -> Plant:
    return _changed(lambda record: setattr(record, "headers", change(record.headers)))


def _replaced(before: bytes | None, after: bytes | None, offset: int) -> Plant:
    def change(record: StoredRecord) -> None:
        assert record.value == before
        record.value = after

    return _changed(change, offset)


def _unstamped(record: StoredRecord) -> None:
    assert record.headers.pop()[0] == _VIA


def _without(offset: int) -> Plant:
    def plant(batches: list[StoredBatch]) -> list[StoredBatch]:
        for each in batches:
            each.records = [r for r in each.records if r.offset != offset]
        return batches

    return plant


def _without_batches(*numbers: int) -> Plant:
    """0 and 2 have records, 1 and 3 are markers."""

    def plant(batches: list[StoredBatch]) -> list[StoredBatch]:
        assert [each.is_control for each in batches] == [False, True, False, True]
        return [each for at, each in enumerate(batches) if at not in numbers]

    return plant


def _swapped(one: int, other: int) -> Plant:
    def plant(batches: list[StoredBatch]) -> list[StoredBatch]:
        a, b = _of(batches, one), _of(batches, other)
        a.offset, b.offset = b.offset, a.offset
        for each in batches:
            each.records.sort(key=lambda record: record.offset)
        return batches

    return plant


def _appended(make: Callable[[list[StoredBatch]], StoredRecord]) -> Plant:
    def plant(batches: list[StoredBatch]) -> list[StoredBatch]:
        one = make(batches)
        raw = hostile_batches.stored(
            hostile_batches.record(one.key, one.value, one.headers),
            base=_END,
            base_time=one.time,
            newest=one.time,
        )
        return [*batches, segments.decoded(raw)]

    return plant


def _foreign(batches: list[StoredBatch]) -> StoredRecord:
    return replace(_of(batches, 5), key=b"of another topic")


def _of_partition_1(batches: list[StoredBatch]) -> StoredRecord:
    return replace(_of(batches, 5), key=_OTHER, value=b"", time=_OTHER_TIME)


def _bad_crc(batches: list[StoredBatch]) -> list[StoredBatch]:
    raw = bytearray(batches[2].raw)
    raw[17] ^= 1
    batches[2].raw = bytes(raw)
    return batches


def _unchanged(batches: list[StoredBatch]) -> list[StoredBatch]:
    return batches


_DIFFERENT: set[Found] = {(FindingKind.DIFFERENT, 20, 20, 1)}
_SECOND_MISSING: set[Found] = {(FindingKind.MISSING, _FIRST, None, _SECOND)}
_MAP_IS_WRONG: set[Found] = {(FindingKind.DIFFERENT, _FIRST, _FIRST + 1, _SECOND)}
FAULTS = {
    "key": Fault(_changed(lambda r: setattr(r, "key", _flip(r.key))), _DIFFERENT),
    "value": Fault(_changed(lambda r: setattr(r, "value", _flip(r.value))), _DIFFERENT),
    "header": Fault(_headers(lambda h: [(b"a", b"!"), *h[1:]]), _DIFFERENT),
    "lost-header": Fault(_headers(lambda h: h[1:]), _DIFFERENT),
    "added-header": Fault(_headers(lambda h: [h[0], (b"x", b"y"), *h[1:]]), _DIFFERENT),
    "moved-header": Fault(_headers(lambda h: [h[1], h[0], *h[2:]]), _DIFFERENT),
    "null-to-empty": Fault(
        _replaced(None, b"", 11), {(FindingKind.DIFFERENT, 11, 11, 1)}
    ),
    "empty-to-null": Fault(
        _replaced(b"", None, 13), {(FindingKind.DIFFERENT, 13, 13, 1)}
    ),
    "later": Fault(_changed(lambda r: setattr(r, "time", r.time + 1)), _DIFFERENT),
    "unstamped": Fault(_changed(_unstamped), _DIFFERENT),
    "one-missing": Fault(_without(20), {(FindingKind.MISSING, 20, None, 1)}),
    "batch-missing": Fault(_without_batches(2), _SECOND_MISSING),
    "end-missing": Fault(_without_batches(3), _SECOND_MISSING),
    "tail-cut": Fault(_without_batches(2, 3), _SECOND_MISSING),
    "doubled-near": Fault(
        _appended(lambda batches: _of(batches, _END - 2)),
        {(FindingKind.DOUBLED, _END - 3, _END, 1)},
    ),
    "doubled-far": Fault(
        _appended(lambda batches: _of(batches, 5)), {(FindingKind.DOUBLED, 5, _END, 1)}
    ),
    "of-another-topic": Fault(
        _appended(_foreign), {(FindingKind.UNEXPECTED, None, _END, 1)}
    ),
    _PARTED: Fault(
        _appended(_of_partition_1), {(FindingKind.UNEXPECTED, None, _END, 1)}
    ),
    "neighbours": Fault(
        _swapped(20, 21),
        {(FindingKind.SWAPPED, 20, 21, 1), (FindingKind.SWAPPED, 21, 20, 1)},
    ),
    "distant": Fault(
        _swapped(20, 40),
        {(FindingKind.SWAPPED, 20, 40, 1), (FindingKind.SWAPPED, 40, 20, 1)},
    ),
    "bad-crc": Fault(_bad_crc, {(FindingKind.DAMAGED, None, _FIRST + 1, _SECOND)}),
    "map-shifted": Fault(_unchanged, _MAP_IS_WRONG),
    "map-gap": Fault(_unchanged, _MAP_IS_WRONG),
    "nothing": Fault(_unchanged, set()),
}


def _wrong_map(batches: list[StoredBatch]) -> list[StoredBatch]:
    for batch in batches:
        for record in () if batch.is_control else batch.records:
            assert record.value is not None
            record.value = _wrong_runs(record.value)
    return batches


def _wrong_runs(value: bytes) -> bytes:
    kept = []
    for block in runs.decode(value):
        second = block.runs[:, runs.UPSTREAM] >= _FIRST
        if block.topic == "map-shifted":
            block.runs[second, runs.DOWNSTREAM] += 1
        if block.topic == "map-gap" and second.any():
            continue
        kept.append(block)
    return b"".join(runs.encode(kept)) or _NO_RUNS


def _copied(made: dict[str, PlaygroundCluster]) -> SparklessFlow:
    """Topics that are copied, with the faults in the copies."""
    a, b = made["a"], made["b"]
    for name in FAULTS:
        create_topic(a.bootstrap, name, partitions=1 + (name == _PARTED))
    flow = SparklessFlow(
        source=a.bootstrap, target=b.bootstrap, topic=".*", alias="A"
    ).own()
    # One batch for each flush, however slow this is.
    client = producer(a.bootstrap, linger_ms=60_000)
    client.produce(
        _PARTED, key=_OTHER, value=b"", headers=[("a", b"1"), ("b", b"2")],
        timestamp=_OTHER_TIME, partition=1,
    )  # fmt: skip
    with Witness(b.bootstrap) as witness, flow.slot() as slot:
        for numbers in (range(_FIRST), range(_FIRST, _FIRST + _SECOND)):
            for name in FAULTS:
                for number in numbers:
                    client.produce(
                        name,
                        key=f"{name}{number}".encode(),
                        value={11: None, 13: b""}.get(number, b"v%d" % number),
                        headers=[("a", b"1"), ("b", b"2")],
                        partition=0,
                    )
                assert client.flush(30) == 0
            for name in FAULTS:
                witness.begin(f"A.{name}")
                count = numbers.stop + (name == _PARTED)
                copy_until(witness, slot, flow.lease(60), count=count, timeout=60)
    b.stop()
    for name, fault in FAULTS.items():
        segments.rewrite(b, f"A.{name}", fault.plant)
    segments.rewrite(b, _MAP, _wrong_map)
    b.start()
    return flow


_BY_CONTENT: dict[str, set[Found]] = {
    # Another tool's copies have no stamp, and no map.
    "unstamped": set(),
    "map-shifted": set(),
    "map-gap": set(),
    # One of the two is in order.
    "neighbours": {(FindingKind.SWAPPED, 20, 21, 1)},
}


def test_each_is_found_and_nothing_else(
    make_clusters: Callable[..., dict[str, PlaygroundCluster]],
) -> None:
    """Every planted fault is found, with its kind and both coordinates, and no record
    is named that was not touched; by content too, as far as that says it. A comparison
    of hashes comes to the same counts.
    """
    copies = _copied(make_clusters())
    for by_content in (False, True):
        found: dict[str, set[Found]] = {name: set() for name in FAULTS}
        for each in checked(copies, by_content=by_content).findings:
            found[each.topic].add((each.kind, each.source, each.target, each.count))

        for name, fault in FAULTS.items():
            expected = fault.expected
            if by_content:
                expected = _BY_CONTENT.get(name, expected)
            assert (by_content, name, found[name]) == (by_content, name, expected)
