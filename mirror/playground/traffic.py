"""Produces records on the source, and counts what arrives on the target.

Main types: `Producing`, a thread that writes numbered records at a steady pace, and
`Counting`, a thread that reads their copies with an ordinary read_committed consumer.
Both use kafka-python, not our own connections, to be independent witnesses.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
import threading
import time
from typing import TYPE_CHECKING

from kafka import KafkaConsumer, KafkaProducer, TopicPartition
from kafka.errors import KafkaError

from mirror.errors import PlaygroundError

if TYPE_CHECKING:
    from collections.abc import Sequence

_TICK_SECONDS = 0.1
_CHUNK = 1000
_ACK_SECONDS = 60.0
_POLL_MS = 200


def key_of(number: int) -> bytes:
    """The key of a record, which is unique."""
    return b"%08d" % number


def value_of(number: int) -> bytes:
    """The value of a record, which its copy must have too."""
    return b'{"number": %d, "amount": %d.%02d, "currency": "EUR"}' % (
        number,
        number % 499,
        number % 97,
    )


class Producing:
    """Writes a number of records, in rounds; each round is acknowledged at its end."""

    def __init__(self, bootstrap: str, topics: Sequence[str]) -> None:
        self.produced = 0
        self._topics = topics
        # kafka-python's producer is idempotent: it writes no record twice itself.
        self._producer = KafkaProducer(
            bootstrap_servers=bootstrap, acks="all", linger_ms=5
        )
        self._ending = threading.Event()
        self._thread: threading.Thread | None = None
        self._error: Exception | None = None

    def produce(self, count: int) -> None:
        """Write records at full speed.

        Raises:
            PlaygroundError: the cluster does not accept them.
        """
        try:
            while count and not self._ending.is_set():
                self._send(min(count, _CHUNK))
                count -= min(count, _CHUNK)
        except KafkaError as error:
            raise PlaygroundError(f"producing failed: {error}") from error

    def start(self, count: int, *, seconds: float) -> None:
        """Write records in the background, evenly over these seconds."""
        self._thread = threading.Thread(
            target=self._keep_pace, args=(count, seconds), name="demo-producing"
        )
        self._thread.start()

    @property
    def done(self) -> bool:
        """Whether all records are acknowledged.

        Raises:
            PlaygroundError: producing has failed.
        """
        if self._error is not None:
            raise PlaygroundError(f"producing failed: {self._error}") from self._error
        return self._thread is not None and not self._thread.is_alive()

    def close(self) -> None:
        self._ending.set()
        if self._thread is not None:
            self._thread.join()
        self._producer.close()

    def _keep_pace(self, count: int, seconds: float) -> None:
        first, started = self.produced, time.monotonic()
        try:
            while (sent := self.produced - first) < count:
                passed = time.monotonic() - started
                due = min(count, int(count * passed / seconds) + 1) - sent
                if due > 0:
                    self._send(min(due, _CHUNK))
                elif self._ending.wait(_TICK_SECONDS):
                    return
        except KafkaError as error:
            self._error = error

    def _send(self, count: int) -> None:
        numbers = range(self.produced, self.produced + count)
        sent = [
            self._producer.send(
                self._topics[number % len(self._topics)],
                key=key_of(number),
                value=value_of(number),
            )
            for number in numbers
        ]
        for each in sent:
            each.get(timeout=_ACK_SECONDS)
        self.produced += count


@dataclass(frozen=True, slots=True, kw_only=True)
class TrafficVerdict:
    """The result for the records that were produced."""

    produced: int
    on_target: int
    duplicates: int
    missing: int
    changed: int
    """Copies with a wrong value, or of records that were never produced."""
    out_of_order: int

    @property
    def exactly_once(self) -> bool:
        return self.on_target == self.produced and not (
            self.duplicates or self.missing or self.changed or self.out_of_order
        )


class Counting:
    """Reads the copies from the start, without a pause, until closed."""

    def __init__(self, bootstrap: str, partitions: Sequence[tuple[str, int]]) -> None:
        self._consumer = KafkaConsumer(
            bootstrap_servers=bootstrap,
            isolation_level="read_committed",
            auto_offset_reset="earliest",
            enable_auto_commit=False,
        )
        self._partitions = [TopicPartition(*partition) for partition in partitions]
        self._consumer.assign(self._partitions)
        self._seen: Counter[bytes] = Counter()
        self._changed = self._out_of_order = 0
        self._newest_key: dict[TopicPartition, bytes] = {}
        self._newest_ms = dict.fromkeys(self._partitions, 0)
        self._arrived_at = time.monotonic()
        self._ending = threading.Event()
        self._thread = threading.Thread(target=self._read, name="demo-counting")
        self._thread.start()

    @property
    def distinct(self) -> int:
        """How many different records have arrived."""
        return len(self._seen)

    def quiet_for(self) -> float:
        """Seconds since a record arrived."""
        return time.monotonic() - self._arrived_at

    def all_newer_than(self, epoch_seconds: float) -> bool:
        """Whether each partition has a copy of a record produced after that time."""
        return min(self._newest_ms.values()) > epoch_seconds * 1000

    def verdict(self, produced: int) -> TrafficVerdict:
        """Compare with what was produced, numbered from zero."""
        missing = sum(key_of(number) not in self._seen for number in range(produced))
        strangers = len(self._seen) - (produced - missing)
        on_target = self._seen.total()
        return TrafficVerdict(
            produced=produced,
            on_target=on_target,
            duplicates=on_target - len(self._seen),
            missing=missing,
            changed=self._changed + strangers,
            out_of_order=self._out_of_order,
        )

    def close(self) -> None:
        self._ending.set()
        self._thread.join()
        self._consumer.close()

    def _read(self) -> None:
        while not self._ending.is_set():
            for partition, records in self._consumer.poll(_POLL_MS).items():
                newest = self._newest_key.get(partition, b"")
                for record in records:
                    self._seen[record.key] += 1
                    self._changed += record.value != value_of(int(record.key))
                    self._out_of_order += record.key <= newest
                    newest = record.key
                self._newest_key[partition] = newest
                self._newest_ms[partition] = records[-1].timestamp
                self._arrived_at = time.monotonic()
