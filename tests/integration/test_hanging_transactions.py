"""A transaction that brokers leave open in some partitions is ended by mirror.

Brokers 4.x skip a partition that has no leader just when a transaction is committed or
aborted: there the transaction stays open for good, hides everything after it from
`read_committed`, and blocks its producer. Here the only broker of some partitions is
away at that moment, and comes back.
"""

from __future__ import annotations

import contextlib
from dataclasses import dataclass, replace
import signal
from typing import TYPE_CHECKING, Any

from confluent_kafka.admin import AdminClient, NewTopic
from kafka import KafkaAdminClient, KafkaConsumer, TopicPartition
from kafka.admin import AbortTransactionSpec
import numpy as np
import pytest

from mirror.clusters import codes, hanging
from mirror.clusters.hanging import HangingLook
from mirror.clusters.topics import NO_ID
from mirror.clusters.transactions import Producer
from mirror.copying.target import MAX_IN_FLIGHT
from mirror.errors import ClusterError, FencedError
from mirror.offsets import markers, runs
from mirror.offsets.markers import MarkerSearch
from mirror.offsets.progress import Position, encode
from mirror.playground.brokers import playground
from mirror.records import records
from mirror.records.reading import TopicReader
from mirror.records.writing import write
from mirror.service import ownership
from tests.harness.admin import create_topic, end_offsets
from tests.harness.cases import cases
from tests.harness.connections import connected
from tests.harness.cut_off import leader_of
from tests.harness.load import NumberedLoad
from tests.harness.mishaps import Mishap, Rule
from tests.harness.proxy import BrokerProxy
from tests.harness.slot_processes import Point, SignalAt, SlotProcess
from tests.harness.slots import SparklessFlow
from tests.harness.waiting import wait_for
from tests.harness.witness import Witness, assert_exactly_once, order_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from kafka.admin import TransactionDescription

    from mirror.clusters.cluster import Cluster
    from mirror.playground.cluster import PlaygroundCluster

pytestmark = pytest.mark.integration

_ASKING_SECONDS = 0.3
"""Each question takes a client of its own."""


def _create_on(bootstrap: str, topic: str, *brokers: int) -> None:
    """A topic whose partitions have a single replica each, on these brokers."""
    new = NewTopic(
        topic,
        num_partitions=len(brokers),
        replica_assignment=[[broker] for broker in brokers],
        config={"min.insync.replicas": "1"},
    )
    admin = AdminClient({"bootstrap.servers": bootstrap})
    admin.create_topics([new])[topic].result(30)
    for partition, broker in enumerate(brokers):
        wait_for(
            lambda p=partition, b=broker: leader_of(bootstrap, topic, p) == b,
            pause=_ASKING_SECONDS,
        )


def _coordinator(bootstrap: str) -> int:
    """The broker that leads the only partition of the coordinators' log."""
    with connected(bootstrap) as cluster:
        return cluster.transaction_coordinator("any")


def _admin(bootstrap: str) -> contextlib.closing[KafkaAdminClient]:
    return contextlib.closing(KafkaAdminClient(bootstrap_servers=bootstrap))


def _described(bootstrap: str, transactional_id: str) -> TransactionDescription:
    """What the coordinator says about a transactional id."""
    with _admin(bootstrap) as admin:
        (shown,) = admin.describe_transactions([transactional_id]).values()
    return shown


