"""A service that keeps configs and ACLs of copies beside the data."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from tests.harness import (
    NumberedLoad,
    RunningMirror,
    alter_topic,
    assert_exactly_once,
    config_for,
    create_topic,
    eventually,
    keys_of,
    wait_for,
)
from tests.surroundings import overrides

if TYPE_CHECKING:
    from pathlib import Path

    from mirror.playground.cluster import PlaygroundCluster

pytestmark = pytest.mark.integration

_IN_TIME = 15.0  # discovery within 5 s, a lease of 2 s, and a busy machine


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
    configs, which are kept from then on; nothing is started again for it, neither the
    flow nor the workers that copy the other topics.
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
        found = eventually(target, f"A.{second}", other.total, timeout=_IN_TIME)
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
            lambda d: d["flows"][0]["acls"]["state"] == "NO_AUTHORIZER"
        )
        (flow,) = status["flows"]
        assert flow["drift"] == []
        assert flow["problems"] == []
        assert "no authorizer" in flow["acls"]["reason"]
        jobs = {job["name"]: job for job in flow["jobs"]}
        assert not any(jobs[n]["failures"] for n in ("topic-configs", "topic-acls"))


def test_drift_is_only_shown_where_it_is_not_to_be_corrected(
    clusters: dict[str, PlaygroundCluster], topic_name: str, tmp_path: Path
) -> None:
    """With sync_topic_configs off a config that differs stands in the status with both
    values, stays as it is, and is gone from the status once somebody corrected it.
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
    with RunningMirror(config, tmp_path) as mirror:
        mirror.wait_running()
        alter_topic(target, copy, retention_ms="5")
        wanted = {copy: {"retention.ms": ("5", "1000000")}}
        status = mirror.wait_until(lambda d: drift(d["flows"][0]) == wanted)
        assert status["flows"][0]["acls"]["state"] == "OFF"
        assert overrides(target, copy) == {"retention.ms": "5"}
        alter_topic(target, copy, retention_ms="1000000")
        mirror.wait_until(lambda d: d["flows"][0]["drift"] == [])
