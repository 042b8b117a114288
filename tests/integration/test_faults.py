"""A partition in trouble: its state and reason are right, its neighbours go on, and it
goes on by itself, losing and repeating nothing, when the cause is gone.

Each test has an alias and topics of its own, since most share their clusters.
"""

from __future__ import annotations

import contextlib
import time
from typing import TYPE_CHECKING, Any

from confluent_kafka.admin import (
    AclBinding,
    AclBindingFilter,
    AclOperation,
    AclPermissionType,
    AdminClient,
    NewTopic,
    ResourcePatternType,
    ResourceType,
)
import pytest

from mirror.clusters.cluster import Cluster
from mirror.config.cluster_settings import ClusterConfig
from mirror.pairs import losses
from mirror.playground.brokers import playground
from mirror.playground.secured import USER
from mirror.proofs.account import FindingKind
from tests.harness.admin import create_topic
from tests.harness.counters import counter
from tests.harness.load import producer
from tests.harness.proofs import proven
from tests.harness.quotas import limit
from tests.harness.slots import SparklessFlow
from tests.harness.waiting import PATIENCE_SECONDS, crowd, deadline_in, wait_for
from tests.harness.witness import keys_of, order_of, read_topic

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    from mirror.playground.cluster import PlaygroundCluster
    from tests.harness.service import RunningMirror
    from tests.harness.standing import StandingMirror

pytestmark = pytest.mark.integration

_COMMON = {"lease_seconds": 1, "tasks": 1, "refresh_topics_seconds": 1}
_SEEN_SECONDS = 60.0
_RESUMED_SECONDS = 75.0
"""The longest pause is a minute."""
_THROTTLED_SECONDS = 5.0
"""Without a quota the copy takes one."""
_TEST_SECONDS = 600.0
"""No test takes longer."""


@pytest.fixture(scope="module")
def brokers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[PlaygroundCluster]:
    root = tmp_path_factory.mktemp("three")
    with playground(("n",), root=root, given=False, nodes=3) as made:
        yield made["n"]


@pytest.fixture
def three(brokers: PlaygroundCluster) -> Iterator[PlaygroundCluster]:
    """A cluster of three brokers, which all run again for the next test."""
    yield brokers
    for number in set(brokers.nodes) - brokers.pids().keys():
        brokers.start(number)


def config(
    source: Mapping[str, Any] | str,
    target: Mapping[str, Any] | str,
    alias: str,
    topics: Sequence[str],
) -> dict[str, Any]:
    ends = [
        {"bootstrap_servers": each} if isinstance(each, str) else dict(each)
        for each in (source, target)
    ]
    return {
        "clusters": {alias: ends[0], "B": ends[1]},
        "flows": {f"{alias}->B": {"topics": [*topics], **_COMMON}},
    }


def put(bootstrap: str, topic: str, numbers: Iterable[int], **settings: Any) -> None:
    client = producer(bootstrap, **settings)
    for number in numbers:
        client.produce(topic, key=b"%d" % number, value=b"v" * 100, partition=0)
    assert client.flush(PATIENCE_SECONDS * crowd()) == 0  # there may be no leader yet


def keys(count: int, first: int = 0) -> list[bytes]:
    return [b"%d" % number for number in range(first, count)]


def partition(mirror: RunningMirror, topic: str) -> dict[str, Any]:
    return _of(mirror.status(), topic)


def _of(document: Mapping[str, Any], topic: str) -> dict[str, Any]:
    for each in document["flows"][0]["partitions"]:
        if each["topic"] == topic:
            return dict(each)
    return {"state": "", "reason": "", "since": 0.0, "lost": 0}


def wait_faulted(mirror: RunningMirror, topic: str, reason: str) -> str:
    """Wait for the state, with a reason that says so, and since when; the reason."""
    shown = _of(
        mirror.wait_until(
            lambda document: (
                _of(document, topic)["state"] == "FAULTED"
                and reason in _of(document, topic)["reason"]
            ),
            _SEEN_SECONDS,
        ),
        topic,
    )
    assert 0 < time.time() - shown["since"] < _TEST_SECONDS
    return str(shown["reason"])


def wait_copied(
    mirror: RunningMirror,
    bootstrap: str,
    copy: str,
    wanted: list[bytes],
    *,
    repeats: bool = False,
) -> None:
    """Wait until a copy has exactly these keys in this order; with `repeats`, which at
    least once allows, their first appearances count.
    """
    deadline = deadline_in(_RESUMED_SECONDS)
    found: list[bytes] = []
    while True:
        with contextlib.suppress(KeyError):  # not created yet
            found = order_of(bootstrap, copy).get(0, [])
        if repeats:
            found = list(dict.fromkeys(found))
        if len(found) >= len(wanted):
            break
        assert time.monotonic() < deadline, (
            f"{copy}: {len(found)} of {len(wanted)}\n{mirror.log_tail()}"
        )
        time.sleep(0.3)
    assert found == wanted


