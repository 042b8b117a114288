"""The event trail of a running service, beside what really happened on the clusters."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import TYPE_CHECKING, Any
from urllib.parse import quote
from urllib.request import urlopen

from confluent_kafka.admin import AdminClient, ConfigResource, ResourceType
import pytest
from typer.testing import CliRunner

from mirror.cli.main import app
from tests.harness.admin import (
    add_partitions,
    alter_topic,
    create_topic,
    delete_topic,
    topic_exists,
)
from tests.harness.load import NumberedLoad
from tests.harness.service import config_for
from tests.harness.waiting import wait_for

if TYPE_CHECKING:
    from pathlib import Path

    from mirror.playground.cluster import PlaygroundCluster
    from tests.harness.service import RunningMirror
    from tests.harness.standing import StandingMirror

pytestmark = pytest.mark.integration

FLOW = "TRAIL->B"


def events(mirror: RunningMirror, kind: str, subject: str = "") -> list[dict[str, Any]]:
    """Those of a kind, on a subject if one is given, oldest first."""
    found = trail(mirror, f"&kind={kind}")
    return [event for event in found if not subject or event["subject"] == subject]


def trail(mirror: RunningMirror, asked: str = "") -> list[dict[str, Any]]:
    """The events of this test's flow."""
    url = f"{mirror.url}/events?flow={quote(FLOW)}{asked}"
    with urlopen(url, timeout=10) as answer:
        found: list[dict[str, Any]] = json.load(answer)["events"]
    return found


def wait_event(mirror: RunningMirror, kind: str, subject: str = "") -> dict[str, Any]:
    wait_for(lambda: events(mirror, kind, subject), 90)
    return events(mirror, kind, subject)[-1]


def retention(bootstrap: str, topic: str) -> str:
    admin = AdminClient({"bootstrap.servers": bootstrap})
    resource = ConfigResource(ResourceType.TOPIC, topic)
    (answer,) = admin.describe_configs([resource]).values()
    return str(answer.result(30)["retention.ms"].value)


def test_the_trail_tells_what_happened(
    clusters: dict[str, PlaygroundCluster],
    topic_name: str,
    tmp_path: Path,
    standing: StandingMirror,
) -> None:
    """A flow that loses its workers, copies that are created, grown and configured, a
    pause, a topic that is deleted and one that is re-created: each is an event as soon
    as a witness sees it on the cluster, and a line of the log with the same words.
    """
    source, target = clusters["a"].bootstrap, clusters["b"].bootstrap
    copy, doomed = f"TRAIL.{topic_name}", f"{topic_name}-doomed"
    create_topic(source, topic_name, 1)
    create_topic(source, doomed, 1)
    load = NumberedLoad(source, topic_name, 1, seed=21)
    load.send(200)
    config = config_for(
        source, target, flows=[FLOW], topics=[f"{topic_name}.*"],
        refresh_topics_seconds=1, sync_topic_configs_seconds=1, lease_seconds=1,
        tasks=1,
    )  # fmt: skip
    config["clusters"]["TRAIL"] = config["clusters"].pop("A")
    file = tmp_path / "mirror.yaml"
    file.write_text(json.dumps(config))  # JSON is YAML
    with standing.hosting(config) as mirror:
        mirror.wait_running()
        mirror.wait_copied(source, topic_name)
        created = wait_event(mirror, "topic-created", copy)
        assert (created["flow"], created["cluster"]) == (FLOW, "B")
        assert topic_exists(target, copy)
        assert wait_event(mirror, "flow-started")["text"] == "flow runs"

        add_partitions(source, topic_name, 3)
        wait_event(mirror, "topic-grown", copy)
        shown = AdminClient({"bootstrap.servers": target}).list_topics(copy, timeout=10)
        assert len(shown.topics[copy].partitions) == 3

        alter_topic(source, topic_name, retention_ms="86400123")
        changed = wait_event(mirror, "config-changed", copy)
        assert changed["text"] == f"config of copy {copy}: retention.ms=86400123"
        assert retention(target, copy) == "86400123"

        steer(file, "pause")
        assert wait_event(mirror, "flow-paused")["details"]["rules"][0]["paused"]
        steer(file, "resume")
        wait_event(mirror, "flow-resumed")

        mirror.fail_lease()
        failed = wait_event(mirror, "flow-failed")
        assert (failed["level"], failed["details"]["restarts"]) == ("error", 1)
        wait_for(lambda: len(events(mirror, "flow-started")) == 2, 90)
        again = events(mirror, "flow-started")[-1]
        assert again["text"] == "flow runs again, after 1 failure"

        delete_topic(source, doomed)
        assert wait_event(mirror, "topic-gone", doomed)["cluster"] == "TRAIL"
        delete_topic(source, topic_name)
        create_topic(source, topic_name, 3)
        wait_event(mirror, "topic-recreated", topic_name)

        shown = command("events", "-u", mirror.url, "-n", "0")
        assert copy in shown
    wait_event(mirror, "flow-stopped")
    lines = [json.loads(line) for line in mirror.log.read_text().splitlines()
             if line.startswith("{")]  # fmt: skip
    logged = {(line.get("kind"), line["event"]) for line in lines}
    assert {(event["kind"], event["text"]) for event in trail(mirror)} <= logged


def steer(file: Path, verb: str) -> None:
    asked = [verb, FLOW, "-c", str(file), "--yes"]
    done = CliRunner().invoke(app, asked)
    assert done.exit_code == 0, done.output


def command(*words: str) -> str:
    """What a command prints."""
    done = subprocess.run(
        [sys.executable, "-m", "mirror", *words],
        capture_output=True, text=True, timeout=90, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return done.stdout
