"""`mirror verify` outlives what happens to brokers, and to its own processes."""

from __future__ import annotations

import contextlib
import json
import subprocess
import sys
from typing import TYPE_CHECKING, Any

from confluent_kafka import ElectionType, TopicPartition
from confluent_kafka.admin import AdminClient
import psutil
import pytest

from mirror.pairs import proofs
from mirror.proofs import sides
from mirror.proofs.log_stream import LogStream
from tests.harness import quotas
from tests.harness.admin import create_topic
from tests.harness.load import keys, producer, send
from tests.harness.proofs import Meanwhile, proven
from tests.harness.service import is_worker
from tests.harness.slots import SparklessFlow
from tests.harness.waiting import PATIENCE_SECONDS, crowd, wait_for

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from mirror.playground.cluster import PlaygroundCluster

pytestmark = [pytest.mark.integration, pytest.mark.full]

_PARTITIONS, _EACH = 4, 40
_LARGE = 100_000
_QUOTA = 2_000_000.0
"""Bytes per second: a verify takes some eight seconds."""


def _copied(source: str, target: str, topic: str) -> SparklessFlow:
    """A flow that has copied some 4 MB."""
    create_topic(source, topic, partitions=_PARTITIONS)
    flow = SparklessFlow(source=source, target=target, topic=topic, alias=topic).own()
    send(producer(source), topic, keys(_PARTITIONS, _EACH), bytes(_LARGE))
    flow.copy_until(_PARTITIONS * _EACH)
    return flow


def _leader(bootstrap: str, topic: str) -> int:
    shown = AdminClient({"bootstrap.servers": bootstrap}).list_topics(topic, timeout=30)
    return int(shown.topics[topic].partitions[0].leader)


def _move_leaders_back(bootstrap: str, topic: str) -> None:
    every = [TopicPartition(topic, n) for n in range(_PARTITIONS)]
    admin = AdminClient({"bootstrap.servers": bootstrap})
    admin.elect_leaders(ElectionType.PREFERRED, every).result(30)


@pytest.mark.parametrize("side", ["source", "copy"])
def test_a_broker_is_killed_and_leaders_move(
    make_clusters: Callable[..., dict[str, PlaygroundCluster]],
    topic_name: str,
    monkeypatch: pytest.MonkeyPatch,
    side: str,
) -> None:
    """One of three brokers of either side gets SIGKILL while it is read, and later all
    leaders move back to it: nothing is found, and every record is equal.
    """
    nodes = {"source": ("a", "b"), "copy": ("b", "a")}[side]
    made = {**make_clusters(nodes[0], nodes=3), **make_clusters(nodes[1])}
    a, b = made["a"].bootstrap, made["b"].bootstrap
    flow = _copied(a, b, topic_name)
    hit = made[nodes[0]]
    topic = topic_name if side == "source" else flow.copy
    killed: list[int] = []

    class Killing(LogStream):
        def _take(self, *arguments: Any) -> Iterator[Any]:
            if self._wanted.topic == topic and not killed:
                killed.append(_leader(hit.bootstrap, topic))
                hit.kill(killed[0])
            yield from super()._take(*arguments)

    monkeypatch.setattr(sides, "LogStream", Killing)
    found = proven(flow, since=None)
    assert killed
    assert found.findings == ()
    assert [each.account.equal for each in found.partitions] == [_EACH] * _PARTITIONS

    hit.start(killed[0])
    again = proven(
        flow, runner=Meanwhile(lambda: _move_leaders_back(hit.bootstrap, topic))
    )
    assert again.findings == ()
    assert [each.account.equal for each in again.partitions] == [_EACH] * _PARTITIONS


@contextlib.contextmanager
def _slow(bootstrap: str) -> Iterator[None]:
    """A quota on what we read from a cluster."""
    entity = {"client-id": "mirror"}
    quotas.limit(bootstrap, entity, _QUOTA, quota="consumer_byte_rate")
    try:
        yield
    finally:
        quotas.limit(bootstrap, entity, None, quota="consumer_byte_rate")


def _worker(driver: psutil.Process) -> int:
    """A process in which a range is compared; 0: there is none now."""
    for each in driver.children(recursive=True):
        with contextlib.suppress(psutil.Error):
            if is_worker(each):
                return each.pid
    return 0


def test_its_processes_are_killed_under_a_quota(
    clusters: dict[str, PlaygroundCluster], topic_name: str, tmp_path: Path
) -> None:
    """With a quota on both clusters verify is slow, and waits as brokers ask. A worker
    gets SIGKILL: its range alone is compared again. Then the driver: what it had proven
    stays, and the next run only compares the rest.
    """
    a, b = clusters["a"].bootstrap, clusters["b"].bootstrap
    flow = _copied(a, b, topic_name)
    file = tmp_path / "mirror.yaml"
    file.write_text(json.dumps(flow.document()))  # JSON is YAML

    def started(log: Path) -> subprocess.Popen[bytes]:
        words = ["verify", "-c", str(file), "--tasks", "1", "-o", "json"]
        with log.open("wb") as errors, log.with_suffix(".json").open("wb") as out:
            return subprocess.Popen(
                [sys.executable, "-m", "mirror", *words], stdout=out, stderr=errors
            )

    def kept() -> int:
        with flow.connected() as (_, target):
            return len(proofs.read(target, flow.alias))

    first = tmp_path / "first.log"
    with _slow(a), _slow(b), started(first) as running:
        driver = psutil.Process(running.pid)
        workers: list[int] = []

        def works() -> bool:
            workers.append(_worker(driver))
            return workers[-1] > 0 or running.poll() is not None

        wait_for(works, pause=0.05)
        assert running.poll() is None, first.read_text()
        psutil.Process(workers[-1]).kill()
        wait_for(lambda: kept() or running.poll() is not None, pause=0.1)
        assert running.poll() is None, first.read_text()
        family = [driver, *driver.children(recursive=True)]
        driver.kill()
    before = kept()
    assert 0 < before < _PARTITIONS
    assert first.read_text().count("a task of the proof failed; once more") == 1
    _, alive = psutil.wait_procs(family, 30 * crowd())
    assert not alive  # nothing goes on without its driver

    second = tmp_path / "second.log"
    with started(second) as running:
        assert running.wait(PATIENCE_SECONDS * crowd()) == 0, second.read_text()
    told = json.loads(second.with_suffix(".json").read_text())
    (topic,) = told["flows"][0]["topics"]
    assert topic["equal"] == (_PARTITIONS - before) * _EACH
