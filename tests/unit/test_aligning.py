"""How partitions are cut where both logs have the same record, and what follows from
what tasks found there; without a cluster.
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from itertools import pairwise
import random
from typing import TYPE_CHECKING, Any
import uuid

import numpy as np
import pytest

from mirror.clusters.cluster import Cluster
from mirror.config.cluster_settings import ClusterConfig
from mirror.errors import ClusterError
from mirror.offsets.runs import COUNT
from mirror.proofs import by_content
from mirror.proofs.account import CopiedPartition, FindingKind
from mirror.proofs.by_content import Aligned, Located, Marks, aligned
from mirror.proofs.ranges import PackedRuns, Range, narrowed, ranges_of
from mirror.proofs.runners import OutOfReach
from mirror.proofs.sides import ProofTerms

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

pytestmark = pytest.mark.unit

TERMS = ProofTerms(
    source=ClusterConfig(alias="A", bootstrap_servers=("127.0.0.1:1",)),
    target=ClusterConfig(alias="B", bootstrap_servers=("127.0.0.1:1",)),
    source_id="a-id", target_id="b-id", by_content=True,
)  # fmt: skip
OF = CopiedPartition(
    topic="t", partition=0, target_topic="A.t", topic_id=uuid.UUID(int=1),
    copy_id=uuid.UUID(int=2), source_first=0, source_end=0, target_first=0,
    target_end=0,
)  # fmt: skip
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
        first, end = (
            (piece.source_first, piece.source_end)
            if on_source
            else (piece.target_first, piece.target_end)
        )
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
    ends = {
        "source_end": max(source, default=-1) + 1,
        "target_end": max(target, default=-1) + 1,
    }
    of = replace(OF, **{**ends, **values})
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
    work = Range(
        of=OF,
        source_first=0,
        source_end=90,
        target_first=0,
        target_end=200,
        packed=PackedRuns(runs),
    )

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
