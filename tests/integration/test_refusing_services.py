"""A target that refuses what mirror asks for, as managed services do."""

from __future__ import annotations

import json
from pathlib import Path
import subprocess
import sys
import time
from typing import TYPE_CHECKING, Any

from confluent_kafka import Producer
import pytest

from mirror.clusters.admin import topic_admin
from mirror.clusters.admin.topic_admin import NewTopic
from mirror.clusters.cluster import Cluster
from mirror.config.schema import ClusterConfig
from mirror.host import require_java
from mirror.playground import node
from mirror.playground.brokers import playground
from mirror.playground.jars import kafka_jars
from mirror.playground.ports import free_ports
from tests.harness.admin import create_topic, end_offsets
from tests.harness.load import NumberedLoad
from tests.harness.metadata import overrides
from tests.harness.proxy import BrokerProxy
from tests.harness.service import RunningMirror, config_for
from tests.harness.switching import command
from tests.harness.witness import assert_exactly_once, order_of

if TYPE_CHECKING:
    from collections.abc import Iterator

    from mirror.playground.cluster import PlaygroundCluster
    from tests.harness.standing import StandingMirror

pytestmark = pytest.mark.integration

POLICY = Path(__file__).parents[1] / "java" / "RefusingPolicy.java"
_COMPILER = "jdk.compiler/com.sun.tools.javac.Main"


@pytest.fixture(scope="module")
def strict(tmp_path_factory: pytest.TempPathFactory) -> Iterator[PlaygroundCluster]:
    """Its policy refuses small segments, and min.cleanable.dirty.ratio."""
    folder = tmp_path_factory.mktemp("strict")
    jars = kafka_jars("broker")
    subprocess.run(
        [require_java(), "-m", _COMPILER, "-cp", jars, "-d", folder, POLICY],
        check=True, timeout=120,
    )  # fmt: skip
    settings = {
        f"{kind}.policy.class.name": "RefusingPolicy"
        for kind in ("create.topic", "alter.config")
    }
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(node, "kafka_jars", lambda *_: f"{jars}:{folder}")
        with playground(
            ("strict",), root=folder / "data", road="jars", given=False,
            settings=settings,
        ) as made:  # fmt: skip
            yield made["strict"]


def test_configs_that_a_service_refuses_are_left_out(
    clusters: dict[str, PlaygroundCluster],
    strict: PlaygroundCluster,
    topic_name: str,
    tmp_path: Path,
) -> None:
    """The copy and mirror's own topics are made without them, `check` and the log say
    so, and every record is copied once.
    """
    a, b = clusters["a"].bootstrap, strict.bootstrap
    create_topic(a, topic_name, 1, segment_bytes="1048576", retention_ms="86400000")
    load = NumberedLoad(a, topic_name, 1)
    load.send(500)
    document = config_for(a, b, topics=[topic_name])
    (tmp_path / "mirror.yaml").write_text(json.dumps(document))
    checked = command(tmp_path, "check")
    copy = f"A.{topic_name}"
    assert f"created without a config: cluster B: creating topic {copy}" in checked
    assert "config_properties_exclude" in checked
    mirror = RunningMirror(document, tmp_path / "run", once=True)
    with mirror:
        assert mirror.wait() == 0, mirror.log_tail()
    assert_exactly_once(order_of(b, copy), load.order)
    assert overrides(b, copy) == {"retention.ms": "86400000"}
    own = overrides(b, "mirror-progress.A.internal")
    assert own["cleanup.policy"] == "compact"
    assert own.keys().isdisjoint({"segment.bytes", "min.cleanable.dirty.ratio"})
    assert own["delete.retention.ms"] == "600000"
    assert "topic created without a config" in mirror.log.read_text()


def test_the_advice_follows_what_the_service_says(
    clusters: dict[str, PlaygroundCluster],
    strict: PlaygroundCluster,
    topic_name: str,
    tmp_path: Path,
) -> None:
    """It wants three replicas: `check` says to set what it asks, not to lower it."""
    a, topic = clusters["a"].bootstrap, f"three-replicas-{topic_name}"
    create_topic(a, topic)
    document = config_for(a, strict.bootstrap, topics=[topic])
    (tmp_path / "mirror.yaml").write_text(json.dumps(document))
    checked = " ".join(command(tmp_path, "check", fails=True).split())
    assert "Topic replication factor must be 3" in checked
    assert "set replication_factor (and those of internal topics) as it asks" in checked


