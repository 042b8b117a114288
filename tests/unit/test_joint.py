"""One offset for a group in a log with two interleavings, against a model that knows
every record.
"""

from __future__ import annotations

from bisect import bisect_left
from contextlib import contextmanager
from dataclasses import dataclass, field
import itertools
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any
import uuid

from hypothesis import given, settings
from hypothesis import strategies as st
import numpy as np
import pytest

from mirror.offsets import holes, joint, reverse_start, translation
from mirror.offsets.groups import Copy
from mirror.offsets.holes import HoleLook
from mirror.offsets.joint import JointMap, again, merged
from mirror.offsets.progress import Position, Progress
from mirror.offsets.reverse_start import Edges
from mirror.offsets.runs import COUNT, DOWNSTREAM, Block, decode, encode, joined
from mirror.offsets.translation import Exactness, Log, OffsetMap, Translated
from mirror.recovery.steps import changes
from tests.harness.configurations import configuration

if TYPE_CHECKING:
    from collections.abc import Iterator

pytestmark = pytest.mark.unit

TOPIC = "orders"
FLOWS = configuration(
    {
        "clusters": {name: {"bootstrap_servers": f"{name}:1"} for name in "AB"},
        "flows": {
            name: {"policy": "identity", "topics": [TOPIC]} for name in ("A->B", "B->A")
        },
    }
).flows


@dataclass(eq=False)
class Side:
    """One cluster: its log, and what the flow into it wrote."""

    name: str
    topic_id: uuid.UUID
    log: list[tuple[str, str]] = field(default_factory=list)
    """Offset by offset: `record`, `aborted` or `marker`, and the record's name, which
    begins with its cluster's."""
    begins: list[int] = field(default_factory=list)
    """Of transactions whose markers are still to come."""
    values: list[tuple[int, bytes]] = field(default_factory=list)
    position: int = 0
    """The next offset of the other log to copy."""
    start: int = 0
    map_start: int = 0

    @property
    def stable(self) -> int:
        return min(self.begins, default=len(self.log))

    def records(self, first: int = 0, end: int | None = None) -> list[tuple[int, str]]:
        part = enumerate(self.log[first:end], first)
        return [(at, name) for at, (kind, name) in part if kind == "record"]

    def topics(self, names: list[str]) -> dict[str, Any]:
        found = SimpleNamespace(error=0, topic_id=self.topic_id)
        return dict.fromkeys(names, found)

    def edges(self) -> Edges:
        return Edges(
            topic_id=self.topic_id,
            start=self.start,
            cut=self.stable,
            end=len(self.log),
        )

    def look(self, first: int, end: int) -> HoleLook:
        kinds = [kind for kind, _ in self.log[first:end]]
        assert end <= self.stable
        return HoleLook(
            born=first + kinds.index("record") if "record" in kinds else -1,
            markers=kinds.count("marker"),
        )

    def retain(self, start: int) -> None:
        """Retention takes what is before an offset, and what the map says of it."""
        self.start = start
        for at, value in self.values:
            (block,) = decode(value)
            if (block.runs[:, DOWNSTREAM] + block.runs[:, COUNT]).max() > start:
                break
            self.map_start = at + 2


