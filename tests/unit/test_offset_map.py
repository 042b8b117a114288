"""Exact translation, against simulated logs that are fully known."""

from __future__ import annotations

from bisect import bisect_left
from dataclasses import dataclass, field
import json
from typing import TYPE_CHECKING, Any
import uuid

from hypothesis import assume, given, settings
from hypothesis import strategies as st
import numpy as np
import pytest

from mirror.errors import CorruptBatchError
from mirror.offsets import index, runs, translation
from mirror.offsets.index import MapIndex, Track
from mirror.offsets.progress import Position, Progress
from mirror.offsets.retention import longest
from mirror.offsets.runs import Block
from mirror.offsets.translation import Exactness, Log, OffsetMap

if TYPE_CHECKING:
    from collections.abc import Iterator

pytestmark = pytest.mark.unit

TOPIC = "orders"
COPY = "A.orders"
FIRST_ID, SECOND_ID = uuid.UUID(int=1), uuid.UUID(int=2)
COPY_ID, MAP_ID = uuid.UUID(int=100), uuid.UUID(int=300)


@dataclass
class Simulation:
    """A source partition, its copy, and the map that transactions wrote."""

    topic_id: uuid.UUID = FIRST_ID
    upstream: int = 0
    downstream: int = 0
    at: int = 0
    copy_id: uuid.UUID = COPY_ID
    start: int = 0
    copies: list[tuple[int, int]] = field(default_factory=list)
    """Every record in the copy: its offset on the source and on the target."""
    values: list[tuple[int, bytes]] = field(default_factory=list)
    keys: dict[int, bytes] = field(default_factory=dict)
    """Of those records of the map that have one."""
    kept: MapIndex | None = None
    """At which readers of the map begin."""

    def keep(self, known: OffsetMap) -> None:
        """Have readers begin where this one is: by what the target keeps of it."""
        fields = known._map.index().fields()
        parts, look = json.loads(json.dumps(fields))
        self.kept = MapIndex.from_fields(
            look, [parts[str(n)] for n in range(look["parts"])]
        )

    def transaction(self, parts: list[tuple[int, int]]) -> None:
        """Parts are (source offsets without a copy, records copied after them)."""
        found = []
        for hole, count in parts:
            self.upstream += hole
            if count:
                found.append((self.upstream, self.downstream, count))
                self.copies += [
                    (self.upstream + i, self.downstream + i) for i in range(count)
                ]
            self.upstream += count
            self.downstream += count
        self.downstream += 1  # the target's commit marker
        block = Block(
            topic=TOPIC,
            partition=0,
            target_topic=COPY,
            topic_id=self.topic_id,
            copy_id=self.copy_id,
            runs=runs.joined(np.array(found, np.int64).reshape(-1, 3)),
        )
        if found:
            for value in runs.encode([block]):
                self.values.append((self.at, value))
                self.at += 1
        self.at += 1  # a marker on the map as well

    def repair(self, missing: list[int]) -> None:
        """Append late copies of these source offsets, which have none."""
        found = [(up, self.downstream + n, 1) for n, up in enumerate(missing)]
        self.copies += [(up, down) for up, down, _ in found]
        self.downstream += len(found) + 1
        block = Block(
            topic=TOPIC, partition=0, target_topic=COPY, topic_id=self.topic_id,
            copy_id=self.copy_id, runs=runs.joined(np.array(found, np.int64)),
        )  # fmt: skip
        for key, value in runs.encode_late([block]):
            assert list(runs.decode(value)) == []  # what earlier releases read
            self.keys[self.at] = key
            self.values.append((self.at, value))
            self.at += 1
        self.at += 1

    def log(self) -> Log:
        """The copy as it is now."""
        return Log(topic_id=self.copy_id, start=self.start, end=self.downstream)

    def sides(self) -> tuple[list[int], list[int]]:
        """The offsets of copied records on the source, and of their copies."""
        return [up for up, _ in self.copies], [down for _, down in self.copies]

    def map(self, monkeypatch: pytest.MonkeyPatch, **terms: bool) -> OffsetMap:
        """What a reader of the target's topics knows."""
        simulation = self

        class Reader:
            def __init__(self, *_: Any, position: int = 0, **__: Any) -> None:
                self.position, self.start = position, 0
                self.topic_id, self.epoch = MAP_ID, 0

            def read(
                self, *, end: int | None = None, **_: object
            ) -> Iterator[tuple[int, bytes, bytes]]:
                stop = simulation.at if end is None else end
                first, last = (
                    bisect_left(simulation.values, (offset, b""))
                    for offset in (self.position, stop)
                )
                for at, value in simulation.values[first:last]:
                    yield at, simulation.keys.get(at, b""), value
                self.position = stop

            def answers(
                self, **asked: Any
            ) -> Iterator[Iterator[tuple[int, bytes, bytes]]]:
                yield self.read(**asked)

        class Positions:
            def __init__(self, *_: Any, **_terms: Any) -> None: ...

            def read(self, **_: object) -> Progress:
                position = Position(
                    offset=simulation.upstream, topic_id=simulation.topic_id
                )
                return Progress(positions={(TOPIC, 0): position})

        def read_logs(
            _: Any, asked: set[tuple[str, int]]
        ) -> dict[tuple[str, int], Log]:
            return dict.fromkeys(asked, simulation.log())

        monkeypatch.setattr(translation, "read_logs", read_logs)
        monkeypatch.setattr(translation, "read_index", lambda *_, **_terms: self.kept)
        monkeypatch.setattr(translation, "TopicReader", Reader)
        monkeypatch.setattr(translation.progress, "ProgressReader", Positions)
        return OffsetMap(None, "A", **terms)


