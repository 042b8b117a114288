"""Packed runs are what an array of the same runs would be."""

from __future__ import annotations

import pickle
from typing import TYPE_CHECKING

from hypothesis import given
from hypothesis import strategies as st
import numpy as np
import pytest

from mirror.offsets.runs import UPSTREAM, between
from mirror.proofs import ranges
from mirror.proofs.ranges import PackedRuns, translated

if TYPE_CHECKING:
    from collections.abc import Iterator

pytestmark = pytest.mark.unit

_ASCENDING = st.lists(
    st.tuples(st.integers(0, 3), st.integers(0, 300), st.integers(0, 4)), max_size=20
)
"""Holes on both sides, and counts; a count of 0 is a floor."""


@pytest.fixture
def small_pieces() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(ranges, "_RUNS_IN_PIECE", 3)
        yield


@given(
    st.lists(
        st.tuples(*[st.integers(0, 2**62)] * 2, st.integers(0, 2**31 - 1)), max_size=20
    )
)
def test_they_arrive_as_they_were(runs: list[tuple[int, int, int]]) -> None:
    """Whatever the offsets, a task gets the runs that the driver packed."""
    packed = PackedRuns(np.array(runs, np.int64).reshape(-1, 3))
    there = pickle.loads(pickle.dumps(packed))

    assert [tuple(run) for run in there.unpacked.tolist()] == runs
    assert len(there) == len(runs)
    assert there.unpacked.flags.c_contiguous


@pytest.mark.usefixtures("small_pieces")
@given(steps=_ASCENDING, ends=st.tuples(*[st.integers(0, 100)] * 3))
def test_parts_are_those_of_the_array(
    steps: list[tuple[int, int, int]], ends: tuple[int, int, int]
) -> None:
    """Wherever pieces end: what is cut out, what an offset translates to, and both once
    more after earlier runs were dropped.
    """
    runs, (first, middle, end) = _runs(steps), sorted(ends)
    packed = PackedRuns()
    for at in range(0, len(runs), 4):
        packed.add(runs[at : at + 4])

    for begin in (first, middle):
        packed.drop(begin)
        cut = packed.between(begin, end)
        assert cut.unpacked.tolist() == between(runs, begin, end, UPSTREAM).tolist()
        for offset in (begin, end):
            assert translated(packed.around(offset), offset) == translated(runs, offset)


@pytest.mark.usefixtures("small_pieces")
def test_dropped_runs_take_no_room() -> None:
    """Only the piece stays that has the last run before the offset."""
    packed = PackedRuns(_runs([(0, 0, 1)] * 10))

    packed.drop(7)

    assert packed.unpacked[:, UPSTREAM].tolist() == [6, 7, 8, 9]


def test_a_hole_after_each_record_takes_next_to_nothing() -> None:
    """A million runs that are alike travel in some kilobytes."""
    at = np.arange(1_000_000)
    packed = PackedRuns(np.stack([2 * at, at, np.ones_like(at)], axis=1))

    assert len(pickle.dumps(packed)) < 50_000


def _runs(steps: list[tuple[int, int, int]]) -> np.ndarray:
    found, up, down = [], 0, 0
    for hole, far, count in steps:
        up, down = up + hole, down + far
        found.append((up, down, count))
        up, down = up + count, down + count
    return np.array(found, np.int64).reshape(-1, 3)
