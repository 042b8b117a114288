"""The offset map's answers for copies that were re-created or lost their end, against
simulated logs that are fully known.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
import itertools
import struct
from typing import TYPE_CHECKING, cast
import uuid

from hypothesis import given, settings
from hypothesis import strategies as st
import numpy as np
import pytest

from mirror.clusters.admin.group_offsets import CommittedOffset
from mirror.clusters.topics import Leader, Topic
from mirror.clusters.wire.produce import EncodedBatch
from mirror.clusters.wire.write import Placed
from mirror.copying.target import Copies
from mirror.errors import ClusterError
from mirror.offsets import index, runs
from mirror.offsets.checkpoints import Checkpoint, Highest, decide
from mirror.offsets.group_offset_sync import forward
from mirror.offsets.groups import GroupPosition, GroupsStanding
from mirror.offsets.progress import NO_ID
from mirror.offsets.runs import Block
from mirror.offsets.translation import Exactness, Log, Translated
from tests.unit.test_offset_map import COPY_ID, TOPIC, Simulation, _small

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from collections.abc import Set as AbstractSet

    from mirror.clusters.cluster import Cluster
    from mirror.offsets.translation import OffsetMap

pytestmark = pytest.mark.unit

OTHER_ID = uuid.UUID(int=101)


@dataclass
class Fate(Simulation):
    """A copy that does not stay as it was written."""

    tagged: bool = True
    """Whether the map says which copy its runs are of."""
    rewound: bool = False
    is_copied: dict[int, bool] = field(default_factory=dict)
    """Of each source offset, whether it is a record that is copied."""

    def __post_init__(self) -> None:
        self.ids = (uuid.UUID(int=number) for number in itertools.count(200))
        self.real_id = self.copy_id
        if not self.tagged:
            self.copy_id = NO_ID

    def log(self) -> Log:
        return Log(topic_id=self.real_id, start=self.start, end=self.downstream)

    def transaction(self, parts: list[tuple[int, int]]) -> None:
        flags = itertools.chain.from_iterable(
            [False] * hole + [True] * count for hole, count in parts
        )
        made = [
            (0, 1) if self.is_copied.setdefault(upstream, flag) else (1, 0)
            for upstream, flag in enumerate(flags, self.upstream)
        ]
        super().transaction(made)

    def lose_end(self, count: int) -> None:
        """An election of a replica that was not in sync."""
        self.downstream = max(self.downstream - count, self.start)
        self.copies = [each for each in self.copies if each[1] < self.downstream]

    def recreate(self, others: int) -> None:
        """Someone deletes and re-creates the copy, and others write to it first."""
        self.real_id = next(self.ids)
        if self.tagged:
            self.copy_id = self.real_id
        self.start, self.downstream = 0, others
        self.copies = []

    def lose_start(self, count: int) -> None:
        """Retention."""
        self.start = min(self.start + count, self.downstream)
        self.copies = [each for each in self.copies if each[1] >= self.start]

    def copy_again(self, count: int) -> None:
        """At least once, or progress that was lost with the copies."""
        self.rewound = True
        self.upstream = max(0, self.upstream - count)


@dataclass
class Unfenced(Fate):
    """At least once: a task that was believed dead also writes part of what the next
    one copies, and reports it whenever it wakes up.
    """

    late: list[bytes] = field(default_factory=list)
    expired: list[tuple[int, int]] = field(default_factory=list)

    def lose_start(self, count: int) -> None:
        before = self.copies
        super().lose_start(count)
        self.expired += before[: len(before) - len(self.copies)]

    def recreate(self, others: int) -> None:
        super().recreate(others)
        self.expired = []

    def zombie(self, parts: list[tuple[int, int]]) -> None:
        values, at, upstream = self.values, self.at, self.upstream
        self.values = []
        self.transaction(parts)
        self.late += [value for _, value in self.values]
        self.values, self.at, self.upstream = values, at, upstream

    def wake_up(self, count: int) -> None:
        for value in self.late[:count]:
            self.values.append((self.at, value))
            self.at += 1
        del self.late[:count]


FEW = st.lists(
    st.lists(st.tuples(st.integers(0, 3), st.integers(0, 4)), min_size=1, max_size=3),
    min_size=1,
    max_size=6,
)
STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("transactions"), FEW),
        st.tuples(st.just("lose_end"), st.integers(1, 40)),
        st.tuples(st.just("recreate"), st.integers(0, 60)),
        st.tuples(st.just("lose_start"), st.integers(1, 20)),
        st.tuples(st.just("copy_again"), st.integers(1, 30)),
    ),
    min_size=1,
    max_size=7,
)


UNFENCED_STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("transactions"), FEW),
        st.tuples(
            st.just("zombie"),
            st.lists(
                st.tuples(st.integers(0, 3), st.integers(0, 4)), min_size=1, max_size=3
            ),
        ),
        st.tuples(st.just("wake_up"), st.integers(1, 3)),
        st.tuples(st.just("lose_end"), st.integers(1, 40)),
        st.tuples(st.just("recreate"), st.integers(0, 60)),
        st.tuples(st.just("lose_start"), st.integers(1, 20)),
        st.tuples(st.just("copy_again"), st.integers(1, 30)),
    ),
    min_size=1,
    max_size=12,
)


def _live(fate: Fate, steps: list[tuple[str, object]]) -> None:
    for what, how in steps:
        if what == "transactions":
            assert isinstance(how, list)
            for parts in how:
                fate.transaction(parts)
        else:
            getattr(fate, what)(how)


def _check(fate: Fate, known: OffsetMap, *, exactly: bool) -> None:
    every = set(range(fate.upstream + 3))
    answers = known.translate_all({(TOPIC, 0): every})[TOPIC, 0]
    last: Translated | None = None
    for offset in sorted(every):
        answer = known.translate(TOPIC, 0, offset)
        assert answers[offset] == answer
        if not known.partitions():
            assert not fate.copies
            continue
        assert fate.start <= answer.offset <= fate.downstream
        assert last is None or last.offset <= answer.offset
        unread = {up for up, _ in fate.copies if offset <= up < fate.upstream}
        to_come = {up for up, down in fate.copies if answer.offset <= down}
        assert unread <= to_come, (offset, answer)
        if exactly:
            assert unread == to_come, (offset, answer)
        last = answer


@given(STEPS, st.booleans())
@settings(deadline=None, max_examples=200)
def test_nothing_that_a_copy_holds_is_skipped(
    steps: list[tuple[str, object]], tagged: bool
) -> None:
    """However often a copy is re-created, loses its end or its start, or is written
    again: what a group had not read and the copy has comes after the answer, which lies
    within the log and never falls while the group moves on. If nothing was written
    twice and the map names the copy's id, nothing is read again.
    """
    with pytest.MonkeyPatch.context() as monkeypatch:
        _small(monkeypatch)
        fate = Fate(tagged=tagged)
        _live(fate, steps)
        known = fate.map(monkeypatch)
        known.refresh()
        _check(fate, known, exactly=tagged and not fate.rewound)


@given(STEPS, STEPS, st.booleans())
@settings(deadline=None, max_examples=50)
def test_a_map_that_was_followed_knows_the_same(
    earlier: list[tuple[str, object]],
    later: list[tuple[str, object]],
    tagged: bool,
) -> None:
    """A reader that followed the map answers no worse than one that reads it later, and
    so does one that begins at the index of another.
    """
    with pytest.MonkeyPatch.context() as monkeypatch:
        _small(monkeypatch)
        fate = Fate(tagged=tagged)
        known = fate.map(monkeypatch)
        for steps in (earlier, later):
            _live(fate, steps)
            known.refresh()
            _check(fate, known, exactly=tagged and not fate.rewound)
            began_there = fate.map(monkeypatch)
            began_there.refresh()
            _check(fate, began_there, exactly=tagged and not fate.rewound)
            fate.keep(began_there)


@given(STEPS)
@settings(deadline=None)
def test_the_way_back_knows_what_is_gone(steps: list[tuple[str, object]]) -> None:
    """A group that read on at a copy returns to the source without missing a record
    whose copy it had not read, and every copy's offset leads to its own record.
    """
    with pytest.MonkeyPatch.context() as monkeypatch:
        _small(monkeypatch)
        fate = Fate()
        _live(fate, [step for step in steps if step[0] != "copy_again"])
        known = fate.map(monkeypatch)
        known.refresh()
        for up, down in fate.copies:
            assert known.reverse(TOPIC, 0, down).offset == up
        for offset in range(fate.start, fate.downstream):
            answer = known.reverse(TOPIC, 0, offset)
            following = [up for up, down in fate.copies if down >= offset]
            if following:
                assert answer.offset <= following[0]


@given(
    UNFENCED_STEPS, st.booleans(), st.booleans(), st.integers(1, 32), st.integers(0, 12)
)
@settings(deadline=None, max_examples=500)
def test_records_of_the_map_that_come_late_hide_nothing(
    steps: list[tuple[str, object]], tagged: bool, small: bool, epochs: int, kept: int
) -> None:
    """Without fencing, a task that was believed dead reports late where its records
    are: no answer goes too far because of that, however few breaks are remembered,
    whether or not the copy lost its end, and neither on the way back, wherever the
    index ends at which the reader begins.
    """
    with pytest.MonkeyPatch.context() as monkeypatch:
        if small:
            _small(monkeypatch)
        monkeypatch.setattr(index, "_MOST_EPOCHS", epochs)
        fate = Unfenced(tagged=tagged)
        _live(fate, steps[:kept])
        earlier = fate.map(monkeypatch, exactly_once=False)
        earlier.refresh()
        fate.keep(earlier)
        _live(fate, steps[kept:])
        fate.wake_up(len(fate.late))
        known = fate.map(monkeypatch, exactly_once=False)
        known.refresh()
        _check(fate, known, exactly=False)
        if not (fate.copies and tagged):  # without ids nothing tells copies apart
            return
        for offset in range(fate.start, fate.downstream + 1):
            answer = known.reverse(TOPIC, 0, offset)
            passed = fate.expired + fate.copies
            read = {up for up, down in passed if down < offset}
            unread = {up for up, _ in fate.copies if up not in read}
            assert answer.offset <= min(unread, default=max(fate.is_copied) + 1)


def test_what_came_late_leaves_the_others_where_they_are(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A late record of the map, from a task that was believed dead, makes no other
    offset go too far, and the offsets after it keep their answers.
    """
    fate = Unfenced()
    fate.transaction([(0, 50)])
    fate.zombie([(0, 10)])
    fate.transaction([(0, 100)])
    fate.wake_up(1)
    fate.transaction([(0, 50)])
    known = fate.map(monkeypatch, exactly_once=False)
    known.refresh()
    assert known.translate(TOPIC, 0, 49).offset == 49
    assert known.translate(TOPIC, 0, 55).offset == 51 + 5
    assert known.translate(TOPIC, 0, 70).offset == 51 + 11 + 20
    assert known.translate(TOPIC, 0, 199).offset == fate.downstream - 2
    assert known.translate(TOPIC, 0, 200).offset == fate.downstream - 1


