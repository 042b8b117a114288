"""mirror's own topics, made or altered by somebody else, as an ordinary admin sees it.

What may lose state is corrected before a run copies, and while it runs; where that is
refused, nothing is copied, and the command is named that mends it.
"""

from __future__ import annotations

from contextlib import closing
from dataclasses import replace
import json
import shlex
from typing import TYPE_CHECKING, Any
import urllib.request

from confluent_kafka import TopicPartition as Place
from confluent_kafka.admin import AdminClient, OffsetSpec
from kafka import KafkaAdminClient, TopicPartition
import pytest
from typer.testing import CliRunner

from mirror.checks.permissions.rights import rights
from mirror.checks.permissions.table import Operation
from mirror.cli.main import app
from mirror.clusters.reach import Reach
from mirror.config import own_topics
from mirror.offsets.groups import Copy
from mirror.playground.brokers import playground
from mirror.playground.secured import USER
from mirror.service.groups import GroupJobs
from mirror.status.store import StatusStore
from mirror.topics import fences, guarding
from mirror.topics.acl_notes import AclNotes, AclPlan
from tests.harness.admin import alter_topic, copied_records, create_topic
from tests.harness.configurations import configuration
from tests.harness.few_rights import grant, revoke_all
from tests.harness.load import NumberedLoad
from tests.harness.metadata import effective, overrides
from tests.harness.service import RunningMirror, config_for
from tests.harness.slots import SparklessFlow, copy_until
from tests.harness.waiting import wait_for
from tests.harness.witness import (
    Witness,
    assert_exactly_once,
    eventually,
    keys_of,
    order_of,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from mirror.playground.cluster import PlaygroundCluster

pytestmark = pytest.mark.integration

Pair = dict[str, "PlaygroundCluster"]
A, B = "A", "B"
COMPACTED = {
    "mirror-progress.A.internal": B,
    "mirror-standby.A.internal": B,
    "A.checkpoints.internal": B,
    "mirror-control.A.internal": B,
    "mirror-proofs.A.internal": B,
    "mirror-acls.A.internal": B,
    "mm2-offset-syncs.B.internal": A,
}
LOGS = {
    "A.offset-map.internal": B,
    "mirror-losses.A.internal": B,
    "mirror-journal.internal": B,
}
LARGE = {
    "mirror-progress.A.internal": "4194304",
    "mirror-standby.A.internal": "4194304",
    "mirror-journal.internal": "16777216",
}
PROGRESS, MAP, JOURNAL = "mirror-progress.A.internal", *list(LOGS)[::2]
SHORT = {"retention_ms": "3600000", "retention_bytes": "1000000000"}
WRONG = {"min_insync_replicas": "2", "unclean_leader_election_enable": "true"}
"""On clusters of one broker."""
SETTINGS = {
    "emit_offset_syncs": True,
    "verify": "new",
    "sync_topic_acls": True,
    "tasks": 1,
    "lease_seconds": 2,
}
AS_COPIES = str(2 * 7 * 86_400_000)
"""Kafka's defaults: a week, and a segment of a week."""
GUARD_SECONDS = 100.0
"""It looks once a minute."""


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Pair]:
    """Clusters whose journal is this file's alone, and that delete soon."""
    soon = {"log.retention.check.interval.ms": "500", "log.cleaner.backoff.ms": "500"}
    root = tmp_path_factory.mktemp("own")
    with playground(("a", "b"), root=root, given=False, settings=soon) as made:
        yield made


def wrongly(change: Callable[..., None], ends: dict[str, str]) -> None:
    """Make or alter all of the topics, so that each may lose what it has."""
    for name, alias in {**COMPACTED, **LOGS}.items():
        policy = "delete" if name in COMPACTED else "compact,delete"
        large = {"max_message_bytes": "100000"} if name in LARGE else {}
        change(ends[alias], name, cleanup_policy=policy, **SHORT, **WRONG, **large)


def amiss(ends: dict[str, str]) -> dict[str, Any]:
    """What of them an ordinary admin finds that may lose records."""
    found: dict[str, Any] = {}
    for name, alias in {**COMPACTED, **LOGS}.items():
        wanted = {
            "cleanup.policy": "compact" if name in COMPACTED else "delete",
            "min.insync.replicas": "1",
            "unclean.leader.election.enable": "false",
        }
        if name in LOGS:
            wanted |= {"retention.ms": "-1", "retention.bytes": "-1"}
        if name in LARGE:
            wanted["max.message.bytes"] = LARGE[name]
        for key, value in wanted.items():
            now = effective(ends[alias], name, key)
            if now != value and (name, key, now) != (MAP, "retention.ms", AS_COPIES):
                found[name, key] = now
    return found


