"""One application of several moves alone: pairs with names that share two clusters."""

from __future__ import annotations

from collections import Counter
import json
import threading
import time
from typing import TYPE_CHECKING, Any, Self
import urllib.error
import urllib.request

from confluent_kafka import OFFSET_END, Consumer, Producer, TopicPartition
import pytest

from mirror.errors import MirrorError
from mirror.pairs.journal import Kind
from mirror.playground.brokers import playground
from mirror.recovery.stage import StepError
from mirror.recovery.steps import STEPS
from tests.harness.admin import create_topic
from tests.harness.application import Application
from tests.harness.commands import answered
from tests.harness.group_moves import commit_for, committed
from tests.harness.metadata import allow, revoke
from tests.harness.producers import add_users, scram, write
from tests.harness.rehearsal import Rehearsal
from tests.harness.service import RunningMirror
from tests.harness.switching import Switch, command, pair_of, secured_pair_of
from tests.harness.waiting import PATIENCE_SECONDS, crowd, wait_for
from tests.harness.witness import log_of, order_of

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from mirror.playground.cluster import PlaygroundCluster

pytestmark = pytest.mark.integration

_PAUSE_SECONDS = 30.0
"""How long at most one application's switch keeps the other one's copies back."""


def pairs_of(names: dict[str, str]) -> dict[str, Any]:
    """A pair for each application: topics by the pair's name."""
    return {
        name: {"topics": [topic], "groups": [f"app-{topic}"]}
        for name, topic in names.items()
    }


def scoped(
    one: tuple[str, str], other: tuple[str, str], names: dict[str, str]
) -> dict[str, Any]:
    """A configuration with these pairs."""
    document = pair_of(one, other, "")
    document["defaults"]["topics"] = list(names.values())
    document["defaults"]["groups"] = [f"app-{topic}.*" for topic in names.values()]
    document["recovery"] = {
        f"{one[0]}<->{other[0]}/{name}": {
            "active": one[0],
            "fence": "confirmed",
            **each,
        }
        for name, each in pairs_of(names).items()
    }
    return document


def copied(bootstrap: str, copy: str) -> Counter[bytes]:
    """How often each key is in a copy."""
    return Counter(k for keys in order_of(bootstrap, copy).values() for k in keys)


class Arrivals:
    """The longest time without a record in a topic; a context manager."""

    def __init__(self, bootstrap: str, topic: str) -> None:
        self.longest = 0.0
        self._reader = Consumer({"bootstrap.servers": bootstrap, "group.id": topic})
        parts = self._reader.list_topics(topic, 30).topics[topic].partitions
        self._reader.assign([TopicPartition(topic, n, OFFSET_END) for n in parts])
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._watch)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join()
        self._reader.close()

    def _watch(self) -> None:
        last = 0.0
        while not self._stop.is_set():
            message = self._reader.poll(0.1)
            if message is not None and not message.error():
                now = time.monotonic()
                self.longest = max(self.longest, now - (last or now))
                last = now


def answers(url: str) -> int:
    try:
        with urllib.request.urlopen(url, timeout=PATIENCE_SECONDS) as answer:
            return int(answer.status)
    except urllib.error.HTTPError as error:
        return error.code


def write_both(bootstrap: str, topics: list[str], name: str) -> None:
    """A producer writes to these topics in one transaction, and a group that belongs
    to no pair reads them.
    """
    producer = Producer({"bootstrap.servers": bootstrap, "transactional.id": name})
    producer.init_transactions(30)
    producer.begin_transaction()
    for topic in topics:
        producer.produce(topic, key=b"both", value=b"v", partition=0)
    producer.commit_transaction(30)
    commit_for(bootstrap, f"app-{topics[0]}-x", dict.fromkeys(topics, 1))


