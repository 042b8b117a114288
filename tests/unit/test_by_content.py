"""Records and copies matched by what they say; without a cluster.

How partitions are cut where both logs have the same record, and what follows from what
tasks found there; which records belong together by their marks, against a slow search
for the best; and where a lone record's other one would stand.
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from itertools import pairwise
import random
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from mirror.clusters.cluster import Cluster
from mirror.errors import ClusterError
from mirror.offsets.runs import COUNT
from mirror.proofs import by_content
from mirror.proofs.account import FindingKind
from mirror.proofs.by_content import Aligned, Located, Marks, aligned, matched, place
from mirror.proofs.explaining import not_expired
from mirror.proofs.log_stream import Damage
from mirror.proofs.ranges import Range, narrowed, ranges_of, whole_range
from mirror.proofs.runners import OutOfReach
from mirror.records import alignment
from mirror.records.alignment import NOWHERE, ONLY_SOURCE, ONLY_TARGET
from tests.harness.compared import BY_CONTENT as TERMS
from tests.harness.compared import copied, row

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

pytestmark = pytest.mark.unit

UNLUCKY = -13
Log = dict[int, int]
"""Marks by offset."""


class Logs:
    """Carries out what tasks do, on logs in memory."""

    def __init__(self, source: Log, target: Log) -> None:
        self._logs = {True: source, False: target}
        self.pieces: list[Range] = []

    def results(self, tasks: Iterable[Callable[[], Any]]) -> Iterator[Any]:
        for task in tasks:
            assert isinstance(task, partial)
            yield self._done(task)

    def _done(self, task: partial[Any]) -> Any:
        if task.func is by_content.located:
            self.pieces.append(task.args[1])
            return self._located(task.args[1])
        _, piece, on_source, rate, _ = task.args
        assert rate & (rate - 1) == 0
        marks = self._marks(piece, on_source)
        kept = marks.marks % rate == 0
        return on_source, replace(
            marks, offsets=marks.offsets[kept], marks=marks.marks[kept]
        )

    def _marks(self, piece: Range, on_source: bool) -> Marks:
        first, end = piece.target_first, piece.target_end
        if on_source:
            first, end = piece.source_first, piece.source_end
        log = [x for x in sorted(self._logs[on_source].items()) if first <= x[0] < end]
        both = np.array(log, np.int64).reshape(-1, 2)
        return Marks(
            offsets=both[:, 0], marks=both[:, 1], own_times=True, fetched_bytes=1
        )

    def _located(self, piece: Range) -> Located:
        if piece.source_first == 0 and UNLUCKY in self._logs[True].values():
            return Located(piece=piece, failure="unlucky")
        ups, downs = self._marks(piece, True), self._marks(piece, False)
        pairs = by_content.matched(ups.marks, downs.marks)
        runs = np.ones((len(pairs), 3), np.int64)
        runs[:, 0], runs[:, 1] = ups.offsets[pairs[:, 0]], downs.offsets[pairs[:, 1]]
        after = int(runs[-1, 0]) if len(runs) else -1
        return Located(piece=piece, runs=runs, left=int((ups.offsets > after).sum()))


def _aligned(source: Log, target: Log, **values: Any) -> tuple[Aligned, Logs]:
    ends = (max(log, default=-1) + 1 for log in (source, target))
    of = copied(*ends, **values)
    logs = Logs(source, target)
    lost = OutOfReach(Cluster(TERMS.source), Cluster(TERMS.target))
    (found,) = aligned(TERMS, logs, [of], lost)
    return found, logs


@pytest.mark.parametrize("seed", range(20))
def test_pieces_find_what_the_whole_does(
    seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Cut into short pieces by a sample of the marks, two logs with holes and others'
    records have the same runs as in one piece; no piece is much too long.
    """
    monkeypatch.setattr(by_content, "PIECE_OFFSETS", 100)
    monkeypatch.setattr(by_content, "MOST_TARGET_OFFSETS", 300)
    monkeypatch.setattr(by_content, "_SAMPLED_AT_ONCE", 500)
    monkeypatch.setattr(by_content, "_MOST_SAMPLES", 200)
    chance = random.Random(seed)
    source: Log = {}
    target: Log = {}
    up = down = 0
    for _ in range(3000):
        mark = chance.randrange(1 << 60) | (chance.random() < 0.01)
        up += chance.choice([1, 1, 1, 2])
        down += chance.choice([1, 1, 1, 3])
        if chance.random() < 0.98:
            source[up] = mark
        if chance.random() < 0.98:
            target[down] = mark
    whole = by_content.matched(
        np.array(list(source.values())), np.array(list(target.values()))
    )

    found, logs = _aligned(source, target, copied_to=up + 1)

    assert found.runs[:, COUNT].sum() == len(whole)
    assert len(logs.pieces) > 20
    assert max(p.source_end - p.source_first for p in logs.pieces) < 500
    assert found.findings == ()
    assert found.of.source_end == up + 1