@dataclass(frozen=True, kw_only=True)
class Stage:
    """A slot that has written its first transaction to partitions on one broker."""

    flow: SparklessFlow
    load: NumberedLoad
    target: PlaygroundCluster
    victim: int
    """The only broker of these partitions; not the slot's coordinator."""
    missed: str
    """One of their topics."""
    slot: int = 0
    """Whose transactions matter."""

    def copied(self) -> bool:
        return order_of(self.target.bootstrap, self.flow.copy) == self.load.order

    def check(self) -> None:
        found = order_of(self.target.bootstrap, self.flow.copy)
        assert_exactly_once(found, self.load.order)

    def take_the_leader(self) -> None:
        self.target.kill(self.victim)
        wait_for(
            lambda: leader_of(self.target.bootstrap, self.missed) == -1,
            pause=_ASKING_SECONDS,
        )

    def described(self) -> TransactionDescription:
        """The slot's first transactional id, as the coordinator says."""
        name = f"mirror.{self.flow.name}.{self.slot}.0"
        return _described(self.target.bootstrap, name)

    def use_each_id(self, slot: SlotProcess) -> None:
        """One transaction after the other, as long as the slot goes on."""
        for _ in range(MAX_IN_FLIGHT):
            before = self.written(0)
            self.load.send(50, partition=0)
            wait_for(
                lambda b=before: self.written(0) > b or slot.suspended or not slot.alive
            )

    def leave_open(self, slot: SlotProcess, *, committed: bool) -> None:
        """Have the slot, made to `_stop_late`, end a transaction that its partition
        misses, and die. With `committed` it commits; else its next owner aborts.
        """
        self.use_each_id(slot)
        wait_for(lambda: slot.suspended)
        self.take_the_leader()
        if committed:
            slot.resume()
            wait_for(lambda: not slot.alive)
            wait_for(lambda: self.state() == "COMPLETE_COMMIT")
        else:
            slot.kill()

    def written(self, partition: int) -> int:
        """How far a partition of the copy reaches, committed or not."""
        where = TopicPartition(self.flow.copy, partition)
        with contextlib.closing(
            KafkaConsumer(bootstrap_servers=self.target.bootstrap)
        ) as consumer:
            return int(consumer.end_offsets([where])[where])

    def state(self) -> str:
        return str(self.described().state.name)

    def wait_state(self, *states: str) -> None:
        wait_for(lambda: self.state() in states, pause=_ASKING_SECONDS)

    def wait_epoch_after(self, epoch: int) -> None:
        """Until the slot's producer has been taken over since."""
        wait_for(lambda: self.described().producer_epoch > epoch, pause=_ASKING_SECONDS)


@pytest.fixture(scope="module")
def brokers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[PlaygroundCluster]:
    """Three, which all stages use; all coordinators are on one."""
    with playground(
        ("b",),
        root=tmp_path_factory.mktemp("brokers"),
        given=False,
        nodes=3,
        settings={"transaction.state.log.num.partitions": "1"},
    ) as made:
        yield made["b"]


@pytest.fixture
def stage(
    brokers: PlaygroundCluster,
    clusters: dict[str, PlaygroundCluster],
    topic_name: str,
) -> Iterator[Callable[[set[str]], Stage]]:
    """Set it up. Some of `copy` (its first partition), `progress` and `map` are on the
    broker that leaves, which is back for the next test; the others are on one that
    stays.
    """
    source, target = clusters["a"].bootstrap, brokers.bootstrap
    coordinator = _coordinator(target)
    victim = next(n for n in brokers.nodes if n != coordinator)

    def make(away: set[str]) -> Stage:
        flow = SparklessFlow(
            source=source,
            target=target,
            topic=topic_name,
        )
        topics = {
            "copy": flow.copy,
            "progress": flow.progress,
            "map": runs.topic_name(flow.alias, "."),
        }
        for each in topics.keys() - {"copy"}:
            _create_on(target, topics[each], victim if each in away else coordinator)
        first = victim if "copy" in away else coordinator
        _create_on(target, flow.copy, first, coordinator)
        create_topic(source, topic_name, 2)
        load = NumberedLoad(source, topic_name, 2, seed=1)
        load.send(100)
        return Stage(
            flow=flow.own(),
            load=load,
            target=brokers,
            victim=victim,
            missed=topics[min(away)],
        )

    yield make
    if brokers.node_by_number[victim].pid is None:
        brokers.start(victim)


_STOP = SignalAt(point=Point.AFTER_WRITE, number=signal.SIGSTOP)


def _case_id(value: object) -> str:
    return "-".join(sorted(value)) if isinstance(value, set) else str(value)