class Pair:
    """Two clusters with one topic, and flows both ways."""

    def __init__(self) -> None:
        self.a = Side("A", uuid.UUID(int=1))
        self.b = Side("B", uuid.UUID(int=2))
        self._names = itertools.count()

    def other(self, side: Side) -> Side:
        return self.b if side is self.a else self.a

    def produce(self, side: Side, count: int) -> None:
        for _ in range(count):
            side.log.append(("record", f"{side.name}{next(self._names)}"))

    def abort(self, side: Side, count: int) -> None:
        side.log += [("aborted", "")] * count + [("marker", "")]

    def mark(self, side: Side) -> None:
        if side.begins:
            side.begins.pop(0)
            side.log.append(("marker", ""))

    def copy(self, side: Side, most: int, between: int = 0) -> None:
        """A transaction of the flow into a side: it copies what was written to the
        other one, up to `most` offsets, and somebody writes in the middle of it.
        """
        source = self.other(side)
        end = min(source.stable, side.position + most)
        found, begin = [], len(side.log)
        for at, name in source.records(side.position, end):
            if name[0] == source.name:
                found.append((at, len(side.log), 1))
                side.log.append(("record", name))
                self.produce(side, between)
                between = 0
        side.position = max(side.position, end)
        if not found:
            return
        if len(side.begins) == 3:
            self.mark(side)
        side.begins.append(begin)
        block = Block(
            topic=TOPIC, partition=0, target_topic=TOPIC, topic_id=source.topic_id,
            copy_id=side.topic_id, runs=joined(np.array(found, np.int64)),
        )  # fmt: skip
        side.values += [(2 * len(side.values), value) for value in encode([block])]

    def drain(self, side: Side) -> None:
        """The flow into a side copies all, and ends its transactions."""
        self.copy(side, 1 << 30)
        while side.begins:
            self.mark(side)

    @contextmanager
    def joint(self, source: Side) -> Iterator[JointMap]:
        """The answers for groups of a side, from maps as the service reads them."""
        target = self.other(source)
        with pytest.MonkeyPatch.context() as patch:
            for module in (translation, reverse_start, changes):
                patch.setattr(module, "TopicReader", _Reader)
            patch.setattr(translation.progress, "ProgressReader", _Positions)
            patch.setattr(translation, "read_index", lambda *_, **_terms: None)
            patch.setattr(
                translation,
                "read_logs",
                lambda side, asked: {
                    key: Log(
                        topic_id=side.topic_id, start=side.start, end=len(side.log)
                    )
                    for key in asked
                },
            )
            patch.setattr(
                joint, "edges", lambda side, keys: {k: side.edges() for k in keys}
            )
            patch.setattr(
                holes,
                "look",
                lambda side, *args: [side.look(*hole) for hole in args[3]],
            )
            flow = FLOWS[f"{source.name}->{target.name}"]
            back = FLOWS[f"{target.name}->{source.name}"]
            made = JointMap(
                flow,
                OffsetMap.of(flow, target),
                source,
                target,
                patient=True,
            )
            made.refresh({TOPIC: Copy(topic=TOPIC, partitions=1, back=back)})
            yield made

    def again(self, source: Side, offset: int, answer: int) -> int:
        """What is predicted to be read again; only within `joint`."""
        target = self.other(source)
        there, back = (
            FLOWS[f"{one.name}->{other.name}"]
            for one, other in ((source, target), (target, source))
        )
        move = changes.OffsetMove("app", TOPIC, 0, offset, TOPIC, answer)
        found = changes.predict_repeats(there, back, source, target, [move])
        return found[move]


class _Reader:
    """Reads the map on a side."""

    def __init__(self, side: Side, _topic: str, *, position: int = 0, **_: Any) -> None:
        self._side = side
        self.position, self.start = position, side.map_start
        self.topic_id = None

    def read(
        self, *, end: int | None = None, **_: object
    ) -> Iterator[tuple[int, bytes, bytes]]:
        values = self._side.values
        stop = 2 * len(values) if end is None else end
        first, last = (
            bisect_left(values, (offset, b""))
            for offset in (max(self.position, self.start), stop)
        )
        for at, value in values[first:last]:
            yield at, b"", value
        self.position = stop

    def answers(self, **asked: Any) -> Iterator[Iterator[tuple[int, bytes, bytes]]]:
        yield self.read(**asked)


class _Positions:
    def __init__(self, side: Side, _topic: str, **_terms: bool) -> None:
        self._side = side

    def read(self, **_: object) -> Progress:
        other = uuid.UUID(int=3 - self._side.topic_id.int)
        position = Position(offset=self._side.position, topic_id=other)
        return Progress(positions={(TOPIC, 0): position})


SIDES = st.sampled_from("ab")
STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("produce"), SIDES, st.integers(1, 3)),
        st.tuples(st.just("copy"), SIDES, st.integers(1, 9)),
        st.tuples(st.just("mix"), SIDES, st.integers(1, 2)),
        st.tuples(st.just("mark"), SIDES, st.just(0)),
        st.tuples(st.just("abort"), SIDES, st.integers(1, 3)),
        st.tuples(st.just("drain"), SIDES, st.just(0)),
    ),
    min_size=1,
    max_size=30,
)


def _simulated(steps: list[tuple[str, str, int]]) -> Pair:
    pair = Pair()
    for what, name, count in steps:
        side = getattr(pair, name)
        if what == "mix":
            pair.copy(side, 9, between=count)
        elif what in ("mark", "drain"):
            getattr(pair, what)(side)
        else:
            getattr(pair, what)(side, count)
    return pair


@given(STEPS, SIDES)
@settings(deadline=None, max_examples=200)
def test_a_group_goes_on_at_the_first_record_it_has_not_read(
    steps: list[tuple[str, str, int]], name: str
) -> None:
    """Whatever both sides and both flows wrote, in any order and with any lag: from
    every offset the answer skips no record that the group has not read, no later one
    would do so, and what the group reads again is as many records as predicted.
    """
    pair = _simulated(steps)
    source: Side = getattr(pair, name)
    target = pair.other(source)
    with pair.joint(source) as known:
        last = 0
        for offset in range(source.stable + 1):
            read = {record for _, record in source.records(0, offset)}
            answer = known.translate(TOPIC, 0, offset)
            unread = [at for at, record in target.records() if record not in read]
            visible = [at for at in unread if at < target.stable]
            repeated = [
                at for at, record in target.records(answer.offset) if record in read
            ]
            assert not [at for at in unread if at < answer.offset]
            if visible:
                assert not target.records(answer.offset, visible[0])
            else:
                assert not [at for at in repeated if at < target.stable]
            assert pair.again(source, offset, answer.offset) == len(repeated)
            assert answer.exactness in (
                Exactness.EXACT, Exactness.TIP, Exactness.BEHIND
            )  # fmt: skip
            assert last <= answer.offset
            last = answer.offset


