"""Checkpoints follow what groups commit, on real brokers.

The service's own job looks at all groups when it starts, and then not for an hour: what
changes later it has read in `__consumer_offsets`. A slot copies in the test's process;
groups are those of ordinary clients.
"""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Any

from confluent_kafka import Consumer, TopicPartition
from confluent_kafka.admin import AdminClient
import pytest

from mirror.clusters.cluster import Cluster
from mirror.offsets import checkpoints
from mirror.offsets.checkpoints import Checkpoint, checkpoints_topic
from mirror.offsets.groups import Copy
from mirror.service.groups import CHECKPOINTS, GroupJobs
from mirror.service.scheduler import Jobs
from mirror.status.store import StatusStore
from tests.harness.admin import commit_offsets, create_topic, end_offsets
from tests.harness.load import producer
from tests.harness.slots import RunningLease, SparklessFlow, copy_until
from tests.harness.waiting import wait_for
from tests.harness.witness import Witness, read_topic
from tests.integration.test_groups_on_brokers import at_work

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from confluent_kafka import Producer

    from mirror.playground.cluster import PlaygroundCluster

pytestmark = pytest.mark.integration

RECORDS = 200
ROUNDS = 20


class Stage:
    """A flow whose topic is copied, and its job for groups at work."""

    def __init__(self, source: str, target: str, topic: str, **settings: Any) -> None:
        self.source, self.target, self.topic = source, target, topic
        self._copying = SparklessFlow(
            source=source,
            target=target,
            topic=topic,
            alias=f"S{topic[-8:]}",
            settings={
                "groups": f"{topic}.*",
                "emit_checkpoints_seconds": 3600,
                **settings,
            },
        )
        create_topic(source, topic)
        self.flow = self._copying.config().flows[self._copying.name]
        self.store = StatusStore((self.flow.name,))
        self._checkpoints = checkpoints_topic(self.flow.source)

    def fill(self, count: int = RECORDS, first: int = 0) -> None:
        """Every other transaction is aborted, so the copy's offsets are others."""
        client = producer(self.source, transactional_id=f"fill {self.topic}")
        client.init_transactions(30)
        wanted = end_offsets(self.source, self.topic)[0]
        for number in range(first, first + count, 10):
            for end in (client.abort_transaction, client.commit_transaction):
                client.begin_transaction()
                for each in range(number, number + 10):
                    client.produce(self.topic, key=b"%d" % each, value=b"v")
                assert client.flush(30) == 0
                end(30)
                wanted += 11
        # A transaction has ended before its marker is in the log.
        wait_for(lambda: end_offsets(self.source, self.topic) == {0: wanted})

    def own(self) -> None:
        """Become the only writer of the copy, which exists from then on."""
        self._copying.own()

    @contextlib.contextmanager
    def slot(self) -> Iterator[RunningLease]:
        """Copies while the block runs."""
        with self._copying.slot() as slot:
            lease = RunningLease(slot, self._copying.lease(300))
            try:
                yield lease
            finally:
                lease.end()

    def copy(self, count: int = RECORDS) -> None:
        with self._copying.slot() as slot, Witness(self.target) as witness:
            witness.begin(self.copy_name)
            lease = self._copying.lease(60)
            copy_until(witness, slot, lease, count=count, timeout=60)

    @property
    def copy_name(self) -> str:
        return self._copying.copy

    @contextlib.contextmanager
    def following(self) -> Iterator[None]:
        """Until the block ends, once commits are followed."""
        jobs = GroupJobs(
            self.flow,
            lambda: {self.topic: Copy(topic=self.copy_name, partitions=1)},
            store=self.store,
            tell=lambda *_: None,
        ).jobs()
        clusters = self._copying.config().clusters
        running = Jobs(
            self.flow.name,
            (clusters[self.flow.source], clusters[self.flow.target]),
            [job for job in jobs if job.name == CHECKPOINTS],
            store=self.store,
            ids={},
        )
        running.start()
        try:
            wait_for(lambda: self.store.flow(self.flow.name).checkpoint_at)
            wait_for(lambda: self.store.flow(self.flow.name).follows_commits)
            yield
        finally:
            running.close()
        (status,) = self.store.flow(self.flow.name).jobs
        assert not status.failures, status.error

    def commit(self, name: str, offset: int, topic: str = "") -> None:
        with self.member(name) as consumer:
            place = TopicPartition(topic or self.topic, 0, offset)
            commit_offsets(consumer, [place])

    @contextlib.contextmanager
    def member(self, name: str) -> Iterator[Consumer]:
        settings = {"bootstrap.servers": self.source, "group.id": self.group(name)}
        consumer = Consumer(settings)
        try:
            yield consumer
        finally:
            consumer.close()

    def group(self, name: str) -> str:
        return f"{self.topic} {name}"

    def checkpoints(self) -> dict[str, dict[tuple[str, int], Checkpoint]]:
        config = self._copying.config().clusters[self.flow.target]
        with contextlib.closing(Cluster(config).connect()) as target:
            return checkpoints.read(target, self._checkpoints)

    def place(self, name: str) -> Checkpoint:
        return self.checkpoints()[self.group(name)][self.copy_name, 0]

    def at(self, name: str) -> int:
        """A group's offset on the source, as of its checkpoint; -1 if it has none."""
        known = self.group(name) in self.checkpoints()
        return self.place(name).upstream if known else -1

    def coordinator(self, name: str) -> int:
        config = self._copying.config().clusters[self.flow.source]
        with contextlib.closing(Cluster(config).connect()) as source:
            group = self.group(name)
            return source.group_coordinators([group])[group]

    def wait_at(self, name: str, offset: int) -> None:
        wait_for(lambda: self.at(name) == offset, pause=0.05)

    def history(self) -> list[Checkpoint]:
        """Every checkpoint that was written."""
        return [
            Checkpoint.decode(each.key(), each.value())
            for each in read_topic(self.target, self._checkpoints)[0]
        ]


