"""Writes records on the source: a given number, or a number per second.

`fill` writes a topic as fast as librdkafka can (`tiny` does it for tiny batches).
`Pacer` is a process that writes at a steady rate; each value begins with the time at
which it was handed over.
"""

from __future__ import annotations

import itertools
import multiprocessing
import os
import struct
import threading
import time
from typing import TYPE_CHECKING, Self

from confluent_kafka import (
    KafkaError,
    KafkaException,
    Message,
    Producer,
    TopicPartition,
)
from confluent_kafka.admin import AdminClient, NewTopic, OffsetSpec

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Sequence
    from multiprocessing.synchronize import Event

Place = tuple[str, int]
"""A topic and the number of a partition."""
QUIET = {"log_level": 2}
"""Loading coordinators and leaving brokers are expected here."""
QUICK = {
    "topic.metadata.refresh.interval.ms": 1000,
    "topic.metadata.refresh.fast.interval.ms": 50,
    "reconnect.backoff.ms": 20,
    "reconnect.backoff.max.ms": 200,
    "retry.backoff.ms": 50,
}
"""For clients that must not be what a broker's death holds up."""
TIMESTAMP = struct.Struct(">d")
_LEADERS_SECONDS = 30.0
_PACED_BYTES = 100
PRIMER = bytes(_PACED_BYTES)
"""A paced value from long ago, which is never taken for one to measure."""
# Several full batches of one partition, so that batches are as large as allowed.
_CHUNK = 4096


def create_topic(bootstrap: str, topic: str, *, partitions: int) -> None:
    create_topics(bootstrap, [topic], partitions=partitions)


def create_topics(
    bootstrap: str, topics: Iterable[str], *, partitions: int, replicas: int = 1
) -> None:
    """All with the same number of partitions; returns when they can be written to."""
    new = [
        NewTopic(topic, num_partitions=partitions, replication_factor=replicas)
        for topic in topics
    ]
    admin = _admin(bootstrap)  # must live until it has answered
    for future in admin.create_topics(new).values():
        future.result()
    until = time.monotonic() + _LEADERS_SECONDS
    while not _led(admin, [(each.topic, partitions) for each in new]):
        if time.monotonic() > until:
            raise RuntimeError(f"no leaders for {new[0].topic} and the like")
        time.sleep(0.1)


def _led(admin: AdminClient, topics: Iterable[tuple[str, int]]) -> bool:
    """Whether each leader knows that it is one: metadata tells it a bit earlier."""
    asked = {
        TopicPartition(topic, number): OffsetSpec.earliest()
        for topic, partitions in topics
        for number in range(partitions)
    }
    for future in admin.list_offsets(asked, request_timeout=10).values():
        try:
            future.result()
        except KafkaException:
            return False
    return True


def delete_topics(bootstrap: str, topics: Collection[str]) -> None:
    if not topics:
        return
    admin = _admin(bootstrap)
    for future in admin.delete_topics(list(topics)).values():
        future.result()


def topic_names(bootstrap: str) -> set[str]:
    return set(_admin(bootstrap).list_topics(timeout=30).topics)


def _admin(bootstrap: str) -> AdminClient:
    return AdminClient({"bootstrap.servers": bootstrap, **QUIET})


def fill(
    bootstrap: str,
    topic: str,
    *,
    partitions: int,
    pool: Sequence[bytes],
    records: int,
    compression: str = "none",
    batch_bytes: int = 64 << 10,
) -> int:
    """Write exactly `records` records, evenly; gives the payload's bytes."""
    producer = Producer(
        {
            "bootstrap.servers": bootstrap,
            "acks": "all",
            "enable.idempotence": True,
            **QUIET,
            "linger.ms": 50,
            "batch.size": batch_bytes,
            "batch.num.messages": 100_000,
            "queue.buffering.max.messages": 1_000_000,
            "compression.type": compression,
        }
    )
    values = itertools.cycle(pool)
    numbers = itertools.cycle(range(partitions))
    payload_bytes = 0
    left = records
    while left:
        chunk = list(itertools.islice(values, min(_CHUNK, left)))
        messages = [{"value": value} for value in chunk]
        queue(producer, topic, messages, next(numbers))
        payload_bytes += sum(map(len, chunk))
        left -= len(chunk)
    if waiting := producer.flush(120):
        raise RuntimeError(f"{waiting} records of {topic} were not acknowledged")
    return payload_bytes


def fill_later(bootstrap: str, topic: str, *, partitions: int) -> float:
    """Write one more record to each partition; gives a time between these and all
    others, in epoch seconds.
    """
    time.sleep(0.1)
    between = time.time()
    time.sleep(0.1)
    producer = Producer({"bootstrap.servers": bootstrap, "acks": "all", **QUIET})
    for partition in range(partitions):
        queue(producer, topic, [{"value": b"later"}], partition)
    if waiting := producer.flush(120):
        raise RuntimeError(f"{waiting} records of {topic} were not acknowledged")
    return between


def queue(
    producer: Producer, topic: str, messages: list[dict[str, bytes]], partition: int
) -> None:
    """Hand them over, once the producer has room; none may get lost."""
    while len(producer) > 500_000:
        producer.poll(0.01)
    queued = producer.produce_batch(
        topic, messages, partition=partition, on_delivery=_require_delivery
    )
    if queued != len(messages):
        raise RuntimeError(f"only {queued} of {len(messages)} records were taken")


def _require_delivery(error: KafkaError | None, _message: Message) -> None:
    if error is not None:
        raise RuntimeError(f"a record of the load was lost: {error}")


class Pacer:
    """A process of its own: the measuring one must not hold it up."""

    def __init__(
        self,
        bootstrap: str,
        places: Sequence[Place],
        *,
        per_second: int,
        batches: bool = False,
    ) -> None:
        """Each place gets a record in turn. With `batches`, brokers that are slow get
        larger requests; where latency is measured, that would count as the peer's.
        """
        context = multiprocessing.get_context("spawn")
        self._stop = context.Event()
        self._process = context.Process(
            target=_pace,
            args=(bootstrap, places, per_second, batches, self._stop),
            daemon=True,
        )

    def __enter__(self) -> Self:
        self._process.start()
        return self

    def __exit__(self, *_error: object) -> None:
        self._stop.set()
        self._process.join(30)
        if self._process.is_alive():
            self._process.kill()
            self._process.join()


def _pace(
    bootstrap: str,
    places: Sequence[Place],
    per_second: int,
    batches: bool,
    stop: Event,
) -> None:
    end_with_parent()
    pace = {"linger.ms": 100, "max.in.flight": 5} if batches else {"linger.ms": 0}
    producer = Producer(
        {"bootstrap.servers": bootstrap, "acks": "all", **pace, **QUIET}
    )
    padding = bytes(_PACED_BYTES - TIMESTAMP.size)
    started = time.monotonic()
    for number, (topic, partition) in enumerate(itertools.cycle(places)):
        due = started + number / per_second
        producer.poll(0)  # also while it is late: reports count as queued until then
        while (early := due - time.monotonic()) > 0:
            producer.poll(0)
            time.sleep(min(early, 0.001))
        if stop.is_set():
            break
        value = TIMESTAMP.pack(time.time()) + padding
        producer.produce(topic, value, partition=partition)
    producer.flush(10)


def end_with_parent() -> None:
    """End this process when the one that made it is gone, however it went."""
    parent = multiprocessing.parent_process()

    def watch() -> None:
        if parent is not None:
            parent.join()
            os._exit(1)

    threading.Thread(target=watch, daemon=True).start()
