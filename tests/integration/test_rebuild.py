"""Rebuilds: a copy is deleted and copied again, and groups go on where they were.

A real service copies, and an ordinary consumer reads what is there before and after.
"""

from __future__ import annotations

from collections import Counter
import contextlib
import json
import re
import signal
from typing import TYPE_CHECKING, Any
import urllib.request

from confluent_kafka import Consumer, TopicCollection, TopicPartition
from confluent_kafka.admin import AdminClient
import pytest

from mirror.clusters.admin import group_offsets, topic_admin
from mirror.clusters.admin.group_offsets import SHARE_GROUP, CommittedOffset
from mirror.clusters.cluster import Cluster
from mirror.errors import MirrorError
from mirror.pairs import control
from mirror.pairs.control import RebuildStep
from mirror.proofs import repair_appending, repair_rebuilding
from mirror.proofs.account import Scope
from mirror.proofs.repair_rebuilding import Rebuilding
from mirror.proofs.runners import InProcess
from mirror.proofs.verification import prove
from mirror.service import ownership
from tests.harness.admin import (
    add_partitions,
    alter_topic,
    closed_ends,
    commit_offsets,
    create_topic,
    delete_records,
)
from tests.harness.configurations import configuration
from tests.harness.connections import connected
from tests.harness.failed_over import die
from tests.harness.group_moves import Reader
from tests.harness.load import producer, send
from tests.harness.metadata import acls_of, allow, overrides
from tests.harness.slot_processes import exit_code_of
from tests.harness.slots import SparklessFlow, copy_until
from tests.harness.waiting import PATIENCE_SECONDS, wait_for
from tests.harness.witness import Witness, eventually, keys_of, read_topic

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from confluent_kafka import Message, Producer

    from mirror.config.schema import MirrorConfig
    from mirror.pairs.control import Rebuild
    from mirror.playground.cluster import PlaygroundCluster
    from mirror.proofs.repair_rebuilding import RebuildPreview
    from mirror.proofs.verification import Proven
    from tests.harness.standing import StandingMirror

pytestmark = pytest.mark.integration

_COUNT = 300
"""Records, of which each transaction has 20; every third one is aborted."""
_DOUBLED = 5
_DELETING = 3
"""The first point after which the copy is gone."""
_RETENTION = "987654321"


def _send(client: Producer, topic: str, numbers: range) -> list[bytes]:
    """Records with holes between them, in two partitions; the keys to be found."""
    sent = []
    for at in range(numbers.start, numbers.stop, 20):
        part = range(at, min(at + 20, numbers.stop))
        client.begin_transaction()
        for number in part:
            client.produce(
                topic, key=b"%d" % number, value=b"v" * 50, partition=number % 2
            )
        if at // 20 % 3 == 2:
            assert client.flush(30) == 0
            client.abort_transaction(30)
        else:
            client.commit_transaction(30)
            sent += [b"%d" % number for number in part]
    return sent


def _fill(bootstrap: str, topic: str, count: int) -> None:
    order = {0: [b"%d" % number for number in range(count)]}
    send(producer(bootstrap), topic, order, b"v")


def _commit(bootstrap: str, group: str, copy: str, offsets: dict[int, int]) -> None:
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": group})
    places = [TopicPartition(copy, n, at, f"m{n}") for n, at in offsets.items()]
    commit_offsets(consumer, places)
    consumer.close()


def _committed(bootstrap: str, group: str, copy: str) -> dict[int, TopicPartition]:
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": group})
    asked = [TopicPartition(copy, n) for n in range(3)]
    found = consumer.committed(asked, timeout=PATIENCE_SECONDS)
    consumer.close()
    return {each.partition: each for each in found if each.offset >= 0}


def _unread(found: list[Message], offset: int, *, but: int = -1) -> list[bytes]:
    return [m.key() for m in found if m.offset() >= offset and m.offset() != but]


