"""An application of a pair of clusters: it writes numbered records and reads them all.

Main type: `Application`, made of ordinary confluent-kafka clients. It counts what its
group reads, wherever it runs: after any number of switches each key must be there once.
"""

from __future__ import annotations

from collections import Counter
import contextlib
import threading
import time
from typing import TYPE_CHECKING

from confluent_kafka import (
    Consumer,
    KafkaError,
    KafkaException,
    Producer,
    TopicPartition,
)

from tests.harness.waiting import crowd, deadline_in

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from confluent_kafka import Message

_READ_SECONDS = 60.0
_VALUE = b"x" * 100


class Application:
    """Producers and one consumer group of an application."""

    def __init__(
        self, topic: str, partitions: int, group: str, *, transactions: bool = False
    ) -> None:
        """`transactions`: it writes in transactions, after one that it aborts."""
        self.topic = topic
        self.group = group
        self.read: Counter[bytes] = Counter()
        self.written: list[bytes] = []
        """Keys that brokers have acknowledged."""
        self.lost: set[bytes] = set()
        """Keys that went with a cluster."""
        self._partitions = partitions
        self._number = 0
        self._transactions = transactions

    def write(
        self, bootstrap: str, count: int, *, gone: threading.Event | None = None
    ) -> bool:
        """Write `count` records; returns whether brokers acknowledged all of them.
        `gone`: set when no broker will answer any more. In transactions also 0 records
        end what an earlier call left open.
        """
        if self._transactions:
            return self._write_in_transaction(bootstrap, count, gone)
        client = Producer(
            {
                "bootstrap.servers": bootstrap,
                "acks": "all",
                "message.timeout.ms": int(5000 * crowd()),
            }
        )
        before = len(self.written)

        def delivered(error: KafkaError | None, message: Message) -> None:
            if error is None:
                self.written.append(message.key() or b"")

        for key, to in self._keys(count):
            client.produce(
                self.topic, key=key, value=_VALUE, partition=to, on_delivery=delivered
            )
        while client.flush(1):
            if gone is not None and gone.is_set():
                client.purge()
        return len(self.written) == before + count

    def _keys(self, count: int) -> list[tuple[bytes, int]]:
        """The next ones, with their partitions."""
        numbers = range(self._number + 1, self._number + 1 + count)
        self._number += count
        places = [(number % self._partitions, number) for number in numbers]
        return [(b"%d:%d" % place, place[0]) for place in places]

    def _write_in_transaction(
        self, bootstrap: str, count: int, gone: threading.Event | None
    ) -> bool:
        seconds = 10.0 * crowd()
        client = Producer(
            {"bootstrap.servers": bootstrap, "transactional.id": f"{self.topic}-writer"}
        )
        keys = self._keys(count)
        try:
            client.init_transactions(seconds)
            if not keys:
                return True
            client.begin_transaction()
            client.produce(self.topic, key=b"aborted", value=_VALUE, partition=0)
            if not _flushed(client, gone):
                return False
            client.abort_transaction(seconds)
            client.begin_transaction()
            for key, to in keys:
                client.produce(self.topic, key=key, value=_VALUE, partition=to)
            if not _flushed(client, gone):
                return False
            client.commit_transaction(seconds)
        except KafkaException:
            return False
        self.written += [key for key, _ in keys]
        return True

    @contextlib.contextmanager
    def writing(
        self, bootstrap: str, *, gone: threading.Event | None = None
    ) -> Iterator[threading.Event]:
        """Write until the block ends, the event that it gives is set, or the cluster is
        `gone`.
        """
        stop = threading.Event()

        def run() -> None:
            while not stop.wait(0.05) and self.write(bootstrap, 20, gone=gone):
                pass

        thread = threading.Thread(target=run)
        thread.start()
        try:
            yield stop
        finally:
            stop.set()
            thread.join()

    def consume(
        self, bootstrap: str, topics: Sequence[str], *, most: int = 1 << 30
    ) -> int:
        """Read as a member of the group to the end of the topics, or `most` records;
        commit exactly what was read, and leave. Returns how many.
        """
        client = Consumer(
            {
                "bootstrap.servers": bootstrap,
                "group.id": self.group,
                "enable.auto.commit": False,
                "enable.partition.eof": True,
                "fetch.wait.max.ms": 50,
                "auto.offset.reset": "earliest",
                "isolation.level": "read_committed",
            }
        )
        unread: set[tuple[str, int]] | None = None

        def assigned(_: Consumer, given: Sequence[TopicPartition]) -> None:
            nonlocal unread
            unread = {(place.topic, place.partition) for place in given}

        client.subscribe(list(topics), on_assign=assigned)
        places: dict[tuple[str, int], int] = {}
        found, deadline = 0, deadline_in(_READ_SECONDS)
        try:
            while found < most and (unread is None or unread):
                assert time.monotonic() < deadline, f"{found} read, left: {unread}"
                message = client.poll(0.2)
                if message is None:
                    continue
                where = (message.topic() or "", message.partition() or 0)
                error = message.error()
                if error is None:
                    if "mirror.filler" not in dict(message.headers() or ()):
                        self.read[message.key() or b""] += 1
                    places[where] = (message.offset() or 0) + 1
                    found += 1
                elif error.code() == KafkaError._PARTITION_EOF and unread:
                    unread.discard(where)
            if places:
                committed = [TopicPartition(*k, o) for k, o in places.items()]
                client.commit(offsets=committed, asynchronous=False)
        finally:
            client.close()
        return found

    def require_each_once(self) -> None:
        """Every record that was acknowledged, and is not lost, was read once, over all
        clusters.
        """
        missing = [k for k in self.written if k not in self.read and k not in self.lost]
        twice = [key for key, count in self.read.items() if count > 1]
        assert not missing, f"{len(missing)} never read, such as {missing[0]!r}"
        assert not twice, f"{len(twice)} read again, such as {twice[0]!r}"


def _flushed(client: Producer, gone: threading.Event | None) -> bool:
    """Whether brokers have answered to all that it has sent."""
    while client.flush(1):
        if gone is not None and gone.is_set():
            return False
    return True
