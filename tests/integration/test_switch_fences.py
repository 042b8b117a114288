"""Switches between clusters with ACLs: who may write where, before and after."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from confluent_kafka import Consumer, ConsumerGroupTopicPartitions, TopicPartition
from confluent_kafka.admin import AdminClient, ResourceType
import pytest
import yaml

from mirror.errors import FencedError, MirrorError
from mirror.pairs import roles
from mirror.pairs.journal import JournalWriter
from mirror.playground.brokers import playground
from mirror.playground.secured import PASSWORDS, USER
from mirror.recovery.steps import STEPS, checks
from mirror.recovery.steps.changes import changes
from mirror.recovery.steps.checks import Seen
from mirror.recovery.steps.positions import GroupPlaces
from tests.harness.admin import commit_offsets, create_topic, end_offsets
from tests.harness.application import Application
from tests.harness.group_moves import commit_for, committed
from tests.harness.metadata import allow, revoke
from tests.harness.producers import (
    Going,
    add_users,
    all_acls,
    mutual_tls,
    scram,
    write,
)
from tests.harness.rehearsal import Rehearsal
from tests.harness.security import Doors, admit
from tests.harness.service import RunningMirror
from tests.harness.switching import Switch, command, secured_pair_of
from tests.harness.waiting import wait_for
from tests.harness.witness import order_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from pathlib import Path

    from mirror.playground.cluster import PlaygroundCluster

pytestmark = pytest.mark.integration

ACL_PARTS = (
    *("kind", "name", "pattern", "principal", "host", "operation", "permission"),
)
DENIED = "TOPIC_AUTHORIZATION_FAILED"


def allowed(cluster: PlaygroundCluster) -> set[tuple[str, ...]]:
    """The ACLs that allow something."""
    return {acl for acl in all_acls(cluster.admin_bootstrap) if "ALLOW" in acl}


@pytest.fixture(scope="module")
def secured(
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[tuple[PlaygroundCluster, PlaygroundCluster]]:
    """Two clusters on which alice may do what ACLs allow."""
    root = tmp_path_factory.mktemp("clusters")
    with playground(("a", "b"), root=root, given=False, secured=True) as made:
        for cluster in made.values():
            add_users(cluster, ["alice"])
        yield made["a"], made["b"]


def rehearsal_of(
    secured: tuple[PlaygroundCluster, PlaygroundCluster],
    topic: str,
    tag: str,
    *,
    start: str = "earliest",
    **pair: Any,
) -> Rehearsal:
    """A pair with a topic of one partition, to which alice may write on one side.
    `tag`: what the aliases begin with, which no other test uses; `start` of both flows.
    """
    sections = {}
    for alias, cluster in zip((f"{tag}A", f"{tag}B"), secured, strict=True):
        create_topic(cluster.admin_bootstrap, topic, 1)
        assert cluster.sasl is not None
        sections[alias] = {
            "bootstrap_servers": cluster.sasl.bootstrap,
            **cluster.sasl.client_config,
            "sasl_username": "admin",
            "sasl_password": PASSWORDS["admin"],
        }
    allow(secured[0].admin_bootstrap, "alice", "WRITE", topic)
    one, other = ((alias, "") for alias in sections)
    return Rehearsal(
        one, other, topic, clusters=sections, pair={"fence": "acl", **pair},
        sync_topic_acls=False, start=start,
    )  # fmt: skip


def everything(cluster: PlaygroundCluster) -> Any:
    """What a switch may change: ACLs, where logs end, and groups' offsets."""
    bootstrap = cluster.admin_bootstrap
    admin = AdminClient({"bootstrap.servers": bootstrap})
    logs = {
        topic: end_offsets(bootstrap, topic)
        for topic in admin.list_topics(timeout=30).topics
        if not topic.startswith("__")
    }
    listed = admin.list_consumer_groups().result(30).valid
    return all_acls(bootstrap), logs, {
        each.group_id: places(admin, each.group_id) for each in listed
    }  # fmt: skip


def settled(clusters: Iterable[PlaygroundCluster]) -> list[Any]:
    """The same of all of them, once it stays: markers come after their commits."""
    found: list[Any] = []

    def stays() -> bool:
        before = found[:]
        found[:] = [everything(each) for each in clusters]
        return found == before

    wait_for(stays)
    return found


def places(admin: AdminClient, group: str) -> dict[tuple[str, int], int]:
    (asked,) = admin.list_consumer_group_offsets(
        [ConsumerGroupTopicPartitions(group)]
    ).values()
    found = asked.result(30).topic_partitions
    return {(each.topic, each.partition): each.offset for each in found}


