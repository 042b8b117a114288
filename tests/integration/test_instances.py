"""Several processes: instances of one configuration, and services beside each other."""

from __future__ import annotations

from contextlib import ExitStack, contextmanager
from http import HTTPStatus
import os
import signal
import threading
import time
from typing import TYPE_CHECKING, Any, Self
import urllib.error
import urllib.request

import pytest

from tests.harness.admin import copied_records, create_topic
from tests.harness.load import NumberedLoad
from tests.harness.namespaces import Host, MirrorOnHost, reachable_at, why_not
from tests.harness.service import RunningMirror, config_for
from tests.harness.waiting import crowd, wait_for
from tests.harness.witness import assert_exactly_once, order_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from mirror.playground.cluster import PlaygroundCluster

pytestmark = pytest.mark.integration

TAKE_OVER_SECONDS = 10.0
ROLLOUT_PAUSE_SECONDS = 5.0
"""How long a copy may stand still while a rollout replaces its leader."""


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


def wait_grown(bootstrap: str, copy: str) -> None:
    """Wait until one of the instances has copied more."""
    before = copied_records(bootstrap, copy)
    wait_for(lambda: copied_records(bootstrap, copy) > before + 100)


@pytest.mark.parametrize(
    "restarted",
    [False, pytest.param(True, marks=pytest.mark.full)],
    ids=["hang-and-die", "restarted-between"],
)
def test_instances_hang_are_restarted_and_die(
    clusters: dict[str, PlaygroundCluster],
    topic_name: str,
    tmp_path: Path,
    *,
    restarted: bool,
) -> None:
    """The leader hangs: another instance copies within ten seconds, and still leads
    when the first is back. Both are replaced as a rollout does it, with new settings: a
    new one is ready before an old one gets SIGTERM, and the copy never stands still for
    five seconds. The leader is killed: the other sees it die and copies within ten
    seconds. Every record is there once, in order.
    """
    source, target = clusters["a"].bootstrap, clusters["b"].bootstrap
    create_topic(source, topic_name, 2)
    flow, copy = "I->T", f"I.{topic_name}"
    old = config(source, target, topic_name, "I")
    new = config(source, target, topic_name, "I")
    new["flows"][flow]["lease_seconds"] = 3
    load = NumberedLoad(source, topic_name, 2, seed=3)

    with ExitStack() as stack:
        one, two = (RunningMirror(old, tmp_path / name) for name in ("one", "two"))
        stack.enter_context(one).wait_running(flow)
        stack.enter_context(two)
        with load.streaming(chunk=10, pause=0.1):
            two.wait_until(lambda _: two.flow(flow)["state"] == "STANDBY")
            wait_for(lambda: two.flow(flow)["leader"] == one.flow(flow)["leader"])
            wait_grown(target, copy)
            assert two.flow(flow)["state"] == "STANDBY"
            pids = one.pids()
            with taken_over(target, copy):
                signal_all(pids, signal.SIGSTOP)
            wait_for(lambda: leads(two, flow))
            signal_all(pids, signal.SIGCONT)
            wait_for(lambda: one.flow(flow)["state"] == "STANDBY")
            wait_grown(target, copy)
            assert leads(two, flow)

            instances = [one, two]
            if restarted:
                slow = crowd()
                instances = []
                with Witness(target, copy) as witness:
                    # The leader first, so that there is at least one take-over.
                    for number, instance in enumerate((two, one)):
                        after = RunningMirror(new, tmp_path / f"new-{number}")
                        instances.append(stack.enter_context(after))
                        wait_for(lambda each=after: ready(each))
                        assert instance.terminate(30) == 0
                    wait_for(lambda: any(leads(each, flow) for each in instances))
                print(
                    f"the copy stood still for {witness.longest:.1f} s at most in the "
                    f"rollout, crowd {crowd():.1f}"
                )
                assert witness.seen > 0
                assert witness.longest < ROLLOUT_PAUSE_SECONDS * max(slow, crowd())

            leader, other = sorted(instances, key=lambda each: not leads(each, flow))
            with taken_over(target, copy):
                signal_all(leader.pids(), signal.SIGKILL)
            wait_for(lambda: leads(other, flow))
            assert "instances have died" in other.log_tail(10_000)
        other.wait_copied(source, topic_name, flow=flow)
    assert_exactly_once(order_of(target, copy), load.order)


def ready(instance: RunningMirror) -> bool:
    """As Kubernetes asks before it ends the next pod."""
    try:
        url = f"{instance.url}/readyz"
        with urllib.request.urlopen(url, timeout=10 * crowd()) as answer:
            return answer.status == HTTPStatus.OK
    except urllib.error.HTTPError as error:
        error.close()
        return False


def signal_all(pids: list[int], number: int) -> None:
    for pid in pids:
        os.kill(pid, number)


@contextmanager
def taken_over(target: str, copy: str) -> Iterator[None]:
    """What the block does to the leader lets another one copy in time."""
    slow, began = crowd(), time.monotonic()
    yield
    before = copied_records(target, copy)
    wait_for(lambda: copied_records(target, copy) > before, pause=0.1)
    took = time.monotonic() - began
    assert took < TAKE_OVER_SECONDS * max(slow, crowd()), f"it took {took:.1f} s"


@pytest.fixture
def host() -> Iterator[Host]:
    missing = why_not()
    if missing:
        pytest.skip(missing)
    with Host() as made:
        yield made


