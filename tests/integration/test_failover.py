"""A cluster of a pair dies under load: `mirror failover`, with a witness."""

from __future__ import annotations

from collections import Counter
import json
import threading
from typing import TYPE_CHECKING

import pytest

from mirror.cli.output import Form
from mirror.cli.switch import show_plan
from mirror.pairs.journal import Kind
from mirror.playground.brokers import playground
from mirror.recovery.stage import StepError
from tests.harness.admin import create_topic
from tests.harness.application import Application
from tests.harness.failed_over import Failed, content, leave_open
from tests.harness.service import RunningMirror
from tests.harness.switching import Switch, command, pair_of
from tests.harness.waiting import crowd
from tests.harness.witness import order_of

if TYPE_CHECKING:
    from pathlib import Path

    from mirror.playground.cluster import PlaygroundCluster

pytestmark = pytest.mark.integration


def test_the_active_cluster_dies(topic_name: str, tmp_path: Path) -> None:
    """SIGKILL of the active cluster under load: after the failover the group goes on at
    the other one. It reads every record that was copied, none twice but what it
    committed after its last checkpoint, and the report names as many records as the
    producer's acknowledgements say are missing, or what was accepted after the
    service's last look. The application writes there, and reads that as well.
    """
    with playground(("a", "b"), root=tmp_path / "clusters", given=False) as made:
        ends = {"FA": made["a"].bootstrap, "FB": made["b"].bootstrap}
        for bootstrap in ends.values():
            create_topic(bootstrap, topic_name, 3)
        application = Application(topic_name, 3, f"app-{topic_name}")
        document = pair_of(("FA", ends["FA"]), ("FB", ends["FB"]), topic_name)
        copy = f"FA.{topic_name}"
        with RunningMirror(document, tmp_path) as mirror:
            mirror.wait_running("FA->FB")
            assert application.write(ends["FA"], 500)
            application.consume(ends["FA"], [topic_name], most=301)
            mirror.wait_copied(ends["FA"], topic_name, flow="FA->FB")
            mirror.wait_checkpoints("FA->FB")
            mirror.wait_until(lambda _: mirror.flow("FA->FB")["group_count"])
            gone = threading.Event()
            with application.writing(ends["FA"], gone=gone):
                mirror.wait_until(lambda _: len(application.written) > 1000)
                made["a"].kill()
                gone.set()
            said = Switch(tmp_path, "switch", "FA/FB", "--yes").fails()
            assert "mirror failover 'FA->FB'" in said
            out = Switch(
                tmp_path, "failover", "FA/FB", "--yes", "-o", "json"
            ).succeeds()
            steps = [json.loads(line) for line in out.splitlines()]
            notes = steps[-1]["notes"]

            found = {
                key for keys in order_of(ends["FB"], copy).values() for key in keys
            }
            lost = [key for key in application.written if key not in found]
            counted = notes["records"]
            # What A accepted after the last look cannot be counted.
            assert counted <= len(lost) + 20
            assert notes["as_of"] > 0
            application.write(ends["FB"], 100)
            application.consume(ends["FB"], [topic_name, copy])
            application.lost = set(lost)
            application.require_each_once()
        shown = json.loads(command(tmp_path, "pair", "-o", "json", fails=True))
        assert shown["pairs"][0]["active"] == "FB"