def test_a_switch_touches_one_pair(
    clusters: dict[str, PlaygroundCluster], topic_name: str
) -> None:
    """The steps see the topics and groups of their pair only: the other group is not
    moved, and the other topic may be written and have an open transaction meanwhile. A
    producer and a group of both are named before anything changes, and so is a topic
    that both pairs claim.
    """
    a, b = (clusters[name].bootstrap for name in "ab")
    one, other = f"A{topic_name[-6:]}", f"B{topic_name[-6:]}"
    names = {name: f"{topic_name}-{name}" for name in ("orders", "bills")}
    orders, bills = names.values()
    for topic in names.values():
        create_topic(a, topic, 1)
        assert Application(topic, 1, "app").write(a, 10)
        commit_for(a, f"app-{topic}", {topic: 7})
    busy = Producer({"bootstrap.servers": a, "transactional.id": f"busy-{bills}"})
    busy.init_transactions(30)
    ends = (one, a), (other, b), f"{topic_name}-.*"
    with Rehearsal(*ends, pairs=pairs_of(names)) as rehearsal:
        rehearsal.copy(b, f"{one}.{orders}", 10)
        busy.begin_transaction()
        busy.produce(bills, b"open")
        assert busy.flush(30) == 0
        rehearsal.carry_out()
        assert committed(b, f"app-{orders}", f"{one}.{orders}") == 7
        assert committed(b, f"app-{bills}", f"{one}.{bills}") is None
        busy.commit_transaction(30)

    write_both(a, [orders, bills], f"both-{topic_name}")
    twice = {**pairs_of(names), "all": {"topics": [".*-bills"], "groups": []}}
    back = dict(reversed(twice.items()))
    with Rehearsal(*ends, pairs=back) as rehearsal:
        with pytest.raises(StepError) as refused:
            STEPS["assess"].do(rehearsal.stage())
        for text in (
            f"topic {bills} belongs to {one}<->{other}/all and {one}<->{other}/bills",
            f"producer both-{topic_name} writes in transactions to {bills}",
            f"group app-{orders}-x is not of",
            "internal topics of a Streams application",
        ):
            assert text in str(refused.value)


def test_a_failover_reports_one_pair(
    clusters: dict[str, PlaygroundCluster], topic_name: str
) -> None:
    """What is not copied of the other application, which has not moved, is no loss of
    this failover.
    """
    a, b = (clusters[name].bootstrap for name in "ab")
    one, other = f"A{topic_name[-6:]}", f"B{topic_name[-6:]}"
    names = {name: f"{topic_name}-{name}" for name in ("orders", "bills")}
    for topic in names.values():
        create_topic(a, topic, 1)
        assert Application(topic, 1, "app").write(a, 10)
    with Rehearsal(
        (one, a), (other, b), f"{topic_name}-.*", pairs=pairs_of(names)
    ) as rehearsal:
        rehearsal.copy(b, f"{one}.{names['orders']}", 10)
        for topic, count in zip(names.values(), (3, 5), strict=True):
            assert Application(topic, 1, "app").write(a, count)
        rehearsal.see()
        rehearsal.carry_out(kind=Kind.FAILOVER)
        notes = rehearsal.said["prove"].notes
        assert notes["records"] == 3
        assert {each["topic"] for each in notes["lost"]} == {names["orders"]}


@pytest.mark.full
def test_a_fence_for_one_pair(topic_name: str, tmp_path: Path) -> None:
    """A principal that may write to the topics of both pairs is kept out of those that
    move, on the cluster that is left, and goes on with the others; on the other cluster
    it may write to what has moved. A grant to everyone that covers both is refused.
    """
    with playground(
        ("a", "b"), root=tmp_path / "clusters", given=False, secured=True
    ) as made:
        one, two = made["a"], made["b"]
        names = {name: f"{topic_name}-{name}" for name in ("orders", "bills")}
        orders, bills = names.values()
        for cluster in (one, two):
            for topic in names.values():
                create_topic(cluster.admin_bootstrap, topic, 1)
            add_users(cluster, ["alice"])
        allow(one.admin_bootstrap, "alice", "WRITE", topic_name, pattern="PREFIXED")
        document = secured_pair_of(("NA", one), ("NB", two), "")
        with Rehearsal(
            ("NA", ""), ("NB", ""), f"{topic_name}-.*",
            clusters=document["clusters"], pairs=pairs_of(names),
            pair={"fence": "acl"}, sync_topic_acls=False, policy="identity",
        ) as rehearsal:  # fmt: skip
            here, there = (scram(each, "alice", "alice") for each in (one, two))
            assert [write(here, each) for each in names.values()] == ["", ""]
            rehearsal.copy(two.admin_bootstrap, orders, 1)
            allow(one.admin_bootstrap, "*", "WRITE", topic_name, pattern="PREFIXED")
            with pytest.raises(MirrorError, match=f"lets everyone write to {bills}"):
                rehearsal.carry_out()
            revoke(one.admin_bootstrap, "*", "WRITE", topic_name, pattern="PREFIXED")
            rehearsal.carry_out()
            denied = "TOPIC_AUTHORIZATION_FAILED"
            assert [write(here, each) for each in names.values()] == [denied, ""]
            assert [write(there, each) for each in names.values()] == ["", denied]


