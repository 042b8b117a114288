"""The ids of schemas that the kernel finds in records, against a reader in Python."""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING
import uuid

from hypothesis import given, settings
from hypothesis import strategies as st
import numpy as np
import pytest

from mirror.copying import provenance
from mirror.errors import CorruptBatchError
from mirror.records import batch, listing, schema_ids
from mirror.records.schema_ids import Numbers
from tests.harness import hostile_batches

if TYPE_CHECKING:
    from collections.abc import Sequence

    from mirror.records.batch import Buffer, Rows

pytestmark = pytest.mark.unit

GUID = uuid.UUID("01234567-89ab-cdef-0123-456789abcdef").bytes


def wire(number: int, rest: bytes = b"x") -> bytes:
    return struct.pack(">bI", 0, number) + rest


def one_batch(records: Sequence[bytes]) -> tuple[Buffer, Rows]:
    content = hostile_batches.stored(b"".join(records), count=len(records))
    buffer = np.frombuffer(bytearray(content), np.uint8)
    found = batch.read(
        buffer, 0, len(buffer), position=0, aborted=(), scratch=batch.scratch()
    )
    return buffer, found.rows


def find(
    records: Sequence[bytes],
    *,
    known: Sequence[int] = (),
    strange: Sequence[int] = (),
    position: int = 0,
    room: int = 16,
    left_out: provenance.Provenance | None = None,
) -> tuple[list[int | bytes], dict[str, int]]:
    """The unknown ids and GUIDs, and the result by name."""
    buffer, rows = one_batch(records)
    tables = [Numbers(), Numbers()]
    for table, numbers in zip(tables, (known, strange), strict=True):
        table.add(numbers)
    unknown = np.empty((room, 2), np.int64)
    result = np.zeros(schema_ids.RESULTS, np.int64)
    rule = left_out or provenance.none()
    schema_ids.find_ids(
        buffer, batch.sections(rows), position, tables[0].table, tables[1].table,
        schema_ids.KEY_HEADER, schema_ids.VALUE_HEADER, rule.key, rule.target_suffix,
        rule.feeders, rule.homes, unknown, result,
    )  # fmt: skip
    names = ("UNKNOWN", "IN_ROW", "BEFORE", "STARTS_AT", "DELTA", "STRANGE", "BROKEN")
    return [
        number if at < 0 else buffer[at : at + 16].tobytes()
        for number, at in unknown[: result[0]].tolist()
    ], dict(zip(names, result.tolist(), strict=True))


def is_damaged(made: Sequence[bytes]) -> bool:
    """For everyone else who lists these records of one batch."""
    buffer, rows = one_batch(made)
    try:
        return sum(len(some.places) for some in listing.listed(buffer, rows)) < 0
    except CorruptBatchError:
        return True


def records(*parts: tuple[bytes | None, bytes | None, list[tuple[bytes, bytes]]]):
    return [
        hostile_batches.record(key, value, headers, delta=delta)
        for delta, (key, value, headers) in enumerate(parts)
    ]


def test_where_ids_are() -> None:
    """Keys, values and both headers have ids; GUIDs stand in headers only. Tombstones,
    null keys, short and empty values, other headers and id 0 say nothing.
    """
    found, result = find(
        records(
            (None, None, []),
            (b"", b"\0\0\0\1", [(b"other", wire(9))]),
            (b"k", wire(0), [(b"__value_schema_id", b"\2" + GUID)]),
            (wire(1), wire(2), []),
            (b"k", b"v", [(b"__key_schema_id", wire(3, b""))]),
            (b"k", b"v", [(b"a", b""), (b"__value_schema_id", b"\1" + GUID)]),
            (b"k", b"\1" + GUID, [(b"__value_schema_id", b"\1" + GUID[:15])]),
            (b"k", wire(2**32 - 1), []),
        )
    )
    assert found == [1, 2, 3, GUID, 2**32 - 1]
    assert (result["BEFORE"], result["DELTA"]) == (3, 3)


