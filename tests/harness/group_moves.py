"""Groups that move between clusters: their records, and their readers.

`Loads` fills topics in ways that leave holes between records; `Reader` is an ordinary
group member, from confluent-kafka, that starts at the group's committed offsets. If
nothing is committed it fails, so that a wrong offset is noticed.
"""

from __future__ import annotations

import concurrent.futures
import contextlib
import subprocess
import threading
import time
from typing import TYPE_CHECKING, NamedTuple, Self

from confluent_kafka import Consumer, KafkaError, TopicPartition

from mirror.host import require_java
from mirror.playground.jars import kafka_jars
from tests.harness.admin import commit_offsets, create_topic, end_offsets
from tests.harness.load import producer
from tests.harness.waiting import PATIENCE_SECONDS, crowd, deadline_in, wait_for
from tests.harness.witness import read_topic

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping
    from pathlib import Path

    from confluent_kafka import Producer

PLAIN, TRANSACTIONS, COMPACTED = "plain", "transactions", "compacted"
FILTERED, MERGED = "filtered", "merged"
_IN_ONE_TRANSACTION = 500
_ABORTED = 5
"""One transaction in five."""


class Seen(NamedTuple):
    """A record, as a reader saw it."""

    offset: int
    key: bytes


class Loads:
    """Writes into partition 0 of five topics, some more each time."""

    def __init__(self, bootstrap: str, other: str) -> None:
        """`other` is the second source of what is merged."""
        self.bootstrap, self.other = bootstrap, other
        self._sent = 0
        self._transactions = 0

    def create_topics(self) -> None:
        create_topic(self.bootstrap, PLAIN, 2)  # of which one stays empty
        for topic in (TRANSACTIONS, FILTERED, MERGED):
            create_topic(self.bootstrap, topic)
        create_topic(self.other, MERGED)
        create_topic(
            self.bootstrap, COMPACTED, cleanup_policy="compact", segment_ms="1000",
            min_cleanable_dirty_ratio="0.001", max_compaction_lag_ms="1000",
        )  # fmt: skip

    def send(self, count: int) -> None:
        """So many further records for each topic that readers can see."""
        numbers = range(self._sent, self._sent + count)
        self._sent += count
        here, there = producer(self.bootstrap), producer(self.other)
        for number in numbers:
            key = b"a%d" % number
            for topic in (PLAIN, FILTERED, MERGED):
                _put(here, topic, key)
            _put(here, COMPACTED, key if number % 10 else b"hot")
            _put(there, MERGED, b"c%d" % number)
        for client in (here, there):
            assert client.flush(60) == 0
        self._send_in_transactions(numbers)

    @contextlib.contextmanager
    def streaming(self) -> Iterator[None]:
        """Go on sending while the block runs."""
        stop = threading.Event()

        def run() -> None:
            while not stop.wait(0.5):
                self.send(_IN_ONE_TRANSACTION)

        with concurrent.futures.ThreadPoolExecutor(1) as thread:
            sending = thread.submit(run)
            try:
                yield
            finally:
                stop.set()
            sending.result()

    def _send_in_transactions(self, numbers: range) -> None:
        self._transactions += 1
        end = end_offsets(self.bootstrap, TRANSACTIONS)[0]
        name = f"loads-{self._transactions}"
        client = producer(self.bootstrap, transactional_id=name)
        client.init_transactions(30)
        for index, first in enumerate(range(0, len(numbers), _IN_ONE_TRANSACTION)):
            part = numbers[first : first + _IN_ONE_TRANSACTION]
            if index % _ABORTED == 0:
                client.begin_transaction()
                for number in part[:50]:
                    _put(client, TRANSACTIONS, b"aborted-%d" % number)
                assert client.flush(30) == 0
                client.abort_transaction(30)
                end += len(part[:50]) + 1
            client.begin_transaction()
            for number in part:
                _put(client, TRANSACTIONS, b"a%d" % number)
            client.commit_transaction(30)
            end += len(part) + 1
        # A transaction has ended before its marker is in the log.
        wait_for(lambda: end_offsets(self.bootstrap, TRANSACTIONS)[0] >= end)


