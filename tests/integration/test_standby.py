"""What the service keeps on the target about the source, look by look."""

from __future__ import annotations

import contextlib
import json
import time
from typing import TYPE_CHECKING, Any

from confluent_kafka import Producer
import pytest

from mirror.cli.risk import read_progress
from mirror.errors import ClusterError, MirrorError
from mirror.offsets.standby import topic_name
from mirror.pairs import selection
from mirror.pairs.risk import from_standby
from mirror.records import reading
from mirror.service.standby import StandbyJob
from mirror.status.store import StatusStore
from tests.harness.admin import create_topic, delete_topic, topic_exists
from tests.harness.load import keys, producer, send
from tests.harness.slots import SparklessFlow, copy_until
from tests.harness.waiting import wait_for
from tests.harness.witness import Witness, read_topic

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from mirror.clusters.cluster import Cluster
    from mirror.playground.cluster import PlaygroundCluster
    from mirror.status.values import RiskStatus

pytestmark = pytest.mark.integration

_PARTITIONS = 2


class Looks:
    """The job of a flow, look by look."""

    def __init__(self, flow: SparklessFlow, source: Cluster, target: Cluster) -> None:
        self._flow = flow
        self._ends = (source, target)
        self._store = StatusStore((flow.name,))
        self.begin()

    def begin(self) -> None:
        """As after a restart of the service."""
        config, name = self._flow.config(), self._flow.name
        self._job = StandbyJob(
            config.flows[name], lambda: {self._flow.topic}, store=self._store,
            notes=lambda: selection.noted(config, name),
        ).job()  # fmt: skip

    def look(self) -> RiskStatus:
        self._job.work(*self._ends)
        return self.shown

    @property
    def shown(self) -> RiskStatus:
        return self._store.flow(self._flow.name).risk


@pytest.fixture
def flow(clusters: dict[str, PlaygroundCluster], topic_name: str) -> SparklessFlow:
    """A flow of one topic, of which nothing is copied yet."""
    a, b = clusters["a"].bootstrap, clusters["b"].bootstrap
    create_topic(a, topic_name, _PARTITIONS)
    return SparklessFlow(source=a, target=b, topic=topic_name, alias=topic_name[-8:])


@pytest.fixture
def looks(flow: SparklessFlow) -> Iterator[Looks]:
    flow.own()
    with flow.connected() as (source, target):
        yield Looks(flow, source, target)


def fill(flow: SparklessFlow, each: int) -> None:
    """So many records to each partition."""
    assert isinstance(flow.source, str)
    send(producer(flow.source), flow.topic, keys(_PARTITIONS, each), b"v" * 50)


def copy(flow: SparklessFlow, count: int) -> None:
    """Copy until the copy has `count` records."""
    assert isinstance(flow.target, str)
    with Witness(flow.target) as witness, flow.slot() as slot:
        witness.begin(flow.copy)
        copy_until(witness, slot, flow.lease(60), count=count, timeout=60)


def written(flow: SparklessFlow) -> list[tuple[str, Any]]:
    """Every record of the standby topic, oldest first, as any client reads it."""
    assert isinstance(flow.target, str)
    found = []
    for message in read_topic(flow.target, topic_name(flow.alias)).get(0, []):
        key, value = message.key(), message.value()
        assert key is not None
        assert value is not None
        found.append((key.decode(), json.loads(value)))
    return found


def test_only_what_changed_is_written(flow: SparklessFlow, looks: Looks) -> None:
    """A look at a quiet topic writes its time and nothing else, also after a restart;
    what is copied meanwhile is no longer at risk.
    """
    ends, time_of_look = f"ends/{flow.topic}", "looks/ends"
    fill(flow, 30)
    assert looks.look().records == 30 * _PARTITIONS
    copy(flow, 30 * _PARTITIONS)
    done = looks.look()
    assert (done.records, done.unknown, done.seconds) == (0, 0, 0)
    looks.look()
    looks.begin()
    looks.look()

    (selects, what), *found = written(flow)
    assert selects == f"selection/{flow.name}"
    assert what["settings"]["topics"] == [flow.topic]
    assert [key for key, _ in found] == [ends, *[time_of_look] * 4]
    assert found[-1][1]["at"] > found[0][1]["at"]
    assert found[0][1]["ends"] == [30, 30]

    fill(flow, 5)
    more = looks.look()
    assert more.records == 5 * _PARTITIONS
    assert 0 <= more.seconds < 60  # since the last look, not since the last record
    assert more.bytes > 0


def test_the_source_s_topic_is_created_again(flow: SparklessFlow, looks: Looks) -> None:
    """Positions in the deleted topic say nothing about the new one, even where it has
    fewer records: all of it is at risk.
    """
    fill(flow, 30)
    copy(flow, 30 * _PARTITIONS)
    assert looks.look().records == 0
    (_, before) = written(flow)[-2]
    assert isinstance(flow.source, str)
    a = flow.source
    delete_topic(a, flow.topic)
    wait_for(lambda: not topic_exists(a, flow.topic))
    create_topic(a, flow.topic, _PARTITIONS)
    fill(flow, 20)

    def seen() -> bool:
        with contextlib.suppress(MirrorError):  # leaders of a new topic
            return looks.look().records == 20 * _PARTITIONS
        return False

    wait_for(seen)
    (_, after) = [each for each in written(flow) if each[0].startswith("ends/")][-1]
    assert after["ends"] == [20, 20]
    assert after["topic_id"] != before["topic_id"]


