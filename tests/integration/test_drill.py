"""Drills find each defect by name, none on a sound pair, and change nothing."""

from __future__ import annotations

import json
import sys
import time
from typing import TYPE_CHECKING, Any
from urllib.request import urlopen

from confluent_kafka import Consumer, TopicPartition
from confluent_kafka.admin import AdminClient, ResourceType
import numpy as np
import pytest
import yaml

from mirror.clusters.admin import group_offsets
from mirror.clusters.admin.group_offsets import CommittedOffset
from mirror.clusters.cluster import Cluster
from mirror.offsets import runs
from mirror.offsets.runs import Block
from mirror.pairs import proofs
from mirror.pairs.journal import Kind
from mirror.pairs.proofs import Proof
from mirror.playground.brokers import playground
from mirror.proofs import sides
from mirror.records.writing import append
from mirror.recovery.stage import Level
from tests.harness.admin import (
    add_partitions,
    alter_topic,
    create_topic,
    end_offsets,
)
from tests.harness.application import Application
from tests.harness.counters import counter
from tests.harness.drilling import Drilled
from tests.harness.metadata import allow, remove_override
from tests.harness.portraits import at_rest, portrait
from tests.harness.producers import add_users
from tests.harness.quotas import limit
from tests.harness.security import admit
from tests.harness.service import RunningMirror
from tests.harness.switching import command, pair_of
from tests.harness.waiting import crowd, wait_for

if TYPE_CHECKING:
    from pathlib import Path

    from mirror.playground.cluster import PlaygroundCluster
    from mirror.recovery.drilling.runner import Drill

pytestmark = pytest.mark.integration


def found(drill: Drill) -> set[tuple[str, str]]:
    """Levels and subjects; each finding has a fix."""
    assert all(each.fix for each in drill.findings)
    return {(str(each.level), each.subject) for each in drill.findings}


def reasons(drill: Drill, subject: str) -> str:
    return "; ".join(e.reason for e in drill.findings if e.subject == subject)


_HISTORY = "^mirror-journal"
"""Where a drill notes its verdict."""
_MEANWHILE = f"{_HISTORY}|REST-|standing"
"""What else changes on shared clusters: what the standing service writes."""


def test_defects_of_copies_and_groups(
    clusters: dict[str, PlaygroundCluster], topic_name: str, tmp_path: Path
) -> None:
    """A sound pair is READY and both clusters stay as they were. Then retention, a
    partition, a member on the target, a stale position, a proof with findings, a hook
    that is no file and a wrong map are each found by name, one after the other.
    """
    one, two = clusters["a"].bootstrap, clusters["b"].bootstrap
    create_topic(one, topic_name, 2)
    names = (("drillA", one), ("drillB", two))
    group = f"app-{topic_name}"
    with Drilled(*names, topic_name) as pair:
        application = pair.prepare(one, two)
        written = time.time()  # the checkpoints, whose age counts below
        copy = pair.copied
        before = [at_rest(each, but=_MEANWHILE) for each in (one, two)]

        sound = pair.drill()

        assert sound.findings == ()
        assert sound.text.startswith(
            "READY: 1 of 1 group and 2 of 2 partitions would go on exactly; a failover "
            "now would lose nothing"
        )
        (tmp_path / "mirror.yaml").write_text(yaml.safe_dump(pair.document))
        done = command(tmp_path, "drill", "drillA/drillB", "-o", "json")
        assert json.loads(done)["verdict"] == "READY"
        assert [portrait(each, but=_MEANWHILE) for each in (one, two)] == before

        alter_topic(two, copy, retention_ms="60000")
        retention = pair.drill()
        assert found(retention) == {("DEGRADED", f"topic {topic_name} ({copy})")}
        assert "retention.ms=60000" in retention.findings[0].reason
        remove_override(two, copy, "retention.ms")

        client = Consumer({"bootstrap.servers": two, "group.id": group})
        client.subscribe([copy])
        wait_for(lambda: client.poll(0.1) is None and client.assignment() != [], 30)
        member = pair.drill()
        client.close()
        assert found(member) == {("NOT READY", f"group {group}")}
        assert member.groups_exact == 0

        application.consume(one, [topic_name], most=20)
        assert pair.drill(at=written).verdict is Level.READY
        stale = pair.drill(at=written + 840)
        assert ("DEGRADED", f"group {group}") in found(stale)
        assert "would read about 20 records again" in reasons(stale, f"group {group}")
        pair.round()

        plant_wrong_map(pair, "drillA", "drillB")
        wrong = pair.drill()
        assert ("NOT READY", f"group {group}") in found(wrong)
        assert "is not where it should be" in reasons(wrong, f"group {group}")

        plant_proof(pair, "drillA", "drillB")
        assert ("NOT READY", f"topic {topic_name}") in found(pair.drill())

        add_partitions(one, topic_name, 3)
        grown = reasons(pair.drill(), f"topic {topic_name}")
        assert "it has 3 partitions on drillA and fewer on drillB" in grown

    hooks = {"hooks": {"stop_producers": {"command": ["/no/such/file"]}}}
    with Drilled(*names, topic_name, pair=hooks) as pair:
        (tmp_path / "mirror.yaml").write_text(yaml.safe_dump(pair.document))
        said = command(tmp_path, "drill", "drillA/drillB", fails=True)
        assert said.startswith("NOT READY: ")
        assert "hook stop_producers" in said


