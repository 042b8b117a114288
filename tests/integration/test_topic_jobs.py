"""A service that keeps configs and ACLs of copies in sync while it copies."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from confluent_kafka.admin import ResourceType
from kafka import KafkaConsumer
import pytest

from mirror.playground.secured import USER
from tests.harness.admin import alter_topic, create_topic
from tests.harness.load import NumberedLoad
from tests.harness.metadata import acls_of, allow, overrides, revoke
from tests.harness.service import RunningMirror, config_for
from tests.harness.waiting import wait_for
from tests.harness.witness import assert_exactly_once, eventually, keys_of

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from mirror.playground.cluster import PlaygroundCluster
    from tests.harness.standing import StandingMirror

pytestmark = pytest.mark.integration


def drift(flow: dict[str, Any]) -> dict[str, Any]:
    return {
        topic["target_topic"]: {
            each["name"]: (each["found"], each["wanted"]) for each in topic["configs"]
        }
        for topic in flow["drift"]
    }


def test_a_new_topic_disturbs_nothing_and_keeps_its_configs(
    clusters: dict[str, PlaygroundCluster], topic_name: str, tmp_path: Path
) -> None:
    """A topic found while the service runs is copied from its first record, with its
    configs, which are kept in sync from then on; for this neither the flow nor the
    workers that copy the other topics restart.
    """
    source, target = clusters["a"].bootstrap, clusters["b"].bootstrap
    first, second = f"{topic_name}-1", f"{topic_name}-2"
    create_topic(source, first, 2)
    config = config_for(
        source,
        target,
        topics=[f"{topic_name}-.*"],
        tasks=1,
        sync_topic_configs_seconds=1,
        sync_topic_acls_seconds=1,
    )
    load = NumberedLoad(source, first, 2, seed=1)
    with RunningMirror(config, tmp_path) as mirror:
        load.send(500)
        mirror.wait_copied(source, first)
        workers = mirror.worker_pids()
        before = mirror.flow()

        create_topic(source, second, retention_ms="1000000", cleanup_policy="compact")
        other = NumberedLoad(source, second, 1, seed=2)
        other.send(500)  # before anyone can have discovered it
        found = eventually(target, f"A.{second}", other.total)
        assert_exactly_once(keys_of(found), other.order)
        assert overrides(target, f"A.{second}") == {
            "cleanup.policy": "compact",
            "retention.ms": "1000000",
        }
        load.send(500)
        mirror.wait_copied(source, first)
        after = mirror.flow()
        assert after["restarts"] == before["restarts"] == 0
        assert after["leases"] > before["leases"]
        assert mirror.worker_pids() == workers
        assert after["state"] == "RUNNING"

        alter_topic(source, second, retention_ms="2000000")
        alter_topic(target, f"A.{second}", segment_ms="60000")
        wait_for(
            lambda: (
                overrides(target, f"A.{second}")
                == {"cleanup.policy": "compact", "retention.ms": "2000000"}
            )
        )
        status = mirror.wait_until(
            lambda d: (
                d["flows"][0]["acls"]["state"] == "NO_AUTHORIZER"
                and d["flows"][0]["drift"] == []
            )
        )
        (flow,) = status["flows"]
        assert flow["problems"] == []
        assert "no authorizer" in flow["acls"]["reason"]
        jobs = {job["name"]: job for job in flow["jobs"]}
        assert not any(jobs[n]["failures"] for n in ("topic-configs", "topic-acls"))


def test_drift_is_only_shown_where_it_is_not_to_be_corrected(
    clusters: dict[str, PlaygroundCluster], topic_name: str, standing: StandingMirror
) -> None:
    """With sync_topic_configs off a config that differs is in the status with both
    values, stays as it is, and leaves the status once a person corrects it.
    """
    source, target = clusters["a"].bootstrap, clusters["b"].bootstrap
    copy = f"A.{topic_name}"
    create_topic(source, topic_name, retention_ms="1000000")
    config = config_for(
        source,
        target,
        topics=[topic_name],
        tasks=1,
        sync_topic_configs=False,
        sync_topic_configs_seconds=1,
        sync_topic_acls=False,
    )
    with standing.hosting(config) as mirror:
        mirror.wait_running()
        alter_topic(target, copy, retention_ms="5")
        wanted = {copy: {"retention.ms": ("5", "1000000")}}
        status = mirror.wait_until(lambda d: drift(d["flows"][0]) == wanted)
        assert status["flows"][0]["acls"]["state"] == "OFF"
        assert overrides(target, copy) == {"retention.ms": "5"}
        alter_topic(target, copy, retention_ms="1000000")
        mirror.wait_until(lambda d: d["flows"][0]["drift"] == [])


@pytest.mark.full
def test_missing_rights_are_shown_and_stop_nothing(
    make_clusters: Callable[..., dict[str, PlaygroundCluster]],
    topic_name: str,
    standing: StandingMirror,
) -> None:
    """A user with rights only for copying copies: the missing rights to see configs and
    ACLs are problems of a running flow, also those of mirror's own topics; once they
    are granted, the problems go and the jobs catch up.
    """
    made = make_clusters("a", "b", secured=True)
    source, target = (made[name].admin_bootstrap for name in "ab")
    create_topic(source, topic_name, retention_ms="1000000")
    allow(source, "alice", "READ", topic_name)
    prefixed = {"pattern": "PREFIXED"}
    cluster = {"kind": ResourceType.BROKER}
    for operation in ("READ", "DESCRIBE"):
        allow(source, USER, operation, topic_name)
    for prefix in ("A.", "mirror-"):
        for operation in ("READ", "WRITE", "CREATE", "DESCRIBE"):
            allow(target, USER, operation, prefix, **prefixed)
    ids = {"kind": ResourceType.TRANSACTIONAL_ID}
    allow(target, USER, "ALL", "mirror.", **prefixed, **ids)
    config = config_for(
        source,
        target,
        topics=[topic_name],
        tasks=1,
        sync_topic_configs_seconds=1,
        sync_topic_acls_seconds=1,
    )
    config["clusters"] = {
        alias: {
            "bootstrap_servers": made[name].bootstrap,
            **made[name].client_config,
        }
        for alias, name in (("A", "a"), ("B", "b"))
    }
    load = NumberedLoad(source, topic_name, 1, seed=3)
    load.send(500)
    copy = f"A.{topic_name}"
    with standing.hosting(config) as mirror:
        mirror.wait_copied(source, topic_name)
        status = mirror.wait_until(
            lambda d: d["flows"][0]["acls"]["state"] == "NOT_PERMITTED"
        )
        wanted = (
            f"configs of topic {topic_name}: TOPIC_AUTHORIZATION_FAILED",
            "listing ACLs: CLUSTER_AUTHORIZATION_FAILED",
        )
        status = mirror.wait_until(
            lambda d: all(
                any(each in told for told in d["flows"][0]["problems"])
                for each in wanted
            )
        )
        flow = status["flows"][0]
        assert (flow["state"], flow["restarts"]) == ("RUNNING", 0)
        assert overrides(target, copy) == {}

        allow(source, USER, "DESCRIBE_CONFIGS", topic_name)
        for prefix in ("A.", "mirror-"):
            for operation in ("DESCRIBE_CONFIGS", "ALTER_CONFIGS"):
                allow(target, USER, operation, prefix, **prefixed)
        for side, operation in ((source, "DESCRIBE"), (target, "ALL")):
            allow(side, USER, operation, "kafka-cluster", **cluster)
        wait_for(lambda: overrides(target, copy) == {"retention.ms": "1000000"})
        given = ("User:alice", "READ", "ALLOW", copy, "LITERAL")
        wait_for(lambda: given in acls_of(target, about=topic_name))
        revoke(source, "alice", "READ", topic_name)
        wait_for(lambda: given not in acls_of(target, about=topic_name))
        load.send(500)
        mirror.wait_copied(source, topic_name)
        mirror.wait_until(lambda d: d["flows"][0]["problems"] == [])
        mirror.assert_never_failed()
        found = eventually(target, copy, load.total)
        assert_exactly_once(keys_of(found), load.order)


def test_copies_have_at_least_the_partitions_and_replicas_that_were_asked_for(
    clusters: dict[str, PlaygroundCluster], topic_name: str, standing: StandingMirror
) -> None:
    """With least_partitions a copy is created larger than its topic, and with
    min_insync_replicas with that config; its records stay in their partitions.
    """
    source, target = clusters["a"].bootstrap, clusters["b"].bootstrap
    create_topic(source, topic_name, 2)
    config = config_for(
        source,
        target,
        topics=[topic_name],
        tasks=1,
        least_partitions=3,
        min_insync_replicas=1,
    )
    load = NumberedLoad(source, topic_name, 2, seed=1)
    load.send(300)
    with standing.hosting(config):
        found = eventually(target, f"A.{topic_name}", load.total)
    copied = {partition: keys for partition, keys in keys_of(found).items() if keys}
    assert_exactly_once(copied, load.order)
    assert overrides(target, f"A.{topic_name}")["min.insync.replicas"] == "1"
    consumer = KafkaConsumer(bootstrap_servers=target)
    try:
        assert consumer.partitions_for_topic(f"A.{topic_name}") == {0, 1, 2}
    finally:
        consumer.close()
    assert overrides(target, f"A.{topic_name}")["min.insync.replicas"] == "1"
