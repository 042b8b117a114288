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
from tests.harness.admin import closed_ends, create_topic, end_offsets
from tests.harness.load import NumberedLoad
from tests.harness.proxy import BrokerProxy
from tests.harness.service import RunningMirror
from tests.harness.switching import make_active
from tests.harness.waiting import crowd, wait_for
from tests.harness.witness import (
    assert_exactly_once,
    eventually,
    keys_of,
    order_of,
    read_topic,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from mirror.playground.cluster import PlaygroundCluster
    from tests.harness.standing import StandingMirror

pytestmark = pytest.mark.integration

Document = dict[str, Any]

_LOOK_SECONDS = 0.5
_IN_TIME = 60.0
_STILL_LOOKS = 20
"""At four a second, five seconds on a quiet machine."""


def config(source: str, target: str, **flows: Document) -> Document:
    """Flows into T, by the aliases of their sources, which are one cluster."""
    quiet = {
        "emit_heartbeats": False,
        "heartbeats_replication": False,
        "tasks": 1,
        "lease_seconds": 2,
        # Not before the test is over, unless the reload itself makes it look.
        "refresh_topics_seconds": 600,
    }
    return {
        "clusters": {
            **{alias: {"bootstrap_servers": source} for alias in ("R1", "R2", "R3")},
            "T": {"bootstrap_servers": target},
        },
        "flows": {f"{alias}->T": {**quiet, **own} for alias, own in flows.items()},
    }


def file_of(mirror: RunningMirror) -> Path:
    return mirror.log.with_name("mirror.yaml")


def rewrite(mirror: RunningMirror, change: Callable[[Document], None]) -> None:
    """Change the file of the service, as editors do: a new one."""
    file = file_of(mirror)
    document = json.loads(file.read_text())
    change(document)
    other = file.with_suffix(".another")
    other.write_text(json.dumps(document))
    other.rename(file)


def ask(mirror: RunningMirror) -> None:
    os.kill(mirror.pids()[0], signal.SIGHUP)


def reloads(mirror: RunningMirror) -> int:
    return int(mirror.status()["config"]["reloads"])


@contextlib.contextmanager
def hosted(standing: StandingMirror, entered: Document) -> Iterator[RunningMirror]:
    """A service that runs these flows and looks at its file; the file is as it was
    when the block ends.
    """

    def by_itself(document: Document) -> None:
        document["service"]["reload_seconds"] = _LOOK_SECONDS

    with standing.hosting(entered) as mirror:
        before = file_of(mirror).read_text()
        try:
            times = reloads(mirror)
            rewrite(mirror, by_itself)
            ask(mirror)
            reloaded(mirror, times + 1)
            yield mirror
        finally:
            # It looks by itself: it must not find half of the file.
            other = file_of(mirror).with_suffix(".before")
            other.write_text(before)
            other.rename(file_of(mirror))


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


def answer(mirror: RunningMirror, path: str) -> str:
    with urllib.request.urlopen(f"{mirror.url}/{path}", timeout=30 * crowd()) as shown:
        return str(shown.read().decode())


def metric(mirror: RunningMirror, name: str) -> float:
    lines = answer(mirror, "metrics").splitlines()
    return float(next(x for x in lines if x.startswith(f"{name} ")).split()[1])


def another_lease(mirror: RunningMirror) -> None:
    """Wait until one more lease of the only flow has ended."""
    before = mirror.flow()["leases"]
    mirror.wait_until(lambda document: document["flows"][0]["leases"] > before)


def topics_of(mirror: RunningMirror, flow: str) -> set[str]:
    return {partition["topic"] for partition in mirror.flow(flow)["partitions"]}


@contextlib.contextmanager
def never_still(
    mirror: RunningMirror, flow: str, bootstrap: str, copy: str
) -> Iterator[None]:
    """While the block runs, the copy keeps growing, and its flow does not restart."""
    before = mirror.flow(flow)
    stop = threading.Event()
    stills = [0]
    """Between two growths, how many looks: a machine that stalls makes none."""

    def look() -> None:
        last = -1
        while not stop.wait(0.25):
            now = sum(end_offsets(bootstrap, copy).values())
            if now > last:
                stills.append(0)
                last = now
            stills[-1] += 1

    thread = threading.Thread(target=look)
    slow = crowd()
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
    most = _STILL_LOOKS * max(slow, crowd())
    assert max(stills) < most, f"{flow} stood still for {max(stills)} looks"


def test_topics_come_and_go(
    clusters: dict[str, PlaygroundCluster], topic_name: str, standing: StandingMirror
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

    entered = config(source, target, R1={"topics": [one]})
    with hosted(standing, entered) as mirror, contextlib.ExitStack() as stack:
        for load in loads.values():
            stack.enter_context(load.streaming(chunk=100))
        mirror.wait_until(lambda _: topics_of(mirror, "R1->T") == {one}, 120)
        version = mirror.status()["config"]["version"]
        leases, times = mirror.flow()["leases"], reloads(mirror)

        # By the file alone: a topic more, and from here on only when asked.
        def and_wait(document: Document) -> None:
            topics(one, two)(document)
            document["service"]["reload_seconds"] = None

        before = time.time()
        rewrite(mirror, and_wait)
        found = reloaded(mirror, times + 1)["config"]
        assert found["version"] != version
        assert before < found["loaded_at"] < time.time()
        mirror.wait_until(lambda _: topics_of(mirror, "R1->T") == {one, two}, _IN_TIME)

        # By SIGHUP: one topic less. It stands still where it is.
        rewrite(mirror, topics(two))
        time.sleep(4 * _LOOK_SECONDS)  # it would have looked at its file by now
        assert reloads(mirror) == times + 1
        ask(mirror)
        reloaded(mirror, times + 2)
        mirror.wait_until(lambda _: topics_of(mirror, "R1->T") == {two}, _IN_TIME)
        another_lease(mirror)  # the last one may have had the topic
        stands = closed_ends(target, f"R1.{one}")

        # What cannot be used changes nothing.
        file = file_of(mirror)
        good = file.read_text()
        for text, word in (
            ("", "empty"),
            (good[: len(good) // 2], "YAML"),
            (good.replace('"topics"', '"topcis"'), "topcis"),
            (good.replace('"tasks": 1', '"policy": "identity"'), "policy"),
            (good.replace('"group": "standing"', '"group": "other"'), "service.group"),
        ):
            assert text != good
            file.write_text(text)
            ask(mirror)
            refused(mirror, word)
            assert metric(mirror, "mirror_config_last_reload_successful") == 0
            assert reloads(mirror) == times + 2
        assert "requires a restart" in mirror.status()["config"]["refused"][0]
        assert topics_of(mirror, "R1->T") == {two}
        assert end_offsets(target, f"R1.{one}") == stands

        # Both again, and nothing but errors in the log: of workers, too.
        file.write_text(good)

        def quietly(document: Document) -> None:
            topics(one, two)(document)
            document["service"]["log_level"] = "error"

        rewrite(mirror, quietly)
        ask(mirror)
        reloaded(mirror, times + 3)
        assert metric(mirror, "mirror_config_last_reload_successful") == 1
        mirror.wait_until(lambda _: topics_of(mirror, "R1->T") == {one, two}, _IN_TIME)
        another_lease(mirror)
        logged = mirror.log.stat().st_size
        rewrite(mirror, lambda document: document.update(defaults={"sla_seconds": 7}))
        ask(mirror)
        reloaded(mirror, times + 4)
        assert mirror.flow()["sla_seconds"] == 7
        assert mirror.log.stat().st_size == logged
        assert mirror.flow()["leases"] > leases
        mirror.assert_never_failed()
        stack.close()
        for topic in (one, two):
            mirror.wait_copied(source, topic)
    for topic, load in loads.items():
        assert_exactly_once(order_of(target, f"R1.{topic}"), load.order)


def test_flows_come_go_and_run_again(
    clusters: dict[str, PlaygroundCluster], topic_name: str, standing: StandingMirror
) -> None:
    """Under load one flow runs again for another number of tasks, and each slot keeps
    its process; slots get another plan, and a flow is added, removed and added again:
    the other flow does not stand still, and no record of any flow is lost or doubled.
    """
    source, target = clusters["a"].bootstrap, clusters["b"].bootstrap
    create_topic(source, topic_name, 2)
    load = NumberedLoad(source, topic_name, 2, seed=3)
    both, third = (
        config(source, target, **{key: {"topics": [topic_name]} for key in aliases})
        for aliases in (("R1", "R2"), ("R3",))
    )

    def takeovers(mirror: RunningMirror, name: str) -> int:
        flow = next((f for f in mirror.status()["flows"] if f["name"] == name), None)
        return int(flow["transactions"]["takeovers"]) if flow else 0

    def wait_led(name: str, *, takes: int = 1) -> None:
        mirror.wait_until(lambda _: takeovers(mirror, name) >= takes)

    with hosted(standing, both) as mirror:
        with load.streaming(chunk=100):
            # What a lease did is counted when it ends.
            wait_led("R1->T")
            wait_led("R2->T")
            wait_for(lambda: end_offsets(target, f"R2.{topic_name}"))
            times = reloads(mirror)
            with never_still(mirror, "R2->T", target, f"R2.{topic_name}"):

                def more_tasks(document: Document) -> None:
                    document["flows"]["R1->T"].update(tasks=2)

                rewrite(mirror, more_tasks)
                reloaded(mirror, times + 1)
                mirror.wait_until(lambda _: mirror.flow("R1->T")["slots"] == 2)
                wait_led("R1->T", takes=2)
                taken = takeovers(mirror, "R1->T")
                leases = mirror.flow("R1->T")["leases"]
                mirror.wait_until(lambda _: mirror.flow("R1->T")["leases"] > leases + 2)
                assert takeovers(mirror, "R1->T") == taken, "a slot has two processes"

                def another_plan(document: Document) -> None:
                    document["flows"]["R1->T"].update(
                        compression="zstd", on_loss="stop"
                    )

                before = takeovers(mirror, "R1->T")
                rewrite(mirror, another_plan)
                reloaded(mirror, times + 2)
                wait_led("R1->T", takes=before + 2)
                mirror.assert_never_failed("R1->T")

                for passes in (3, 5):
                    rewrite(mirror, lambda document: add(document, third))
                    reloaded(mirror, times + passes)
                    wait_led("R3->T")
                    rewrite(
                        mirror,
                        lambda document: document["flows"]["R3->T"].update(
                            enabled=False
                        ),
                    )
                    reloaded(mirror, times + passes + 1)
                    mirror.wait_until(
                        lambda document: (
                            [each["name"] for each in document["flows"]]
                            == ["R1->T", "R2->T"]
                        ),
                        _IN_TIME,
                    )
        assert "flow R3->T begins" in answer(mirror, "events")
        rewrite(mirror, lambda document: add(document, third))
        for alias in ("R1", "R2", "R3"):
            wait_led(f"{alias}->T")
            mirror.wait_copied(source, topic_name, flow=f"{alias}->T")
    for alias in ("R1", "R2", "R3"):
        assert_exactly_once(order_of(target, f"{alias}.{topic_name}"), load.order)


def add(document: Document, other: Document) -> None:
    document["flows"] |= other["flows"]


def test_a_login_is_changed(
    clusters: dict[str, PlaygroundCluster],
    make_clusters: Callable[..., dict[str, PlaygroundCluster]],
    topic_name: str,
    standing: StandingMirror,
) -> None:
    """A password that is changed on the target and in the file is used by everything
    that connects there: after the target's restart, which ends every old connection,
    the flow continues, led by the same instance, without a record lost or doubled.
    """
    source = clusters["a"].bootstrap
    made = make_clusters("b", secured=True)["b"]
    create_topic(source, topic_name)
    load = NumberedLoad(source, topic_name, 1, seed=4)
    login = {**made.client_config, "sasl_username": "admin"}
    login["sasl_password"] = PASSWORDS["admin"]
    setting = config(source, made.bootstrap, R1={"topics": [topic_name]})
    setting["clusters"]["T"].update(login)
    new = "another-secret"
    with hosted(standing, setting) as mirror:
        with load.streaming(chunk=50):
            mirror.wait_running()
            leader, times = mirror.flow()["leader"], reloads(mirror)
            admin = AdminClient({"bootstrap.servers": made.admin_bootstrap})
            info = ScramCredentialInfo(ScramMechanism.SCRAM_SHA_512, 4096)
            changed = UserScramCredentialUpsertion("admin", info, new.encode())
            for done in admin.alter_user_scram_credentials([changed]).values():
                done.result(30)

            def with_new_password(document: Document) -> None:
                document["clusters"]["T"]["sasl_password"] = new

            rewrite(mirror, with_new_password)
            reloaded(mirror, times + 1)
            mirror.wait_until(
                lambda document: (
                    document["flows"][0]["state"] == "RUNNING"
                    and document["flows"][0]["since"] > document["config"]["loaded_at"]
                ),
                _IN_TIME,
            )
            mirror.assert_never_failed()
            made.stop()
            made.start()
        mirror.wait_copied(source, topic_name)
        assert mirror.flow()["leader"] == leader
        assert new not in mirror.log.read_text()
    found = order_of(made.admin_bootstrap, f"R1.{topic_name}")
    assert_exactly_once(found, load.order)


def test_addresses_are_changed(
    clusters: dict[str, PlaygroundCluster], topic_name: str, standing: StandingMirror
) -> None:
    """Under load the source gets another address, and its old one goes away; the
    target's goes away first, and the file follows. Each time the flow goes on, led by
    the same instance, without a record lost or doubled.
    """
    source, target = clusters["a"].bootstrap, clusters["b"].bootstrap
    copy = f"R1.{topic_name}"
    create_topic(source, topic_name, 2)
    load = NumberedLoad(source, topic_name, 2, seed=5)
    with (
        BrokerProxy(source) as new_source,
        BrokerProxy(target) as new_target,
        contextlib.ExitStack() as old_source,
        contextlib.ExitStack() as old_target,
    ):
        entered = config(
            old_source.enter_context(BrokerProxy(source)).bootstrap,
            old_target.enter_context(BrokerProxy(target)).bootstrap,
            R1={"topics": [topic_name]},
        )
        with hosted(standing, entered) as mirror:
            with load.streaming(chunk=50):
                mirror.wait_running()
                leader, times = mirror.flow()["leader"], reloads(mirror)
                copy_grows(target, copy)

                rewrite(mirror, addresses(R1=new_source.bootstrap))
                reloaded(mirror, times + 1)
                mirror.wait_until(runs_since_reload, _IN_TIME)
                old_source.close()
                copy_grows(target, copy)
                mirror.assert_never_failed()

                old_target.close()
                rewrite(mirror, addresses(T=new_target.bootstrap))
                reloaded(mirror, times + 2)
                mirror.wait_until(runs_since_reload, 120)
                copy_grows(target, copy)
            mirror.wait_copied(source, topic_name)
            mirror.wait_until(
                lambda d: all(
                    each["answers"]
                    for each in d["clusters"]
                    if each["alias"] in {"R1", "T"}
                )
            )
            assert mirror.flow()["leader"] == leader
    assert_exactly_once(order_of(target, copy), load.order)


def test_an_address_of_another_cluster_is_refused(
    clusters: dict[str, PlaygroundCluster], topic_name: str, standing: StandingMirror
) -> None:
    """An address that leads to another cluster, or at which nothing answers, is refused
    with both ids, or with what failed; the flow goes on where it is, in the same run,
    and once the address is right, it is taken.
    """
    source, target = clusters["a"].bootstrap, clusters["b"].bootstrap
    copy = f"R1.{topic_name}"
    create_topic(source, topic_name, 2)
    load = NumberedLoad(source, topic_name, 2, seed=6)
    with BrokerProxy(target) as proxy, BrokerProxy(target) as silent:
        with contextlib.ExitStack() as gone:
            nowhere = gone.enter_context(BrokerProxy(source)).bootstrap
        entered = config(source, target, R1={"topics": [topic_name]})
        with hosted(standing, entered) as mirror:
            with load.streaming(chunk=50):
                mirror.wait_running()
                times = reloads(mirror)
                ids = {e["alias"]: e["cluster_id"] for e in mirror.status()["clusters"]}
                with never_still(mirror, "R1->T", target, copy):
                    rewrite(mirror, addresses(R1=proxy.bootstrap, T=silent.bootstrap))
                    (said,) = refused(mirror, ids["T"])["config"]["refused"]
                    assert "clusters.R1.bootstrap_servers" in said
                    assert ids["R1"] in said
                    rewrite(mirror, addresses(R1=nowhere, T=target))
                    (said,) = refused(mirror, "SIGHUP")["config"]["refused"]
                    assert nowhere.rpartition(":")[2] in said
                    copy_grows(target, copy)
                assert reloads(mirror) == times
                proxy.lead_to(source)
                rewrite(mirror, addresses(R1=proxy.bootstrap, T=target))
                goes_on(mirror, times + 1, target, copy)
            mirror.wait_copied(source, topic_name)
    assert_exactly_once(order_of(target, copy), load.order)


def test_a_listener_with_a_login_is_taken(
    clusters: dict[str, PlaygroundCluster],
    make_clusters: Callable[..., dict[str, PlaygroundCluster]],
    topic_name: str,
    standing: StandingMirror,
) -> None:
    """Address, protocol and login change together: with a wrong password they are
    refused, and the flow goes on in the same run; with the right one it goes on at the
    other listener, without a record lost or doubled.
    """
    source = clusters["a"].bootstrap
    made = make_clusters("b", secured=True)["b"]
    target, copy = made.admin_bootstrap, f"R1.{topic_name}"
    create_topic(source, topic_name, 2)
    load = NumberedLoad(source, topic_name, 2, seed=7)

    def listener(password: str) -> Callable[[Document], None]:
        login = {"sasl_username": "admin", "sasl_password": password}
        section = {"bootstrap_servers": made.bootstrap, **made.client_config, **login}
        return lambda document: document["clusters"].update(T=section)

    entered = config(source, target, R1={"topics": [topic_name]})
    with hosted(standing, entered) as mirror:
        with load.streaming(chunk=50):
            mirror.wait_running()
            times = reloads(mirror)
            with never_still(mirror, "R1->T", target, copy):
                rewrite(mirror, listener("wrong"))
                refused(mirror, "clusters.T.bootstrap_servers")
                copy_grows(target, copy)
            rewrite(mirror, listener(PASSWORDS["admin"]))
            goes_on(mirror, times + 1, target, copy)
        mirror.wait_copied(source, topic_name)
    assert_exactly_once(order_of(target, copy), load.order)


@pytest.mark.full
def test_a_pair_is_followed_at_new_addresses(
    clusters: dict[str, PlaygroundCluster], topic_name: str, tmp_path: Path
) -> None:
    """Both clusters of a pair get other addresses, and the old ones go away: a role
    that a journal tells of afterwards is followed, and the audit topic gets the events.
    """
    ends = {"VA": clusters["a"].bootstrap, "VB": clusters["b"].bootstrap}
    for bootstrap in ends.values():
        create_topic(bootstrap, topic_name, 1)
    audit = f"{topic_name}-audit"
    with contextlib.ExitStack() as new, contextlib.ExitStack() as old:
        at = {a: old.enter_context(BrokerProxy(b)).bootstrap for a, b in ends.items()}
        document: Document = {
            "clusters": {a: {"bootstrap_servers": b} for a, b in at.items()},
            "defaults": {
                "topics": [topic_name], "tasks": 1, "lease_seconds": 2,
                "emit_heartbeats": False, "heartbeats_replication": False,
            },
            "flows": {"VA->VB": {}, "VB->VA": {}},
            "recovery": {"VA<->VB": {"active": "VA"}},
            "service": {"reload_seconds": 0.2, "audit_topic": f"VA/{audit}"},
        }  # fmt: skip
        moved = {
            a: new.enter_context(BrokerProxy(b)).bootstrap for a, b in ends.items()
        }
        with RunningMirror(document, tmp_path) as mirror:
            mirror.wait_running("VA->VB")
            mirror.wait_until(lambda d: d["pairs"][0]["epoch"] == 1)
            rewrite(mirror, addresses(**moved))
            reloaded(mirror, 1)
            mirror.wait_until(lambda _: mirror.flow("VA->VB")["state"] == "RUNNING")
            old.close()
            direct = {a: {"bootstrap_servers": b} for a, b in ends.items()}
            make_active({**document, "clusters": direct}, "VA", "VB", 2)
            mirror.wait_running("VB->VA")
            load = NumberedLoad(ends["VB"], topic_name, 1)
            load.send(20)
            found = eventually(ends["VA"], f"VB.{topic_name}", 20)
            assert_exactly_once(keys_of(found), load.order)

            def kinds() -> set[str]:
                (events,) = read_topic(ends["VA"], audit).values()
                told = [json.loads(each.value()) for each in events]
                return {e["kind"] for e in told if e["flow"] == "VB->VA"}

            wait_for(lambda: "flow-started" in kinds())


def addresses(**by_alias: str) -> Callable[[Document], None]:
    def change(document: Document) -> None:
        for alias, bootstrap in by_alias.items():
            document["clusters"][alias]["bootstrap_servers"] = bootstrap

    return change


def goes_on(mirror: RunningMirror, times: int, bootstrap: str, copy: str) -> None:
    """The file is taken, and the flow copies in a run that began since."""
    reloaded(mirror, times)
    mirror.wait_until(runs_since_reload, _IN_TIME)
    copy_grows(bootstrap, copy)
    mirror.assert_never_failed()


def runs_since_reload(document: Document) -> bool:
    flow = document["flows"][0]
    begun = flow["since"] > document["config"]["loaded_at"]
    return bool(flow["state"] == "RUNNING" and begun)


def copy_grows(bootstrap: str, copy: str) -> None:
    before = sum(end_offsets(bootstrap, copy).values())
    wait_for(lambda: sum(end_offsets(bootstrap, copy).values()) > before + 100)