@contextlib.contextmanager
def _begun(
    config: MirrorConfig, flow: str, topic: str, agree: Callable[[RebuildPreview], bool]
) -> Iterator[tuple[Rebuilding, Rebuild | None]]:
    """A rebuild as far as `begin` goes, or where an earlier one was killed."""
    steered = config.flows[flow]

    def proof(after: Proven | None) -> Proven:
        since = topic_admin.EARLIEST if after is None else None
        scope = Scope(pattern=re.escape(topic), since=since, remembered=False)
        return prove(
            config, steered, InProcess(), scope, show=lambda *_: None, after=after
        )

    with repair_rebuilding.rebuilding(config, steered, topic, dry_run=False) as work:
        note = work.unfinished(withdraw=True) or work.begin(proof, agree)
        yield work, note


def _rebuild(config: MirrorConfig, flow: str, topic: str) -> None:
    with _begun(config, flow, topic, lambda _: True) as (work, note):
        assert note is not None
        assert work.finish(note) == {}


def _after(call: Callable[..., Any]) -> Callable[..., None]:
    return lambda *words, **named: (call(*words, **named), die())[1]


def _dies_while_committing(*_: Any) -> None:
    ownership.commit = lambda _, owner, __: (owner.begin_commit(), die())


_WRITE = Rebuilding._write


def _dies_at_the_end(*words: Any, **named: Any) -> None:
    if named.get("told"):
        _dies_while_committing()
    _WRITE(*words, **named)


_POINTS: dict[str, tuple[Any, str, Callable[..., None]]] = {
    "before the pause": (Rebuilding, "_pause", die),
    "paused": (Rebuilding, "_keep_groups", die),
    "before the deletion": (repair_rebuilding.topic_admin, "delete_topic", die),
    "after the deletion": (
        repair_rebuilding.topic_admin,
        "delete_topic",
        _after(repair_rebuilding.topic_admin.delete_topic),
    ),
    "before the first positions": (repair_rebuilding.starting, "find", die),
    "while it is copied": (repair_rebuilding, "wait_until_copied", die),
    "after a group moved": (
        repair_rebuilding, "put_back", _after(repair_rebuilding.put_back)
    ),
    "during the last commit": (
        Rebuilding, "_write", _dies_at_the_end
    ),
}  # fmt: skip


def _killed(config: MirrorConfig, flow: str, topic: str, point: str) -> int | None:
    """The exit code of a rebuild that dies there."""

    def rebuild() -> None:
        where, name, instead = _POINTS[point]
        setattr(where, name, instead)
        _rebuild(config, flow, topic)

    return exit_code_of(rebuild)


