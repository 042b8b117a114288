"""The rows of the offset map from before mirror copied."""

from __future__ import annotations

from typing import TYPE_CHECKING

from hypothesis import given
from hypothesis import strategies as st
import numpy as np
import pytest

from mirror.migration.plan import ascending, initial_runs
from mirror.offsets.index import locate
from mirror.offsets.runs import DOWNSTREAM, UPSTREAM

if TYPE_CHECKING:
    from mirror.offsets.runs import RunArray

pytestmark = pytest.mark.unit

NOTHING = np.empty((0, 3), np.int64)
PAIRS = st.lists(st.tuples(st.integers(0, 50), st.integers(0, 80)), max_size=20)


def _rows(*rows: tuple[int, int, int]) -> RunArray:
    return np.array(rows, np.int64)


def test_syncs_are_single_records_with_floors() -> None:
    """A sync is one known record, followed by a floor with MirrorMaker 2's answers."""
    made = initial_runs(NOTHING, [(10, 12), (20, 25)], begins=(0, 0), ends=(30, 40))

    assert made.tolist() == [
        [0, 0, 0],
        [10, 12, 1],
        [11, 13, 0],
        [20, 25, 1],
        [21, 26, 0],
        [30, 40, 0],
    ]


def test_the_copy_knows_better_than_syncs() -> None:
    """Where the copy was read, its runs replace syncs."""
    tail = _rows((20, 25, 10))

    made = initial_runs(tail, [(10, 12), (22, 27)], begins=(0, 3), ends=(30, 35))

    assert made.tolist() == [[0, 3, 0], [10, 12, 1], [11, 13, 0], [20, 25, 10]]


def test_what_mirror_knows_stays() -> None:
    """Taking over again adds only what MirrorMaker 2 copied since."""
    tail = _rows((90, 100, 20))

    made = initial_runs(
        tail, [(50, 60), (104, 114)], begins=(100, 110), ends=(110, 120)
    )

    assert made.tolist() == [[100, 110, 10]]


def test_a_position_behind_ours() -> None:
    """If MirrorMaker 2's position is before mirror's, everything from there on is
    copied again.
    """
    made = initial_runs(NOTHING, [], begins=(100, 110), ends=(80, 150))

    assert made.tolist() == [[80, 150, 0]]


def test_later_syncs_win() -> None:
    """A sync that MirrorMaker 2 wrote after a restart replaces those that it
    contradicts.
    """
    pairs = [(1, 1), (5, 6), (9, 11), (4, 20), (12, 28)]

    assert ascending(pairs) == [(1, 1), (4, 20), (12, 28)]


@given(PAIRS)
def test_seeds_ascend(pairs: list[tuple[int, int]]) -> None:
    """Whatever syncs say, the map gets rows that ascend on both sides, and answers
    between the beginning and the end.
    """
    made = initial_runs(NOTHING, pairs, begins=(0, 0), ends=(60, 100))

    assert (np.diff(made[:, UPSTREAM]) >= 0).all()
    assert (np.diff(made[:, DOWNSTREAM]) >= 0).all()
    answers = []
    for offset in range(60):
        found = locate(made, offset, UPSTREAM)
        assert found is not None
        answers.append(found.offset)
    assert answers == sorted(answers)
    assert all(0 <= answer <= 100 for answer in answers)
