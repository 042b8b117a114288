"""Groups on real coordinators: listed, read, left alone, set, remembered."""

from __future__ import annotations

import contextlib
import time
from typing import TYPE_CHECKING, Any

from confluent_kafka import Consumer, TopicPartition
import pytest

from mirror.clusters.admin import group_offsets, groups
from mirror.clusters.admin.group_offsets import CommittedOffset
from mirror.clusters.admin.groups import Group, GroupKind
from mirror.clusters.cluster import Cluster
from mirror.config.cluster_settings import ClusterConfig
from mirror.offsets import group_offset_sync
from mirror.offsets.checkpoints import Checkpoint, Checkpoints, CheckpointsResult, read
from mirror.offsets.groups import GroupPosition, GroupsStanding
from mirror.offsets.heartbeats import Heartbeat, Heartbeats
from mirror.offsets.translation import Exactness, Translated
from tests.harness.admin import commit_offsets, create_topic
from tests.harness.connections import connected
from tests.harness.load import producer
from tests.harness.waiting import deadline_in, wait_for
from tests.harness.witness import read_topic

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from collections.abc import Set as AbstractSet

    from mirror.playground.cluster import PlaygroundCluster

pytestmark = pytest.mark.integration


@contextlib.contextmanager
def at_work(
    bootstrap: str, group: str, topic: str, protocol: str, offset: int
) -> Iterator[Consumer]:
    """A consumer that is a member of a group, and has committed an offset."""
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": group,
            "client.id": "at-work",
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
            "group.protocol": protocol,
        }
    )
    consumer.subscribe([topic])
    deadline = deadline_in()
    while not consumer.assignment():
        assert time.monotonic() < deadline
        consumer.poll(0.2)
    commit_offsets(consumer, [TopicPartition(topic, 0, offset)])
    try:
        yield consumer
    finally:
        consumer.close()


def checkpoint(group: str, topic: str, downstream: int) -> dict[str, Any]:
    made = Checkpoint(
        group=group, topic=topic, partition=0, upstream=999, downstream=downstream
    )
    return {group: {(topic, 0): made}}


def offset_of(cluster: Cluster, group: str, topic: str) -> int:
    return group_offsets.fetch(cluster, [group]).groups[group][topic, 0].offset


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
def test_a_group_at_work_is_left_alone(
    clusters: dict[str, PlaygroundCluster], topic_name: str, protocol: str
) -> None:
    """A group with members keeps its offset, whatever its checkpoint says; without
    members it moves forward, and never back. This holds for classic and KIP-848 groups.
    """
    target, group = clusters["b"].bootstrap, f"{topic_name}-app"
    create_topic(target, topic_name)
    client = producer(target)
    for _ in range(100):
        client.produce(topic_name, value=b"v")
    assert client.flush(30) == 0
    with connected(target) as cluster:
        with at_work(target, group, topic_name, protocol, 50):
            done = group_offset_sync.set_offsets(
                cluster, checkpoint(group, topic_name, 80)
            )
            assert done.active == {group}
            assert not done.moved
            assert offset_of(cluster, group, topic_name) == 50
            # Not by our own restraint alone: the coordinator refuses, too.
            forced = {group: {(topic_name, 0): CommittedOffset(80)}}
            assert group in group_offsets.commit(cluster, forced)
            listed = groups.list_groups(cluster)[group]
            assert (listed.kind, listed.idle) == (GroupKind(protocol), False)
            (member,) = groups.members(cluster, [listed])[group]
            assert member.client_id == "at-work"
        wait_for(lambda: groups.list_groups(cluster)[group].idle)
        done = group_offset_sync.set_offsets(cluster, checkpoint(group, topic_name, 80))
        assert done.moved == {group: 1}
        assert offset_of(cluster, group, topic_name) == 80
        done = group_offset_sync.set_offsets(cluster, checkpoint(group, topic_name, 30))
        assert not done.moved
        assert offset_of(cluster, group, topic_name) == 80


def test_a_copy_that_is_gone_holds_up_its_group_only(
    clusters: dict[str, PlaygroundCluster], topic_name: str
) -> None:
    """An offset in a topic that does not exist is refused with the topic's name; the
    offsets of other groups are set all the same, including new groups.
    """
    target = clusters["b"].bootstrap
    create_topic(target, topic_name)
    known = {
        **checkpoint(f"{topic_name}-lost", "no-such-topic", 5),
        **checkpoint(f"{topic_name}-new", topic_name, 7),
    }
    with connected(target) as cluster:
        done = group_offset_sync.set_offsets(cluster, known)
        assert done.moved == {f"{topic_name}-new": 1}
        assert "no-such-topic-0" in done.refused[f"{topic_name}-lost"]
        assert offset_of(cluster, f"{topic_name}-new", topic_name) == 7


