"""Creates, changes and inspects topics through confluent-kafka."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from confluent_kafka import (
    Consumer,
    KafkaError,
    KafkaException,
    TopicCollection,
    TopicPartition,
)
from confluent_kafka.admin import (
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    NewPartitions,
    NewTopic,
    OffsetSpec,
    ResourceType,
)

from tests.harness.waiting import deadline_in, wait_for
from tests.harness.witness import _consumer

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

_NOT_YET = (
    KafkaError.COORDINATOR_LOAD_IN_PROGRESS,
    KafkaError.COORDINATOR_NOT_AVAILABLE,
    KafkaError.NOT_COORDINATOR,
)
"""What a group's coordinator says while it starts."""


def create_topic(
    bootstrap: str, topic: str, partitions: int = 1, **configs: str
) -> None:
    """Create a topic whose leaders answer; config names with underscores for dots."""
    admin = AdminClient({"bootstrap.servers": bootstrap})
    new = NewTopic(
        topic,
        num_partitions=partitions,
        config={name.replace("_", "."): value for name, value in configs.items()},
    )
    admin.create_topics([new])[topic].result(30)
    # Brokers may name a leader before it knows that it leads.
    ends = {TopicPartition(topic, n): OffsetSpec.latest() for n in range(partitions)}
    deadline = deadline_in(60)
    while reason := _refusal(admin, ends):
        assert time.monotonic() < deadline, f"{topic}: {reason}"
        time.sleep(0.05)


def _refusal(admin: AdminClient, asked: dict[TopicPartition, OffsetSpec]) -> str:
    """Why some leader does not tell these offsets; empty if all do."""
    try:
        for answer in admin.list_offsets(asked).values():
            answer.result(30)
    except (KafkaException, TimeoutError) as error:
        return str(error) or "no answer"
    return ""


def add_partitions(bootstrap: str, topic: str, total: int) -> None:
    admin = AdminClient({"bootstrap.servers": bootstrap})
    admin.create_partitions([NewPartitions(topic, total)])[topic].result(30)
    deadline = deadline_in(60)
    while len(admin.list_topics(topic, timeout=30).topics[topic].partitions) < total:
        assert time.monotonic() < deadline
        time.sleep(0.05)


def alter_topic(bootstrap: str, topic: str, **configs: str) -> None:
    """Set some configs of a topic, leaving the others, and wait until brokers know it;
    underscores for dots.
    """
    admin = AdminClient({"bootstrap.servers": bootstrap})
    wanted = {name.replace("_", "."): value for name, value in configs.items()}
    set_configs(admin, topic, wanted)

    def known() -> bool:
        asked = ConfigResource(ResourceType.TOPIC, topic)
        shown = admin.describe_configs([asked])[asked].result(30)
        return all(_alike(shown[name].value, value) for name, value in wanted.items())

    wait_for(known, pause=0.05)


def set_configs(admin: AdminClient, topic: str, wanted: Mapping[str, str]) -> None:
    """Set some configs of a topic, leaving the others."""
    entries = [
        ConfigEntry(name, value, incremental_operation=AlterConfigOpType.SET)
        for name, value in wanted.items()
    ]
    resource = ConfigResource(ResourceType.TOPIC, topic, incremental_configs=entries)
    admin.incremental_alter_configs([resource])[resource].result(30)


def _alike(one: str, other: str) -> bool:
    """Brokers write numbers in their own way."""
    try:
        return float(one) == float(other)
    except ValueError:
        return one == other


def delete_topic(bootstrap: str, topic: str) -> None:
    """Delete a topic, and wait until brokers know of it no longer, or of another one of
    its name.
    """
    admin = AdminClient({"bootstrap.servers": bootstrap})
    old = _topic_id(admin, topic)
    admin.delete_topics([topic])[topic].result(30)
    wait_for(lambda: _topic_id(admin, topic) != old, pause=0.05)


def _topic_id(admin: AdminClient, topic: str) -> str:
    """Empty, if there is no such topic."""
    (found,) = admin.describe_topics(TopicCollection([topic])).values()
    try:
        return str(found.result(30).topic_id)
    except KafkaException as error:
        if error.args[0].code() != KafkaError.UNKNOWN_TOPIC_OR_PART:
            raise
        return ""


def delete_records(
    bootstrap: str, topic: str, before: int, *, partitions: Iterable[int] = (0,)
) -> None:
    """Those below an offset."""
    ends = [TopicPartition(topic, partition, before) for partition in partitions]
    admin = AdminClient({"bootstrap.servers": bootstrap})
    for answer in admin.delete_records(ends).values():
        answer.result(60)


def topic_exists(bootstrap: str, topic: str) -> bool:
    admin = AdminClient({"bootstrap.servers": bootstrap})
    return topic in admin.list_topics(timeout=30).topics


def end_offsets(bootstrap: str, topic: str, **settings: str) -> dict[int, int]:
    """Where each partition ends for a read_committed consumer, or for one with these
    settings; none, if there is no such topic.
    """
    consumer = _consumer(bootstrap, **settings)
    deadline = deadline_in(60)
    try:
        while True:
            try:
                shown = consumer.list_topics(timeout=30).topics.get(topic)
                return {
                    p: consumer.get_watermark_offsets(TopicPartition(topic, p), 30)[1]
                    for p in (shown.partitions if shown else ())
                }
            except KafkaException:  # a topic just created, a broker just started
                if time.monotonic() > deadline:
                    raise
                time.sleep(0.1)
    finally:
        consumer.close()


def closed_ends(bootstrap: str, topic: str) -> dict[int, int]:
    """Where each partition ends once no transaction is open in it: one has ended before
    its marker is in the log.
    """
    every = {"isolation.level": "read_uncommitted"}
    wait_for(
        lambda: end_offsets(bootstrap, topic) == end_offsets(bootstrap, topic, **every)
    )
    return end_offsets(bootstrap, topic)


def copied_records(bootstrap: str, topic: str) -> int:
    """How far the target's log has grown, markers included; zero without topic."""
    return sum(end_offsets(bootstrap, topic).values())


def commit_offsets(consumer: Consumer, places: list[TopicPartition]) -> None:
    """Commit, and wait until it is so: its coordinator may still be loading."""
    deadline = deadline_in(60)
    while True:
        try:
            for answer in consumer.commit(offsets=places, asynchronous=False):
                assert answer.error is None, answer
        except KafkaException as error:
            if error.args[0].code() not in _NOT_YET or time.monotonic() > deadline:
                raise
            time.sleep(0.1)
        else:
            return
