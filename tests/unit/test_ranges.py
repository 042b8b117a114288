"""How a partition is cut into ranges: every record of either side is in one of them.

And packed runs, which are what an array of the same runs would be.
"""

from __future__ import annotations

from collections import deque
from functools import partial
from itertools import pairwise
import pickle
import tracemalloc
from typing import TYPE_CHECKING

from hypothesis import given
from hypothesis import strategies as st
import numpy as np
import pytest

from mirror.migration.plan import initial_runs
from mirror.offsets.runs import UPSTREAM, between
from mirror.proofs.ranges import (
    PackedRuns,
    Range,
    RunFiles,
    covered,
    ranges_of,
    translated,
)
from mirror.proofs.runners import pickled
from tests.harness.compared import copied

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

pytestmark = pytest.mark.unit

Run = tuple[int, int, int]
Runs = list[Run]


def _cut(
    runs: Runs, *, source: tuple[int, int], target: tuple[int, int], most: int = 10,
    fenced: bool = True, continues: bool = False, late: Sequence[Run] = (),
    whole: bool = True,
) -> list[Range]:  # fmt: skip
    partition = copied(
        source_first=source[0], source_end=source[1], target_first=target[0],
        target_end=target[1], continues=continues, target_start=target[0],
    )  # fmt: skip
    given = np.array(runs, np.int64).reshape(-1, 3)
    appended = np.array(late, np.int64).reshape(-1, 3)
    cut = ranges_of(
        partition, given, late=appended, fenced=fenced, most=most, whole=whole
    )
    return list(cut)


def _pairs(ranges: list[Range], *, repeats: bool = False) -> list[tuple[int, int]]:
    """Which source offset stands at which target offset."""
    return [
        (up + n, down + n)
        for each in ranges
        for up, down, count in (each.repeats if repeats else each.runs).tolist()
        for n in range(count)
    ]


_STEPS = st.lists(
    st.tuples(st.integers(0, 15), st.integers(0, 15), st.integers(1, 25)), max_size=8
)


@given(steps=_STEPS, most=st.integers(1, 40), first=st.integers(0, 30))
def test_ranges_tile_both_logs(
    steps: list[tuple[int, int, int]], most: int, first: int
) -> None:
    """Whatever the holes: ranges follow each other without gaps on both sides, none is
    too long, and each pair of the map is in the range that has both its offsets.
    """
    up = down = 0
    runs: Runs = []
    for hole, marker, count in steps:
        up, down = up + hole, down + marker
        runs.append((up, down, count))
        up, down = up + count, down + count
    expected = [(u + n, d + n) for u, d, c in runs for n in range(c) if u + n >= first]

    found = _cut(
        runs, source=(first, max(up, first)), target=(0, down + 3), most=most,
        continues=True,
    )  # fmt: skip

    assert found[0].source_first == first
    assert found[0].target_first == 0
    assert found[-1].source_end == max(up, first)
    assert found[-1].target_end == down + 3
    for one, other in pairwise(found):
        assert one.source_end == other.source_first
        assert one.target_end == other.target_first
    for each in found:
        assert each.source_end - each.source_first <= most
        for u, d in _pairs([each]):
            assert each.source_first <= u < each.source_end
            assert each.target_first <= d < each.target_end
    assert _pairs(found) == expected


def _same(first: int, end: int, behind: int = 0) -> list[tuple[int, int]]:
    return [(n, n + behind) for n in range(first, end)]