def _put(client: Producer, topic: str, key: bytes) -> None:
    while True:
        try:
            client.produce(topic, key=key, value=b"v" * 20, partition=0)
            break
        except BufferError:
            client.poll(0.05)


def log_of(bootstrap: str, topic: str) -> list[Seen]:
    """Partition 0, whole."""
    return [Seen(m.offset(), m.key()) for m in read_topic(bootstrap, topic)[0]]


def behind(log: list[Seen], lag: int) -> tuple[int, list[Seen]]:
    """The offset of a group that has read all but the last records, and those."""
    read = max(len(log) - lag, 0)
    return (log[read - 1].offset + 1 if read else 0), log[read:]


def newest(keys: Iterable[bytes]) -> list[bytes]:
    """Each key once, at its last place."""
    return list(dict.fromkeys(reversed(list(keys))))[::-1]


class Reader:
    """A member of a group; a context manager."""

    def __init__(
        self,
        bootstrap: str,
        group: str,
        topics: Iterable[str],
        *,
        protocol: str = "classic",
    ) -> None:
        self._consumer = Consumer(
            {
                "bootstrap.servers": bootstrap,
                "group.id": group,
                "auto.offset.reset": "error",
                "enable.auto.commit": False,
                "enable.partition.eof": True,
                "fetch.wait.max.ms": 50,
                "isolation.level": "read_committed",
                "group.protocol": protocol,
            }
        )
        self._consumer.subscribe(list(topics))

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._consumer.close()

    def join(self, timeout: float = 30) -> None:
        """Become a member, before anything is read that a test would miss."""
        deadline = deadline_in(timeout)
        while not self._consumer.assignment():
            assert time.monotonic() < deadline, "no assignment"
            self._consumer.poll(0.2)

    def read(self, partitions: int, timeout: float = 60) -> dict[str, list[Seen]]:
        """Everything, once this many partitions are read to the end."""
        found: dict[str, list[Seen]] = {}
        ends: set[tuple[str, int]] = set()
        deadline = deadline_in(timeout)
        while len(ends) < partitions:
            assert time.monotonic() < deadline, f"only the ends of {ends}"
            for message in self._consumer.consume(10_000, 0.05):
                error = message.error()
                if error is None:
                    seen = Seen(message.offset(), message.key())
                    found.setdefault(message.topic(), []).append(seen)
                elif error.code() == KafkaError._PARTITION_EOF:
                    ends.add((message.topic(), message.partition()))
                else:
                    raise AssertionError(error)
        return found

    def commit(self, offsets: Mapping[str, int]) -> None:
        """For partition 0 of topics."""
        commit(self._consumer, offsets)


def commit(consumer: Consumer, offsets: Mapping[str, int]) -> None:
    """For partition 0 of topics, and wait until it is so."""
    places = [TopicPartition(topic, 0, offset) for topic, offset in offsets.items()]
    commit_offsets(consumer, places)


def commit_for(bootstrap: str, group: str, offsets: Mapping[str, int]) -> None:
    """As a group without members."""
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": group})
    try:
        commit(consumer, offsets)
    finally:
        consumer.close()


def committed(bootstrap: str, group: str, topic: str) -> int | None:
    """The group's offset in partition 0 of a topic; None without one."""
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": group})
    try:
        places = [TopicPartition(topic, 0)]
        (found,) = consumer.committed(places, timeout=PATIENCE_SECONDS)
        return found.offset if found.offset >= 0 else None
    finally:
        consumer.close()


def run_java(jars: str, *arguments: str | Path) -> str:
    """Run a class of Kafka's, or a source file, with some of its jars; its stdout."""
    done = subprocess.run(
        [
            *(require_java(), "-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC"),
            *("-Dorg.slf4j.simpleLogger.defaultLogLevel=error", "-cp"),
            *(kafka_jars(jars), *arguments),
        ],
        capture_output=True,
        text=True,
        check=False,
        timeout=PATIENCE_SECONDS * crowd(),
    )
    assert done.returncode == 0, done.stdout + done.stderr[-3000:]
    return done.stdout
