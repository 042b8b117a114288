"""Switches that die in the middle of a step, and go on."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

from mirror.switching.procedure import STEPS
from tests.harness.admin import create_topic
from tests.harness.application import Application
from tests.harness.service import RunningMirror
from tests.harness.switching import Switch, command, pair_of

if TYPE_CHECKING:
    from pathlib import Path

    from mirror.playground.cluster import PlaygroundCluster

pytestmark = pytest.mark.integration

SOME = ("fence", "positions", "open")


@pytest.mark.parametrize(
    "delay", [0.0, pytest.param(0.05, marks=pytest.mark.scale)], ids=["at", "later"]
)
@pytest.mark.parametrize(
    "steps",
    [
        SOME,
        pytest.param(
            tuple(each for each in STEPS if each not in SOME), marks=pytest.mark.scale
        ),
    ],
    ids=["some", "others"],
)
def test_killed_within_a_step(
    clusters: dict[str, PlaygroundCluster],
    topic_name: str,
    tmp_path: Path,
    steps: tuple[str, ...],
    delay: float,
) -> None:
    """A switch that is killed with SIGKILL within each of these steps, and run again,
    ends as one that nothing disturbs: the other cluster is active, and the group reads
    every record once.
    """
    one, two = (f"W{len(steps)}{int(delay * 100)}{side}" for side in "AB")
    ends = {one: clusters["a"].bootstrap, two: clusters["b"].bootstrap}
    for bootstrap in ends.values():
        create_topic(bootstrap, topic_name, 2)
    application = Application(topic_name, 2, f"app-{topic_name}")
    document = pair_of((one, ends[one]), (two, ends[two]), topic_name)
    active, other = one, two
    with RunningMirror(document, tmp_path) as mirror:
        mirror.wait_running(f"{one}->{two}")
        application.write(ends[one], 100)
        application.consume(ends[one], [topic_name], most=50)
        for step in steps:
            application.write(ends[active], 20)
            words = (tmp_path, "switch", f"{active}/{other}", "--yes")
            Switch(*words).kill_within(ends[other], step, delay)
            Switch(*words).succeeds()
            shown = json.loads(command(tmp_path, "pair", "-o", "json"))["pairs"][0]
            assert (shown["active"], shown["runs"][-1]["open"]) == (other, False)
            active, other = other, active
            application.write(ends[active], 20)
            application.consume(ends[active], [topic_name, f"{other}.{topic_name}"])
            application.require_each_once()
