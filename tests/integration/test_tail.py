"""What a failover left uncopied, on real brokers: counted by clients, settled, killed.

A failover without a service: what A has beyond the copy is known to the record.
"""

from __future__ import annotations

from collections import Counter
import contextlib
from dataclasses import fields, replace
import errno
import itertools
import json
import os
import signal
import stat
from typing import TYPE_CHECKING, Any

from confluent_kafka.admin import AdminClient, NewTopic
import numpy as np
import pytest
import yaml

from mirror.copying import provenance
from mirror.errors import MirrorError
from mirror.offsets.progress import Position
from mirror.pairs import losses
from mirror.pairs.journal import Kind
from mirror.proofs.account import Scope
from mirror.proofs.log_stream import Meter
from mirror.proofs.verification import terms_of
from mirror.recovery.stage import StepError
from mirror.recovery.steps import STEPS
from mirror.recovery.tails import settling
from mirror.recovery.tails.exporting import TailFile
from mirror.recovery.tails.settling import Fed, TailSettling, settle
from mirror.recovery.tails.survey import Unsettled, survey
from mirror.recovery.tails.tail import Choice, Order, Way
from mirror.service.ownership import PositionUpdate, rewrite_progress
from mirror.service.pair_jobs import PassiveClusters
from mirror.service.pairs import PairFollower
from mirror.status.store import StatusStore
from tests.harness.admin import create_topic, delete_records, delete_topic
from tests.harness.application import Application
from tests.harness.load import producer
from tests.harness.metadata import Sides
from tests.harness.portraits import at_rest, portrait
from tests.harness.rehearsal import Rehearsal
from tests.harness.slot_processes import exit_code_of
from tests.harness.slots import copy_until
from tests.harness.switching import command
from tests.harness.waiting import wait_for
from tests.harness.witness import Witness, read_topic

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from mirror.playground.cluster import PlaygroundCluster
    from mirror.recovery.stage import Stage
    from mirror.recovery.tails.tail import Tail

pytestmark = pytest.mark.integration

_COPIED, _LEFT = 100, 60
_PARTITIONS = 2
_SHARED = "REST-|standing"
"""What the standing service writes on shared clusters."""


class Play:
    """A pair after a failover from A to B; A is back, with a tail."""

    def __init__(
        self,
        clusters: dict[str, PlaygroundCluster],
        topic: str,
        tag: str,
        folder: Path,
        **settings: Any,
    ) -> None:
        self.one, self.other = f"{tag}A", f"{tag}B"
        self.a, self.b = clusters["a"].bootstrap, clusters["b"].bootstrap
        self.topic = topic
        self._settings = settings
        self.folder = folder
        self.rehearsal = Rehearsal(
            (self.one, self.a), (self.other, self.b), topic, **settings
        )
        self.flow = self.rehearsal.config.flows[f"{self.one}->{self.other}"]
        self.copy = self.flow.replication_policy.target_topic(topic)
        self.application = Application(topic, _PARTITIONS, f"app-{topic}")
        for bootstrap in dict.fromkeys((self.a, self.b)):
            create_topic(bootstrap, topic, _PARTITIONS)
        assert self.application.write(self.a, _COPIED)
        self.rehearsal.copy(self.b, self.copy, _COPIED)
        self.rehearsal.see()
        assert self.application.write(self.a, _LEFT)
        self.left = self.application.written[_COPIED:]
        self.rehearsal.carry_out(kind=Kind.FAILOVER)
        (folder / "mirror.yaml").write_text(yaml.safe_dump(self.rehearsal.document))

    def tail(self, *, seen: Tail | None = None) -> Tail:
        return survey(
            self.flow,
            self.rehearsal.cluster(self.one),
            self.rehearsal.cluster(self.other),
            seen=seen,
        )

    def settle(
        self, way: Way, choice: Choice | None = None, file: Any = None, **order: Any
    ) -> int:
        """How many records."""
        source, target = map(self.rehearsal.cluster, (self.one, self.other))
        terms = terms_of(self.rehearsal.config, self.flow, source, target, Scope())
        done = settle(
            TailSettling(
                flow=self.flow, terms=terms, source=source, target=target,
                order=Order(way=way, choice=choice or Choice(), **order), file=file,
            )
        )  # fmt: skip
        return sum(done.values())

    def killed(self, at: int, act: Callable[[], object], *, late: bool = False) -> None:
        """Do it in a process that dies by SIGKILL right before a commit of records, or
        `late`: right after it. The take-over's is number 0.
        """

        def run() -> None:
            commits = -1

            def commit(*arguments: Any) -> None:
                nonlocal commits
                commits += 1
                if late:
                    _COMMIT(*arguments)
                if commits == at:
                    os.kill(os.getpid(), signal.SIGKILL)
                if not late:
                    _COMMIT(*arguments)

            settling.ownership.commit = commit
            settling._PIECE_RECORDS = 10
            with Rehearsal(
                (self.one, self.a), (self.other, self.b), self.topic, **self._settings
            ) as self.rehearsal:
                act()

        assert exit_code_of(run) == -signal.SIGKILL

    def copied(self) -> Counter[bytes]:
        """Keys in the copy, as an ordinary consumer counts them."""
        found = read_topic(self.b, self.copy)
        return Counter(m.key() or b"" for each in found.values() for m in each)

    def goes_on(self) -> None:
        """Copying A->B again copies what is written from now on, and nothing else."""
        before = self.copied()
        self.application.write(self.a, 10)
        flow = self.rehearsal.copying().own()
        with flow.slot() as slot, Witness(self.b) as witness:
            witness.begin(self.copy)
            count = before.total() + 10
            copy_until(witness, slot, flow.lease(60), count=count, timeout=60)
        new = Counter(self.application.written[-10:])
        assert self.copied() == before + new


