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

from confluent_kafka import Consumer, Producer, TopicPartition

from tests.harness.waiting import deadline_in

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from confluent_kafka import KafkaError, Message

_QUIET_SECONDS = 2.0


class Application:
    """Producers and one consumer group of an application."""

    def __init__(self, topic: str, partitions: int, group: str) -> None:
        self.topic = topic
        self.group = group
        self.read: Counter[bytes] = Counter()
        self.written: list[bytes] = []
        """Keys that brokers have acknowledged."""
        self.lost: set[bytes] = set()
        """Keys that went with a cluster."""
        self._partitions = partitions
        self._number = 0

    def write(self, bootstrap: str, count: int) -> bool:
        """Write so many records; returns whether brokers acknowledged all of them."""
        client = Producer(
            {"bootstrap.servers": bootstrap, "acks": "all", "message.timeout.ms": 5000}
        )
        before = len(self.written)

        def delivered(error: KafkaError | None, message: Message) -> None:
            if error is None:
                self.written.append(message.key() or b"")

        for _ in range(count):
            self._number += 1
            to = self._number % self._partitions
            client.produce(
                self.topic,
                key=b"%d:%d" % (to, self._number),
                value=b"x" * 100,
                partition=to,
                on_delivery=delivered,
            )
        client.flush(60)
        return len(self.written) == before + count

    @contextlib.contextmanager
    def writing(self, bootstrap: str) -> Iterator[threading.Event]:
        """Write until the block ends, the event that it gives is set, or the cluster is
        gone.
        """
        stop = threading.Event()

        def run() -> None:
            while not stop.wait(0.05) and self.write(bootstrap, 20):
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
        """Read as a member of the group until nothing comes any more, or so many
        records; commit exactly what was read, and leave. Returns how many.
        """
        client = Consumer(
            {
                "bootstrap.servers": bootstrap,
                "group.id": self.group,
                "enable.auto.commit": False,
                "auto.offset.reset": "earliest",
                "isolation.level": "read_committed",
            }
        )
        assigned = threading.Event()
        client.subscribe(list(topics), on_assign=lambda *_: assigned.set())
        places: dict[tuple[str, int], int] = {}
        found, quiet = 0, deadline_in(30)
        try:
            while found < most and time.monotonic() < quiet:
                if self._took(client.poll(0.2), places):
                    found += 1
                    quiet = deadline_in(_QUIET_SECONDS)
                elif assigned.is_set() and not found:
                    quiet = min(quiet, deadline_in(_QUIET_SECONDS))
            if places:
                committed = [TopicPartition(*k, o) for k, o in places.items()]
                client.commit(offsets=committed, asynchronous=False)
        finally:
            client.close()
        return found

    def _took(
        self, message: Message | None, places: dict[tuple[str, int], int]
    ) -> bool:
        """Whether a record came; it counts as read, and `places` is behind it."""
        if message is None or message.error() is not None:
            return False
        self.read[message.key() or b""] += 1
        where = (message.topic() or "", message.partition() or 0)
        places[where] = (message.offset() or 0) + 1
        return True

    def require_each_once(self) -> None:
        """Every record that was acknowledged, and is not lost, was read once, over all
        clusters.
        """
        missing = [k for k in self.written if k not in self.read and k not in self.lost]
        twice = [key for key, count in self.read.items() if count > 1]
        assert not missing, f"{len(missing)} never read, such as {missing[0]!r}"
        assert not twice, f"{len(twice)} read again, such as {twice[0]!r}"