def standing(**offsets: tuple[int, int]) -> GroupsStanding:
    return GroupsStanding(
        groups={
            name: Group(group=name, kind=GroupKind.CLASSIC, state="EMPTY")
            for name in offsets
        },
        places={
            name: (
                GroupPosition(
                    "t", 0, "A.t", upstream,
                    Translated(offset=downstream, exactness=Exactness.EXACT),
                ),
            )
            for name, (upstream, downstream) in offsets.items()
        },
    )  # fmt: skip


def written(
    checkpoints: Checkpoints, cluster: Cluster, **offsets: tuple[int, int]
) -> CheckpointsResult:
    due = checkpoints.decide(cluster, standing(**offsets), Copied())
    return checkpoints.write(due)


def test_checkpoints_are_remembered_over_restarts(
    clusters: dict[str, PlaygroundCluster], topic_name: str
) -> None:
    """A new run reads the checkpoints that were written, writes only those that moved,
    skips records that are no checkpoints, forgets a deleted group, and never writes a
    tombstone.
    """
    target, topic = clusters["b"].bootstrap, f"{topic_name}.checkpoints.internal"
    with connected(target) as cluster:
        first = Checkpoints(topic_name)
        assert written(first, cluster, a=(10, 8), b=(5, 5)).written == 2
        assert written(first, cluster, a=(10, 8), b=(5, 5)).written == 0
        client = producer(target)
        client.produce(topic, key=b"strange", value=b"\0")
        assert client.flush(30) == 0
        second = Checkpoints(topic_name)
        assert written(second, cluster, a=(10, 8), b=(7, 7)).written == 1
        assert written(second, cluster, a=(9, 9)).written == 1
        assert set(written(second, cluster, a=(9, 9)).known) == {"a"}
        assert written(second, cluster, a=(9, 8), b=(7, 7)).written == 1
        known = read(cluster, topic)
        assert known["a"]["A.t", 0].upstream == 9
        assert known["a"]["A.t", 0].downstream == 9
        assert known["b"]["A.t", 0].downstream == 7
    records = read_topic(target, topic)[0]
    assert all(record.value() is not None for record in records)


class Copied:
    """A map of a topic whose copy has the same offsets."""

    def position(self, topic: str, partition: int) -> int:
        return 100

    def translate(self, topic: str, partition: int, offset: int) -> Translated:
        return Translated(offset=offset, exactness=Exactness.EXACT)

    reverse = translate

    def translate_all(
        self, questions: Mapping[tuple[str, int], AbstractSet[int]]
    ) -> dict[tuple[str, int], dict[int, Translated]]:
        return {
            key: {offset: self.translate(*key, offset) for offset in offsets}
            for key, offsets in questions.items()
        }


def test_heartbeats_keep_their_rhythm_without_the_source(
    clusters: dict[str, PlaygroundCluster],
    topic_name: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The target gets its heartbeats although the source refuses them; the refusal is
    shown and not tried again at once; Kafka's bytes name both ends.
    """
    target = clusters["b"].bootstrap
    nowhere = ClusterConfig(
        alias="S", bootstrap_servers=("127.0.0.1:1",), request_timeout_seconds=1
    )
    beats = Heartbeats(topic_name, "B", f"{topic_name}.heartbeats", on_source=True)
    write, tried = beats._write, []

    def written_to(to: Cluster, *words: Any) -> None:
        tried.append(to)
        write(to, *words)

    monkeypatch.setattr(beats, "_write", written_to)
    with connected(target) as cluster:
        source = Cluster(nowhere)
        results = [beats.sync(source, cluster) for _ in range(5)]
        assert tried.count(cluster) == 5
        assert tried.count(source) < 5
    assert all("127.0.0.1:1" in result.problem for result in results)
    assert [result.copied_at for result in results] == [0.0] * 5
    written = [
        Heartbeat.decode(record.key(), record.value())
        for record in read_topic(target, "heartbeats")[0]
        if topic_name.encode() in record.key()
    ]
    assert [beat.timestamp for beat in written] == [
        int(result.written_at * 1000) for result in results
    ]
    assert {(beat.source, beat.target) for beat in written} == {(topic_name, "B")}