def wait_running(mirror: RunningMirror, topic: str) -> None:
    mirror.wait_until(
        lambda document: (
            _of(document, topic)["state"] == "RUNNING"
            and not _of(document, topic)["reason"]
        ),
        _RESUMED_SECONDS,
    )


class Rights:
    """ACLs on one secured cluster, for the service's user."""

    def __init__(self, bootstrap: str) -> None:
        self._admin = AdminClient({"bootstrap.servers": bootstrap})
        for kind, name in (
            (ResourceType.TOPIC, "*"),
            (ResourceType.GROUP, "*"),
            (ResourceType.TRANSACTIONAL_ID, "*"),
            (ResourceType.BROKER, "kafka-cluster"),
        ):
            self._create(kind, name, AclOperation.ALL, AclPermissionType.ALLOW)

    def deny(self, topic: str, operation: AclOperation) -> None:
        self._create(ResourceType.TOPIC, topic, operation, AclPermissionType.DENY)

    def allow_again(self, topic: str) -> None:
        chosen = AclBindingFilter(
            ResourceType.TOPIC, topic, ResourcePatternType.LITERAL, None, None,
            AclOperation.ANY, AclPermissionType.DENY,
        )  # fmt: skip
        for future in self._admin.delete_acls([chosen]).values():
            assert future.result(30)

    def _create(
        self, kind: ResourceType, name: str, operation: AclOperation,
        permission: AclPermissionType,
    ) -> None:  # fmt: skip
        binding = AclBinding(
            kind, name, ResourcePatternType.LITERAL, f"User:{USER}", "*", operation,
            permission,
        )  # fmt: skip
        for future in self._admin.create_acls([binding]).values():
            future.result(30)


@pytest.mark.full
def test_rights_on_single_topics(
    make_clusters: Callable[..., dict[str, PlaygroundCluster]],
    standing: StandingMirror,
) -> None:
    """A copy that the service may not write, a source topic that it may not read, and
    one that it may no longer see each have a reason that says so; once the right is
    granted, each is copied. Counters name the refusals, and a record that one held up
    once.
    """
    made = make_clusters("a", "b", secured=True)
    a, b = made["a"].admin_bootstrap, made["b"].admin_bootstrap
    of_source, of_target = Rights(a), Rights(b)
    topics = ("fault-good", "fault-write", "fault-read", "fault-hidden")
    good, write, read, hidden = topics
    for topic in topics:
        create_topic(a, topic)
        put(a, topic, range(10))
    entered = config(
        {"bootstrap_servers": made["a"].bootstrap, **made["a"].client_config},
        {"bootstrap_servers": made["b"].bootstrap, **made["b"].client_config},
        "A",
        topics,
    )
    with standing.hosting(entered) as mirror:
        for topic in topics:
            wait_copied(mirror, b, f"A.{topic}", keys(10))
        of_target.deny(f"A.{write}", AclOperation.WRITE)
        of_source.deny(read, AclOperation.READ)
        of_source.deny(hidden, AclOperation.DESCRIBE)
        of_source.deny(hidden, AclOperation.READ)
        for topic in topics:
            put(a, topic, range(10, 20))
        for topic, named in (
            (write, f"A.{write}-0: "), (read, read), (hidden, hidden)
        ):  # fmt: skip
            reason = wait_faulted(mirror, topic, named).upper()
            assert "AUTHORIZ" in reason, reason
        why = "TOPIC_AUTHORIZATION_FAILED"
        for cluster in ("A", "B"):
            errors = {"cluster": cluster, "error": why}
            assert counter(mirror, "mirror_cluster_errors_total", **errors) > 0
        failed = {"topic": write, "reason": why}
        assert counter(mirror, "mirror_failed_records_total", **failed) == 1
        put(a, good, range(20, 30))
        wait_copied(mirror, b, f"A.{good}", keys(30))
        assert mirror.flow()["state"] == "RUNNING"
        mirror.assert_never_failed()
        for topic in (write, read, hidden):
            assert order_of(b, f"A.{topic}")[0] == keys(10)
        of_target.allow_again(f"A.{write}")
        of_source.allow_again(read)
        of_source.allow_again(hidden)
        for topic in (write, read, hidden):
            wait_copied(mirror, b, f"A.{topic}", keys(20))
            wait_running(mirror, topic)