def _stop_late(*, committed: bool) -> list[SignalAt]:
    """Stop when an id that has committed before is about to do so again, and die when
    it has asked for that.
    """
    again = 1 + MAX_IN_FLIGHT
    stop = replace(_STOP, passes=again)
    die = SignalAt(
        point=Point.AFTER_COMMIT_REQUEST, number=signal.SIGKILL, passes=again
    )
    return [stop, die] if committed else [stop]


@pytest.mark.parametrize(
    ("away", "killed"),
    cases(
        [
            ({"copy"}, False),
            ({"copy"}, True),
            ({"progress"}, False),
            ({"progress"}, True),
            ({"copy", "progress", "map"}, False),
            ({"copy", "progress", "map"}, True),
        ],
        some=[({"copy"}, False)],
    ),
    ids=_case_id,
)
def test_a_partition_without_a_leader_at_the_commit(
    stage: Callable[[set[str]], Stage],
    start_slot: Callable[..., SlotProcess],
    away: set[str],
    killed: bool,
) -> None:
    """The commit's marker never reaches partitions that have no leader then; mirror
    writes it when they are back, so that all records are there once.
    """
    on = stage(away)
    kill = SignalAt(point=Point.AFTER_COMMIT_REQUEST, number=signal.SIGKILL)
    signals = [_STOP, kill] if killed else [_STOP]
    slot = start_slot(on.flow, signal_at=signals)
    wait_for(lambda: slot.suspended)
    on.take_the_leader()
    slot.resume()
    # Its coordinator thinks that it has ended everywhere; the slot may know better.
    on.wait_state("COMPLETE_COMMIT", "EMPTY")
    on.target.start(on.victim)
    if killed:
        wait_for(lambda: not slot.alive)
        start_slot(on.flow)
    on.load.send(100)
    wait_for(on.copied, pause=0.5)
    on.check()


def test_a_partition_without_a_leader_at_the_take_over(
    stage: Callable[[set[str]], Stage], start_slot: Callable[..., SlotProcess]
) -> None:
    """A dead slot's transaction is aborted while a partition has no leader: its records
    do not appear with a later commit, though others are written meanwhile.
    """
    on = stage({"copy"})
    slot = start_slot(on.flow, signal_at=_STOP)
    wait_for(lambda: slot.suspended)
    on.take_the_leader()
    slot.kill()
    before = on.written(1)
    start_slot(on.flow)
    on.load.send(100)
    # What was aborted is written again, with a marker or more between.
    least = before + len(on.load.order[1])
    wait_for(lambda: on.written(1) > least, pause=_ASKING_SECONDS)
    on.target.start(on.victim)
    on.load.send(100)
    wait_for(on.copied, pause=0.5)
    on.check()


def test_what_was_committed_is_not_aborted_later(
    stage: Callable[[set[str]], Stage], start_slot: Callable[..., SlotProcess]
) -> None:
    """A slot that did not notice that a commit missed a partition does not write there
    under the same id: an abort would take the committed records with it.
    """
    on = stage({"copy"})
    killed = SignalAt(
        point=Point.AFTER_WRITE, number=signal.SIGKILL, passes=1 + MAX_IN_FLIGHT
    )
    slot = start_slot(on.flow, signal_at=[_STOP, killed])
    wait_for(lambda: slot.suspended)
    on.take_the_leader()
    slot.resume()
    on.wait_state("COMPLETE_COMMIT", "EMPTY")
    on.target.start(on.victim)
    on.use_each_id(slot)
    wait_for(lambda: not slot.alive)
    start_slot(on.flow)
    wait_for(on.copied, pause=0.5)
    on.check()


@pytest.fixture
def transactions_v1(brokers: PlaygroundCluster) -> Iterator[None]:
    """Without an epoch for each transaction, as clusters from before 4.0 go on."""

    def set_version(level: int, how: str) -> None:
        with _admin(brokers.bootstrap) as admin:
            said = admin.update_features({"transaction.version": (how, level)})
        assert set(said.values()) == {"OK"}

    set_version(1, "SAFE_DOWNGRADE")
    yield
    set_version(2, "UPGRADE")


