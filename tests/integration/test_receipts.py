"""Receipts: a record with one is on the target, whatever happens to the source."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing, contextmanager
from http import HTTPStatus
import itertools
import json
import shlex
import signal
import subprocess
import threading
import time
from typing import TYPE_CHECKING, Any
import urllib.error
from urllib.parse import quote
import urllib.request

from confluent_kafka import (
    IsolationLevel,
    Producer,
    TopicCollection,
    TopicPartition,
)
from confluent_kafka.admin import AdminClient, OffsetSpec
import pytest

from mirror.client import MirrorClient
from mirror.clusters.topics import short_id, topic_id_of
from mirror.errors import ReceiptError
from mirror.observing import receipts
from mirror.observing.receipts import ReceiptDesk
from mirror.observing.server import StatusServer
from mirror.playground.brokers import playground
from mirror.status.store import StatusStore
from tests.harness.admin import alter_topic, create_topic, delete_topic
from tests.harness.cases import cases
from tests.harness.pages import ROOT, blocks
from tests.harness.service import RunningMirror
from tests.harness.slot_processes import Point, SignalAt, SlotProcess
from tests.harness.slots import RunningLease, SparklessFlow
from tests.harness.switching import Switch, pair_of
from tests.harness.waiting import crowd, deadline_in, wait_for
from tests.harness.witness import read_topic

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping
    from pathlib import Path

    from mirror.playground.cluster import PlaygroundCluster

pytestmark = pytest.mark.integration

Answer = tuple[int, dict[str, Any]]
_WAIT = 20


@pytest.fixture(scope="module")
def three(tmp_path_factory: pytest.TempPathFactory) -> Iterator[PlaygroundCluster]:
    """A target of three brokers: two of them have what is acknowledged."""
    root = tmp_path_factory.mktemp("three")
    with playground(("b",), root=root, given=False, nodes=3) as made:
        yield made["b"]


@pytest.fixture
def flow(
    clusters: dict[str, PlaygroundCluster], three: PlaygroundCluster, topic_name: str
) -> SparklessFlow:
    source = clusters["a"].bootstrap
    create_topic(source, topic_name, 1)
    return SparklessFlow(source=source, target=three.bootstrap, topic=topic_name)


class Asker:
    """Asks a service's port for receipts of one flow."""

    def __init__(self, url: str, flow: str) -> None:
        self.url, self._flow = url, flow

    def __call__(
        self, topic: str, offset: int | str, *, partition: int | str = 0, **query: Any
    ) -> Answer:
        path = f"/copied/{quote(self._flow)}/{topic}/{partition}/{offset}"
        asked = "&".join(f"{name}={quote(str(v))}" for name, v in query.items())
        try:
            with urllib.request.urlopen(
                f"{self.url}{path}?{asked}", timeout=2 * _WAIT * crowd()
            ) as answer:
                return answer.status, json.load(answer)
        except urllib.error.HTTPError as refused:
            with refused:
                return refused.code, json.load(refused)


@contextmanager
def served(flow: SparklessFlow) -> Iterator[Asker]:
    """The port of a service with this flow; nothing copies."""
    config = flow.config()
    with (
        closing(ReceiptDesk(lambda: config)) as desk,
        StatusServer(StatusStore((flow.name,)), "127.0.0.1", 0, receipts=desk) as port,
    ):
        yield Asker(port.url, flow.name)


@contextmanager
def copying(flow: SparklessFlow, *, settled: bool = False) -> Iterator[None]:
    """A slot copies meanwhile."""
    if not settled:
        flow.own()
    with flow.slot() as slot:
        lease = RunningLease(slot, flow.lease(600))
        try:
            yield
        finally:
            lease.end()


def send(bootstrap: str, topic: str, *values: bytes, **settings: Any) -> list[int]:
    """Write records, and return their offsets once they are acknowledged."""
    offsets: list[int] = []
    producer = Producer({"bootstrap.servers": bootstrap, "linger.ms": 0, **settings})
    for value in values:
        producer.produce(
            topic,
            value,
            partition=0,
            on_delivery=lambda _, m: offsets.append(m.offset()),
        )
    assert producer.flush(30) == 0
    return offsets


