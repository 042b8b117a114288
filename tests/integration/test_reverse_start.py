"""Where a way back begins, on real brokers, with markers that they wrote themselves."""

from __future__ import annotations

import contextlib
import time
from typing import TYPE_CHECKING

from confluent_kafka import Producer
import numpy as np
import pytest

from mirror.clusters.cluster import Cluster
from mirror.config.cluster_settings import ClusterConfig
from mirror.config.schema import FlowConfig
from mirror.offsets import holes, reverse_start
from mirror.offsets.reverse_start import Start, find_starts
from mirror.offsets.runs import Block, encode, topic_name
from tests.harness.admin import create_topic, end_offsets
from tests.harness.connections import connected
from tests.harness.load import producer
from tests.harness.waiting import crowd, wait_for

if TYPE_CHECKING:
    from collections.abc import Callable

    from mirror.playground.cluster import PlaygroundCluster

pytestmark = pytest.mark.integration

_EACH = 500
"""Records of a transaction."""


class Flow:
    """Writes copies and the map as a flow does, through an ordinary client."""

    def __init__(self, cluster: Cluster, bootstrap: str, topic: str) -> None:
        self.flow = FlowConfig(source="A", target="B", separator=f".{topic}.")
        self.map = topic_name("A", self.flow.separator)
        create_topic(bootstrap, topic)
        create_topic(bootstrap, self.map)
        self._cluster = cluster
        self._topic = topic
        self._topic_id = cluster.wait_for_topic(topic).topic_id
        self._client = producer(
            bootstrap, transactional_id=f"{topic}-flow", linger_ms=0
        )
        self._client.init_transactions(30)
        self.end = 0
        self._copied = 0

    def copy(
        self,
        count: int = _EACH,
        *,
        commit: bool = True,
        meanwhile: Callable[[], None] | None = None,
    ) -> None:
        """A transaction; the next record that somebody else writes is at `end`."""
        self._client.begin_transaction()
        for _ in range(count):
            self._client.produce(self._topic, value=b"v", partition=0)
        block = Block(
            topic=self._topic, partition=0, target_topic=self._topic,
            topic_id=self._topic_id, copy_id=self._topic_id,
            runs=np.array([(self._copied, self.end, count)], np.int64),
        )  # fmt: skip
        for value in encode([block]):
            self._client.produce(self.map, key=b"", value=value, partition=0)
        if meanwhile is not None:
            assert self._client.flush(30) == 0
            meanwhile()
            self.end += 1
        if commit:
            self._client.commit_transaction(30)
            self._copied += count
        else:
            assert self._client.flush(30) == 0
            self._client.abort_transaction(30)
        self.end += count + 1

    def start(self, position: int = 0) -> Start:
        key = (self._topic, 0)
        found = find_starts(self.flow, self._cluster, {key: key}, {key: position})
        return found[key]


@pytest.fixture
def looked(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """How many holes were looked into, each time."""
    counts: list[int] = []
    look = holes.look

    def count(*args: object) -> object:
        counts.append(len(args[4]))
        return look(*args)

    monkeypatch.setattr(holes, "look", count)
    return counts


def test_it_begins_at_the_first_record_of_another_writer(
    clusters: dict[str, PlaygroundCluster], topic_name: str, looked: list[int]
) -> None:
    """Copies, their markers and what the flow aborted are passed without looking into
    more than a few offsets; the first record of another producer, plain or in a
    transaction, is where the way back begins, and not one that was aborted.
    """
    bootstrap = clusters["b"].bootstrap
    with connected(bootstrap) as cluster:
        flow = Flow(cluster, bootstrap, topic_name)

        def settle() -> None:
            """A transaction has ended before its marker is in the log."""
            wait_for(lambda: end_offsets(bootstrap, topic_name) == {0: flow.end})

        for _ in range(30):
            flow.copy(20)
        settle()
        assert flow.start() == Start(flow.end, sure=True)
        assert looked == []
        flow.copy(7, commit=False)
        for _ in range(30):
            flow.copy(20)
        settle()
        assert flow.start() == Start(flow.end, sure=True)
        assert sum(looked) < 12
        assert end_offsets(bootstrap, topic_name) == {0: flow.end}
        other = Producer(
            {"bootstrap.servers": bootstrap, "transactional.id": f"{topic_name}-other"}
        )
        other.init_transactions(30)
        for commits in (False, True):
            other.begin_transaction()
            other.produce(topic_name, value=b"mine", partition=0)
            assert other.flush(30) == 0
            if commits:
                first = flow.end
                other.commit_transaction(30)
            else:
                other.abort_transaction(30)
            flow.end += 2
            settle()
            for _ in range(5):
                flow.copy(20)
            settle()
        looked.clear()
        assert flow.start() == Start(first, sure=True)
        assert sum(looked) < 30
        # From behind it on there is none.
        assert flow.start(first + 1) == Start(flow.end, sure=True)
        assert flow.start(flow.end) == Start(flow.end, sure=True)
        plain = producer(bootstrap)
        plain.produce(topic_name, value=b"mine", partition=0)
        assert plain.flush(30) == 0
        assert flow.start(first + 1) == Start(flow.end, sure=True)


def test_it_is_found_while_transactions_are_open(
    clusters: dict[str, PlaygroundCluster], topic_name: str, looked: list[int]
) -> None:
    """Below the last stable offset a log is explained without looking at its markers,
    even if the marker of a transaction stands behind that offset.
    """
    bootstrap = clusters["b"].bootstrap
    config = ClusterConfig(alias="B", bootstrap_servers=(bootstrap,))
    other = Producer(
        {"bootstrap.servers": bootstrap, "transactional.id": f"{topic_name}-other"}
    )
    other.init_transactions(30)

    def write() -> None:
        other.begin_transaction()
        other.produce(topic_name, value=b"mine", partition=0)
        assert other.flush(30) == 0

    with contextlib.closing(Cluster(config).connect()) as cluster:
        flow = Flow(cluster, bootstrap, topic_name)
        for _ in range(50):
            flow.copy(20)
        flow.copy(20, meanwhile=write)
        stable = flow.end - 2
        flow.copy(20)
        assert flow.start() == Start(stable, sure=True)
        assert sum(looked) == 0
        other.abort_transaction(30)


@pytest.mark.full
def test_ten_million_copies(
    clusters: dict[str, PlaygroundCluster],
    topic_name: str,
    looked: list[int],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Ten million copies in 20,000 transactions take a few seconds, most of which are
    for reading the map, and a second more with a record hidden among them.
    """
    bootstrap = clusters["b"].bootstrap
    with connected(bootstrap) as cluster:
        flow = Flow(cluster, bootstrap, topic_name)
        plain = producer(bootstrap)
        for number in range(20_000):
            flow.copy()
            if number == 15_000:
                hidden = flow.end
                plain.produce(topic_name, value=b"mine", partition=0)
                assert plain.flush(30) == 0
                flow.end += 1
        for position, wanted in ((0, hidden), (hidden + 1, flow.end)):
            begun = time.monotonic()
            assert flow.start(position) == Start(wanted, sure=True)
            took = time.monotonic() - begun
            print(f"from {position}: {took:.2f} s, {sum(looked)} holes")
            assert took < 10 * crowd()
            looked.clear()
        # The most there is to do: if no marker could be counted.
        monkeypatch.setattr(reverse_start, "_MOST_ROWS", 0)
        begun = time.monotonic()
        assert flow.start() == Start(hidden, sure=True)
        took = time.monotonic() - begun
        print(f"without counting: {took:.2f} s, {sum(looked)} holes")
