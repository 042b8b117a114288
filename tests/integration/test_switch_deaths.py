"""Switches in which a whole cluster of the pair dies."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

import pytest

from mirror.recovery import roles
from tests.harness.switching import Played, Switch

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = [pytest.mark.integration, pytest.mark.full]

STEPS = ("fence", "positions", "open", "redirect")
TIMEOUT = ("--step-timeout", "10")


def after(step: str) -> bool:
    """Whether a step comes behind the point of no return."""
    return roles.STEPS.index(step) > roles.STEPS.index(roles.ROLE)


@pytest.mark.parametrize("step", STEPS)
def test_the_other_cluster_dies(
    make_clusters: Any, topic_name: str, tmp_path: Path, step: str
) -> None:
    """SIGKILL of all brokers of B as a step begins. The command ends, and says how:
    everything is undone and the application goes on at A, or the same command goes on
    once B is back. It then does, and over both clusters the group reads every record
    once.
    """
    clusters = make_clusters("a", "b")
    with Played(clusters, topic_name, f"DB{step[0]}", tmp_path) as played:
        one = played.ends[played.active]
        switch = played.switch(*TIMEOUT)
        switch.reaches(one, step)
        clusters["b"].kill()
        said = switch.fails()
        print(step, said)
        assert " failed: " in said
        if "Everything was undone" in said:
            assert not after(step)
            assert played.application.write(one, 10)
            played.application.consume(one, [topic_name], most=20)
        else:
            assert "the same command again" in said or after(step)
        clusters["b"].start()
        played.switch().succeeds()
        played.go_on()


@pytest.mark.parametrize("step", STEPS)
def test_the_active_cluster_dies(
    make_clusters: Any, topic_name: str, tmp_path: Path, step: str
) -> None:
    """SIGKILL of all brokers of A as a step begins. The command ends, says that it
    failed, and that a failover is the way out; that goes through, and the group goes on
    at B: it reads every record once, as all were copied and its position was known.
    """
    clusters = make_clusters("a", "b")
    with Played(clusters, topic_name, f"DA{step[0]}", tmp_path) as played:
        played.settle()
        switch = played.switch(*TIMEOUT)
        switch.reaches(played.ends[played.other], step)
        clusters["a"].kill()
        said = switch.fails()
        print(step, said)
        flow = f"{played.active}/{played.other}"
        assert "mirror failover" in played.switch(*TIMEOUT).fails()
        began = time.monotonic()
        Switch(tmp_path, "failover", flow, "--yes", *TIMEOUT).succeeds()
        print(f"failover: {time.monotonic() - began:.1f} s")
        played.go_on()