def _copied(*parts: tuple[int, int]) -> Fate:
    fate = Fate()
    for part in parts:
        fate.transaction([part])
    return fate


def test_recreated_and_copied_on(monkeypatch: pytest.MonkeyPatch) -> None:
    """Groups from before the deletion begin at the new copy's first record, wherever
    they were in the old copy, and the answer says that it goes back.
    """
    fate = _copied((0, 1000))
    fate.recreate(0)
    fate.transaction([(0, 10)])
    known = fate.map(monkeypatch)
    known.refresh()
    for offset in (0, 300, 500, 999):
        assert known.translate(TOPIC, 0, offset) == Translated(
            offset=0, exactness=Exactness.BEFORE, renewed=True
        )
    assert known.translate(TOPIC, 0, 1003).offset == 3
    assert known.translate(TOPIC, 0, 1003).exactness is Exactness.EXACT
    assert known.translate(TOPIC, 0, 1010).offset == 10


def test_recreated_by_others(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing was copied since: everything that will be copied is still to be read,
    even by a group that was at the tip; a copy that does not exist is like an empty
    one.
    """
    fate = _copied((0, 1000))
    known = fate.map(monkeypatch)
    known.refresh()
    assert known.translate(TOPIC, 0, 300).offset == 300
    fate.recreate(0)
    known.refresh()
    for offset in (300, 500, 1000, 1005):
        assert known.translate(TOPIC, 0, offset).offset == 0
    assert known.translate(TOPIC, 0, 300).exactness is Exactness.BEFORE
    assert known.translate(TOPIC, 0, 1000).exactness is Exactness.TIP
    assert known.reverse(TOPIC, 0, 0).offset == 1000
    monkeypatch.setattr(Fate, "log", lambda _: Log(topic_id=None))
    known.refresh()
    assert known.translate(TOPIC, 0, 500).offset == 0
    assert not known.translate(TOPIC, 0, 500).renewed


def test_written_to_under_the_id_of_the_copy_before(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A slot did not notice that an empty copy was re-created: no answer claims that
    there is nothing left to read, in either direction (found by simulation, seed 450).
    """
    fate = _copied((0, 1000))
    fate.recreate(0)
    fate.copy_id = COPY_ID
    fate.transaction([(0, 20)])
    known = fate.map(monkeypatch)
    known.refresh()
    for offset in (500, 1000, 1020):
        answer = known.translate(TOPIC, 0, offset)
        assert (answer.offset, answer.exactness) == (0, Exactness.BEFORE)
    back = known.reverse(TOPIC, 0, 5)
    assert (back.offset, back.exactness) == (1000, Exactness.BEFORE)
    assert known.reverse(TOPIC, 0, fate.downstream).exactness is Exactness.TIP


def test_a_broker_that_is_late_does_not_bring_a_copy_back(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A broker that still names the deleted topic changes no answer."""
    fate = _copied((0, 1000))
    fate.recreate(0)
    fate.transaction([(0, 10)])
    fate.real_id = COPY_ID
    known = fate.map(monkeypatch)
    known.refresh()
    assert known.translate(TOPIC, 0, 1003).offset == 3


def test_the_end_is_lost_and_nothing_was_copied_since(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """No answer lies beyond the end of the log; that alone is no reason to go back,
    since the end may look too low for a moment.
    """
    fate = _copied((0, 1000))
    fate.lose_end(101)
    known = fate.map(monkeypatch)
    known.refresh()
    assert known.translate(TOPIC, 0, 899).offset == 899
    for offset in (905, 999, 1000):
        assert known.translate(TOPIC, 0, offset) == Translated(
            offset=900, exactness=Exactness.TIP
        )
    fate.transaction([(0, 10)])
    known.refresh()
    assert known.translate(TOPIC, 0, 899).exactness is Exactness.EXACT
    assert known.translate(TOPIC, 0, 905) == Translated(
        offset=900, exactness=Exactness.EXACT, renewed=True
    )
    assert known.reverse(TOPIC, 0, 905).offset == 1005


def test_more_breaks_than_are_remembered(monkeypatch: pytest.MonkeyPatch) -> None:
    """A flow that copied again very often forgets its oldest epochs, but not that they
    existed: a group in one of them skips nothing.
    """
    fate = _copied((0, 100))
    for _ in range(40):
        fate.copy_again(10)
        fate.transaction([(0, 15)])
    known = fate.map(monkeypatch)
    known.refresh()
    _check(fate, known, exactly=False)


@given(STEPS, st.booleans(), st.booleans(), st.integers(1, 3))
@settings(deadline=None, max_examples=300)
def test_breaks_that_are_forgotten_hide_nothing(
    steps: list[tuple[str, object]], tagged: bool, exactly_once: bool, epochs: int
) -> None:
    """There were more breaks than are remembered, and then the copy lost its end: no
    answer goes too far, since the only copy left may be a forgotten one.
    """
    with pytest.MonkeyPatch.context() as monkeypatch:
        monkeypatch.setattr(index, "_MOST_EPOCHS", epochs)
        fate = Fate(tagged=tagged)
        _live(fate, steps)
        known = fate.map(monkeypatch, exactly_once=exactly_once)
        known.refresh()
        _check(fate, known, exactly=False)


@pytest.mark.parametrize("exactly_once", [True, False])
def test_only_a_forgotten_copy_is_left(
    monkeypatch: pytest.MonkeyPatch, exactly_once: bool
) -> None:
    """The same with as many breaks as are remembered in practice, and three records
    left of the oldest; offsets after all that is forgotten are exact.
    """
    fate = _copied((0, 100))
    for _ in range(40):
        fate.copy_again(10)
        fate.transaction([(0, 15)])
    oldest = fate.downstream - 32 * 16
    fate.lose_end(fate.downstream - oldest - 3)
    fate.transaction([(0, 10)])
    known = fate.map(monkeypatch, exactly_once=exactly_once)
    known.refresh()
    _check(fate, known, exactly=False)
    assert known.translate(TOPIC, 0, 303).offset == fate.downstream - 8


def test_the_end_is_lost_in_the_midst_of_a_transaction(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """If one record of the map describes both copies, each offset finds its own, even
    if it must be read from the map.
    """
    _small(monkeypatch)
    fate = _copied((0, 20))
    block = Block(
        topic=TOPIC,
        partition=0,
        target_topic="A.orders",
        topic_id=fate.topic_id,
        copy_id=COPY_ID,
        runs=np.array([(20, 21, 10), (30, 26, 10)], np.int64),
    )
    (value,) = runs.encode([block])
    fate.values.append((fate.at, value))
    fate.at += 2
    fate.upstream, fate.downstream = 40, 37
    fate.copies = [(up, up) for up in range(20)]
    fate.copies += [(20 + n, 21 + n) for n in range(5)]
    fate.copies += [(30 + n, 26 + n) for n in range(10)]
    for _ in range(5):
        fate.transaction([(1, 2)])
    known = fate.map(monkeypatch)
    known.refresh()
    _check(fate, known, exactly=True)
    for up, down in fate.copies:
        assert known.reverse(TOPIC, 0, down).offset == up


def test_old_readers_read_what_new_writers_write() -> None:
    """A reader of the format's first version, written here as `formats.md` had it,
    finds the same runs and nothing else if the copy's id precedes them.
    """
    blocks = [
        Block(
            topic=topic,
            partition=partition,
            target_topic=f"A.{topic}",
            topic_id=uuid.UUID(int=7),
            copy_id=COPY_ID,
            runs=np.array([(5, 6, 7), (20, 21, 3)], np.int64),
        )
        for topic in ("orders", "users")
        for partition in range(2)
    ]
    (value,) = runs.encode(blocks)
    found = []
    version, at = struct.unpack_from(">h", value)[0], 2
    assert version == 0
    while at < len(value):
        names = []
        for _ in range(2):
            (length,) = struct.unpack_from(">h", value, at)
            names.append(value[at + 2 : at + 2 + length].decode())
            at += 2 + length
        topic_id = uuid.UUID(bytes=value[at : at + 16])
        (count,) = struct.unpack_from(">i", value, at + 16)
        at += 20
        for _ in range(count):
            found.append((*names, topic_id, *struct.unpack_from(">iiqq", value, at)))
            at += 24
    assert found == [
        (b.topic, b.target_topic, b.topic_id, b.partition, count, up, down)
        for b in blocks
        for up, down, count in b.runs.tolist()
    ]
    assert [each.copy_id for each in runs.decode(value)] == [COPY_ID] * 4


def test_checkpoints_and_groups_leave_a_copy_that_is_gone() -> None:
    """A checkpoint of a re-created copy goes back with it, and so does a group that
    mirror had set there; a group that moved on by itself stays.
    """
    key = ("A.orders", 0)
    last = Checkpoint(
        group="g", topic="A.orders", partition=0, upstream=500, downstream=500
    )
    answer = Translated(offset=0, exactness=Exactness.BEFORE, renewed=True)
    for renewed in (False, True):
        place = GroupPosition(
            "orders", 0, "A.orders", 500, replace(answer, renewed=renewed)
        )
        standing = GroupsStanding(groups={}, places={"g": (place,)})
        changed, known = decide({"g": {key: last}}, standing)
        assert bool(changed) is renewed
        assert known["g"][key].downstream == (0 if renewed else 500)
    withdrawn = _highest(last).withdrawn(known, standing, LostFrom(0))
    assert withdrawn == {"g": {key: 500}}
    for present, moved in ((480, True), (500, True), (501, False), (0, False)):
        steps = forward(known["g"], {key: CommittedOffset(present)}, withdrawn["g"])
        assert bool(steps) is moved, present
    assert not forward(known["g"], {key: CommittedOffset(480)})


def _highest(*written: Checkpoint) -> Highest:
    highest = Highest()
    for each in written:
        highest.take(each)
    return highest


@dataclass
class LostFrom:
    """A map of a copy with the same offsets that lost everything from one offset on."""

    end: int

    def translate(self, topic: str, partition: int, offset: int) -> Translated:
        return Translated(
            offset=min(offset, self.end), exactness=Exactness.EXACT, renewed=True
        )

    reverse = translate

    def translate_all(
        self, questions: Mapping[tuple[str, int], AbstractSet[int]]
    ) -> dict[tuple[str, int], dict[int, Translated]]:
        return {
            key: {offset: self.translate(*key, offset) for offset in offsets}
            for key, offsets in questions.items()
        }


@pytest.mark.parametrize(
    ("written", "end", "withdrawn"),
    [
        pytest.param([(500, 500)], 100, 500, id="the last one"),
        pytest.param([(500, 500), (50, 50)], 100, 500, id="before a rewind"),
        pytest.param([(500, 500), (50, 50), (200, 200)], 100, 500, id="and on again"),
        pytest.param([(500, 500), (500, 100)], 100, None, id="already withdrawn"),
        pytest.param([(500, 500), (500, 100), (600, 300)], 200, 300, id="once more"),
        pytest.param([(500, 500), (50, 50)], 900, None, id="rewound, nothing lost"),
    ],
)
def test_the_highest_checkpoint_is_withdrawn(
    written: list[tuple[int, int]], end: int, withdrawn: int | None
) -> None:
    """A group may be at the highest offset written for it, even if it was rewound on
    the source since; that is withdrawn once, and a rewind alone withdraws nothing.
    """
    made = [
        Checkpoint(group="g", topic="A.orders", partition=0, upstream=up, downstream=at)
        for up, at in written
    ]
    up, at = written[-1]
    answer = Translated(offset=min(at, end), exactness=Exactness.EXACT, renewed=True)
    place = GroupPosition("orders", 0, "A.orders", up, answer)
    standing = GroupsStanding(groups={}, places={"g": (place,)})
    key = ("A.orders", 0)
    _, known = decide({"g": {key: made[-1]}}, standing)
    found = _highest(*made).withdrawn(known, standing, LostFrom(end))
    assert found == ({} if withdrawn is None else {"g": {key: withdrawn}})


WHERE = ("A.orders", 0)


@dataclass
class FakeCluster:
    """A target whose leaders name the same id for all topics but these."""

    topic_id: uuid.UUID = COPY_ID
    asked: list[tuple[int | None, set[str]]] = field(default_factory=list)
    others: dict[str, Topic] = field(default_factory=dict)

    def topics(
        self, names: Iterable[str], *, node: int | None = None
    ) -> dict[str, Topic]:
        names = set(names)
        self.asked.append((node, names))
        copy = copy_of(self.topic_id)
        return {name: self.others.get(name, copy) for name in names}


def copy_of(topic_id: uuid.UUID, *, error: int = 0) -> Topic:
    return Topic(
        name=WHERE[0],
        topic_id=topic_id,
        leaders={0: Leader(node=7, epoch=1), 1: Leader(node=8, epoch=1)},
        error=error,
        replication_factor=1,
    )


TOPICS = {name: copy_of(COPY_ID) for name in (WHERE[0], "A.users")}


def placed(offset: int, count: int, where: tuple[str, int] = WHERE) -> Placed:
    batch = EncodedBatch(header=bytearray(), body=b"", count=count)
    return Placed(where=where, offset=offset, batch=batch)


def test_a_writer_notices_that_a_log_began_again() -> None:
    """A write below an offset that was in use belongs to another copy, or to one that
    lost its end: the transaction fails, and the slot takes over.
    """
    copies = Copies(cast("Cluster", FakeCluster()))
    copies.check([placed(0, 10), placed(10, 5)], TOPICS)
    copies.check([placed(16, 1), placed(-1, 1)], TOPICS)
    with pytest.raises(ClusterError, match=r"A\.orders-0: .* offset 3, .* up to 16"):
        copies.check([placed(3, 1)], TOPICS)
    copies.begin()
    copies.check([placed(3, 1)], TOPICS)


def test_a_writer_asks_leaders_after_its_first_write() -> None:
    """Each leader names the topics that it wrote to for the first time; later writes
    need no request, until the next take-over.
    """
    cluster = FakeCluster()
    copies = Copies(cast("Cluster", cluster))
    for _ in range(2):
        copies.check([placed(0, 1), placed(0, 1, (WHERE[0], 1))], TOPICS)
        assert sorted(cluster.asked) == [(7, {WHERE[0]}), (8, {WHERE[0]})]
        copies.check([placed(1, 1)], TOPICS)
        assert len(cluster.asked) == 2
        cluster.asked.clear()
        copies.begin()


@pytest.mark.parametrize(
    ("shown", "said"),
    [
        (copy_of(uuid.UUID(int=102)), r"A\.users was deleted or re-created"),
        (copy_of(NO_ID, error=3), r"A\.users: UNKNOWN_TOPIC_OR_PARTITION"),
    ],
)
def test_a_writer_notices_another_copy_at_its_first_write(
    shown: Topic, said: str
) -> None:
    """A copy that was re-created or deleted since the take-over fails the first write
    to itself, and none to another copy.
    """
    cluster = FakeCluster(others={"A.users": shown})
    copies = Copies(cast("Cluster", cluster))
    copies.check([placed(0, 1)], TOPICS)
    with pytest.raises(ClusterError, match=said):
        copies.check([placed(0, 1, ("A.users", 0))], TOPICS)