def events(mirror: RunningMirror) -> set[str]:
    """The topics whose configs the service says it has corrected."""
    with urllib.request.urlopen(f"{mirror.url}/events?kind=config-changed") as answer:
        found = json.load(answer)["events"]
    return {each["subject"] for each in found if "corrected" in each["text"]}


def checked(config: dict[str, Any], folder: Path) -> list[dict[str, Any]]:
    """What `mirror check` says about them."""
    file = folder / "check.yaml"
    file.write_text(json.dumps(config))
    result = CliRunner().invoke(app, ["check", "-c", str(file), "-o", "json"])
    found = json.loads(result.stdout)["checks"]
    return [each for each in found if each["check"] == "own topics"]


def test_what_others_made_or_altered_is_corrected(
    pair: Pair, topic_name: str, tmp_path: Path
) -> None:
    """Each kind of topic, made beforehand so that it may lose its records, is named by
    check, corrected before the first record is copied, and again when it is altered
    while the service runs, with an event; no record is copied twice.
    """
    ends = {A: pair["a"].bootstrap, B: pair["b"].bootstrap}
    create_topic(ends[A], topic_name, 2)
    load = NumberedLoad(ends[A], topic_name, 2, seed=1)
    load.send(100)
    config = {
        **config_for(*ends.values(), flows=("A->B", "B->A"), topics=[topic_name],
                     **SETTINGS),
        "recovery": {"A<->B": {"active": A, "fence": "confirmed"}},
    }  # fmt: skip
    wrongly(create_topic, ends)

    found = checked(config, tmp_path)
    told = " ".join(each["detail"] for each in found)
    assert {each["state"] for each in found} == {"warn"}
    assert [name for name in {**COMPACTED, **LOGS} if name not in told] == []

    with RunningMirror(config, tmp_path) as mirror:
        mirror.wait_copied(ends[A], topic_name)
        wait_for(lambda: not amiss(ends), timeout=GUARD_SECONDS)
        assert events(mirror) >= COMPACTED.keys() | LOGS.keys() - {MAP}
        load.send(100)
        mirror.wait_copied(ends[A], topic_name)

        wrongly(alter_topic, ends)
        wait_for(lambda: not amiss(ends), timeout=GUARD_SECONDS)
        mirror.kill_driver()
        mirror.start()
        load.send(100)
        mirror.wait_copied(ends[A], topic_name)
        assert mirror.flow("A->B")["problems"] == []
    assert_exactly_once(order_of(ends[B], f"A.{topic_name}"), load.order)


def test_deleted_positions_are_not_copied_again(
    pair: Pair, topic_name: str, tmp_path: Path
) -> None:
    """Retention deletes the progress of a flow that rests; its service then copies
    nothing, says why, and goes on where a reset says, so that no record is there twice.
    """
    a, b = pair["a"].bootstrap, pair["b"].bootstrap
    progress, copy = "mirror-progress.GONE.internal", f"GONE.{topic_name}"
    create_topic(a, topic_name)
    load = NumberedLoad(a, topic_name, 1, seed=2)
    load.send(100)
    config = json.loads(
        json.dumps(config_for(a, b, topics=[topic_name], tasks=1)).replace(
            '"A', '"GONE'
        )
    )
    with RunningMirror(config, tmp_path) as mirror:
        mirror.wait_copied(a, topic_name)
        mirror.terminate()
        alter_topic(
            b, progress, cleanup_policy="delete", retention_ms="1", segment_ms="100"
        )
        wait_for(lambda: _first(b, progress) > 0)

        mirror.start()
        mirror.wait_until(
            lambda d: (
                d["flows"][0]["state"] == "RETRYING"
                and "begins at offset" in d["flows"][0]["reason"]
            )
        )
        assert effective(b, progress, "cleanup.policy") == "compact"
        assert "mirror flow reset GONE->B" in mirror.flow()["reason"]
        assert sum(map(len, order_of(b, copy).values())) == 100

        file = str(tmp_path / "mirror.yaml")
        reset = ["flow", "reset", "GONE/B", "--to", "latest", "--yes", "-c", file]
        # A run that begins meanwhile fences the command.
        wait_for(lambda: CliRunner().invoke(app, reset).exit_code == 0)
        mirror.wait_running()
        load.send(50)
        assert_exactly_once(keys_of(eventually(b, copy, 150)), load.order)
        mirror.kill_driver()
        mirror.start()  # the reset has said so once and for all
        load.send(50)
        assert_exactly_once(keys_of(eventually(b, copy, 200)), load.order)


def _first(bootstrap: str, topic: str) -> int:
    admin = AdminClient({"bootstrap.servers": bootstrap})
    place = Place(topic, 0)
    asked = admin.list_offsets({place: OffsetSpec.earliest()})
    return int(asked[place].result(30).offset)


