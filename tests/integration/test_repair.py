"""Repairs: missing records are appended, each once, and no other offset moves.

One slot copies a topic per way to lose records. Then the target's broker is stopped,
records are taken out of its segment files, and it is started again.
"""

from __future__ import annotations

from collections import Counter
import contextlib
from dataclasses import replace
import signal
import time
from typing import TYPE_CHECKING, Any

from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaError, TopicPartition
import pytest

from mirror.clusters.cluster import Cluster
from mirror.offsets.translation import Exactness, OffsetMap, Translated
from mirror.pairs.control import PausesReader
from mirror.proofs import repair_appending
from mirror.proofs.account import FindingKind
from mirror.proofs.repair_appending import Obstacle
from mirror.service import ownership
from mirror.service.ownership import PositionUpdate
from tests.harness import segments
from tests.harness.admin import create_topic
from tests.harness.failed_over import die
from tests.harness.load import producer
from tests.harness.proofs import proven
from tests.harness.proxy import KAFKA_2_8, BrokerProxy
from tests.harness.slot_processes import exit_code_of
from tests.harness.slots import SparklessFlow, copy_until
from tests.harness.waiting import deadline_in
from tests.harness.witness import Witness, read_topic

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from mirror.playground.cluster import PlaygroundCluster
    from tests.harness.segments import StoredBatch

pytestmark = pytest.mark.integration

_PARTS = (range(40), range(40, 60), range(60, 90))
"""Records of each transaction; in the copy a marker follows each."""
_COUNT = 90
_LATER = range(90, 100)
"""Those that are copied after the repair."""
_HOLES = (3, 20)
Plant = "Callable[[list[StoredBatch]], list[StoredBatch]]"


def _without(*offsets: int) -> Plant:
    def plant(batches: list[StoredBatch]) -> list[StoredBatch]:
        for each in batches:
            each.records = [r for r in each.records if r.offset not in offsets]
        return batches

    return plant


def _without_batches(*numbers: int) -> Plant:
    """0, 2 and 4 have records, the others are markers."""

    def plant(batches: list[StoredBatch]) -> list[StoredBatch]:
        return [each for at, each in enumerate(batches) if at not in numbers]

    return plant


def _holes_and_tail(batches: list[StoredBatch]) -> list[StoredBatch]:
    return _without(*_HOLES)(batches)[:2]


LATER_KEY = "key"
"""The topic in which record 80 has the key of record 20."""
OPEN = "open"
"""The one whose last transaction has no end: the take-over commits it."""
CUT = ("tail", "holes-and-tail")
"""Copies that have lost their end, two transactions of it."""
PLANTS = {
    "one": _without(20),
    "some": _without(3, 4, 20, 70),
    "batch": _without_batches(4),
    "tail": _without_batches(2, 3, 4, 5),
    "holes-and-tail": _holes_and_tail,
    LATER_KEY: _without(20),
    OPEN: _without_batches(5),
    "nothing": _without(),
}


def _key(name: str, number: int) -> bytes:
    return f"{name}{20 if (name, number) == (LATER_KEY, 80) else number}".encode()


def _keys(name: str, count: int) -> Counter[bytes]:
    return Counter(_key(name, number) for number in range(count))


def _copy(
    flow: SparklessFlow, a: PlaygroundCluster, b: PlaygroundCluster, numbers: range
) -> None:
    """Write these records to every topic, and copy them, in one transaction each."""
    # One batch for each topic, however slow this is.
    client = producer(a.bootstrap, linger_ms=60_000)
    for name in PLANTS:
        for number in numbers:
            client.produce(
                name,
                key=_key(name, number),
                value=None if number == 20 else b"v%d" % number,
                headers=[("a", b"1"), ("b", None)],
                partition=0,
            )
    assert client.flush(30) == 0
    with Witness(b.bootstrap) as witness, flow.slot() as slot:
        for name in PLANTS:
            witness.begin(f"A.{name}")
            lease = flow.lease(60)
            copy_until(witness, slot, lease, count=numbers.stop, timeout=60)


def _damaged(a: PlaygroundCluster, b: PlaygroundCluster) -> SparklessFlow:
    """A flow whose copies have lost records."""
    for name in PLANTS:
        create_topic(a.bootstrap, name, partitions=1)
    flow = SparklessFlow(
        source=a.bootstrap, target=b.bootstrap, topic=".*", alias="A"
    ).own()
    for numbers in _PARTS:
        _copy(flow, a, b, numbers)
    b.stop()
    for name, plant in PLANTS.items():
        segments.rewrite(b, f"A.{name}", plant)
    b.start()
    return flow