def test_the_end_of_a_flow_that_never_ran() -> None:
    """What follows the last copy on the source is unproven, and not compared."""
    found, _ = _aligned({0: 1, 1: 2, 2: 3, 5: 4}, {0: 1, 1: 2})

    (finding,) = found.findings
    assert (finding.kind, finding.source, finding.count) == (FindingKind.UNPROVEN, 2, 2)
    assert found.of.source_end == 2


def test_the_position_of_a_flow_says_what_is_missing() -> None:
    """What is below it must be there; what is not copied yet is left out, and what is
    copied already is compared.
    """
    source = {number: number for number in range(10)}
    behind, _ = _aligned(source, {0: 0, 1: 1}, copied_to=4)
    ahead, _ = _aligned(source, {n: n for n in range(6)}, copied_to=4)

    assert (behind.of.source_end, behind.findings) == (4, ())
    assert (ahead.of.source_end, ahead.findings) == (6, ())


def test_a_proof_since_a_time_begins_with_its_first_copy() -> None:
    """What the copy has of earlier records is not looked at; nor, if the flow began
    late, are records before its first.
    """
    source = {number: number for number in range(10, 20)}
    target = {number: number for number in range(20)}
    found, _ = _aligned(source, target, copied_to=20, source_first=10)
    nothing, _ = _aligned({9: 1}, target, source_first=10, source_end=10)
    late, _ = _aligned(target, source, copied_to=20, begins_with_copies=True)

    assert found.of.target_first == 10
    assert nothing.of.target_first == nothing.of.target_end == 20
    assert late.of.source_first == 10


def test_a_piece_that_fails_is_unknown() -> None:
    """The reason is that of its range; nothing of it is compared."""
    found, _ = _aligned({0: UNLUCKY, 1: 1}, {0: UNLUCKY, 1: 1}, copied_to=2)

    (only,) = ranges_of(found.of, found.runs, unknown_as=found.failure)
    assert (only.source_first, only.source_end, only.unknown) == (0, 2, "unlucky")


def test_a_source_that_cannot_be_sampled(monkeypatch: pytest.MonkeyPatch) -> None:
    """The partition is unknown as a whole."""

    def fail(*_: object) -> tuple[Marks, Marks]:
        raise ClusterError("gone")

    monkeypatch.setattr(by_content, "PIECE_OFFSETS", 1)
    monkeypatch.setattr(by_content, "_samples", fail)
    found, _ = _aligned({0: 1, 1: 2, 2: 3}, {0: 1}, copied_to=3)

    (only,) = ranges_of(found.of, found.runs, unknown_as=found.failure)
    assert (only.source_end, only.unknown) == (3, "gone")


