"""Whole flows: both ways at once, at least once, with an end, and beside a dead one."""

from __future__ import annotations

import socket
import struct
import time
from typing import TYPE_CHECKING, Any

import pytest

from tests.harness.admin import copied_records, create_topic
from tests.harness.load import NumberedLoad, producer
from tests.harness.service import RunningMirror, config_for
from tests.harness.waiting import wait_for
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
    from tests.harness.standing import StandingMirror

pytestmark = pytest.mark.integration

_CONTROL = 0x20


@pytest.mark.quick
def test_identity_both_ways(
    clusters: dict[str, PlaygroundCluster], topic_name: str, standing: StandingMirror
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
        a, b, flows=("A->B", "B->A"), policy="identity", topics=[topic_name], tasks=1,
        lease_seconds=1,
    )  # fmt: skip
    with standing.hosting(config) as mirror:
        found = [eventually(bootstrap, topic_name, 2000) for bootstrap in (a, b)]
        for messages in found:
            keys = keys_of(messages)[0]
            for side in ("a", "b"):
                own = [key for key in keys if key.startswith(side.encode())]
                assert own == [f"{side}-{number}".encode() for number in range(1000)]
            assert len(keys) == 2000
        # Several leases, each of which could send them round again.
        before = {flow["name"]: flow["leases"] for flow in mirror.status()["flows"]}
        status = mirror.wait_until(
            lambda document: all(
                flow["leases"] >= before[flow["name"]] + 3 for flow in document["flows"]
            )
        )
        for bootstrap, messages in zip((a, b), found, strict=True):
            assert order_of(bootstrap, topic_name) == keys_of(messages)
        assert [flow["lag"] for flow in status["flows"]] == [0, 0]
        filtered = [
            sum(p["filtered"] for p in flow["partitions"]) for flow in status["flows"]
        ]
        assert filtered == [1000, 1000]


def test_at_least_once_and_without_provenance_beside_a_dead_target(
    clusters: dict[str, PlaygroundCluster], topic_name: str, tmp_path: Path
) -> None:
    """Of four flows, one whose target refuses connections shows that and why, and one
    whose target is silent waits for it, while the others copy. Without provenance the
    records are the source's, field by field, and large batches byte by byte. Then
    workers die: without exactly-once no record is lost. At last SIGTERM ends the
    service with exit code 0, although a request to the silent cluster may take ten
    minutes.
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
    flows: dict[str, Any] = {
        "LOOSE->B": {"topics": [topic_name], "exactly_once": False},
        "RAW->B": {"topics": [raw], "provenance": False},
        "RAW->C": {"topics": [raw]},
        "RAW->D": {"topics": [raw]},
    }
    silent = socket.create_server(("127.0.0.1", 0))
    config = {
        "clusters": {
            "LOOSE": {"bootstrap_servers": source},
            "RAW": {"bootstrap_servers": source},
            "B": {"bootstrap_servers": target},
            "C": {"bootstrap_servers": "127.0.0.1:1"},
            "D": {
                "bootstrap_servers": f"127.0.0.1:{silent.getsockname()[1]}",
                "request_timeout_seconds": 600,
            },
        },
        "defaults": {"tasks": 1, "lease_seconds": 2},
        "flows": flows,
    }
    load = NumberedLoad(source, topic_name, 3, seed=9)
    with silent, RunningMirror(config, tmp_path) as mirror:
        found = eventually(target, f"RAW.{raw}", 1000)
        for flow in ("LOOSE->B", "RAW->B"):
            mirror.wait_running(flow)
        mirror.wait_until(lambda _: mirror.flow("RAW->C")["state"] == "RETRYING")
        assert "127.0.0.1:1" in mirror.flow("RAW->C")["reason"]
        for flow in ("LOOSE->B", "RAW->B"):
            mirror.assert_never_failed(flow)
        for _ in range(2):
            before = copied_records(target, f"LOOSE.{topic_name}")
            load.send(5000)
            wait_for(
                lambda before=before: (
                    copied_records(target, f"LOOSE.{topic_name}") > before
                ),
            )
            assert mirror.kill_workers() > 0
        mirror.wait_copied(source, topic_name, flow="LOOSE->B")
        assert mirror.terminate() == 0
        wait_for(lambda: not mirror.survivors())
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


def test_once_and_start_latest(
    clusters: dict[str, PlaygroundCluster],
    topic_name: str,
    tmp_path: Path,
    standing: StandingMirror,
) -> None:
    """`--once` exits by itself with code 0 when everything that was there at its start
    is copied; the next one copies the rest and nothing again. `start: latest` skips
    what was there before the very first start, and copies everything after it: what
    arrived between two runs and while one runs, and all of later topics, even if that
    first start found no topic at all.
    """
    source, target = clusters["a"].bootstrap, clusters["b"].bootstrap
    create_topic(source, topic_name, 3)
    load = NumberedLoad(source, topic_name, 3, seed=10)
    load.send(2000)
    skipped = {partition: len(keys) for partition, keys in load.order.items()}
    later, early = f"{topic_name}-later", f"early-{topic_name}"
    # Aliases of their own: the progress topic shows whether a flow ever ran.
    late = {
        "clusters": {
            "LATE": {"bootstrap_servers": source},
            "B": {"bootstrap_servers": target},
        },
        "flows": {
            "LATE->B": {
                "topics": [f"{topic_name}.*"],
                "start": "latest",
                "tasks": 1,
                "lease_seconds": 2,
            }
        },
    }
    config = config_for(
        source, target, flows=("A->B", "EARLY->B"), topics=[topic_name], tasks=1
    )
    config["flows"]["EARLY->B"].update(topics=[early], start="latest")
    config["clusters"] |= {
        "EARLY": {"bootstrap_servers": source},
        **late["clusters"],
    }
    config["flows"] |= late["flows"]

    with RunningMirror(config, tmp_path, once=True) as mirror:
        assert mirror.wait() == 0, mirror.log_tail()
    assert_exactly_once(order_of(target, f"A.{topic_name}"), load.order)
    assert sum(map(len, order_of(target, f"LATE.{topic_name}").values())) == 0

    load.send(2000)
    of_later = {}
    for seed, topic in ((13, later), (14, early)):
        create_topic(source, topic)
        of_later[topic] = NumberedLoad(source, topic, 1, seed=seed)
        of_later[topic].send(100)
    with RunningMirror(config, tmp_path, once=True) as mirror:
        assert mirror.wait() == 0, mirror.log_tail()
    assert_exactly_once(order_of(target, f"A.{topic_name}"), load.order)
    assert_exactly_once(order_of(target, f"EARLY.{early}"), of_later[early].order)
    assert_exactly_once(order_of(target, f"LATE.{later}"), of_later[later].order)

    load.send(500)
    with standing.hosting(late) as mirror:
        mirror.wait_copied(source, topic_name)
        load.send(500)
        mirror.wait_copied(source, topic_name)
        mirror.wait_copied(source, later)
    expected = {p: keys[skipped[p] :] for p, keys in load.order.items()}
    assert_exactly_once(order_of(target, f"LATE.{topic_name}"), expected)
    assert_exactly_once(order_of(target, f"LATE.{later}"), of_later[later].order)