@pytest.mark.parametrize(
    ("runs", "ends", "pairs", "repeats", "until"),
    [
        # Where the map goes back on the target, what it said of those offsets is void.
        ([(0, 0, 10), (8, 6, 4)], (12, 10), _same(0, 6) + _same(8, 12, -2), [], 10),
        # Copied again, or for the first time: also within one run.
        (
            [(0, 0, 10), (5, 11, 8)], (13, 19),
            _same(0, 10) + _same(10, 13, 6), _same(5, 10, 6), 19,
        ),
        # What was copied since the proof began is left out on both sides,
        ([(0, 0, 5), (5, 6, 5)], (5, 11), _same(0, 5), [], 6),
        # also if it follows the last copies without a hole.
        ([(0, 0, 10), (10, 12, 8)], (15, 20), _same(0, 10) + _same(10, 15, 2), [], 17),
    ],
)  # fmt: skip
def test_which_copies_are_first_ones(
    runs: Runs,
    ends: tuple[int, int],
    pairs: list[tuple[int, int]],
    repeats: list[tuple[int, int]],
    until: int,
) -> None:
    """What the map says and what still holds of it; records that were copied again are
    told from those copied for the first time.
    """
    found = _cut(runs, source=(0, ends[0]), target=(0, ends[1]), most=100)

    assert _pairs(found) == pairs
    assert _pairs(found, repeats=True) == repeats
    assert (found[-1].source_end, found[-1].target_end) == (ends[0], until)


@pytest.mark.parametrize(
    ("runs", "target", "whole", "gone"),
    [
        # Of a run within which the log begins, only what precedes that.
        ([(0, 0, 10), (10, 11, 10), (25, 22, 5)], (15, 27), True, range(14)),
        # The copy has nothing any more; 20 to 24 it never had.
        ([(0, 0, 20), (25, 20, 5)], (40, 40), True, [*range(20), *range(25, 30)]),
        # Nothing is known, and nothing was ever there.
        ([], (0, 0), False, []),
        # What the map still knows, or had to know, begins before the log, or after it.
        ([(20, 30, 10)], (30, 40), False, range(20)),
        ([(20, 30, 10)], (29, 40), False, []),
        ([(20, 30, 10)], (30, 40), True, []),
        ([], (30, 30), False, range(30)),
        ([], (30, 31), False, []),
        ([], (30, 30), True, []),
    ],
)
def test_only_what_stood_before_the_log_is_gone(
    runs: Runs, target: tuple[int, int], whole: bool, gone: Sequence[int]
) -> None:
    """The map says which copies the log has lost at its beginning; where it has lost
    its own, what precedes it stood there too.
    """
    found = _cut(runs, source=(0, 30), target=target, whole=whole)

    for each in found:
        offsets = np.arange(each.source_first, each.source_end)
        assert offsets[covered(offsets, each.gone, UPSTREAM)].tolist() == [
            offset for offset in gone if each.source_first <= offset < each.source_end
        ]
    assert sum(each.source_end - each.source_first for each in found) == 30


def test_late_records_of_the_map_void_nothing() -> None:
    """Without fencing the map's records come in any order, and all of them hold."""
    found = _cut(
        [(5, 5, 5), (0, 0, 5)], source=(0, 10), target=(0, 10), fenced=False, most=100
    )

    assert _pairs(found) == [(n, n) for n in range(10)]


@pytest.mark.parametrize(
    ("runs", "cuts"),
    [
        ([(0, 0, 0), (10, 12, 5)], [(0, 10, 12, True), (10, 15, 17, False)]),
        # The floor stands exactly where the known run before it ends.
        (
            [(0, 0, 50), (50, 50, 0), (100, 100, 50)],
            [(0, 50, 50, False), (50, 100, 100, True), (100, 150, 150, False)],
        ),
    ],
)
def test_what_another_tool_copied_is_unknown(
    runs: Runs, cuts: list[tuple[int, int, int, bool]]
) -> None:
    """From a floor to the next run the map knows no records."""
    _, source, target, _ = cuts[-1]
    found = _cut(runs, source=(0, source), target=(0, target), most=1000)

    assert [
        (e.source_first, e.source_end, e.target_end, bool(e.unknown)) for e in found
    ] == cuts


