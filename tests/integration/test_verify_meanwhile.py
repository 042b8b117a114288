"""What happens to clusters, topics and processes while `mirror verify` reads them."""

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

from mirror.offsets import runs
from mirror.pairs import proofs
from mirror.proofs import log_stream, sides
from mirror.proofs.account import FindingKind
from mirror.proofs.log_stream import LogStream
from tests.harness import quotas
from tests.harness.admin import (
    alter_topic,
    closed_ends,
    create_topic,
    delete_records,
    delete_topic,
    topic_exists,
)
from tests.harness.load import keys, producer, send
from tests.harness.proofs import Meanwhile, proven
from tests.harness.proxy import BrokerProxy
from tests.harness.service import is_worker
from tests.harness.slots import SparklessFlow
from tests.harness.waiting import PATIENCE_SECONDS, crowd, wait_for
from tests.harness.witness import read_topic

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from mirror.playground.cluster import PlaygroundCluster
    from tests.harness.load import Order

pytestmark = pytest.mark.integration

_EACH = 100
_LARGE = 100_000
_FETCHED = 4 << 20
"""Bytes at once: less than a log of large records has."""


def _copied(
    source: str,
    target: str,
    topic: str,
    *,
    size: int = 100,
    partitions: int = 3,
    each: int = _EACH,
    **configs: str,
) -> SparklessFlow:
    """A flow that has copied so many records to each partition of a topic with these
    configs.
    """
    create_topic(source, topic, partitions=partitions, **configs)
    flow = SparklessFlow(source=source, target=target, topic=topic, alias=topic).own()
    _copy(flow, target, keys(partitions, each), size=size, total=partitions * each)
    return flow


def _copy(
    flow: SparklessFlow, target: str, order: Order, *, size: int, total: int
) -> None:
    """Send these, and wait until the copy has `total` records."""
    assert isinstance(flow.source, str)
    send(producer(flow.source), flow.topic, order, bytes(size))
    flow.copy_until(total)


def _overtaken(
    monkeypatch: pytest.MonkeyPatch, topic: str, act: Callable[[], None]
) -> list[int]:
    """Something happens after the first answer about this topic; gets the position."""
    passed: list[int] = []

    class Overtaken(LogStream):
        def _take(self, *arguments: Any) -> Iterator[Any]:
            yield from super()._take(*arguments)
            if self._wanted.topic == topic and not passed:
                passed.append(self._position)
                act()

    monkeypatch.setattr(sides, "LogStream", Overtaken)
    return passed


@pytest.mark.parametrize("side", ["source", "copy"])
def test_retention_overtakes_it(
    clusters: dict[str, PlaygroundCluster],
    topic_name: str,
    monkeypatch: pytest.MonkeyPatch,
    side: str,
) -> None:
    """Records that one side deletes while they are read are no finding: they are
    expired, and counted as that.
    """
    monkeypatch.setattr(log_stream, "FETCH_BYTES", _FETCHED)
    a, b = clusters["a"].bootstrap, clusters["b"].bootstrap
    flow = _copied(a, b, topic_name, size=_LARGE, partitions=1)
    bootstrap, topic = (a, topic_name) if side == "source" else (b, flow.copy)
    passed = _overtaken(
        monkeypatch, topic, lambda: delete_records(bootstrap, topic, _EACH - 5)
    )
    found = proven(flow)

    assert found.findings == ()
    (part,) = found.partitions
    account = part.account
    assert account.equal >= passed[0]
    if side == "source":
        assert account.expired_source > 0
        assert (account.records, account.equal + account.expired_source) == (
            *(account.equal, _EACH),
        )
    else:
        assert account.expired > 0
        assert (account.records, account.equal + account.expired) == (_EACH, _EACH)