def test_an_open_transaction_holds_records_back(
    flow: SparklessFlow, looks: Looks
) -> None:
    """What the source has promised to keep is at risk, though `read_committed` readers
    do not see it yet.
    """
    fill(flow, 10)
    copy(flow, 10 * _PARTITIONS)
    client = Producer(
        {"bootstrap.servers": flow.source, "transactional.id": flow.topic}
    )
    client.init_transactions(30)
    client.begin_transaction()
    client.produce(flow.topic, value=b"open", partition=0)
    client.flush(30)
    fill(flow, 10)
    try:
        found = looks.look()
    finally:
        client.abort_transaction(30)

    assert {(p.partition, p.records, p.open) for p in found.partitions} == {
        (0, 11, 11),
        (1, 10, 0),
    }


def test_a_transaction_that_no_one_ends(
    flow: SparklessFlow,
    looks: Looks,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """A service died and left a transaction open in the progress: the command answers
    with what it can see before it, and says that this is an upper bound.
    """
    fill(flow, 10)
    copy(flow, 10 * _PARTITIONS)
    looks.look()
    client = Producer(
        {"bootstrap.servers": flow.target, "transactional.id": flow.topic}
    )
    client.init_transactions(30)
    client.begin_transaction()
    client.produce(flow.progress, key=b"k", value=b"v", partition=0)
    client.flush(30)
    monkeypatch.setattr(reading, "_PATIENCE_SECONDS", 0.5)
    config = flow.config().flows[flow.name]
    try:
        with flow.connected() as (_, target):
            found = from_standby(target, config, lambda: read_progress(config, target))
    finally:
        client.abort_transaction(30)

    assert (found.records, found.unknown) == (0, 0)
    assert "the answer is an upper bound" in capsys.readouterr().err


def test_a_copy_that_was_deleted_is_lost_as_a_whole(
    flow: SparklessFlow, looks: Looks
) -> None:
    """Progress says that all is copied, and the copy is gone: the status and the answer
    from the target alone count every record.
    """
    fill(flow, 10)
    copy(flow, 10 * _PARTITIONS)
    assert looks.look().records == 0
    delete_topic(str(flow.target), flow.copy)
    wait_for(lambda: not topic_exists(str(flow.target), flow.copy))

    assert looks.look().records == 10 * _PARTITIONS
    config = flow.config().flows[flow.name]
    with flow.connected() as (_, target):
        found = from_standby(target, config, lambda: read_progress(config, target))
    assert found.records == 10 * _PARTITIONS


def test_a_service_that_slept_is_corrected(flow: SparklessFlow, looks: Looks) -> None:
    """Records of another service, from an hour ago, are replaced by the next look."""
    fill(flow, 10)
    looks.look()
    (selects, noted), (key, value) = written(flow)[:2]
    client = producer(str(flow.target))
    stale = {selects: {**noted, "by": "it"}, key: {**value, "ends": [1, 1]}}
    for name, told in stale.items():
        client.produce(topic_name(flow.alias), key=name, value=json.dumps(told))
    assert client.flush(30) == 0

    looks.look()  # notices it
    looks.look()

    last = dict(written(flow))
    assert last[key]["ends"] == [10, 10]
    assert last[selects]["by"] == noted["by"]


@pytest.mark.parametrize(
    ("value", "says"),
    [(b"\xff", "is damaged"), (b'{"version": 9, "at": ""}', "has version 9")],
)
def test_what_others_write_there(
    flow: SparklessFlow, looks: Looks, value: bytes, says: str
) -> None:
    """Unknown kinds are left alone. A record that cannot be read is named, and the job
    writes nothing over it; with the topic deleted, it begins again.
    """
    fill(flow, 10)
    looks.look()
    client = producer(str(flow.target))
    topic = topic_name(flow.alias)
    for key in ("acls/x", "\N{SNOWMAN}", "ends"):
        client.produce(topic, key=key, value=value)
    client.produce(topic, value=value)
    assert client.flush(30) == 0
    looks.begin()
    assert looks.look().records == 10 * _PARTITIONS

    client.produce(topic, key=f"ends/{flow.topic}", value=value)
    assert client.flush(30) == 0
    looks.begin()
    with pytest.raises(ClusterError, match=f"{topic}: the record ends/.* {says}"):
        looks.look()
    fill(flow, 1)
    with pytest.raises(ClusterError):
        looks.look()
    assert looks.shown.records == 11 * _PARTITIONS  # it still shows what is at risk

    delete_topic(str(flow.target), topic)
    wait_for(lambda: not topic_exists(str(flow.target), topic))

    def works() -> bool:
        with contextlib.suppress(MirrorError):
            return looks.look().records == 11 * _PARTITIONS
        return False

    wait_for(works)


@pytest.mark.full
def test_a_partition_that_does_not_answer(
    make_clusters: Callable[..., dict[str, PlaygroundCluster]],
    clusters: dict[str, PlaygroundCluster],
    topic_name: str,
) -> None:
    """With one of two brokers dead, its partitions stay at risk as of their last
    answer, and the others go on.
    """
    (source,) = make_clusters("a", nodes=3).values()
    a, b = source.bootstrap, clusters["b"].bootstrap
    create_topic(a, topic_name, 3)
    flow = SparklessFlow(source=a, target=b, topic=topic_name, alias=topic_name[-8:])
    flow.own()
    with flow.connected() as (here, target):
        looks = Looks(flow, here, target)
        fill(flow, 10)
        first = looks.look()
        silent = here.topics([topic_name])[topic_name].leaders[1].node
        source.kill(silent)

        def partial() -> bool:
            with contextlib.suppress(MirrorError):
                return len({p.at for p in looks.look().partitions}) > 1
            return False

        wait_for(partial)
        found = looks.shown
    assert found.records == first.records
    by_number = {each.partition: each for each in found.partitions}
    assert by_number[0].at > by_number[1].at == found.at == first.at
    assert by_number[0].at <= time.time()