def test_ranges_are_narrowed_on_the_side_of_the_copy() -> None:
    """They follow each other on both sides, none has too many offsets of the copy, and
    each pair is in the one that has both.
    """
    runs = np.array([[0, 0, 10], [12, 90, 10], [30, 101, 50]], np.int64)
    work = whole_range(copied(90, 200), runs)

    parts = list(narrowed(work, 25))

    assert parts[0].source_first == parts[0].target_first == 0
    assert (parts[-1].source_end, parts[-1].target_end) == (90, 200)
    for before, after in pairwise(parts):
        assert before.source_end == after.source_first
        assert before.target_end == after.target_first
    pairs = []
    for each in parts:
        assert each.target_end - each.target_first <= 25
        for up, down, count in each.runs.tolist():
            for n in range(count):
                assert each.source_first <= up + n < each.source_end
                assert each.target_first <= down + n < each.target_end
                pairs.append((up + n, down + n))
    assert pairs == [(u + n, d + n) for u, d, c in runs.tolist() for n in range(c)]


# ---- which records belong together ----


Pairs = list[tuple[int, int]]


def _matched(source: str, target: str) -> Pairs:
    pairs = matched(
        *(np.array([ord(x) for x in y], np.int64) for y in (source, target))
    )
    return [(int(up), int(down)) for up, down in pairs]


def _longest(source: str, target: str) -> int:
    """The length of the longest common subsequence."""
    best = [0] * (len(target) + 1)
    for one in source:
        before = 0
        for at, other in enumerate(target, 1):
            before, best[at] = (
                best[at],
                before + 1 if one == other else max(best[at], best[at - 1]),
            )
    return best[-1]


@pytest.mark.parametrize(
    ("source", "target", "pairs"),
    [
        ("", "", []),
        ("abc", "", []),
        ("abc", "abc", [(0, 0), (1, 1), (2, 2)]),
        ("abc", "ac", [(0, 0), (2, 1)]),  # b is missing
        ("abc", "axbyc", [(0, 0), (1, 2), (2, 4)]),  # others' records in between
        ("abcd", "abcbcd", [(0, 0), (1, 1), (2, 2), (3, 5)]),  # repeated: the first
        ("abc", "abcabc", [(0, 0), (1, 1), (2, 2)]),
        ("xaxbx", "xaxbx", [(0, 0), (1, 1), (2, 2), (3, 3), (4, 4)]),
        ("xxxa", "xxxa", [(0, 0), (1, 1), (2, 2), (3, 3)]),  # alike, as many
        ("xxa", "x?xa", [(0, 0), (1, 2), (2, 3)]),
        ("xxa", "xa", [(2, 1)]),  # alike, and one too few: which?
        ("axxb", "axxxb", [(0, 0), (3, 4)]),
        ("axb", "axxb", [(0, 0), (1, 1), (2, 3)]),
        ("xxx", "xx", []),
        ("xyxyc", "xyc", [(4, 2)]),
        ("abcdef", "adbcef", [(0, 0), (1, 2), (2, 3), (4, 4), (5, 5)]),  # d moved
        ("ab", "bab", [(0, 1), (1, 2)]),
    ],
)
def test_what_belongs_together(source: str, target: str, pairs: Pairs) -> None:
    """Order decides where it can; where it cannot, nothing is matched."""
    assert _matched(source, target) == pairs


@pytest.mark.parametrize("seed", range(200))
def test_pairs_are_equal_and_in_order(seed: int) -> None:
    """Whatever is lost, repeated, moved or added: pairs say the same, ascend on both
    sides, and of different records no more could be matched.
    """
    chance = random.Random(seed)
    letters = "".join(map(chr, range(0x4E00, 0x4E00 + chance.choice([3, 40, 400]))))
    source = "".join(chance.choice(letters) for _ in range(chance.randrange(150)))
    if seed % 2:  # no two alike
        source = "".join(dict.fromkeys(source))
    made = list(source)
    for _ in range(chance.randrange(12)):
        at, size = chance.randrange(len(made) + 1), chance.randrange(6)
        part = made[at : at + size]
        match chance.randrange(4):
            case 0:
                del made[at : at + size]
            case 1:
                made[at:at] = part
            case 2:
                made[at:at] = "?" * size
            case _:
                del made[at : at + size]
                to = chance.randrange(len(made) + 1)
                made[to:to] = part
    target = "".join(made)

    pairs = _matched(source, target)

    assert all(source[up] == target[down] for up, down in pairs)
    assert all(a < c and b < d for (a, b), (c, d) in pairwise(pairs))
    if seed % 2:
        assert len(pairs) == _longest(source, target)