def test_how_it_ended_is_forgotten(
    transactions_v1: None,
    stage: Callable[[set[str]], Stage],
    start_slot: Callable[..., SlotProcess],
) -> None:
    """If every process that knew how a v1 transaction ended is dead too, the partition
    waits until a person ends it by hand: nothing is written after it, which would
    commit it.
    """
    on = stage({"copy"})
    wrote = len(on.load.order[0])
    slot = start_slot(on.flow, signal_at=_STOP)
    wait_for(lambda: slot.suspended)
    on.take_the_leader()
    slot.kill()
    second = start_slot(on.flow)
    on.wait_state("EMPTY")
    second.kill()
    on.target.start(on.victim)
    on.load.send(100)
    before = on.described().producer_epoch
    start_slot(on.flow)
    # It has taken over, and does so again as long as the partition is set aside.
    on.wait_epoch_after(before + 1)
    where = TopicPartition(on.flow.copy, 0)
    with _admin(on.target.bootstrap) as admin:
        (shown,) = admin.describe_producers([where]).values()
        (hanging,) = [
            each
            for each in shown.active_producers
            if each.current_transaction_start_offset >= 0
        ]
        assert hanging.producer_epoch < before
        first = hanging.current_transaction_start_offset
        assert on.written(0) == first + wrote
        admin.abort_transaction(
            AbortTransactionSpec(
                topic_partition=where,
                producer_id=hanging.producer_id,
                producer_epoch=hanging.producer_epoch,
                coordinator_epoch=hanging.coordinator_epoch,
            )
        )
    wait_for(on.copied, pause=0.5)
    on.check()


@pytest.mark.parametrize(
    ("away", "committed"),
    cases(
        [
            (away, committed)
            for away in ({"copy"}, {"progress"}, {"map"}, {"copy", "progress", "map"})
            for committed in (True, False)
        ],
        some=[({"copy"}, False), ({"copy", "progress", "map"}, True)],
    ),
    ids=_case_id,
)
def test_other_partitions_tell_how_it_ended(
    stage: Callable[[set[str]], Stage],
    start_slot: Callable[..., SlotProcess],
    away: set[str],
    committed: bool,
) -> None:
    """If every process that knew how a transaction ended is dead, and the coordinator
    has forgotten it, its other partitions tell; if it ended nowhere, it is undone. No
    person needs to end it.
    """
    on = stage(away)
    slot = start_slot(on.flow, signal_at=_stop_late(committed=committed))
    on.leave_open(slot, committed=committed)
    second = start_slot(on.flow)
    on.wait_state("EMPTY")
    second.kill()
    on.target.start(on.victim)
    start_slot(on.flow)
    on.load.send(100)
    wait_for(on.copied, pause=0.5)
    on.check()


@pytest.mark.parametrize(
    ("slots", "committed"),
    cases([(1, True), (1, False), (2, True), (2, False)], some=[(1, True), (2, False)]),
)
def test_what_another_slot_left_open(
    stage: Callable[[set[str]], Stage],
    start_slot: Callable[..., SlotProcess],
    monkeypatch: pytest.MonkeyPatch,
    slots: int,
    committed: bool,
) -> None:
    """What a slot has left open in a partition that another one has in the next run, as
    the first of `slots`, is ended, although the partition has no leader when that run
    begins. The other slot takes over no id but its own: it makes one more run begin.
    """
    monkeypatch.setattr(ownership, "_PATIENCE_SECONDS", 0.5)
    on = replace(stage({"copy"}), slot=1)
    on.flow.own(slots=2)
    slot = start_slot(
        on.flow, slot=1, partitions=[0], signal_at=_stop_late(committed=committed)
    )
    on.leave_open(slot, committed=committed)
    on.flow.own(slots=slots, led=False)
    assert on.state() == "EMPTY"
    before = on.described().producer_epoch
    other = start_slot(on.flow)
    on.load.send(100, partition=1)
    on.target.start(on.victim)
    assert other.how_it_ended() == "left open"
    assert on.described().producer_epoch == before
    on.flow.own(slots=slots)
    start_slot(on.flow)
    wait_for(on.copied, pause=0.5)
    on.check()


