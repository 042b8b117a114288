"""Switches that die in the middle of a step, and go on."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from mirror.recovery.roles import STEPS
from tests.harness.switching import Played

if TYPE_CHECKING:
    from pathlib import Path

    from mirror.playground.cluster import PlaygroundCluster

pytestmark = [pytest.mark.integration, pytest.mark.full]

SOME = ("fence", "positions", "open")


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
