"""What a drill takes of an offset map, held against the whole map."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st
import numpy as np
import pytest

from mirror.offsets import runs
from mirror.offsets.runs import UPSTREAM, RunArray
from mirror.proofs.ranges import ranges_of
from mirror.recovery.drilling.groups import windows
from tests.harness.compared import copied
from tests.unit.test_offset_map import (
    COPY,
    COPY_ID,
    FIRST_ID,
    TOPIC,
    TRANSACTIONS,
    _simulated,
    _small,
)

pytestmark = pytest.mark.unit


def _ranges(
    found: RunArray, window: tuple[int, int], *, end: int
) -> list[tuple[int, int, int, int, list[list[int]]]]:
    """Both sides' edges, and the runs in between."""
    first, last = window
    part = copied(
        topic=TOPIC, target_topic=COPY, topic_id=FIRST_ID, copy_id=COPY_ID,
        source_first=first, source_end=last, target_end=end,
    )  # fmt: skip
    return [
        (
            each.source_first, each.source_end, each.target_first, each.target_end,
            runs.joined(runs.between(each.runs, first, last, UPSTREAM)).tolist(),
        )
        for each in ranges_of(part, found, most=max(last - first, 1))
        if not len(each.repeats)
    ]  # fmt: skip


@given(
    TRANSACTIONS,
    st.lists(st.integers(0, 300), min_size=1, max_size=5),
    st.integers(1, 20),
    st.booleans(),
)
@settings(deadline=None, max_examples=200)
def test_a_window_is_compared_as_with_the_whole_map(
    transactions: list[list[tuple[int, int]]],
    positions: list[int],
    records: int,
    small: bool,
) -> None:
    """Wherever groups stand, the ranges that follow from the runs around them are those
    that follow from all runs, whether the index keeps these runs or the map is asked.
    """
    with pytest.MonkeyPatch.context() as monkeypatch:
        if small:
            _small(monkeypatch)
            monkeypatch.setattr("mirror.recovery.drilling.groups._NEAR", 1)
        simulation = _simulated(transactions)
        known = simulation.map(monkeypatch)
        known.refresh()
        if not simulation.copies:
            assert not known.ascends(TOPIC, 0)
            return
        assert known.ascends(TOPIC, 0)
        wanted = windows(positions, records, 0, simulation.upstream)
        near = known.runs_around({(TOPIC, 0): wanted})[TOPIC, 0]
        every = np.concatenate(
            [
                block.runs
                for _, value in simulation.values
                for block in runs.decode(value)
            ]
        )
        end = simulation.downstream
        for window in wanted:
            whole = _ranges(every, window, end=end)
            assert len(whole) == 1
            assert _ranges(near, window, end=end) == whole
