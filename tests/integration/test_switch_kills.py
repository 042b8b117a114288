"""Switches that die in the middle of a step, and go on."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING

import pytest

from mirror.pairs.roles import STEPS
from tests.harness.switching import Played

if TYPE_CHECKING:
    from pathlib import Path

    from mirror.playground.cluster import PlaygroundCluster

pytestmark = [
    pytest.mark.integration,
    pytest.mark.full,
    pytest.mark.timeout(1800),  # five minutes each at a load of ten per core
]

SOME = ("fence", "positions", "open")
NEEDS = ("hold", "drain", "open", "prove")
"""The steps that wait for the service."""


@pytest.mark.parametrize("delay", [0.0, 0.05], ids=["at", "later"])
@pytest.mark.parametrize(
    "steps",
    [SOME, tuple(each for each in STEPS if each not in SOME)],
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
    tag = f"W{len(steps)}{int(delay * 100)}"
    with Played(clusters, topic_name, tag, tmp_path) as played:
        for step in steps:
            played.application.write(played.ends[played.active], 20)
            played.switch().kill_within(played.ends[played.other], step, delay)
            played.switch().succeeds()
            shown = played.shown()
            assert shown["active"] == played.other
            assert not shown["runs"][-1]["open"]
            played.go_on()


@pytest.mark.parametrize("state", ["BEGUN", "DONE"], ids=["within", "after"])
@pytest.mark.parametrize(
    "steps",
    [NEEDS, tuple(each for each in STEPS if each not in NEEDS)],
    ids=["needed", "others"],
)
def test_the_service_is_killed(
    clusters: dict[str, PlaygroundCluster],
    topic_name: str,
    tmp_path: Path,
    steps: tuple[str, ...],
    state: str,
) -> None:
    """The service gets SIGKILL within a step, or after one and before the command goes
    on, and is started again: the switch waits for it and goes through, or is undone
    before producers were blocked for too long and goes through once more. Over both
    clusters the group reads every record once.
    """
    tag = f"S{state[0]}{len(steps)}"
    with Played(clusters, topic_name, tag, tmp_path) as played:
        for step in steps:
            played.application.write(played.ends[played.active], 20)
            switch = played.switch()
            switch.reaches(played.ends[played.other], step, state=state)
            # Within a step the command runs on while the service dies.
            with switch.stopped() if state == "DONE" else contextlib.nullcontext():
                played.kill()
            played.start()
            if ended := switch.ends():
                assert "Everything was undone" in "".join(switch.said)
                played.switch().succeeds()
            print(step, state, "undone first" if ended else "went through")
            assert played.shown()["active"] == played.other
            played.go_on()
