"""What an ordinary consumer of confluent-kafka finds, which shares no code with mirror.

Main functions: `read_topic`, `order_of`, `assert_exactly_once`; `log_of`, `seen` and
`compare` for copies that are to be as the source, offsets included. `Witness` reads one
topic after the other, or one for as long as records come.
"""

from __future__ import annotations

from collections import Counter
from contextlib import closing
from itertools import zip_longest
import time
from typing import TYPE_CHECKING, Any, NamedTuple, Self

from confluent_kafka import (
    OFFSET_BEGINNING,
    Consumer,
    KafkaError,
    Message,
    TopicPartition,
)

from tests.harness.waiting import PATIENCE_SECONDS, deadline_in

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence

    from tests.harness.slots import RunningLease

_READ_ON_SECONDS = 3.0
"""Then a topic is looked up again: it may be new, or have new partitions."""

_MARKER_SECONDS = 3.0
"""A commit is answered before its markers are written; what is open after this stays
so.
"""

Order = dict[int, list[bytes]]
"""The keys of each partition, in the order a consumer saw them."""


def _consumer(bootstrap: str, **settings: Any) -> Consumer:
    return Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": "witness",
            "enable.auto.commit": False,
            "auto.offset.reset": "earliest",
            "enable.partition.eof": True,
            "isolation.level": "read_committed",
            "check.crcs": True,
            "fetch.wait.max.ms": 50,  # an end is known by an answer without records
            **settings,
        }
    )


def read_topic(
    bootstrap: str, topic: str, *, timeout: float = 120, **settings: Any
) -> dict[int, list[Message]]:
    """What an ordinary read_committed consumer finds from beginning to end; it waits
    for markers that are on their way, and not for transactions that are left open.
    """
    found = read_topics(bootstrap, [topic], timeout=timeout, **settings)
    return {partition: messages for (_, partition), messages in found.items()}


def read_topics(
    bootstrap: str, topics: Iterable[str], *, timeout: float = 120, **settings: Any
) -> dict[tuple[str, int], list[Message]]:
    """As `read_topic`, of several topics at once."""
    with closing(_consumer(bootstrap, **settings)) as consumer:
        found: dict[tuple[str, int], list[Message]] = {
            (topic, number): []
            for topic in topics
            for number in _partitions(consumer, topic)
        }
        for message in _messages(consumer, found, timeout):
            found[message.topic(), message.partition()].append(message)
        return found


def _partitions(consumer: Consumer, topic: str) -> Collection[int]:
    return consumer.list_topics(topic, 30).topics[topic].partitions


def _messages(
    consumer: Consumer, places: Iterable[tuple[str, int]], timeout: float
) -> Iterator[Message]:
    """What is in these partitions, from their beginnings to their ends."""
    open_ends = set(places)
    consumer.assign([TopicPartition(*key, OFFSET_BEGINNING) for key in open_ends])
    logs: dict[tuple[str, int], int] = {}
    deadline = settled = deadline_in(timeout)
    while open_ends and time.monotonic() < settled:
        assert time.monotonic() < deadline, f"{open_ends} have no end"
        for message in consumer.consume(5000, 0.02):
            error = message.error()
            key = (message.topic(), message.partition())
            if error is None:
                yield message
            elif error.code() == KafkaError._PARTITION_EOF:
                # The end of what is stable, and where the log ends beyond it.
                if key not in logs:
                    place = TopicPartition(*key)
                    logs[key] = consumer.get_watermark_offsets(place, cached=True)[1]
                if message.offset() >= logs[key]:
                    open_ends.discard(key)
            else:
                raise AssertionError(error)
        if settled == deadline and open_ends <= logs.keys():
            settled = time.monotonic() + _MARKER_SECONDS


Seen = tuple[object, ...]
"""All that an application sees of a record."""


def seen(message: Message) -> Seen:
    """What a copy must have, too: all but the header that mirror adds."""
    headers = [each for each in message.headers() or () if each[0] != "mirror.via"]
    return (
        message.offset(), message.key(), message.value(), message.timestamp(), headers
    )  # fmt: skip


def log_of(bootstrap: str, topic: str) -> dict[int, list[Seen]]:
    """All that an application sees of each record, by partition."""
    return {
        partition: [seen(each) for each in messages]
        for partition, messages in read_topic(bootstrap, topic).items()
    }


class Compared(NamedTuple):
    """How a copy differs from its source."""

    equal: int
    """How many records are the same on both, at the same offset."""
    different: list[tuple[int, int]]
    """Partition and offset of those that are not, or that one side alone has."""


def compare(
    source: tuple[str, str], copy: tuple[str, str], *, timeout: float = 300
) -> Compared:
    """Hold a copy against its source, record by record, without keeping them all. Each
    is a cluster's address and the topic's name there.
    """
    with (
        closing(_consumer(source[0])) as one,
        closing(_consumer(copy[0])) as other,
    ):
        sides = [
            _messages(each, [(topic, p) for p in _partitions(each, topic)], timeout)
            for each, (_, topic) in ((one, source), (other, copy))
        ]
        alone: tuple[dict[tuple[int, int], Seen], ...] = ({}, {})
        equal, different = 0, []
        for both in zip_longest(*sides):
            for side, message in enumerate(both):
                if message is None:
                    continue
                where, what = (message.partition(), message.offset()), seen(message)
                if (there := alone[1 - side].pop(where, None)) is None:
                    alone[side][where] = what
                elif there == what:
                    equal += 1
                else:
                    different.append(where)
    return Compared(equal, sorted([*different, *alone[0], *alone[1]]))


def order_of(bootstrap: str, topic: str) -> Order:
    """The keys of each partition, as a read_committed consumer sees them."""
    return {
        partition: [message.key() for message in messages]
        for partition, messages in read_topic(bootstrap, topic).items()
    }