def test_what_mirrormaker_copied_after_a_sync_is_unknown() -> None:
    """Of what `mirror adopt` writes, only synced records and what the flow copied after
    it are known; in the order of the map, from its first read to the ranges.
    """
    nothing = np.empty((0, 3), np.int64)
    adopted = initial_runs(nothing, [(10, 12), (20, 25)], begins=(0, 0), ends=(30, 40))
    with RunFiles() as files:
        files.add(("t", 0), adopted)
        files.add(("t", 0), np.array([[30, 40, 5], [35, 45, 5]], np.int64))
        runs = np.concatenate(list(files.runs_of(("t", 0))))

    found = _cut(runs.tolist(), source=(0, 40), target=(0, 50), most=1000)

    assert [
        (e.source_first, e.source_end, e.target_end) for e in found if e.unknown
    ] == [(0, 10, 12), (11, 20, 25), (21, 30, 40)]
    assert _pairs(found) == [(10, 12), (20, 25)] + [(30 + n, 40 + n) for n in range(10)]


@pytest.mark.parametrize(("continues", "first"), [(False, 10), (True, 0)])
def test_copies_of_what_comes_before_are_not_read(continues: bool, first: int) -> None:
    """A proof that begins in the middle begins there on both sides; after an earlier
    proof it begins where that one ended.
    """
    (found,) = _cut(
        [(0, 0, 10), (10, 12, 5)], source=(10, 15), target=(0, 17), most=100,
        continues=continues,
    )  # fmt: skip

    assert found.target_first == first
    assert found.target_end == 17
    assert _pairs([found]) == [(10 + n, 12 + n) for n in range(5)]


def test_nothing_of_a_copy_is_as_new() -> None:
    """Where nothing was copied since, only the end of the copy is looked at."""
    (found,) = _cut([(0, 0, 10)], source=(10, 10), target=(0, 11), most=100)

    assert (found.target_first, found.target_end) == (10, 11)


def test_late_records_far_apart_are_read_apart() -> None:
    """Two repairs months apart: no task reads all that stands between what they
    appended.
    """
    late = [(100, 1_000_000, 1), (200, 500_000_000, 1)]
    ranges = _cut(
        [(0, 0, 100)], source=(0, 300), target=(0, 500_000_001), late=late, most=1000
    )
    found = [(r.target_first, r.target_end) for r in ranges if r.is_late]
    assert found == [(1_000_000, 1_000_001), (500_000_000, 500_000_001)]


def test_no_range_reaches_behind_what_the_copy_has_lost() -> None:
    """The map names places that are gone: those records have no copy, in the order of
    the source.
    """
    ranges = _cut([(0, 0, 60)], source=(0, 60), target=(0, 10), most=20)
    assert [(r.target_first, r.target_end) for r in ranges] == [
        (0, 10), (10, 10), (10, 10),
    ]  # fmt: skip
    assert [(r.source_first, r.source_end) for r in ranges] == [
        (0, 20), (20, 40), (40, 60),
    ]  # fmt: skip


def test_a_floor_where_late_records_begin_is_no_other_tools() -> None:
    """A repair writes it to say what the copy had lost; what follows it is known."""
    runs = [(0, 0, 60), (60, 40, 0), (65, 60, 5)]
    late = [(40, 40, 20)]
    ranges = _cut(runs, source=(0, 70), target=(0, 65), late=late, most=100)
    assert not any(each.unknown for each in ranges)
    assert sorted(_pairs(ranges)) == [
        *((n, n) for n in range(60)), *((65 + n, 60 + n) for n in range(5)),
    ]  # fmt: skip


@given(_STEPS, st.integers(1, 4), st.booleans())
def test_pieces_of_a_map_give_the_same_ranges(
    steps: list[tuple[int, int, int]], size: int, fenced: bool
) -> None:
    """Where a map is cut into pieces changes nothing, not even if it goes back."""
    runs = np.array(steps, np.int64).reshape(-1, 3)
    pieces = [runs[at : at + size] for at in range(0, len(runs), size)]

    whole, again = (
        [
            (each.source_end, each.target_end, *_lists(each))
            for each in ranges_of(copied(40), given, fenced=fenced, most=7)
        ]
        for given in (runs, pieces)
    )

    assert again == whole