class Seen:
    """Where committed records of partition 0 end now, by an ordinary client."""

    def __init__(self, bootstrap: str, topic: str) -> None:
        self._admin = AdminClient({"bootstrap.servers": bootstrap})
        self._place = TopicPartition(topic, 0)

    def end(self) -> int:
        asked = self._admin.list_offsets(
            {self._place: OffsetSpec.latest()},
            isolation_level=IsolationLevel.READ_COMMITTED,
        )
        return int(asked[self._place].result().offset)


def values(bootstrap: str, topic: str) -> dict[int, bytes]:
    """What a consumer of committed records finds in partition 0, by offset."""
    return {
        message.offset(): message.value()
        for message in read_topic(bootstrap, topic).get(0, ())
    }


def topic_id(bootstrap: str, topic: str) -> str:
    admin = AdminClient({"bootstrap.servers": bootstrap})
    (found,) = admin.describe_topics(TopicCollection([topic])).values()
    return short_id(topic_id_of(str(found.result().topic_id)))


def test_answers(flow: SparklessFlow) -> None:
    """200 with the copy's place once a record is committed there, 202 before; 404 for
    what does not exist, 400 for what is no question.
    """
    source, topic = str(flow.source), flow.topic
    with served(flow) as ask:
        assert ask(topic, 0)[0] == HTTPStatus.SERVICE_UNAVAILABLE  # it has never run
        with copying(flow):
            assert ask(topic, 0) == (HTTPStatus.ACCEPTED, {"copied": False})
            began = time.monotonic()
            assert ask(topic, 0, wait=0.5)[0] == HTTPStatus.ACCEPTED
            assert time.monotonic() - began >= 0.5
            offsets = send(source, topic, b"one", b"two")
            for offset, value in zip(offsets, (b"one", b"two"), strict=True):
                status, told = ask(topic, offset, wait=_WAIT)
                assert (status, told["copied"]) == (HTTPStatus.OK, True)
                assert told["target_topic"] == flow.copy
                assert told["topic_id"] == topic_id(source, topic)
                found = values(str(flow.target), flow.copy)
                assert found[told["target_offset"]] == value
            right, wrong = told["topic_id"], "AAAAAAAAAAAAAAAAAAAAAQ"
            assert ask(topic, offset, topic_id=right)[0] == HTTPStatus.OK
            assert ask(topic, offset, topic_id=wrong, wait=1)[0] == HTTPStatus.ACCEPTED
        assert ask(topic, 0)[0] == HTTPStatus.OK  # nothing copies any more
        assert ask(topic, 0, partition=1)[0] == HTTPStatus.NOT_FOUND
        assert ask("other", 0)[0] == HTTPStatus.NOT_FOUND
        for bad in (
            {"partition": "x"},
            {"wait": "61"},
            {"wait": "x"},
            {"topic_id": "x"},
        ):
            status, told = ask(topic, 0, **bad)
            assert status == HTTPStatus.BAD_REQUEST, told
        assert ask(topic, -1)[0] == HTTPStatus.BAD_REQUEST


def test_no_such_flow(flow: SparklessFlow) -> None:
    """A flow that does not exist is 404, with those that do; so is a path too short."""
    with served(flow) as ask:
        ask._flow = "A->X"
        status, told = ask(flow.topic, 0)
        assert status == HTTPStatus.NOT_FOUND
        assert flow.name in told["error"]
        ask._flow = "A"
        assert ask("x", "y")[0] in {HTTPStatus.NOT_FOUND, HTTPStatus.BAD_REQUEST}