@pytest.fixture
def stage(clusters: dict[str, PlaygroundCluster], topic_name: str) -> Stage:
    made = Stage(clusters["a"].bootstrap, clusters["b"].bootstrap, topic_name)
    made.commit("first", 0)  # the cluster's first commit makes its topic
    made.fill()
    made.own()
    made.copy()
    return made


def test_commits_of_all_kinds_of_groups_are_followed(stage: Stage) -> None:
    """A commit from outside, of a member and of a member by the newer protocol is in
    the group's checkpoint soon after, and only for topics and groups of the flow.
    """
    other = f"{stage.topic}-other"
    create_topic(stage.source, other)
    with stage.following():
        stage.commit("first", 20)
        stage.wait_at("first", 20)
        with stage.member("two topics") as consumer:
            places = [(other, 3), (stage.topic, 40)]
            commit_offsets(consumer, [TopicPartition(t, 0, at) for t, at in places])
        stage.wait_at("two topics", 40)
        settings = {"bootstrap.servers": stage.source, "group.id": f"no {stage.topic}"}
        stranger = Consumer(settings)
        commit_offsets(stranger, [TopicPartition(stage.topic, 0, 60)])
        stranger.close()
        for protocol in ("classic", "consumer"):
            group = stage.group(protocol)
            with at_work(stage.source, group, stage.topic, protocol, 80):
                stage.wait_at(protocol, 80)
    found = stage.checkpoints()
    assert set(found) == {
        stage.group(name) for name in ("first", "two topics", "classic", "consumer")
    }
    assert all(set(each) == {(stage.copy_name, 0)} for each in found.values())


def test_a_transaction_counts_with_its_marker(stage: Stage) -> None:
    """What a transaction commits for its group is in no checkpoint while it is open,
    and never if it is aborted. Meanwhile other groups are followed.
    """
    group = stage.group("transactions")
    client = producer(stage.source, transactional_id=group)
    client.init_transactions(30)
    with stage.following(), stage.member("transactions") as consumer:
        stage.commit("transactions", 10)
        stage.wait_at("transactions", 10)
        for number, (end, then) in enumerate(
            ((client.commit_transaction, 20), (client.abort_transaction, 20))
        ):
            client.begin_transaction()
            client.send_offsets_to_transaction(
                [TopicPartition(stage.topic, 0, 20 + 10 * number)],
                consumer.consumer_group_metadata(),
                30,
            )
            before = stage.at("transactions")
            stage.commit("witness", 100 + 2 * number)
            stage.wait_at("witness", 100 + 2 * number)
            assert stage.at("transactions") == before
            end(30)
            stage.commit("witness", 101 + 2 * number)
            stage.wait_at("witness", 101 + 2 * number)
            # A transaction has ended before its marker is in the log.
            stage.wait_at("transactions", then)
    of_group = [each.upstream for each in stage.history() if each.group == group]
    assert of_group == [10, 20]