def plant_wrong_map(pair: Drilled, source: str, target: str) -> None:
    """The map says of the last records that they stand one further on."""
    here, there = pair.cluster(source), pair.cluster(target)
    topic, copy = here.topic(pair.topic), there.topic(pair.copied)
    assert topic is not None
    assert copy is not None
    end = end_offsets(pair.bootstrap(target), pair.copied)[0]
    blocks = [
        Block(
            topic=pair.topic,
            partition=partition,
            target_topic=pair.copied,
            topic_id=topic.topic_id,
            copy_id=copy.topic_id,
            runs=np.array([[47, end - 2, 3]], np.int64),
        )
        for partition in range(pair.partitions)
    ]
    values = [(b"", value) for value in runs.encode(blocks)]
    append(there, runs.topic_name(source), values)


def plant_proof(pair: Drilled, source: str, target: str) -> None:
    topic = pair.cluster(source).topic(pair.topic)
    assert topic is not None
    proof = Proof(
        topic=pair.topic, partition=0, topic_id=topic.topic_id, source_offset=10,
        target_offset=10, at=time.time(), records=10, findings=2, root="",
    )  # fmt: skip
    flow = pair.config.flows[f"{source}->{target}"]
    proofs.write(pair.cluster(target), flow, [proof])


@pytest.mark.full
def test_defects_of_a_pair(
    clusters: dict[str, PlaygroundCluster], topic_name: str, tmp_path: Path
) -> None:
    """A copy that is compacted, a switch whose operator is gone, next records that were
    removed from the copy, and, after a failover, a tail that is not settled are each
    found by name, with the command that mends it.
    """
    one, two = clusters["a"].bootstrap, clusters["b"].bootstrap
    create_topic(one, topic_name, 2)
    create_topic(two, topic_name, 2)  # what the way back copies
    with Drilled(("drillI", one), ("drillJ", two), topic_name) as pair:
        application = pair.prepare(one, two)
        copy, switch = f"topic {topic_name} ({pair.copied})", "pair drillI<->drillJ"
        assert pair.drill().findings == ()

        alter_topic(two, pair.copied, cleanup_policy="compact")
        (compacted,) = pair.drill().findings
        assert (compacted.level, compacted.subject) == (Level.NOT_READY, copy)
        assert compacted.command.startswith("mirror topic configs")
        remove_override(two, pair.copied, "cleanup.policy")

        with pytest.raises(SystemExit):
            pair.carry_out({"fence": sys.exit})
        (left,) = pair.drill().findings
        assert (left.level, left.subject) == (Level.NOT_READY, switch)
        assert left.command == "mirror switch 'drillI->drillJ'"
        pair.abort()

        admin = AdminClient({"bootstrap.servers": two})
        place = TopicPartition(pair.copied, 0, end_offsets(two, pair.copied)[0])
        admin.delete_records([place])[place].result(30)
        group = f"group app-{topic_name}"
        lost = pair.drill()
        assert ("NOT READY", group) in found(lost)
        assert "miss what is gone there" in reasons(lost, group)

        application.write(one, 10)
        pair.carry_out(kind=Kind.FAILOVER)
        application.write(two, 10)
        pair.copy(one, f"drillJ.{topic_name}", 10, back=True)
        (tmp_path / "mirror.yaml").write_text(yaml.safe_dump(pair.document))
        told = command(tmp_path, "drill", "drillJ/drillI", "-o", "json", fails=True)
        (tail,) = (
            each
            for each in json.loads(told)["findings"]
            if each["subject"] == "cluster drillI" and "10 records" in each["reason"]
        )
        assert tail["level"] == "DEGRADED"
        assert tail["command"] == "mirror tail list 'drillI->drillJ'"