@pytest.mark.full
def test_a_later_transaction_does_not_decide(
    stage: Callable[[set[str]], Stage], start_slot: Callable[..., SlotProcess]
) -> None:
    """A commit that a partition missed does not become an abort because of a later,
    aborted transaction without that partition.
    """
    on = stage({"copy"})
    killed = SignalAt(point=Point.AFTER_COMMIT, number=signal.SIGKILL)
    slot = start_slot(on.flow, signal_at=[_STOP, killed])
    wait_for(lambda: slot.suspended)
    on.take_the_leader()
    slot.resume()
    wait_for(lambda: not slot.alive)
    wait_for(lambda: on.state() == "COMPLETE_COMMIT")
    on.load.send(50, partition=1)
    second = start_slot(on.flow, signal_at=_STOP)
    wait_for(lambda: second.suspended)
    assert on.state() == "ONGOING"
    second.kill()
    on.target.start(on.victim)
    start_slot(on.flow)
    on.load.send(50)
    wait_for(on.copied, pause=0.5)
    on.check()


def test_how_a_transaction_ended_is_known_by_its_epoch(
    clusters: dict[str, PlaygroundCluster], topic_name: str
) -> None:
    """The coordinator knows only an id's last transaction, and a producer only its own:
    what neither knows is not assumed to have ended like the last one.
    """
    bootstrap = clusters["b"].bootstrap
    create_topic(bootstrap, topic_name)
    with connected(bootstrap) as cluster:

        def begin() -> Producer:
            producer = Producer(
                cluster, transactional_id=topic_name, transaction_timeout_ms=30_000
            )
            producer.take_over()
            return producer

        def open_one(producer: Producer) -> tuple[int, int]:
            """Id and epoch of a transaction that has written a record."""
            batch = records.encode([(b"k", b"v")])
            write(cluster, {topic_name: [batch]}, producer)
            shown = _described(bootstrap, topic_name)
            assert shown.state.name == "ONGOING"
            return shown.producer_id, shown.producer_epoch

        first = begin()
        committed = []
        for _ in range(3):
            committed.append(open_one(first))
            first.commit()

        second = begin()
        assert [second.was_committed(*each) for each in committed] == [None, None, True]
        first.take_over()
        assert [first.was_committed(*each) for each in committed] == [True, True, True]

        left = open_one(first)
        assert first.was_committed(*left) is None
        second.take_over()
        assert second.was_committed(*left) is False
        assert second.was_committed(*committed[0]) is None


@dataclass(frozen=True, kw_only=True)
class FlowLogs:
    """What transactions of a flow write to, and who reads there."""

    bootstrap: str
    cluster: Cluster
    progress: tuple[str, int]
    offset_map: tuple[str, int]
    ledger: tuple[str, int]
    copy: tuple[str, int]

    @property
    def search(self) -> MarkerSearch:
        return MarkerSearch(
            target=self.cluster,
            progress=self.progress,
            offset_map=self.offset_map,
            others={self.ledger},
        )

    def producer(self, number: int) -> Producer:
        """It has taken over."""
        made = Producer(
            self.cluster,
            transactional_id=f"{self.copy[0]}-{number}",
            transaction_timeout_ms=30_000,
        )
        made.take_over()
        return made

    def write(self, producer: Producer, *where: tuple[str, int]) -> tuple[int, int]:
        """Id and epoch of a transaction with a record in each of these, which stays
        open.
        """
        name = producer.transactional_id or ""
        # Its last markers may be on their way: this transaction comes behind them.
        wait_for(lambda: "PREPARE" not in _described(self.bootstrap, name).state.name)
        block = runs.Block(
            topic="t", partition=0, target_topic=self.copy[0], topic_id=NO_ID,
            runs=np.array([[0, end_offsets(self.bootstrap, self.copy[0])[0], 1]]),
        )  # fmt: skip
        (value,) = runs.encode([block])
        batches = {topic: [records.encode([(b"", value)])] for topic, _ in where}
        if self.progress in where:
            batches[self.progress[0]] = encode({("t", 0): Position(offset=0)})
        write(self.cluster, batches, producer)
        shown = _described(self.bootstrap, name)
        return shown.producer_id, shown.producer_epoch


