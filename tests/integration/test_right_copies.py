"""Copies with nothing wrong: verify finds nothing, and explains what is not equal."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from confluent_kafka import Producer
import pytest

from mirror.proofs.account import FindingKind
from tests.harness.admin import alter_topic, create_topic, delete_records, end_offsets
from tests.harness.load import producer
from tests.harness.proofs import checked, proven
from tests.harness.slots import SparklessFlow, copy_until
from tests.harness.waiting import wait_for
from tests.harness.witness import Witness, read_topic

if TYPE_CHECKING:
    from collections.abc import Callable

    from mirror.playground.cluster import PlaygroundCluster
    from mirror.proofs.account import Account

pytestmark = pytest.mark.integration

_LARGE = 10 << 20
_CLEANED = {
    "cleanup_policy": "compact",
    "delete_retention_ms": "0",
    "segment_ms": "100",
    "min_cleanable_dirty_ratio": "0.0001",
}
_CODECS = ("gzip", "snappy", "lz4", "zstd")
_CONFIGS: dict[str, dict[str, str]] = {
    "plain": {},
    "aborted": {},
    "time-of-source": {"message_timestamp_type": "LogAppendTime"},
    "time-of-copy": {},
    "compacted": _CLEANED,
    "trimmed-source": {},
    "trimmed-copy": {},
    "large": {"max_message_bytes": str(_LARGE + 4096)},
    "empty": {},
    **{codec: {} for codec in _CODECS},
}
_EACH = 200


def _fill(a: str, topic: str, *, first: int = 0) -> None:
    settings = {"compression_type": topic} if topic in _CODECS else {}
    client = producer(a, **settings)
    for number in range(first, first + _EACH):
        key = f"{number % 20 if topic == 'compacted' else number}".encode()
        client.produce(
            topic,
            key=None if topic == "plain" and number % 5 == 0 else key,
            value=None if number % 10 == 0 else b"value" * (number % 50),
            headers=[("h", b"%d" % number), ("", None)][: 1 + number % 2],
            partition=0,
        )
    assert client.flush(30) == 0


def _abort(a: str, topic: str) -> None:
    for end in (Producer.abort_transaction, Producer.commit_transaction):
        client = Producer({"bootstrap.servers": a, "transactional.id": f"x-{topic}"})
        client.init_transactions(30)
        client.begin_transaction()
        for number in range(_EACH // 2):
            client.produce(topic, key=b"%d" % number, value=b"v", partition=0)
        assert client.flush(30) == 0
        end(client, 30)


def _produce_all(a: str) -> None:
    for topic in _CONFIGS:
        if topic == "aborted":
            _abort(a, topic)
        elif topic == "large":
            client = producer(a, message_max_bytes=_LARGE + 4096)
            client.produce(topic, key=b"k", value=bytes(_LARGE), partition=0)
            assert client.flush(60) == 0
        elif topic != "empty":
            _fill(a, topic)


def test_nothing_is_found_and_all_is_explained(
    make_clusters: Callable[..., dict[str, PlaygroundCluster]],
) -> None:
    """Aborted transactions, all codecs, tombstones, both sides cleaned and trimmed, the
    brokers' own times, an empty topic and a record of 10 MB: no finding, as many equal
    records as an ordinary consumer finds on both sides, and each other one explained;
    by content too.
    """
    made = make_clusters(settings={"log.cleaner.backoff.ms": "100"})
    a, b = made["a"].bootstrap, made["b"].bootstrap
    for topic, configs in _CONFIGS.items():
        create_topic(a, topic, partitions=1, **configs)
    flow = SparklessFlow(source=a, target=b, topic=".*", alias="A").own()
    alter_topic(b, "A.time-of-copy", message_timestamp_type="LogAppendTime")
    _produce_all(a)
    sent = dict.fromkeys(_CONFIGS, _EACH) | {
        "aborted": _EACH // 2, "large": 1, "empty": 0,
    }  # fmt: skip
    with Witness(b) as witness, flow.slot() as slot:
        for topic in set(_CONFIGS) - {"empty", "compacted"}:
            witness.begin(f"A.{topic}")
            copy_until(witness, slot, flow.lease(60), count=sent[topic], timeout=60)
        # Segments end by the clock; each side's cleaner works when it likes.
        time.sleep(0.2)
        _fill(a, "compacted", first=_EACH)
        time.sleep(0.2)
        _fill(a, "compacted", first=2 * _EACH)

        def passed() -> bool:
            (of_it,) = (
                each for each in slot.run(flow.lease(1)) if each.topic == "compacted"
            )
            return of_it.position == 3 * _EACH

        wait_for(passed)
    delete_records(a, "trimmed-source", 50)
    delete_records(b, "A.trimmed-copy", 70)
    wait_for(lambda: len(read_topic(b, "A.compacted")[0]) < 2 * _EACH)
    for cluster, name in ((a, "compacted"), (b, "A.compacted")):
        alter_topic(cluster, name, min_cleanable_dirty_ratio="1")  # not any more
    time.sleep(1)

    for by_content in (False, True):
        found = checked(flow, by_content=by_content)

        assert found.findings == ()
        accounts: dict[str, Account] = {
            each.of.topic: each.account for each in found.partitions
        }
        for topic, account in accounts.items():
            explained = account.equal + sum(account.explained.values())
            assert (topic, account.records) == (topic, explained)
            assert (topic, account.foreign) == (topic, 0)
        assert accounts["trimmed-source"].records == _EACH - 50
        assert accounts["trimmed-copy"].expired == 70
        assert found.own_times["time-of-copy"] is False
        assert found.own_times["time-of-source"] is True
    assert end_offsets(b, "A.compacted")[0] >= 3 * _EACH


def test_a_function_is_called_again(
    clusters: dict[str, PlaygroundCluster], topic_name: str
) -> None:
    """Copies of a flow with a function are held against its results; what it left out
    is counted, and what it failed on is looked for in the dead-letter topic, without
    which it is missing.
    """
    a, b = clusters["a"].bootstrap, clusters["b"].bootstrap
    create_topic(a, topic_name, partitions=1)
    values = [
        b"poison" if n % 10 == 3 else b"void" if n % 10 == 7 else b"%d" % n
        for n in range(300)
    ]
    client = producer(a)
    for number, value in enumerate(values):
        client.produce(topic_name, key=b"%d" % number, value=value, partition=0)
    assert client.flush(30) == 0
    flow = SparklessFlow(
        source=a, target=b, topic=topic_name, alias=f"T{topic_name[-8:]}",
        settings={
            "transform": "tests.functions:no_poison",
            "dead_letter_topic": f"dead-{topic_name}",
        },
    ).own()  # fmt: skip
    flow.copy_until(240)

    found = checked(flow)

    assert found.findings == ()
    (part,) = found.partitions
    account = part.account
    assert (account.records, account.equal) == (300, 240)
    assert (account.removed, account.dead_letters) == (30, 30)

    flow.settings["dead_letter_topic"] = f"another-{topic_name}"
    missing = proven(flow).findings
    assert {each.kind for each in missing} == {FindingKind.MISSING}
    assert [each.source for each in missing] == list(range(3, 300, 10))