def test_a_dry_run_shows_what_the_switch_then_does(
    secured: tuple[PlaygroundCluster, PlaygroundCluster],
    topic_name: str,
    tmp_path: Path,
) -> None:
    """`--dry-run` names every ACL, offset, start and hook by step, without secrets, and
    changes nothing on either cluster; then the switch makes just these changes. So does
    that of a failover, without the cluster that is left.
    """
    one, two = secured
    group = f"app-{topic_name}"
    hook = {"command": ["/bin/true", "--token", "s3same"]}
    allow(one.admin_bootstrap, "alice", "READ", group, kind=ResourceType.GROUP)
    with rehearsal_of(
        secured, topic_name, "HD", hooks={"stop_producers": hook}
    ) as rehearsal:
        copy = f"HDA.{topic_name}"
        assert Application(topic_name, 1, group).write(one.admin_bootstrap, 10)
        assert Application(topic_name, 1, group).write(two.admin_bootstrap, 2)
        for cluster, topic, offset in ((one, topic_name, 3), (two, copy, 7)):
            if cluster is two:
                rehearsal.copy(two.admin_bootstrap, copy, 10)
            client = Consumer(
                {"bootstrap.servers": cluster.admin_bootstrap, "group.id": group}
            )
            commit_offsets(client, [TopicPartition(topic, 0, offset)])
            client.close()
        rehearsal.see()
        (tmp_path / "mirror.yaml").write_text(yaml.safe_dump(rehearsal.document))

        before = settled(secured)
        dry = ("HDA/HDB", "--dry-run")
        shown = command(tmp_path, "switch", *dry, "-o", "json")
        unplanned = command(tmp_path, "failover", *dry, "--force")
        assert [everything(each) for each in secured] == before

        assert "s3same" not in shown + unplanned
        assert "--force: HDA was not asked: its fence is pending" in unplanned
        steps = {each["step"]: each for each in map(json.loads, shown.splitlines())}
        # Beside what only a service could have noted.
        found = [each["reason"] for each in steps.pop("checks")["findings"]]
        assert [each for each in found if "keep" not in each] == []
        assert list(steps) == list(STEPS)
        planned = [each for step in steps.values() for each in step["changes"]]

        def of(kind: str) -> list[dict[str, Any]]:
            return [each for each in planned if each["change"] == kind]

        (called,) = of("hook")
        assert called in steps["fence"]["changes"]
        assert called["command"] == ["/bin/true", "--token", "***"]
        (moved,) = of("group_offset")
        assert (moved["from"], moved["to"], moved["exactness"]) == (7, 3, "EXACT")
        (start,) = of("flow_start")
        assert (start["topic"], start["from"], start["to"]) == (topic_name, None, 0)

        rehearsal.carry_out()
        for alias, cluster, (acls, _, _) in zip(
            ("HDA", "HDB"), secured, before, strict=True
        ):
            after = all_acls(cluster.admin_bootstrap)
            assert after != acls
            assert {
                (each["action"], *(each[part] for part in ACL_PARTS))
                for each in of("acl")
                if each["cluster"] == alias
            } == {
                *(("add", *acl) for acl in after - acls),
                *(("remove", *acl) for acl in acls - after),
            }
        admin = AdminClient({"bootstrap.servers": two.admin_bootstrap})
        assert places(admin, group) == {(copy, 0): moved["to"]}


def test_a_dry_run_tries_no_acl(
    secured: tuple[PlaygroundCluster, PlaygroundCluster], topic_name: str
) -> None:
    """Where a switch takes an ACL to find out who may write, a dry run only warns."""
    with rehearsal_of(secured, topic_name, "HW") as rehearsal:
        revoke(secured[0].admin_bootstrap, "alice", "WRITE", topic_name)
        before = settled(secured)
        stage = rehearsal.stage()
        assert not changes(stage, GroupPlaces(places={}, on_target={}))["fence"].changes
        (found,) = checks.fence(Seen(stage=stage))
        assert f"1 topic without ACLs, such as {topic_name}" in found.reason
        assert [everything(each) for each in secured] == before


