"""Copies that another tool has made, and that mirror goes on with at the source's
offsets, or does not.
"""

from __future__ import annotations

import json
import time
from typing import TYPE_CHECKING, Any

from confluent_kafka import TIMESTAMP_CREATE_TIME, Consumer, TopicPartition
import pytest

from tests.harness.admin import commit_offsets, create_topic, delete_records
from tests.harness.commands import answered
from tests.harness.group_moves import committed
from tests.harness.load import keys, producer, send
from tests.harness.mm2 import start_mm2
from tests.harness.service import RunningMirror, config_for
from tests.harness.waiting import beside, wait_for
from tests.harness.witness import log_of, read_topic

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path
    import threading

    from confluent_kafka import Producer

    from mirror.playground.cluster import PlaygroundCluster

pytestmark = pytest.mark.integration

_PARTITIONS = 3


def _copy(
    source: str, target: str, topic: str, values: Mapping[tuple[int, int], bytes]
) -> None:
    """As an ordinary client does that copies each record once. `values`: what it writes
    instead, by partition and offset.
    """
    client = producer(target)
    for partition, messages in read_topic(source, topic).items():
        for each in messages:
            kind, at = each.timestamp()
            assert kind == TIMESTAMP_CREATE_TIME
            client.produce(
                topic,
                key=each.key(),
                value=values.get((partition, each.offset() or 0), each.value()),
                partition=partition,
                timestamp=at,
                headers=each.headers(),
            )
    assert client.flush(60) == 0


def _write(bootstrap: str, topic: str, first: int, count: int) -> None:
    """To all partitions but the last one."""
    client = producer(bootstrap)
    for number in range(first, first + count):
        client.produce(
            topic,
            key=None if number % 7 == 0 else b"%d" % number,
            value=None if number % 5 == 0 else b"v%d" % number,
            headers=[("h", b"%d" % number), ("h", None)][: number % 3],
            partition=number % (_PARTITIONS - 1),
        )
    assert client.flush(60) == 0


def _commit(bootstrap: str, group: str, topic: str, offset: int) -> None:
    reader = Consumer({"bootstrap.servers": bootstrap, "group.id": group})
    commit_offsets(reader, [TopicPartition(topic, 0, offset)])
    reader.close()


def _plan(config: dict[str, Any], folder: Path, topic: str) -> str:
    file = folder / "plan.yaml"
    file.write_text(json.dumps(config))
    plan = json.loads(answered("plan", "-c", file, "-o", "json").stdout)
    (told,) = (each for each in plan["offsets"] if each["topic"] == topic)
    return f"{told['offsets']}: {told['reason']}"


def _mirror(source: str, target: str, topics: list[str], **more: Any) -> dict[str, Any]:
    return config_for(
        source, target, topics=topics, tasks=1, offsets="same", policy="identity",
        sync_group_offsets=True, sync_group_offsets_seconds=1, **more,
    )  # fmt: skip


def test_a_copy_of_another_client_is_taken_up(
    clusters: Mapping[str, PlaygroundCluster], topic_name: str, tmp_path: Path
) -> None:
    """An ordinary client has copied a topic, without an empty partition. mirror goes on
    at its end: what the source gets then has the same offset on both sides, before and
    after the driver is killed, and nothing is there twice. A group in the part that the
    client copied gets its own offset.
    """
    source, target = clusters["a"].bootstrap, clusters["b"].bootstrap
    for bootstrap in (source, target):
        create_topic(bootstrap, topic_name, _PARTITIONS)
    _write(source, topic_name, 0, 3000)
    _copy(source, target, topic_name, {})
    before = log_of(target, topic_name)
    _write(source, topic_name, 3000, 100)
    group = f"readers-{topic_name}"
    _commit(source, group, topic_name, 700)
    config = _mirror(source, target, [topic_name], groups=[group], alias="TAKEN")
    said = _plan(config, tmp_path, topic_name)
    assert said == ": its copy has records already: it is compared first"
    with RunningMirror(config, tmp_path) as mirror:
        mirror.wait_running()
        wait_for(
            lambda: log_of(target, topic_name) == log_of(source, topic_name), 60, 0.5
        )
        wait_for(lambda: committed(target, group, topic_name) == 700, 30)
        mirror.kill_driver()
        _write(source, topic_name, 3100, 200)
        send(producer(source), topic_name, {2: [b"a", b"b"]}, b"v")
        mirror.start()
        mirror.wait_running()
        wait_for(
            lambda: log_of(target, topic_name) == log_of(source, topic_name), 60, 0.5
        )
        assert mirror.terminate() == 0
    after = log_of(target, topic_name)
    assert after == log_of(source, topic_name)
    assert sum(map(len, after.values())) == 3302
    assert all(after[n][: len(each)] == each for n, each in before.items())
    assert _plan(config, tmp_path, topic_name) == "same: "