@pytest.mark.full
@pytest.mark.parametrize("policy", ["default", "identity"])
def test_one_application_moves_alone(
    clusters: dict[str, PlaygroundCluster],
    topic_name: str,
    tmp_path: Path,
    policy: str,
) -> None:
    """The pair `orders` goes there and back under load while the other application goes
    on: it writes, is copied and is read while producers of `orders` are stopped, and is
    never moved; its copies pause for seconds at most. Over both clusters each group
    reads every record once, and each copy has each once. At last a producer and a
    group of both applications are refused.
    """
    one, two = f"S{policy}A", f"S{policy}B"
    ends = {one: clusters["a"].bootstrap, two: clusters["b"].bootstrap}
    names = {"orders": f"{topic_name}-orders", "bills": f"{topic_name}-bills"}
    for topic in names.values():
        for bootstrap in ends.values():
            create_topic(bootstrap, topic, 2)
    orders, bills = (Application(t, 2, f"app-{t}") for t in names.values())
    document = scoped((one, ends[one]), (two, ends[two]), names)
    document["defaults"]["policy"] = policy

    def topics_of(application: Application, other: str) -> list[str]:
        copies = [f"{other}.{application.topic}"] if policy == "default" else []
        return [application.topic, *copies]

    def copies_of_bills() -> Counter[bytes]:
        return copied(ends[two], topics_of(bills, one)[-1])

    def more_copies() -> None:
        """Wait until what the producer of bills writes now is copied."""
        last = bills.written[-1:]
        wait_for(lambda: bills.written[-1:] != last)
        last = bills.written[-1:]
        wait_for(lambda: last[0] in copies_of_bills())

    with RunningMirror(document, tmp_path) as mirror:
        for flow in (f"{one}->{two}", f"{two}->{one}"):
            mirror.wait_running(flow)
        active, other = one, two
        for _ in range(2):
            orders.write(ends[active], 100)
            orders.consume(ends[active], topics_of(orders, other), most=60)
            with (
                bills.writing(ends[one]),
                orders.writing(ends[active]) as stop,
                Arrivals(ends[two], topics_of(bills, one)[-1]) as arrivals,
            ):
                words = ("switch", f"{active}/{other}/orders", "--yes")
                switch = Switch(tmp_path, *words)
                switch.wait_for("fence: waiting")
                said = Switch(tmp_path, "switch", f"{one}/{two}/bills", "--yes").fails()
                assert f"switch {active}->{other}/orders" in said
                assert "is open, at step fence" in said
                # While orders are stopped:
                bills.consume(ends[one], topics_of(bills, two), most=10)
                more_copies()
                stop.set()
                switch.succeeds()
                more_copies()
            # On the way home step 7 fences the flow that copies bills as well.
            print(f"{policy}, {active}->{other}: {arrivals.longest:.2f} s")
            assert arrivals.longest < _PAUSE_SECONDS * crowd()
            active, other = other, active
            orders.write(ends[active], 50)
            orders.consume(ends[active], topics_of(orders, other))
            orders.require_each_once()
            bills.consume(ends[one], topics_of(bills, two))
            bills.require_each_once()
            wait_for(lambda: copies_of_bills() == Counter(bills.written))
            shown = json.loads(command(tmp_path, "pair", "-o", "json"))["pairs"]
            assert {each["name"]: each["active"] for each in shown} == {
                f"{one}<->{two}/orders": active,
                f"{one}<->{two}/bills": one,
            }
            where = f"{mirror.url}/active/{two}<->{one}/orders/{active}"
            wait_for(lambda of=where: answers(of) == 200)
        write_both(ends[one], list(names.values()), f"both-{topic_name}")
        said = Switch(tmp_path, "switch", f"{one}/{two}/bills", "--dry-run").fails()
        for name in (f"producer both-{topic_name}", f"group app-{names['orders']}-x"):
            assert name in said
        assert "internal topics of a Streams application" in said


def _same(ends: dict[str, str], application: Application) -> bool:
    """Whether both clusters have what it wrote and does not count as lost, and nothing
    else, each record with the same offset, content and time.
    """
    here, there = (log_of(bootstrap, application.topic) for bootstrap in ends.values())
    found = Counter(key for records in here.values() for _, key, *_ in records)
    wanted = Counter(k for k in application.written if k not in application.lost)
    return here == there and found == wanted


def _prove(folder: Path, *flows: str) -> None:
    """A proof of these flows finds nothing."""
    for flow in flows:
        proof = answered("verify", "--flow", flow, "-c", folder / "mirror.yaml")
        assert proof.returncode == 0, proof.stdout + proof.stderr


