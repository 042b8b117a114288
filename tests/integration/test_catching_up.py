"""A backlog that takes a while: how it is shown, and slots that come and go."""

from __future__ import annotations

import json
import time
from typing import TYPE_CHECKING, Any

import pytest

from tests.harness.admin import create_topic
from tests.harness.load import NumberedLoad
from tests.harness.mishaps import Mishap, Rule
from tests.harness.proxy import BrokerProxy
from tests.harness.service import RunningMirror
from tests.harness.witness import assert_exactly_once, order_of

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from mirror.playground.cluster import PlaygroundCluster
    from tests.harness.standing import StandingMirror

pytestmark = pytest.mark.integration


def config_of(alias: str, source: str, target: str, **settings: Any) -> dict[str, Any]:
    """A flow with its own name, and so with its own progress."""
    return {
        "clusters": {
            alias: {"bootstrap_servers": source},
            "B": {"bootstrap_servers": target},
        },
        "flows": {
            f"{alias}->B": {
                "emit_heartbeats": False,
                "heartbeats_replication": False,
                **settings,
            }
        },
    }


def test_remaining_time_goes_down(
    make_clusters: Callable[..., dict[str, PlaygroundCluster]],
    clusters: dict[str, PlaygroundCluster],
    topic_name: str,
    standing: StandingMirror,
) -> None:
    """While a backlog is copied, the status shows the remaining time, which goes down
    to nothing, and how busy the slot is; the log has the remaining time too.
    """
    target = clusters["b"].bootstrap
    # Small answers, each a second late: not the machine says how fast it goes.
    slow = make_clusters("slow", settings={"fetch.max.bytes": "100000"})["slow"]
    late = Rule(api="Fetch", mishap=Mishap.LATE_ANSWER, seconds=1.0, times=None)
    create_topic(slow.bootstrap, topic_name)
    load = NumberedLoad(slow.bootstrap, topic_name, 1, seed=31)
    for _ in range(20):
        load.send(500, largest=2000)
    with BrokerProxy(slow.bootstrap) as proxy:
        config = config_of(
            "SLOW", proxy.bootstrap, target, topics=[topic_name], tasks=1,
            lease_seconds=1,
        )  # fmt: skip
        with proxy.rules(late), standing.hosting(config) as mirror:
            found = statuses_until_caught_up(mirror, load.total)
            told = [
                json.loads(line)
                for line in mirror.log.read_text().splitlines()
                if '"catching up"' in line and '"SLOW->B"' in line
            ]
    assert_exactly_once(order_of(target, f"SLOW.{topic_name}"), load.order)
    remaining = [f["remaining_seconds"] for f in found if f["catching_up"]]
    known = [seconds for seconds in remaining if seconds > 0]
    assert len(known) >= 3, [(f["lag"], f["remaining_seconds"]) for f in found]
    assert known[-1] < known[0] / 2, known
    assert found[-1]["remaining_seconds"] == -1
    assert any(
        slot["busy"] > 0 and slot["bytes_per_second"] > 0 and slot["partitions"] == 1
        for flow in found
        for slot in flow["slot_loads"]
    )
    assert told
    assert told[0]["lag"] > told[-1]["lag"] or len(told) == 1


def statuses_until_caught_up(mirror: RunningMirror, records: int) -> list[Any]:
    """What the only flow's status said after each lease, until all was copied."""
    found: list[dict[str, Any]] = []

    def look(document: dict[str, Any]) -> bool:
        flow = document["flows"][0]
        if not found or flow["leases"] > found[-1]["leases"]:
            found.append(flow)
        return flow["records"] == records and not flow["catching_up"]

    mirror.wait_until(look)
    return found


@pytest.mark.full
def test_a_flow_without_tasks_grows_with_its_topics(
    clusters: dict[str, PlaygroundCluster], topic_name: str, tmp_path: Path
) -> None:
    """A flow that chooses its number of slots chooses again when it finds more
    partitions, without an error and with every record once.
    """
    source, target = clusters["a"].bootstrap, clusters["b"].bootstrap
    later = f"{topic_name}-later"
    create_topic(source, topic_name, 2)
    load = NumberedLoad(source, topic_name, 2, seed=32)
    config = config_of(
        "GROWS", source, target, topics=[f"{topic_name}.*"], refresh_topics_seconds=0.5
    )
    # Flows of one service share its cores.
    with RunningMirror(config, tmp_path) as mirror:
        mirror.wait_running()
        first = mirror.flow()["slots"]
        with load.streaming(pause=0.25):
            time.sleep(1)
            create_topic(source, later, 8)
            of_later = NumberedLoad(source, later, 8, seed=33)
            of_later.send(2000)
            mirror.wait_copied(source, later)
            mirror.wait_until(lambda _: mirror.flow()["slots"] == 2)
        mirror.wait_copied(source, topic_name)
        (last,) = mirror.wait_until(
            lambda document: (
                sum(s["partitions"] for s in document["flows"][0]["slot_loads"]) == 10
            )
        )["flows"]
    assert first == 1
    assert (last["slots"], last["restarts"]) == (2, 0)
    assert min(slot["partitions"] for slot in last["slot_loads"]) > 0
    assert_exactly_once(order_of(target, f"GROWS.{topic_name}"), load.order)
    assert_exactly_once(order_of(target, f"GROWS.{later}"), of_later.order)
