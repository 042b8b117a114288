"""`mirror compare` as a person types it, against two clusters with authorizers."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from confluent_kafka import Consumer, TopicPartition
from confluent_kafka.admin import (
    AdminClient,
    ResourceType,
    ScramCredentialInfo,
    ScramMechanism,
    UserScramCredentialUpsertion,
)
import pytest
import yaml

from tests.harness.admin import alter_topic, commit_offsets, create_topic
from tests.harness.commands import typed
from tests.harness.metadata import Sides, allow
from tests.harness.quotas import limit

if TYPE_CHECKING:
    from pathlib import Path

    from mirror.playground.cluster import PlaygroundCluster

pytestmark = pytest.mark.acceptance

Row = tuple[str, str, str, str]
"""What, name, and both sides."""


Ends = dict[str, str]


@pytest.fixture
def ends(secured_pair: dict[str, PlaygroundCluster]) -> Ends:
    """Both as a super user sees them."""
    return {
        "A": secured_pair["a"].admin_bootstrap,
        "B": secured_pair["b"].admin_bootstrap,
    }


def _compare(
    ends: dict[str, Any], folder: Path, *options: str, flows: dict[str, Any]
) -> tuple[int, list[dict[str, Any]]]:
    """The exit code and the differences."""
    path = folder / "mirror.yaml"
    clusters = {
        alias: {"bootstrap_servers": at} if isinstance(at, str) else at
        for alias, at in ends.items()
    }
    path.write_text(yaml.safe_dump({"clusters": clusters, "flows": flows}))
    done = typed("compare", "A", "B", "-c", path, "-o", "json", *options)
    assert done.stdout, done.stderr
    return done.returncode, json.loads(done.stdout)["differences"]


def _group(bootstrap: str, group: str, topic: str) -> None:
    """A group that has read nothing of a topic, and left."""
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": group})
    commit_offsets(consumer, [TopicPartition(topic, 0, 0)])
    consumer.close()


def _user(bootstrap: str, user: str, iterations: int) -> None:
    info = ScramCredentialInfo(ScramMechanism.SCRAM_SHA_256, iterations)
    change = UserScramCredentialUpsertion(user, info, b"secret")
    admin = AdminClient({"bootstrap.servers": bootstrap})
    admin.alter_user_scram_credentials([change])[user].result(30)


_ORDERS = "orders (A.orders)"
_FLOWS = {
    "A->B": {
        "topics": ["orders", "payments", "short"],
        "groups": ["app-.*"],
        "sync_topic_acls": True,
        "sync_group_offsets": True,
        "config_properties_exclude": ["segment\\.ms"],
    }
}


def _plant(a: str, b: str) -> set[Row]:
    """Make the clusters differ; returns the differences that no setting explains."""
    alter_topic(a, "orders", retention_ms="604800000")
    alter_topic(b, "A.orders", max_message_bytes="5000")
    alter_topic(b, "same", cleanup_policy="compact")
    create_topic(a, "short", 3)
    create_topic(b, "A.short", 2)
    create_topic(a, "payments")
    allow(a, "app", "READ", "orders")
    allow(b, "other", "READ", "A.orders")
    allow(a, "app", "READ", "app-billing", kind=ResourceType.GROUP)
    allow(a, "app", "WRITE", "app-", kind=ResourceType.TRANSACTIONAL_ID,
          pattern="PREFIXED")  # fmt: skip
    allow(b, "app", "CREATE", "kafka-cluster", kind=ResourceType.BROKER)
    _group(a, "app-audit", "orders")
    limit(a, {"user": "alice"}, 1000.0)
    limit(b, {"user": "alice"}, 2000.0)
    limit(b, {"client-id": None}, 500.0)
    _user(a, "bob", 4096)
    _user(a, "carol", 4096)
    _user(b, "carol", 8192)
    return {
        ("config", "orders (A.orders)", "retention.ms=604800000", "retention.ms=X"),
        (
            "config",
            "orders (A.orders)",
            "max.message.bytes=X",
            "max.message.bytes=5000",
        ),
        ("config", "same", "cleanup.policy=delete", "cleanup.policy=compact"),
        ("topic", "short (A.short)", "3 partitions", "2 partitions"),
        ("topic", "payments (A.payments)", "1 partition", "-"),
        ("acl", "orders", "User:app READ", "-"),
        ("acl", "A.orders", "-", "User:other READ"),
        ("acl", "group app-billing", "User:app READ", "-"),
        ("acl", "transactional_id app-", "User:app WRITE *", "-"),
        ("acl", "cluster kafka-cluster", "-", "User:app CREATE"),
        ("group", "app-audit", "offsets in 1 topics", "-"),
        ("quota", "user alice", "producer_byte_rate=1000", "producer_byte_rate=2000"),
        ("quota", "client-id (default)", "-", "producer_byte_rate=500"),
        ("user", "bob", "SCRAM-SHA-256=4096", "-"),
        ("user", "carol", "SCRAM-SHA-256=4096", "SCRAM-SHA-256=8192"),
    }


def _row(each: dict[str, Any]) -> Row:
    """Where one side has the brokers' default, only the name of the config matters."""
    a, b = each["a"], each["b"]
    if each["what"] == "config" and each["name"] == _ORDERS:
        key = a.partition("=")[0]
        a, b = (a, f"{key}=X") if key == "retention.ms" else (f"{key}=X", b)
    return each["what"], each["name"], a, b