@pytest.mark.full
def test_a_rebuild_that_is_killed_at_each_step(
    clusters: dict[str, PlaygroundCluster], standing: StandingMirror, topic_name: str
) -> None:
    """A copy with a doubled record is rebuilt beside a running service, and the rebuild
    dies at eight points, one after the other. In the end an ordinary consumer finds
    every key once and in order, verify finds nothing, groups go on with the very record
    that they would have read next, metadata included, and partitions and configs that
    only the copy had are there. Records that come meanwhile are copied, those of the
    flow's other topic as well. The service tells of it.
    """
    a, b = clusters["a"].bootstrap, clusters["b"].bootstrap
    alias = f"W{topic_name[-8:]}"
    flow, copy = f"{alias}->B", f"{alias}.{topic_name}"
    other, meanwhile = f"{topic_name}-other", [b"new%d" % n for n in range(10)]
    create_topic(a, topic_name, partitions=2)
    create_topic(a, other)
    load = producer(a, transactional_id=f"load {topic_name}")
    load.init_transactions(30)
    sent = _send(load, topic_name, range(_COUNT))
    document = {
        "clusters": {
            alias: {"bootstrap_servers": a},
            "B": {"bootstrap_servers": b},
        },
        "flows": {
            flow: {
                "topics": [f"{topic_name}.*"],
                "sync_topic_configs": False,
                "emit_heartbeats": False,
                "heartbeats_replication": False,
                "tasks": 1,
                "lease_seconds": 2,
            }
        },
    }
    with standing.hosting(document) as mirror:
        eventually(b, copy, len(sent))
        mirror.wait_copied(a, topic_name)
        alter_topic(b, copy, retention_ms=_RETENTION)
        add_partitions(b, copy, 3)
        old = read_topic(b, copy)
        twice = old[0][_DOUBLED]
        client = producer(b)
        client.produce(
            copy, key=twice.key(), value=twice.value(), headers=twice.headers(),
            timestamp=twice.timestamp()[1], partition=0,
        )  # fmt: skip
        assert client.flush(30) == 0
        old = read_topic(b, copy)
        doubled = old[0][-1].offset()
        unread: dict[str, dict[int, list[bytes]]] = {}
        for at in range(0, len(old[0]), 9):
            places = {0: old[0][at].offset() + at % 2, 1: old[1][at].offset()}
            places |= {2: 0} if at % 2 else {}
            unread[f"{alias}-{at}"] = {
                n: _unread(old[n], place, but=doubled) for n, place in places.items()
            }
            _commit(b, f"{alias}-{at}", copy, places)
        ends = {n: old[n][-1].offset() + 1 for n in (0, 1)}
        unread[f"{alias}-tip"] = {0: [], 1: []}
        _commit(b, f"{alias}-tip", copy, ends)
        shared, place = f"{alias}-share", (copy, 0)
        start = old[0][20].offset()
        with connected(b) as target:
            wanted = {shared: {place: CommittedOffset(start, SHARE_GROUP)}}
            assert not group_offsets.commit(target, wanted)

        config = configuration(document)
        for at, point in enumerate(_POINTS):
            assert (point, _killed(config, flow, topic_name, point)) == (
                point, -signal.SIGKILL,
            )  # fmt: skip
            client = producer(a)
            client.produce(other, key=b"%d" % at, value=b"v", partition=0)
            if at == _DELETING:
                for number in meanwhile:
                    client.produce(topic_name, key=number, value=b"v", partition=1)
            assert client.flush(30) == 0
        _rebuild(config, flow, topic_name)

        records = len(sent)
        sent += meanwhile
        for expected in unread.values():
            if 1 in expected:
                expected[1] += meanwhile
        new = eventually(b, copy, len(sent))
        assert keys_of(new) == {**keys_of(read_topic(a, topic_name)), 2: []}
        assert Counter(m.key() for part in new.values() for m in part) == Counter(sent)
        for group, expected in unread.items():
            found = _committed(b, group, copy)
            assert {n: at.metadata for n, at in found.items()} == {
                n: f"m{n}" for n in expected
            }
            assert (group, expected) == (
                group, {n: _unread(new[n], found[n].offset) for n in found},
            )  # fmt: skip
        with connected(b) as target:
            starts = group_offsets.fetch(target, [shared]).groups[shared]
        assert _unread(new[0], starts[place].offset) == _unread(
            old[0], start, but=doubled
        )
        scope = Scope(pattern=re.escape(topic_name), remembered=False)
        proven = prove(
            config, config.flows[flow], InProcess(), scope, show=lambda *_: None
        )
        assert proven.findings == ()
        assert sum(each.account.equal for each in proven.partitions) == len(sent)
        assert overrides(b, copy)["retention.ms"] == _RETENTION

        more = _send(load, topic_name, range(_COUNT, _COUNT + 40))
        found = eventually(b, copy, len(sent) + len(more))
        assert Counter(m.key() for part in found.values() for m in part) == Counter(
            sent + more
        )
        wait_for(lambda: _events(mirror.url, flow))
        events = _events(mirror.url, flow)
        assert [each["details"]["repair"] for each in events] == ["rebuild"]
        assert events[0]["details"]["topics"] == {topic_name: records}
        beside = eventually(b, f"{alias}.{other}", len(_POINTS))
        assert keys_of(beside)[0] == [b"%d" % at for at in range(len(_POINTS))]
        wait_for(lambda: mirror.flow()["faulted"] == 0)


FOREIGN, CLAIMS, EXPIRED, EXTRA = "foreign", "claims", "expired", "extra"
RIGHT, READ = "right", "read"
_KINDS = (FOREIGN, CLAIMS, EXPIRED, EXTRA, RIGHT, READ)