@pytest.mark.full
def test_another_instance_takes_over_when_the_network_is_cut(
    make_clusters: Callable[..., dict[str, PlaygroundCluster]],
    host: Host,
    topic_name: str,
    tmp_path: Path,
) -> None:
    """The leader's host loses its network under load: another instance copies within
    ten seconds; when the network is back, the first one stands by, and every record is
    there once, in order.
    """
    clusters = make_clusters("a", "b")
    source, target = clusters["a"].bootstrap, clusters["b"].bootstrap
    away = [reachable_at(clusters[name], host.here) for name in ("a", "b")]
    create_topic(source, topic_name, 2)
    flow, copy = "A->T", f"A.{topic_name}"
    load = NumberedLoad(source, topic_name, 2, seed=7)
    far = config(*away, topic_name, "A")
    near = config(source, target, topic_name, "A")
    with MirrorOnHost(far, tmp_path / "one", host) as one:
        # Each look into its host is a process.
        wait_for(lambda: leads(one, flow), pause=1)
        with (
            RunningMirror(near, tmp_path / "two") as two,
            load.streaming(chunk=100, pause=0.5),
        ):
            two.wait_until(lambda _: two.flow(flow)["state"] == "STANDBY")
            wait_grown(target, copy)
            assert leads(one, flow)
            host.cut()
            began = time.monotonic()
            # What was under way when it was cut may still be counted.
            time.sleep(1)
            before = copied_records(target, copy)
            wait_for(lambda: copied_records(target, copy) > before + 100, 60, 0.1)
            took = time.monotonic() - began
            print(f"taken over {took:.1f} s after the cut")
            wait_for(lambda: leads(two, flow))
            # It still waits for answers when it has lost the lead already.
            wait_for(lambda: not leads(one, flow), 60, 1)
            print(f"given up {time.monotonic() - began:.1f} s after the cut")
            host.join()
            wait_for(lambda: one.flow(flow)["state"] == "STANDBY", 60, 1)
            assert one.flow(flow)["leader"] == two.flow(flow)["leader"]
            assert leads(two, flow)
        # The second one has gone: the first, which was cut off, goes on.
        one.wait_copied(source, topic_name, flow=flow, timeout=120)
        assert one.terminate(30) == 0
    assert_exactly_once(order_of(target, copy), load.order)
    assert took < TAKE_OVER_SECONDS * crowd(), f"it took {took:.1f} s"


class Witness:
    """Looks at a copy's ends ten times a second: how long they stood still at most."""

    def __init__(self, bootstrap: str, topic: str) -> None:
        self._place = (bootstrap, topic)
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._watch)
        self.longest = 0.0
        self.seen = 0

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join()

    def _watch(self) -> None:
        grew = time.monotonic()
        while not self._stop.wait(0.1):
            found = copied_records(*self._place)
            now = time.monotonic()
            self.longest = max(self.longest, now - grew)
            if found > self.seen:
                self.seen, grew = found, now


@pytest.mark.full
def test_flows_are_spread_and_move_back(
    clusters: dict[str, PlaygroundCluster],
    topic_name: str,
    tmp_path: Path,
) -> None:
    """Two flows run on two instances, on one while the other is down, then on both."""
    source, target = clusters["a"].bootstrap, clusters["b"].bootstrap
    create_topic(source, topic_name)
    flows = ("S1->T", "S2->T")
    setting = config(source, target, topic_name, "S1", "S2")
    load = NumberedLoad(source, topic_name, 1, seed=5)

    def spread(*instances: RunningMirror) -> list[int]:
        return [sum(leads(each, flow) for flow in flows) for each in instances]

    with RunningMirror(setting, tmp_path / "one") as one:
        with load.streaming(chunk=100, pause=0.5):
            wait_for(lambda: spread(one) == [2])
            two = RunningMirror(setting, tmp_path / "two")
            with two:
                wait_for(lambda: spread(one, two) == [1, 1])
                assert two.terminate() == 0
            wait_for(lambda: spread(one) == [2], TAKE_OVER_SECONDS)
            with RunningMirror(setting, tmp_path / "three") as three:
                wait_for(lambda: spread(one, three) == [1, 1])
        for alias in ("S1", "S2"):
            one.wait_copied(source, topic_name, flow=f"{alias}->T")
            found = order_of(target, f"{alias}.{topic_name}")
            assert_exactly_once(found, load.order)


@pytest.mark.full
def test_a_second_service_of_a_flow_does_not_begin(
    clusters: dict[str, PlaygroundCluster], topic_name: str, tmp_path: Path
) -> None:
    """A second service on the same flow, of another group and with topics of its own,
    does not fence the first one: its status names the process that copies, and what
    helps. Once the first one is gone, it runs.
    """
    source, target, flow = clusters["a"].bootstrap, clusters["b"].bootstrap, "R->T"
    services = []
    for name in ("one", "two"):
        create_topic(source, topic := f"{topic_name}-{name}")
        document = config(source, target, topic, "R")
        document["service"] = {"group": topic}
        services.append(RunningMirror(document, tmp_path / name))
    one, two = services
    load = NumberedLoad(source, f"{topic_name}-one", 1)
    with one:
        one.wait_running(flow)
        before, leader = one.flow(flow)["restarts"], one.flow(flow)["leader"]
        with two:
            words = ("another service", leader, "stop one of the two")
            two.wait_until(lambda _: all(w in two.flow(flow)["reason"] for w in words))
            load.send(100)
            one.wait_copied(source, f"{topic_name}-one", flow=flow)
            assert one.flow(flow)["restarts"] == before
            one.close()
            two.wait_running(flow)  # as in a rolling restart


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
