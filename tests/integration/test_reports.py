"""What people reported of MirrorMaker 2, tried here: each test names the report."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

from confluent_kafka import Consumer, TopicPartition
from confluent_kafka.admin import AdminClient
import pytest

from mirror.clusters import codes
from mirror.clusters.admin import groups
from mirror.clusters.cluster import Cluster
from mirror.config.schema import ClusterConfig
from tests.harness.admin import (
    commit_offsets,
    create_topic,
    delete_records,
    delete_topic,
    set_configs,
    topic_exists,
)
from tests.harness.group_moves import run_java
from tests.harness.load import keys, producer, send
from tests.harness.metadata import overrides
from tests.harness.mishaps import Rule
from tests.harness.proxy import BrokerProxy
from tests.harness.service import RunningMirror, config_for
from tests.harness.switching import command
from tests.harness.waiting import beside, wait_for
from tests.harness.witness import assert_exactly_once, order_of

if TYPE_CHECKING:
    import threading

    from mirror.playground.cluster import PlaygroundCluster

pytestmark = pytest.mark.integration
SYNCED = {
    "sync_group_offsets": True,
    "sync_group_offsets_seconds": 1,
    "emit_checkpoints_seconds": 1,
}
JAVA = Path(__file__).parents[1] / "java" / "AskMirrorClient.java"


def test_a_copy_that_is_deleted_while_the_service_is_down(
    clusters: dict[str, PlaygroundCluster], topic_name: str, tmp_path: Path
) -> None:
    """The target is rebuilt while old state remains (Strimzi 3375, 5366): the next run
    says that earlier records are missing, and copies the new ones, once.
    """
    source, target = clusters["a"].bootstrap, clusters["b"].bootstrap
    copy, client = f"REBUILT.{topic_name}", producer(source)
    create_topic(source, topic_name)
    send(client, topic_name, keys(1, 10), b"v")
    config = config_for(source, target, alias="REBUILT", tasks=1, topics=[topic_name])
    with RunningMirror(config, tmp_path) as mirror:
        mirror.wait_copied(source, topic_name)
        assert mirror.terminate() == 0
        delete_topic(target, copy)
        new = keys(1, 10, first=10)
        send(client, topic_name, new, b"v")

        mirror.start()
        status = mirror.wait_until(lambda document: document["flows"][0]["problems"])
        mirror.wait_copied(source, topic_name)
        (problem,) = status["flows"][0]["problems"]
        assert f"{copy} was gone and has been re-created without" in problem
        assert mirror.terminate() == 0
    assert_exactly_once(order_of(target, copy), new)


def test_a_topic_that_ends_like_heartbeats(
    clusters: dict[str, PlaygroundCluster], topic_name: str, tmp_path: Path
) -> None:
    """Strimzi 12218: an application's `app.heartbeats` is copied if it is listed, and
    not because of its name; those of clusters are copied as there.
    """
    source, target = clusters["a"].bootstrap, clusters["b"].bootstrap
    other = f"{topic_name}.heartbeats"
    for name in (topic_name, other, "FAR.heartbeats"):
        create_topic(source, name)
    config = config_for(source, target, alias="BEAT", tasks=1, topics=[topic_name])
    config["flows"]["BEAT->B"]["heartbeats_replication"] = True
    config["clusters"]["FAR"] = {"bootstrap_servers": "127.0.0.1:1"}
    with RunningMirror(config, tmp_path) as mirror:
        mirror.wait_running()
    assert topic_exists(target, f"BEAT.{topic_name}")
    assert topic_exists(target, "BEAT.FAR.heartbeats")
    assert not topic_exists(target, f"BEAT.{other}")


def test_a_group_whose_records_have_expired(
    clusters: dict[str, PlaygroundCluster], topic_name: str, tmp_path: Path
) -> None:
    """Kafka 11748 and 10644: a group has committed below the source's first record. On
    the target it begins at the copy's first record that is not older, with no lag below
    zero, and its other partition is right.
    """
    source, target = clusters["a"].bootstrap, clusters["b"].bootstrap
    copy, group = f"EXPIRED.{topic_name}", f"g-{topic_name}"
    create_topic(source, topic_name, partitions=2)
    send(producer(source), topic_name, keys(2, 100), b"v")
    _commit(source, group, topic_name, {0: 10, 1: 60})
    delete_records(source, topic_name, 50)
    config = config_for(
        source,
        target,
        alias="EXPIRED",
        tasks=1,
        topics=[topic_name],
        groups=[group],
        **SYNCED,
    )
    with RunningMirror(config, tmp_path) as mirror:
        mirror.wait_copied(source, topic_name)
        wait_for(lambda: _committed(target, group, copy, 2) == [0, 60])
        found = mirror.wait_until(lambda known: _lag(known) >= 0)  # -1: not known yet
    assert _lag(found) == 90 + 40  # as kafka-consumer-groups counts on the source
    assert order_of(target, copy)[0] == [b"0:%d" % n for n in range(50, 100)]


def test_a_group_with_an_offset_below_zero(
    clusters: dict[str, PlaygroundCluster], topic_name: str, tmp_path: Path
) -> None:
    """Kafka 14587: a group that has no offset for one partition (-1 in an answer) does
    not end the sync of its other partitions, or of other groups.
    """
    source, target = clusters["a"].bootstrap, clusters["b"].bootstrap
    copy, groups = f"NONE.{topic_name}", [f"g{n}-{topic_name}" for n in range(2)]
    create_topic(source, topic_name, partitions=3)
    send(producer(source), topic_name, keys(3, 20), b"v")
    _commit(source, groups[0], topic_name, {1: 7})
    _commit(source, groups[1], topic_name, {0: 20, 1: 0, 2: 5})
    config = config_for(
        source,
        target,
        alias="NONE",
        tasks=1,
        topics=[topic_name],
        groups=groups,
        **SYNCED,
    )
    with RunningMirror(config, tmp_path):
        wait_for(lambda: _committed(target, groups[0], copy, 3) == [None, 7, None])
        wait_for(lambda: _committed(target, groups[1], copy, 3) == [20, 0, 5])


def test_a_listed_topic_that_does_not_exist(
    clusters: dict[str, PlaygroundCluster], topic_name: str, tmp_path: Path
) -> None:
    """A typing error beside entries that match: `check` and the running service name
    the entry and what was probably meant.
    """
    source, target = clusters["a"].bootstrap, clusters["b"].bootstrap
    create_topic(source, topic_name)
    create_topic(source, f"pay-{topic_name}")
    config = config_for(
        source,
        target,
        alias="TYPO",
        tasks=1,
        topics=[f"{topic_name}x", f"pay-{topic_name}"],
    )
    told = f'topics: "{topic_name}x" matches no topic of TYPO; '
    told += f'did you mean "{topic_name}"?'
    with RunningMirror(config, tmp_path) as mirror:
        mirror.wait_running()
        wait_for(lambda: json.dumps(told) in mirror.log.read_text())
        assert mirror.log.read_text().count(json.dumps(told)) == 1
        assert told in " ".join(command(tmp_path, "check").split())


def test_a_config_that_does_not_last(
    clusters: dict[str, PlaygroundCluster], topic_name: str, tmp_path: Path
) -> None:
    """A service takes a config of a copy and does not apply it, or a tool changes it
    back: that is a problem with a way out, not a correction a round for ever.
    """
    source, target = clusters["a"].bootstrap, clusters["b"].bootstrap
    copy, name = f"VAIN.{topic_name}", "retention.ms"
    create_topic(source, topic_name, retention_ms="86400000")
    config = config_for(
        source,
        target,
        alias="VAIN",
        tasks=1,
        topics=[topic_name],
        sync_topic_configs_seconds=1,
    )

    def change_back(stopping: threading.Event) -> None:
        admin = AdminClient({"bootstrap.servers": target})
        while not stopping.wait(0.1):
            set_configs(admin, copy, {name: "3600000"})

    with RunningMirror(config, tmp_path) as mirror:
        mirror.wait_running()
        with beside(change_back):
            status = mirror.wait_until(lambda each: each["flows"][0]["problems"])
            (problem,) = status["flows"][0]["problems"]
            assert f"{copy}: {name}=86400000: the cluster took it" in problem
            assert "config_properties_exclude" in problem
        mirror.wait_until(lambda document: not document["flows"][0]["problems"])
    assert overrides(target, copy)[name] == "86400000"


def test_a_coordinator_that_has_just_moved(
    clusters: dict[str, PlaygroundCluster], topic_name: str
) -> None:
    """A group's broker answers NOT_COORDINATOR once, as on a cluster that never had a
    group: it is looked up and asked again.
    """
    source, group = clusters["a"].bootstrap, f"g-{topic_name}"
    create_topic(source, topic_name)
    _commit(source, group, topic_name, {0: 0})
    rule = Rule(api="DescribeGroups", code=codes.NOT_COORDINATOR)
    with BrokerProxy(source) as proxy, proxy.rules(rule):
        settings = ClusterConfig(alias="A", bootstrap_servers=(proxy.bootstrap,))
        cluster = Cluster(settings).connect()
        known = groups.list_groups(cluster)
        assert groups.members(cluster, [known[group]]) == {group: ()}
        cluster.close()
    assert rule.hits == 1


@pytest.mark.parametrize("dots", [True, False], ids=["dots", "separator"])
def test_javas_client_finds_checkpoints(
    clusters: dict[str, PlaygroundCluster], topic_name: str, tmp_path: Path, dots: bool
) -> None:
    """With another separator, in internal names or not: the client of Kafka's jars with
    MirrorMaker 2's keys translates a group's offset.
    """
    source, target = clusters["a"].bootstrap, clusters["b"].bootstrap
    alias, group = "DOT" if dots else "SEP", f"g-{topic_name}"
    create_topic(source, topic_name)
    send(producer(source), topic_name, keys(1, 20), b"v")
    _commit(source, group, topic_name, {0: 7})
    config = config_for(
        source, target, alias=alias, tasks=1, topics=[topic_name], groups=[group],
        separator="_", internal_topic_separator=not dots, emit_checkpoints_seconds=1,
    )  # fmt: skip
    keys_of_mm2 = {
        "replication.policy.separator": "_",
        "replication.policy.internal.topic.separator.enabled": str(not dots).lower(),
    }
    with RunningMirror(config, tmp_path) as mirror:
        mirror.wait_copied(source, topic_name)
        mirror.wait_checkpoints(f"{alias}->B")
    answer = run_java(
        "mirror-client", JAVA, target, alias, group,
        *(f"{name}={value}" for name, value in keys_of_mm2.items()),
    )  # fmt: skip
    assert f"offset\t{group}\t{alias}_{topic_name}\t0\t7\t" in answer


def _commit(bootstrap: str, group: str, topic: str, offsets: dict[int, int]) -> None:
    client = Consumer({"bootstrap.servers": bootstrap, "group.id": group})
    places = [TopicPartition(topic, n, offset) for n, offset in offsets.items()]
    commit_offsets(client, places)
    client.close()


def _lag(document: dict[str, Any]) -> int:
    (group,) = document["flows"][0]["groups"]
    return int(group["lag"])


def _committed(
    bootstrap: str, group: str, topic: str, partitions: int
) -> list[int | None]:
    client = Consumer({"bootstrap.servers": bootstrap, "group.id": group})
    asked = [TopicPartition(topic, number) for number in range(partitions)]
    found = client.committed(asked, timeout=30)
    client.close()
    return [each.offset if each.offset >= 0 else None for each in found]
