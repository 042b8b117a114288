"""Coming home to a cluster that was away: what its brokers sent, by their own logs."""

from __future__ import annotations

from collections import Counter
from functools import partial
from itertools import islice
import os
from typing import TYPE_CHECKING

from confluent_kafka import TopicCollection
from confluent_kafka.admin import AdminClient
import pytest

from tests.harness.admin import create_topic
from tests.harness.load import keys, producer, send
from tests.harness.request_log import LOGGED, sent
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


class Log:
    """What a cluster's broker sends to mirror of a topic, from `begin` on."""

    def __init__(self, cluster: PlaygroundCluster, topic: str) -> None:
        admin = AdminClient({"bootstrap.servers": cluster.bootstrap})
        found = admin.describe_topics(TopicCollection([topic]))[topic].result(30)
        # librdkafka's base64 has other signs than Kafka's.
        topic_id = str(found.topic_id).translate(str.maketrans("+/", "-_"))
        self._read = partial(sent, cluster, 1, topic, "mirror", topic_id=topic_id)
        self._before = 0

    def begin(self) -> None:
        self._before = len(list(self._read()))

    def sent(self, *, before: int = 1 << 62, client: str = "") -> int:
        """Bytes, of what begins before an offset, to clients whose id begins so."""
        return sum(
            each.size
            for each in islice(self._read(), self._before, None)
            if each.offset < before and each.client.startswith(client)
        )

    def by_client(self) -> dict[str, int]:
        found = Counter[str]()
        for each in islice(self._read(), self._before, None):
            found[each.client] += each.size
        return dict(found)


@pytest.mark.parametrize("policy", ["default", "identity"])
def test_no_record_is_read_twice(
    make_clusters: Callable[..., dict[str, PlaygroundCluster]],
    topic_name: str,
    tmp_path: Path,
    policy: str,
) -> None:
    """A is away while B takes 1 GB, and comes home intact. From its return until it is
    active and copies again, A's broker sends mirror nothing of what A had before, and
    the flow out of A gets what is new there alone. The flow home gets what was written
    on B once. Where both flows write one topic, the service and the command each look
    once through what came home, and the flow home once through what B has, for records
    that were born there. Each record is on both clusters once.
    """
    clusters = make_clusters("a", "b", jvm=LOGGED)
    one, two = (clusters[name].bootstrap for name in "ab")
    for bootstrap in (one, two):
        create_topic(bootstrap, topic_name, _PARTITIONS)
    of_a, of_b = (Log(clusters[name], topic_name) for name in "ab")
    document = pair_of(("hrA", one), ("hrB", two), topic_name)
    document["defaults"]["policy"] = policy
    with RunningMirror(document, tmp_path) as mirror:
        mirror.wait_running("hrA->hrB")
        _write(one, topic_name, _BORN)
        mirror.wait_copied(one, topic_name, flow="hrA->hrB")
        mirror.wait_checkpoints("hrA->hrB")
        clusters["a"].kill()
        Switch(tmp_path, "failover", "hrA/hrB", "--yes").succeeds()
        of_b.begin()
        _write(two, topic_name, _GONE)

        clusters["a"].start()
        assert of_a.sent() > _PARTITIONS * _BORN[1] * len(_VALUE)
        of_a.begin()
        mirror.wait_running("hrB->hrA")
        mirror.wait_copied(two, topic_name, flow="hrB->hrA", timeout=600)
        Switch(tmp_path, "failback", "hrB/hrA", "--yes").succeeds()
        _write(one, topic_name, _AGAIN)
        mirror.wait_running("hrA->hrB")
        mirror.wait_copied(one, topic_name, flow="hrA->hrB")
        for name, log in (("A", of_a), ("B", of_b)):
            print(f"{name} sent {log.sent():,} bytes, by client: {log.by_client()}")
        looks = policy == "identity"
        assert of_a.sent(before=_BORN[1]) == 0
        assert 0 < of_a.sent(client="mirror.hrA->hrB") < _most(_AGAIN)
        assert of_a.sent() < _most(_AGAIN) + 2 * looks * _most(_GONE)
        assert of_b.sent(client="mirror.hrB->hrA.") < _most(_GONE)
        assert of_b.sent() < (1 + looks) * _most(_GONE)
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
    """Bytes of so many records, with what batches add, and answers that a lease's end
    cut off.
    """
    return 1.15 * _PARTITIONS * records[1] * len(_VALUE)
