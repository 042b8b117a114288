"""Whole flows: both ways at once, at least once, with an end, and beside a dead one."""

from __future__ import annotations

import struct
import time
from typing import TYPE_CHECKING, Any

import pytest

from tests.harness.admin import copied_records, create_topic
from tests.harness.load import NumberedLoad, producer
from tests.harness.service import RunningMirror, config_for
from tests.harness.waiting import crowd, wait_for
from tests.harness.witness import (
    assert_at_least_once,
    assert_exactly_once,
    eventually,
    keys_of,
    order_of,
    read_topic,
)

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from mirror.playground.cluster import PlaygroundCluster

pytestmark = pytest.mark.integration

_CONTROL = 0x20


@pytest.mark.quick
def test_identity_both_ways(
    clusters: dict[str, PlaygroundCluster], topic_name: str, tmp_path: Path
) -> None:
    """Two clusters that mirror one topic into each other under its own name end with
    all records of both, once each, and then nothing moves any more.
    """
    a, b = clusters["a"].bootstrap, clusters["b"].bootstrap
    for side, bootstrap in (("a", a), ("b", b)):
        create_topic(bootstrap, topic_name)
        client = producer(bootstrap)
        for number in range(1000):
            client.produce(topic_name, key=f"{side}-{number}".encode(), value=b"v")
        assert client.flush(30) == 0
    config = config_for(
        a, b, flows=("A->B", "B->A"), policy="identity", topics=[topic_name]
    )
    with RunningMirror(config, tmp_path) as mirror:
        found = [eventually(bootstrap, topic_name, 2000) for bootstrap in (a, b)]
        for messages in found:
            keys = keys_of(messages)[0]
            for side in ("a", "b"):
                own = [key for key in keys if key.startswith(side.encode())]
                assert own == [f"{side}-{number}".encode() for number in range(1000)]
            assert len(keys) == 2000
        time.sleep(6)  # several leases, each of which could send them round again
        for bootstrap, messages in zip((a, b), found, strict=True):
            assert order_of(bootstrap, topic_name) == keys_of(messages)
        status = mirror.status()
        assert [flow["lag"] for flow in status["flows"]] == [0, 0]
        filtered = [
            sum(p["filtered"] for p in flow["partitions"]) for flow in status["flows"]
        ]
        assert filtered == [1000, 1000]


def test_at_least_once_and_without_provenance(
    clusters: dict[str, PlaygroundCluster], topic_name: str, tmp_path: Path
) -> None:
    """Without exactly-once no record is lost when workers die; without provenance the
    records are the source's, field by field, and large batches byte by byte.
    """
    source, target = clusters["a"].bootstrap, clusters["b"].bootstrap
    raw = f"{topic_name}-raw"
    create_topic(source, topic_name, 3)
    create_topic(source, raw)
    # Long ago, but not so long that retention would delete them meanwhile.
    begun = int(time.time() * 1000) - 3_600_000
    for codec in ("none", "gzip", "snappy", "lz4", "zstd"):
        client = producer(source, compression_type=codec, linger_ms=50)
        for number in range(200):
            client.produce(
                raw,
                key=f"{codec}-{number}".encode(),
                value=bytes(range(256)) * 4 + struct.pack(">q", number * 7919) * 20,
                headers=[("h", b"1"), ("h", None)],
                timestamp=begun + number,
            )
        assert client.flush(30) == 0
    config = {
        "clusters": {
            "LOOSE": {"bootstrap_servers": source},
            "RAW": {"bootstrap_servers": source},
            "B": {"bootstrap_servers": target},
        },
        "flows": {
            "LOOSE->B": {"topics": [topic_name], "exactly_once": False},
            "RAW->B": {"topics": [raw], "provenance": False},
        },
    }
    load = NumberedLoad(source, topic_name, 3, seed=9)
    with RunningMirror(config, tmp_path) as mirror:
        for _ in range(2):
            before = copied_records(target, f"LOOSE.{topic_name}")
            load.send(20_000)
            wait_for(
                lambda before=before: (
                    copied_records(target, f"LOOSE.{topic_name}") > before
                ),
            )
            assert mirror.kill_workers() > 0
        mirror.wait_copied(source, topic_name, flow="LOOSE->B")
        found = eventually(target, f"RAW.{raw}", 1000)
        assert mirror.terminate() == 0
    assert_at_least_once(order_of(target, f"LOOSE.{topic_name}"), load.order)
    wanted = read_topic(source, raw)
    assert [_fields(m) for m in found[0]] == [_fields(m) for m in wanted[0]]
    folders = [clusters[name].folder for name in ("a", "b")]
    if None not in folders:
        sections = [
            list(_sections(folder, topic))
            for folder, topic in zip(folders, (raw, f"RAW.{raw}"), strict=True)
        ]
        large = [section for section in sections[0] if len(section) > 20_000]
        assert large
        assert [section for section in sections[1] if section in large] == large


def _fields(message: Any) -> tuple[Any, ...]:
    return (message.key(), message.value(), message.headers(), message.timestamp())