def test_many_holes_and_many_records_of_others() -> None:
    """Every tenth record lost, as many of others between: all others are matched."""
    marks = np.random.default_rng(1).integers(-(1 << 63), 1 << 63 - 1, 100_000)
    kept = np.delete(marks, np.arange(0, len(marks), 10))
    target = np.repeat(kept, 2)
    target[1::2] = np.arange(len(kept))

    pairs = matched(marks, target)

    assert len(pairs) == len(kept)


# ---- where a lone record's other one would stand ----


OF = copied(100, 110)
WORK = whole_range(OF, np.array([[10, 20, 5], [30, 40, 5]], np.int64))


def _placed(
    what: int, offset: int, work: Range = WORK, damages: tuple[Damage, ...] = ()
) -> int:
    places = (offset, NOWHERE) if what == ONLY_SOURCE else (NOWHERE, offset)
    odd = np.array([row(what, *places)])
    place(odd, work, source_damages=damages, target_damages=damages)
    other = alignment.TARGET if what == ONLY_SOURCE else alignment.SOURCE
    return int(odd[0, other])


@pytest.mark.parametrize(
    ("what", "offset", "expected"),
    [
        (ONLY_SOURCE, 5, 19),
        (ONLY_SOURCE, 15, 39),
        (ONLY_SOURCE, 40, 109),  # after the last pair: at the end
        (ONLY_TARGET, 3, 9),
        (ONLY_TARGET, 30, 29),
        (ONLY_TARGET, 99, 99),
    ],
)
def test_right_before_the_next_pair(what: int, offset: int, expected: int) -> None:
    """So that only a later record of the key, after that, proves compaction."""
    assert _placed(what, offset) == expected


def test_what_precedes_the_first_pair_is_below_a_log_that_lost_its_beginning() -> None:
    """It counts as expired; what follows the first pair does not, nor does anything if
    the proof begins later than the log.
    """
    begun = replace(
        WORK,
        of=replace(OF, target_start=7, target_first=7, target_lost=7),
        target_first=7,
    )
    later = replace(begun, of=replace(OF, target_start=2, target_first=7))

    assert _placed(ONLY_SOURCE, 5, begun) == 6
    assert _placed(ONLY_SOURCE, 15, begun) == 39
    assert _placed(ONLY_SOURCE, 5, later) == 19


def test_a_log_that_lost_nothing_since_the_last_proof_explains_nothing() -> None:
    """Where retention took just what was proven before, no record counts as expired, on
    either side.
    """
    proven = replace(
        OF, continues=True, source_first=4, source_start=4, target_first=7,
        target_start=7,
    )  # fmt: skip
    work = replace(WORK, of=proven, source_first=4, target_first=7)

    assert _placed(ONLY_SOURCE, 5, work) == 19
    assert _placed(ONLY_TARGET, 8, work) == 9


def test_no_more_expires_than_the_log_has_lost() -> None:
    """The excess is unproven."""
    (found,) = not_expired(OF, 1010, 1)

    assert (found.kind, found.source, found.count) == (FindingKind.UNPROVEN, 0, 1009)
    assert not list(not_expired(OF, 10, 10))


def test_what_cannot_be_read_may_be_it() -> None:
    """A damaged batch between the copies of the neighbours explains the record."""
    damage = (Damage(first=27, end=33, reason="checksum"),)

    assert _placed(ONLY_SOURCE, 15, damages=damage) == 27
    assert _placed(ONLY_SOURCE, 5, damages=damage) == 19