TRANSACTIONS = st.lists(
    st.lists(st.tuples(st.integers(0, 3), st.integers(0, 4)), min_size=1, max_size=4),
    min_size=1,
    max_size=30,
)


def _simulated(transactions: list[list[tuple[int, int]]]) -> Simulation:
    simulation = Simulation()
    for parts in transactions:
        simulation.transaction(parts)
    return simulation


def _small(monkeypatch: pytest.MonkeyPatch) -> None:
    """An index so small that most answers must be read from the map, and a cache so
    small that it keeps evicting places.
    """
    monkeypatch.setattr(index, "_MOST_STARTS", 4)
    monkeypatch.setattr(runs, "_AT_ONCE", 3)
    monkeypatch.setattr(translation, "_LEAST_TAIL", 1)
    monkeypatch.setattr(translation, "_LARGEST_TAIL", 1)
    monkeypatch.setattr(index, "_LARGEST_ROWS", 2)
    monkeypatch.setattr(index, "_PART_ROWS", 1)
    monkeypatch.setattr(translation, "_CACHED_RUNS", 12)


@given(TRANSACTIONS)
@settings(deadline=None)
def test_a_group_reads_on_exactly_where_it_stopped(
    transactions: list[list[tuple[int, int]]],
) -> None:
    """From the answer on, the target has exactly the copies of what a group had not
    read: at every offset, in holes, at the tip and beyond; and a larger offset never
    gets a smaller answer.
    """
    with pytest.MonkeyPatch.context() as monkeypatch:
        _small(monkeypatch)
        simulation = _simulated(transactions)
        known = simulation.map(monkeypatch)
        known.refresh()
        last = -1
        offsets = range(simulation.upstream + 3)
        together = simulation.map(monkeypatch)
        together.refresh()
        answers = together.translate_all({(TOPIC, 0): set(offsets)})[TOPIC, 0]
        ups, downs = simulation.sides()
        for offset in offsets:
            answer = known.translate(TOPIC, 0, offset)
            assert answers[offset] == answer
            # Both ascend, so these are equal if what is behind them is.
            assert bisect_left(ups, offset) == bisect_left(downs, answer.offset)
            assert answer.offset >= last
            assert (answer.exactness is Exactness.BEHIND) == (
                offset > simulation.upstream
            )
            last = answer.offset


