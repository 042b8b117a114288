"""The journal of a pair under real brokers: each entry once, whatever answer is lost,
and none from an operator that another one has replaced.
"""

from __future__ import annotations

from dataclasses import replace
import functools
import threading
import time
from typing import TYPE_CHECKING, Any

import pytest

from mirror.clusters.transactions import Producer
from mirror.errors import ClusterError, FencedError, UnreachableError
from mirror.pairs import journal
from mirror.pairs.journal import Entry, JournalReader, JournalWriter, Kind, StepState
from mirror.records import records
from mirror.records.writing import write
from tests.harness.admin import delete_records, end_offsets
from tests.harness.connections import connected
from tests.harness.cut_off import leader_of
from tests.harness.load import producer
from tests.harness.mishaps import Mishap, Rule
from tests.harness.proxy import BrokerProxy
from tests.harness.waiting import PATIENCE_SECONDS, crowd, wait_for

if TYPE_CHECKING:
    from collections.abc import Callable

    from mirror.clusters.cluster import Cluster
    from mirror.playground.cluster import PlaygroundCluster

pytestmark = pytest.mark.integration


def entry(pair: str, number: int, **details: Any) -> Entry:
    """One of a switch from JA to JB."""
    return Entry(
        pair=pair, run=f"run-{pair}", number=number, kind=Kind.SWITCH, epoch=2,
        source="JA", target="JB", step="fence", state=StepState.BEGUN,
        at=time.time(), by="test", details=details,
    )  # fmt: skip


def numbers(cluster: Cluster, pair: str) -> list[int]:
    """Of the entries of a pair, in the order of the log."""
    found = JournalReader(cluster).read()
    return [each.number for each in found if each.pair == pair]


def test_what_stands_before_a_damaged_record(
    make_clusters: Callable[..., Any], topic_name: str
) -> None:
    """A record that is no entry is refused at each look, and never skipped. Once it is
    deleted with what stands before it, a reader that saw it has what follows, and no
    entry from before, let alone twice.
    """
    pair = f"{topic_name}<->B"
    bootstrap = make_clusters("b")["b"].bootstrap
    with connected(bootstrap) as cluster:
        writer = JournalWriter(cluster, pair)
        writer.write(entry(pair, 0))
        client = producer(bootstrap)
        client.produce(journal.TOPIC, key=pair, value=b"{}", partition=0)
        assert client.flush(30) == 0
        reader = JournalReader(cluster)
        for _ in range(3):
            with pytest.raises(ClusterError, match="a record is damaged"):
                reader.read(wait=False)
        delete_records(
            bootstrap, journal.TOPIC, end_offsets(bootstrap, journal.TOPIC)[0]
        )
        writer.write(entry(pair, 1))
        assert [each.number for each in reader.read()] == [1]


LOST = (
    (Rule(api="Produce", mishap=Mishap.LOST),),
    (Rule(api="Produce", mishap=Mishap.ANSWER_LOST),),
    (Rule(api="EndTxn", mishap=Mishap.LOST),),
    (Rule(api="EndTxn", mishap=Mishap.ANSWER_LOST),),
    (Rule(api="EndTxn", mishap=Mishap.REFUSED, code=15, times=3),),
    (Rule(api="Fetch", mishap=Mishap.ANSWER_LOST),),
    (
        Rule(api="EndTxn", mishap=Mishap.LOST),
        Rule(api="InitProducerId", mishap=Mishap.ANSWER_LOST, times=2),
    ),
    (
        Rule(api="EndTxn", mishap=Mishap.ANSWER_LOST),
        Rule(api="InitProducerId", mishap=Mishap.ANSWER_LOST),
        Rule(api="DescribeTransactions", mishap=Mishap.ANSWER_LOST),
    ),
)


@pytest.mark.parametrize("newest", [None, {}], ids=["v2", "v1"])
def test_lost_answers(
    clusters: dict[str, PlaygroundCluster],
    topic_name: str,
    newest: dict[str, int] | None,
) -> None:
    """Whichever request or answer of a write gets lost, the entry is written once, and
    so are the next ones, by the same operator.
    """
    pair = f"{topic_name}<->B"
    with (
        BrokerProxy(clusters["b"].bootstrap, newest=newest) as proxy,
        connected(proxy.bootstrap) as cluster,
    ):
        writer = JournalWriter(cluster, pair)
        for number, lost in enumerate(LOST):
            rules = [replace(rule) for rule in lost]
            with proxy.rules(*rules):
                writer.write(entry(pair, 2 * number))
            assert all(rule.hits for rule in rules), f"{number}: nothing was lost"
            writer.write(entry(pair, 2 * number + 1))
        assert numbers(cluster, pair) == list(range(2 * len(LOST)))


