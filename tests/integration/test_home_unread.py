"""Coming home to a cluster that was away: what its brokers sent, by their own logs."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from confluent_kafka import TopicCollection
from confluent_kafka.admin import AdminClient
import pytest

from tests.harness.admin import create_topic
from tests.harness.load import keys, producer, send
from tests.harness.request_log import LOGGED, sent_bytes
from tests.harness.service import RunningMirror
from tests.harness.switching import Switch, pair_of
from tests.harness.witness import Witness

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from mirror.playground.cluster import PlaygroundCluster
    from tests.harness.witness import Order

pytestmark = [
    pytest.mark.integration,
    pytest.mark.full,
    pytest.mark.timeout(1800),  # it copies a GB
]

_PARTITIONS = 4
_VALUE = os.urandom(16 << 10)
_BORN, _GONE, _AGAIN = (0, 4_000), (4_000, 16_000), (20_000, 10)
"""The first record of each partition, and how many: 0.26 GB before the cluster dies,
1.0 GB while it is away, and a few once it is active again."""


class Sent:
    """What a cluster's broker has sent to mirror of a topic."""

    def __init__(self, cluster: PlaygroundCluster, topic: str) -> None:
        admin = AdminClient({"bootstrap.servers": cluster.bootstrap})
        found = admin.describe_topics(TopicCollection([topic]))[topic].result(30)
        self._of = (cluster, 1, topic)
        self._topic_id = str(found.topic_id)
        self._before = 0
        self.begin()

    def begin(self) -> None:
        """Count from here on."""
        self._before += self.bytes()

    def bytes(self) -> int:
        found = sent_bytes(*self._of, "mirror", topic_id=self._topic_id)
        return found - self._before


@pytest.mark.parametrize("policy", ["default", "identity"])
def test_no_record_is_read_twice(
    make_clusters: Callable[..., dict[str, PlaygroundCluster]],
    topic_name: str,
    tmp_path: Path,
    policy: str,
) -> None:
    """A is away while B takes 1 GB, and comes home intact. From its return until it is
    active and copies again, A's brokers send mirror of its own topic what is new there,
    and not a byte more; B's brokers have sent what was written on B, once. Each record
    is on both clusters once.
    """
    clusters = make_clusters("a", "b", jvm=LOGGED)
    one, two = (clusters[name].bootstrap for name in "ab")
    for bootstrap in (one, two):
        create_topic(bootstrap, topic_name, _PARTITIONS)
    document = pair_of(("hrA", one), ("hrB", two), topic_name)
    document["defaults"]["policy"] = policy
    with RunningMirror(document, tmp_path) as mirror:
        mirror.wait_running("hrA->hrB")
        _write(one, topic_name, _BORN)
        mirror.wait_copied(one, topic_name, flow="hrA->hrB")
        mirror.wait_checkpoints("hrA->hrB")
        clusters["a"].kill()
        Switch(tmp_path, "failover", "hrA/hrB", "--yes").succeeds()
        by_b = Sent(clusters["b"], topic_name)
        _write(two, topic_name, _GONE)

        clusters["a"].start()
        by_a = Sent(clusters["a"], topic_name)
        mirror.wait_running("hrB->hrA")
        mirror.wait_copied(two, topic_name, flow="hrB->hrA", timeout=600)
        Switch(tmp_path, "failback", "hrB/hrA", "--yes").succeeds()
        _write(one, topic_name, _AGAIN)
        mirror.wait_running("hrA->hrB")
        mirror.wait_copied(one, topic_name, flow="hrA->hrB")
        print(f"A sent {by_a.bytes():,} bytes, and B {by_b.bytes():,}")
        assert by_a.bytes() < _most(_AGAIN)
        assert by_b.bytes() < _most(_GONE)
    own, away, late = (_names(*each) for each in (_BORN, _GONE, _AGAIN))
    if policy == "identity":
        found = {topic_name: (own, away, late)}
        there = [(one, found), (two, found)]
    else:
        home, copy = (own, late), (away,)
        there = [
            (one, {topic_name: home, f"hrB.{topic_name}": copy}),
            (two, {topic_name: copy, f"hrA.{topic_name}": home}),
        ]
    for bootstrap, topics in there:
        with Witness(bootstrap) as witness:
            for name, parts in topics.items():
                expected = {n: [k for part in parts for k in part[n]] for n in own}
                witness.assert_exactly(name, expected)


def _write(bootstrap: str, topic: str, records: tuple[int, int]) -> None:
    send(producer(bootstrap), topic, _names(*records), _VALUE)


def _names(first: int, each: int) -> Order:
    return keys(_PARTITIONS, each, first=first)


def _most(records: tuple[int, int]) -> float:
    """Bytes of so many records, with what batches add."""
    return 1.05 * _PARTITIONS * records[1] * len(_VALUE)
