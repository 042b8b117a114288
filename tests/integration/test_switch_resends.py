"""Many switches under load, with a producer that sends refused records again."""

from __future__ import annotations

from collections import deque
import contextlib
import threading
from typing import TYPE_CHECKING, Any

from confluent_kafka import KafkaError, KafkaException, Message, Producer
import pytest

from tests.harness.admin import create_topic
from tests.harness.application import Application
from tests.harness.metadata import allow
from tests.harness.producers import add_users, scram
from tests.harness.service import RunningMirror
from tests.harness.switching import Switch, secured_pair_of
from tests.harness.waiting import wait_for
from tests.harness.witness import order_of

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from mirror.playground.cluster import PlaygroundCluster

pytestmark = [pytest.mark.integration, pytest.mark.full]

PARTITIONS = 3
TIMES = 5
REFUSED = {
    KafkaError.TOPIC_AUTHORIZATION_FAILED,
    # Once one leader has refused, the client takes the topic for empty, and fails with
    # these what it has not sent to the others.
    KafkaError._DESTROY,
    KafkaError._UNKNOWN_PARTITION,
}


class Resending:
    """A producer that turns to the other cluster once one refuses records, and sends
    these there first. No hook and no person says when.
    """

    def __init__(
        self, topic: str, sides: tuple[PlaygroundCluster, PlaygroundCluster]
    ) -> None:
        self.topic = topic
        self.written: list[bytes] = []
        """Keys that a cluster has acknowledged."""
        self.refused = 0
        self._sides = sides
        self._number = 0

    @contextlib.contextmanager
    def running(self) -> Iterator[None]:
        """Until the block ends, and every record is acknowledged."""
        stop = threading.Event()
        thread = threading.Thread(target=self._run, args=(stop,))
        thread.start()
        try:
            yield
        finally:
            stop.set()
            thread.join()

    def _run(self, stop: threading.Event) -> None:
        again: deque[int] = deque()
        at, client = 0, self._client(0)
        while again or not stop.is_set():
            while len(again) < 20 and not stop.is_set():
                self._number += 1
                again.append(self._number)
            sent, refused = sorted(again), list[int]()
            for number in sent:
                try:
                    client.produce(
                        self.topic,
                        key=b"%d" % number,
                        value=b"v" * 100,
                        partition=number % PARTITIONS,
                        on_delivery=self._told(number, refused),
                    )
                except KafkaException as error:  # it knows that the topic is refused
                    _require_refused(error.args[0])
                    refused.append(number)
            assert client.flush(60) == 0
            again = deque(refused)
            if refused:
                self.refused += len(refused)
                at = 1 - at
                client = self._client(at)
            stop.wait(0.05)

    def _told(self, number: int, refused: list[int]) -> Any:
        def delivered(error: KafkaError | None, message: Message) -> None:
            if error is None:
                self.written.append(message.key() or b"")
                return
            _require_refused(error)
            refused.append(number)

        return delivered

    def _client(self, at: int) -> Producer:
        settings = scram(self._sides[at], "alice", "alice")
        # Each flush sends one batch to a partition, so it is accepted or refused whole.
        return Producer({**settings, "acks": "all", "linger.ms": 10_000})


def _require_refused(error: KafkaError) -> None:
    assert error.code() in REFUSED, error


@pytest.mark.parametrize("nodes", [1, 3])
def test_five_times_there_and_back(
    make_clusters: Any, topic_name: str, tmp_path: Path, nodes: int
) -> None:
    """Five switches there and five back, fenced by ACLs, while a producer writes all
    the time and sends what was refused again on the other side, and a group reads a
    part on each: every acknowledged record is once in each cluster's log, as an
    ordinary client reads it, in the producer's order, and the group has read it once.
    """
    made = make_clusters("a", "b", secured=True, nodes=nodes)
    sides = made["a"], made["b"]
    names = ("RSA", "RSB")
    ends = {n: c.admin_bootstrap for n, c in zip(names, sides, strict=True)}
    for cluster in sides:
        add_users(cluster, ["alice"])
        create_topic(cluster.admin_bootstrap, topic_name, PARTITIONS)
    allow(ends["RSA"], "alice", "WRITE", topic_name)
    document = secured_pair_of(*zip(names, sides, strict=True), topic_name)
    document["defaults"]["policy"] = "identity"
    application = Application(topic_name, PARTITIONS, f"app-{topic_name}")
    producer = Resending(topic_name, sides)
    active, other = names
    with RunningMirror(document, tmp_path) as mirror:
        mirror.wait_running(f"{active}->{other}")
        with producer.running():
            wait_for(lambda: len(producer.written) > 200)
            for turn in range(2 * TIMES):
                application.consume(ends[active], [topic_name], most=100 + 40 * turn)
                refused = producer.refused
                Switch(tmp_path, "switch", f"{active}/{other}", "--yes").succeeds()
                active, other = other, active
                mirror.wait_running(f"{active}->{other}")
                assert producer.refused > refused
                there = len(producer.written)
                wait_for(lambda there=there: len(producer.written) > there + 100)
        mirror.wait_copied(ends[active], topic_name, flow=f"{active}->{other}")
        application.consume(ends[active], [topic_name])
    application.written = producer.written
    application.require_each_once()
    for bootstrap in ends.values():
        logs = order_of(bootstrap, topic_name).values()
        found = [[int(key or b"") for key in keys] for keys in logs]
        assert all(numbers == sorted(set(numbers)) for numbers in found)
        assert {*map(int, producer.written)} == {n for keys in found for n in keys}
    print(f"{len(producer.written)} records, {producer.refused} refused and sent again")