def _sections(folder: Path, topic: str) -> Iterator[bytes]:
    """The record sections of all data batches in the broker's own files."""
    for segment in sorted(folder.glob(f"node-1/data/{topic}-0/*.log")):
        content, at = segment.read_bytes(), 0
        while at + 61 <= len(content):
            size = struct.unpack_from(">i", content, at + 8)[0] + 12
            attributes = struct.unpack_from(">h", content, at + 21)[0]
            if size <= 12:
                break
            if not attributes & _CONTROL:
                yield content[at + 61 : at + size]
            at += size


def test_once_copies_what_is_there_and_ends(
    clusters: dict[str, PlaygroundCluster], topic_name: str, tmp_path: Path
) -> None:
    """`--once` exits by itself with code 0 when everything that was there at its start
    is copied; the next one copies the rest and nothing again.
    """
    source, target = clusters["a"].bootstrap, clusters["b"].bootstrap
    create_topic(source, topic_name, 3)
    load = NumberedLoad(source, topic_name, 3, seed=10)
    config = config_for(source, target, topics=[topic_name])
    for _ in range(2):
        load.send(3000)
        with RunningMirror(config, tmp_path, once=True) as mirror:
            assert mirror.wait() == 0, mirror.log_tail()
        assert_exactly_once(order_of(target, f"A.{topic_name}"), load.order)


def test_start_latest(
    clusters: dict[str, PlaygroundCluster], topic_name: str, tmp_path: Path
) -> None:
    """`start: latest` skips what was there before the very first start, and copies
    everything after it, including what arrived between two runs and all of later
    topics.
    """
    source, target = clusters["a"].bootstrap, clusters["b"].bootstrap
    later = f"{topic_name}-later"
    create_topic(source, topic_name, 2)
    load = NumberedLoad(source, topic_name, 2, seed=12)
    load.send(500)
    skipped = {partition: len(keys) for partition, keys in load.order.items()}
    # An alias of its own: the progress topic shows whether a flow ever ran.
    config = {
        "clusters": {
            "LATE": {"bootstrap_servers": source},
            "B": {"bootstrap_servers": target},
        },
        "flows": {"LATE->B": {"topics": [f"{topic_name}.*"], "start": "latest"}},
    }
    with RunningMirror(config, tmp_path, once=True) as mirror:
        assert mirror.wait() == 0, mirror.log_tail()
    assert sum(map(len, order_of(target, f"LATE.{topic_name}").values())) == 0
    load.send(500)
    create_topic(source, later)
    of_later = NumberedLoad(source, later, 1, seed=13)
    of_later.send(100)
    with RunningMirror(config, tmp_path) as mirror:
        mirror.wait_copied(source, topic_name)
        load.send(500)
        mirror.wait_copied(source, topic_name)
        mirror.wait_copied(source, later)
        assert mirror.terminate() == 0
    expected = {p: keys[skipped[p] :] for p, keys in load.order.items()}
    assert_exactly_once(order_of(target, f"LATE.{topic_name}"), expected)
    assert_exactly_once(order_of(target, f"LATE.{later}"), of_later.order)


def test_start_latest_before_any_topic_exists(
    clusters: dict[str, PlaygroundCluster], topic_name: str, tmp_path: Path
) -> None:
    """With `start: latest`, a topic created after the flow's very first start is copied
    from its first record, even if that first start found no topic at all.
    """
    source, target = clusters["a"].bootstrap, clusters["b"].bootstrap
    config = {
        "clusters": {
            "EARLY": {"bootstrap_servers": source},
            "B": {"bootstrap_servers": target},
        },
        "flows": {"EARLY->B": {"topics": [topic_name], "start": "latest"}},
    }
    with RunningMirror(config, tmp_path, once=True) as mirror:
        assert mirror.wait() == 0, mirror.log_tail()
    create_topic(source, topic_name)
    load = NumberedLoad(source, topic_name, 1, seed=14)
    load.send(100)
    with RunningMirror(config, tmp_path, once=True) as mirror:
        assert mirror.wait() == 0, mirror.log_tail()
    assert_exactly_once(order_of(target, f"EARLY.{topic_name}"), load.order)


def test_unreachable_target_leaves_the_other_flow_alone(
    clusters: dict[str, PlaygroundCluster], topic_name: str, tmp_path: Path
) -> None:
    """Of two flows, one whose target does not answer shows that and why, while the
    other copies; SIGTERM then ends the service within five seconds with exit code 0.
    """
    source, target = clusters["a"].bootstrap, clusters["b"].bootstrap
    create_topic(source, topic_name, 2)
    load = NumberedLoad(source, topic_name, 2, seed=15)
    load.send(1000)
    config = config_for(source, target, flows=("A->B", "A->C"), topics=[topic_name])
    config["clusters"]["C"] = {"bootstrap_servers": "127.0.0.1:1"}
    with RunningMirror(config, tmp_path) as mirror:
        found = eventually(target, f"A.{topic_name}", load.total)
        assert_exactly_once(keys_of(found), load.order)
        mirror.wait_running("A->B")
        mirror.wait_until(lambda _: mirror.flow("A->C")["state"] == "RETRYING")
        assert "127.0.0.1:1" in mirror.flow("A->C")["reason"]
        assert mirror.flow("A->B")["restarts"] == 0
        began = time.monotonic()
        assert mirror.terminate() == 0
        assert time.monotonic() - began < 5 * crowd()
        wait_for(lambda: not mirror.survivors(), 5)
