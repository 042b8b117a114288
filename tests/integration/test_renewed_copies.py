"""Groups whose copy is deleted and re-created, by the flow or by another client.

The witness is an ordinary consumer, which reads as the moved group and counts keys:
everything that the copy has and the group had not read on the source, once.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

from confluent_kafka import (
    Consumer,
    KafkaException,
    TopicCollection,
    TopicPartition,
)
from confluent_kafka.admin import AdminClient
import pytest

from tests.harness.admin import commit_offsets, create_topic, delete_topic, topic_exists
from tests.harness.load import producer
from tests.harness.service import RunningMirror, config_for
from tests.harness.waiting import deadline_in, wait_for
from tests.harness.witness import assert_exactly_once, eventually

if TYPE_CHECKING:
    from collections.abc import Iterable

    from mirror.playground.cluster import PlaygroundCluster
    from tests.harness.standing import StandingMirror

pytestmark = pytest.mark.integration

PARTITIONS = 2
HALF = 600
"""Records per partition before the copy is deleted, and again behind that."""
GROUPS = {"early": 300, "late": 500, "tip": HALF}
"""What each has read of every partition on the source."""


def put(bootstrap: str, topic: str, numbers: Iterable[int]) -> None:
    client = producer(bootstrap)
    for number in numbers:
        for partition in range(PARTITIONS):
            client.produce(topic, key=b"%d" % number, partition=partition)
    assert client.flush(60) == 0


def commit(bootstrap: str, group: str, topic: str, offset: int) -> None:
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": group})
    offsets = [TopicPartition(topic, p, offset) for p in range(PARTITIONS)]
    commit_offsets(consumer, offsets)
    consumer.close()


def committed(bootstrap: str, group: str, topic: str) -> list[int]:
    """The offset of each partition; -1001 if there is none."""
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": group})
    asked = [TopicPartition(topic, p) for p in range(PARTITIONS)]
    deadline = deadline_in()
    try:
        while True:
            try:
                return [each.offset for each in consumer.committed(asked, timeout=30)]
            except KafkaException:  # a coordinator that has just started
                if time.monotonic() > deadline:
                    raise
                time.sleep(0.1)
    finally:
        consumer.close()


def topic_id(bootstrap: str, topic: str) -> str:
    """Empty without such a topic."""
    admin = AdminClient({"bootstrap.servers": bootstrap})
    (found,) = admin.describe_topics(TopicCollection([topic])).values()
    try:
        return str(found.result(30).topic_id)
    except KafkaException:
        return ""


def read_as(bootstrap: str, group: str, topic: str) -> dict[int, list[bytes]]:
    """The keys that a member of the group reads from the group's offsets on."""
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": group,
            "auto.offset.reset": "error",
            "enable.auto.commit": False,
            "enable.partition.eof": True,
            "isolation.level": "read_committed",
        }
    )
    found: dict[int, list[bytes]] = {p: [] for p in range(PARTITIONS)}
    try:
        consumer.subscribe([topic])
        open_ends = set(found)
        deadline = deadline_in(60)
        while open_ends:
            assert time.monotonic() < deadline, f"{group} gets nothing more: {found}"
            message = consumer.poll(1.0)
            if message is None:
                continue
            if message.error() is None:
                found[message.partition()].append(message.key())
            elif message.error().name() == "_PARTITION_EOF":
                open_ends.discard(message.partition())
            else:
                raise AssertionError(f"{group}: {message.error()}")
        return found
    finally:
        consumer.close()


def wait_rounds(mirror: RunningMirror) -> None:
    """Until a look at the groups that began after the call is done."""
    called = time.time()

    def looked(status: dict[str, Any]) -> bool:
        return any(
            job["name"] == "checkpoints"
            and job["succeeded_at"] - job["seconds"] > called
            for job in status["flows"][0]["jobs"]
        )

    mirror.wait_until(looked)