def test_what_cannot_be_corrected_is_refused(
    secured_pair: Pair, topic_name: str, tmp_path: Path
) -> None:
    """A service that may not alter its progress topic, which loses positions, copies
    nothing; it and check name the command. Once it may, it copies every record once.
    """
    a, b = secured_pair["a"], secured_pair["b"]
    create_topic(a.admin_bootstrap, topic_name)
    load = NumberedLoad(a.admin_bootstrap, topic_name, 1, seed=3)
    load.send(100)
    create_topic(b.admin_bootstrap, "mirror-progress.X.internal", **SHORT)
    config = {
        "clusters": {
            alias: {"bootstrap_servers": each.bootstrap, **each.client_config}
            for alias, each in (("X", a), ("B", b))
        },
        "flows": {
            "X->B": {
                "topics": [topic_name], "tasks": 1, "emit_heartbeats": False,
                "heartbeats_replication": False, "sync_topic_acls": False,
                "groups": topic_name,
            }
        },
    }  # fmt: skip
    needed = rights(configuration(config))
    lacks = next(
        each
        for each in needed
        if each.extent.name == "mirror-progress.X.internal"
        and each.operation is Operation.ALTER_CONFIGS
    )
    sees = replace(lacks, operation=Operation.DESCRIBE_CONFIGS)
    command = (
        f"kafka-configs.sh --bootstrap-server {b.bootstrap} --command-config "
        "B-admin.properties --alter --entity-type topics --entity-name "
        "mirror-progress.X.internal --add-config "
        "cleanup.policy=compact,max.message.bytes=4194304"
    )
    try:
        for alias, each in (("X", a), ("B", b)):
            listed = [n for n in (*needed, sees) if n.cluster == alias and n != lacks]
            grant(each.admin_bootstrap, listed)
        (found,) = [
            each for each in checked(config, tmp_path) if each["state"] == "fail"
        ]
        assert found["fix"] == command
        assert "may lose records" in found["detail"]
        with RunningMirror(config, tmp_path) as mirror:
            status = mirror.wait_until(lambda d: d["flows"][0]["state"] == "RETRYING")
            assert command in status["flows"][0]["reason"]
            assert any(command in each for each in mirror.flow()["problems"])
            assert copied_records(b.admin_bootstrap, f"X.{topic_name}") == 0

            grant(b.admin_bootstrap, [lacks])
            mirror.wait_running()
            found = eventually(b.admin_bootstrap, f"X.{topic_name}", 100)
            assert_exactly_once(keys_of(found), load.order)
            name = "mirror-progress.X.internal"
            assert effective(b.admin_bootstrap, name, "cleanup.policy") == "compact"
            mirror.wait_until(lambda d: d["flows"][0]["problems"] == [])
    finally:
        for each in (a, b):
            revoke_all(each.admin_bootstrap)


