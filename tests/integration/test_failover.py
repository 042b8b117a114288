"""A cluster of a pair dies under load: `mirror failover`, with a witness."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

from mirror.playground.brokers import playground
from tests.harness.admin import create_topic
from tests.harness.application import Application
from tests.harness.service import RunningMirror
from tests.harness.switching import Switch, command, pair_of
from tests.harness.witness import order_of

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.integration


def test_the_active_cluster_dies(topic_name: str, tmp_path: Path) -> None:
    """SIGKILL of the active cluster under load: after the failover the group goes on at
    the other one. It reads every record that was copied, none twice but what it
    committed after its last checkpoint, and the report names as many records as the
    producer's acknowledgements say are missing, or what was accepted after the
    service's last look. The application writes there, and reads that as well.
    """
    with playground(("a", "b"), root=tmp_path / "clusters", given=False) as made:
        ends = {"FA": made["a"].bootstrap, "FB": made["b"].bootstrap}
        for bootstrap in ends.values():
            create_topic(bootstrap, topic_name, 3)
        application = Application(topic_name, 3, f"app-{topic_name}")
        document = pair_of(("FA", ends["FA"]), ("FB", ends["FB"]), topic_name)
        copy = f"FA.{topic_name}"
        with RunningMirror(document, tmp_path) as mirror:
            mirror.wait_running("FA->FB")
            application.write(ends["FA"], 500)
            application.consume(ends["FA"], [topic_name], most=301)
            mirror.wait_copied(ends["FA"], topic_name, flow="FA->FB")
            mirror.wait_until(
                lambda _: (
                    mirror.flow("FA->FB")["checkpoint_at"]
                    and mirror.flow("FA->FB")["group_count"]
                )
            )
            with application.writing(ends["FA"]) as stop:
                mirror.wait_until(lambda _: len(application.written) > 1000)
                made["a"].kill()
                stop.set()
            said = Switch(tmp_path, "switch", "FA/FB", "--yes").fails()
            assert "mirror failover 'FA->FB'" in said
            out = Switch(
                tmp_path, "failover", "FA/FB", "--yes", "-o", "json"
            ).succeeds()
            steps = [json.loads(line) for line in out.splitlines()]
            notes = steps[-1]["notes"]

            found = {
                key for keys in order_of(ends["FB"], copy).values() for key in keys
            }
            lost = [key for key in application.written if key not in found]
            counted = notes["records"]
            # What A accepted after the last look cannot be counted.
            assert counted <= len(lost) + 20
            assert notes["as_of"] > 0
            application.write(ends["FB"], 100)
            application.consume(ends["FB"], [topic_name, copy])
            application.lost = set(lost)
            application.require_each_once()
        shown = json.loads(command(tmp_path, "pair", "-o", "json", fails=True))
        assert shown["pairs"][0]["active"] == "FB"
