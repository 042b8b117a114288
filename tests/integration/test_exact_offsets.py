"""Translated offsets on real logs, held against what ordinary consumers read there.

The witness reads both topics whole, with offsets. An answer is right if what stands on
the other side from there on is just what a reader had not read yet: at every offset of
a log, its holes and its end included, and the same on the way back.
"""

from __future__ import annotations

import contextlib
import random
import time
from typing import TYPE_CHECKING

import pytest

from mirror.offsets import retention
from mirror.offsets.translation import Exactness, OffsetMap
from tests.harness.admin import create_topic
from tests.harness.connections import connected
from tests.harness.load import NumberedLoad, producer
from tests.harness.service import RunningMirror, config_for
from tests.harness.slots import RunningLease, SparklessFlow
from tests.harness.waiting import wait_for
from tests.harness.witness import eventually, read_topic

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from pathlib import Path

    from mirror.playground.cluster import PlaygroundCluster
    from tests.harness.standing import StandingMirror

pytestmark = pytest.mark.integration

Log = dict[int, list[tuple[int, bytes]]]
"""Offset and key of each visible record, by partition."""


@contextlib.contextmanager
def map_on(target: str, alias: str) -> Iterator[OffsetMap]:
    """The map, as read from the target alone."""
    with connected(target, alias="T") as cluster:
        known = OffsetMap(cluster, alias)
        known.refresh()
        yield known


def log_of(bootstrap: str, topic: str) -> Log:
    return {
        partition: [(message.offset(), message.key()) for message in messages]
        for partition, messages in read_topic(bootstrap, topic).items()
    }


def assert_exact(
    known: OffsetMap, topic: str, source: Log, target: Log, *, left_out: bytes = b"-"
) -> None:
    """Both ways at every offset, or at some thousand of a long log."""
    for partition, records in source.items():
        copied = [record for record in records if not record[1].startswith(left_out)]
        copies = target[partition]
        assert [key for _, key in copied] == [key for _, key in copies]
        end = known.position(topic, partition)
        for number, offset in _numbered(copied, end + 1):
            answer = known.translate(topic, partition, offset)
            following = _first(copies, answer.offset)
            assert following == number, (offset, answer)
            assert (answer.exactness is Exactness.BEHIND) == (offset > end)
        for number, offset in _numbered(copies, copies[-1][0] + 3):
            answer = known.reverse(topic, partition, offset)
            assert _first(copied, answer.offset) == number, (offset, answer)


def _numbered(log: Sequence[tuple[int, bytes]], end: int) -> Iterator[tuple[int, int]]:
    """Offsets of a log, each with the number of the first record that stands there or
    behind it.
    """
    offsets = range(end + 1)
    chosen = sorted(random.Random(end).sample(offsets, min(2000, len(offsets))))
    number = 0
    for offset in [*chosen, *range(max(0, end - 50), end + 1)]:
        if number and log[number - 1][0] >= offset:
            number = 0
        while number < len(log) and log[number][0] < offset:
            number += 1
        yield number, offset


def _first(log: Sequence[tuple[int, bytes]], offset: int) -> int:
    """The number of the first record that a reader from an offset on sees."""
    low, high = 0, len(log)
    while low < high:
        middle = (low + high) // 2
        if log[middle][0] < offset:
            low = middle + 1
        else:
            high = middle
    return low


def test_transactions_and_loops(
    clusters: dict[str, PlaygroundCluster], topic_name: str, standing: StandingMirror
) -> None:
    """Markers, aborted transactions and skipped records make holes on the source,
    markers make them on the target: no translated offset is off by one of them.
    """
    source, target = clusters["a"].bootstrap, clusters["b"].bootstrap
    create_topic(source, topic_name, 2)
    with connected(target, alias="T") as cluster:
        loop = [("mirror.via", f"x/{cluster.cluster_id}".encode())]
    copy = f"A.{topic_name}"
    with standing.hosting(config_for(source, target, topics=[topic_name])) as mirror:
        copied = send_with_holes(source, topic_name, loop)
        eventually(target, copy, copied)
        mirror.wait_copied(source, topic_name)
    with map_on(target, "A") as known:
        logs = log_of(source, topic_name), log_of(target, copy)
        assert_exact(known, topic_name, *logs)