def test_a_leader_is_asked_for_once(
    clusters: dict[str, PlaygroundCluster],
    topic_name: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A note asks the cluster for nothing that the last one has found out: producers
    may be blocked meanwhile.
    """
    pair = f"{topic_name}<->B"
    with connected(clusters["b"].bootstrap) as cluster:
        writer = JournalWriter(cluster, pair)
        writer.write(entry(pair, 0))
        with monkeypatch.context() as patched:
            patched.setattr(cluster, "topics", lambda *_: pytest.fail("asked again"))
            writer.write(entry(pair, 1))
            writer.write(entry(pair, 2))
        assert numbers(cluster, pair) == [0, 1, 2]


@pytest.mark.parametrize("newest", [None, {}], ids=["v2", "v1"])
@pytest.mark.parametrize("api", ["Produce", "EndTxn"])
@pytest.mark.parametrize("later", ["has taken over", "is writing", "has written"])
def test_no_return_after_a_later_operator(
    clusters: dict[str, PlaygroundCluster],
    topic_name: str,
    newest: dict[str, int] | None,
    later: str,
    api: str,
) -> None:
    """An operator that lost its cluster in the middle of a write, and finds it again
    after another one took over, is fenced: its entry is not written, and it does not
    fence the later one, whatever that is doing.
    """
    pair = f"{topic_name}<->B"
    bootstrap = clusters["b"].bootstrap
    failures: list[Exception] = []

    def try_to_write(writer: JournalWriter) -> None:
        try:
            writer.write(entry(pair, 1), seconds=60)
        except FencedError as error:
            failures.append(error)

    with (
        BrokerProxy(bootstrap, newest=newest) as proxy,
        BrokerProxy(bootstrap, newest=newest) as other,
        connected(proxy.bootstrap) as mine,
        connected(other.bootstrap) as its,
    ):
        first = JournalWriter(mine, pair)
        first.write(entry(pair, 0))
        gone = Rule(api=api, mishap=Mishap.LOST, times=None)
        away = Rule(api="FindCoordinator", mishap=Mishap.LOST, times=None)
        thread = threading.Thread(target=try_to_write, args=(first,))
        with proxy.rules(gone, away):
            thread.start()
            wait_for(lambda: away.hits > 1)
            second = JournalWriter(its, pair)
            assert numbers(its, pair) == [0], "what was not committed is gone"
            if later == "has written":
                second.write(entry(pair, 1, by="second"))
            if later == "is writing":
                batch = records.encode([entry(pair, 1, by="second").record()])
                write(its, {journal.TOPIC: [batch]}, second._producer)
        thread.join(PATIENCE_SECONDS * crowd())
        assert "took over" in str(failures[0])
        if later == "is writing":
            second._producer.commit()
        if later == "has taken over":
            second.write(entry(pair, 1, by="second"))
        second.write(entry(pair, 2))
        assert numbers(its, pair) == [0, 1, 2]
        by = [each.details for each in second.entries() if each.pair == pair]
        assert by[1] == {"by": "second"}


@pytest.mark.parametrize("patience", [0.0, 120.0], ids=["at once", "patient"])
def test_a_leader_that_has_just_died(
    clusters: dict[str, PlaygroundCluster], topic_name: str, patience: float
) -> None:
    """While brokers still name a leader that is gone, a reader with patience waits for
    the next one; one without fails, and says what it could not read.
    """
    pair = f"{topic_name}<->B"
    with (
        BrokerProxy(clusters["b"].bootstrap) as proxy,
        connected(proxy.bootstrap) as cluster,
    ):
        JournalWriter(cluster, pair).write(entry(pair, 0))
        away = Rule(api="ListOffsets", mishap=Mishap.LOST, times=6)
        moved = Rule(api="Fetch", mishap=Mishap.LOST)
        reader = JournalReader(cluster)
        with proxy.rules(away, moved):
            if not patience:
                with pytest.raises(UnreachableError, match=r"journal.* cannot be read"):
                    reader.read(wait=False, seconds=patience)
                return
            found = reader.read(wait=False, seconds=patience)
        assert away.hits == 6
        assert moved.hits == 1
        assert pair in {each.pair for each in found}


def test_large_entries(clusters: dict[str, PlaygroundCluster], topic_name: str) -> None:
    """What steps note may take megabytes; what the topic would refuse is refused with
    its size before anything is sent, and the next entry can be written.
    """
    pair = f"{topic_name}<->B"
    with connected(clusters["b"].bootstrap) as cluster:
        writer = JournalWriter(cluster, pair)
        writer.write(entry(pair, 0, large="x" * (5 << 20)))
        with pytest.raises(ClusterError, match=r"step fence notes takes 1\d{7} bytes"):
            writer.write(entry(pair, 1, large="x" * (17 << 20)))
        writer.write(entry(pair, 1))
        assert numbers(cluster, pair) == [0, 1]


def _answers(cluster: Cluster, node: int) -> bool:
    return node in cluster.views([journal.TOPIC]).answers


@pytest.mark.full
def test_brokers_die(make_clusters: Callable[..., Any], topic_name: str) -> None:
    """SIGKILL of the coordinator, and of the journal's leader, between and within
    writes: the writer waits for the next one, and each entry is there once.
    """
    pair = f"{topic_name}<->B"
    brokers = make_clusters("b", nodes=3)["b"]
    with connected(brokers.bootstrap) as cluster:
        writer = JournalWriter(cluster, pair)
        writer.write(entry(pair, 0))
        written = 1
        for which in ("coordinator", "leader"):
            victim = (
                cluster.transaction_coordinator(journal.transactional_id(pair))
                if which == "coordinator"
                else leader_of(brokers.bootstrap, journal.TOPIC, 0)
            )
            threading.Timer(0.2, brokers.kill, args=(victim,)).start()
            until = time.monotonic() + 5
            while time.monotonic() < until:
                writer.write(entry(pair, written))
                written += 1
            brokers.start(victim)
            wait_for(functools.partial(_answers, cluster, victim), 60)
        assert numbers(cluster, pair) == list(range(written))


@pytest.mark.parametrize(
    "forgotten", [False, pytest.param(True, marks=pytest.mark.full)]
)
def test_a_transaction_that_was_left_open(
    make_clusters: Callable[..., Any], topic_name: str, forgotten: bool
) -> None:
    """Brokers leave an operator's transaction open in the journal if its leader was
    away when it was committed. The next operator ends it the way it ended, and everyone
    can read on. If one that took over in between has died, no one knows how it ended:
    it is aborted, as its writer waits until it is shown, and has not gone on.
    """
    pair = f"{topic_name}<->B"
    brokers = make_clusters("b", nodes=3, settings={"default.replication.factor": "1"})[
        "b"
    ]
    with connected(brokers.bootstrap) as cluster:
        journal.create(cluster)
        wait_for(lambda: leader_of(brokers.bootstrap, journal.TOPIC, 0) != -1, 60)
        victim = leader_of(brokers.bootstrap, journal.TOPIC, 0)
        pairs = (f"{pair}{number}" for number in range(100))
        name = next(
            each
            for each in pairs
            if cluster.transaction_coordinator(journal.transactional_id(each)) != victim
        )
        writer = JournalWriter(cluster, name)
        writer.write(entry(name, 0))
        batch = records.encode([entry(name, 1).record()])
        write(cluster, {journal.TOPIC: [batch]}, writer._producer)
        brokers.kill(victim)
        wait_for(lambda: leader_of(brokers.bootstrap, journal.TOPIC, 0) == -1, 60)
        writer._producer.commit()
        brokers.start(victim)
        wait_for(lambda: leader_of(brokers.bootstrap, journal.TOPIC, 0) == victim, 60)
    with connected(brokers.bootstrap) as cluster:
        short = JournalReader(cluster).read(wait=False)
        assert [each.number for each in short] == [0], "it was not left open"
        if forgotten:
            Producer(
                cluster,
                transactional_id=journal.transactional_id(name),
                transaction_timeout_ms=60_000,
            ).take_over()
        writer = JournalWriter(cluster, name)
        there = [0] if forgotten else [0, 1]
        assert numbers(cluster, name) == there
        writer.write(entry(name, 2))
        assert numbers(cluster, name) == [*there, 2]
