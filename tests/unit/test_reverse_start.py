"""Where a way back begins, against simulated logs that are fully known."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING
import uuid

from hypothesis import given, settings
from hypothesis import strategies as st
import numpy as np
import pytest

from mirror.offsets.holes import HoleLook
from mirror.offsets.reverse_start import Cover, Start, end_of_copies, search
from mirror.offsets.runs import Block, decode, encode

if TYPE_CHECKING:
    from mirror.offsets.holes import Hole

pytestmark = pytest.mark.unit

COPY_ID = uuid.UUID(int=100)
_TURNS = 3
"""So many transactions of one slot are under way at once."""


@dataclass
class SimulatedLog:
    """A copy's log, offset by offset: what each is, and what the map says."""

    kinds: list[str] = field(default_factory=list)
    """`copy`, `born`, `marker` (of a committed transaction), `abort`, `aborted`, or
    `gone` (the cleaner left nothing)."""
    values: list[bytes] = field(default_factory=list)
    """Of the map."""
    waiting: list[tuple[int, int]] = field(default_factory=list)
    """The flow's transactions whose markers are still to come: begin and end."""
    marked: list[tuple[int, int]] = field(default_factory=list)
    """The others: end, and where the marker is."""

    def copy(self, counts: list[int]) -> None:
        """A transaction, in parts with a foreign record between them."""
        if len(self.waiting) == _TURNS:
            self.mark()
        found = []
        begin = len(self.kinds)
        for number, count in enumerate(counts):
            if number:
                self.kinds.append("born")
            found.append((1000 + len(self.kinds), len(self.kinds), count))
            self.kinds += ["copy"] * count
        block = Block(
            topic="orders", partition=0, target_topic="orders",
            topic_id=uuid.UUID(int=1), copy_id=COPY_ID, runs=np.array(found, np.int64),
        )  # fmt: skip
        self.values += encode([block])
        self.waiting.append((begin, len(self.kinds)))

    def mark(self, turn: int = 0) -> None:
        if self.waiting:
            _, end = self.waiting.pop(turn % len(self.waiting))
            self.marked.append((end, len(self.kinds)))
            self.kinds.append("marker")

    def abort(self, count: int) -> None:
        """A transaction of the flow that did not come to its end."""
        self.kinds += ["aborted"] * count + ["abort"]

    def cover(self, begin: int = 0) -> Cover:
        cover = Cover(begin)
        for at, value in enumerate(self.values):
            for block in decode(value):
                cover.add(block, at)
        return cover

    def look(self, hole: Hole) -> HoleLook:
        there = self.kinds[hole[0] : hole[1]]
        assert "copy" not in there
        return HoleLook(
            born=hole[0] + there.index("born") if "born" in there else -1,
            markers=there.count("marker") + there.count("gone"),
        )

    def first_born(self, begin: int, cut: int) -> int:
        born = [n for n in range(begin, cut) if self.kinds[n] == "born"]
        return min(born, default=cut)

    def start(
        self,
        cover: Cover,
        cut: int,
        *,
        outstanding: int | None,
        most: int | None = None,
    ) -> tuple[Start, int]:
        """What the search finds, and how many holes it looked into."""
        searching = search(cover.holes(cut), cut, outstanding=outstanding, most=most)
        looked = 0
        try:
            wanted = next(searching)
            while True:
                looked += len(wanted)
                wanted = searching.send([self.look(hole) for hole in wanted])
        except StopIteration as done:
            return done.value, looked


STEPS = st.lists(
    st.one_of(
        st.lists(st.integers(1, 4), min_size=1, max_size=2).map(lambda c: ("copy", c)),
        st.integers(0, 2).map(lambda turn: ("mark", turn)),
        st.integers(1, 3).map(lambda count: ("abort", count)),
        st.sampled_from(["born", "marker", "gone"]).map(lambda kind: ("other", kind)),
    ),
    max_size=40,
)


def _simulated(steps: list[tuple[str, object]]) -> SimulatedLog:
    log = SimulatedLog()
    for what, of in steps:
        if what == "other":
            log.kinds.append(str(of))
        else:
            getattr(log, what)(of)
    return log


