"""Source transactions: what was committed is copied, in the order of the log."""

from __future__ import annotations

import random
import time
from typing import TYPE_CHECKING

import pytest

from tests.harness.admin import closed_ends, create_topic
from tests.harness.load import producer
from tests.harness.witness import eventually, keys_of, order_of

if TYPE_CHECKING:
    from confluent_kafka import Producer

    from mirror.playground.cluster import PlaygroundCluster
    from tests.harness.service import RunningMirror

pytestmark = pytest.mark.integration


def transactional(bootstrap: str, name: str) -> Producer:
    made = producer(bootstrap, transactional_id=name)
    made.init_transactions(30)
    return made


def put(client: Producer, topic: str, *keys: str) -> None:
    for key in keys:
        client.produce(topic, key=key.encode(), value=b"v", partition=0)
    assert client.flush(30) == 0


def test_committed_aborted_and_open_transactions(
    clusters: dict[str, PlaygroundCluster],
    shared_mirror: RunningMirror,
    shared_topic: str,
) -> None:
    """Committed records arrive in order, aborted ones never; what follows an open
    transaction arrives once that ends, and not before.
    """
    source, target = clusters["a"].bootstrap, clusters["b"].bootstrap
    topic, copy = shared_topic, f"A.{shared_topic}"
    create_topic(source, topic)
    plain = producer(source)
    one, two = (transactional(source, f"{topic}-{name}") for name in ("one", "two"))

    one.begin_transaction()
    put(one, topic, "committed-0", "committed-1")
    one.commit_transaction(30)
    one.begin_transaction()
    two.begin_transaction()
    put(one, topic, "aborted-0")
    put(two, topic, "committed-2")
    put(plain, topic, "plain-0")
    put(one, topic, "aborted-1")
    put(two, topic, "committed-3")
    one.abort_transaction(30)
    two.commit_transaction(30)
    two.begin_transaction()
    put(two, topic, "open-0")
    put(plain, topic, "plain-1")
    one.begin_transaction()
    put(one, topic, "committed-4")
    one.commit_transaction(30)

    before = ["committed-0", "committed-1", "committed-2", "plain-0", "committed-3"]
    found = keys_of(eventually(target, copy, len(before)))
    assert found == {0: [key.encode() for key in before]}
    time.sleep(3)
    assert order_of(target, copy) == found, "an open transaction hides what follows"

    put(two, topic, "open-1")
    two.commit_transaction(30)
    after = [*before, "open-0", "plain-1", "committed-4", "open-1"]
    found = keys_of(eventually(target, copy, len(after)))
    assert found == {0: [key.encode() for key in after]}
    assert found == order_of(source, topic)


def test_many_interleaved_transactions(
    clusters: dict[str, PlaygroundCluster],
    shared_mirror: RunningMirror,
    shared_topic: str,
) -> None:
    """Transactions of three producers, interleaved at random over two partitions and
    ended at random: the copy is what a read_committed consumer sees on the source.
    """
    source, target = clusters["a"].bootstrap, clusters["b"].bootstrap
    create_topic(source, shared_topic, 2)
    chance = random.Random(11)
    clients = {
        number: transactional(source, f"{shared_topic}-{number}") for number in range(3)
    }
    running: set[int] = set()
    for step in range(120):
        number = chance.randrange(3)
        client = clients[number]
        if number not in running:
            client.begin_transaction()
            running.add(number)
        for record in range(chance.randrange(1, 8)):
            client.produce(
                shared_topic,
                key=f"{step}-{record}".encode(),
                value=chance.randbytes(chance.randrange(300)),
                partition=chance.randrange(2),
            )
        assert client.flush(30) == 0
        if chance.random() < 0.4:
            end = (
                client.commit_transaction
                if chance.random() < 0.5
                else client.abort_transaction
            )
            end(30)
            running.discard(number)
    for number in running:
        clients[number].commit_transaction(30)
    closed_ends(source, shared_topic)  # the last markers are there
    wanted = order_of(source, shared_topic)
    count = sum(map(len, wanted.values()))
    assert keys_of(eventually(target, f"A.{shared_topic}", count)) == wanted