def test_copy_deleted_underneath(
    clusters: dict[str, PlaygroundCluster],
    standing: StandingMirror,
) -> None:
    """A deleted copy is re-created and gets everything that was not copied yet, once;
    the flow reports that what was copied before is missing, and how to get it.
    """
    a, b = clusters["a"].bootstrap, clusters["b"].bootstrap
    topic, other = "fault-deleted", "fault-beside"
    for name in (topic, other):
        create_topic(a, name)
        put(a, name, range(10))
    with standing.hosting(config(a, b, "GONE", (topic, other))) as mirror:
        for name in (topic, other):
            wait_copied(mirror, b, f"GONE.{name}", keys(10))
        admin = AdminClient({"bootstrap.servers": b})
        admin.delete_topics([f"GONE.{topic}"])[f"GONE.{topic}"].result(30)
        put(a, topic, range(10, 20))
        put(a, other, range(10, 20))
        wait_copied(mirror, b, f"GONE.{other}", keys(20))
        wait_copied(mirror, b, f"GONE.{topic}", keys(20, 10))
        wait_running(mirror, topic)
        status = mirror.wait_until(lambda document: document["flows"][0]["problems"])
        assert f"GONE.{topic} was gone" in status["flows"][0]["problems"][0]


def strict_and_lenient(source: str, target: str, alias: str) -> tuple[str, str]:
    """Two topics, whose copies want all three replicas in sync, or two of them."""
    topics = f"fault-{alias}-strict", f"fault-{alias}-lenient"
    for topic, least in zip(topics, ("3", "2"), strict=True):
        create_topic(source, topic)
        put(source, topic, range(10))
        admin = AdminClient({"bootstrap.servers": target})
        new = NewTopic(f"{alias}.{topic}", num_partitions=1, replication_factor=3,
                       config={"min.insync.replicas": least})  # fmt: skip
        admin.create_topics([new])[new.topic].result(30)
    return topics


def wait_for_replicas(bootstrap: str, copies: Sequence[str], count: int) -> None:
    shown = AdminClient({"bootstrap.servers": bootstrap})
    wait_for(
        lambda: all(
            len(shown.list_topics(copy, 30).topics[copy].partitions[0].isrs) == count
            for copy in copies
        ),
        pause=0.5,
    )


@pytest.mark.full
def test_too_few_replicas_in_sync(
    clusters: dict[str, PlaygroundCluster],
    three: PlaygroundCluster,
    standing: StandingMirror,
) -> None:
    """Copies that need more replicas than are in sync wait for them; those that need
    fewer are copied meanwhile. (Without transactions: what was written next to
    something that was refused may be written again.)
    """
    a, b = clusters["a"].bootstrap, three.bootstrap
    strict, lenient = strict_and_lenient(a, b, "FEW")
    options = config(a, b, "FEW", (strict, lenient))
    options["flows"]["FEW->B"] |= {"sync_topic_configs": False, "exactly_once": False}
    with standing.hosting(options) as mirror:
        for topic in (strict, lenient):
            wait_copied(mirror, b, f"FEW.{topic}", keys(10))
        three.kill(3)
        wait_for_replicas(b, [f"FEW.{topic}" for topic in (strict, lenient)], 2)
        for topic in (strict, lenient):
            put(a, topic, range(10, 20))
        wait_copied(mirror, b, f"FEW.{lenient}", keys(20), repeats=True)
        wait_faulted(mirror, strict, "NOT_ENOUGH_REPLICAS")
        put(a, lenient, range(20, 30))
        wait_copied(mirror, b, f"FEW.{lenient}", keys(30), repeats=True)
        assert partition(mirror, lenient)["state"] == "RUNNING"
        three.start(3)
        wait_copied(mirror, b, f"FEW.{strict}", keys(20))
        wait_running(mirror, strict)