@pytest.mark.full
def test_defects_of_rights_and_limits(topic_name: str, tmp_path: Path) -> None:
    """On clusters with users a sound pair is READY. A right, a user and a quota that
    the target lacks are named, and so is a copy that mirror may not read; the drill
    leaves both clusters as they were.
    """
    root = tmp_path / "clusters"
    with playground(("a", "b"), root=root, given=False, secured=True) as made:
        one, two = made["a"], made["b"]
        create_topic(one.admin_bootstrap, topic_name, 2)
        group = f"app-{topic_name}"
        for cluster in (one, two):
            add_users(cluster, ["alice"])
            admit(cluster)
        allow(one.admin_bootstrap, "alice", "ALL", topic_name)
        allow(one.admin_bootstrap, "alice", "READ", group, kind=ResourceType.GROUP)
        sections = {
            alias: {
                "bootstrap_servers": cluster.sasl.bootstrap,
                **cluster.sasl.client_config,
            }
            for alias, cluster in (("drillC", one), ("drillD", two))
            if cluster.sasl is not None
        }
        with Drilled(
            ("drillC", ""), ("drillD", ""), topic_name, clusters=sections,
            pair={"fence": "acl"}, sync_topic_acls=False,
        ) as pair:  # fmt: skip
            pair.prepare(one.admin_bootstrap, two.admin_bootstrap)
            copy = pair.copied

            (lacking,) = pair.drill().findings
            assert (lacking.level, lacking.subject) == (
                Level.NOT_READY,
                f"topic {copy}",
            )
            assert "User:alice has no READ on topic" in lacking.reason

            allow(two.admin_bootstrap, "alice", "READ", copy)
            ends = [each.admin_bootstrap for each in (one, two)]
            before = [at_rest(each, but=_HISTORY) for each in ends]
            sound = pair.drill()
            assert sound.findings == ()
            assert sound.unseen == ()
            assert [portrait(each, but=_HISTORY) for each in ends] == before

            allow(
                two.admin_bootstrap, "alice", "READ", group, permission="DENY",
                kind=ResourceType.GROUP,
            )  # fmt: skip
            add_users(one, ["bob"])
            limit(one.admin_bootstrap, {"user": "alice"}, 1e6)
            wait_for(lambda: len(pair.drill().findings) == 3)
            assert found(pair.drill()) == {
                ("NOT READY", f"group {group}"),
                ("NOT READY", "user bob"),
                ("DEGRADED", "quota user alice"),
            }

            allow(two.admin_bootstrap, "mirror", "READ", copy, permission="DENY")
            blind = pair.drill()
            assert {
                level for level, subject in found(blind) if topic_name in subject
            } >= {"DEGRADED"}
            assert "cannot be compared" in reasons(blind, f"topic {topic_name}")