@given(STEPS, st.integers(0, 60))
@settings(deadline=None, max_examples=200)
def test_the_first_record_that_is_no_copy(
    steps: list[tuple[str, object]], begin: int
) -> None:
    """Whatever stands between copies and in whatever order markers come, the search
    finds the first record that the flow did not copy, or the cut.
    """
    log = _simulated(steps)
    while log.waiting:
        log.mark()
    cut = len(log.kinds)
    begin = min(begin, cut)
    found, _ = log.start(log.cover(begin), cut, outstanding=0)
    assert found == Start(log.first_born(begin, cut), sure=True)
    later = log.cover()
    later.begin_at(begin)
    assert log.start(later, cut, outstanding=0)[0] == found


@given(STEPS, st.integers(0, 60), st.integers(0, 9))
@settings(deadline=None, max_examples=200)
def test_a_log_that_is_not_quiet(
    steps: list[tuple[str, object]], cut: int, most: int
) -> None:
    """Below any cut, while markers are still to come, every hole is looked into; with
    a limit the answer is that record or before it, and says whether it is sure.
    """
    log = _simulated(steps)
    cut = min(cut, len(log.kinds))
    first = log.first_born(0, cut)
    found, _ = log.start(log.cover(), cut, outstanding=None)
    assert found == Start(first, sure=True)
    found, _ = log.start(log.cover(), cut, outstanding=None, most=most)
    assert found.offset == first or (found.offset < first and not found.sure)


@given(STEPS)
@settings(deadline=None, max_examples=200)
def test_a_log_that_is_written_all_the_time(steps: list[tuple[str, object]]) -> None:
    """While transactions are open, markers may stand behind the last stable offset. If
    it is known how many, or that there are no more, the same record is found.
    """
    log = _simulated(steps)
    cut = min((begin for begin, _ in log.waiting), default=len(log.kinds))
    behind = sum(end <= cut <= marker for end, marker in log.marked)
    for outstanding in (behind, behind + 1):
        found, _ = log.start(log.cover(), cut, outstanding=outstanding)
        assert found == Start(log.first_born(0, cut), sure=True)


def test_markers_are_not_looked_into() -> None:
    """Of a thousand transactions none is looked at while only markers are between
    them, and few when one record hides among them, also behind aborted transactions.
    """
    log = SimulatedLog()
    for _ in range(500):
        log.copy([500])
        log.mark()
    cut = len(log.kinds)
    assert log.start(log.cover(), cut, outstanding=0) == (Start(cut, sure=True), 0)
    log.abort(7)
    log.copy([500])
    for number in range(500):  # one marker is always still to come
        log.copy([500])
        if number == 250:
            hidden = len(log.kinds)
            log.kinds.append("born")
        log.mark()
    log.mark()
    found, looked = log.start(log.cover(), len(log.kinds), outstanding=0)
    assert found == Start(hidden, sure=True)
    assert looked < 40


def test_what_adopt_wrote_leaves_no_marker() -> None:
    """A map that begins with what MirrorMaker 2 copied does not count a marker for it,
    so a record behind those copies is found.
    """
    cover = Cover()
    block = Block(
        topic="orders", partition=0, target_topic="orders", topic_id=uuid.UUID(int=1),
        runs=np.array([(0, 0, 10)], np.int64),
    )  # fmt: skip
    cover.add(block, 0)
    assert list(cover.holes(11).markers) == []
    assert list(cover.holes(11).firsts) == [10]
    assert end_of_copies(cover, 3) == 10


def test_a_copy_that_lost_its_end_or_is_another() -> None:
    """What the map says later replaces what stood at the same offsets before, and a
    copy with another id begins at its first offset.
    """
    log = SimulatedLog()
    log.copy([10])
    log.mark()
    log.copy([10])
    log.mark()
    cover = log.cover()
    (block,) = decode(log.values[1])
    again = Block(
        topic="orders", partition=0, target_topic="orders", topic_id=block.topic_id,
        copy_id=COPY_ID, runs=np.array([(2000, 12, 5)], np.int64),
    )  # fmt: skip
    cover.add(again, 7)
    holes = cover.holes(18)
    assert list(zip(holes.firsts, holes.ends, strict=True)) == [(10, 11), (17, 18)]
    assert list(holes.markers) == [10, 17]
    renewed = Block(
        topic="orders", partition=0, target_topic="orders", topic_id=block.topic_id,
        copy_id=uuid.UUID(int=7), runs=np.array([(2005, 3, 5)], np.int64),
    )  # fmt: skip
    cover.add(renewed, 8)
    assert list(cover.holes(9).firsts) == [0, 8]