@pytest.mark.full
def test_somebody_takes_the_fence_away(
    secured: tuple[PlaygroundCluster, PlaygroundCluster], topic_name: str
) -> None:
    """Somebody deletes the fence's ACLs after everything was copied. If a producer got
    through, the switch is undone; if none did, it fences again and goes through. An
    operator that slept while a later one took over lays no fence.
    """
    one, two = secured
    alice = scram(one, "alice", "alice")
    with rehearsal_of(secured, topic_name, "G") as rehearsal:
        before = all_acls(one.admin_bootstrap)
        copy = f"GA.{topic_name}"
        assert write(alice, topic_name) == ""
        rehearsal.copy(two.admin_bootstrap, copy, 1)

        def take_over() -> None:
            JournalWriter(rehearsal.cluster("GB"), "GA<->GB")

        with pytest.raises(FencedError):
            rehearsal.carry_out({"fence": take_over})
        assert all_acls(one.admin_bootstrap) == before

        def take_away() -> None:
            assert write(alice, topic_name) == DENIED
            revoke(one.admin_bootstrap, "alice", "WRITE", topic_name, permission="DENY")

        def write_once() -> None:
            take_away()
            wait_for(lambda: write(alice, topic_name) == "")

        with pytest.raises(MirrorError, match="after everything was copied"):
            rehearsal.carry_out({"open": write_once})
        assert all_acls(one.admin_bootstrap) == before
        there = len(order_of(one.admin_bootstrap, topic_name)[0])
        rehearsal.copy(two.admin_bootstrap, copy, there)
        rehearsal.carry_out({"open": take_away})
        assert write(alice, topic_name) == DENIED
        assert write(scram(two, "alice", "alice"), topic_name) == ""


class DiedError(Exception):
    """The operator is gone, and undoes nothing."""


@pytest.mark.full
def test_aborted_from_every_step(
    secured: tuple[PlaygroundCluster, PlaygroundCluster], topic_name: str
) -> None:
    """The operator dies as each step up to the point of no return begins, and somebody
    aborts elsewhere: A's ACLs are as before, one by one, and so are its log, its
    group's offset and B's ACLs; the producer may write to A and not to B. At last a
    switch goes through, and the group goes on at its record.
    """
    one, two = secured
    alice = [scram(cluster, "alice", "alice") for cluster in secured]
    tag = "X"
    with rehearsal_of(secured, topic_name, tag) as rehearsal:
        group = f"app-{topic_name}"
        assert write(alice[0], topic_name) == ""
        rehearsal.copy(two.admin_bootstrap, f"{tag}A.{topic_name}", 1)
        commit_for(one.admin_bootstrap, group, {topic_name: 1})

        def die() -> None:
            raise DiedError

        for step in roles.STEPS[: roles.STEPS.index(roles.ROLE) + 1]:
            before = everything(one), all_acls(two.admin_bootstrap)
            with pytest.raises(DiedError):
                rehearsal.carry_out({step: die})
            rehearsal.abort()
            acls, logs, offsets = everything(one)
            assert (acls, offsets[group]) == (before[0][0], before[0][2][group])
            assert logs[topic_name] == before[0][1][topic_name]
            assert all_acls(two.admin_bootstrap) == before[1]
            assert [write(each, topic_name) for each in alice] == ["", DENIED]
            there = len(order_of(one.admin_bootstrap, topic_name)[0])
            rehearsal.copy(two.admin_bootstrap, f"{tag}A.{topic_name}", there)
        rehearsal.carry_out()
        assert [write(each, topic_name) for each in alice] == [DENIED, ""]
        # Behind the first copy, and the end of its transaction.
        assert committed(two.admin_bootstrap, group, f"{tag}A.{topic_name}") == 2


def test_what_is_written_with_new_rights_comes_back(
    secured: tuple[PlaygroundCluster, PlaygroundCluster], topic_name: str
) -> None:
    """A producer tries to write to the other cluster all the time, and may as soon as
    the switch grants it. The flow back has never run and starts at the latest: it has
    every record that was accepted all the same.
    """
    one, two = (each.admin_bootstrap for each in secured)
    with rehearsal_of(secured, topic_name, "EW", start="latest") as rehearsal:
        # So that librdkafka does not wait for metadata once it may write.
        allow(two, "alice", "DESCRIBE", topic_name)
        rehearsal.copying().own()
        alice = scram(secured[1], "alice", "alice")
        with Going(alice, writes=[topic_name]) as going:
            wait_for(lambda: going.refused)
            rehearsal.carry_out()
            wait_for(lambda: going.done)
        written = len(order_of(two, topic_name)[0])
        assert written >= going.done
        rehearsal.copy(one, f"EWB.{topic_name}", written, back=True)