@pytest.mark.full
def test_a_copy_that_grows_is_not_written(
    clusters: Mapping[str, PlaygroundCluster], topic_name: str, tmp_path: Path
) -> None:
    """While another client goes on copying, mirror writes nothing, and the status says
    why. Once that client stops, mirror goes on at the same offsets.
    """
    source, target = clusters["a"].bootstrap, clusters["b"].bootstrap
    for bootstrap in (source, target):
        create_topic(bootstrap, topic_name, 1)
    here, there = producer(source), producer(target)

    def write(client: Producer, number: int) -> None:
        at = 1_700_000_000_000 + number
        client.produce(topic_name, key=b"%d" % number, partition=0, timestamp=at)
        assert client.flush(30) == 0

    def copying(stop: threading.Event) -> None:
        number = 100
        while not stop.is_set():
            for client in (here, there):
                write(client, number)
            number += 1
            stop.wait(0.2)

    for number in range(100):
        for client in (here, there):
            write(client, number)
    config = _mirror(source, target, [topic_name], alias="GROWING")
    with RunningMirror(config, tmp_path) as mirror:
        with beside(copying):
            mirror.wait_running()
            told = "something else writes to it"
            mirror.wait_until(lambda status: told in json.dumps(status))
            time.sleep(10)  # longer than a copy must be at rest
            assert told in json.dumps(mirror.status())
        assert _stamped(target, topic_name) == 0
        write(here, 1_000_000)
        wait_for(lambda: _stamped(target, topic_name) == 1, 60, 0.5)
        assert mirror.terminate() == 0
    assert log_of(target, topic_name) == log_of(source, topic_name)


def _stamped(bootstrap: str, topic: str) -> int:
    """How many records mirror has copied."""
    return sum(
        any(name == "mirror.via" for name, _ in each.headers() or ())
        for each in read_topic(bootstrap, topic)[0]
    )


def test_a_copy_with_another_record_is_translated(
    clusters: Mapping[str, PlaygroundCluster], topic_name: str, tmp_path: Path
) -> None:
    """Of two copies by another client one has another value at one offset. It stays as
    it is, with partition and offset in the status; the other one is taken up. With
    append_to_existing the topic is copied behind, with offsets of its own, and the next
    start compares nothing again.
    """
    source, target = clusters["a"].bootstrap, clusters["b"].bootstrap
    right, wrong = f"{topic_name}-right", f"{topic_name}-wrong"
    for name in (right, wrong):
        for bootstrap in (source, target):
            create_topic(bootstrap, name, _PARTITIONS)
        _write(source, name, 0, 2000)
        _copy(source, target, name, {(1, 400): b"other"} if name == wrong else {})
        _write(source, name, 2000, 100)
    before = log_of(target, wrong)
    config = _mirror(source, target, [right, wrong], alias="PARTLY")
    with RunningMirror(config, tmp_path) as mirror:
        mirror.wait_running()
        told = "offset 400 of partition 1 has another value"
        mirror.wait_until(lambda status: told in json.dumps(status))
        wait_for(lambda: log_of(target, right) == log_of(source, right), 60, 0.5)
        mirror.wait_until(lambda status: "did not copy" in json.dumps(status))
        assert mirror.terminate() == 0
    assert log_of(target, wrong) == before

    config = _mirror(
        source, target, [right, wrong], alias="PARTLY", append_to_existing=True
    )
    both = _content(log_of(source, wrong))
    with RunningMirror(config, tmp_path) as mirror:
        mirror.wait_running()
        wait_for(
            lambda: _content(log_of(target, wrong))[0]
            == _content(before)[0] + both[0], 60, 0.5,
        )  # fmt: skip
        assert mirror.terminate() == 0
    now = _content(log_of(target, wrong))
    assert now == {n: _content(before)[n] + both[n] for n in both}
    said = _plan(config, tmp_path, wrong)
    assert said.startswith("translated: its copy has records already, and partition 0")