@given(TRANSACTIONS)
@settings(deadline=None)
def test_the_way_back_is_as_exact(
    transactions: list[list[tuple[int, int]]],
) -> None:
    """A group that read on at the target continues at the source with exactly the
    records whose copies it had not read, and a copied record's offset comes back
    unchanged.
    """
    with pytest.MonkeyPatch.context() as monkeypatch:
        _small(monkeypatch)
        simulation = _simulated(transactions)
        known = simulation.map(monkeypatch)
        known.refresh()
        if not simulation.copies:
            return
        ups, downs = simulation.sides()
        for offset in range(simulation.downstream + 3):
            answer = known.reverse(TOPIC, 0, offset)
            assert bisect_left(downs, offset) == bisect_left(ups, answer.offset)
        for up, down in simulation.copies:
            assert known.translate(TOPIC, 0, up).offset == down
            assert known.reverse(TOPIC, 0, down).offset == up


@given(TRANSACTIONS, TRANSACTIONS)
@settings(deadline=None)
def test_following_equals_reading_from_the_start(
    earlier: list[list[tuple[int, int]]], later: list[list[tuple[int, int]]]
) -> None:
    """A map that was followed answers like one that is read after a restart."""
    with pytest.MonkeyPatch.context() as monkeypatch:
        _small(monkeypatch)
        simulation = _simulated(earlier)
        followed = simulation.map(monkeypatch)
        followed.refresh()
        for parts in later:
            simulation.transaction(parts)
        followed.refresh()
        restarted = simulation.map(monkeypatch)
        restarted.refresh()
        every = {(TOPIC, 0): set(range(simulation.upstream + 2))}
        assert followed.translate_all(every) == restarted.translate_all(every)


@given(TRANSACTIONS, TRANSACTIONS)
@settings(deadline=None)
def test_an_index_goes_on_as_the_map_that_was_read(
    earlier: list[list[tuple[int, int]]], later: list[list[tuple[int, int]]]
) -> None:
    """A reader that begins at the index of another one answers like one that reads the
    whole map, both ways.
    """
    with pytest.MonkeyPatch.context() as monkeypatch:
        _small(monkeypatch)
        simulation = _simulated(earlier)
        copied, _ = simulation.sides()
        holes = {*range(simulation.upstream)}.difference(copied)
        if holes:
            simulation.repair(sorted(holes)[:3])
        first = simulation.map(monkeypatch)
        first.refresh()
        simulation.keep(first)
        for parts in later:
            simulation.transaction(parts)
        began_there = simulation.map(monkeypatch)
        began_there.refresh()
        simulation.kept = None
        whole = simulation.map(monkeypatch)
        whole.refresh()
        every = {(TOPIC, 0): set(range(simulation.upstream + 2))}
        assert began_there.translate_all(every) == whole.translate_all(every)
        for offset in range(simulation.downstream + 2):
            answer = began_there.reverse(TOPIC, 0, offset)
            assert answer == whole.reverse(TOPIC, 0, offset)


def test_a_recreated_topic_starts_over(monkeypatch: pytest.MonkeyPatch) -> None:
    """Offsets of a re-created topic are not taken for those of its predecessor."""
    simulation = _simulated([[(0, 10)], [(0, 10)]])
    simulation.topic_id, simulation.upstream = SECOND_ID, 0
    known = simulation.map(monkeypatch)
    known.refresh()
    assert known.translate(TOPIC, 0, 0).offset == 21  # behind the old copies
    assert {known.reverse(TOPIC, 0, down).offset for down in (3, 21)} == {0}
    simulation.transaction([(0, 5)])
    known.refresh()
    assert [known.translate(TOPIC, 0, up).offset for up in (0, 4, 5)] == [22, 26, 27]
    assert known.reverse(TOPIC, 0, 23).offset == 1
    assert known.reverse(TOPIC, 0, 3).exactness is Exactness.BEFORE


