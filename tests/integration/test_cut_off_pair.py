"""Failovers from a cluster that only mirror cannot reach: producers go on there."""

from __future__ import annotations

from typing import TYPE_CHECKING
import urllib.request

import pytest

from tests.harness.admin import create_topic
from tests.harness.application import Application
from tests.harness.cut_off import SplitCluster
from tests.harness.service import RunningMirror
from tests.harness.switching import Switch, command, pair_of
from tests.harness.waiting import wait_for
from tests.harness.witness import count_keys

if TYPE_CHECKING:
    from pathlib import Path

    from mirror.playground.cluster import PlaygroundCluster

pytestmark = [pytest.mark.integration, pytest.mark.full]


def test_producers_go_on_at_a_cluster_that_is_cut_off(
    clusters: dict[str, PlaygroundCluster], topic_name: str, tmp_path: Path
) -> None:
    """mirror cannot reach A, and fails over while A's producers go on. All that they
    write from then on is A's tail: once A answers, the service counts as many records
    as the producers had acknowledged, in the metric that the alert is about, while the
    copy on B stays record by record as the failover left it. A replay brings the tail,
    each record once, and the count is 0.
    """
    two = clusters["b"].bootstrap
    with SplitCluster(tmp_path / "split") as split:
        one = split.witness()
        create_topic(one, topic_name, 2)
        application = Application(topic_name, 2, f"app-{topic_name}")
        document = pair_of(("CA", split.bootstrap), ("CB", two), topic_name)
        with RunningMirror(document, tmp_path) as mirror:

            def tail() -> float:
                with urllib.request.urlopen(f"{mirror.url}/metrics") as answer:
                    lines = answer.read().decode().splitlines()
                found = [
                    float(line.rpartition(" ")[2])
                    for line in lines
                    if line.startswith("mirror_tail_records") and 'cluster="CA"' in line
                ]
                return max(found, default=-1.0)

            mirror.wait_running("CA->CB")
            assert application.write(one, 100)
            mirror.wait_copied(one, topic_name, flow="CA->CB")
            with split.hidden(1, 2, 3):
                with application.writing(one):
                    Switch(tmp_path, "failover", "CA/CB", "--yes").succeeds()
                    copied = count_keys(two, f"CA.{topic_name}")[0]
                    more = len(application.written) + 200
                    wait_for(lambda: len(application.written) > more)
                assert count_keys(two, f"CA.{topic_name}")[0] == copied
            with application.writing(one):  # nothing fences them here: `confirmed`
                more = len(application.written) + 100
                wait_for(lambda: len(application.written) > more)
            left = set(application.written) - copied.keys()
            wait_for(lambda: tail() == len(left), 120)
            assert count_keys(two, f"CA.{topic_name}")[0] == copied

            command(tmp_path, "tail", "replay", "CA/CB", "--yes")
            there = count_keys(two, f"CA.{topic_name}")[0]
            assert there == dict.fromkeys(application.written, 1)
            wait_for(lambda: tail() == 0, 120)