def test_too_few_replicas_hold_up_a_transaction(
    clusters: dict[str, PlaygroundCluster],
    three: PlaygroundCluster,
    standing: StandingMirror,
) -> None:
    """A transaction that wrote to a partition that lacks replicas cannot end, and its
    slot waits with a reason; once the replicas are back the slot continues by itself,
    with each record once.
    """
    a, b = clusters["a"].bootstrap, three.bootstrap
    topics = strict, lenient = strict_and_lenient(a, b, "HELD")
    options = config(a, b, "HELD", topics)
    options["flows"]["HELD->B"] |= {"sync_topic_configs": False}
    with standing.hosting(options) as mirror:
        for topic in topics:
            wait_copied(mirror, b, f"HELD.{topic}", keys(10))
        three.kill(3)
        wait_for_replicas(b, [f"HELD.{topic}" for topic in topics], 2)
        for topic in topics:
            put(a, topic, range(10, 20))
        mirror.wait_until(
            lambda document: (
                document["flows"][0]["reason"]
                or _of(document, strict)["state"] == "FAULTED"
            ),
        )
        three.start(3)
        wait_for_replicas(b, [f"HELD.{topic}" for topic in topics], 3)
        for topic in topics:
            wait_copied(mirror, b, f"HELD.{topic}", keys(20))
            wait_running(mirror, topic)
        put(a, lenient, range(20, 30))
        wait_copied(mirror, b, f"HELD.{lenient}", keys(30))


def test_leader_gone_at_the_source(
    clusters: dict[str, PlaygroundCluster],
    three: PlaygroundCluster,
    standing: StandingMirror,
) -> None:
    """Partitions whose only replica is on a dead broker of the source wait for it; all
    others are copied.
    """
    a, b = three.bootstrap, clusters["b"].bootstrap
    admin = AdminClient({"bootstrap.servers": a})
    alone, safe = "fault-alone", "fault-safe"
    new = [
        NewTopic(alone, num_partitions=1, replica_assignment=[[3]],
                 config={"min.insync.replicas": "1"}),
        NewTopic(safe, num_partitions=1, replica_assignment=[[3, 1, 2]]),
    ]  # fmt: skip
    for future in admin.create_topics(new).values():
        future.result(30)
    for topic in (alone, safe):
        put(a, topic, range(10))
    with standing.hosting(config(a, b, "LEFT", (alone, safe))) as mirror:
        for topic in (alone, safe):
            wait_copied(mirror, b, f"LEFT.{topic}", keys(10))
        put(a, alone, range(10, 20))
        wait_copied(mirror, b, f"LEFT.{alone}", keys(20))
        three.kill(3)
        put(a, safe, range(10, 20))
        wait_copied(mirror, b, f"LEFT.{safe}", keys(20))
        wait_faulted(mirror, alone, "")
        mirror.assert_never_failed()
        three.start(3)
        put(a, alone, range(20, 30))
        wait_copied(mirror, b, f"LEFT.{alone}", keys(30))
        wait_running(mirror, alone)


def test_truncated_log(
    clusters: dict[str, PlaygroundCluster],
    three: PlaygroundCluster,
    standing: StandingMirror,
) -> None:
    """After an unclean election everything that the source has now is copied once, even
    when its log is longer than the position again; the ledger has what it lost, with
    its exact range.
    """
    a, b = three.bootstrap, clusters["b"].bootstrap
    topic = "fault-truncated"
    new = NewTopic(
        topic, num_partitions=1, replica_assignment=[[1, 2]],
        config={"min.insync.replicas": "1", "unclean.leader.election.enable": "true"},
    )  # fmt: skip
    admin = AdminClient({"bootstrap.servers": a})
    admin.create_topics([new])[topic].result(30)
    put(a, topic, range(10))
    with standing.hosting(config(a, b, "CUT", [topic])) as mirror:
        wait_copied(mirror, b, f"CUT.{topic}", keys(10))
        three.kill(2)
        put(a, topic, range(10, 20))
        wait_copied(mirror, b, f"CUT.{topic}", keys(20))
        three.kill(1)
        three.start(2)
        put(a, topic, range(100, 130))
        wait_copied(mirror, b, f"CUT.{topic}", keys(20) + keys(130, 100))
        wait_running(mirror, topic)
        wait_for(lambda: partition(mirror, topic)["lost"] == 10)  # with a report
    cluster = Cluster(ClusterConfig(alias="B", bootstrap_servers=b)).connect()
    with contextlib.closing(cluster):
        (loss,) = losses.read(cluster, "CUT")
    assert (loss.cause, loss.first, loss.last) == (losses.Cause.TRUNCATED, 10, 19)