def test_what_is_not_copied_gets_none(flow: SparklessFlow) -> None:
    """410 for an offset that the flow has passed without a record of it in the copy: a
    marker, an aborted record, and one that came through the target.
    """
    source, topic = str(flow.source), flow.topic
    with served(flow) as ask, copying(flow):
        client = Producer(
            {"bootstrap.servers": source, "transactional.id": f"t-{topic}"}
        )
        client.init_transactions(30)
        for ends in (client.abort_transaction, client.commit_transaction):
            client.begin_transaction()
            client.produce(topic, b"x", partition=0)
            client.flush(30)
            ends(30)
        # 0 is aborted, 1 and 3 are markers
        assert ask(topic, 2, wait=_WAIT)[0] == HTTPStatus.OK
        for offset in (0, 1):
            status, told = ask(topic, offset, wait=_WAIT)
            assert status == HTTPStatus.GONE
            assert "passed this offset" in told["error"]
        assert ask(topic, 3, wait=_WAIT)[0] == HTTPStatus.GONE


@pytest.mark.parametrize("unsafe", ["copy", "progress"])
def test_refused_with_one_replica_in_sync(flow: SparklessFlow, unsafe: str) -> None:
    """409, with the topic and the setting, while one broker's acknowledgement counts;
    200 after that is corrected.
    """
    source, topic, target = str(flow.source), flow.topic, str(flow.target)
    name = flow.copy if unsafe == "copy" else flow.progress
    with served(flow) as ask, copying(flow):
        (offset,) = send(source, topic, b"x")
        if unsafe == "copy":
            assert ask(topic, offset, wait=_WAIT)[0] == HTTPStatus.OK
            alter_topic(target, name, min_insync_replicas="1")
            wait_for(lambda: ask(topic, offset)[0] == HTTPStatus.CONFLICT)
        else:
            alter_topic(target, name, min_insync_replicas="1")
        status, told = ask(topic, offset, wait=_WAIT)
        assert status == HTTPStatus.CONFLICT
        assert f"{name} has min.insync.replicas=1" in told["error"]
        alter_topic(target, name, min_insync_replicas="2")
        wait_for(lambda: ask(topic, offset, wait=1)[0] == HTTPStatus.OK)


def test_refused_with_one_replica(
    clusters: dict[str, PlaygroundCluster], topic_name: str
) -> None:
    """409 also where the target has one broker, whatever its topics say."""
    ends = clusters["a"].bootstrap, clusters["b"].bootstrap
    create_topic(ends[0], topic_name, 1)
    flow = SparklessFlow(source=ends[0], target=ends[1], topic=topic_name)
    with served(flow) as ask, copying(flow):
        status, told = ask(topic_name, 0, wait=_WAIT)
        assert status == HTTPStatus.CONFLICT
        assert "has replication factor 1" in told["error"]


