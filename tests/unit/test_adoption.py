"""Taking over from MirrorMaker 2: its positions, byte for byte; how far a copy goes, by
its last records; and the rows of the offset map from before mirror copied.
"""

from __future__ import annotations

from dataclasses import dataclass
import uuid

from hypothesis import given, settings
from hypothesis import strategies as st
import numpy as np
import pytest

from mirror.clusters.wire.produce import partition_of
from mirror.errors import MirrorError
from mirror.migration.mirrormaker import (
    encode_key,
    encode_value,
    parse_key,
    parse_value,
)
from mirror.migration.plan import CopyTail, Window, ascending, compare, initial_runs
from mirror.offsets.index import FoundOffset, Track, locate, locate_all
from mirror.offsets.runs import DOWNSTREAM, UPSTREAM, Block

pytestmark = pytest.mark.unit

KEY = b'["MirrorSourceConnector",{"cluster":"A","partition":3,"topic":"orders"}]'


def test_key_as_mirrormaker_writes_it() -> None:
    """The key has the very bytes that Connect's JSON converter writes."""
    made = encode_key("MirrorSourceConnector", "A", "orders", 3)

    assert made == KEY


def test_value_is_the_last_record_copied() -> None:
    """To continue at a record, the value has the offset before it."""
    assert encode_value(1) == b'{"offset":0}'
    assert parse_value(b'{"offset":41}') == 41


@pytest.mark.parametrize(
    "key",
    [
        b'["MirrorHeartbeatConnector",{"sourceClusterAlias":"A"}]',
        b'["MirrorSourceConnector",{"cluster":"C","partition":3,"topic":"orders"}]',
        b'["file-source",{"filename":"x"}]',
        b"no json",
        b"null",
        b"[]",
    ],
)
def test_other_keys_are_not_ours(key: bytes) -> None:
    """Positions of other connectors and of other sources are skipped."""
    assert parse_key(key, connector="MirrorSourceConnector", source_alias="A") is None


def test_order_of_the_fields_does_not_matter() -> None:
    """Keys are read with their fields in any order."""
    key = b'["x", {"topic": "a.b", "partition": 0, "cluster": "A"}]'

    found = parse_key(key, connector="x", source_alias="A")

    assert found == ("a.b", 0)


def test_a_value_that_is_no_position() -> None:
    """Any other value is refused, with what is expected."""
    with pytest.raises(MirrorError, match=r'\{"offset": N\}'):
        parse_value(b'{"position":1}')


@given(st.text(min_size=1), st.text(min_size=1), st.integers(0, 10_000))
def test_keys_come_back(connector: str, alias: str, partition: int) -> None:
    """Whatever the connector and the alias are called, a written key is read back."""
    key = encode_key(connector, alias, "t", partition)

    assert parse_key(key, connector=connector, source_alias=alias) == (
        "t",
        partition,
    )


def test_partition_as_in_java() -> None:
    """Keys go to the partitions that Java's producers choose: the figures are from
    Kafka's own tests of murmur2.
    """
    known = {b"21": -973932308, b"foobar": -790332482, b"abc": 479470107}
    for key, hashed in known.items():
        assert partition_of(key, 25) == (hashed & 0x7FFFFFFF) % 25


# ---- how far a copy goes ----


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


@pytest.mark.parametrize(
    ("copying", "offset", "copied", "missing", "certain"),
    [
        # A position that was written with the records: nothing comes after it.
        (Copying(list(range(10, 20)), [0] * 10, [(0, 6)], 6), 6, 0, 0, True),
        # Records that were copied after the last position was written are found.
        (Copying(list(range(10, 20)), [1] + [0] * 9, [(0, 8)], 5), 9, 3, 0, True),
        # A position beyond the copy's records is noticed, and does not move back.
        (Copying(list(range(10, 20)), [0] * 10, [(0, 4)], 6), 6, 0, 2, True),
        # All records are the same: nothing shows which were copied.
        (Copying([7] * 10, [0] * 10, [(0, 8)], 5), 5, 0, 5, False),
        # Equal records are known by the one before them, if the copy ends with them.
        (Copying([1, 2, 3, 7, 7, 7, 7], [0] * 7, [(0, 6)], 3), 6, 3, 0, True),
    ],
)
def test_how_far_it_goes(
    copying: Copying, offset: int, copied: int, missing: int, certain: bool
) -> None:
    """Where copying continues, what is there already, and what should be."""
    tail = copying.compare()

    assert (tail.offset, tail.copied) == (offset, copied)
    assert (tail.missing, tail.certain) == (missing, certain)


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


def test_a_copy_of_something_else() -> None:
    """A copy without any record of the source proves nothing: the position stays, and
    the answer says how much may be copied again.
    """
    source = Window(offsets=np.arange(10), marks=np.arange(10).astype(np.uint64))
    target = Window(offsets=np.arange(4), marks=np.arange(50, 54).astype(np.uint64))

    tail = compare(source, target, 5)

    assert (tail.offset, tail.certain, tail.anchored) == (5, False, False)
    assert tail.unexplained == 4


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


# ---- the first rows of the map ----


Pair = tuple[int, int]
Row = tuple[int, int, int]
PAIRS = st.lists(st.tuples(st.integers(0, 50), st.integers(0, 80)), max_size=20)


@pytest.mark.parametrize(
    ("tail", "syncs", "begins", "ends", "rows"),
    [
        # A sync is one known record; a floor with MirrorMaker 2's answers follows it.
        (
            [], [(10, 12), (20, 25)], (0, 0), (30, 40),
            [(0, 0, 0), (10, 12, 1), (11, 13, 0), (20, 25, 1), (21, 26, 0),
             (30, 40, 0)],
        ),
        # Where the copy was read, its runs replace syncs.
        (
            [(20, 25, 10)], [(10, 12), (22, 27)], (0, 3), (30, 35),
            [(0, 3, 0), (10, 12, 1), (11, 13, 0), (20, 25, 10)],
        ),
        # Taking over again adds only what MirrorMaker 2 copied since.
        (
            [(90, 100, 20)], [(50, 60), (104, 114)], (100, 110), (110, 120),
            [(100, 110, 10)],
        ),
        # Its position is before mirror's: everything from there on is copied again.
        ([], [], (100, 110), (80, 150), [(80, 150, 0)]),
    ],
)  # fmt: skip
def test_the_first_rows(
    tail: list[Row], syncs: list[Pair], begins: Pair, ends: Pair, rows: list[Row]
) -> None:
    """What syncs and the copy say, and floors where they say nothing."""
    known = np.array(tail, np.int64).reshape(-1, 3)

    made = initial_runs(known, syncs, begins=begins, ends=ends)

    assert [tuple(each) for each in made.tolist()] == rows


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
    made = initial_runs(
        np.empty((0, 3), np.int64), pairs, begins=(0, 0), ends=(60, 100)
    )

    assert (np.diff(made[:, UPSTREAM]) >= 0).all()
    assert (np.diff(made[:, DOWNSTREAM]) >= 0).all()
    answers = []
    for offset in range(60):
        found = locate(made, offset, UPSTREAM)
        assert found is not None
        answers.append(found.offset)
    assert answers == sorted(answers)
    assert all(0 <= answer <= 100 for answer in answers)