@given(TRANSACTIONS, st.integers(1, 12), TRANSACTIONS)
@settings(deadline=None)
def test_what_was_copied_twice_is_not_skipped(
    earlier: list[list[tuple[int, int]]],
    back: int,
    later: list[list[tuple[int, int]]],
) -> None:
    """After a rewind, as at-least-once may cause it, no unread record is skipped."""
    with pytest.MonkeyPatch.context() as monkeypatch:
        _small(monkeypatch)
        simulation = _simulated(earlier)
        end = simulation.upstream
        simulation.upstream = max(0, end - back)
        simulation.transaction([(0, end - simulation.upstream)])
        for parts in later:
            simulation.transaction(parts)
        known = simulation.map(monkeypatch)
        known.refresh()
        ups, downs = simulation.sides()
        every = set(range(simulation.upstream))
        answers = known.translate_all({(TOPIC, 0): every})[TOPIC, 0]
        for offset in every:
            answer = known.translate(TOPIC, 0, offset)
            assert answers[offset] == answer
            unread = {up for up in ups if offset <= up}
            to_come = set(ups[bisect_left(downs, answer.offset) :])
            assert unread <= to_come


def test_older_than_all_that_is_known(monkeypatch: pytest.MonkeyPatch) -> None:
    """A group below a flow's first record starts at that record, and the answer says
    so.
    """
    simulation = Simulation(upstream=100)
    simulation.transaction([(0, 10)])
    known = simulation.map(monkeypatch)
    known.refresh()
    answer = known.translate(TOPIC, 0, 7)
    assert (answer.offset, answer.exactness) == (0, Exactness.BEFORE)
    assert known.translate("others", 0, 7).exactness is Exactness.UNKNOWN
    whole = simulation.map(monkeypatch, from_first=True)
    whole.refresh()
    assert whole.translate(TOPIC, 0, 7).exactness is Exactness.EXACT


@given(
    st.dictionaries(
        st.tuples(st.sampled_from(["a", "ä.b"]), st.integers(0, 5)),
        st.lists(
            st.tuples(*[st.integers(0, 2**62)] * 2, st.integers(1, 2**31 - 1)),
            min_size=1,
            max_size=5,
        ),
    )
)
@settings(deadline=None)
def test_runs_are_read_as_written(
    wanted: dict[tuple[str, int], list[tuple[int, int, int]]],
) -> None:
    """Blocks come back from their bytes with every number unchanged; each ascends."""
    blocks = [
        Block(
            topic=topic,
            partition=partition,
            target_topic=f"A.{topic}",
            topic_id=FIRST_ID,
            runs=np.array(rows, np.int64),
        )
        for (topic, partition), rows in wanted.items()
    ]
    read: dict[tuple[str, int], list[tuple[int, ...]]] = {}
    for value in runs.encode(blocks):
        for block in runs.decode(value):
            assert not runs.falls(block.runs).any()
            rows = read.setdefault((block.topic, block.partition), [])
            rows += map(tuple, block.runs.tolist())
    assert read == wanted


def test_many_runs_are_cut(monkeypatch: pytest.MonkeyPatch) -> None:
    """No value exceeds what a topic accepts, and no run is lost."""
    monkeypatch.setattr(runs, "_MOST_BYTES", most := 250)
    rows = np.arange(60, dtype=np.int64).reshape(20, 3)
    blocks = [
        Block(topic=TOPIC, partition=p, target_topic=COPY, topic_id=FIRST_ID, runs=rows)
        for p in range(3)
    ]
    values = runs.encode(blocks)
    read: dict[int, list[list[int]]] = {}
    for value in values:
        assert len(value) <= most
        for block in runs.decode(value):
            read.setdefault(block.partition, []).extend(block.runs.tolist())
    assert read == dict.fromkeys(range(3), rows.tolist())


@pytest.mark.parametrize("value", [b"", b"\0", b"\0\1", b"\0\0\0\5abc"])
def test_what_is_no_map_is_refused(value: bytes) -> None:
    """Bytes of another version, or cut short, are an error and not an answer."""
    with pytest.raises(CorruptBatchError):
        list(runs.decode(value))