def send_with_holes(source: str, topic: str, loop: list[tuple[str, bytes]]) -> int:
    """Transactions on partition 0, single records on 1, and some of both that have
    looped; returns how many records mirror copies.
    """
    chance = random.Random(4)
    one = producer(source, transactional_id=topic)
    one.init_transactions(30)
    plain = producer(source)
    copied = 0
    for number in range(150):
        count = chance.randrange(1, 5)
        one.begin_transaction()
        for record in range(count):
            one.produce(topic, key=f"t-{number}-{record}".encode(), partition=0)
        kind = chance.choice(("plain", "looped"))
        for client in (plain, one):
            partition = 1 if client is plain else 0
            client.produce(
                topic,
                key=f"{'-' if kind == 'looped' else 'p'}{number}".encode(),
                headers=loop if kind == "looped" else None,
                partition=partition,
            )
        assert one.flush(30) == 0  # else an abort drops what has not been sent
        if committed := chance.random() < 0.7:
            one.commit_transaction(30)
        else:
            one.abort_transaction(30)
        copied += count * committed + (kind == "plain") * (1 + committed)
        if number % 30 == 0:
            time.sleep(0.3)  # so that the flow has several transactions of its own
    assert plain.flush(30) == 0
    return copied


def test_compacted(
    clusters: dict[str, PlaygroundCluster],
    make_clusters: Callable[..., dict[str, PlaygroundCluster]],
    topic_name: str,
) -> None:
    """Where the cleaner has left holes everywhere, every offset is translated
    correctly.
    """
    made = make_clusters("a", settings={"log.cleaner.backoff.ms": "100"})
    source, target = made["a"].bootstrap, clusters["b"].bootstrap
    create_topic(
        source,
        topic_name,
        cleanup_policy="compact",
        min_cleanable_dirty_ratio="0.01",
        segment_ms="300",
    )
    client = producer(source, linger_ms=20)
    for codec in range(4):
        for number in range(600):
            key = number % (7 + 50 * codec) if number % 3 else number
            client.produce(topic_name, key=f"{codec}-{key}".encode(), value=b"v" * 50)
        assert client.flush(30) == 0
        time.sleep(0.4)
    client.produce(topic_name, key=b"last", value=b"of an active segment")
    assert client.flush(30) == 0

    def is_clean() -> bool:
        """Each key is left once, so that the cleaner has no more to do."""
        found = [key for _, key in log_of(source, topic_name)[0]]
        return len(found) == len(set(found))

    wait_for(is_clean, pause=0.5)
    wanted = log_of(source, topic_name)
    flow = SparklessFlow(
        source=source, target=target, topic=topic_name, alias=f"Z{topic_name[-8:]}"
    ).own()
    with flow.slot() as slot:
        lease = RunningLease(slot, flow.lease(120))
        eventually(target, flow.copy, len(wanted[0]))
        lease.end()
    with map_on(target, flow.alias) as known:
        assert_exact(known, topic_name, wanted, log_of(target, flow.copy))


@pytest.mark.full
def test_kills_and_a_restart(
    clusters: dict[str, PlaygroundCluster],
    topic_name: str,
    standing: StandingMirror,
    tmp_path: Path,
) -> None:
    """Killed workers and another service that goes on leave no gap and no wrong run in
    the map; reading it from the start gives the same as following it, however far
    behind a group is.
    """
    source, target = clusters["a"].bootstrap, clusters["b"].bootstrap
    create_topic(source, topic_name, 3)
    load = NumberedLoad(source, topic_name, 3, seed=21)
    config = config_for(source, target, flows=("EXACT->B",), topics=[topic_name])
    config["flows"]["EXACT->B"]["tasks"] = 1
    config["clusters"]["EXACT"] = config["clusters"].pop("A")
    copy = f"EXACT.{topic_name}"
    with contextlib.ExitStack() as stack:
        with RunningMirror(config, tmp_path) as mirror, load.streaming():
            eventually(target, copy, 1)
            followed = stack.enter_context(map_on(target, "EXACT"))
            for _ in range(3):
                time.sleep(2)
                mirror.kill_workers()
                followed.refresh()
        load.send(20_000)
        with standing.hosting(config) as going_on:
            going_on.wait_copied(source, topic_name)
        followed.refresh()
        known = stack.enter_context(map_on(target, "EXACT"))
        logs = log_of(source, topic_name), log_of(target, copy)
        for each in (followed, known):
            assert_exact(each, topic_name, *logs)


def test_the_map_is_needed_as_long_as_its_copies(
    clusters: dict[str, PlaygroundCluster], topic_name: str
) -> None:
    """The map is needed for the retention of the copies that are kept longest."""
    target = clusters["b"].bootstrap
    copies = [f"{topic_name}-{hours}" for hours in (1, 3)]
    for hours, copy in zip((1, 3), copies, strict=True):
        create_topic(
            target, copy, retention_ms=str(hours * 3_600_000), segment_ms="60000"
        )
    with connected(target, alias="T") as cluster:
        assert retention.needed(cluster, copies) == 3 * 3_600_000 + 60_000
        create_topic(target, f"{topic_name}-for-ever", cleanup_policy="compact")
        copies.append(f"{topic_name}-for-ever")
        assert retention.needed(cluster, copies) == retention.FOR_EVER
        assert retention.needed(cluster, ["gone"]) is None