def test_first_unknown() -> None:
    """Known ids pass, strange ones are counted once a record and up to the first
    unknown one; what is below the position counts for nothing.
    """
    made = records(
        (wire(8), b"v", []),
        (wire(7), wire(7), []),
        (b"k", wire(1), []),
        (wire(7), wire(1), []),
        (b"k", wire(5), []),
        (b"k", wire(7), []),
    )
    found, result = find(made, known=[1], strange=[7], position=1)
    assert found == [5]
    assert result["BEFORE"] == 4
    assert result["STRANGE"] == 2
    assert find(made, known=[1, 5], strange=[7], position=1)[0] == []
    assert find(made, known=[1, 5, 7], position=1)[0] == []
    assert find(made, room=2)[0] == [8, 7]


def test_what_the_flow_leaves_out() -> None:
    """A record that came through the target, or whose key has its home elsewhere, says
    nothing: neither unknown nor strange. One that another hop copied does, wherever its
    home is.
    """
    hop, looped = ((b"mirror.via", name) for name in (b"C/c-id", b"B/b-id"))
    made = records(
        (b"k", wire(1), [looped]),
        (wire(2), b"v", [hop, looped]),
        (b"other", wire(7), []),
        (b"k", b"v", [looped, (b"__value_schema_id", b"\1" + GUID)]),
        (b"other", wire(3), []),
        (b"other", wire(4), [hop]),
        (b"k", wire(7), []),
    )
    rule = provenance.via(
        source_alias="A", source_id="a-id", target_id="b-id", homes=[("other", True)]
    )
    found, result = find(made, strange=[7], left_out=rule)
    assert found == [4]
    assert (result["BEFORE"], result["STRANGE"]) == (5, 0)
    assert find(made, known=[4], strange=[7], left_out=rule)[1]["STRANGE"] == 1
    assert find(made, strange=[7])[0] == [1, 2, GUID, 3, 4]


@settings(max_examples=300, deadline=None)
@given(sizes=hostile_batches.WRONG_SIZES, cut=st.integers(0, 60))
def test_hostile_bytes(sizes: dict[str, int], cut: int) -> None:
    """Whatever the lengths in a record say, what precedes it is found and nothing is
    read beyond the batch.
    """
    good = hostile_batches.record(wire(1), wire(2))
    headers = [(b"__value_schema_id", wire(3))]
    bad = hostile_batches.record(b"k", b"v", headers, delta=1, **sizes)
    made = [good, bad[: len(bad) - min(cut, len(bad) - 1)]]
    assert find(made, room=2)[0] == [1, 2]
    found, result = find(made, known=[1, 2])
    assert found in ([], [3])
    assert (result["BROKEN"] == 1) == is_damaged(made)


@pytest.mark.parametrize("delta", [-1, 0, 7, 1 << 40])
def test_hostile_offsets(delta: int) -> None:
    """A record whose offset cannot be right is damage: it is not where a copy waits,
    since what is behind that would pass for copied.
    """
    made = [
        hostile_batches.record(wire(1), b"v"),
        hostile_batches.record(wire(9), b"v", delta=delta),
    ]
    found, result = find(made, known=[1])
    assert found == []
    assert result["BROKEN"] == 1


@settings(max_examples=20, deadline=None)
@given(st.sets(st.integers(1, 2**64 - 1), max_size=4000), st.integers(0, 2**32))
def test_numbers(numbers: set[int], seed: int) -> None:
    """A table keeps what was added, however often and in whatever order."""
    table = Numbers()
    mixed = sorted(numbers, key=lambda each: hash((each, seed)))
    for first in range(0, len(mixed), 500):
        table.add(mixed[first : first + 700])
    assert set(table.table[table.table != 0].tolist()) == numbers
    assert len(table) == len(numbers)


def test_memory() -> None:
    """100,000 ids take at most 2 MB."""
    table = Numbers()
    table.add(range(1, 100_001))
    assert table.table.nbytes <= 2_000_000
    made = records(*((b"k", wire(number), []) for number in range(1, 100_001, 7)))
    assert find(made, known=range(1, 100_001))[0] == []