def group_names(topic: str) -> dict[str, int]:
    """The group that is nobody else's, for each of `GROUPS`; what it has read."""
    return {f"{name}-{topic}": offset for name, offset in GROUPS.items()}


def filled(source: str, topic: str) -> None:
    """A topic with its first half, which the groups have read so far."""
    create_topic(source, topic, PARTITIONS)
    put(source, topic, range(HALF))
    for group, offset in group_names(topic).items():
        commit(source, group, topic, offset)


def synced(target: str, topic: str) -> bool:
    return all(
        committed(target, group, f"A.{topic}") == [offset] * PARTITIONS
        for group, offset in group_names(topic).items()
    )


def config(source: str, target: str, topic: str, **settings: Any) -> dict[str, Any]:
    return config_for(
        source, target, topics=[topic], tasks=1, sync_group_offsets=True,
        emit_checkpoints_seconds=1, **settings,
    )  # fmt: skip


def second_half() -> dict[int, list[bytes]]:
    keys = [b"%d" % number for number in range(HALF, 2 * HALF)]
    return dict.fromkeys(range(PARTITIONS), keys)


@pytest.mark.parametrize(
    "by_others", [False, pytest.param(True, marks=pytest.mark.full)]
)
def test_groups_older_than_the_deletion_skip_nothing(
    clusters: dict[str, PlaygroundCluster],
    topic_name: str,
    standing: StandingMirror,
    by_others: bool,
) -> None:
    """A copy is deleted and re-created, by the flow or by another client between two
    looks of the flow, and filled further: groups with offsets in the deleted copy get
    every record of the new one, wherever in the old one they were.
    """
    a, b = clusters["a"].bootstrap, clusters["b"].bootstrap
    copy, bystander = f"A.{topic_name}", f"bystander-{topic_name}"
    filled(a, topic_name)
    entered = config(a, b, topic_name, refresh_topics_seconds=300 if by_others else 1)
    with standing.hosting(entered) as mirror:
        wait_for(lambda: synced(b, topic_name))
        commit(b, bystander, copy, 500)
        old = topic_id(b, copy)
        delete_topic(b, copy)
        if by_others:
            wait_for(lambda: not topic_exists(b, copy))
            # Brokers themselves forget what was committed in a deleted topic.
            wait_for(lambda: committed(b, bystander, copy) == [-1001] * PARTITIONS)
            create_topic(b, copy, PARTITIONS)
        put(a, topic_name, range(HALF, 2 * HALF))
        wait_for(lambda: topic_id(b, copy) not in {"", old})
        eventually(b, copy, PARTITIONS * HALF)
        wait_rounds(mirror)
    for group in group_names(topic_name):
        assert_exactly_once(read_as(b, group, copy), second_half())


@pytest.mark.full
def test_copies_re_created_while_nothing_is_copied(
    clusters: dict[str, PlaygroundCluster],
    topic_name: str,
    standing: StandingMirror,
) -> None:
    """Another client re-creates the copy while no service runs the flow and the source
    is idle: in the next run groups begin at the new copy's start although nothing
    was copied since, and get everything that is copied then.
    """
    a, b = clusters["a"].bootstrap, clusters["b"].bootstrap
    copy, groups = f"A.{topic_name}", group_names(topic_name)
    filled(a, topic_name)
    entered = config(a, b, topic_name)
    with standing.hosting(entered):
        wait_for(lambda: synced(b, topic_name))
    delete_topic(b, copy)
    wait_for(lambda: not topic_exists(b, copy))
    create_topic(b, copy, PARTITIONS)
    with standing.hosting(entered) as mirror:
        wait_rounds(mirror)
        for group in groups:
            assert committed(b, group, copy) == [0] * PARTITIONS, group
        put(a, topic_name, range(HALF, 2 * HALF))
        eventually(b, copy, PARTITIONS * HALF)
        wait_rounds(mirror)
    for group in groups:
        assert_exactly_once(read_as(b, group, copy), second_half())
