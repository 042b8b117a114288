"""How far a copy goes, found from its last records, with simulated logs."""

from __future__ import annotations

from dataclasses import dataclass
import uuid

from hypothesis import given, settings
from hypothesis import strategies as st
import numpy as np
import pytest

from mirror.migration.plan import CopyTail, Window, compare
from mirror.offsets.index import FoundOffset, Track, locate, locate_all
from mirror.offsets.runs import DOWNSTREAM, UPSTREAM, Block

pytestmark = pytest.mark.unit


@dataclass
class Copying:
    """A source's records and what MirrorMaker 2 made of them: stretches, each begun at
    or before its position.
    """

    contents: list[int]
    holes: list[int]
    stretches: list[tuple[int, int]]
    """First record and end of each."""
    position: int
    """The record that its position names, by its number."""

    @property
    def offsets(self) -> list[int]:
        return [i + sum(self.holes[: i + 1]) for i in range(len(self.contents))]

    @property
    def copied(self) -> list[int]:
        """The records in the copy, by their numbers."""
        return [n for first, end in self.stretches for n in range(first, end)]

    @property
    def reached(self) -> int:
        return max((end for _, end in self.stretches), default=0)

    def source(self) -> Window:
        return Window(
            offsets=np.array(self.offsets, np.int64),
            marks=np.array(self.contents, np.uint64),
        )

    def target(self) -> Window:
        copied = self.copied
        return Window(
            offsets=np.array([2 * i for i in range(len(copied))], np.int64),
            marks=np.array([self.contents[n] for n in copied], np.uint64),
        )

    def compare(self) -> CopyTail:
        offsets = [*self.offsets, self.offsets[-1] + 1 if self.contents else 0]
        return compare(
            self.source(), self.target(), offsets[self.position], from_first=True
        )


@st.composite
def copyings(draw: st.DrawFn, *, alike: bool) -> Copying:
    count = draw(st.integers(1, 30))
    contents = (
        draw(st.lists(st.integers(0, 6), min_size=count, max_size=count))
        if alike
        else list(range(100, 100 + count))
    )
    holes = draw(st.lists(st.integers(0, 2), min_size=count, max_size=count))
    position = reached = 0
    stretches = []
    for _ in range(draw(st.integers(1, 3))):
        first = position
        end = draw(st.integers(first, count))
        stretches.append((first, end))
        reached = max(reached, end)
        position = draw(st.integers(first, end))
    return Copying(contents, holes, stretches, position)


@given(copyings(alike=False))
@settings(deadline=None)
def test_records_that_differ_tell_exactly(copying: Copying) -> None:
    """If no two records are the same, what is copied is known to the record, however
    often MirrorMaker 2 restarted before its position.
    """
    tail = copying.compare()

    rest = [o for o in copying.offsets if o >= tail.offset]
    assert len(rest) == len(copying.contents) - max(copying.reached, copying.position)
    assert tail.certain
    assert tail.unexplained == 0


@given(copyings(alike=True))
@settings(deadline=None, max_examples=400)
def test_records_alike_never_lead_too_far(copying: Copying) -> None:
    """If records repeat, none that was not copied is left out."""
    if len(copying.stretches) > 1:
        copying.stretches = copying.stretches[:1]
        copying.position = min(copying.position, copying.stretches[0][1])
    tail = copying.compare()

    left_out = [
        copying.contents[n]
        for n, offset in enumerate(copying.offsets)
        if offset < tail.offset and n >= copying.reached
    ]
    assert left_out == []


@given(copyings(alike=False))
@settings(deadline=None)
def test_the_map_knows_where_the_last_records_stand(copying: Copying) -> None:
    """A group that continues where the first runs of the map say finds every record
    that it has not read, and no later ones only.
    """
    tail = copying.compare()
    if not len(tail.runs):
        return
    copied = copying.copied
    for number, offset in enumerate(copying.offsets):
        if not tail.runs[0, UPSTREAM] <= offset < tail.offset:
            continue
        found = locate(tail.runs, offset, UPSTREAM)
        assert found is not None
        at = found.offset // 2
        assert number in copied[at:]
        if found.sure and number < copying.reached:
            assert copied[at] == number


def test_exactly_once_needs_nothing_from_the_copy() -> None:
    """After a position that was written with the records nothing is found, and the
    answer is certain.
    """
    copying = Copying(list(range(10, 20)), [0] * 10, [(0, 6)], 6)

    tail = copying.compare()

    assert (tail.offset, tail.copied, tail.certain) == (6, 0, True)


