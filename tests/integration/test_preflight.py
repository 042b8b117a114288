"""Rights and ACLs before a run: what `check` learns from brokers with an authorizer.

Other tests prove with the service itself which rights it needs.
"""

from __future__ import annotations

from contextlib import closing
import time
from typing import TYPE_CHECKING, Any

from confluent_kafka.admin import ResourceType
from kafka import KafkaAdminClient
import pytest

from mirror.checks.check import check
from mirror.checks.finding import State
from mirror.checks.permissions.rights import Right, rights
from mirror.checks.permissions.table import Operation, ResourceKind
from mirror.checks.plan import plan
from mirror.playground.secured import USER
from tests.harness.admin import create_topic
from tests.harness.configurations import configuration
from tests.harness.metadata import Sides, acls_of, allow, revoke
from tests.harness.waiting import deadline_in, wait_for

if TYPE_CHECKING:
    from mirror.checks.finding import Finding
    from mirror.config.schema import MirrorConfig
    from mirror.playground.cluster import PlaygroundCluster

pytestmark = pytest.mark.integration

KINDS = {
    ResourceKind.TOPIC: ResourceType.TOPIC,
    ResourceKind.GROUP: ResourceType.GROUP,
    ResourceKind.CLUSTER: ResourceType.BROKER,
    ResourceKind.TRANSACTIONAL_ID: ResourceType.TRANSACTIONAL_ID,
}


def config_of(
    secured_pair: dict[str, PlaygroundCluster], **settings: Any
) -> MirrorConfig:
    """A flow A->B of a user who has no rights until a test grants them."""
    return configuration(
        {
            "clusters": {
                alias: {
                    "bootstrap_servers": cluster.bootstrap,
                    **cluster.client_config,
                }
                for alias, cluster in zip("AB", secured_pair.values(), strict=True)
            },
            "flows": {"A->B": settings},
            "service": {"http_port": 0},
        }
    )


def change(
    secured_pair: dict[str, PlaygroundCluster], right: Right, *, give: bool
) -> None:
    bootstrap = secured_pair[right.cluster.lower()].admin_bootstrap
    do = allow if give else revoke
    name = "kafka-cluster" if right.kind is ResourceKind.CLUSTER else right.extent.name
    do(
        bootstrap, USER, str(right.operation), name,
        pattern=right.extent.pattern, kind=KINDS[right.kind],
    )  # fmt: skip


def missing(config: MirrorConfig) -> list[Finding]:
    return [
        each
        for each in check(config).findings
        if each.check == "rights" and each.state is State.FAIL
    ]


def topics_of(bootstrap: str) -> set[str]:
    with closing(KafkaAdminClient(bootstrap_servers=bootstrap)) as admin:
        return set(admin.list_topics())


def test_missing_rights_are_told_by_resource(
    secured_pair: dict[str, PlaygroundCluster], topic_name: str
) -> None:
    """A user without rights sees a row for each resource, with all that is missing
    there and the command that grants it;
    with exactly the needed rights none is missing; without one of them, that one is;
    and the check changes nothing.
    """
    a, b = (secured_pair[name].admin_bootstrap for name in "ab")
    create_topic(a, topic_name, 1)
    create_topic(b, f"A.{topic_name}", 1)
    config = config_of(
        secured_pair,
        topics=[topic_name, f"{topic_name}-new"],
        sync_group_offsets=True,
        follow_commits="on",
    )
    needed = tuple(rights(config))
    unneeded = next(  # what is there need not be created
        r
        for r in needed
        if r.operation is Operation.CREATE and r.extent.name == f"A.{topic_name}"
    )
    before = topics_of(a), topics_of(b)

    nothing = missing(config)

    assert len(nothing) == len({(r.login, r.kind, r.extent) for r in needed})
    assert all(each.fix.startswith("kafka-acls.sh ") for each in nothing)
    assert any(
        each.where == "cluster A"
        and "READ" in each.detail
        and f" on topic {topic_name}," in each.detail
        for each in nothing
    )

    needed = tuple(right for right in needed if right != unneeded)
    for right in needed:
        change(secured_pair, right, give=True)
    try:
        deadline = deadline_in()
        while (left := missing(config)) and time.monotonic() < deadline:
            time.sleep(0.2)
        assert left == []
        checked = check(config)
        bad = [each for each in checked.findings if each.state is State.FAIL]
        assert bad == []
        assert (topics_of(a), topics_of(b)) == before

        victim = next(
            r for r in needed if r.cluster == "B" and r.operation is Operation.WRITE
            and r.kind is ResourceKind.TOPIC and "progress" in r.features
        )  # fmt: skip
        change(secured_pair, victim, give=False)
        (one,) = _eventually(config, 1)
        assert victim.extent.name in one.detail
        assert "progress" in one.detail
        assert f"--operation Write --topic {victim.extent.name}" in one.fix
        needed = tuple(r for r in needed if r != victim)

        assert _of_checkpoints(config) == "follow commits within a second"
        victim = next(r for r in needed if r.extent.name == "__consumer_offsets")
        change(secured_pair, victim, give=False)
        needed = tuple(r for r in needed if r != victim)
        told = " ".join(each.detail for each in _eventually(config, 2))
        assert "needed for checkpoints that follow commits" in told
        assert _of_checkpoints(config).startswith("every 10 s: ")
    finally:
        for right in needed:
            change(secured_pair, right, give=False)


