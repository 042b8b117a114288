"""Records to copy: `NumberedLoad` produces keys with partition and number.

So `witness.assert_exactly_once` detects every lost, repeated or reordered record.
"""

from __future__ import annotations

import contextlib
import random
import time
from typing import TYPE_CHECKING, Any

from confluent_kafka import (
    KafkaError,
    Message,
    Producer,
)

from tests.harness.waiting import beside

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    import threading

    from tests.harness.witness import Order

CODECS = ("none", "gzip", "snappy", "lz4", "zstd")


def producer(bootstrap: str, **settings: Any) -> Producer:
    """An idempotent producer; setting names with underscores for dots."""
    return Producer(
        {
            "bootstrap.servers": bootstrap,
            "enable.idempotence": True,
            "queue.buffering.max.messages": 200_000,
            "linger.ms": 5,
            **{name.replace("_", "."): value for name, value in settings.items()},
        }
    )


def send(client: Producer, topic: str, order: Order, value: bytes) -> None:
    """Send a record for each key, and wait until the brokers have them all."""
    failures: list[KafkaError] = []

    def delivered(error: KafkaError | None, _message: Message) -> None:
        if error is not None:
            failures.append(error)

    for partition, names in order.items():
        for key in names:
            while True:
                try:
                    client.produce(
                        topic,
                        key=key,
                        value=value,
                        partition=partition,
                        on_delivery=delivered,
                    )
                    break
                except BufferError:
                    client.poll(0.1)
    assert client.flush(120) == 0
    assert not failures, failures[0]


def keys(partitions: int, each: int, *, first: int = 0) -> Order:
    return {
        partition: [b"%d:%d" % (partition, n) for n in range(first, first + each)]
        for partition in range(partitions)
    }


class NumberedLoad:
    """Records whose keys say partition and number: `<name><partition>:<number>`."""

    def __init__(
        self,
        bootstrap: str,
        topic: str,
        partitions: int,
        *,
        seed: int = 0,
        name: bytes = b"",
        noted: dict[bytes, int] | None = None,
        headers: Sequence[tuple[str, bytes | None]] = (),
    ) -> None:
        """`noted`: where to note at which offset each key is. `headers` of each."""
        self.name = name
        self.age_seconds = 0.0
        """How old records are by their timestamps."""
        self._headers = [*headers]
        self._noted = noted
        self._topic = topic
        self._sent = dict.fromkeys(range(partitions), 0)
        self._random = random.Random(seed)
        # Half of it compresses well, half not at all.
        noise = self._random.randbytes(4096)
        self._content = noise + b"mirror " * 600
        self._bootstrap = bootstrap
        self._producers = self._connect()

    def _connect(self) -> dict[str, Producer]:
        return {
            codec: producer(self._bootstrap, compression_type=codec) for codec in CODECS
        }

    def send(
        self, count: int, *, largest: int = 2048, partition: int | None = None
    ) -> None:
        """Send `count` records with all codecs in turn, and wait for the brokers; to
        all partitions, if none is named.
        """
        choice = range(len(self._sent)) if partition is None else (partition,)
        block = max(1, min(4000, count // len(CODECS)))
        codec = 0
        failures: list[KafkaError] = []

        def delivered(error: KafkaError | None, message: Message) -> None:
            if error is not None:
                failures.append(error)
            elif self._noted is not None:
                self._noted[message.key()] = message.offset()

        while count > 0:
            client = self._producers[CODECS[codec % len(CODECS)]]
            codec += 1
            for _ in range(min(block, count)):
                to = self._random.choice(choice)
                number = self._sent[to]
                self._sent[to] = number + 1
                size = int(largest * self._random.random() ** 3)  # small ones abound
                at = self._random.randrange(len(self._content) - size)
                client.produce(
                    self._topic,
                    key=b"%s%d:%d" % (self.name, to, number),
                    value=self._content[at : at + size],
                    partition=to,
                    on_delivery=delivered,
                    headers=self._headers,
                    timestamp=int((time.time() - self.age_seconds) * 1000),
                )
            count -= block
            # The next codec is another producer: order holds only between flushes.
            assert client.flush(120) == 0
        assert not failures, failures[0]

    @contextlib.contextmanager
    def streaming(
        self, *, chunk: int = 200, pause: float = 0.5, largest: int = 2048
    ) -> Iterator[None]:
        """Go on sending while the block runs, so that a copy has no end."""

        def work(stop: threading.Event) -> None:
            while not stop.wait(pause):
                self.send(chunk, largest=largest)

        with beside(work):
            yield

    def reconnect(self, bootstrap: str) -> None:
        """Go on by asking other brokers."""
        self._bootstrap = bootstrap
        self._producers = self._connect()

    def add_partition(self) -> None:
        """Use one partition more, which must exist by now."""
        self._sent[len(self._sent)] = 0
        self._producers = self._connect()  # the old ones have not heard of it yet

    @property
    def total(self) -> int:
        return sum(self._sent.values())

    @property
    def order(self) -> Order:
        return {
            partition: [b"%s%d:%d" % (self.name, partition, n) for n in range(count)]
            for partition, count in self._sent.items()
        }