def test_refused_where_something_would_be_lost(
    clusters: dict[str, PlaygroundCluster], topic_name: str
) -> None:
    """Records of others, one that claims to be a copy, what the source has deleted and
    a partition that it does not have are each named with their offsets; a group with
    members is named. Nothing changes then. While a rebuild is under way, another one
    and an append are refused, and its topic is paused whatever people resume.
    """
    a, b = clusters["a"].bootstrap, clusters["b"].bootstrap
    alias = f"W{topic_name[-8:]}"
    names = {kind: f"{topic_name}-{kind}" for kind in _KINDS}
    for name in names.values():
        create_topic(a, name, partitions=1)
        _fill(a, name, 30)
    flow = SparklessFlow(
        source=a, target=b, topic=f"{topic_name}-.*", alias=alias
    ).own()
    config = flow.config()
    with Witness(b) as witness, flow.slot() as slot:
        for name in names.values():
            witness.begin(f"{alias}.{name}")
            copy_until(witness, slot, flow.lease(60), count=30, timeout=60)
    copies = {kind: f"{alias}.{name}" for kind, name in names.items()}
    ends = {kind: closed_ends(b, copy)[0] for kind, copy in copies.items()}
    before = _ids(b, copies.values())

    stamp = read_topic(b, copies[CLAIMS])[0][0].headers()
    add_partitions(b, copies[EXTRA], 2)
    others = producer(b)
    for _ in range(2):
        others.produce(copies[FOREIGN], key=b"?", value=b"v", partition=0)
    others.produce(copies[CLAIMS], key=b"?", value=b"v", headers=stamp, partition=0)
    others.produce(copies[EXTRA], key=b"?", value=b"v", partition=1)
    assert others.flush(30) == 0
    delete_records(a, names[EXPIRED], 10)

    def lost(kind: str) -> list[tuple[int, int | None, int | None, int]]:
        seen: list[RebuildPreview] = []

        def agree(preview: RebuildPreview) -> bool:
            seen.append(preview)
            return not preview.irreplaceable

        with _begun(config, flow.name, names[kind], agree) as (_, note):
            assert note is None
        (preview,) = seen
        return [
            (each.partition, each.first, each.last, each.count)
            for each in preview.irreplaceable
        ]

    assert lost(FOREIGN) == [(0, ends[FOREIGN], ends[FOREIGN] + 1, 2)]
    assert lost(CLAIMS) == [(0, ends[CLAIMS], ends[CLAIMS], 1)]
    assert lost(EXPIRED) == [(0, 0, 9, 10)]
    assert lost(EXTRA) == [(1, 0, 0, 1)]
    with Reader(b, f"{alias}-app", [copies[READ]]) as reader:
        reader.join()
        with pytest.raises(MirrorError, match=f"have members: {alias}-app: stop"):
            lost(READ)
    with pytest.raises(MirrorError, match="copies no topic nothing"):
        _rebuild(config, flow.name, "nothing")
    never = SparklessFlow(source=a, target=b, topic=names[RIGHT], alias=f"N{alias}")
    create_topic(b, never.copy)
    with pytest.raises(MirrorError, match="did the flow ever run"):
        _rebuild(never.config(), never.name, names[RIGHT])
    assert _ids(b, copies.values()) == before

    with _begun(config, flow.name, names[RIGHT], lambda _: True) as (_, note):
        assert note is not None
    with pytest.raises(MirrorError, match=f"{names[RIGHT]} is being rebuilt"):
        _rebuild(config, flow.name, names[READ])
    with pytest.raises(MirrorError, match=f"{names[RIGHT]} is being rebuilt"):
        repair_appending.begin(config, config.flows[flow.name])
    with flow.connected() as (_, target):
        steered = config.flows[flow.name]
        control.change_pauses(target, steered, ".*", paused=False)
        held = control.PausesReader(target, steered).read()
    assert (held.since(names[RIGHT]), held.since(names[READ])) == (note.at, 0.0)


