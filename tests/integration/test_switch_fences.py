"""Switches between clusters with ACLs: who may write where, before and after."""

from __future__ import annotations

from typing import TYPE_CHECKING

from confluent_kafka.admin import ResourceType
import pytest

from mirror.playground.brokers import playground
from mirror.playground.secured import PASSWORDS
from tests.harness.admin import create_topic
from tests.harness.application import Application
from tests.harness.metadata import allow
from tests.harness.producers import Going, add_users, all_acls, scram, write
from tests.harness.service import RunningMirror
from tests.harness.switching import Switch, pair_of
from tests.harness.witness import order_of

if TYPE_CHECKING:
    from pathlib import Path

    from mirror.playground.cluster import PlaygroundCluster

pytestmark = pytest.mark.integration

DENIED = "TOPIC_AUTHORIZATION_FAILED"


def allowed(cluster: PlaygroundCluster) -> set[tuple[str, ...]]:
    """The ACLs that allow something."""
    return {acl for acl in all_acls(cluster.admin_bootstrap) if "ALLOW" in acl}


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
        document = pair_of(("FA", ""), ("FB", ""), topic_name)
        document["recovery"]["FA<->FB"] = {"active": "FA", "block_seconds": 8}
        document["defaults"]["sync_topic_acls"] = False
        for alias, cluster in (("FA", one), ("FB", two)):
            assert cluster.sasl is not None
            document["clusters"][alias] = {
                "bootstrap_servers": cluster.sasl.bootstrap,
                **cluster.sasl.client_config,
                "sasl_username": "admin",
                "sasl_password": PASSWORDS["admin"],
            }
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
