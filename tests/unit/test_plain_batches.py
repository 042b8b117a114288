"""Batches in plain Python: what it reads, the kernels read as well; else nothing."""

from __future__ import annotations

import struct

from hypothesis import example, given
from hypothesis import strategies as st
import numpy as np
import pytest

from mirror.errors import CorruptBatchError
from mirror.records import batch, plain, records
from tests.harness import hostile_batches

pytestmark = pytest.mark.unit

Pair = tuple[bytes | None, bytes | None]
Found = tuple[list[tuple[int, bytes, bytes]], int]

ABORT, COMMIT = struct.pack(">hh", 0, 0), struct.pack(">hh", 0, 1)
maybe = st.none() | st.binary(max_size=200)
pairs = st.lists(st.tuples(maybe, maybe), max_size=5)
data = st.tuples(st.sampled_from([0, batch.TRANSACTIONAL]), pairs)
markers = st.tuples(
    st.just(batch.TRANSACTIONAL | batch.CONTROL),
    st.sampled_from([[(ABORT, b"")], [(COMMIT, b"")]]),
)
logs = st.lists(
    st.tuples(data | markers, st.sampled_from([7, 8]), st.integers(0, 3)),
    min_size=1,
    max_size=6,
)
"""Attributes and records, the producer, and how many offsets are missing before."""


def log_of(drawn: list[tuple[tuple[int, list[Pair]], int, int]]) -> list[bytearray]:
    base, made = 0, []
    for (attributes, content), producer, gap in drawn:
        base += gap
        section = b"".join(
            hostile_batches.record(*pair, delta=n) for n, pair in enumerate(content)
        )
        whole = hostile_batches.stored(
            section, count=len(content), base=base, attributes=attributes,
            producer=producer, last_delta=max(len(content) - 1, 0),
        )  # fmt: skip
        made.append(bytearray(whole))
        base += max(len(content), 1)
    return made


def by_kernels(log: bytes, position: int, aborted: list[tuple[int, int]]) -> Found:
    buffer = np.frombuffer(bytearray(log), np.uint8)
    found = batch.read(
        buffer, 0, len(log), position=position, aborted=aborted, scratch=batch.scratch()
    )
    return list(records.decode(buffer, found.rows)), found.next_offset


def plainly(log: bytes, position: int, aborted: list[tuple[int, int]]) -> Found | None:
    return plain.read(memoryview(log), 0, len(log), position=position, aborted=aborted)


aborts = st.lists(st.tuples(st.sampled_from([7, 8]), st.integers(0, 20)), max_size=3)


@given(logs, aborts, st.integers(0, 20), st.integers(0, 60))
@example([((0, [(b"k", b"v")]), 7, 0)], [], 5, 0)
def test_what_is_usual_is_read_as_by_the_kernels(
    drawn: list[tuple[tuple[int, list[Pair]], int, int]],
    aborted: list[tuple[int, int]],
    position: int,
    cut: int,
) -> None:
    """Records of committed, aborted and plain batches, from any position, with a last
    batch that the fetch limit has cut off or not.
    """
    batches = log_of(drawn)
    log = b"".join(batches)
    if len(batches) > 1:
        log = log[: len(log) - cut]

    assert plainly(log, position, aborted) == by_kernels(log, position, aborted)


@given(logs, aborts, st.data())
def test_what_is_damaged_is_left_to_the_kernels(
    drawn: list[tuple[tuple[int, list[Pair]], int, int]],
    aborted: list[tuple[int, int]],
    choice: st.DataObject,
) -> None:
    """A changed byte anywhere, with a right checksum or a wrong one: plain Python reads
    what the kernels read, or nothing; where they refuse, it reads nothing.
    """
    batches = log_of(drawn)
    hit = choice.draw(st.integers(0, len(batches) - 1))
    at = choice.draw(st.integers(0, len(batches[hit]) - 1))
    batches[hit][at] = choice.draw(st.integers(0, 255))
    if choice.draw(st.booleans()):
        hostile_batches.sealed(batches[hit])
    log = b"".join(batches)
    found = plainly(log, 0, aborted)
    try:
        known = by_kernels(log, 0, aborted)
    except CorruptBatchError:
        assert found is None
    else:
        assert found in (None, known)


def test_an_empty_answer() -> None:
    """Nothing new takes no kernels, and leaves the position where it is."""
    assert plainly(b"", 3, []) == ([], 3)