@pytest.mark.full
def test_copy_truncated(
    clusters: dict[str, PlaygroundCluster],
    three: PlaygroundCluster,
    standing: StandingMirror,
) -> None:
    """A copy that loses its end in an unclean election lacks what the target itself
    lost, and nothing else: all that follows is copied once and in order, the flow needs
    no help, and a proof names the missing records.
    """
    a, b = clusters["a"].bootstrap, three.bootstrap
    topic = "fault-copy-truncated"
    create_topic(a, topic)
    new = NewTopic(
        f"HIT.{topic}", num_partitions=1, replica_assignment=[[1, 2]],
        config={"min.insync.replicas": "1", "unclean.leader.election.enable": "true"},
    )  # fmt: skip
    admin = AdminClient({"bootstrap.servers": b})
    admin.create_topics([new])[new.topic].result(30)
    put(a, topic, range(10))
    options = config(a, b, "HIT", [topic])
    options["flows"]["HIT->B"] |= {"sync_topic_configs": False}
    with standing.hosting(options) as mirror:
        wait_copied(mirror, b, f"HIT.{topic}", keys(10))
        three.kill(2)
        put(a, topic, range(10, 20))
        wait_copied(mirror, b, f"HIT.{topic}", keys(20))
        three.kill(1)
        three.start(2)
        put(a, topic, range(20, 50))
        wait_copied(mirror, b, f"HIT.{topic}", keys(10) + keys(50, 20))
        wait_running(mirror, topic)
    flow = SparklessFlow(source=a, target=b, topic=topic, alias="HIT")
    found = [(e.kind, e.source, e.count) for e in proven(flow, since=None).findings]
    assert found == [(FindingKind.MISSING, 10, 10)]


def test_damaged_batch(
    clusters: dict[str, PlaygroundCluster],
    make_clusters: Callable[..., dict[str, PlaygroundCluster]],
    standing: StandingMirror,
) -> None:
    """Everything before a batch that the source's disk has damaged is copied, nothing
    of it or after it, and the reason has its offset; once the batch is repaired,
    everything is copied.
    """
    source = make_clusters("a")["a"]
    a, b = source.bootstrap, clusters["b"].bootstrap
    bad, good = "fault-damaged", "fault-whole"
    for topic in (bad, good):
        create_topic(a, topic)
    for number in range(20):  # a batch each
        put(a, bad, [number])
    put(a, good, range(10))
    folder = source.folder
    assert folder is not None
    source.stop()
    (segment,) = folder.glob(f"node-1/data/{bad}-0/*.log")
    content = segment.read_bytes()
    at = 0
    for _ in range(12):
        at += 12 + int.from_bytes(content[at + 8 : at + 12])
    damaged = bytearray(content)
    damaged[at + 100] ^= 0xFF
    segment.write_bytes(damaged)
    source.start()
    with standing.hosting(config(a, b, "HARM", (bad, good))) as mirror:
        wait_faulted(mirror, bad, "offset 12 is damaged")
        wait_copied(mirror, b, f"HARM.{bad}", keys(12))
        put(a, good, range(10, 20))
        wait_copied(mirror, b, f"HARM.{good}", keys(20))
        source.stop()
        segment.write_bytes(content)
        source.start()
        wait_copied(mirror, b, f"HARM.{bad}", keys(20))
        wait_running(mirror, bad)


@pytest.mark.full
def test_quota_of_the_target(
    clusters: dict[str, PlaygroundCluster], topic_name: str, standing: StandingMirror
) -> None:
    """A target that throttles us makes the copy slow, and nothing else: no fault, no
    failed lease, no record lost or doubled.
    """
    a, b = clusters["a"].bootstrap, clusters["b"].bootstrap
    topic = f"fault-{topic_name}"
    create_topic(a, topic)
    # Brokers look at the last ten seconds: 4 of 8.5 MB pass at once.
    limit(b, {"client-id": "mirror.QUOTA->B.0"}, 400_000.0)
    client = producer(a, compression_type="none", batch_size=100_000)
    for number in range(8_000):
        client.produce(topic, key=b"%d" % number, value=b"v" * 1000, partition=0)
    assert client.flush(60) == 0
    states: set[str] = set()
    with standing.hosting(config(a, b, "QUOTA", [topic])) as mirror:
        mirror.wait_running()
        began, deadline = time.monotonic(), deadline_in(90)
        while (shown := partition(mirror, topic)).get("position", -1) < 8_000:
            states.add(shown["state"])
            assert time.monotonic() < deadline, mirror.log_tail()
            time.sleep(0.5)
        assert time.monotonic() - began > _THROTTLED_SECONDS
        limit(b, {"client-id": "mirror.QUOTA->B.0"}, None)
        wait_for(lambda: len(read_topic(b, f"QUOTA.{topic}")[0]) >= 8_000, pause=0.5)
        assert keys_of(read_topic(b, f"QUOTA.{topic}"))[0] == keys(8_000)
        mirror.assert_never_failed()
    assert "FAULTED" not in states
