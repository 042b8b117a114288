"""Another configuration while a service runs: by file and by signal, good and bad."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import threading
import time
from typing import TYPE_CHECKING, Any
import urllib.request

from confluent_kafka.admin import AdminClient
from confluent_kafka.admin._scram import (
    ScramCredentialInfo,
    ScramMechanism,
    UserScramCredentialUpsertion,
)
import pytest

from mirror.playground.secured import PASSWORDS
from tests.harness.admin import create_topic, end_offsets
from tests.harness.load import NumberedLoad
from tests.harness.service import RunningMirror
from tests.harness.waiting import crowd, wait_for
from tests.harness.witness import assert_exactly_once, order_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from mirror.playground.cluster import PlaygroundCluster

pytestmark = pytest.mark.integration

Document = dict[str, Any]

_LOOK_SECONDS = 0.5
_IN_TIME = 60.0


def config(source: str, target: str, group: str, **flows: Document) -> Document:
    """Flows into T, by the aliases of their sources, which are one cluster."""
    quiet = {"emit_heartbeats": False, "heartbeats_replication": False}
    return {
        "clusters": {
            **{alias: {"bootstrap_servers": source} for alias in ("R1", "R2", "R3")},
            "T": {"bootstrap_servers": target},
        },
        "defaults": {
            **quiet,
            "tasks": 1,
            "lease_seconds": 2,
            # Not before the test is over, unless the reload itself makes it look.
            "refresh_topics_seconds": 600,
        },
        "flows": {f"{alias}->T": settings for alias, settings in flows.items()},
        "service": {"group": group, "reload_seconds": _LOOK_SECONDS},
    }


def rewrite(folder: Path, change: Callable[[Document], None]) -> None:
    """Change the file of the service in this folder, as editors do: a new one."""
    file = folder / "mirror.yaml"
    document = json.loads(file.read_text())
    change(document)
    other = folder / "mirror.yaml.new"
    other.write_text(json.dumps(document))
    other.rename(file)


def ask(mirror: RunningMirror) -> None:
    os.kill(mirror.pids()[0], signal.SIGHUP)


def reloaded(mirror: RunningMirror, times: int) -> Document:
    return mirror.wait_until(
        lambda document: (
            document["config"]["reloads"] == times and not document["config"]["refused"]
        ),
        _IN_TIME,
    )


def refused(mirror: RunningMirror, word: str) -> Document:
    return mirror.wait_until(
        lambda document: any(word in text for text in document["config"]["refused"]),
        _IN_TIME,
    )


def metric(mirror: RunningMirror, name: str) -> float:
    with urllib.request.urlopen(f"{mirror.url}/metrics", timeout=5) as answer:
        lines = answer.read().decode().splitlines()
    return float(next(x for x in lines if x.startswith(f"{name} ")).split()[1])


def topics_of(mirror: RunningMirror, flow: str) -> set[str]:
    return {partition["topic"] for partition in mirror.flow(flow)["partitions"]}


@contextlib.contextmanager
def never_still(
    mirror: RunningMirror, flow: str, bootstrap: str, copy: str
) -> Iterator[None]:
    """While the block runs, the copy keeps growing, and its flow does not restart."""
    before = mirror.flow(flow)
    stop = threading.Event()
    grown_at = [time.monotonic()]
    stills: list[float] = []

    def look() -> None:
        last = -1
        while not stop.wait(0.1):
            now = sum(end_offsets(bootstrap, copy).values())
            if now > last:
                stills.append(time.monotonic() - grown_at[0])
                last, grown_at[0] = now, time.monotonic()

    thread = threading.Thread(target=look)
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join()
    after = mirror.flow(flow)
    assert after["restarts"] == before["restarts"] == 0
    assert after["leases"] > before["leases"]
    took = "takeovers"
    assert after["transactions"][took] == before["transactions"][took]
    assert max(stills) < 5 * crowd(), f"{flow} stood still for {max(stills):.1f} s"


def test_topics_come_and_go(
    clusters: dict[str, PlaygroundCluster], topic_name: str, tmp_path: Path
) -> None:
    """Under load a changed file adds a topic and leaves another one out, and SIGHUP
    takes that up again; broken files and a change that requires a restart are refused
    with their reasons while everything continues. No record is lost or doubled, no flow
    restarts.
    """
    source, target = clusters["a"].bootstrap, clusters["b"].bootstrap
    one, two = f"{topic_name}-one", f"{topic_name}-two"
    loads = {}
    for seed, topic in enumerate((one, two)):
        create_topic(source, topic, 2)
        loads[topic] = NumberedLoad(source, topic, 2, seed=seed)
    loads[two].send(500)  # what stands there before is copied as well

    def topics(*names: str) -> Callable[[Document], None]:
        return lambda document: document["flows"]["R1->T"].update(topics=list(names))

    with contextlib.ExitStack() as stack:
        mirror = stack.enter_context(
            RunningMirror(
                config(source, target, topic_name, R1={"topics": [one]}), tmp_path
            )
        )
        for load in loads.values():
            stack.enter_context(load.streaming(chunk=100))
        mirror.wait_until(lambda _: topics_of(mirror, "R1->T") == {one}, 120)
        version = mirror.status()["config"]["version"]
        leases = mirror.flow()["leases"]

        # By the file alone: a topic more, and from here on only when asked.
        def and_wait(document: Document) -> None:
            topics(one, two)(document)
            document["service"]["reload_seconds"] = None

        rewrite(tmp_path, and_wait)
        found = reloaded(mirror, 1)["config"]
        assert found["version"] != version
        assert found["loaded_at"] > time.time() - _IN_TIME
        mirror.wait_until(lambda _: topics_of(mirror, "R1->T") == {one, two}, _IN_TIME)

        # By SIGHUP: one topic less. It stands still where it is.
        rewrite(tmp_path, topics(two))
        time.sleep(4 * _LOOK_SECONDS)
        assert mirror.status()["config"]["reloads"] == 1
        ask(mirror)
        reloaded(mirror, 2)
        mirror.wait_until(lambda _: topics_of(mirror, "R1->T") == {two}, _IN_TIME)
        time.sleep(1)
        stands = end_offsets(target, f"R1.{one}")

        # What cannot be used changes nothing.
        good = (tmp_path / "mirror.yaml").read_text()
        for text, word in (
            ("", "empty"),
            (good[: len(good) // 2], "YAML"),
            (good.replace('"topics"', '"topcis"'), "topcis"),
            (good.replace('"tasks": 1', '"policy": "identity"'), "policy"),
            (good.replace(topic_name + '", "r', 'other", "r'), "service.group"),
        ):
            assert text != good
            (tmp_path / "mirror.yaml").write_text(text)
            ask(mirror)
            refused(mirror, word)
            assert metric(mirror, "mirror_config_last_reload_successful") == 0
            assert mirror.status()["config"]["reloads"] == 2
        assert "requires a restart" in mirror.status()["config"]["refused"][0]
        assert topics_of(mirror, "R1->T") == {two}
        assert end_offsets(target, f"R1.{one}") == stands

        # Both again, and nothing but errors in the log: of workers, too.
        (tmp_path / "mirror.yaml").write_text(good)

        def quietly(document: Document) -> None:
            topics(one, two)(document)
            document["service"]["log_level"] = "error"

        rewrite(tmp_path, quietly)
        ask(mirror)
        reloaded(mirror, 3)
        assert metric(mirror, "mirror_config_last_reload_successful") == 1
        mirror.wait_until(lambda _: topics_of(mirror, "R1->T") == {one, two}, _IN_TIME)
        logged = mirror.log.stat().st_size
        rewrite(tmp_path, lambda document: document["defaults"].update(sla_seconds=7))
        ask(mirror)
        reloaded(mirror, 4)
        assert mirror.flow()["sla_seconds"] == 7
        assert mirror.log.stat().st_size == logged
        assert mirror.flow()["leases"] > leases
        assert mirror.flow()["restarts"] == 0

    with RunningMirror(
        config(source, target, topic_name, R1={"topics": [one, two]}), tmp_path / "last"
    ) as last:
        for topic in (one, two):
            last.wait_copied(source, topic)
    for topic, load in loads.items():
        assert_exactly_once(order_of(target, f"R1.{topic}"), load.order)


def test_flows_come_go_and_run_anew(
    clusters: dict[str, PlaygroundCluster], topic_name: str, tmp_path: Path
) -> None:
    """Under load one flow restarts for another number of tasks, slots get another plan,
    and a flow is added, removed and added again: the other flow does not stand still,
    and no record of any flow is lost or doubled.
    """
    source, target = clusters["a"].bootstrap, clusters["b"].bootstrap
    create_topic(source, topic_name, 2)
    load = NumberedLoad(source, topic_name, 2, seed=3)
    flow = {"topics": [topic_name]}

    def leads(mirror: RunningMirror, name: str) -> bool:
        return any(
            each["name"] == name and each["state"] == "RUNNING" and each["leases"] > 0
            for each in mirror.status()["flows"]
        )

    setting = config(source, target, topic_name, R1=flow, R2=flow)
    with RunningMirror(setting, tmp_path) as mirror, load.streaming(chunk=200):
        wait_for(lambda: leads(mirror, "R1->T") and leads(mirror, "R2->T"), 120)
        wait_for(lambda: end_offsets(target, f"R2.{topic_name}"), 30)
        with never_still(mirror, "R2->T", target, f"R2.{topic_name}"):

            def more_tasks(document: Document) -> None:
                document["flows"]["R1->T"].update(tasks=2)

            rewrite(tmp_path, more_tasks)
            reloaded(mirror, 1)
            mirror.wait_until(lambda _: mirror.flow("R1->T")["slots"] == 2, _IN_TIME)

            def another_plan(document: Document) -> None:
                document["flows"]["R1->T"].update(compression="zstd", on_loss="stop")

            takeovers = mirror.flow("R1->T")["transactions"]["takeovers"]
            rewrite(tmp_path, another_plan)
            reloaded(mirror, 2)
            mirror.wait_until(
                lambda _: (
                    mirror.flow("R1->T")["transactions"]["takeovers"] >= takeovers + 2
                ),
                _IN_TIME,
            )
            assert mirror.flow("R1->T")["restarts"] == 0

            for times in (3, 5):
                rewrite(
                    tmp_path, lambda document: document["flows"].update({"R3->T": flow})
                )
                reloaded(mirror, times)
                wait_for(lambda: leads(mirror, "R3->T"), _IN_TIME)
                rewrite(
                    tmp_path,
                    lambda document: document["flows"]["R3->T"].update(enabled=False),
                )
                reloaded(mirror, times + 1)
                mirror.wait_until(
                    lambda document: (
                        [each["name"] for each in document["flows"]]
                        == ["R1->T", "R2->T"]
                    ),
                    _IN_TIME,
                )
                rewrite(tmp_path, lambda document: document["flows"].pop("R3->T"))
        events = urllib.request.urlopen(f"{mirror.url}/events", timeout=5).read()
        assert b"flow R3->T begins" in events
    final = config(source, target, topic_name, R1=flow, R2=flow, R3=flow)
    with RunningMirror(final, tmp_path / "last") as last:
        for alias in ("R1", "R2", "R3"):
            last.wait_copied(source, topic_name, flow=f"{alias}->T")
    for alias in ("R1", "R2", "R3"):
        assert_exactly_once(order_of(target, f"{alias}.{topic_name}"), load.order)


def test_a_login_is_changed(
    make_clusters: Callable[..., dict[str, PlaygroundCluster]],
    topic_name: str,
    tmp_path: Path,
) -> None:
    """A password that is changed on the target and in the file is used by everything
    that connects there: after the target's restart, which ends every old connection,
    the flow continues, led by the same instance, without a record lost or doubled.
    """
    source = make_clusters("a")["a"].bootstrap
    made = make_clusters("b", secured=True)["b"]
    create_topic(source, topic_name)
    load = NumberedLoad(source, topic_name, 1, seed=4)
    login = {**made.client_config, "sasl_username": "admin"}
    login["sasl_password"] = PASSWORDS["admin"]
    setting = config(source, made.bootstrap, topic_name, R1={"topics": [topic_name]})
    setting["clusters"]["T"].update(login)
    new = "another-secret"
    with RunningMirror(setting, tmp_path) as mirror, load.streaming(chunk=50):
        mirror.wait_running()
        leader = mirror.flow()["leader"]
        admin = AdminClient({"bootstrap.servers": made.admin_bootstrap})
        info = ScramCredentialInfo(ScramMechanism.SCRAM_SHA_512, 4096)
        changed = UserScramCredentialUpsertion("admin", info, new.encode())
        for done in admin.alter_user_scram_credentials([changed]).values():
            done.result(30)

        def with_new_password(document: Document) -> None:
            document["clusters"]["T"]["sasl_password"] = new

        rewrite(tmp_path, with_new_password)
        reloaded(mirror, 1)
        mirror.wait_until(
            lambda document: (
                document["flows"][0]["state"] == "RUNNING"
                and document["flows"][0]["since"] > document["config"]["loaded_at"]
            ),
            _IN_TIME,
        )
        assert mirror.flow()["restarts"] == 0
        made.stop()
        made.start()
        mirror.wait_copied(source, topic_name, timeout=60)
        assert mirror.flow()["leader"] == leader
        assert new not in mirror.log.read_text()
    with RunningMirror(
        json.loads((tmp_path / "mirror.yaml").read_text()), tmp_path / "last"
    ) as last:
        last.wait_copied(source, topic_name)
    found = order_of(made.admin_bootstrap, f"R1.{topic_name}")
    assert_exactly_once(found, load.order)