def test_a_month_of_a_busy_partition_stays_small() -> None:
    """However long a partition is busy, its index does not grow: a thousand of them
    stay below 200 MB, even after a month.
    """
    track = Track(COPY)
    keep = max(translation._LEAST_TAIL, translation._TAIL_RUNS // 1000)
    rows = np.arange(40_000, dtype=np.int64)[:, None] * (5, 6, 0) + (0, 0, 5)
    sizes = []
    for number, row in enumerate(rows):  # thinned every time when it would grow
        block = Block(
            topic=TOPIC, partition=0, target_topic=COPY, topic_id=FIRST_ID,
            runs=row[None],
        )  # fmt: skip
        track.add(block, number * 2, keep=keep)
        if number % 8000 == 7999:
            sizes.append(track.epochs[0].nbytes)
    assert len(set(sizes)) == 1
    assert sizes[0] < 200_000


def test_of_a_large_block_the_newest_runs_are_kept() -> None:
    """What stands together in the map may have more runs than are to be kept."""
    track = Track(COPY)
    rows = np.arange(1000, dtype=np.int64)[:, None] * (5, 6, 0) + (0, 0, 5)
    for number, some in enumerate(np.split(rows, 2)):
        block = Block(
            topic=TOPIC, partition=0, target_topic=COPY, topic_id=FIRST_ID, runs=some
        )
        track.add(block, number, keep=64)
        assert track.epochs[0].kept.tolist() == some[-64:].tolist()
    assert track.epochs[0].nbytes < 10_000


@pytest.mark.parametrize(
    ("topics", "kept"),
    [
        ([], 0),
        ([{"cleanup.policy": "delete", "retention.ms": "5", "segment.ms": "7"}], 12),
        ([{"cleanup.policy": "delete", "retention.ms": "-1"}], -1),
        ([{"cleanup.policy": "compact", "retention.ms": "5"}], -1),
        (
            [
                {"cleanup.policy": "compact,delete", "retention.ms": "5"},
                {"cleanup.policy": "delete", "retention.ms": "50"},
            ],
            50,
        ),
    ],
)
def test_the_map_outlives_the_copies(topics: list[dict[str, str]], kept: int) -> None:
    """The map is kept until brokers have deleted the last copy that it describes."""
    assert longest(topics) == kept


@given(before=TRANSACTIONS, after=TRANSACTIONS, data=st.data())
@settings(max_examples=30, deadline=None)
def test_late_records_move_no_other_offset(
    before: list[list[tuple[int, int]]],
    after: list[list[tuple[int, int]]],
    data: st.DataObject,
) -> None:
    """What a repair appends changes no answer on the way there, so a group skips
    nothing; on the way back each offset leads to the record that it would read next.
    """
    simulation = _simulated(before)
    ups = {up for up, _ in simulation.copies}
    holes = [up for up in range(simulation.upstream) if up not in ups]
    assume(ups and holes)
    missing = sorted(data.draw(st.sets(st.sampled_from(holes), min_size=1)))
    with pytest.MonkeyPatch.context() as patched:
        _small(patched)
        simulation.repair(missing)
        for parts in after:
            simulation.transaction(parts)
        plain = Simulation(
            upstream=simulation.upstream, downstream=simulation.downstream,
            at=simulation.at, values=simulation.values,
        )  # fmt: skip
        answers = []
        for each in (plain, simulation):
            known = each.map(patched)
            known.refresh()
            answers.append(
                [known.translate(TOPIC, 0, n) for n in range(each.upstream + 1)]
            )
        assert answers[0] == answers[1]
        for down in range(simulation.downstream):
            following = [pair for pair in simulation.copies if pair[1] >= down]
            expected = min(following, key=lambda pair: pair[1], default=None)
            if expected is not None:
                assert known.reverse(TOPIC, 0, down).offset == expected[0]
