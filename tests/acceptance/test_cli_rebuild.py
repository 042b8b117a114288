"""`mirror repair rebuild` as a person types it, on Spark, beside a service."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

from tests.harness.admin import create_topic
from tests.harness.commands import typed
from tests.harness.group_moves import commit_for, committed
from tests.harness.load import producer
from tests.harness.service import RunningMirror
from tests.harness.witness import eventually, read_topic

if TYPE_CHECKING:
    from pathlib import Path
    import subprocess

    from mirror.playground.cluster import PlaygroundCluster

pytestmark = [pytest.mark.acceptance, pytest.mark.full]

_COUNT = 200


def test_it_shows_asks_and_rebuilds(
    clusters: dict[str, PlaygroundCluster], topic_name: str, tmp_path: Path
) -> None:
    """A dry run shows groups and changes nothing; without a terminal it needs --yes;
    then the copy is as its source and the group is where it was. A copy with a record
    of somebody else is refused with a table, and in JSON, with exit code 1. A wrong
    flow has exit code 2.
    """
    a, b = clusters["a"].bootstrap, clusters["b"].bootstrap
    alias = f"V{topic_name[-8:]}"
    copy, group = f"{alias}.{topic_name}", f"{alias}-app"
    create_topic(a, topic_name)
    client = producer(a)
    for number in range(_COUNT):
        client.produce(topic_name, key=b"%d" % number, value=b"v", partition=0)
    assert client.flush(30) == 0
    config = {
        "clusters": {
            alias: {"bootstrap_servers": a},
            "B": {"bootstrap_servers": b},
        },
        "flows": {
            f"{alias}->B": {
                "topics": [topic_name],
                "emit_heartbeats": False,
                "tasks": 1,
                "lease_seconds": 2,
            }
        },
    }
    file = tmp_path / "service" / "mirror.yaml"
    with RunningMirror(config, tmp_path / "service"):

        def rebuild(*words: str) -> subprocess.CompletedProcess[str]:
            line = ("repair", "rebuild", f"{alias}/B", *words, "-c", file)
            return typed(*line, timeout=180)

        old = eventually(b, copy, _COUNT)[0]
        twice = old[7]
        others = producer(b)
        others.produce(
            copy, key=twice.key(), value=twice.value(), headers=twice.headers(),
            timestamp=twice.timestamp()[1], partition=0,
        )  # fmt: skip
        assert others.flush(30) == 0
        commit_for(b, group, {copy: old[150].offset()})

        shown = rebuild(topic_name, "--dry-run")
        assert shown.returncode == 0, shown.stdout + shown.stderr
        assert [line.split() for line in shown.stdout.splitlines()] == [
            ["GROUP", "PARTITION", "SOURCE-OFFSET"],
            [group, "0", "150"],
        ]
        assert f"would delete and rebuild {copy} (200 records" in shown.stderr
        asked = rebuild(topic_name)
        assert (asked.returncode, "pass --yes" in asked.stderr) == (1, True)
        assert len(read_topic(b, copy)[0]) == _COUNT + 1

        done = rebuild(topic_name, "--yes", "-o", "json")
        assert done.returncode == 0, done.stdout + done.stderr
        told = json.loads(done.stdout)
        assert (told["rebuilt"], told["records"], told["irreplaceable"]) == (
            True, _COUNT, [],
        )  # fmt: skip
        new = read_topic(b, copy)[0]
        assert [m.key() for m in new] == [b"%d" % n for n in range(_COUNT)]
        at = committed(b, group, copy)
        assert next(m.key() for m in new if m.offset() >= (at or 0)) == b"150"

        others.produce(copy, key=b"?", value=b"v", partition=0)
        assert others.flush(30) == 0
        refused = rebuild(topic_name, "--yes")
        assert refused.returncode == 1, refused.stdout + refused.stderr
        assert "others than the flow have written them" in refused.stdout
        refused = rebuild(topic_name, "--yes", "-o", "json")
        (lost,) = json.loads(refused.stdout)["irreplaceable"]
        assert (lost["partition"], lost["count"]) == (0, 1)
        assert rebuild("nothing").returncode == 1
        assert len(read_topic(b, copy)[0]) == _COUNT + 1
    wrong = typed("repair", "rebuild", "X/Y", topic_name, "-c", file)
    assert wrong.returncode == 2