def _of_checkpoints(config: MirrorConfig) -> str:
    (found,) = (e for e in check(config).findings if e.check == "checkpoints")
    return found.detail


def test_acls_are_planned_as_they_are_then_given(
    secured_pair: dict[str, PlaygroundCluster], topic_name: str
) -> None:
    """The ACLs that the plan would add and remove are those that one turn of the job
    adds and removes; then nothing is left to plan.
    """
    a, b = (secured_pair[name].admin_bootstrap for name in "ab")
    create_topic(a, topic_name, 1)
    create_topic(b, f"A.{topic_name}", 1)
    allow(a, "alice", "READ", topic_name)
    flows = {"A->B": {"topics": [topic_name], "heartbeats_replication": False}}
    with Sides({"A": a, "B": b}, flows) as made:
        before = acls_of(b)
        first = plan(made.config)
        assert acls_of(b) == before
        assert [
            (each.change, each.binding.principal, each.binding.topic)
            for each in first.acls
        ] == [("add", "User:alice", f"A.{topic_name}")]
        assert any(t.topic == "mirror-acls.A.internal" for t in first.create)
        done = made.sync_acls()
        assert done.added == tuple(each.binding for each in first.acls)
        wait_for(lambda: not plan(made.config).acls)

        revoke(a, "alice", "READ", topic_name)
        wait_for(lambda: plan(made.config).acls)
        second = plan(made.config)
        assert [each.change for each in second.acls] == ["remove"]
        assert made.sync_acls().removed == tuple(e.binding for e in second.acls)


def test_acls_without_an_authorizer_on_the_target(
    secured_pair: dict[str, PlaygroundCluster],
    clusters: dict[str, PlaygroundCluster],
    topic_name: str,
) -> None:
    """Copies that everyone may read, of topics that not everyone may read, cause a
    warning; a source without an authorizer does not.
    """
    a, plain = secured_pair["a"].admin_bootstrap, clusters["a"].bootstrap
    create_topic(a, topic_name, 1)
    create_topic(plain, topic_name, 1)
    for source, target, state in ((a, plain, State.WARN), (plain, a, State.OK)):
        config = configuration(
            {
                "clusters": {
                    "S": {"bootstrap_servers": source},
                    "T": {"bootstrap_servers": target},
                },
                "flows": {"S->T": {"topics": [topic_name]}},
                "service": {"http_port": 0},
            }
        )
        (found,) = [each for each in check(config).findings if each.check == "ACLs"]
        assert found.state is state
        assert "no authorizer" in found.detail or "has none" in found.detail


def test_who_is_refused_is_told_how_to_go_on(
    secured_pair: dict[str, PlaygroundCluster],
) -> None:
    """A wrong password, and TLS spoken to a plain listener: each reason names its
    cluster.
    """
    good = secured_pair["a"].client_config
    config = configuration(
        {
            "clusters": {
                "A": {
                    "bootstrap_servers": secured_pair["a"].bootstrap,
                    **good,
                    "sasl_password": "wrong",
                },
                "B": {
                    "bootstrap_servers": secured_pair["b"].admin_bootstrap,
                    "security_protocol": "SSL",
                    "ssl_ca_file": good["ssl_ca_file"],
                },
            },
            "flows": {"A->B": {}},
            "service": {"http_port": 0},
        }
    )
    failed = {e.where: e for e in check(config).findings if e.state is State.FAIL}
    assert set(failed) == {"cluster A", "cluster B"}
    assert "credentials" in failed["cluster A"].fix
    assert "wrong" not in failed["cluster A"].detail.replace("wrong password", "")
    assert all(each.check == "connection" for each in failed.values())


def _eventually(config: MirrorConfig, count: int) -> list[Finding]:
    deadline = deadline_in()
    while len(found := missing(config)) != count and time.monotonic() < deadline:
        time.sleep(0.2)
    return found