def test_copied_behind_the_position() -> None:
    """Records that were copied after the last position was written are found."""
    copying = Copying(list(range(10, 20)), [1] + [0] * 9, [(0, 8)], 5)

    tail = copying.compare()

    assert (tail.offset, tail.copied, tail.certain) == (9, 3, True)


@given(st.integers(2, 12), st.integers(0, 30), st.integers(0, 12), st.integers(1, 40))
@settings(deadline=None)
def test_a_stream_that_comes_round_again(
    period: int, position: int, ahead: int, before: int
) -> None:
    """Windows in the middle of a repeating stream prove nothing false, although what
    precedes them may look like what follows.
    """
    total = position + ahead + 20
    contents = np.arange(total).astype(np.uint64) % np.uint64(period)
    first = max(position - before, 0)
    until = min(position + period - 1, total)
    source = Window(offsets=np.arange(first, until), marks=contents[first:until])
    reached = position + ahead
    target = Window(offsets=np.arange(reached), marks=contents[:reached])

    tail = compare(source, target, position, from_first=first == 0)

    assert position <= tail.offset <= reached


def test_what_is_missing_before_the_position() -> None:
    """A position beyond the copy's records is noticed, and does not move back."""
    copying = Copying(list(range(10, 20)), [0] * 10, [(0, 4)], 6)

    tail = copying.compare()

    assert (tail.offset, tail.missing, tail.certain) == (6, 2, True)


def test_a_copy_of_something_else() -> None:
    """A copy without any record of the source proves nothing: the position stays, and
    the answer says how much may be copied again.
    """
    source = Window(offsets=np.arange(10), marks=np.arange(10).astype(np.uint64))
    target = Window(offsets=np.arange(4), marks=np.arange(50, 54).astype(np.uint64))

    tail = compare(source, target, 5)

    assert (tail.offset, tail.certain, tail.anchored) == (5, False, False)
    assert tail.unexplained == 4


def test_all_the_same() -> None:
    """If all records are the same, nothing shows which were copied."""
    copying = Copying([7] * 10, [0] * 10, [(0, 8)], 5)

    tail = copying.compare()

    assert (tail.offset, tail.certain) == (5, False)


def test_alike_behind_a_single_one() -> None:
    """Equal records are known by the record before them, if the copy ends with them."""
    copying = Copying([1, 2, 3, 7, 7, 7, 7], [0] * 7, [(0, 6)], 3)

    tail = copying.compare()

    assert (tail.offset, tail.copied, tail.certain) == (6, 3, True)


def test_floors() -> None:
    """After a floor an answer is the floor itself, and not sure; at it, it is sure."""
    runs = np.array([(0, 5, 0), (10, 20, 1), (11, 21, 0), (30, 60, 3)], np.int64)

    assert locate(runs, 0, UPSTREAM) == FoundOffset(5)
    assert locate(runs, 7, UPSTREAM) == FoundOffset(5, sure=False)
    assert locate(runs, 10, UPSTREAM) == FoundOffset(20)
    assert locate(runs, 11, UPSTREAM) == FoundOffset(21)
    assert locate(runs, 29, UPSTREAM) == FoundOffset(21, sure=False)
    assert locate(runs, 31, UPSTREAM) == FoundOffset(61)
    assert locate(runs, 22, DOWNSTREAM) == FoundOffset(11, sure=False)


def test_many_answers_at_once_know_floors() -> None:
    """Many offsets asked at once get the answers that each gets alone."""
    runs = np.array([(0, 5, 0), (10, 20, 1), (11, 21, 0), (30, 60, 3)], np.int64)
    asked = np.arange(33)

    found, sure = locate_all(runs, asked, UPSTREAM)

    assert list(map(FoundOffset, found.tolist(), sure.tolist())) == [
        locate(runs, offset, UPSTREAM) for offset in asked.tolist()
    ]


def test_copies_go_on_behind_a_floor() -> None:
    """What is copied after the last floor is known exactly."""
    track = Track("A.t")
    seeds = np.array([(0, 0, 0), (40, 90, 0)], np.int64)
    for at, rows in enumerate((seeds, np.array([(40, 90, 5)], np.int64))):
        block = Block(
            topic="t", partition=0, target_topic="A.t", topic_id=uuid.UUID(int=1),
            runs=rows,
        )  # fmt: skip
        track.add(block, at, keep=10)

    (epoch,) = track.epochs
    assert epoch.find(43, UPSTREAM) == FoundOffset(93)
    assert epoch.find(39, UPSTREAM) == FoundOffset(0, sure=False)
    assert epoch.end(UPSTREAM) == 45