@pytest.mark.full
def test_a_named_pair_keeps_its_offsets(
    clusters: dict[str, PlaygroundCluster], topic_name: str, tmp_path: Path
) -> None:
    """With `offsets: same` the pair `orders` goes there, is written, and comes back
    while the other application stays and writes: each record of both has one offset on
    both clusters, each group reads every record once, and proofs find nothing.
    """
    one, two = "SAMEA", "SAMEB"
    ends = {one: clusters["a"].bootstrap, two: clusters["b"].bootstrap}
    names = {"orders": f"{topic_name}-orders", "bills": f"{topic_name}-bills"}
    for topic in names.values():
        for bootstrap in ends.values():
            create_topic(bootstrap, topic, 3)
    orders, bills = (Application(t, 3, f"app-{t}") for t in names.values())
    document = scoped((one, ends[one]), (two, ends[two]), names)
    document["defaults"] |= {"policy": "identity", "offsets": "same"}
    with RunningMirror(document, tmp_path) as mirror:
        for flow in (f"{one}->{two}", f"{two}->{one}"):
            mirror.wait_running(flow)
        active, other = one, two
        for _ in range(2):
            orders.write(ends[active], 200)
            orders.consume(ends[active], [orders.topic], most=120)
            with bills.writing(ends[one]), orders.writing(ends[active]) as stop:
                words = ("switch", f"{active}/{other}/orders", "--yes")
                switch = Switch(tmp_path, *words)
                switch.wait_for("fence: waiting")
                stop.set()
                switch.succeeds()
            active, other = other, active
            orders.write(ends[active], 90)
            orders.consume(ends[active], [orders.topic])
            bills.consume(ends[one], [bills.topic])
            for application in (orders, bills):
                application.require_each_once()
                wait_for(lambda of=application: _same(ends, of), 60, 0.5)
        _prove(tmp_path, f"{one}->{two}", f"{two}->{one}")
        assert mirror.terminate() == 0


@pytest.mark.full
def test_named_pairs_come_home_to_a_rebuilt_cluster(
    clusters: dict[str, PlaygroundCluster],
    make_clusters: Callable[..., dict[str, PlaygroundCluster]],
    topic_name: str,
    tmp_path: Path,
) -> None:
    """A cluster is lost, with a tail, and comes back empty with another id. Without
    --restore a failback of a pair with `offsets: same` is refused; with it each pair
    goes home alone: the new cluster has all that the other one has, with its offsets,
    and so it stays when the applications write there.
    """
    one, two = "LOSTA", "LOSTB"
    gone = make_clusters("gone")["gone"]
    ends = {one: gone.bootstrap, two: clusters["b"].bootstrap}
    names = {"orders": f"{topic_name}-orders", "bills": f"{topic_name}-bills"}
    for topic in names.values():
        for bootstrap in ends.values():
            create_topic(bootstrap, topic, 3)
    both = {name: Application(t, 3, f"app-{t}") for name, t in names.items()}
    document = scoped((one, ends[one]), (two, ends[two]), names)
    document["defaults"] |= {"policy": "identity", "offsets": "same"}
    out, home = f"{one}->{two}", f"{two}->{one}"
    with RunningMirror(document, tmp_path) as mirror:
        mirror.wait_running(out)
        for each in both.values():
            each.write(ends[one], 150)
            each.consume(ends[one], [each.topic], most=60)
            mirror.wait_copied(ends[one], each.topic, flow=out)
        mirror.wait_checkpoints(out)
        assert mirror.terminate() == 0
    both["orders"].write(ends[one], 30)
    both["orders"].lost = set(both["orders"].written[-30:])
    gone.kill(1)
    for name, each in both.items():
        Switch(tmp_path, "failover", f"{one}/{two}/{name}", "--yes").succeeds()
        each.write(ends[two], 100)
        each.consume(ends[two], [each.topic], most=50)

    ends[one] = make_clusters("rebuilt")["rebuilt"].bootstrap
    document["clusters"][one]["bootstrap_servers"] = ends[one]
    with RunningMirror(document, tmp_path) as mirror:
        mirror.wait_running(home)
        refused = Switch(tmp_path, "failback", f"{two}/{one}/orders", "--yes").fails()
        assert "was rebuilt" in refused
        assert "With --restore" in refused
        for name, each in both.items():
            words = ("failback", f"{two}/{one}/{name}", "--restore", "--yes")
            run = Switch(tmp_path, *words)
            said = run.succeeds()
            assert "with their offsets" in "".join(run.said) + said
            each.write(ends[one], 80)
            each.consume(ends[one], [each.topic])
            each.require_each_once()
            for application in both.values():
                wait_for(lambda of=application: _same(ends, of), 60, 0.5)
        _prove(tmp_path, out, home)
        assert mirror.terminate() == 0