@contextlib.contextmanager
def _map(flow: SparklessFlow) -> Iterator[OffsetMap]:
    config = flow.config()
    target = Cluster(config.clusters["B"])
    with contextlib.closing(target.connect()):
        known = OffsetMap.of(config.flows[flow.name], target)
        known.refresh()
        yield known


def _translations(flow: SparklessFlow) -> dict[tuple[str, str, int], Translated]:
    with _map(flow) as known:
        return {
            (name, way, offset): getattr(known, way)(name, 0, offset)
            for name in PLANTS
            for way in ("translate", "reverse")
            for offset in range(_COUNT + 1)
        }


def _prepared(
    flow: SparklessFlow, *, pattern: str = ".*", although_order: bool = False
) -> contextlib.AbstractContextManager[repair_appending.Repairing]:
    config = flow.config()
    steered = config.flows[flow.name]
    repair_appending.begin(config, steered)
    found = proven(flow, pattern=pattern)
    return repair_appending.prepare(
        config, steered, found, although_order=although_order
    )


def _append(flow: SparklessFlow, **terms: Any) -> dict[str, int]:
    with _prepared(flow, **terms) as made:
        made.append()
        return made.counts


def _dies_after_writing(*arguments: Any) -> None:
    _WRITE(*arguments)
    die()


def _dies_while_committing(*arguments: Any) -> None:
    _WRITE(*arguments)
    ownership.commit = lambda _, owner, __: (owner.begin_commit(), die())


_WRITE = repair_appending.write
_POINTS: dict[str, tuple[Any, str, Callable[..., None]]] = {
    "before the take-over": (ownership, "take_over", die),
    "after the take-over": (repair_appending.topic_admin, "max_message_bytes", die),
    "after the data": (repair_appending, "_of_the_map", die),
    "before the commit": (repair_appending, "write", _dies_after_writing),
    "during the commit": (repair_appending, "write", _dies_while_committing),
}


def _killed(flow: SparklessFlow, point: str) -> int | None:
    """The exit code of a repair that dies there."""

    def repair() -> None:
        where, name, instead = _POINTS[point]
        setattr(where, name, instead)
        _append(flow)

    return exit_code_of(repair)


def test_append(make_clusters: Callable[..., dict[str, PlaygroundCluster]]) -> None:
    """After a repair that was killed at five points, an ordinary consumer counts every
    key once and verify finds nothing, except a record whose key has later records,
    which is appended only on request. Offsets translate as before; a group that moves
    over skips nothing, and into a copy that had lost its end exactly. What is copied
    later is right. A repair that found the same missing before appends nothing.
    """
    made = make_clusters()
    a, b = made["a"], made["b"]
    flow = _damaged(a, b)
    before = _translations(flow)

    with _prepared(flow, pattern=OPEN) as hidden:
        assert set(hidden.obstacles[OPEN, 0].values()) == {Obstacle.HIDDEN}
    assert _append(flow, pattern="|".join(CUT)) == {"tail": 50, "holes-and-tail": 52}
    with _prepared(flow) as beside:
        for point in _POINTS:
            assert (point, _killed(flow, point)) == (point, -signal.SIGKILL)
        _append(flow)
        beside.append()
        assert beside.counts == {}
        whys = {name: set(why.values()) for (name, _), why in beside.obstacles.items()}
    assert whys == {
        **{key: {Obstacle.COPIED} for key in PLANTS.keys() - {"nothing", OPEN, *CUT}},
        LATER_KEY: {Obstacle.LATER_KEY},
    }

    (left,) = proven(flow).findings
    assert (left.kind, left.topic, left.source) == (FindingKind.MISSING, LATER_KEY, 20)
    after = _translations(flow)
    same = {at: each for at, each in before.items() if at[0] not in CUT}
    assert {at: after[at] for at in same} == same

    assert _append(flow, although_order=True) == {LATER_KEY: 1}
    again = proven(flow)
    assert again.findings == ()
    assert {(p.account.records, p.account.equal) for p in again.partitions} == {
        (_COUNT, _COUNT)
    }
    _assert_whole(flow, b, _COUNT)
    flow.own()
    _copy(flow, a, b, _LATER)
    assert proven(flow).findings == ()
    _assert_whole(flow, b, _LATER.stop)
    with flow.connected() as (_, target):
        reader = PausesReader(target, flow.config().flows[flow.name])
        reader.read()
    assert reader.repair is not None
    assert reader.repair.topics == {LATER_KEY: 1}