@pytest.mark.full
def test_a_copy_may_lack_what_it_would_delete(
    clusters: Mapping[str, PlaygroundCluster], topic_name: str, tmp_path: Path
) -> None:
    """Two copies have lost their heads. All that the first one lacks is older than its
    retention.ms: a run with an end takes it up. The second one lacks a record that it
    would keep: it is translated, and the plan names the offset.
    """
    source, target = clusters["a"].bootstrap, clusters["b"].bootstrap
    old, new = f"{topic_name}-old", f"{topic_name}-new"
    hour, now = 3_600_000, int(time.time() * 1000)
    for name, first in ((old, 300), (new, 700)):
        create_topic(source, name, 1)
        create_topic(target, name, 1, retention_ms=str(hour))
        client = producer(source)
        for number in range(1000):
            at = now - 2 * hour if number < 600 else now
            client.produce(name, key=b"%d" % number, partition=0, timestamp=at)
        assert client.flush(60) == 0
        _copy(source, target, name, {})
        delete_records(target, name, first)
        send(client, name, {0: [b"later"]}, b"v")
    config = _mirror(source, target, [old, new], alias="HEADS")
    told = f"{_plan(config, tmp_path, old)} / {_plan(config, tmp_path, new)}"
    assert told == (
        ": its copy has records already: it is compared first / translated: its copy "
        "has records already, and partition 0 of it begins at offset 700, and the "
        "source has records from 0 on that it would keep"
    )
    config = _mirror(source, target, [old], alias="HEADS")
    file = tmp_path / "once.yaml"
    file.write_text(json.dumps(config))
    done = answered("run", "--once", "-c", file)
    assert done.returncode == 0, done.stderr[-2000:]
    assert log_of(target, old)[0] == log_of(source, old)[0][300:]
    assert len(log_of(target, old)[0]) == 701


def _content(log: dict[int, list[tuple[object, ...]]]) -> dict[int, list[object]]:
    """The records without their offsets."""
    return {number: [each[1:] for each in log[number]] for number in log}


@pytest.mark.full
def test_a_copy_of_mirrormaker_is_taken_up(
    clusters: Mapping[str, PlaygroundCluster], topic_name: str, tmp_path: Path
) -> None:
    """MirrorMaker 2, without transactions and under the topic's own name, has copied a
    topic from its start. mirror goes on at the source's offsets.
    """
    source, target = clusters["a"].bootstrap, clusters["b"].bootstrap
    create_topic(source, topic_name, _PARTITIONS)
    _write(source, topic_name, 0, 3000)
    service = start_mm2(
        source, target, alias="MAKER", topic=topic_name, folder=tmp_path,
        exactly_once=False, more={
            "replication.policy.class":
            "org.apache.kafka.connect.mirror.IdentityReplicationPolicy",
        },
    )  # fmt: skip
    try:

        def there() -> bool:
            service.require_running()
            records = read_topic(target, topic_name)
            return sum(map(len, records.values())) == 3000

        wait_for(there, 150, 1)
    finally:
        service.stop()
    assert log_of(target, topic_name) == log_of(source, topic_name)
    config = _mirror(source, target, [topic_name], alias="MAKER")
    with RunningMirror(config, tmp_path) as mirror:
        mirror.wait_running()
        _write(source, topic_name, 3000, 500)
        send(producer(source), topic_name, keys(_PARTITIONS, 10), b"v")
        wait_for(
            lambda: log_of(target, topic_name) == log_of(source, topic_name), 60, 0.5
        )
        assert mirror.terminate() == 0
    assert log_of(target, topic_name) == log_of(source, topic_name)