@pytest.mark.full
def test_the_report_counts_what_is_lost(topic_name: str, tmp_path: Path) -> None:
    """Of a paused topic nothing is copied while the service goes on looking at it: the
    report of the failover names, partition by partition, exactly as many records as the
    producer has counted since, with their bytes and how long before the last look the
    first of them was accepted. The group's position is as old as its checkpoint at
    least, and it reads no more again than the report says. A hook that cannot stop
    anything on the dead cluster does not hold the failover up.
    """
    with playground(("a", "b"), root=tmp_path / "clusters", given=False) as made:
        ends = {"RA": made["a"].bootstrap, "RB": made["b"].bootstrap}
        create_topic(ends["RA"], topic_name, 2)
        application = Application(topic_name, 2, f"app-{topic_name}")
        document = pair_of(("RA", ends["RA"]), ("RB", ends["RB"]), topic_name)
        document["recovery"]["RA<->RB"]["hooks"] = {
            "stop_producers": {"command": ["sh", "-c", "echo no such cluster; exit 1"]}
        }
        copy = f"RA.{topic_name}"
        with RunningMirror(document, tmp_path) as mirror:
            mirror.wait_running("RA->RB")
            assert application.write(ends["RA"], 400)
            application.consume(ends["RA"], [topic_name], most=300)
            read = application.read.total()
            mirror.wait_copied(ends["RA"], topic_name, flow="RA->RB")
            mirror.wait_checkpoints("RA->RB")
            mirror.wait_until(lambda _: mirror.flow("RA->RB")["group_count"])
            command(tmp_path, "pause", "RA/RB", "--yes")
            mirror.wait_until(
                lambda _: (
                    {p["state"] for p in mirror.flow("RA->RB")["partitions"]}
                    == {"PAUSED"}
                )
            )
            before = len(application.written)
            application.write(ends["RA"], 151)
            lost = Counter(
                int(key.partition(b":")[0]) for key in application.written[before:]
            )
            assert lost.total() == 151
            mirror.wait_until(
                lambda _: mirror.flow("RA->RB")["risk"]["records"] == lost.total()
            )
            made["a"].kill()
            run = Switch(tmp_path, "failover", "RA/RB", "--yes", "-o", "json")
            steps = [json.loads(line) for line in run.succeeds().splitlines()]
            report = steps[-1]["notes"]

            assert report["records"] == 151
            rows = {each["partition"]: each for each in report["lost"]}
            assert {n: each["records"] for n, each in rows.items()} == lost
            for number, each in rows.items():
                # A record of this test has 100 bytes and its key.
                assert 100 * lost[number] < each["bytes"] < 160 * lost[number]
                assert 0 < each["seconds"] <= report["rpo_seconds"]
            assert report["bytes"] == sum(each["bytes"] for each in rows.values())
            assert (
                report["rto_seconds"]
                <= sum(report["step_seconds"].values()) + 5 * crowd()
            )
            assert set(report["step_seconds"]) >= {"assess", "drain", "positions"}
            (group,) = report["groups"]
            assert group["group"] == application.group
            assert group["position_age_seconds"] > 0
            # It counts offsets, so the markers of the copy's transactions as well.
            assert 400 - read <= group["may_read_again"] <= 400 - read + 50
            assert group["unknown_partitions"] == 0
            (fence,) = [each for each in steps if each["step"] == "fence"]
            assert fence["warnings"] == [
                "hook stop_producers failed: exit code 1: no such cluster"
            ]
            assert application.consume(ends["RB"], [copy]) == 400 - read


def test_a_transaction_is_left_open(
    clusters: dict[str, PlaygroundCluster], topic_name: str
) -> None:
    """A process that copied died with the cluster that it copied from, and left a
    transaction open: a dry run says so and leaves it; the failover ends it, and the
    copy has each record once.
    """
    failed = Failed(clusters, topic_name)
    source, target = (alias for alias, _ in failed.ends)
    with failed.rehearsal as rehearsal:
        assert failed.application.write(failed.a, 40)
        rehearsal.copy(failed.b, failed.copy, 40)
        rehearsal.see()
        leave_open(failed.b, source, target)
        for _ in range(2):
            with pytest.raises(StepError, match="a switch or failover ends it"):
                show_plan(rehearsal.stage(Kind.FAILOVER), Form.TABLE)
        rehearsal.carry_out(kind=Kind.FAILOVER)
        assert failed.application.written == [
            each[1] for each in content(failed.b, failed.copy)
        ]
