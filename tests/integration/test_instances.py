"""Several instances of one configuration: who leads is gone, and another goes on."""

from __future__ import annotations

import os
import signal
import time
from typing import TYPE_CHECKING, Any

import pytest

from tests.harness import (
    NumberedLoad,
    RunningMirror,
    assert_exactly_once,
    copied_records,
    create_topic,
    order_of,
    wait_for,
)

if TYPE_CHECKING:
    from pathlib import Path

    from mirror.playground.cluster import PlaygroundCluster

pytestmark = [pytest.mark.integration, pytest.mark.alone]

TAKE_OVER_SECONDS = 10.0


def config(source: str, target: str, topic: str, *aliases: str) -> dict[str, Any]:
    return {
        "clusters": {
            **{alias: {"bootstrap_servers": source} for alias in aliases},
            "T": {"bootstrap_servers": target},
        },
        "flows": {
            f"{alias}->T": {"topics": [topic], "tasks": 1, "lease_seconds": 5}
            for alias in aliases
        },
        "service": {"group": f"instances-{topic}"},
    }


def leads(instance: RunningMirror, flow: str) -> bool:
    shown = instance.flow(flow)
    return bool(shown["state"] == "RUNNING" and shown["leases"] > 0)


@pytest.mark.parametrize("how", ["killed", "suspended"])
def test_another_instance_takes_over(
    clusters: dict[str, PlaygroundCluster], topic_name: str, tmp_path: Path, how: str
) -> None:
    """The leader is killed, or hangs and comes back: another instance copies on within
    ten seconds, and every record is there once, in order.
    """
    source, target = clusters["a"].bootstrap, clusters["b"].bootstrap
    create_topic(source, topic_name, 2)
    alias = f"I-{how}"
    copy, flow = f"{alias}.{topic_name}", f"{alias}->T"
    setting = config(source, target, topic_name, alias)
    load = NumberedLoad(source, topic_name, 2, seed=3)
    with RunningMirror(setting, tmp_path / "one") as one:
        one.wait_running(flow)
        with RunningMirror(setting, tmp_path / "two") as two, load.streaming(chunk=200):
            two.wait_until(lambda _: two.flow(flow)["state"] == "STANDBY")
            assert two.flow(flow)["leader"] == one.flow(flow)["leader"]
            time.sleep(3)
            assert two.flow(flow)["state"] == "STANDBY"
            pids = one.pids()
            number = signal.SIGKILL if how == "killed" else signal.SIGSTOP
            began = time.monotonic()
            for pid in pids:
                os.kill(pid, number)
            before = copied_records(target, copy)
            wait_for(lambda: copied_records(target, copy) > before, pause=0.1)
            took = time.monotonic() - began
            wait_for(lambda: leads(two, flow))
            if how == "suspended":
                for pid in pids:
                    os.kill(pid, signal.SIGCONT)
                time.sleep(5)
                assert one.flow(flow)["state"] == "STANDBY"
                assert leads(two, flow)
    with RunningMirror(setting, tmp_path / "last") as last:
        last.wait_copied(source, topic_name, flow=flow)
    assert_exactly_once(order_of(target, copy), load.order)
    assert took < TAKE_OVER_SECONDS, f"it took {took:.1f} s"


def test_flows_are_spread_and_move_back(
    clusters: dict[str, PlaygroundCluster],
    topic_name: str,
    tmp_path: Path,
) -> None:
    """Two flows run on two instances, on one when the other stops, then on both."""
    source, target = clusters["a"].bootstrap, clusters["b"].bootstrap
    create_topic(source, topic_name)
    flows = ("S1->T", "S2->T")
    setting = config(source, target, topic_name, "S1", "S2")
    load = NumberedLoad(source, topic_name, 1, seed=5)

    def spread(*instances: RunningMirror) -> list[int]:
        return [sum(leads(each, flow) for flow in flows) for each in instances]

    with RunningMirror(setting, tmp_path / "one") as one, load.streaming(chunk=100):
        wait_for(lambda: spread(one) == [2])
        two = RunningMirror(setting, tmp_path / "two")
        with two:
            wait_for(lambda: spread(one, two) == [1, 1])
            assert two.terminate() == 0
        wait_for(lambda: spread(one) == [2], TAKE_OVER_SECONDS)
        with RunningMirror(setting, tmp_path / "three") as three:
            wait_for(lambda: spread(one, three) == [1, 1])
    with RunningMirror(setting, tmp_path / "last") as last:
        for alias in ("S1", "S2"):
            last.wait_copied(source, topic_name, flow=f"{alias}->T")
            found = order_of(target, f"{alias}.{topic_name}")
            assert_exactly_once(found, load.order)