@pytest.mark.parametrize("fenced", [True, False])
def test_memory_does_not_grow_with_the_map(
    monkeypatch: pytest.MonkeyPatch, fenced: bool
) -> None:
    """Four times the runs of one partition take the same memory."""
    monkeypatch.setattr("mirror.proofs.ranges._RUNS_IN_MEMORY", 50_000)
    few, many = (_peak(count, fenced=fenced) for count in (500_000, 2_000_000))

    assert many < 1.2 * few


def test_waiting_tasks_take_little_memory() -> None:
    """Neither do the ranges of a map in which each record is a run, nor those that wait
    for a process.
    """
    waiting: deque[object] = deque(maxlen=4)
    pickled(str)  # loads Spark's part of it
    with RunFiles() as files:
        for first in range(0, 1_000_000, 10_000):
            at = np.arange(first, first + 10_000)
            files.add(("t", 0), np.stack([2 * at, at, np.ones_like(at)], axis=1))
        pieces = files.runs_of(("t", 0))
        tracemalloc.start()
        for each in ranges_of(copied(2_000_000), pieces):
            waiting.append(pickled(partial(str, each)))
        held, peak = tracemalloc.get_traced_memory()
        tracemalloc.stop()

    assert peak < 12_000_000
    assert held < 200_000


def test_runs_on_their_way_to_a_file_take_little_memory() -> None:
    """Also where each transaction names a single one."""
    with RunFiles() as files:
        tracemalloc.start()
        for at in range(50_000):
            files.add(("t", at % 4), np.array([[3 * at, 2 * at, 1]], np.int64))
        held = tracemalloc.get_traced_memory()[0]
        tracemalloc.stop()
        found = sum(len(piece) for n in range(4) for piece in files.runs_of(("t", n)))

    assert found == 50_000
    assert held < 1.5 * 24 * found


def _peak(count: int, *, fenced: bool) -> int:
    """The bytes that ranges take of a map in which each record is a run."""
    with RunFiles() as files:
        tracemalloc.start()
        for first in range(0, count, 10_000):
            at = np.arange(first, first + 10_000)
            files.add(("t", 0), np.stack([2 * at, at, np.ones_like(at)], axis=1))
        found = ranges_of(
            copied(2 * count), files.runs_of(("t", 0)), fenced=fenced, most=100_000
        )
        assert sum(len(each.runs) for each in found) == count
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
    return peak


def _lists(each: Range) -> tuple[Runs, Runs]:
    return each.runs.tolist(), each.repeats.tolist()


# ---- packed runs ----


_ASCENDING = st.lists(
    st.tuples(st.integers(0, 3), st.integers(0, 300), st.integers(0, 4)), max_size=20
)
"""Holes on both sides, and counts; a count of 0 is a floor."""


@pytest.fixture
def small_pieces() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("mirror.proofs.ranges._RUNS_IN_PIECE", 3)
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
    runs, (first, middle, end) = _ascending(steps), sorted(ends)
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
    packed = PackedRuns(_ascending([(0, 0, 1)] * 10))

    packed.drop(7)

    assert packed.unpacked[:, UPSTREAM].tolist() == [6, 7, 8, 9]


def test_a_hole_after_each_record_takes_next_to_nothing() -> None:
    """A million runs that are alike travel in some kilobytes."""
    at = np.arange(1_000_000)
    packed = PackedRuns(np.stack([2 * at, at, np.ones_like(at)], axis=1))

    assert len(pickle.dumps(packed)) < 50_000


def _ascending(steps: list[tuple[int, int, int]]) -> np.ndarray:
    found, up, down = [], 0, 0
    for hole, far, count in steps:
        up, down = up + hole, down + far
        found.append((up, down, count))
        up, down = up + count, down + count
    return np.array(found, np.int64).reshape(-1, 3)