@pytest.mark.parametrize("exactly_once", [True, False], ids=["eos", "alo"])
def test_never_before_consumers_see_it(flow: SparklessFlow, exactly_once: bool) -> None:
    """At the moment of each of 400 receipts, of as many askers at once, committed
    records of the copy reach beyond its place, and there it stands.
    """
    flow.settings = {"exactly_once": exactly_once}
    source, topic, target = str(flow.source), flow.topic, str(flow.target)
    count, askers = 400, 8
    given: dict[int, tuple[bytes, int]] = {}
    with ExitStack() as stack:
        ask = stack.enter_context(served(flow))
        stack.enter_context(copying(flow))
        workers = stack.enter_context(ThreadPoolExecutor(askers))

        def one(number: int) -> None:
            producer = Producer({"bootstrap.servers": source, "linger.ms": 0})
            seen = Seen(target, flow.copy)
            for turn in range(count // askers):
                value = b"%d-%d" % (number, turn)
                (offset,) = _send_one(producer, topic, value)
                status, told = ask(topic, offset, wait=_WAIT)
                end = seen.end()
                assert status == HTTPStatus.OK, told
                assert told["target_offset"] < end
                given[offset] = value, told["target_offset"]

        list(workers.map(one, range(askers)))
    found = values(target, flow.copy)
    assert len(given) == count
    assert all(found[place] == value for value, place in given.values())


def _send_one(producer: Producer, topic: str, value: bytes) -> list[int]:
    offsets: list[int] = []
    producer.produce(
        topic, value, partition=0, on_delivery=lambda _, m: offsets.append(m.offset())
    )
    assert producer.flush(30) == 0
    return offsets


@pytest.mark.parametrize(
    "point",
    cases((Point.BEFORE_WRITE, Point.AFTER_WRITE), some=(Point.AFTER_WRITE,)),
    ids=lambda point: point.name.lower(),
)
def test_a_replaced_slot_gives_none(
    flow: SparklessFlow, start_slot: Callable[..., SlotProcess], point: Point
) -> None:
    """While a slot sleeps with what it wrote and did not commit, there is no receipt;
    nor once it is fenced, until its successor has committed the record.
    """
    source, topic = str(flow.source), flow.topic
    with served(flow) as ask:
        flow.own()
        assert ask(topic, 0, wait=1)[0] == HTTPStatus.ACCEPTED
        (offset,) = send(source, topic, b"x")
        sleeper = start_slot(
            flow,
            lease_seconds=60,
            signal_at=SignalAt(point=point, number=signal.SIGSTOP),
        )
        wait_for(lambda: sleeper.suspended)
        assert ask(topic, offset, wait=2)[0] == HTTPStatus.ACCEPTED
        flow.own()
        assert ask(topic, offset, wait=2)[0] == HTTPStatus.ACCEPTED
        sleeper.resume()
        assert sleeper.how_it_ended() in {"superseded", "fenced"}
        assert ask(topic, offset, wait=2)[0] == HTTPStatus.ACCEPTED
        with copying(flow, settled=True):
            status, told = ask(topic, offset, wait=_WAIT)
            assert status == HTTPStatus.OK
        assert values(str(flow.target), flow.copy)[told["target_offset"]] == b"x"


def test_a_copy_that_was_deleted(flow: SparklessFlow) -> None:
    """What a deleted copy had gets no receipt, before and after it is made again."""
    source, topic, target = str(flow.source), flow.topic, str(flow.target)
    with served(flow) as ask:
        with copying(flow):
            send(source, topic, b"x", b"y")
            assert ask(topic, 1, wait=_WAIT)[0] == HTTPStatus.OK
        delete_topic(target, flow.copy)
        assert ask(topic, 1, wait=2)[0] == HTTPStatus.ACCEPTED
        with copying(flow):
            (offset,) = send(source, topic, b"z")
            status, told = ask(topic, offset, wait=_WAIT)
            assert status == HTTPStatus.OK
            assert values(target, flow.copy)[told["target_offset"]] == b"z"
            assert ask(topic, 0)[0] != HTTPStatus.OK


def test_a_topic_that_was_made_again(flow: SparklessFlow) -> None:
    """With the id of its topic, a record never gets the receipt of one that had its
    offset in the deleted topic.
    """
    flow.settings = {"on_recreated_topic": "continue"}
    source, topic, target = str(flow.source), flow.topic, str(flow.target)
    with served(flow) as ask:
        with copying(flow):
            send(source, topic, b"old 0", b"old 1")
            assert ask(topic, 1, wait=_WAIT)[0] == HTTPStatus.OK
        delete_topic(source, topic)
        create_topic(source, topic, 1)
        (offset,) = send(source, topic, b"new 0")
        which = topic_id(source, topic)
        assert ask(topic, offset, topic_id=which, wait=2)[0] == HTTPStatus.ACCEPTED
        with copying(flow):
            status, told = ask(topic, offset, topic_id=which, wait=_WAIT)
        assert (status, told["topic_id"]) == (HTTPStatus.OK, which)
        assert values(target, flow.copy)[told["target_offset"]] == b"new 0"


def test_same_offsets(flow: SparklessFlow) -> None:
    """A copy with the source's offsets gives receipts, too."""
    flow.settings = {"policy": "identity", "offsets": "same"}
    source, topic = str(flow.source), flow.topic
    with served(flow) as ask, copying(flow):
        (offset,) = send(source, topic, b"x")
        status, told = ask(topic, offset, wait=_WAIT)
        assert (status, told["target_offset"]) == (HTTPStatus.OK, offset)
    assert values(str(flow.target), topic)[offset] == b"x"


def test_too_many_wait(flow: SparklessFlow, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of five more than may wait at once, five get 503, and there are places again once
    others have left; those who wait take no thread.
    """
    most, more, workers = 60, 5, 9
    monkeypatch.setattr(receipts, "MOST_WAITING", most)
    with served(flow) as ask, copying(flow):
        ask(flow.topic, 0, wait=1)
        before = threading.active_count()
        with ThreadPoolExecutor(most + more) as clients:
            asked = [
                clients.submit(ask, flow.topic, 0, wait=_WAIT)
                for _ in range(most + more)
            ]
            wait_for(lambda: sum(each.done() for each in asked) == more, _WAIT)
            refused = [each.result() for each in asked if each.done()]
            assert threading.active_count() <= before + len(asked) + workers
            send(str(flow.source), flow.topic, b"x")
            answers = [each.result()[0] for each in asked]
        assert {status for status, _ in refused} == {HTTPStatus.SERVICE_UNAVAILABLE}
        assert f"{most} receipts are waited for" in refused[0][1]["error"]
        assert answers.count(HTTPStatus.OK) == most
        assert ask(flow.topic, 0)[0] == HTTPStatus.OK


def test_the_client(flow: SparklessFlow) -> None:
    """`wait_copied` answers from the target alone, to many threads at once, and raises
    where there is no receipt.
    """
    source, topic = str(flow.source), flow.topic
    with MirrorClient({"bootstrap_servers": flow.target}) as client, copying(flow):

        def wait(offset: int, timeout: float = _WAIT) -> bool:
            return client.wait_copied(topic, 0, offset, timeout, source=flow.alias)

        assert not wait(0, 0)
        assert not wait(0, 0.5)
        with ThreadPoolExecutor(50) as threads:
            waiting = [threads.submit(wait, number) for number in range(50)]
            send(source, topic, *(b"%d" % number for number in range(50)))
            assert all(each.result() for each in waiting)
        assert wait(49, 0)
        alter_topic(str(flow.target), flow.copy, min_insync_replicas="1")
        with (
            MirrorClient({"bootstrap_servers": flow.target}) as other,
            pytest.raises(ReceiptError, match=r"min\.insync\.replicas=1"),
        ):
            other.wait_copied(topic, 0, 0, source=flow.alias)


def test_the_samples_of_the_page(flow: SparklessFlow) -> None:
    """The page's Python sample and its line with curl do what it says."""
    page = ROOT / "docs" / "howto" / "receipts.md"
    (sample,) = (block.text for block in blocks(page, "python"))
    for written, ours in {
        "kafka-a.example.com:9092": str(flow.source),
        "kafka-b.example.com:9092": str(flow.target),
        '"payments"': f'"{flow.topic}"',
        '"A"': f'"{flow.alias}"',
    }.items():
        assert written in sample
        sample = sample.replace(written, ours)
    line = next(block.text for block in blocks(page, "sh") if "curl" in block.text)
    names: dict[str, Any] = {}
    with served(flow) as ask, copying(flow):
        exec(sample, names)
        with closing(names["client"]):
            assert names["pay"](b"x") is True
        asked = line.replace("http://127.0.0.1:8083", ask.url).replace(
            "/A-%3EB/payments/3/1200", f"/{quote(flow.name)}/{flow.topic}/0/0"
        )
        done = subprocess.run(
            shlex.split(asked), capture_output=True, check=True, timeout=_WAIT
        )
    assert json.loads(done.stdout)["target_offset"] == 0


def test_a_broker_of_the_target_dies(
    clusters: dict[str, PlaygroundCluster],
    make_clusters: Callable[..., Mapping[str, PlaygroundCluster]],
    topic_name: str,
    start_slot: Callable[..., SlotProcess],
) -> None:
    """The target's brokers are killed and started one after the other, so also those
    that lead the map, the progress and the copy: each record gets its receipt, and is
    where that says.
    """
    source, target = clusters["a"].bootstrap, make_clusters("b", nodes=3)["b"]
    create_topic(source, topic_name, 1)
    flow = SparklessFlow(source=source, target=target.bootstrap, topic=topic_name)
    given: dict[bytes, int] = {}
    stop = threading.Event()
    with served(flow) as ask, ThreadPoolExecutor(2) as applications:
        start_slot(flow.own(), lease_seconds=600)

        def application(number: int) -> None:
            producer = Producer({"bootstrap.servers": source, "linger.ms": 0})
            for turn in itertools.takewhile(
                lambda _: not stop.is_set(), itertools.count()
            ):
                value = b"%d-%d" % (number, turn)
                (offset,) = _send_one(producer, topic_name, value)
                status, told = ask(topic_name, offset, wait=5)
                deadline = deadline_in(90)
                while status in {HTTPStatus.ACCEPTED, HTTPStatus.SERVICE_UNAVAILABLE}:
                    assert time.monotonic() < deadline, f"{offset}: {told}"
                    status, told = ask(topic_name, offset, wait=5)
                assert status == HTTPStatus.OK, told
                given[value] = told["target_offset"]

        running = [applications.submit(application, n) for n in range(2)]
        try:
            for node in target.nodes:
                before = len(given)
                wait_for(lambda n=before: len(given) > n + 20)
                target.kill(node)
                before = len(given)
                wait_for(lambda n=before: len(given) > n + 20)
                target.start(node)
        finally:
            stop.set()
        for each in running:
            each.result()
    found = values(target.bootstrap, flow.copy)
    assert all(found[place] == value for value, place in given.items())


@pytest.mark.parametrize("round_", cases(range(5), some=(0,)))
def test_the_source_dies(
    make_clusters: Callable[..., Mapping[str, PlaygroundCluster]],
    three: PlaygroundCluster,
    topic_name: str,
    tmp_path: Path,
    round_: int,
) -> None:
    """The source is killed while eight applications write and wait for receipts; after
    a failover each record with a receipt is on the target.
    """
    source = make_clusters("a")["a"]
    one, two = f"RA{topic_name[-6:]}", f"RB{topic_name[-6:]}"
    create_topic(source.bootstrap, topic_name, 1)
    create_topic(three.bootstrap, topic_name, 1)
    document = pair_of((one, source.bootstrap), (two, three.bootstrap), topic_name)
    given: dict[bytes, int] = {}
    stop = threading.Event()
    with RunningMirror(document, tmp_path) as mirror:
        mirror.wait_running(f"{one}->{two}")
        ask = Asker(mirror.url, f"{one}->{two}")

        def one_application(number: int) -> None:
            producer = Producer(
                {
                    "bootstrap.servers": source.bootstrap,
                    "linger.ms": 0,
                    "message.timeout.ms": 3000,
                }
            )
            turn = 0
            while not stop.is_set():
                value = b"%d-%d" % (number, turn)
                turn += 1
                offsets: list[int] = []
                producer.produce(
                    topic_name,
                    value,
                    partition=0,
                    on_delivery=lambda e, m, to=offsets: (
                        None if e else to.append(m.offset())
                    ),
                )
                producer.flush(3)
                if offsets:
                    status, told = ask(topic_name, offsets[0], wait=5)
                    if status == HTTPStatus.OK:
                        given[value] = told["target_offset"]

        with ThreadPoolExecutor(8) as applications:
            running = [applications.submit(one_application, n) for n in range(8)]
            wait_for(lambda: len(given) >= (1000 if round_ else 300) + 10 * round_)
            source.kill()
            time.sleep(1)
            stop.set()
            for each in running:
                each.result()
        Switch(tmp_path, "failover", f"{one}->{two}", "--yes").succeeds()
        found = values(three.bootstrap, f"{one}.{topic_name}")
    lost = [value for value, place in given.items() if found.get(place) != value]
    assert not lost, f"{len(lost)} of {len(given)} records with a receipt are lost"