@pytest.fixture
def logs(
    clusters: dict[str, PlaygroundCluster],
    topic_name: str,
    monkeypatch: pytest.MonkeyPatch,
) -> Iterator[FlowLogs]:
    monkeypatch.setattr(markers, "_FIRST_OFFSETS", 1)
    bootstrap = clusters["b"].bootstrap
    names = ("progress", "offset_map", "ledger", "copy")
    where = {name: (f"{topic_name}-{name}", 0) for name in names}
    for topic, _ in where.values():
        create_topic(bootstrap, topic)
    with connected(bootstrap) as cluster:
        yield FlowLogs(bootstrap=bootstrap, cluster=cluster, **where)


@pytest.mark.parametrize("committed", [True, False])
def test_how_a_transaction_ended_anywhere_is_how_it_ended(
    logs: FlowLogs, monkeypatch: pytest.MonkeyPatch, committed: bool
) -> None:
    """One marker is enough, whichever partitions missed theirs."""
    copy, progress, offset_map = logs.copy, logs.progress, logs.offset_map
    producer = logs.producer(1)

    def end(*where: tuple[str, int]) -> tuple[int, int]:
        which = logs.write(producer, *where)
        if committed:
            producer.commit()
        else:
            producer.take_over()
        return which

    logs.write(producer, copy, offset_map, progress)
    producer.commit()
    which = end(copy, offset_map, progress)
    end(copy, offset_map, progress)
    for left_open in (
        [copy], [progress], [offset_map], [copy, progress], [copy, offset_map],
        [progress, offset_map], [progress, logs.ledger],
    ):  # fmt: skip
        assert logs.search.was_committed(*which, left_open) is committed
    which = end(progress, logs.ledger)
    assert logs.search.was_committed(*which, [progress]) is committed
    assert logs.search.was_committed(*which, [logs.ledger]) is committed
    _forbid_reading(monkeypatch, logs.ledger[0])
    assert logs.search.was_committed(*which, [progress]) is None


def _forbid_reading(monkeypatch: pytest.MonkeyPatch, topic: str) -> None:
    def read(cluster: Cluster, name: str, **options: Any) -> TopicReader:
        if name == topic:
            raise codes.error_for(codes.TOPIC_AUTHORIZATION_FAILED, name)
        return TopicReader(cluster, name, **options)

    monkeypatch.setattr(markers, "TopicReader", read)