def test_it_finds_what_was_planted_and_nothing_else(ends: Ends, tmp_path: Path) -> None:
    """No difference between a topic and a fresh copy; fifteen planted ones are found,
    each in its place; what settings explain is shown with --all, with the setting.
    """
    a, b = ends["A"], ends["B"]
    create_topic(a, "orders", 2, compression_type="lz4")
    allow(a, "reader", "READ", "orders")
    for bootstrap in (a, b):
        create_topic(bootstrap, "same")
    fresh = {"A->B": {**_FLOWS["A->B"], "topics": ["orders"]}}
    with Sides(ends, fresh) as sides:
        sides.sync_topics()
        sides.sync_acls()
    for bootstrap, name in ((a, "orders"), (b, "A.orders")):
        _group(bootstrap, "app-orders", name)
    assert _compare(ends, tmp_path, flows=fresh) == (0, [])

    planted = _plant(a, b)
    status, found = _compare(ends, tmp_path, flows=_FLOWS)
    assert status == 1
    assert {_row(each) for each in found} == planted
    assert len(found) == len(planted) == 15

    allow(a, "app", "WRITE", "orders")
    create_topic(a, "logs")
    alter_topic(a, "orders", segment_ms="1000000")
    _group(a, "batch", "orders")
    _, more = _compare(ends, tmp_path, "--all", flows=_FLOWS)
    reasons = {
        (each["what"], each["name"]): each["reason"]
        for each in more
        if each["expected"]
    }
    assert reasons["acl", "orders"] == "copies are read-only"
    assert reasons["topic", "logs"] == "no flow copies it"
    assert reasons["config", _ORDERS] == "config_properties_exclude"
    assert reasons["group", "batch"] == "not in groups"


def test_what_it_may_not_see_is_said(
    clusters: dict[str, PlaygroundCluster],
    ends: Ends,
    secured_pair: dict[str, PlaygroundCluster],
    topic_name: str,
    tmp_path: Path,
) -> None:
    """A cluster without an authorizer has no ACLs to compare; a user without rights
    sees no ACLs, quotas, users, or topics: each is a row, and no match.
    """
    create_topic(clusters["a"].bootstrap, topic_name)
    create_topic(ends["B"], f"A.{topic_name}")
    b = secured_pair["b"]
    mixed = {
        "A": clusters["a"].bootstrap,
        "B": {"bootstrap_servers": b.bootstrap, **b.client_config},
    }
    _, found = _compare(mixed, tmp_path, flows={"A->B": {"topics": [topic_name]}})
    unseen = {
        (each["what"], each["name"]): (each["a"], each["b"])
        for each in found
        if each["expected"] is None
        and (each["what"] != "topic" or each["name"].startswith(topic_name))
    }
    assert unseen == {
        ("acl", "(all)"): ("no authorizer", "not permitted"),
        ("quota", "(all)"): ("seen", "not permitted"),
        ("user", "(all)"): ("seen", "not permitted"),
        ("topic", f"{topic_name} (A.{topic_name})"): ("1 partition", "not permitted"),
    }


def test_a_name_that_is_no_cluster(tmp_path: Path) -> None:
    """One message that names it, and the exit code of a wrong command line."""
    path = tmp_path / "mirror.yaml"
    clusters = {alias: {"bootstrap_servers": f"{alias}:1"} for alias in "AB"}
    path.write_text(yaml.safe_dump({"clusters": clusters, "flows": {"A->B": {}}}))
    done = typed("compare", "A", "C", "-c", path)
    assert done.returncode == 2
    assert 'there is no cluster "C"' in done.stderr