def test_what_is_too_much_for_one_request_is_asked_for_in_parts(
    clusters: dict[str, PlaygroundCluster], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Brokers refuse more than 10,000 partitions at once: asked for in halves, each of
    the topics is possible.
    """
    bootstrap = clusters["b"].bootstrap
    target = Cluster(ClusterConfig(alias="B", bootstrap_servers=(bootstrap,))).connect()
    wanted = [
        NewTopic(name=f"many-{n}", partitions=4000, replication_factor=1)
        for n in range(5)
    ]
    monkeypatch.setattr(topic_admin, "_PARTITIONS_PER_REQUEST", 100_000)
    asked = []
    request = topic_admin._create_request
    monkeypatch.setattr(
        topic_admin, "_create_request",
        lambda topics, **more: asked.append(len(topics)) or request(topics, **more),
    )  # fmt: skip
    made = topic_admin.create_topics(target, wanted, validate_only=True)
    target.close()
    assert not made.refused
    assert len(made.created) == 5
    assert asked[0] == 5
    assert max(asked[1:]) < 5


def test_a_copy_of_others_is_not_appended_to(
    clusters: dict[str, PlaygroundCluster], standing: StandingMirror, topic_name: str
) -> None:
    """It waits, with its reason and its lag, until append_to_existing says otherwise;
    from then on it is the flow's own.
    """
    a, b = clusters["a"].bootstrap, clusters["b"].bootstrap
    alias = f"of{topic_name[-8:]}"
    copy = f"{alias}.{topic_name}"
    create_topic(a, topic_name, 1)
    create_topic(b, copy, 1)
    theirs, load = NumberedLoad(b, copy, 1), NumberedLoad(a, topic_name, 1)
    theirs.send(10)
    load.send(100)

    def document(**more: object) -> dict[str, object]:
        return {
            "clusters": {
                alias: {"bootstrap_servers": a}, "B": {"bootstrap_servers": b},
            },
            "flows": {
                f"{alias}->B": {
                    "topics": [topic_name], "lease_seconds": 2,
                    "emit_heartbeats": False, "heartbeats_replication": False, **more,
                }
            },
        }  # fmt: skip

    with standing.hosting(document()) as mirror:
        (partition,) = _faulted(mirror, alias)
        assert (
            "run mirror adopt; to append to them, set append_to_ex"
            in (partition["reason"])
        )
        assert end_offsets(b, copy) == {0: 10}
    with standing.hosting(document(append_to_existing=True)) as mirror:
        mirror.wait_copied(a, topic_name, flow=f"{alias}->B")
    load.send(100)
    with standing.hosting(document()) as mirror:
        mirror.wait_copied(a, topic_name, flow=f"{alias}->B")
    (number,) = order_of(b, copy).keys()
    assert len(order_of(b, copy)[number]) == 210


def test_the_lag_of_records_that_the_target_refuses(
    clusters: dict[str, PlaygroundCluster], standing: StandingMirror, topic_name: str
) -> None:
    """A producer writes nanoseconds: the target refuses such times, and the lag counts
    all of its records from the first moment, in records and in seconds.
    """
    a, b = clusters["a"].bootstrap, clusters["b"].bootstrap
    alias = f"ns{topic_name[-8:]}"
    any_time, an_hour = str(2**63 - 1), "3600000"
    create_topic(a, topic_name, 1, message_timestamp_after_max_ms=any_time)
    copy = f"{alias}.{topic_name}"
    create_topic(b, copy, 1, message_timestamp_after_max_ms=an_hour)
    producer = Producer({"bootstrap.servers": a})
    for _ in range(20):
        producer.produce(topic_name, b"x", timestamp=time.time_ns())
    assert producer.flush(30) == 0
    document = {
        "clusters": {alias: {"bootstrap_servers": a}, "B": {"bootstrap_servers": b}},
        "flows": {
            f"{alias}->B": {
                "topics": [topic_name], "lease_seconds": 2, "sync_topic_configs": False,
                "emit_heartbeats": False, "heartbeats_replication": False,
            }
        },
    }  # fmt: skip
    with standing.hosting(document) as mirror:
        (partition,) = _faulted(mirror, alias)
        assert "INVALID_TIMESTAMP" in partition["reason"]
        assert "set message.timestamp.after.max.ms" in partition["reason"]
        assert partition["lag"] == 20
        late = partition["lag_seconds"]
        flow = f"{alias}->B"
        mirror.wait_until(lambda _: _partition(mirror, flow)["lag_seconds"] > late + 2)
        assert _partition(mirror, flow)["lag"] == 20


WITHOUT = (
    *("AddPartitionsToTxn", "EndTxn", "DescribeTransactions", "ListTransactions"),
    *("DescribeProducers", "DescribeAcls", "CreateAcls", "DeleteAcls"),
    *("AlterConfigs", "IncrementalAlterConfigs"),
)
"""What Event Hubs does not offer outside of its preview, by its documentation."""


def test_a_service_that_speaks_a_part_of_the_protocol(
    clusters: dict[str, PlaygroundCluster], topic_name: str, tmp_path: Path
) -> None:
    """A target without transactions, ACLs and changes of configs: `check` says what to
    set, and with that every record is copied, and nothing is a problem.
    """
    a = clusters["a"].bootstrap
    create_topic(a, topic_name, retention_ms="86400000")
    load = NumberedLoad(a, topic_name, 1)
    load.send(500)
    with BrokerProxy(clusters["b"].bootstrap, lacks=WITHOUT) as hub:
        document = config_for(
            a, hub.bootstrap, alias="HUB", topics=[topic_name], tasks=1
        )
        flow = document["flows"]["HUB->B"]
        (tmp_path / "mirror.yaml").write_text(json.dumps(document))
        checked = " ".join(command(tmp_path, "check", fails=True).split())
        for setting in ("exactly_once", "sync_topic_configs", "sync_topic_acls"):
            assert f"set {setting}: false for HUB->B" in checked
        flow |= {
            "exactly_once": False, "sync_topic_configs": False,
            "sync_topic_acls": False,
        }  # fmt: skip
        (tmp_path / "mirror.yaml").write_text(json.dumps(document))
        assert "do not offer" not in command(tmp_path, "check")
        with RunningMirror(document, tmp_path / "run") as mirror:
            mirror.wait_copied(a, topic_name)
            mirror.wait_leases()
            status = mirror.flow()
            assert status["state"] == "RUNNING"
            assert not status["problems"]
    assert_exactly_once(
        order_of(clusters["b"].bootstrap, f"HUB.{topic_name}"), load.order
    )


def test_a_spark_master_that_does_not_answer(tmp_path: Path) -> None:
    """One message with its address, and exit code 1; every line is JSON."""
    (port,) = free_ports(1)
    document = config_for("127.0.0.1:1", "127.0.0.1:2")
    document["service"] = {
        "http_port": 0, "state_dir": str(tmp_path / "state"),
        "spark_master": f"spark://127.0.0.1:{port}",
    }  # fmt: skip
    (tmp_path / "mirror.yaml").write_text(json.dumps(document))
    done = subprocess.run(
        [sys.executable, "-m", "mirror", "run", "-c", tmp_path / "mirror.yaml"],
        check=False, capture_output=True, text=True, timeout=120,
    )  # fmt: skip
    assert done.returncode == 1
    told = [json.loads(line) for line in done.stderr.splitlines()]
    (error,) = (each["event"] for each in told if each["level"] == "error")
    assert f"no master answers (127.0.0.1:{port}: " in error


def _faulted(mirror: RunningMirror, alias: str) -> list[dict[str, Any]]:
    """The partitions of a flow, once all of them are set aside."""
    name = f"{alias}->B"

    def partitions() -> list[dict[str, Any]]:
        return list(mirror.flow(name)["partitions"])

    mirror.wait_until(lambda _: {p["state"] for p in partitions()} == {"FAULTED"})
    return partitions()


def _partition(mirror: RunningMirror, flow: str) -> dict[str, Any]:
    (found,) = mirror.flow(flow)["partitions"]
    return dict(found)
