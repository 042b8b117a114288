"""The event trail of a running service, beside what really happened on the clusters."""

from __future__ import annotations

from datetime import UTC, datetime
import json
import subprocess
import sys
import time
from typing import TYPE_CHECKING, Any
from urllib.request import urlopen

from confluent_kafka.admin import AdminClient, ConfigResource, ResourceType
import pytest
from typer.testing import CliRunner

from mirror.cli.main import app
from mirror.host import operator_name
from tests.harness.admin import (
    add_partitions,
    alter_topic,
    create_topic,
    delete_topic,
    end_offsets,
    topic_exists,
)
from tests.harness.load import NumberedLoad
from tests.harness.service import RunningMirror, config_for
from tests.harness.waiting import crowd, wait_for

if TYPE_CHECKING:
    from pathlib import Path

    from mirror.playground.cluster import PlaygroundCluster

pytestmark = pytest.mark.integration


def events(mirror: RunningMirror, kind: str, subject: str = "") -> list[dict[str, Any]]:
    """Those of a kind, on a subject if one is given, oldest first."""
    url = f"{mirror.url}/events?kind={kind}"
    with urlopen(url, timeout=10 * crowd()) as answer:
        found: list[dict[str, Any]] = json.load(answer)["events"]
    return [event for event in found if not subject or event["subject"] == subject]


def wait_event(mirror: RunningMirror, kind: str, subject: str = "") -> dict[str, Any]:
    wait_for(lambda: events(mirror, kind, subject))
    return events(mirror, kind, subject)[-1]


def retention(bootstrap: str, topic: str) -> str:
    admin = AdminClient({"bootstrap.servers": bootstrap})
    resource = ConfigResource(ResourceType.TOPIC, topic)
    (answer,) = admin.describe_configs([resource]).values()
    return str(answer.result(30)["retention.ms"].value)


def test_the_trail_tells_what_happened(
    clusters: dict[str, PlaygroundCluster], topic_name: str, tmp_path: Path
) -> None:
    """A flow that loses its workers, copies that are created, grown and configured, a
    pause, a topic that is deleted and one that is re-created: each is an event as soon
    as a witness sees it on the cluster, a line of the log with the same words, and a
    record of the audit topic, which also has the commands and outlives the service.
    """
    source, target = clusters["a"].bootstrap, clusters["b"].bootstrap
    copy, doomed = f"A.{topic_name}", f"{topic_name}-doomed"
    create_topic(source, topic_name, 1)
    create_topic(source, doomed, 1)
    load = NumberedLoad(source, topic_name, 1, seed=21)
    load.send(200)
    config = config_for(
        source, target, topics=[f"{topic_name}.*"], refresh_topics_seconds=1,
        sync_topic_configs_seconds=1, lease_seconds=1, tasks=1,
    )  # fmt: skip
    config["clusters"]["GONE"] = {"bootstrap_servers": "127.0.0.1:1"}
    config["service"] = {"audit_topic": f"B/{topic_name}-audit", "log_format": "json"}
    with RunningMirror(config, tmp_path) as mirror:
        mirror.wait_running()
        mirror.wait_copied(source, topic_name)
        created = wait_event(mirror, "topic-created", copy)
        assert (created["flow"], created["cluster"]) == ("A->B", "B")
        wait_for(lambda: topic_exists(target, copy))  # brokers learn of it later
        assert wait_event(mirror, "flow-started")["text"] == "flow runs"

        add_partitions(source, topic_name, 3)
        wait_event(mirror, "topic-grown", copy)
        wait_for(lambda: len(end_offsets(target, copy)) == 3)

        alter_topic(source, topic_name, retention_ms="86400123")
        changed = wait_event(mirror, "config-changed", copy)
        assert changed["text"] == f"config of copy {copy}: retention.ms=86400123"
        wait_for(lambda: retention(target, copy) == "86400123")

        before = time.time()
        steer(tmp_path, "pause")
        assert wait_event(mirror, "flow-paused")["details"]["rules"][0]["paused"]
        unheard = {"MIRROR_SERVICE__AUDIT_TOPIC": "GONE/changes"}
        assert "GONE/changes has no event" in steer(tmp_path, "resume", **unheard)
        wait_event(mirror, "flow-resumed")
        steer(tmp_path, "resume", "--dry-run")

        mirror.fail_lease()
        wait_event(mirror, "flow-failed")
        failed = events(mirror, "flow-failed")[0]
        assert (failed["level"], failed["details"]["restarts"]) == ("error", 1)
        wait_for(lambda: len(events(mirror, "flow-started")) >= 2)
        again = events(mirror, "flow-started")[1]
        assert again["text"] == "flow runs again, after 1 failure"

        delete_topic(source, doomed)
        assert wait_event(mirror, "topic-gone", doomed)["cluster"] == "A"
        delete_topic(source, topic_name)
        create_topic(source, topic_name, 3)
        wait_event(mirror, "topic-recreated", topic_name)

        shown = command("events", "-u", mirror.url, "-n", "0")
        assert copy in shown
        with urlopen(f"{mirror.url}/events", timeout=10 * crowd()) as answer:
            told = json.load(answer)["events"]
        assert mirror.terminate() == 0, mirror.log_tail()
    # All that the process and its JVM printed, from the first line to the last.
    lines = [json.loads(line) for line in mirror.log.read_text().splitlines()]
    logged = {(line.get("kind"), line["event"]) for line in lines}
    assert {(event["kind"], event["text"]) for event in told} <= logged
    assert any(kind == "flow-stopped" for kind, _ in logged)

    def kept(*words: str) -> list[dict[str, Any]]:
        file = str(tmp_path / "mirror.yaml")
        found = command("events", "-c", file, "-n", "0", "-o", "json", *words)
        return list(json.loads(found)["events"])

    ids = {event["id"]: event for event in kept()}
    for event in told:
        if event["times"] == 1:  # each repetition is a record
            assert ids[event["id"]].items() >= event.items()
    assert any(event["kind"] == "flow-stopped" for event in ids.values())
    (paused,) = kept("--since", datetime.fromtimestamp(before, UTC).isoformat(),
                     "--kind", "command", "--flow", "A/B")  # fmt: skip
    line = f"mirror pause 'A->B' --config {tmp_path / 'mirror.yaml'} --yes"
    assert paused["by"] == operator_name()
    assert paused["text"] == f"{operator_name()}: {line}: done"
    assert before < paused["time"] < time.time()
    assert retention(target, f"{topic_name}-audit") == str(365 * 86_400_000)


def steer(folder: Path, verb: str, *words: str, **environ: str) -> str:
    """What a command complains about, which has done its work."""
    asked = [verb, "A->B", "-c", str(folder / "mirror.yaml"), "--yes", *words]
    done = CliRunner().invoke(app, asked, prog_name="mirror", env=environ)
    assert done.exit_code == 0, done.output
    return done.stderr


def command(*words: str) -> str:
    """What a command prints."""
    done = subprocess.run(
        [sys.executable, "-m", "mirror", *words],
        capture_output=True, text=True, timeout=90 * crowd(), check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return done.stdout