@pytest.mark.full
def test_a_producer_that_does_not_stop(topic_name: str, tmp_path: Path) -> None:
    """A super user writes on: the switch is undone, ACL by ACL. The next one holds.

    A producer writes without a pause: from the fence on the cluster that is
    left refuses it, and the other one accepts it, which refused it before.
    What was acknowledged is copied, all of it. On the way home the rights are as they
    were, ACL by ACL, and the cluster that is left refuses it again.
    """
    root = tmp_path / "clusters"
    with playground(("a", "b"), root=root, given=False, secured=True) as made:
        one, two = made["a"], made["b"]
        for cluster in (one, two):
            create_topic(cluster.admin_bootstrap, topic_name, 2)
            add_users(cluster, ["alice"])
        group = f"app-{topic_name}"
        allow(one.admin_bootstrap, "alice", "WRITE", topic_name)
        allow(one.admin_bootstrap, "alice", "READ", group, kind=ResourceType.GROUP)
        before = {id(each): allowed(each) for each in (one, two)}
        document = secured_pair_of(("FA", one), ("FB", two), topic_name)
        document["recovery"]["FA<->FB"]["block_seconds"] = 8
        alice = {id(each): scram(each, "alice", "alice") for each in (one, two)}

        def may_write(cluster: PlaygroundCluster) -> str:
            return write(alice[id(cluster)], topic_name)

        with RunningMirror(document, tmp_path) as mirror:
            mirror.wait_running("FA->FB")
            assert (may_write(one), may_write(two)) == ("", DENIED)
            super_user = Application(topic_name, 2, group)
            with super_user.writing(one.admin_bootstrap):
                said = Switch(tmp_path, "switch", "FA/FB", "--yes").fails()
            assert "no fence stops a super user" in said
            assert "Everything was undone" in said
            assert (may_write(one), may_write(two)) == ("", DENIED)
            assert all_acls(one.admin_bootstrap) == before[id(one)]
            with Going(alice[id(one)], writes=[topic_name]) as going:
                Switch(tmp_path, "switch", "FA/FB", "--yes").succeeds()
            assert {why for _, _, why in going.refused} == {DENIED}
            assert (may_write(one), may_write(two)) == (DENIED, "")
            there = order_of(two.admin_bootstrap, f"FA.{topic_name}")
            here = order_of(one.admin_bootstrap, topic_name)
            assert {n: len(keys) for n, keys in there.items()} == {
                n: len(keys) for n, keys in here.items()
            }

            mirror.wait_running("FB->FA")
            with Going(alice[id(two)], writes=[topic_name]) as going:
                Switch(tmp_path, "switch", "FB/FA", "--yes").succeeds()
            assert {why for _, _, why in going.refused} == {DENIED}
            assert (may_write(one), may_write(two)) == ("", DENIED)
            for cluster in (one, two):
                assert allowed(cluster) == before[id(cluster)]
            assert all_acls(one.admin_bootstrap) == before[id(one)]


@pytest.mark.full
def test_certificates(topic_name: str, tmp_path: Path) -> None:
    """Mirror, which is no super user, and a producer log in by certificate. Without
    `principal` the switch is refused, since nothing else says who mirror is; with it
    the pair is switched there and back: the producer is refused on the cluster that is
    left, and accepted on the other one.
    """
    doors = Doors(tmp_path / "doors")
    options = {"root": tmp_path / "clusters", "given": False, **doors.options}
    with playground(("a", "b"), **options) as made:
        one, two = made["a"], made["b"]
        for cluster in (one, two):
            create_topic(cluster.admin_bootstrap, topic_name, 1)
            admit(cluster)
        allow(one.admin_bootstrap, "alice", "WRITE", topic_name)
        before = {id(each): allowed(each) for each in (one, two)}
        document = secured_pair_of(("MA", one), ("MB", two), topic_name)
        for alias, cluster in (("MA", one), ("MB", two)):
            assert cluster.mutual_tls is not None
            document["clusters"][alias] = {
                "bootstrap_servers": cluster.mutual_tls.bootstrap,
                "security_protocol": "SSL",
                "ssl_ca_file": str(doors.ca),
                "ssl_certificate_file": str(doors.client),
                "ssl_key_file": str(doors.client),
            }
        alice = {
            id(cluster): mutual_tls(cluster, doors, "alice", tmp_path)
            for cluster in (one, two)
        }
        nameless, named = tmp_path / "nameless", tmp_path / "named"
        for folder in (nameless, named):
            folder.mkdir()
            (folder / "mirror.yaml").write_text(yaml.safe_dump(document))
            for section in document["clusters"].values():
                section["principal"] = f"User:{USER}"
        with RunningMirror(document, tmp_path) as mirror:
            mirror.wait_running("MA->MB")
            assert write(alice[id(one)], topic_name) == ""
            said = Switch(nameless, "switch", "MA/MB", "--yes").fails()
            assert "principal" in said
            active, other, flow = one, two, "MA/MB"
            for _ in range(2):
                mirror.wait_running(flow.replace("/", "->"))
                with Going(alice[id(active)], writes=[topic_name]) as going:
                    Switch(named, "switch", flow, "--yes").succeeds()
                assert going.done
                assert {why for _, _, why in going.refused} == {DENIED}
                assert write(alice[id(active)], topic_name) == DENIED
                assert write(alice[id(other)], topic_name) == ""
                active, other = other, active
                flow = "/".join(reversed(flow.split("/")))
        for cluster in (one, two):
            assert allowed(cluster) == before[id(cluster)]