def count_keys(bootstrap: str, topic: str) -> tuple[Counter[bytes], Order]:
    """How often each key is there, and in which order per partition."""
    order = order_of(bootstrap, topic)
    return Counter(key for keys in order.values() for key in keys), order


def assert_exactly_once(found: Order, expected: Order) -> None:
    """Every key once, in order, and no others; otherwise it says what is wrong."""
    if found == expected:
        return
    wrong = []
    for partition in sorted(found.keys() | expected.keys()):
        got, wanted = found.get(partition, []), expected.get(partition, [])
        if got == wanted:
            continue
        counts = Counter(got)
        repeated = [key for key, count in counts.items() if count > 1]
        missing = [key for key in wanted if key not in counts]
        foreign = counts.keys() - set(wanted)
        first = next(
            (
                at
                for at, pair in enumerate(zip(got, wanted, strict=False))
                if pair[0] != pair[1]
            ),
            min(len(got), len(wanted)),
        )
        wrong.append(
            f"partition {partition}: {len(got)} records instead of {len(wanted)}; "
            f"{len(missing)} missing {missing[:5]}, {len(repeated)} repeated "
            f"{repeated[:5]}, {len(foreign)} foreign; first difference at {first}: "
            f"{got[first : first + 3]} instead of {wanted[first : first + 3]}"
        )
    raise AssertionError("\n".join(wrong))


def assert_at_least_once(found: Order, expected: Order) -> None:
    """No key is missing and none is foreign; repeats are allowed."""
    for partition, wanted in expected.items():
        assert set(found[partition]) == set(wanted), f"partition {partition}"


def eventually(
    bootstrap: str, topic: str, count: int, *, timeout: float = PATIENCE_SECONDS
) -> dict[int, list[Message]]:
    """What a consumer finds, as soon as it finds at least `count` records."""
    deadline = deadline_in(timeout)
    while True:
        with Witness(bootstrap) as witness:
            have = witness.count(topic, count, _READ_ON_SECONDS)
        if have >= count:
            # From its beginning: it may be another topic of this name by now.
            found = read_topic(bootstrap, topic)
            if (have := sum(map(len, found.values()))) >= count:
                return found
        assert time.monotonic() < deadline, (
            f"{topic}: {have} records of {count} within {timeout} s"
        )


def keys_of(found: Mapping[int, Sequence[Message]]) -> Order:
    return {
        partition: [message.key() for message in messages]
        for partition, messages in found.items()
    }


class Witness:
    """An ordinary read_committed consumer, for one topic at a time; a context manager.
    `found` has the keys that it saw since the last `begin` or `go_on`.
    """

    def __init__(self, bootstrap: str) -> None:
        self.found: Order = {}
        self._ends: dict[int, int] = {}
        self._topic = ""
        self._consumer = _consumer(bootstrap)
        # A read_committed consumer takes the last stable offset for a log's end.
        self._other = _consumer(bootstrap, **{"isolation.level": "read_uncommitted"})

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._consumer.close()
        self._other.close()

    def count(self, topic: str, most: int, seconds: float) -> int:
        """How many records it finds within this time; it stops at `most`."""
        self.begin(topic)
        deadline = time.monotonic() + seconds
        while (have := sum(map(len, self.found.values()))) < most:
            if time.monotonic() > deadline:
                break
            self._look()
        return have

    def begin(self, topic: str) -> None:
        """Read this topic from its beginning."""
        partitions = self._consumer.list_topics(topic, 30).topics[topic].partitions
        self.found = {number: [] for number in partitions}
        self._topic, self._ends = topic, {}
        self._consumer.assign(
            [TopicPartition(topic, p, OFFSET_BEGINNING) for p in self.found]
        )

    def go_on(self) -> None:
        """Forget what was found, and keep reading after it."""
        self.found = {number: [] for number in self.found}

    def wait(
        self, count: int, timeout: float, lease: RunningLease | None = None
    ) -> None:
        """Read until there are `count` records."""
        deadline = deadline_in(timeout)
        while (have := sum(map(len, self.found.values()))) < count:
            assert time.monotonic() < deadline, f"{have} of {count} in {timeout} s"
            assert lease is None or not lease.ended, f"it ended: {lease.end()}"
            self._look()

    def wait_each(
        self, counts: Mapping[int, int], timeout: float = PATIENCE_SECONDS
    ) -> None:
        """Read until each partition has so many records."""
        deadline = deadline_in(timeout)
        while late := [p for p, n in counts.items() if len(self.found[p]) < n]:
            assert time.monotonic() < deadline, f"{late} are late after {timeout} s"
            self._look()

    def assert_exactly(
        self, topic: str, expected: Order, timeout: float = PATIENCE_SECONDS
    ) -> None:
        """Read it again to its very end: these keys are there, once and in order, and
        no others.
        """
        self.begin(topic)
        self.assert_found(expected, timeout)

    def assert_found(self, expected: Order, timeout: float = PATIENCE_SECONDS) -> None:
        """Read to the very end, after which no transaction is open: these keys were
        found, once and in order, and no others.
        """
        deadline = deadline_in(timeout)
        while len(self._ends) < len(self.found) or self._ends != {
            p: self._other.get_watermark_offsets(TopicPartition(self._topic, p), 30)[1]
            for p in self.found
        }:
            assert time.monotonic() < deadline, "no end is in sight"
            self._look()
        assert_exactly_once(self.found, expected)

    def _look(self) -> None:
        for message in self._consumer.consume(5000, 0.02):
            error = message.error()
            if error is None:
                self.found[message.partition()].append(message.key())
            elif error.code() == KafkaError._PARTITION_EOF:
                self._ends[message.partition()] = message.offset()
            else:
                raise AssertionError(error)