@pytest.mark.full
def test_a_service_drills(
    clusters: dict[str, PlaygroundCluster], topic_name: str, tmp_path: Path
) -> None:
    """A service drills its pair, keeps it in the journal, and shows it in the status,
    in metrics and in `mirror pair`; once something is in the way there is an event.
    """
    one, two = clusters["a"].bootstrap, clusters["b"].bootstrap
    for bootstrap in (one, two):
        create_topic(bootstrap, topic_name, 1)
    document = pair_of(("drillE", one), ("drillF", two), topic_name)
    document["recovery"]["drillE<->drillF"]["drill_every_seconds"] = 2
    with RunningMirror(document, tmp_path) as mirror:
        mirror.wait_running("drillE->drillF")
        copy = f"drillE.{topic_name}"

        def newest() -> Any:
            drills = mirror.status()["pairs"][0]["drills"]
            return drills[0] if drills else {"verdict": ""}

        wait_for(lambda: newest()["verdict"] == "READY", 60)
        ready = newest()
        assert ready["by"].startswith("service ")
        ends = {"pair": "drillE<->drillF"}
        wait_for(
            lambda: counter(mirror, "mirror_readiness", **ends, state="READY") == 1
        )
        assert counter(mirror, "mirror_readiness_ratio", **ends) == 1
        assert counter(mirror, "mirror_drill_timestamp_seconds", **ends) >= ready["at"]
        alter_topic(two, copy, segment_ms="1234567")
        wait_for(lambda: newest()["verdict"] not in ("", "READY"), 60)
        events = f"{mirror.url}/events?kind=readiness-fell"

        def told() -> list[Any]:
            with urlopen(events, timeout=10 * crowd()) as answer:
                return list(json.load(answer)["events"])

        wait_for(told)
        (fell,) = told()
        assert fell["subject"] == "drillE<->drillF"
        assert "segment.ms" in str(fell["details"])
        wait_for(
            lambda: counter(mirror, "mirror_readiness", **ends, state="READY") == 0
        )
        shown = json.loads(command(tmp_path, "pair", "-o", "json"))["pairs"][0]
        assert "READY" in {each["verdict"] for each in shown["drills"]}
        assert [run["kind"] for run in shown["runs"]] == ["START"]


@pytest.mark.full
def test_a_hundred_groups(
    clusters: dict[str, PlaygroundCluster],
    topic_name: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A drill of 100 groups at different places of 16 partitions takes less than 30
    seconds, connects once to each side to compare what they would read, and each of
    them would go on exactly.
    """
    one, two = clusters["a"].bootstrap, clusters["b"].bootstrap
    partitions, groups, records = 16, 100, 32_000
    for bootstrap in (one, two):
        create_topic(bootstrap, topic_name, partitions)
    with Drilled(
        ("drillG", one), ("drillH", two), topic_name, groups=[f"{topic_name}-g.*"]
    ) as pair:
        Application(topic_name, partitions, "none").write(one, records)
        pair.copy(two, pair.copied, records)
        wanted = {
            f"{topic_name}-g{number}": {
                (topic_name, partition): CommittedOffset(number * 20)
                for partition in range(partitions)
            }
            for number in range(groups)
        }
        assert not group_offsets.fetch(pair.cluster("drillG"), wanted).refused
        assert not group_offsets.commit(pair.cluster("drillG"), wanted)
        pair.round()
        connected: list[str] = []

        def cluster(config: Any, **options: Any) -> Cluster:
            connected.append(config.alias)
            return Cluster(config, **options)

        monkeypatch.setattr(sides, "Cluster", cluster)

        done = pair.drill()

        assert done.findings == ()
        assert (done.groups_exact, done.partitions_exact) == (groups, partitions)
        assert sorted(connected) == ["drillG", "drillH"]
        assert done.seconds < 30 * crowd()
        print(f"a drill of {groups} groups took {done.seconds} s")
