"""Switches with lags up to 100,000 records, and of topics of every kind."""

from __future__ import annotations

from collections import Counter
from itertools import product
import time
from typing import TYPE_CHECKING

from confluent_kafka import Consumer, Producer, TopicPartition
import pytest

from tests.harness.admin import create_topic
from tests.harness.load import producer
from tests.harness.service import RunningMirror
from tests.harness.switching import Switch, pair_of
from tests.harness.waiting import deadline_in
from tests.harness.witness import read_topic

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

    from mirror.playground.cluster import PlaygroundCluster

pytestmark = [pytest.mark.integration, pytest.mark.full]

RECORDS = 120_000
LAGS = (0, 10, 1_000, 100_000)
PARTITIONS = 2
_IN_ONE = 500
"""Records of a transaction."""


def _fill(bootstrap: str, topic: str, numbers: Iterable[int], kind: str) -> None:
    """Write numbered values; the compacted topic has a thousand keys, and every third
    transaction is aborted, with numbers that no reader may see.
    """
    settings = {"transactional_id": f"app-{topic}"} if kind == "transactional" else {}
    client = producer(bootstrap, **settings)
    if not settings:
        _send(client, topic, numbers, kind)
        return
    client.init_transactions(30)
    each = list(numbers)
    for at in range(0, len(each), _IN_ONE):
        part = each[at : at + _IN_ONE]
        if at % (3 * _IN_ONE) == 0:
            client.begin_transaction()
            _send(client, topic, [-1 - n for n in part[:50]], kind)
            client.abort_transaction(30)
        client.begin_transaction()
        _send(client, topic, part, kind)
        client.commit_transaction(30)


def _send(client: Producer, topic: str, numbers: Iterable[int], kind: str) -> None:
    for number in numbers:
        key = b"%d" % (number % 1000 if kind == "compacted" else number)
        while True:
            try:
                client.produce(
                    topic, key=key, value=b"%d" % number, partition=number % PARTITIONS
                )
                break
            except BufferError:
                client.poll(0.1)
    assert client.flush(120) == 0


def _read(
    bootstrap: str, topics: list[str], group: str, most: int | None = None
) -> Counter[int]:
    """What a member of the group reads from where it is, `most` records or all; it
    commits exactly that.
    """
    client = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": group,
            "enable.auto.commit": False,
            "auto.offset.reset": "error",
            "isolation.level": "read_committed",
            "enable.partition.eof": True,
        }
    )
    places = [TopicPartition(t, p) for t in topics for p in range(PARTITIONS)]
    starts = client.committed(places, timeout=30)
    for place in starts:
        place.offset = max(place.offset, 0)
    client.assign(starts)
    found: Counter[int] = Counter()
    after: dict[tuple[str, int], int] = {}
    open_ends = {(place.topic, place.partition) for place in places}
    end = deadline_in(120)
    try:
        while open_ends and (most is None or found.total() < most):
            assert time.monotonic() < end, f"{group}: no end"
            count = 5000 if most is None else min(5000, most - found.total())
            for message in client.consume(count, 0.5):
                where = (message.topic() or "", message.partition() or 0)
                if message.error() is not None:
                    open_ends.discard(where)
                    continue
                found[int(message.value() or b"")] += 1
                after[where] = (message.offset() or 0) + 1
        if after:
            client.commit(
                offsets=[TopicPartition(*k, o) for k, o in after.items()],
                asynchronous=False,
            )
    finally:
        client.close()
    return found


@pytest.mark.parametrize(
    ("kind", "policy", "nodes"),
    [
        *product(["plain", "transactional", "compacted"], ["default", "identity"], [1]),
        ("transactional", "default", 3),
    ],
)
def test_there_and_back(
    request: pytest.FixtureRequest,
    topic_name: str,
    tmp_path: Path,
    kind: str,
    policy: str,
    nodes: int,
) -> None:
    """Groups that are 0, 10, 1,000 and 100,000 records behind when the pair is switched
    read on at the very record, there and after the switch back: each committed record
    is read once by each group, none that was aborted is, and of a compacted topic each
    key's last record.
    """
    clusters: dict[str, PlaygroundCluster] = (
        request.getfixturevalue("clusters")
        if nodes == 1
        else request.getfixturevalue("make_clusters")("a", "b", nodes=nodes)
    )
    one, two = f"Z{kind[0]}{policy[0]}A", f"Z{kind[0]}{policy[0]}B"
    ends = {one: clusters["a"].bootstrap, two: clusters["b"].bootstrap}
    configs = (
        {
            "cleanup_policy": "compact",
            "segment_ms": "1000",
            "min_cleanable_dirty_ratio": "0.01",
            "max_compaction_lag_ms": "1000",
        }
        if kind == "compacted"
        else {}
    )
    for bootstrap in ends.values():
        create_topic(bootstrap, topic_name, PARTITIONS, **configs)
    document = pair_of((one, ends[one]), (two, ends[two]), topic_name)
    document["defaults"] |= {"policy": policy, "groups": [f"{topic_name}-.*"]}
    document["recovery"][f"{one}<->{two}"]["block_seconds"] = 300
    read = {lag: Counter[int]() for lag in LAGS}

    def here(active: str, other: str) -> list[str]:
        return [topic_name] + ([f"{other}.{topic_name}"] if policy == "default" else [])

    with RunningMirror(document, tmp_path) as mirror:
        mirror.wait_running(f"{one}->{two}")
        active, other, first = one, two, 0
        for count in (RECORDS, 2_000):
            numbers = range(first, first + count)
            first += count
            _fill(ends[active], topic_name, numbers, kind)
            for lag in LAGS:
                if count > lag:
                    topics = here(active, other)
                    read[lag] += _read(
                        ends[active], topics, f"{topic_name}-{lag}", count - lag
                    )
            Switch(tmp_path, "switch", f"{active}/{other}", "--yes").succeeds()
            active, other = other, active
        _fill(ends[active], topic_name, range(first, first + 100), kind)
        for lag in LAGS:
            read[lag] += _read(ends[active], here(active, other), f"{topic_name}-{lag}")
        left = {
            int(message.value() or b"")
            for messages in read_topic(ends[active], topic_name).values()
            for message in messages
        }
    for lag, seen in read.items():
        assert max(seen.values()) == 1, f"lag {lag}: records read again"
        assert min(seen) >= 0, f"lag {lag}: an aborted record"
        wanted = range(first + 100)
        if kind == "compacted":
            missing = {n for n in left if n not in seen}
        else:
            missing = set(wanted) - seen.keys()
        assert not missing, f"lag {lag}: {len(missing)} never read"