@pytest.mark.full
def test_without_a_service_and_with_a_group_that_came_too_soon(
    clusters: dict[str, PlaygroundCluster],
    topic_name: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Without anything that copies, the rebuild says so, and goes on later where it
    was. A group that joins before it has its offsets is named and left alone; when it
    has left, the same command moves it. A second one that ran beside it ends with it.
    Offsets that a group committed while the copy was still there count.
    """
    a, b = clusters["a"].bootstrap, clusters["b"].bootstrap
    alias = f"W{topic_name[-8:]}"
    create_topic(a, topic_name, partitions=1)
    _fill(a, topic_name, 50)
    flow = SparklessFlow(source=a, target=b, topic=topic_name, alias=alias).own()
    config = flow.config()
    group = f"{alias}-app"
    flow.copy_until(50)
    _commit(b, group, flow.copy, {0: 20})
    with _begun(config, flow.name, topic_name, lambda _: True) as (work, note):
        assert note is not None
        _commit(b, group, flow.copy, {0: 30})
        monkeypatch.setattr(repair_rebuilding, "STALLED_SECONDS", 1.0)
        with pytest.raises(MirrorError, match=r"nothing copies .* 50 offsets"):
            work.finish(note)
    flow.own().copy_until(50)
    with Reader(b, group, [flow.copy]) as reader:
        reader.join()
        with _begun(config, flow.name, topic_name, lambda _: True) as (work, note):
            assert note is not None
            assert (note.step, note.ends) == (RebuildStep.COPYING, (50,))
            left = work.finish(note)
            assert left.keys() == {group}
            assert "has members: stop them" in left[group]
    with _begun(config, flow.name, topic_name, lambda _: True) as (work, note):
        assert note is not None
        _rebuild(config, flow.name, topic_name)
        assert work.finish(note) == {}
        assert work.unfinished(withdraw=False) is None
    found = read_topic(b, flow.copy)[0]
    assert [m.key() for m in found] == [b"%d" % number for number in range(50)]
    at = _committed(b, group, flow.copy)[0].offset
    assert _unread(found, at) == [b"%d" % number for number in range(30, 50)]


@pytest.mark.full
def test_brokers_that_do_not_delete_topics(
    make_clusters: Callable[..., dict[str, PlaygroundCluster]],
) -> None:
    """It is refused before anything changes, with the setting that forbids it."""
    made = make_clusters(settings={"delete.topic.enable": "false"})
    a, b = made["a"].bootstrap, made["b"].bootstrap
    create_topic(a, "orders")
    flow = SparklessFlow(source=a, target=b, topic="orders", alias="A").own()
    before = _ids(b, [flow.copy])
    with pytest.raises(MirrorError, match=r"delete\.topic\.enable is false"):
        _rebuild(flow.config(), flow.name, "orders")
    assert _ids(b, [flow.copy]) == before


@pytest.mark.full
def test_acls_stay(
    make_clusters: Callable[..., dict[str, PlaygroundCluster]],
) -> None:
    """The copy's ACLs apply to its successor. A user without DELETE is refused."""
    made = make_clusters(secured=True)
    a, b = made["a"].admin_bootstrap, made["b"].admin_bootstrap
    create_topic(a, "orders")
    _fill(a, "orders", 10)
    flow = SparklessFlow(source=a, target=b, topic="orders", alias="A").own()
    flow.copy_until(10)
    allow(b, "alice", "READ", flow.copy)
    before = acls_of(b, about=flow.copy)
    user = {"bootstrap_servers": made["b"].bootstrap, **made["b"].client_config}
    cluster = Cluster(
        configuration(
            {"clusters": {"B": user, "A": {"bootstrap_servers": a}}, "flows": {}}
        ).clusters["B"]
    )
    with contextlib.closing(cluster.connect()):
        why = topic_admin.deletion_obstacle(cluster, flow.copy)
    assert why.endswith("does not allow us to DELETE topic A.orders")

    with _begun(flow.config(), flow.name, "orders", lambda _: True) as (work, note):
        assert note is not None
        work._renew(note)
        flow.own().copy_until(10)
        _rebuild(flow.config(), flow.name, "orders")
    assert acls_of(b, about=flow.copy) == before
    assert len(read_topic(b, flow.copy)[0]) == 10


def _ids(bootstrap: str, topics: Iterable[str]) -> dict[str, str]:
    asked = TopicCollection(list(topics))
    admin = AdminClient({"bootstrap.servers": bootstrap})
    found = admin.describe_topics(asked)
    return {name: str(each.result(30).topic_id) for name, each in found.items()}


def _events(url: str, flow: str) -> list[dict[str, Any]]:
    with urllib.request.urlopen(f"{url}/events?kind=copy-repaired") as answer:
        found = json.load(answer)["events"]
    return [event for event in found if event["flow"] == flow]