_COMMIT = settling.ownership.commit


@pytest.fixture
def play(
    clusters: dict[str, PlaygroundCluster],
    topic_name: str,
    tmp_path: Path,
    request: pytest.FixtureRequest,
) -> Iterator[Play]:
    tag, policy = request.param
    made = Play(clusters, topic_name, tag, tmp_path, policy=policy)
    with contextlib.closing(contextlib.ExitStack()) as stack:
        stack.enter_context(made.rehearsal)
        yield made


@pytest.mark.parametrize("play", [("tailreplay", "default")], indirect=True)
def test_replay(play: Play) -> None:
    """The tail is what the producer has counted beyond the copy. Replayed by a command
    that was killed in the middle of its second transaction, and by the next one, each
    record is on B once; nothing is left, and the flow goes on behind it. Before that, A
    cannot become active again; then it can.
    """
    shown = json.loads(command(play.folder, "tail", "list", _name(play), "-o", "json"))
    assert shown["records"] == len(play.left) == _LEFT
    back = _way_home(play)
    with pytest.raises(StepError, match=f"{play.one} has {_LEFT} records"):
        STEPS["assess"].do(back)
    assert sum(each["records"] for each in shown["partitions"]) == _LEFT

    play.killed(2, lambda: play.settle(Way.REPLAY))
    assert play.tail().records == _LEFT - 10
    command(play.folder, "tail", "replay", _name(play), "--yes")
    assert play.copied() == Counter(play.application.written)
    assert play.tail().settled
    STEPS["assess"].do(back)
    play.goes_on()


