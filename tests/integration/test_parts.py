"""Several services on one flow: with parts they share out its topics."""

from __future__ import annotations

from contextlib import ExitStack, suppress
import json
import os
import signal
import subprocess
import sys
from typing import TYPE_CHECKING, Any

from confluent_kafka import Consumer, TopicPartition
import pytest

from tests.harness.admin import create_topic, end_offsets
from tests.harness.application import Application
from tests.harness.group_moves import commit_for, committed
from tests.harness.load import NumberedLoad
from tests.harness.service import RunningMirror, config_for
from tests.harness.switching import Switch, command, pair_of
from tests.harness.waiting import wait_for
from tests.harness.witness import assert_exactly_once, order_of

if TYPE_CHECKING:
    from pathlib import Path

    from mirror.playground.cluster import PlaygroundCluster

pytestmark = pytest.mark.integration

_FLOW = "PA->PB"


def config(
    clusters: dict[str, PlaygroundCluster], topics: list[str], **settings: Any
) -> dict[str, Any]:
    group, name = settings.pop("group", "parts"), settings.pop("name", _FLOW)
    source, _, target = name.partition("->")
    return {
        "clusters": {
            source: {"bootstrap_servers": clusters["a"].bootstrap},
            target: {"bootstrap_servers": clusters["b"].bootstrap},
        },
        "flows": {
            name: {
                "topics": topics,
                "tasks": 1,
                "lease_seconds": 2,
                "emit_heartbeats": False,
                "heartbeats_replication": False,
                "emit_checkpoints_seconds": 1,
                "sync_group_offsets": True,
                "sync_group_offsets_seconds": 1,
                **settings,
            }
        },
        "service": {"group": group},
    }


@pytest.mark.full
def test_two_parts_copy_each_its_own_and_one_is_killed(
    clusters: dict[str, PlaygroundCluster], topic_name: str, tmp_path: Path
) -> None:
    """Two services copy topics of their own from one cluster to another, under load.
    One is killed: the other one goes on copying. Once it is back, every record of both
    is there once and in order, and a group that reads both topics is translated.
    """
    a, b = clusters["a"].bootstrap, clusters["b"].bootstrap
    names = {part: f"{topic_name}-{part}" for part in ("one", "two")}
    loads = {}
    for number, (part, name) in enumerate(names.items()):
        create_topic(a, name, 2)
        loads[part] = NumberedLoad(a, name, 2, seed=number)
    group = f"g-{topic_name}"
    with ExitStack() as stack:
        running = {
            part: RunningMirror(
                config(clusters, [name], part=part, groups=[group]), tmp_path / part
            )
            for part, name in names.items()
        }
        for each in running.values():
            stack.enter_context(each)
        for each in running.values():
            each.wait_running(_FLOW)
        with loads["one"].streaming(chunk=10, pause=0.1):
            loads["two"].send(500)
            running["two"].wait_copied(a, names["two"])
            with loads["two"].streaming(chunk=10, pause=0.1):
                for pid in running["two"].pids():
                    with suppress(ProcessLookupError):  # some end with the first
                        os.kill(pid, signal.SIGKILL)
            copy = f"PA.{names['one']}"
            reached = sum(end_offsets(b, copy).values())
            wait_for(lambda: sum(end_offsets(b, copy).values()) > reached + 100)
            running["two"].close()
            running["two"].start()
            running["two"].wait_running(_FLOW)
        for part, each in running.items():
            each.wait_copied(a, names[part])
        commit_for(a, group, dict.fromkeys(names.values(), 7))
        for part, name in names.items():
            wait_for(lambda of=name: committed(b, group, f"PA.{of}") is not None)
            assert _next(b, group, f"PA.{name}") == loads[part].order[0][7]
    for part, name in names.items():
        assert_exactly_once(order_of(b, f"PA.{name}"), loads[part].order)


def _next(bootstrap: str, group: str, topic: str) -> bytes | None:
    """The key of the record that the group reads next in partition 0."""
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": group,
            "isolation.level": "read_committed",
            "enable.auto.commit": False,
        }
    )
    try:
        (place,) = consumer.committed([TopicPartition(topic, 0)], timeout=30)
        consumer.assign([place])
        record = consumer.poll(30)
        assert record is not None
        assert record.error() is None
        return record.key()
    finally:
        consumer.close()


@pytest.mark.full
def test_services_without_parts_are_told_what_helps(
    clusters: dict[str, PlaygroundCluster], topic_name: str, tmp_path: Path
) -> None:
    """A second service on the same flow, of another group and with topics of its own,
    does not fence the first one: its status names the process that copies, and `part`.
    Nor does it once the first one has a part and it has none, until `mirror flow unite`
    ends that part.
    """
    a, flow = clusters["a"].bootstrap, "PC->PD"
    names = [f"{topic_name}-{number}" for number in range(2)]
    for name in names:
        create_topic(a, name)
    load = NumberedLoad(a, names[0], 1)
    one = RunningMirror(
        config(clusters, names[:1], name=flow, group=f"one-{topic_name}"),
        tmp_path / "one",
    )
    two = RunningMirror(
        config(clusters, names[1:], name=flow, group=f"two-{topic_name}"),
        tmp_path / "two",
    )

    def told(*words: str) -> None:
        two.wait_until(lambda _: all(w in two.flow(flow)["reason"] for w in words))

    with one:
        one.wait_running(flow)
        before = one.flow(flow)["restarts"]
        leader = one.flow(flow)["leader"]
        with two:
            told("another service", leader, "`part: NAME`")
            load.send(100)
            one.wait_copied(a, names[0])
            assert one.flow(flow)["restarts"] == before
            one.close()
            two.wait_running(flow)  # as in a rolling restart
            two.close()
    part = RunningMirror(
        config(clusters, names[:1], part="x", name=flow, group=f"one-{topic_name}"),
        tmp_path / "part",
    )
    with part:
        part.wait_running(flow)
        with two:
            told("in parts (x)", "`part: NAME`", "flow unite")
            part.close()
            command(tmp_path / "two", "flow", "unite", flow, "--yes")
            two.wait_running(flow)


