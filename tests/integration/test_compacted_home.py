"""Tails and the way home where the log cleaner has run on both clusters."""

from __future__ import annotations

import json
import time
from typing import TYPE_CHECKING

from confluent_kafka import Producer
import pytest
import yaml

from mirror.pairs.journal import Kind
from tests.harness.admin import alter_topic
from tests.harness.failed_over import Failed, content
from tests.harness.slots import RunningLease
from tests.harness.switching import Switch, command
from tests.harness.waiting import deadline_in

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from mirror.playground.cluster import PlaygroundCluster

pytestmark = [pytest.mark.integration, pytest.mark.full]

_COMPACTED = {
    "cleanup_policy": "compact",
    "segment_ms": "100",
    "segment_bytes": str(1 << 20),
    "min_cleanable_dirty_ratio": "0.0001",
}


def send(bootstrap: str, topic: str, records: list[tuple[bytes, bytes]]) -> None:
    client = Producer({"bootstrap.servers": bootstrap, "acks": "all"})
    for key, value in records:
        client.produce(topic, key=key, value=value, partition=0)
    assert client.flush(30) == 0


def values(bootstrap: str, topic: str) -> list[tuple[object, object]]:
    """Key and value of each record, as an ordinary client sees them."""
    return [(each[1], each[2]) for each in content(bootstrap, topic)]


def clean(bootstrap: str, topic: str, keys: set[bytes]) -> None:
    """Write until the cleaner has left one record of each of these keys."""
    deadline = deadline_in(90)
    number = 0
    while True:
        found = [key for key, _ in values(bootstrap, topic) if key in keys]
        if len(found) == len(set(found)):
            return
        assert time.monotonic() < deadline, found
        time.sleep(0.11)  # a segment ends by the clock
        number += 1
        send(bootstrap, topic, [(b"roll", b"%d" % number)])


def test_both_sides_were_compacted(
    make_clusters: Callable[..., dict[str, PlaygroundCluster]],
    topic_name: str,
    tmp_path: Path,
) -> None:
    """After a failover both clusters are written to and compacted. A's tail is what an
    ordinary consumer still finds there of it; replayed, and with B's records copied
    home, the pair fails back, and each key has the same last value on both clusters.
    """
    made = make_clusters(
        "a", "b", settings={"log.cleaner.backoff.ms": "100", "log.cleaner.threads": "1"}
    )
    failed = Failed(made, topic_name, policy="identity")
    one, two = failed.a, failed.b
    tail_keys = {b"k%d" % n for n in range(5)}
    keys = tail_keys | {b"k%d" % n for n in range(5, 10)}
    with failed.rehearsal as rehearsal:
        send(one, topic_name, [(key, b"old") for _ in range(4) for key in sorted(keys)])
        rehearsal.copy(two, topic_name, 40)
        rehearsal.see()
        rehearsal.carry_out(kind=Kind.FAILOVER)
        for bootstrap in (one, two):
            alter_topic(bootstrap, topic_name, **_COMPACTED)
        for number in range(3):
            send(one, topic_name, [(key, b"A%d" % number) for key in sorted(tail_keys)])
            send(
                two,
                topic_name,
                [(key, b"B%d" % number) for key in sorted(keys - tail_keys)],
            )
        for bootstrap in (one, two):
            clean(bootstrap, topic_name, keys)
        left = [
            (key, value)
            for key, value in values(one, topic_name)
            if key in tail_keys or key == b"roll"
        ]
        (tmp_path / "mirror.yaml").write_text(yaml.safe_dump(rehearsal.document))
        words = ("tail", "list", failed.there, "-o", "json")
        shown = json.loads(command(tmp_path, *words))["partitions"]
        assert sum(each["records"] for each in shown) == len(left)
        command(tmp_path, "tail", "replay", failed.there, "--yes")
        assert set(left) <= set(values(two, topic_name))

        back = rehearsal.copying(back=True).own()
        with back.slot() as slot:
            running = RunningLease(slot, back.lease(600))
            Switch(tmp_path, "failback", failed.home, "--yes").succeeds()
            running.end()
        for bootstrap in (one, two):
            last = dict(values(bootstrap, topic_name))
            assert {key: last[key] for key in keys} == {
                **dict.fromkeys(tail_keys, b"A2"),
                **dict.fromkeys(keys - tail_keys, b"B2"),
            }