def test_a_transaction_that_ended_nowhere(
    logs: FlowLogs, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is undone, unless later positions of the same partitions were committed: then
    it was committed before them.
    """
    progress, everywhere = logs.progress, [logs.copy, logs.offset_map, logs.progress]
    first, later = logs.producer(1), logs.producer(2)
    which = logs.write(first, *everywhere)
    assert logs.search.was_committed(*which, everywhere) is False
    logs.write(later, progress)
    assert logs.search.was_committed(*which, everywhere) is False
    later.take_over()  # which aborts it
    assert logs.search.was_committed(*which, everywhere) is False
    logs.write(later, progress)
    later.commit()
    assert logs.search.was_committed(*which, everywhere) is True
    # Its position is known even where compaction has taken the record.
    first.take_over()
    which = logs.write(first, logs.copy, logs.offset_map)
    left_open = [logs.copy, logs.offset_map]
    assert logs.search.was_committed(*which, left_open) is False
    position = {("t", 0): Position(offset=1)}
    write(logs.cluster, {progress[0]: encode(position)}, later)
    later.commit()
    assert logs.search.was_committed(*which, left_open) is True
    # It died before it wrote more than copies, or records that go without.
    first.take_over()
    which = logs.write(first, logs.copy)
    assert logs.search.was_committed(*which, [logs.copy]) is False
    monkeypatch.setattr(markers, "_MOST_OFFSETS", 1)
    assert logs.search.was_committed(*which, [logs.copy]) is None
    first.take_over()
    which = logs.write(first, logs.ledger)
    assert logs.search.was_committed(*which, [logs.ledger]) is None


@contextlib.contextmanager
def _replaced(
    bootstrap: str, topic: str
) -> Iterator[tuple[Cluster, Producer, Callable[[], None]]]:
    """The owner of an id, and what has another one take over and write. At the end that
    one commits, and its record is there.
    """
    create_topic(bootstrap, topic)
    with connected(bootstrap) as cluster:
        first, second = (
            Producer(cluster, transactional_id=topic, transaction_timeout_ms=30_000)
            for _ in range(2)
        )
        first.take_over()

        def replace_it() -> None:
            second.take_over()
            write(cluster, {topic: [records.encode([(b"k", b"v")])]}, second)

        yield cluster, first, replace_it
        second.commit()
    with Witness(bootstrap) as witness:
        witness.assert_exactly(topic, {0: [b"k"]})


def test_what_a_later_owner_has_open_is_its_own(
    clusters: dict[str, PlaygroundCluster], topic_name: str
) -> None:
    """An owner that was replaced meanwhile does not call its successor's transaction
    one that was left open, whose outcome only a person could find out.
    """
    with _replaced(clusters["b"].bootstrap, topic_name) as (cluster, first, replace_it):
        replace_it()
        topics = cluster.topics({topic_name})
        assert (
            hanging.complete(cluster, [first], topics, [(topic_name, 0)])
            == HangingLook()
        )


@pytest.mark.parametrize(
    "mishaps",
    [
        [Rule(api="EndTxn", mishap=Mishap.LOST)],
        [
            Rule(api="AddPartitionsToTxn", mishap=Mishap.ERROR, code=7),
            Rule(api="EndTxn", mishap=Mishap.LOST),
        ],
    ],
    ids=["request lost", "timed out and lost"],
)
def test_a_commit_that_is_lost_on_the_way_is_asked_for_again(
    clusters: dict[str, PlaygroundCluster], topic_name: str, mishaps: list[Rule]
) -> None:
    """A partition that was added to be committed is not left to the next take-over,
    which would abort the records there, although the request to commit was lost.
    """
    bootstrap = clusters["b"].bootstrap
    create_topic(bootstrap, topic_name)
    with BrokerProxy(bootstrap) as proxy, connected(proxy.bootstrap) as cluster:
        producer = Producer(
            cluster, transactional_id=topic_name, transaction_timeout_ms=30_000
        )
        producer.take_over()
        rules = [replace(each) for each in mishaps]
        with proxy.rules(*rules), pytest.raises(ClusterError):
            producer.end_also([(topic_name, 0)], committed=True)
    assert all(each.hits == 1 for each in rules)
    wait_for(
        lambda: _described(bootstrap, topic_name).state.name == "COMPLETE_COMMIT",
        pause=_ASKING_SECONDS,
    )


def test_an_owner_that_was_replaced_undoes_nothing(
    clusters: dict[str, PlaygroundCluster],
    topic_name: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """While it adds a partition in order to abort what is open there, another owner
    takes over. It stops, and leaves that owner's transaction alone.
    """
    with _replaced(clusters["b"].bootstrap, topic_name) as (_, first, replace_it):
        added = first.add_partitions

        def add_late(keys: list[tuple[str, int]]) -> None:
            added(keys)
            replace_it()

        monkeypatch.setattr(first, "add_partitions", add_late)
        with pytest.raises(FencedError):
            first.end_also([(topic_name, 0)], committed=False)
