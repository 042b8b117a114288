"""Switches between clusters with ACLs: who may write where, before and after."""

from __future__ import annotations

from typing import TYPE_CHECKING

from confluent_kafka.admin import ResourceType
import pytest
import yaml

from mirror.errors import FencedError, MirrorError
from mirror.playground.brokers import playground
from mirror.playground.secured import PASSWORDS, USER
from mirror.recovery.journal import JournalWriter
from tests.harness.admin import create_topic
from tests.harness.application import Application
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
from tests.harness.switching import Switch, secured_pair_of
from tests.harness.waiting import wait_for
from tests.harness.witness import order_of

if TYPE_CHECKING:
    from pathlib import Path

    from mirror.playground.cluster import PlaygroundCluster

pytestmark = pytest.mark.integration

DENIED = "TOPIC_AUTHORIZATION_FAILED"


def allowed(cluster: PlaygroundCluster) -> set[tuple[str, ...]]:
    """The ACLs that allow something."""
    return {acl for acl in all_acls(cluster.admin_bootstrap) if "ALLOW" in acl}


@pytest.mark.full
def test_somebody_takes_the_fence_away(topic_name: str, tmp_path: Path) -> None:
    """Somebody deletes the fence's ACLs after everything was copied. If a producer got
    through, the switch is undone; if none did, it fences again and goes through. An
    operator that slept while a later one took over lays no fence.
    """
    root = tmp_path / "clusters"
    with playground(("a", "b"), root=root, given=False, secured=True) as made:
        one, two = made["a"], made["b"]
        for cluster in (one, two):
            create_topic(cluster.admin_bootstrap, topic_name, 1)
            add_users(cluster, ["alice"])
        allow(one.admin_bootstrap, "alice", "WRITE", topic_name)
        before = all_acls(one.admin_bootstrap)
        alice = scram(one, "alice", "alice")
        sections = {
            alias: {
                "bootstrap_servers": cluster.sasl.bootstrap,
                **cluster.sasl.client_config,
                "sasl_username": "admin",
                "sasl_password": PASSWORDS["admin"],
            }
            for alias, cluster in (("GA", one), ("GB", two))
            if cluster.sasl is not None
        }
        with Rehearsal(
            ("GA", ""), ("GB", ""), topic_name, clusters=sections,
            pair={"fence": "acl"}, sync_topic_acls=False,
        ) as rehearsal:  # fmt: skip
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
                revoke(
                    one.admin_bootstrap, "alice", "WRITE", topic_name, permission="DENY"
                )

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