@pytest.mark.full
@pytest.mark.parametrize("play", [("taildry", "identity")], indirect=True)
def test_dry_runs(play: Play) -> None:
    """Each way's dry run, with a topic, a key or times, counts the records of the tail
    that pass, as a client that reads A does, and changes nothing on either cluster.
    """
    before = [at_rest(each, but=_SHARED) for each in (play.a, play.b)]
    on_a = read_topic(play.a, play.topic).values()
    times = [m.timestamp()[1] for each in on_a for m in each[-_LEFT // _PARTITIONS :]]
    cut = sorted(times)[_LEFT // 2]
    after = sum(each >= cut for each in times)
    key = play.left[3].decode()
    for way in ("replay", "skip", "export"):
        to = ("--to-file", str(play.folder / "none")) if way == "export" else ()
        for words, count in (
            ((), _LEFT),
            (("--topic", "another"), 0),
            (("--key", key), 1),
            (("--since", f"@{cut}"), after),
            (("--until", f"@{cut}"), _LEFT - after),
            (("--topic", play.topic, "--key", key, "--partition", key[0]), 1),
        ):
            told = command(
                play.folder, "tail", way, _name(play), *to, *words, "--dry-run",
                "-o", "json",
            )  # fmt: skip
            shown = json.loads(told)
            assert sum(each["records"] for each in shown["partitions"]) == count
            assert (shown["left"], shown["settled"]) == (_LEFT, False)
    assert not (play.folder / "none").exists()
    assert [portrait(each, but=_SHARED) for each in (play.a, play.b)] == before


@pytest.mark.full
@pytest.mark.parametrize(
    ("play", "way"),
    [
        (("taildiesR", "default"), Way.REPLAY),
        (("taildiesI", "identity"), Way.REPLAY),
        (("taildiesE", "default"), Way.EXPORT),
        (("taildiesS", "default"), Way.SKIP),
    ],
    indirect=["play"],
)
def test_killed_at_each_commit(play: Play, way: Way) -> None:
    """Commands that settle the tail are killed one after the other, each of them before
    or after its first commit, or at its take-over, until nothing is left: an ordinary
    consumer finds each record once on B, or in the file, or the ledger names it. The
    flow goes on.
    """
    exported = play.folder / "tail.jsonl"

    def act() -> object:
        if way is not Way.EXPORT:
            return play.settle(way)
        with TailFile(exported, play.flow) as file:
            return play.settle(way, file=file)

    killed = 0
    while left := play.tail().records:
        play.killed(0, act, late=killed % 2 == 1)
        assert play.tail().records == left
        play.killed(1, act)
        assert play.tail().records == left
        play.killed(1, act, late=True)
        assert play.tail().records == left - 10
        killed += 1
    assert killed == _LEFT // 10
    assert play.tail().settled
    act()
    gone = set() if way is Way.REPLAY else set(play.left)
    expected = Counter(key for key in play.application.written if key not in gone)
    assert play.copied() == expected
    if way is Way.EXPORT:
        lines = map(json.loads, exported.read_text().splitlines())
        assert Counter(each["key"]["data"].encode() for each in lines) == Counter(gone)
    named = losses.read(play.rehearsal.cluster(play.other), play.one)
    assert sum(each.count or 0 for each in named) == len(gone)
    play.goes_on()


@pytest.mark.parametrize("play", [("taildisk", "default")], indirect=True)
def test_the_ledger_names_what_is_on_disk(
    play: Play, monkeypatch: pytest.MonkeyPatch
) -> None:
    """While the folder of the file, or the file itself, cannot be forced to disk, an
    export ends and the ledger names no record. Then the same command has each of them
    once in the file, which only its owner can read.
    """
    exported = play.folder / "tail.jsonl"
    force = os.fsync

    def export(*, fails_at: int = 99) -> None:
        calls = itertools.count()

        def fsync(handle: int) -> None:
            if next(calls) == fails_at:
                raise OSError(errno.EIO, os.strerror(errno.EIO))
            force(handle)

        monkeypatch.setattr(os, "fsync", fsync)
        with TailFile(exported, play.flow) as file:
            play.settle(Way.EXPORT, file=file)

    for fails_at in range(2):
        with pytest.raises(MirrorError, match="Input/output error"):
            export(fails_at=fails_at)
        assert not losses.read(play.rehearsal.cluster(play.other), play.one)
        assert play.tail().records == _LEFT
    export()
    lines = map(json.loads, exported.read_text().splitlines())
    keys = Counter(each["key"]["data"].encode() for each in lines)
    assert keys == Counter(play.left)
    assert stat.S_IMODE(exported.stat().st_mode) == 0o600
    named = losses.read(play.rehearsal.cluster(play.other), play.one)
    assert sum(each.count or 0 for each in named) == _LEFT
    play.goes_on()


def _name(play: Play) -> str:
    return f"{play.one}/{play.other}"


def _way_home(play: Play) -> Stage:
    """The switch back to A, after the flow B->A has copied something."""
    play.application.write(play.b, 5)
    play.rehearsal.copy(play.a, f"{play.other}.{play.topic}", 5, back=True)
    del play.application.written[-5:]
    stage = play.rehearsal.stage()
    return replace(
        stage,
        flow=stage.reverse,
        reverse=stage.flow,
        source_or_none=stage.target_or_none,
        target_or_none=stage.source_or_none,
    )


@pytest.mark.full
@pytest.mark.parametrize(
    "play", [("tailways", "default"), ("tailsame", "identity")], indirect=True
)
def test_each_way(play: Play) -> None:
    """A record that is replayed first, its neighbours that follow later, what is
    exported to a file and to a topic, and what is skipped: each record is in one place,
    once, also if commands are killed in between. Before that the list names a key that
    was written on B since, and the group that has read all of it on A. The ledger names
    those that are not on B, `mirror verify` finds nothing, and the flow goes on.
    """
    again = producer(play.b)
    again.produce(play.topic, key=play.left[5], value=b"newer", partition=0)
    assert again.flush(30) == 0
    play.application.consume(play.a, [play.topic])
    shown = json.loads(command(play.folder, "tail", "list", _name(play), "-o", "json"))
    conflicts = {"keys": 1, "first": [_text(play.left[5])]}
    assert shown["conflicts"] == {play.topic: conflicts}
    (reads,) = shown["groups"].values()
    assert sum(each["read"] for each in reads) == _LEFT

    key = play.left[10]
    assert play.settle(Way.REPLAY, Choice(key=key)) == 1
    first = Choice(partition=0)
    exported = play.folder / "tail.jsonl"

    def export() -> int:
        with TailFile(exported, play.flow) as file:
            return play.settle(Way.EXPORT, Choice(key=play.left[0]), file=file)

    play.killed(1, export)
    assert len(exported.read_text().splitlines()) == 1
    export()
    (line,) = exported.read_text().splitlines()
    assert json.loads(line)["key"] == {"encoding": "utf-8", "data": _text(play.left[0])}

    place = f"{play.topic}-tail"
    create_topic(play.b, place, 1)
    play.settle(Way.EXPORT, Choice(key=play.left[1]), topic=place)
    ((message,),) = read_topic(play.b, place).values()
    headers = dict(message.headers() or [])
    assert message.key() == play.left[1]
    assert headers["mirror.tail.topic"] == play.topic.encode()

    assert play.settle(Way.SKIP, Choice(key=play.left[2])) == 1
    play.killed(2, lambda: play.settle(Way.REPLAY, first))
    play.settle(Way.REPLAY)
    gone = set(play.left[:3])
    expected = Counter(k for k in play.application.written if k not in gone)
    if play.copy == play.topic:
        expected[play.left[5]] += 1  # the newer one
    assert play.copied() == expected
    assert play.tail().settled
    named = losses.read(play.rehearsal.cluster(play.other), play.one)
    assert Counter(each.cause for each in named) == {losses.Cause.FAILOVER: 3}
    assert sum(each.count or 0 for each in named) == 3
    command(play.folder, "verify", "--flow", _name(play))
    play.goes_on()


def _text(key: bytes) -> str:
    return key.decode()


@pytest.mark.parametrize("play", [("tailopen", "default")], indirect=True)
def test_settled_while_a_transaction_is_open(
    play: Play, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is skipped while a transaction is open on A stays skipped once that aborts:
    the flow does not copy it. Until then A cannot become active.
    """
    monkeypatch.setattr("mirror.proofs.survey.PATIENCE_SECONDS", 1.0)
    back = _way_home(play)
    writer = producer(play.a, transactional_id=play.topic)
    writer.init_transactions(30)
    writer.begin_transaction()
    writer.produce(play.topic, b"never", partition=0)
    assert writer.flush(30) == 0
    assert play.settle(Way.SKIP) == _LEFT
    with pytest.raises(StepError, match=f"a transaction is open on {play.one}"):
        STEPS["assess"].do(back)

    writer.abort_transaction(30)
    assert play.tail().settled
    STEPS["assess"].do(back)
    play.goes_on()


@pytest.mark.full
@pytest.mark.parametrize("play", [("tailgone", "default")], indirect=True)
def test_the_rest_expires(play: Play) -> None:
    """A record was replayed, then retention removed the others: until a command has
    moved the position, A cannot become active; then the flow does not copy the record
    a second time, and the ledger names what is gone.
    """
    back = _way_home(play)
    last = read_topic(play.a, play.topic)[0][-1]
    assert play.settle(Way.REPLAY, Choice(key=last.key())) == 1
    assert play.settle(Way.SKIP, Choice(partition=1))
    delete_records(play.a, play.topic, last.offset() or 0)
    assert play.tail().records == 0
    with pytest.raises(StepError, match=f"position of {play.flow.name}"):
        STEPS["assess"].do(back)

    command(play.folder, "tail", "skip", _name(play), "--yes")
    named = losses.read(play.rehearsal.cluster(play.other), play.one)
    (gone,) = [each for each in named if each.cause is losses.Cause.DELETED]
    assert (gone.first, gone.last) == (_COPIED // _PARTITIONS, (last.offset() or 0) - 1)
    assert play.tail().settled
    STEPS["assess"].do(back)
    play.goes_on()


@pytest.mark.parametrize("play", [("tailcount", "identity")], indirect=True)
def test_the_count_goes_on(play: Play, monkeypatch: pytest.MonkeyPatch) -> None:
    """A service that watches the pair shows what the producer counts as left on A. What
    B's own records add to the same log is no tail, though the count takes several looks
    to pass them. Once the tail is settled, the number is 0.
    """
    monkeypatch.setattr("mirror.service.pair_jobs._LOOK_SECONDS", 0.5)
    monkeypatch.setattr("mirror.service.pair_jobs._TAIL_SECONDS", 1.0)
    monkeypatch.setattr("mirror.recovery.tails.survey._MOST_READ", 50)
    store = StatusStore((play.flow.name,))
    config = play.rehearsal.config
    follower = PairFollower(config, store)
    passive = PassiveClusters(
        lambda: config, follower, lambda *_, **__: False,
        leads=lambda _: True, new_count=Unsettled,
    )  # fmt: skip

    def shows(count: int) -> None:
        wait_for(lambda: [each.passive.tail for each in store.pairs] == [count])

    with contextlib.ExitStack() as stack:
        for each in (follower, passive):
            each.start()
            stack.callback(each.close)
        shows(_LEFT)
        play.application.write(play.b, 80)
        play.rehearsal.copy(play.a, play.topic, _COPIED + _LEFT + 80, back=True)
        late = play.application.write(play.a, 7)
        assert late
        shows(_LEFT + 7)
        play.settle(Way.SKIP, Choice(partition=0))
        left = play.tail().records
        assert 0 < left < _LEFT
        shows(left)
        play.settle(Way.SKIP)
        shows(0)


@pytest.mark.parametrize("play", [("taillooks", "identity")], indirect=True)
def test_a_look_goes_on_behind_the_last_one(play: Play) -> None:
    """A look after another one finds what a look at everything finds, and reads what is
    new alone: when nothing is, after more records on A and others that came home from
    B, after one was replayed and another skipped. It reads everything where positions
    were moved back, and in a re-created topic, though that is longer now.
    """

    def read(seen: Tail | None) -> tuple[Tail, int]:
        before = Meter.fetched_bytes
        return play.tail(seen=seen), Meter.fetched_bytes - before

    seen, size = read(None)

    def look() -> int:
        """How many bytes the next look reads; `size` is what a whole one reads then."""
        nonlocal seen, size
        (seen, new), (whole, all_of_it) = read(seen), read(None)
        assert _plain(seen) == _plain(whole)
        size = all_of_it
        return new

    assert look() == 0
    play.application.write(play.b, 80)
    play.rehearsal.copy(play.a, play.topic, _COPIED + _LEFT + 80, back=True)
    assert play.application.write(play.a, 6)
    assert 0 < look() < size
    late = next(key for key in play.left if key.startswith(b"1"))
    assert play.settle(Way.REPLAY, Choice(key=late)) == 1
    assert look() == 0
    assert [each.replayed for each in seen.partitions] == [0, 1]
    first = next(key for key in play.left if key.startswith(b"0"))
    assert play.settle(Way.SKIP, Choice(key=first)) == 1
    assert look() == 0
    assert [each.written_off for each in seen.partitions] == [1, 0]

    back = {p.key: Position(offset=0, topic_id=p.topic_id) for p in seen.partitions}
    target = play.rehearsal.cluster(play.other)
    rewrite_progress(play.flow, target, lambda _: PositionUpdate(positions=back))
    assert look() == size

    delete_topic(play.a, play.topic)
    create_topic(play.a, play.topic, _PARTITIONS)
    assert play.application.write(play.a, 400)
    assert look() == size


@pytest.mark.full
def test_a_log_that_lost_its_end_is_read_again(
    make_clusters: Callable[..., dict[str, PlaygroundCluster]],
    clusters: dict[str, PlaygroundCluster],
    topic_name: str,
) -> None:
    """After an unclean election A's log has other records behind its first ones, and is
    longer than before: the next look finds those, as a look at everything does.
    """
    three = make_clusters("a", nodes=3)["a"]
    a, b = three.bootstrap, clusters["b"].bootstrap
    new = NewTopic(
        topic_name, num_partitions=1, replica_assignment=[[1, 2]],
        config={"min.insync.replicas": "1", "unclean.leader.election.enable": "true"},
    )  # fmt: skip
    admin = AdminClient({"bootstrap.servers": a})
    admin.create_topics([new])[topic_name].result(30)
    settings = {"topics": [topic_name], "policy": "identity"}
    with Sides({"CUT": a, "B": b}, {"CUT->B": settings}) as sides:

        def look(seen: Tail | None = None) -> Tail:
            source, target = sides.clusters("CUT->B")
            return survey(sides.flow("CUT->B"), source, target, seen=seen)

        application = Application(topic_name, 1, topic_name)
        assert application.write(a, 10)
        three.kill(2)
        wait_for(lambda: application.write(a, 10))
        seen = look()
        assert seen.records == len(application.written)
        three.kill(1)
        three.start(2)
        wait_for(lambda: application.write(a, 30))
        found = look(seen)
        assert _plain(found) == _plain(look())
        assert found.records < len(application.written)


def _plain(tail: Tail) -> object:
    """All of it, so that two of them compare."""
    values = [
        [getattr(part, of.name) for of in fields(part)] for part in tail.partitions
    ]
    return [
        [each.tolist() if isinstance(each, np.ndarray) else each for each in part]
        for part in values
    ]


@pytest.mark.full
@pytest.mark.parametrize("play", [("tailfed", "default")], indirect=True)
def test_a_replay_names_clusters_that_have_the_record(play: Play) -> None:
    """A cluster that the pair feeds had the first records of the tail before A died:
    these carry its header before the flow's own, the others do not. `mirror verify`
    takes no offence.
    """
    source, target = map(play.rehearsal.cluster, (play.one, play.other))
    parts = play.tail().partitions
    ends = {each.key: int(each.offsets[each.records // 2]) for each in parts}
    fed = Fed(
        stamp=provenance.via(source_alias="C", source_id="c", target_id="").stamp,
        read={
            each.key: Position(offset=ends[each.key], topic_id=each.topic_id)
            for each in parts
        },
    )
    terms = terms_of(play.rehearsal.config, play.flow, source, target, Scope())
    order = Order(way=Way.REPLAY, choice=Choice())
    settle(
        TailSettling(
            flow=play.flow, terms=terms, source=source, target=target, order=order,
            fed=(fed,),
        )
    )  # fmt: skip

    own = f"{play.one}/{source.cluster_id}".encode()
    found = Counter[tuple[bytes, ...]]()
    for messages in read_topic(play.b, play.copy).values():
        for message in messages[_COPIED // _PARTITIONS :]:
            via = (v for k, v in message.headers() or () if k == provenance.HEADER)
            found[tuple(v if isinstance(v, bytes) else b"" for v in via)] += 1
    assert found == {(b"C/c", own): _LEFT // 2, (own,): _LEFT // 2}
    assert play.copied() == Counter(play.application.written)
    command(play.folder, "verify", "--flow", _name(play))
