"""What a slot requests from which leaders."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
import math
import struct
import time
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, cast
import uuid

from kafka.protocol.consumer import FetchRequest
import pytest

from mirror.clusters.topics import Leader, Topic
from mirror.clusters.wire import fetch
from mirror.clusters.wire.pending_response import Pending
from mirror.copying.source import FetchChannel, SourceReader
from mirror.errors import (
    AuthenticationError,
    ClusterError,
    LeaderError,
    RecreatedError,
    UnreachableError,
)
from mirror.offsets.progress import Position

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

    from mirror.clusters.cluster import Cluster

pytestmark = pytest.mark.unit

_MIB = 1 << 20


_NO_NEWS = memoryview(bytes(4 + 4 + 2 + 4 + 4))
"""A frame: correlation, throttle, error, session, no topics."""


def _news(*partitions: int) -> memoryview:
    """A frame with four bytes of records of each of these partitions."""
    parts = [
        struct.pack(">ihqqqiii", number, 0, 99, 99, 0, 0, -1, 4) + b"data"
        for number in partitions
    ]
    head = struct.pack(">iihii", 0, 0, 0, 0, 1) + struct.pack(
        ">h1si", 1, b"t", len(parts)
    )
    return memoryview(head + b"".join(parts))


class _Connection:
    """Takes requests, and answers as soon as it is read."""

    versions: dict[int, tuple[int, int]] = {}  # noqa: RUF012 - never changed
    timeout_seconds = 30.0

    whole = True

    def __init__(self) -> None:
        self.requests: list[bytes] = []
        self.owed: Pending | None = None
        self.answer = _NO_NEWS

    def send_buffers(
        self, _key: int, _version: int, buffers: Sequence[bytes], *, flexible: bool
    ) -> Pending:
        assert not flexible
        self.requests.append(b"".join(buffers))
        self.owed = Pending(cast("Any", self), 1, None)
        return self.owed

    def read_answer(self) -> None:
        assert self.owed is not None
        self.owed.resolve(self.answer)

    def read_on(self) -> None:
        """Everything has arrived already."""

    def take_buffer(self, spare: bytearray) -> bytearray:
        return spare


class _Cluster:
    """The part of a cluster that a reader uses; broker 3 accepts no connection."""

    alias = "A"

    def __init__(self, *, far: bool, why: ClusterError | None = None) -> None:
        self.high_latency = far
        self.why = why
        self.made: dict[tuple[int, str], _Connection] = {}
        self.patience: dict[int, float] = {}
        self.ids: dict[str, uuid.UUID] = {}
        self.named: list[int] = []
        """The brokers that were asked for the ids of topics."""

    def connection(self, node: int, purpose: str, *, seconds: float) -> _Connection:
        # Only a follower, which others can stand in for, is waited for in seconds.
        self.patience[node] = seconds
        if node == 3 and self.why is not None:
            raise self.why
        return self.made.setdefault((node, purpose), _Connection())

    def topics(self, names: Collection[str], *, node: int) -> dict[str, Any]:
        self.named.append(node)
        return {name: SimpleNamespace(topic_id=self.ids[name]) for name in names}

    def drop(self, purpose: str) -> None:
        self.made = {key: each for key, each in self.made.items() if key[1] != purpose}


def _reader(
    cluster: _Cluster, leaders: Sequence[int], *, rack: str = "", linger_ms: int = 0
) -> SourceReader:
    """Reads one partition of each of these leaders, numbered in this order."""
    reader = SourceReader(
        cast("Cluster", cluster),
        isolation=fetch.READ_COMMITTED,
        max_bytes=16 * _MIB,
        partition_max_bytes=4 * _MIB,
        rack=rack,
        linger_ms=linger_ms,
    )
    topic = Topic(
        name="t",
        topic_id=uuid.uuid4(),
        leaders={p: Leader(node=node, epoch=0) for p, node in enumerate(leaders)},
        error=0,
        replication_factor=1,
    )
    cluster.ids["t"] = topic.topic_id
    positions = {("t", p): Position(offset=7) for p in topic.leaders}
    reader.assign(positions, {"t": topic})
    return reader


def test_a_near_leader_has_one_question_at_a_time() -> None:
    """However many partitions it leads, it gets one request until it has answered."""
    cluster = _Cluster(far=False)
    reader = _reader(cluster, [1] * 9 + [2])
    for _ in range(3):
        reader.ask()
    assert Counter(node for node, _ in cluster.made) == {1: 1, 2: 1}
    assert [len(each.requests) for each in cluster.made.values()] == [1, 1]
    assert reader.pace.partition_most_bytes == 4 * _MIB


def test_a_far_leader_has_four_for_a_share_each() -> None:
    """Its partitions are dealt over four connections, each partition on one of them; a
    leader of fewer partitions gets only as many.
    """
    cluster = _Cluster(far=True)
    reader = _reader(cluster, [1] * 9 + [2] * 2)
    for _ in range(3):
        reader.ask()
    assert Counter(node for node, _ in cluster.made) == {1: 4, 2: 2}
    assert {len(each.requests) for each in cluster.made.values()} == {1}
    assert len(reader.connections()) == 6
    # No answer is larger, however much of it is of one partition.
    assert reader.pace.partition_most_bytes == 16 * _MIB


@pytest.mark.parametrize(
    "why",
    [UnreachableError("no answer"), AuthenticationError("bad certificate")],
    ids=lambda why: type(why).__name__,
)
def test_of_a_lost_leader_all_partitions_are_named(why: ClusterError) -> None:
    """They are dealt over several connections, and none of them can be read, whether
    the broker is gone or refuses our certificate; those of others can.
    """
    reader = _reader(_Cluster(far=True, why=why), [1, 3, 1, 3, 3])
    with pytest.raises(LeaderError, match=str(why)) as caught:
        reader.ask()
    assert set(caught.value.partitions) == {("t", 1), ("t", 3), ("t", 4)}


@pytest.mark.parametrize("set_by", [0.0, -3600.0, 3600.0])
def test_who_takes_one_answer_at_a_time_gets_them_in_turn(
    monkeypatch: pytest.MonkeyPatch, set_by: float
) -> None:
    """A leader that always has an answer ready does not keep the others waiting, even
    if the clock is set in between.
    """
    right = time.time
    cluster = _Cluster(far=False)
    reader = _reader(cluster, [1, 2, 3])
    for number in range(5):
        monkeypatch.setattr(time, "time", lambda off=number * set_by: right() + off)
        reader.ask()
        next(reader.read(cast("Any", set(cluster.made.values()))))
        monkeypatch.setattr(
            time, "time", lambda off=(number + 1) * set_by: right() + off
        )
        for _ in range(2):
            reader.ask()
            next(reader.read(cast("Any", set(cluster.made.values()))))
        reader.ask()
        before = {node: len(each.requests) for (node, _), each in cluster.made.items()}
        for _ in range(3):
            assert next(reader.read(cast("Any", set(cluster.made.values()))))
            reader.ask()
        after = {node: len(each.requests) for (node, _), each in cluster.made.items()}
        assert after == {node: count + 1 for node, count in before.items()}


def test_another_assignment_closes_every_connection() -> None:
    """Answers to earlier requests must not be taken for answers to new ones."""
    cluster = _Cluster(far=True)
    reader = _reader(cluster, [1] * 5)
    reader.ask()
    assert len(cluster.made) == 4
    reader.assign({}, {})
    assert not cluster.made
    assert reader.connections() == []


def _asked(connection: _Connection) -> list[dict[int, int]]:
    """The offset of each partition, by request."""
    return [
        {
            partition.partition: partition.fetch_offset
            for topic in FetchRequest.decode(request, version=fetch.VERSION).topics
            for partition in topic.partitions
        }
        for request in connection.requests
    ]


def _came(reader: SourceReader, connection: _Connection) -> list[int]:
    """The partitions that have records in the answer read now."""
    answer = next(reader.read(cast("Any", {connection})))
    return [part.partition for part in answer.fetched]


def _terms(connection: _Connection) -> tuple[int, int]:
    """Of the last request: how long the broker waits, and for how many bytes."""
    request = FetchRequest.decode(connection.requests[-1], version=fetch.VERSION)
    return request.max_wait_ms, request.min_bytes


@pytest.mark.parametrize("linger_ms", [6, 0])
def test_a_leader_lingers_while_records_come_fast(
    monkeypatch: pytest.MonkeyPatch, linger_ms: int
) -> None:
    """It is asked to wait for more records once two answers with records come within
    that time, and for the first record again when it has waited in vain; with a linger
    of 0, never.
    """
    cluster = _Cluster(far=False)
    reader = _reader(cluster, [1], linger_ms=linger_ms)
    reader.ask()
    connection = cluster.made[1, "fetch 0"]
    at_once, lingering = (500, 1), (6, 64 << 10) if linger_ms else (500, 1)
    now = 100.0
    for after_ms, answer, then in (
        (0, _news(0), at_once),
        (7, _news(0), at_once),
        (5, _news(0), lingering),
        (7, _news(0), lingering),
        (7, _NO_NEWS, at_once),
        (7, _news(0), at_once),
    ):
        now += after_ms / 1000
        monkeypatch.setattr(time, "monotonic", lambda now=now: now)
        connection.answer = answer
        list(reader.read(cast("Any", {connection})))
        reader.ask()
        assert _terms(connection) == then


def test_leaders_that_linger_are_asked_together_if_that_is_safe() -> None:
    """So that one transaction takes what all of them have; but before 3.1, only a fetch
    that waits hears that a topic was deleted.
    """
    lingering = FetchChannel(1, 0, linger_ms=6, lingers=True, by_id=True)
    assert lingering.rests(together=True)
    assert not lingering.rests(together=False)
    assert not replace(lingering, by_id=False).rests(together=True)
    assert not replace(lingering, lingers=False).rests(together=True)


@pytest.mark.parametrize("seconds", [0.9, 1.1])
@pytest.mark.parametrize("again", [False, True])
def test_after_a_pause_a_leader_that_is_asked_by_name_names_its_topics(
    monkeypatch: pytest.MonkeyPatch, seconds: float, again: bool
) -> None:
    """While no fetch waits at a broker before 3.1, a topic may be deleted and created
    again there: to go on reading at the same offset would skip its first records. While
    fetches follow each other, the broker itself tells.
    """
    monkeypatch.setattr(time, "monotonic", lambda: 100.0)
    reader, connection = _with_news_of(1)
    cluster = cast("_Cluster", reader._cluster)
    if again:
        cluster.ids["t"] = uuid.uuid4()
    monkeypatch.setattr(time, "monotonic", lambda: 100.0 + seconds)
    if again and seconds > 1:
        with pytest.raises(RecreatedError, match="t was deleted or created again"):
            reader.ask()
    else:
        reader.ask()
    assert cluster.named == ([1, 1] if seconds > 1 else [1])
    assert len(connection.requests) == (1 if again and seconds > 1 else 2)


def test_a_leader_is_asked_by_name_first_only_for_the_topic_that_was_found() -> None:
    """What a take-over found may be deleted and created again before its first fetch,
    which can come late: the leader was not to be reached (found with seed 231).
    """
    cluster = _Cluster(far=False)
    reader = _reader(cluster, [1])
    cluster.ids["t"] = uuid.uuid4()
    with pytest.raises(RecreatedError, match="t was deleted or created again"):
        reader.ask()
    assert not cluster.made[1, "fetch 0"].requests


def _with_news_of(partitions: int) -> tuple[SourceReader, _Connection]:
    """A reader whose leader just answered with records of this many partitions."""
    cluster = _Cluster(far=False)
    reader = _reader(cluster, [1] * partitions)
    reader.ask()
    connection = cluster.made[1, "fetch 0"]
    connection.answer = _news(*range(partitions))
    assert _came(reader, connection) == list(range(partitions))
    return reader, connection


@pytest.mark.parametrize(
    ("stands_at", "asked_next", "brings"),
    [
        # As foreseen: nothing is asked twice, and the answer counts.
        ((50, 3), {0: 50, 1: 7}, [0, 1]),
        # Damaged in the middle, and left there.
        ((40, 3), {0: 40, 1: 7}, [1]),
        # Under another leader than it seemed.
        ((50, 4), {0: 50, 1: 7}, [0, 1]),
        # Nothing came of it at all.
        (None, {0: 7, 1: 7}, [1]),
    ],
)
def test_what_comes_next_is_asked_for_beforehand(
    stands_at: tuple[int, int] | None, asked_next: dict[int, int], brings: list[int]
) -> None:
    """While an answer is processed, its leader is already asked for what follows. If
    the position ends up elsewhere, that answer is dropped and the right one requested.
    """
    reader, connection = _with_news_of(2)
    reader.ask_ahead({("t", 0): (50, 3)})
    assert _asked(connection) == [{0: 7, 1: 7}, {0: 50, 1: 7}]
    if stands_at is not None:
        reader.seek(("t", 0), *stands_at)
    reader.ask()
    assert len(connection.requests) == 2
    assert _came(reader, connection) == brings
    reader.ask()
    assert _asked(connection)[2] == asked_next


def test_of_nothing_foreseen_nothing_is_asked() -> None:
    """With nothing foreseen, a request would bring the same records again."""
    reader, connection = _with_news_of(1)
    reader.ask_ahead({})
    assert len(connection.requests) == 1


def test_who_is_left_out_meanwhile_is_not_read() -> None:
    """A partition that was set aside meanwhile gets nothing from the answer."""
    reader, connection = _with_news_of(2)
    reader.ask_ahead({("t", 0): (50, 3), ("t", 1): (60, 3)})
    reader.seek(("t", 1), 60, 3)
    reader.leave_out(("t", 0))
    reader.ask()
    assert _came(reader, connection) == [1]
    reader.seek(("t", 1), 70, 3)
    reader.ask()
    assert _asked(connection)[2] == {1: 70}


def _says(
    *partitions: int, error: int = 0, nearer: int = -1, end: int = 99
) -> memoryview:
    """A frame about these partitions: an error, or the name of a nearer replica."""
    parts = [
        struct.pack(">ihqqqiii", number, error, end, end, 0, 0, nearer, 0)
        for number in partitions
    ]
    head = struct.pack(">iihii", 0, 0, 0, 0, 1) + struct.pack(
        ">h1si", 1, b"t", len(parts)
    )
    return memoryview(head + b"".join(parts))


def _near_reader() -> tuple[SourceReader, _Cluster, _Connection]:
    """Of two partitions that broker 1 leads and broker 3, in our rack, follows; with
    the connection to broker 3, which has been asked.
    """
    cluster = _Cluster(far=False)
    reader = _reader(cluster, [1, 1], rack="here")
    reader.ask()
    leader = cluster.made[1, "fetch 0 nearest"]
    assert _racks(leader) == ["here"]
    leader.answer = _says(0, 1, nearer=3)
    assert _came(reader, leader) == [0, 1]  # which tells where their logs end
    reader.ask()
    assert list(cluster.made) == [(1, "fetch 0 nearest"), (3, "fetch 0 nearest")]
    follower = cluster.made[3, "fetch 0 nearest"]
    assert _asked(follower) == [{0: 7, 1: 7}]
    assert cluster.patience == {1: math.inf, 3: 10.0}
    return reader, cluster, follower


def _racks(connection: _Connection) -> list[str]:
    return [
        FetchRequest.decode(request, version=fetch.VERSION).rack_id
        for request in connection.requests
    ]


def test_the_named_follower_is_read() -> None:
    """What a leader names is asked for the same offsets, and its records count; the
    leader has nothing left to be asked.
    """
    reader, cluster, follower = _near_reader()
    follower.answer = _news(0, 1)
    [answer] = reader.read(cast("Any", {follower}))
    assert [part.partition for part in answer.fetched] == [0, 1]
    assert answer.near == {("t", 0), ("t", 1)}
    reader.seek(("t", 0), 50, 0)
    reader.ask()
    assert _asked(follower)[1:] == [{1: 7, 0: 50}]
    assert len(cluster.made[1, "fetch 0 nearest"].requests) == 1


@pytest.mark.parametrize("error", [1, 74, 76, 78])
def test_a_follower_that_refuses_is_not_believed(error: int) -> None:
    """Whatever a follower refuses (an offset, an epoch), no one hears of it: the leader
    is asked, and is not asked for a nearer replica for a while.
    """
    reader, cluster, follower = _near_reader()
    follower.answer = _says(0, error=error)
    assert _came(reader, follower) == []
    reader.ask()
    leader = cluster.made[1, "fetch 0"]
    assert (_asked(leader), _racks(leader)) == ([{0: 7}], [""])
    leader.answer = _says(0, error=error)
    answers = [
        (part.partition, answer.near)
        for answer in reader.read(cast("Any", {leader}))
        for part in answer.fetched
    ]
    assert answers == [(0, frozenset())]  # its leader's word counts


def test_without_a_rack_no_follower_is_read() -> None:
    """A broker that names one all the same is read on."""
    cluster = _Cluster(far=False)
    reader = _reader(cluster, [1])
    reader.ask()
    leader = cluster.made[1, "fetch 0"]
    leader.answer = _says(0, nearer=3)
    assert _came(reader, leader) == [0]
    reader.ask()
    assert list(cluster.made) == [(1, "fetch 0")]
    assert _asked(leader) == [{0: 7}] * 2


@pytest.mark.parametrize("error", [31, 58, 87, -1])
def test_a_follower_that_refuses_requests_is_not_believed(error: int) -> None:
    """What a follower says of a whole request costs no take-over either; of a leader
    it does.
    """
    reader, cluster, follower = _near_reader()
    refusal = memoryview(struct.pack(">iihii", 0, 0, error, 0, 0))
    follower.answer = refusal
    assert list(reader.read(cast("Any", {follower}))) == []
    reader.ask()
    leader = cluster.made[1, "fetch 0"]
    assert _asked(leader) == [{0: 7, 1: 7}]
    leader.answer = refusal
    with pytest.raises(ClusterError):
        list(reader.read(cast("Any", {leader})))


def test_a_follower_that_is_gone_costs_no_take_over() -> None:
    """Its partitions are asked of their leaders at once; nothing is raised."""
    reader, cluster, follower = _near_reader()
    cluster.why = UnreachableError("gone")
    follower.answer = _news(0)
    assert _came(reader, follower) == [0]
    reader.ask()
    assert _asked(cluster.made[1, "fetch 0"]) == [{0: 7, 1: 7}]
    assert [each.requests for each in reader.connections()] == [
        cluster.made[1, "fetch 0"].requests
    ]


def test_leaders_are_asked_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """Ten seconds later the leader is asked again who is nearest, in the middle of what
    the follower serves; and a minute later so is the leader of a refused partition.
    """
    reader, cluster, follower = _near_reader()
    follower.answer = _says(1, error=1)
    assert _came(reader, follower) == []
    reader.ask()
    plain, leader = (cluster.made[1, f"fetch 0{each}"] for each in ("", " nearest"))
    assert _asked(plain) == [{1: 7}]
    now = time.monotonic()
    for after, asked in ((11.0, {0: 7}), (70.0, {0: 7, 1: 7})):
        monkeypatch.setattr(time, "monotonic", lambda after=after: now + after)
        for connection in (follower, plain):
            if connection in reader.connections():
                connection.answer = _NO_NEWS
                list(reader.read(cast("Any", {connection})))
        reader.ask()
        assert _asked(leader)[-1] == asked
        leader.answer = _says(*asked, nearer=3)
        assert _came(reader, leader) == list(asked)
        reader.ask()
        assert _asked(follower)[-1] == asked


def test_a_limit_holds_requests_back() -> None:
    """Beyond what it may read, nothing is asked, until the time has made up for it; one
    request never asks for more than half a second's bytes.
    """
    cluster = _Cluster(far=False)
    reader = _reader(cluster, [1, 2])
    reader.pace.allow(1_000_000)
    assert reader.pace.partition_most_bytes == 500_000
    reader.ask()
    first = cluster.made[1, "fetch 0"]
    first.answer = _news(0)
    reader.pace.take(2_000_000)
    assert _came(reader, first) == [0]
    reader.seek(("t", 0), 50, 0)
    reader.ask()
    assert len(first.requests) == 1
    assert 1.0 < reader.again_in <= 2.5
    reader.pace.allow(0)
    reader.ask()
    assert len(first.requests) == 2