def test_all_that_mirror_creates_outlives_a_broker(
    make_clusters: Any, topic_name: str, tmp_path: Path
) -> None:
    """Whatever a service, a pair and commands create on a cluster of three brokers has
    the replicas of the flows, two of them in sync, and the configs that are declared;
    on the other one, which has one broker, it has one.
    """
    a = make_clusters("a")["a"].bootstrap
    three = make_clusters(
        "b", nodes=3,
        settings={"default.replication.factor": "1", "min.insync.replicas": "1"},
    )["b"]  # fmt: skip
    b = three.bootstrap
    create_topic(a, topic_name)
    NumberedLoad(a, topic_name, 1, seed=4).send(10)
    create_topic(b, "mirror-losses.A.internal")  # by somebody else: one replica
    flows = {
        "A->B": {"replication_factor": 3, "offset_syncs_replication_factor": 1},
        "B->A": {"replication_factor": 1},
    }
    config = config_for(a, b, topics=[topic_name], **SETTINGS) | {
        "recovery": {"A<->B": {"active": "A", "fence": "confirmed"}},
        "service": {"audit_topic": "B/mirror-audit.internal"},
    }
    one_way = config["flows"]["A->B"] | {"emit_heartbeats": True}
    config["flows"] = {name: one_way | own for name, own in flows.items()}

    with RunningMirror(config, tmp_path) as mirror:
        mirror.wait_copied(a, topic_name)
        file = str(tmp_path / "mirror.yaml")
        for words in (
            ["pause", "A/B", "--topic", topic_name, "-c", file, "--yes"],
            ["verify", "--flow", "A/B", "-c", file],
        ):
            result = CliRunner().invoke(app, words)
            assert result.exit_code == 0, result.output
        written = configuration(config)
        with Reach(written.clusters, client_id="test") as reach:
            acl = fences.literal("t", f"User:{USER}", "WRITE")
            plan = AclPlan(by="test", adds=(acl,), topics=("t",))
            AclNotes(reach("B")).note(plan)
        expected = {
            *(name for name, alias in (COMPACTED | LOGS).items() if alias == B),
            "heartbeats", "mirror-acls.internal", "mirror-audit.internal",
        } - {"mirror-acls.A.internal"}  # fmt: skip
        wait_for(lambda: expected <= _replicas(b).keys())
        problem = mirror.wait_until(lambda d: d["flows"][0]["problems"])

    thin = {"mirror-losses.A.internal"}
    found = _replicas(b)
    assert {name: len(found[name]) for name in expected - thin} == dict.fromkeys(
        expected - thin, 3
    )
    assert {effective(b, name, "min.insync.replicas") for name in expected - thin} == {
        "2"
    }
    kinds = {
        each.name: each.kind
        for each in own_topics.of_flow(written, written.flows["A->B"])
    }
    for name in expected & kinds.keys() - thin - {MAP}:
        made = overrides(b, name)
        assert made == {**kinds[name].configs, "min.insync.replicas": "2"}, name
    assert overrides(b, "mirror-audit.internal") == {
        "cleanup.policy": "delete", "retention.ms": "31536000000",
        "min.insync.replicas": "2",
    }  # fmt: skip
    assert len(_replicas(a)[JOURNAL]) == 1

    # What mirror cannot add itself, the command does.
    (told,) = problem["flows"][0]["problems"]
    assert "mirror-losses.A.internal (1)" in told
    document = json.loads(shlex.split(told.partition("echo ")[2])[0])
    with closing(KafkaAdminClient(bootstrap_servers=b)) as admin:
        admin.alter_partition_reassignments(
            {
                TopicPartition(each["topic"], each["partition"]): each["replicas"]
                for each in document["partitions"]
            }
        )
        wait_for(lambda: not admin.list_partition_reassignments())
    with Reach(written.clusters, client_id="test") as reach:
        every = own_topics.of_flow(written, written.flows["A->B"])
        guarded = guarding.correct(reach("B"), [e for e in every if e.alias == B])
    assert guarded.left == ()
    assert {each.config for each in guarded.corrected} <= {"min.insync.replicas"}


def _replicas(bootstrap: str) -> dict[str, list[int]]:
    """The brokers that have partition 0 of each topic."""
    shown = AdminClient({"bootstrap.servers": bootstrap}).list_topics(timeout=30)
    return {name: each.partitions[0].replicas for name, each in shown.topics.items()}


@pytest.mark.parametrize("checkpoints", [True, False])
def test_the_map_is_kept_for_all_copies_that_it_has(
    pair: Pair, topic_name: str, *, checkpoints: bool
) -> None:
    """A run never keeps the map for a shorter time than any copy in it, also one that
    the flow leaves out now, and corrects what somebody else has set.
    """
    a, b = pair["a"].bootstrap, pair["b"].bootstrap
    hours = {f"{topic_name}-orders": 1, f"{topic_name}-billing": 2}
    for topic in hours:
        create_topic(a, topic)
        NumberedLoad(a, topic, 1, seed=5).send(5)
    flow = SparklessFlow(source=a, target=b, topic=f"{topic_name}-.*").own()
    orders, billing = (f"{flow.alias}.{topic}" for topic in hours)
    with flow.slot() as slot, Witness(b) as witness:
        witness.begin(billing)
        copy_until(witness, slot, flow.lease(30), count=5)
    for copy, count in ((orders, 1), (billing, 2)):
        alter_topic(b, copy, retention_ms=str(count * 3_600_000), segment_ms="60000")
    own = own_topics.OFFSET_MAP.named(flow.alias)
    needed = str(2 * 3_600_000 + 60_000)

    narrow = SparklessFlow(
        source=a, target=b, topic=f"{topic_name}-orders", alias=flow.alias,
        settings={"emit_checkpoints": checkpoints},
    )  # fmt: skip
    config = narrow.config().flows[narrow.name]
    copies = {f"{topic_name}-orders": Copy(topic=orders, partitions=1)}
    told: dict[str, Any] = {}
    groups = GroupJobs(
        config, lambda: copies, store=StatusStore((narrow.name,)),
        tell=told.__setitem__,
    )  # fmt: skip
    jobs = {job.name: job for job in groups.jobs()}
    with narrow.connected() as ends:
        jobs["offset-map"].work(*ends)
        if checkpoints:  # which reads the map
            assert effective(b, own, "retention.ms") == "-1"
            jobs["checkpoints"].work(*ends)
            jobs["offset-map"].work(*ends)
        wait_for(lambda: effective(b, own, "retention.ms") == needed)
        alter_topic(b, own, retention_ms="60000")
        jobs["offset-map"].work(*ends)
        wait_for(lambda: effective(b, own, "retention.ms") == needed)
    assert not any(told.values())