def test_the_source_goes_away_halfway(
    clusters: dict[str, PlaygroundCluster],
    topic_name: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """What was proven before stays so, on the target as well; the rest is UNPROVEN with
    the reason, after one wait and not one per partition. Once the source is back, the
    next run compares the rest alone.
    """
    monkeypatch.setattr(sides, "PATIENCE_SECONDS", 1.0)
    a, b = clusters["a"].bootstrap, clusters["b"].bootstrap
    flow = _copied(a, b, topic_name)
    with contextlib.ExitStack() as stack:
        proxy = stack.enter_context(BrokerProxy(a))
        flow.source = proxy.bootstrap
        found = proven(flow, since=None, runner=Meanwhile(stack.close))
    flow.source = a

    assert [each.account.equal for each in found.partitions] == [_EACH, 0, 0]
    assert [each.whole for each in found.partitions] == [True, False, False]
    assert [each.kind for each in found.findings] == [FindingKind.UNPROVEN] * 2
    assert [each.count for each in found.findings] == [_EACH, _EACH]
    assert proxy.bootstrap in found.findings[0].detail
    assert found.findings[0].detail == found.findings[1].detail  # not tried
    with flow.connected() as (_, target):
        assert set(proofs.read(target, flow.alias)) == {(topic_name, 0)}

    rest = proven(flow, since=None)
    assert rest.findings == ()
    assert [each.account.equal for each in rest.partitions] == [0, _EACH, _EACH]


@pytest.mark.parametrize("side", ["source", "copy"])
def test_a_topic_is_deleted_midway(
    clusters: dict[str, PlaygroundCluster],
    topic_name: str,
    monkeypatch: pytest.MonkeyPatch,
    side: str,
) -> None:
    """What was compared before counts, the rest of the topic is UNPROVEN, and the run
    ends after one wait.
    """
    monkeypatch.setattr(log_stream, "PATIENCE_SECONDS", 1.0)
    a, b = clusters["a"].bootstrap, clusters["b"].bootstrap
    flow = _copied(a, b, topic_name)
    bootstrap, topic = (a, topic_name) if side == "source" else (b, flow.copy)

    def delete() -> None:
        delete_topic(bootstrap, topic)
        wait_for(lambda: not topic_exists(bootstrap, topic))

    found = proven(flow, runner=Meanwhile(delete))

    assert [each.account.equal for each in found.partitions] == [_EACH, 0, 0]
    assert [each.kind for each in found.findings] == [FindingKind.UNPROVEN] * 2
    assert {each.detail for each in found.findings} == {found.findings[0].detail}
    assert "UNKNOWN_TOPIC_OR_PARTITION" in found.findings[0].detail


@pytest.mark.full
@pytest.mark.parametrize("side", ["source", "copy"])
def test_compaction_overtakes_it(
    make_clusters: Callable[..., dict[str, PlaygroundCluster]],
    topic_name: str,
    monkeypatch: pytest.MonkeyPatch,
    side: str,
) -> None:
    """Records that the cleaner of one side removes while they are read are no finding:
    a later record of their key explains each of them.
    """
    monkeypatch.setattr(log_stream, "FETCH_BYTES", _FETCHED)
    made = make_clusters("a", "b", settings={"log.cleaner.backoff.ms": "100"})
    a, b = made["a"].bootstrap, made["b"].bootstrap
    flow = _copied(
        a, b, topic_name, size=_LARGE, partitions=1, cleanup_policy="compact",
        segment_ms="100", min_cleanable_dirty_ratio="0.0001",
        min_compaction_lag_ms="3600000",
    )  # fmt: skip
    _copy(flow, b, keys(1, _EACH), size=_LARGE, total=2 * _EACH)
    bootstrap, topic = (a, topic_name) if side == "source" else (b, flow.copy)

    def clean() -> None:
        alter_topic(bootstrap, topic, min_compaction_lag_ms="0")
        wait_for(lambda: _beside(bootstrap, topic) < 2 * _EACH, pause=0.2)

    _overtaken(monkeypatch, topic, clean)
    found = proven(flow)

    assert found.findings == ()
    account = found.partitions[0].account
    missing = account.compacted_source if side == "source" else account.compacted
    assert missing > 0
    assert (account.equal + missing, account.wrong) == (2 * _EACH, 0)


def _beside(bootstrap: str, topic: str) -> int:
    """How many of the flow's records the log has; one more is written, since only that
    ends a segment.
    """
    send(producer(bootstrap), topic, {0: [b"ends the segment"]}, b"")
    found = read_topic(bootstrap, topic)[0]
    return sum(message.key() != b"ends the segment" for message in found)


def test_a_map_that_begins_within_the_range(
    clusters: dict[str, PlaygroundCluster], topic_name: str
) -> None:
    """Retention took the oldest part of the offset map: the copies that it named are
    UNPROVEN, with a way out, and neither equal, missing nor unexpected. All others are
    proven, and by content all of them.
    """
    a, b = clusters["a"].bootstrap, clusters["b"].bootstrap
    flow = _copied(a, b, topic_name, partitions=1)
    own_map = runs.topic_name(flow.alias, ".")
    before = closed_ends(b, own_map)[0]
    _copy(flow, b, keys(1, _EACH), size=100, total=2 * _EACH)
    delete_records(b, own_map, before)

    found = proven(flow)
    assert {each.kind for each in found.findings} == {FindingKind.UNPROVEN}
    assert sum(each.count for each in found.findings) == _EACH
    assert all("--by content" in each.detail for each in found.findings)
    assert found.partitions[0].account.equal == _EACH

    by_content = proven(flow, by_content=True)
    assert by_content.findings == ()
    assert by_content.partitions[0].account.equal == 2 * _EACH


# ---- brokers and processes die ----


_PARTITIONS, _SOME = 4, 40
_QUOTA = 2_000_000.0
"""Bytes per second: a verify takes some eight seconds."""


def _leader(bootstrap: str, topic: str) -> int:
    shown = AdminClient({"bootstrap.servers": bootstrap}).list_topics(topic, timeout=30)
    return int(shown.topics[topic].partitions[0].leader)


def _move_leaders_back(bootstrap: str, topic: str) -> None:
    every = [TopicPartition(topic, n) for n in range(_PARTITIONS)]
    admin = AdminClient({"bootstrap.servers": bootstrap})
    admin.elect_leaders(ElectionType.PREFERRED, every).result(30)


@pytest.mark.full
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
    flow = _copied(a, b, topic_name, size=_LARGE, partitions=_PARTITIONS, each=_SOME)
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
    assert [each.account.equal for each in found.partitions] == [_SOME] * _PARTITIONS

    hit.start(killed[0])
    again = proven(
        flow, runner=Meanwhile(lambda: _move_leaders_back(hit.bootstrap, topic))
    )
    assert again.findings == ()
    assert [each.account.equal for each in again.partitions] == [_SOME] * _PARTITIONS


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


@pytest.mark.full
def test_its_processes_are_killed_under_a_quota(
    clusters: dict[str, PlaygroundCluster], topic_name: str, tmp_path: Path
) -> None:
    """With a quota on both clusters verify is slow, and waits as brokers ask. A worker
    gets SIGKILL: its range alone is compared again. Then the driver: what it had proven
    stays, and the next run only compares the rest.
    """
    a, b = clusters["a"].bootstrap, clusters["b"].bootstrap
    flow = _copied(a, b, topic_name, size=_LARGE, partitions=_PARTITIONS, each=_SOME)
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
    assert topic["equal"] == (_PARTITIONS - before) * _SOME