@given(STEPS, SIDES, st.integers(0, 25), st.integers(0, 25), st.booleans())
@settings(deadline=None, max_examples=200)
def test_what_retention_took_is_unread(
    steps: list[tuple[str, str, int]], name: str, here: int, there: int, lost: bool
) -> None:
    """Where retention has taken the oldest parts of the logs, and of the maps what was
    about these, an answer may be too early, and then says so, but it never skips a
    record that is there; nor does it if the map of the flow there is `lost`.
    """
    pair = _simulated(steps)
    source: Side = getattr(pair, name)
    target = pair.other(source)
    source.retain(min(here, source.stable))
    target.retain(min(there, target.stable))
    if lost and target.values:
        target.map_start = target.values[-1][0]
    with pair.joint(source) as known:
        for offset in range(source.stable + 1):
            read = {record for _, record in source.records(0, offset)}
            answer = known.translate(TOPIC, 0, offset)
            passed = target.records(target.start, max(answer.offset, target.start))
            if lost and answer.exactness in (Exactness.TIP, Exactness.BEHIND):
                continue  # it has nothing at all to find
            assert not [record for _, record in passed if record not in read], answer


@given(
    st.lists(st.tuples(st.integers(0, 6), st.booleans(), st.integers(0, 8)), max_size=8)
)
@settings(deadline=None, max_examples=200)
def test_one_side_at_a_time_repeats_nothing(
    turns: list[tuple[int, bool, int]],
) -> None:
    """A group moves there and back as often as it likes, always after the flow has
    copied everything and while only one side is written: it reads each record once, in
    order, however far it is behind.
    """
    pair = Pair()
    here, offset = pair.a, 0
    read: list[str] = []
    written = 0
    for count, aborts, steps in turns:
        pair.produce(here, count)
        written += count
        if aborts:
            pair.abort(here, 2)
        for at, name in here.records(offset)[:steps]:
            read.append(name)
            offset = at + 1
        pair.drain(pair.other(here))
        with pair.joint(here) as known:
            answer = known.translate(TOPIC, 0, offset)
            assert pair.again(here, offset, answer.offset) == 0
        here, offset = pair.other(here), answer.offset
    read += [name for _, name in here.records(offset)]
    assert [int(name[1:]) for name in read] == list(range(written))


@given(
    st.lists(st.tuples(st.integers(0, 2), st.integers(1, 4)), max_size=20),
    st.lists(st.integers(0, 60), min_size=3, max_size=3),
    st.sets(st.integers(0, 2), min_size=1),
)
@settings(deadline=None)
def test_merged_sources(
    parts: list[tuple[int, int]], places_of: list[int], sources: set[int]
) -> None:
    """In a copy of three sources a group goes on so that it skips no record of a source
    that it reads; it reads again what is predicted, and nothing if it reads one source
    or has read all.
    """
    log: list[tuple[int, int]] = []
    found: list[list[tuple[int, int, int]]] = [[], [], []]
    ends = [0, 0, 0]
    for source, count in parts:
        found[source].append((ends[source], len(log), count))
        log += [(source, ends[source] + n) for n in range(count)]
        ends[source] += count
        log.append((-1, -1))
    committed = [min(*both) for both in zip(places_of, ends, strict=True)]
    answers = []
    for source in sources:
        at = [n for n, (of, up) in enumerate(log) if of == source]
        unread = [n for n in at if log[n][1] >= committed[source]]
        kind = Exactness.EXACT if unread else Exactness.TIP
        offset = unread[0] if unread else max(at, default=-1) + 1
        answers.append(Translated(offset=offset, exactness=kind))
    answer = merged(answers, len(log)).offset
    mine = [(n, of, up) for n, (of, up) in enumerate(log) if of in sources]
    unread = [n for n, of, up in mine if up >= committed[of]]
    repeated = [n for n, of, up in mine if n >= answer and up < committed[of]]
    assert not [n for n in unread if n < answer]
    predicted = sum(
        again(
            np.array(found[source], np.int64).reshape(-1, 3),
            read=committed[source],
            answer=answer,
        )
        for source in sources
    )
    assert predicted == len(repeated)
    if len(sources) == 1 or not unread:
        assert not repeated