@pytest.mark.full
def test_parts_of_a_pair_are_proven_and_switched_together(
    clusters: dict[str, PlaygroundCluster], topic_name: str, tmp_path: Path
) -> None:
    """Two services copy the parts of a pair. A file without `part` proves the copies of
    both, rehearses both and switches both: each application's group reads every record
    once over both clusters. For a drill and a switch a file of one part is refused, and
    so is one that leaves a topic out.
    """
    ends = {"PSA": clusters["a"].bootstrap, "PSB": clusters["b"].bootstrap}
    names = {part: f"{topic_name}-{part}" for part in ("one", "two")}
    for name in names.values():
        for bootstrap in ends.values():
            create_topic(bootstrap, name, 2)
    applications = {
        part: Application(name, 2, f"app-{name}") for part, name in names.items()
    }

    def document(topics: list[str], part: str | None) -> dict[str, Any]:
        made = pair_of(*ends.items(), topic_name)
        made["defaults"] |= {
            "topics": topics,
            "groups": [f"app-{each}" for each in topics],
            "part": part,
        }
        return made

    def operator(folder: str, topics: list[str]) -> Path:
        place = tmp_path / folder
        place.mkdir()
        (place / "mirror.yaml").write_text(json.dumps(document(topics, None)))
        return place

    whole = operator("whole", list(names.values()))
    with ExitStack() as stack:
        running = {
            part: stack.enter_context(
                RunningMirror(document([name], part), tmp_path / part)
            )
            for part, name in names.items()
        }
        for part, each in running.items():
            each.wait_running("PSA->PSB")
            applications[part].write(ends["PSA"], 100)
            applications[part].consume(ends["PSA"], [names[part]], most=40)
            each.wait_copied(ends["PSA"], names[part], flow="PSA->PSB")
        proven = json.loads(
            command(whole, "verify", "--flow", "PSA->PSB", "-o", "json")
        )
        told = json.dumps(proven)
        assert all(name in told for name in names.values())
        few = operator("few", [names["one"]])
        for place, why in (
            (tmp_path / "one", "is one part of the flow, and two would change sides"),
            (few, f"such as {names['two']}, would change sides too"),
        ):
            assert why in Switch(place, "switch", "PSA/PSB", "--yes").fails()
            assert why in Switch(place, "drill", "PSA/PSB").fails()

        def rehearsed() -> bool:
            words = ["drill", "PSA/PSB", "-c", str(whole / "mirror.yaml")]
            ended = subprocess.run(
                [sys.executable, "-m", "mirror", *words],
                capture_output=True, text=True, check=False,
            )  # fmt: skip
            return "2 of 2 groups and 4 of 4 partitions" in ended.stdout

        wait_for(rehearsed)
        Switch(whole, "switch", "PSA/PSB", "--yes").succeeds()
        for part, each in running.items():
            each.wait_running("PSB->PSA")
            applications[part].write(ends["PSB"], 20)
            applications[part].consume(ends["PSB"], [names[part], f"PSA.{names[part]}"])
            applications[part].require_each_once()


@pytest.mark.full
def test_each_process_runs_the_flows_into_its_cluster(
    clusters: dict[str, PlaygroundCluster], topic_name: str, tmp_path: Path
) -> None:
    """Two processes with one file, each with `--clusters` and another cluster: each
    runs one flow, and every record is on the other side once.
    """
    ends = (clusters["a"].bootstrap, clusters["b"].bootstrap)
    flows = ("A->B", "B->A")
    document = config_for(*ends, flows=flows, topics=[topic_name], tasks=1)
    document["service"] = {"group": f"clusters-{topic_name}"}
    loads = {}
    for flow, bootstrap in zip(flows, ends, strict=True):
        create_topic(bootstrap, topic_name, 2)
        loads[flow] = NumberedLoad(bootstrap, topic_name, 2)
        loads[flow].send(300)
    with ExitStack() as stack:
        running = {
            flow: stack.enter_context(
                RunningMirror(
                    document, tmp_path / flow[-1], options=("--clusters", flow[-1])
                )
            )
            for flow in flows
        }
        for (flow, each), bootstrap in zip(running.items(), ends, strict=True):
            each.wait_running(flow)
            each.wait_copied(bootstrap, topic_name, flow=flow)
            assert [f["name"] for f in each.status()["flows"]] == [flow]
    for flow, into in zip(flows, reversed(ends), strict=True):
        copy = f"{flow[0]}.{topic_name}"
        assert_exactly_once(order_of(into, copy), loads[flow].order)
