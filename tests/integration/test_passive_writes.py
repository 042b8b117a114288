"""Applications that write to the passive cluster of a pair are counted."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from tests.harness.admin import create_topic
from tests.harness.application import Application
from tests.harness.service import RunningMirror
from tests.harness.switching import Switch, pair_of

if TYPE_CHECKING:
    from pathlib import Path

    from mirror.playground.cluster import PlaygroundCluster

pytestmark = pytest.mark.integration


@pytest.mark.full
def test_as_many_as_the_producer_counts(
    clusters: dict[str, PlaygroundCluster], topic_name: str, tmp_path: Path
) -> None:
    """After a switch the count is what the producer's acknowledgements say, for a topic
    that was there at the cut and for one that is made later, whatever mirror writes to
    that cluster meanwhile. Another service counts the same, and the way back begins a
    count of its own. No failover means no tail.
    """
    ends = {"QA": clusters["a"].bootstrap, "QB": clusters["b"].bootstrap}
    for bootstrap in ends.values():
        create_topic(bootstrap, topic_name, 2)
    document = pair_of(("QA", ends["QA"]), ("QB", ends["QB"]), f"{topic_name}.*")
    document["defaults"]["emit_heartbeats"] = True
    group = f"app-{topic_name}"
    application = Application(topic_name, 2, group)

    def counted(mirror: RunningMirror, wanted: int, active: str) -> None:
        def shown(status: dict[str, Any]) -> bool:
            (pair,) = status["pairs"]
            passive = pair["passive"]
            counts = passive["writes"], passive["tail"]
            return bool(pair["active"] == active and counts == (wanted, 0))

        mirror.wait_until(shown)

    with RunningMirror(document, tmp_path) as mirror:
        mirror.wait_running("QA->QB")
        application.write(ends["QA"], 300)
        counted(mirror, 0, "QA")
        Switch(tmp_path, "switch", "QA/QB", "--yes").succeeds()
        mirror.wait_running("QB->QA")
        counted(mirror, 0, "QB")
        assert application.write(ends["QB"], 50)
        assert application.write(ends["QA"], 37)
        later = Application(f"{topic_name}-later", 1, group)
        create_topic(ends["QA"], later.topic, 1)
        assert later.write(ends["QA"], 4)
        mirror.wait_copied(ends["QB"], topic_name, flow="QB->QA")
        counted(mirror, 41, "QB")

    with RunningMirror(document, tmp_path) as mirror:
        mirror.wait_running("QB->QA")
        counted(mirror, 41, "QB")
        Switch(tmp_path, "switch", "QB/QA", "--yes").succeeds()
        mirror.wait_running("QA->QB")
        counted(mirror, 0, "QA")
        assert application.write(ends["QB"], 5)
        counted(mirror, 5, "QA")
