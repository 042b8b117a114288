"""Planned switches of a pair, there and back, with applications as witnesses."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from confluent_kafka import KafkaException, Producer
import pytest

from tests.harness.admin import add_partitions, create_topic
from tests.harness.application import Application
from tests.harness.service import RunningMirror
from tests.harness.switching import Played, Switch, command, pair_of
from tests.harness.waiting import crowd

if TYPE_CHECKING:
    from pathlib import Path

    from mirror.playground.cluster import PlaygroundCluster

pytestmark = pytest.mark.integration


@pytest.mark.parametrize(
    "policy", ["default", pytest.param("identity", marks=pytest.mark.full)]
)
def test_there_and_back_under_load(
    clusters: dict[str, PlaygroundCluster],
    topic_name: str,
    tmp_path: Path,
    policy: str,
) -> None:
    """Switched there and back, with a producer that stops when the switch waits
    for it and goes on at the other cluster, and a group that has read a part of what
    was there: over both clusters the group reads every acknowledged record once.
    """
    one, two = f"{policy}A", f"{policy}B"
    ends = {one: clusters["a"].bootstrap, two: clusters["b"].bootstrap}
    for bootstrap in ends.values():
        create_topic(bootstrap, topic_name, 3)
    application = Application(topic_name, 3, f"app-{topic_name}")
    document = pair_of((one, ends[one]), (two, ends[two]), topic_name)
    document["defaults"]["policy"] = policy

    def subscribed(other: str) -> list[str]:
        copies = [f"{other}.{topic_name}"] if policy == "default" else []
        return [topic_name, *copies]

    with RunningMirror(document, tmp_path) as mirror:
        mirror.wait_running(f"{one}->{two}")
        active, other = one, two
        for lag in (0, 100):
            application.write(ends[active], 300)
            application.consume(ends[active], subscribed(other))
            application.write(ends[active], lag)
            with application.writing(ends[active]) as stop:
                switch = Switch(
                    tmp_path, "switch", f"{active}/{other}", "--yes",
                )  # fmt: skip
                switch.wait_for("fence: waiting")
                stop.set()
            switch.succeeds()
            active, other = other, active
            application.write(ends[active], 50)
            application.consume(ends[active], subscribed(other))
            application.require_each_once()
        shown = json.loads(command(tmp_path, "pair", "-o", "json"))["pairs"][0]
        assert (shown["active"], shown["epoch"]) == (one, 3)
        assert [run["open"] for run in shown["runs"]] == [False] * 3
        mirror.wait_running(f"{one}->{two}")


@pytest.mark.full
@pytest.mark.parametrize("policy", ["default", "identity"])
def test_a_topic_grows_right_before(
    clusters: dict[str, PlaygroundCluster],
    topic_name: str,
    tmp_path: Path,
    policy: str,
) -> None:
    """A topic gets partitions, and records in them, right before the switch, which
    waits until the flow has added them to the copy: the group reads every record once.
    """
    one, two = f"G{policy}A", f"G{policy}B"
    ends = {one: clusters["a"].bootstrap, two: clusters["b"].bootstrap}
    create_topic(ends[one], topic_name, 1)
    document = pair_of((one, ends[one]), (two, ends[two]), topic_name)
    document["defaults"] |= {"policy": policy, "refresh_topics_seconds": 15}
    copy = topic_name if policy == "identity" else f"{one}.{topic_name}"
    with RunningMirror(document, tmp_path) as mirror:
        mirror.wait_running(f"{one}->{two}")
        application = Application(topic_name, 3, f"app-{topic_name}")
        add_partitions(ends[one], topic_name, 3)
        application.write(ends[one], 30)
        application.consume(ends[one], [topic_name], most=20)
        application.write(ends[one], 30)
        switch = Switch(tmp_path, "switch", f"{one}/{two}", "--yes")
        switch.succeeds()
        assert "has 3 partitions" in "".join(switch.said)
        application.consume(ends[two], [copy])
        application.require_each_once()


@pytest.mark.full
def test_producers_that_do_not_stop(
    clusters: dict[str, PlaygroundCluster], topic_name: str, tmp_path: Path
) -> None:
    """A switch whose producers go on writing is undone when it has blocked for too
    long: the roles are as before, the flow goes on copying, and another switch can
    follow.
    """
    ends = {"PA": clusters["a"].bootstrap, "PB": clusters["b"].bootstrap}
    create_topic(ends["PA"], topic_name, 1)
    application = Application(topic_name, 1, f"app-{topic_name}")
    document = pair_of(("PA", ends["PA"]), ("PB", ends["PB"]), topic_name)
    document["recovery"]["PA<->PB"]["block_seconds"] = 5
    with RunningMirror(document, tmp_path) as mirror:
        mirror.wait_running("PA->PB")
        with application.writing(ends["PA"]):
            said = Switch(tmp_path, "switch", "PA/PB", "--yes").fails()
        assert "step fence failed" in said
        assert "Everything was undone" in said
        (pair,) = json.loads(command(tmp_path, "pair", "-o", "json"))["pairs"]
        assert (pair["active"], pair["runs"][-1]["open"]) == ("PA", False)
        application.write(ends["PA"], 10)
        application.consume(ends["PA"], [topic_name])
        Switch(tmp_path, "switch", "PA/PB", "--yes").succeeds()
        mirror.wait_running("PB->PA")
        assert application.consume(ends["PB"], [f"PA.{topic_name}"], most=1) == 0


@pytest.mark.full
def test_a_transaction_that_does_not_end(
    clusters: dict[str, PlaygroundCluster], topic_name: str, tmp_path: Path
) -> None:
    """A transaction that stays open stops a switch, which names it and is undone. With
    --abort-transactions the switch goes through: consumers of the other cluster do not
    see what was aborted, its producer can no longer commit it, and what was written
    before is there once.
    """
    ends = {"TA": clusters["a"].bootstrap, "TB": clusters["b"].bootstrap}
    create_topic(ends["TA"], topic_name, 1)
    application = Application(topic_name, 1, f"app-{topic_name}")
    document = pair_of(("TA", ends["TA"]), ("TB", ends["TB"]), topic_name)
    # The copy waits for what is open.
    document["recovery"]["TA<->TB"]["max_lag_seconds"] = 600
    client = Producer(
        {
            "bootstrap.servers": ends["TA"],
            "transactional.id": f"open-{topic_name}",
            "transaction.timeout.ms": 600_000,  # only a switch ends it
        }
    )
    client.init_transactions(30)
    with RunningMirror(document, tmp_path) as mirror:
        mirror.wait_running("TA->TB")
        application.write(ends["TA"], 20)
        client.begin_transaction()
        client.produce(topic_name, key=b"open", value=b"v")
        assert client.flush(30) == 0
        words = (tmp_path, "switch", "TA/TB", "--yes", "--step-timeout")
        words += (f"{8 * crowd():.0f}",)
        said = Switch(*words).fails()
        assert f"open transactions: open-{topic_name}" in said
        assert "Everything was undone" in said
        switch = Switch(*words, "--abort-transactions")
        switch.succeeds()
        assert f"transactions aborted: open-{topic_name}" in "".join(switch.said)
        with pytest.raises(KafkaException):
            client.commit_transaction(10)
        mirror.wait_running("TB->TA")
        application.consume(ends["TB"], [f"TA.{topic_name}"])
        application.require_each_once()
        assert b"open" not in application.read


@pytest.mark.full
@pytest.mark.parametrize(
    "steps",
    [
        ("fence", "positions", "open"),
        ("assess", "hold", "drain", "consumers", "redirect", "prove"),
    ],
    ids=["some", "others"],
)
def test_killed_after_a_step(
    clusters: dict[str, PlaygroundCluster],
    topic_name: str,
    tmp_path: Path,
    steps: tuple[str, ...],
) -> None:
    """A switch that is killed with SIGKILL after each of these steps and run again ends
    as one that nothing disturbs: the group reads every record once. One that is killed
    before the point of no return and then aborted leaves the pair as it was, and
    another one is refused while it is open.
    """
    with Played(clusters, topic_name, f"K{len(steps)}", tmp_path) as played:
        one, two = played.active, played.other
        with played.application.writing(played.ends[one]):
            switch = played.switch()
            switch.wait_for("still being written")
            switch.kill()
            said = Switch(
                tmp_path, "failover", f"{two}/{one}", "--yes", "--force"
            ).fails()
            assert f"switch {one}->{two}" in said
            assert "is open, at step fence" in said
            played.switch("--abort").succeeds()
        shown = played.shown()
        assert (shown["active"], shown["runs"][-1]["open"]) == (one, False)
        for step in steps:
            played.application.write(played.ends[played.active], 20)
            switch = played.switch("-o", "json", kill_at=f'"step": "{step}", "state"')
            switch.dies(at_the_end=step == "prove")
            played.switch().succeeds()
            # As a script does that does not know whether it went through.
            played.switch().succeeds()
            played.go_on()