def _assert_whole(flow: SparklessFlow, b: PlaygroundCluster, count: int) -> None:
    """Every key is there as often as on the source. From wherever a group moves over,
    it finds in the copy what it has not read; on the way back it begins with the next
    record that it would have read.
    """
    copies = _read(b)
    with _map(flow) as known:
        for name, copy in copies.items():
            found = Counter(key for _, key in copy)
            assert (name, found) == (name, _keys(name, count))
            for offset in range(count + 1):
                begins = known.translate(name, 0, offset).offset
                ahead = {key for at, key in copy if at >= begins}
                skipped = _keys(name, count) - _keys(name, offset)
                assert (name, offset, skipped.keys() - ahead) == (name, offset, set())
            if name != LATER_KEY:  # where a key is not yet an offset
                sources = {_key(name, number): number for number in range(count)}
                for at, key in copy:
                    if name in CUT and sources[key] not in _HOLES:
                        there = known.translate(name, 0, sources[key])
                        assert (name, at) == (name, there.offset)
                    back = known.reverse(name, 0, at)
                    assert (name, at, back.offset) == (name, at, sources[key])
                    assert back.exactness in (Exactness.EXACT, Exactness.EARLIER)


def _read(b: PlaygroundCluster) -> dict[str, list[tuple[int, bytes]]]:
    """Offsets and keys of all copies, as an ordinary consumer finds them."""
    consumer = Consumer(
        {
            "bootstrap.servers": b.bootstrap,
            "group.id": "witness",
            "enable.partition.eof": True,
            "fetch.wait.max.ms": 50,
            "isolation.level": "read_committed",
        }
    )
    found: dict[str, list[tuple[int, bytes]]] = {name: [] for name in PLANTS}
    consumer.assign(
        [TopicPartition(f"A.{name}", 0, OFFSET_BEGINNING) for name in found]
    )
    open_ends = set(found)
    deadline = deadline_in(60)
    while open_ends:
        assert time.monotonic() < deadline
        for message in consumer.consume(500, 0.05):
            name = message.topic().removeprefix("A.")
            if message.error() is None:
                found[name].append((message.offset(), message.key()))
            else:
                assert message.error().code() == KafkaError._PARTITION_EOF
                open_ends.discard(name)
    consumer.close()
    return found


@pytest.mark.parametrize("newest", [None, KAFKA_2_8], ids=["today", "2.8"])
@pytest.mark.full
def test_append_what_a_function_makes(
    clusters: dict[str, PlaygroundCluster],
    topic_name: str,
    newest: dict[str, int] | None,
) -> None:
    """With a transform, what the function makes of missing records is appended. What
    it leaves out is not missing; what it fails on is not appended to the copy. The same
    with a target that knows neither ids of topics nor transactions v2.
    """
    with BrokerProxy(clusters["b"].bootstrap, newest=newest) as b:
        _append_results(clusters["a"].bootstrap, b.bootstrap, topic_name)


def _append_results(a: str, b: str, topic_name: str) -> None:
    begun = int(time.time() * 1000)
    create_topic(a, topic_name, partitions=1)
    flow = SparklessFlow(
        source=a, target=b, topic=topic_name, alias=f"R{topic_name[-8:]}",
        settings={
            "transform": "tests.functions:no_poison",
            "dead_letter_topic": f"{topic_name}-dead",
            "compression": "zstd",
        },
    ).own()  # fmt: skip
    odd = {12: b"void", 13: b"poison"}
    client = producer(a)

    def copy(numbers: range, count: int) -> None:
        for number in numbers:
            value = odd.get(number, b"v" * number)
            client.produce(
                topic_name, key=b"%d" % number, value=value, timestamp=begun + number
            )
        assert client.flush(30) == 0
        flow.copy_until(count)

    copy(range(10), 10)
    steered = flow.config().flows[flow.name]
    with flow.connected() as (_, target):
        ownership.rewrite_progress(
            steered, target,
            lambda known: PositionUpdate(
                positions={
                    key: replace(each, offset=16) for key, each in known.items()
                }
            ),
        )  # fmt: skip
    flow.own()
    copy(range(10, 20), 14)

    with _prepared(flow) as made:
        made.append()
        assert made.counts == {topic_name: 4}
        assert made.obstacles == {(topic_name, 0): {13: Obstacle.FAILS}}
    (left,) = proven(flow).findings
    assert (left.kind, left.source, left.count) == (FindingKind.MISSING, 13, 1)
    found = read_topic(b, flow.copy)[0]
    numbers = [*range(10), *range(16, 20), 10, 11, 14, 15]
    assert [(m.key(), m.value(), m.timestamp()[1]) for m in found] == [
        (b"%d" % n, b"v" * n, begun + n) for n in numbers
    ]
    assert len({str(m.headers()) for m in found}) == 1