def test_of_commits_at_a_time_the_last_one_counts(stage: Stage) -> None:
    """Transactions of one group that overlap, and a commit between them: the checkpoint
    has what the broker answers, no matter which ends first.
    """
    one, two = (
        producer(stage.source, transactional_id=f"{stage.topic} {name}")
        for name in ("one", "two")
    )
    for client in (one, two):
        client.init_transactions(30)

    with stage.following(), stage.member("many") as consumer:
        of_group = consumer.consumer_group_metadata()

        def send(client: Producer, offset: int) -> None:
            client.begin_transaction()
            place = TopicPartition(stage.topic, 0, offset)
            client.send_offsets_to_transaction([place], of_group, 30)

        for offset, plain in ((20, False), (40, True)):
            send(one, offset)
            send(two, offset + 1)
            if plain:
                stage.commit("many", offset + 2)
            two.commit_transaction(30)
            one.commit_transaction(30)
            stage.commit("witness", offset)
            stage.wait_at("witness", offset)
            (known,) = consumer.committed([TopicPartition(stage.topic, 0)], 30)
            assert known.offset == offset + (2 if plain else 1)
            stage.wait_at("many", known.offset)


def test_a_deleted_group_begins_again(stage: Stage) -> None:
    """A group that is deleted, and commits again at a lower offset, is followed to
    there.
    """
    admin = AdminClient({"bootstrap.servers": stage.source})
    with stage.following():
        stage.commit("again", 150)
        stage.wait_at("again", 150)
        admin.delete_consumer_groups([stage.group("again")])[
            stage.group("again")
        ].result(30)
        stage.commit("again", 30)
        stage.wait_at("again", 30)


def test_a_commit_is_ahead_of_the_copy(stage: Stage) -> None:
    """A group that has read what is not copied yet has its checkpoint at the copy's
    end, and at its own place as soon as the copy is there; it commits only once.
    """
    before = read_topic(stage.target, stage.copy_name)[0][-1].offset() + 1
    stage.fill(ROUNDS, RECORDS)
    last = read_topic(stage.source, stage.topic)[0][-1].offset()
    with stage.following():
        stage.commit("ahead", last)
        stage.wait_at("ahead", last)
        assert before <= stage.place("ahead").downstream <= before + 1
        stage.copy(RECORDS + ROUNDS)
        there = read_topic(stage.target, stage.copy_name)[0][-1].offset()
        wait_for(lambda: stage.place("ahead").downstream == there, pause=0.05)


def test_no_group_is_set_further_than_its_commit(
    clusters: dict[str, PlaygroundCluster], topic_name: str
) -> None:
    """While records are produced, copied and read, no checkpoint ever names a place in
    the copy behind a record that its group had not read; in the end it names the end.
    """
    stage = Stage(clusters["a"].bootstrap, clusters["b"].bootstrap, topic_name)
    stage.commit("app", 0)
    stage.fill(ROUNDS)
    stage.own()
    with stage.slot() as lease, stage.following(), stage.member("app") as consumer:
        consumer.assign([TopicPartition(stage.topic, 0, 0)])
        for number in range(1, 1 + RECORDS // ROUNDS):
            for _ in consumer.consume(ROUNDS, 10):
                commit_offsets(consumer, consumer.position(consumer.assignment()))
            if number == 1:  # so that there are some checkpoints, however slow
                wait_for(lambda: stage.at("app") > 0)
            stage.fill(ROUNDS, number * ROUNDS)
        rest = [m.offset() for m in read_topic(stage.source, stage.topic)[0]]
        commit_offsets(consumer, [TopicPartition(stage.topic, 0, rest[-1] + 1)])
        wait_for(lambda: len(read_topic(stage.target, stage.copy_name)[0]) == len(rest))
        end = read_topic(stage.target, stage.copy_name)[0][-1].offset() + 1
        wait_for(lambda: stage.place("app").downstream >= end, pause=0.05)
        assert not lease.ended
    log = {m.key(): m.offset() for m in read_topic(stage.source, stage.topic)[0]}
    copy = read_topic(stage.target, stage.copy_name)[0]
    history = stage.history()
    assert len(history) > 2
    for each in history:
        passed = [log[m.key()] for m in copy if m.offset() < each.downstream]
        assert all(offset < each.upstream for offset in passed), each


def test_another_broker_coordinates(
    make_clusters: Callable[..., dict[str, PlaygroundCluster]],
    clusters: dict[str, PlaygroundCluster],
    topic_name: str,
) -> None:
    """When a group's coordinator dies, its commits to the next one are followed, and
    again when it is back.
    """
    source = make_clusters("a", nodes=3)["a"]
    stage = Stage(source.bootstrap, clusters["b"].bootstrap, topic_name)
    stage.commit("moved", 0)
    stage.fill()
    stage.own()
    stage.copy()
    with stage.following():
        stage.commit("moved", 40)
        stage.wait_at("moved", 40)
        dead = stage.coordinator("moved")
        source.kill(dead)
        stage.commit("moved", 60)
        stage.wait_at("moved", 60)
        assert stage.coordinator("moved") != dead
        source.start(dead)
        stage.commit("moved", 80)
        stage.wait_at("moved", 80)
