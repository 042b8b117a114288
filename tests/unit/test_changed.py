"""Which copy stands for which record, if it says something else."""

from __future__ import annotations

import numpy as np
import pytest

from mirror.proofs.explaining import pair_changed
from mirror.records import alignment
from mirror.records.alignment import ONLY_SOURCE, ONLY_TARGET

pytestmark = pytest.mark.unit

Row = tuple[int, int, int, int | None, int]
"""What, source, target, key (None: null), time. The lone one's other offset is the last
one before the next pair."""


def _rows(*given: Row) -> np.ndarray:
    rows = np.zeros((len(given), alignment.ODD_COLUMNS), np.int64)
    for row, (what, source, target, key, time) in zip(rows, given, strict=True):
        row[alignment.WHAT] = what
        row[alignment.SOURCE], row[alignment.TARGET] = source, target
        row[alignment.KEY_MARK] = -1 if key is None else key
        row[alignment.KEY_SIZE] = -1 if key is None else 1
        row[alignment.TIME] = time
        row[alignment.SOURCE_MARK] = 1000 + source if what == ONLY_SOURCE else 0
        row[alignment.TARGET_MARK] = 5000 + target if what == ONLY_TARGET else 0
    return rows


@pytest.mark.parametrize(
    ("rows", "pairs"),
    [
        # One of each between the same pairs, with the same key and time.
        ([(ONLY_SOURCE, 5, 19, 7, 1), (ONLY_TARGET, 9, 15, 7, 1)], [(0, 1)]),
        # Only the time is another.
        ([(ONLY_SOURCE, 5, 19, 7, 1), (ONLY_TARGET, 9, 15, 7, 2)], [(0, 1)]),
        # Only the key is.
        ([(ONLY_SOURCE, 5, 19, 7, 1), (ONLY_TARGET, 9, 15, 8, 1)], [(0, 1)]),
        ([(ONLY_SOURCE, 5, 19, None, 1), (ONLY_TARGET, 9, 15, None, 1)], [(0, 1)]),
        # Another writer's record.
        ([(ONLY_SOURCE, 5, 19, None, 1), (ONLY_TARGET, 9, 15, None, 2)], []),
        ([(ONLY_SOURCE, 5, 19, 7, 1), (ONLY_TARGET, 9, 15, 8, 2)], []),
        # In another gap: a pair stands between, before or after.
        ([(ONLY_SOURCE, 5, 19, 7, 1), (ONLY_TARGET, 30, 25, 7, 1)], []),
        ([(ONLY_SOURCE, 25, 39, 7, 1), (ONLY_TARGET, 9, 15, 7, 1)], []),
        # The surest first: 3 has key and time of 0, 2 only the key of 1.
        (
            [
                (ONLY_SOURCE, 5, 19, 7, 1),
                (ONLY_SOURCE, 6, 19, 7, 2),
                (ONLY_TARGET, 9, 16, 7, 9),
                (ONLY_TARGET, 9, 15, 7, 1),
            ],
            [(0, 3), (1, 2)],
        ),
        # Two records, one copy: which?
        (
            [
                (ONLY_SOURCE, 5, 19, 7, 1),
                (ONLY_SOURCE, 6, 19, 7, 1),
                (ONLY_TARGET, 9, 16, 7, 1),
            ],
            [],
        ),
    ],
)
def test_what_stands_for_what(rows: list[Row], pairs: list[tuple[int, int]]) -> None:
    """In the same gap, with the same key or time, and nothing else that could be it."""
    assert [tuple(each) for each in pair_changed(_rows(*rows), ()).tolist()] == pairs


def test_the_copy_of_another_record_stands_for_none() -> None:
    """Its mark was found elsewhere on the source."""
    rows = _rows((ONLY_SOURCE, 5, 19, 7, 1), (ONLY_TARGET, 9, 15, 7, 1))

    assert not len(pair_changed(rows, {5000 + 15}))
