"""Logins of flows: what tasks get, who is mirror, what is refused, what changes."""

from __future__ import annotations

import pickle
from typing import TYPE_CHECKING, Any

import pytest

from mirror.checks.permissions.rights import rights
from mirror.checks.permissions.table import Who
from mirror.config import rules
from mirror.config.changes import compare
from mirror.config.load import load
from mirror.config.schema import FlowConfig, MirrorConfig, for_tasks, principals
from mirror.config.section import Effect
from tests.harness.configurations import configuration

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.unit


def section(address: str, user: str, **settings: Any) -> dict[str, Any]:
    return {
        "bootstrap_servers": address,
        "security_protocol": "SASL_PLAINTEXT",
        "sasl_mechanism": "PLAIN",
        "sasl_username": user,
        "sasl_password": f"of-{user}",
        **settings,
    }


CLUSTERS = {
    "A": section("a:1", "admin"),
    "A-reader": section("a:2", "reader"),
    "B": section("b:1", "chief"),
    "B-writer": section("b:1", "writer"),
}
BOTH = {"source_login": "A-reader", "target_login": "B-writer"}


def config(flow: dict[str, Any] = BOTH, **more: Any) -> MirrorConfig:
    return configuration({"clusters": CLUSTERS, "flows": {"A->B": flow}, **more})


def test_tasks_get_no_other_secret() -> None:
    """What a lease carries has the logins' passwords under the clusters' aliases, and
    not those of the clusters' own users; without logins it has these.
    """
    made = config()
    source, target = for_tasks(made, made.flows["A->B"])
    assert (source.alias, source.sasl_username) == ("A", "reader")
    assert source.bootstrap_servers == ("a:2",)
    assert (target.alias, target.sasl_username) == ("B", "writer")
    carried = pickle.dumps((source, target))
    assert b"of-reader" in carried
    assert b"of-writer" in carried
    assert b"of-admin" not in carried
    assert b"of-chief" not in carried


def test_tasks_with_logins_ask_the_clusters_own_registries() -> None:
    """With schemas: require, tasks ask both registries, which no login can name."""
    registries = {
        alias: {**CLUSTERS[alias], "schema_registry": {"url": f"http://{alias}:8081"}}
        for alias in ("A", "B")
    }
    made = configuration(
        {
            "clusters": {**CLUSTERS, **registries},
            "flows": {"A->B": {**BOTH, "schemas": "require"}},
        }
    )
    assert rules.problems(made) == []
    for each in for_tasks(made, made.flows["A->B"]):
        assert each.schema_registry == made.clusters[each.alias].schema_registry
        assert each.schema_registry is not None
    made = config({})
    assert for_tasks(made, made.flows["A->B"]) == (
        made.clusters["A"],
        made.clusters["B"],
    )


def test_all_users_are_mirror() -> None:
    """Also those of flows that are off, or that other processes run."""
    other = FlowConfig(source="B", target="A", target_login="A-reader")
    made = config({"source_login": "A-reader", "enabled": False})
    made = made.model_copy(update={"everywhere": (other,)})
    assert principals(made, "A") == {"A": "User:admin", "A-reader": "User:reader"}
    assert principals(made, "B") == {"B": "User:chief"}


@pytest.mark.parametrize(
    ("flows", "problem"),
    [
        (
            {"A->B": {"source_login": "A-raeder"}},
            (
                'flows."A->B".source_login: there is no cluster "A-raeder"; did you '
                'mean "A-reader"?'
            ),
        ),
        (
            {"A->B": {"target_login": "A"}},
            (
                'flows."A->B".target_login: A is a cluster of its own here; name an '
                "entry of clusters that has another user of B, and that no flow, pair "
                "or audit topic uses"
            ),
        ),
        (
            {
                "A->B": {"source_login": "A-reader"},
                "B->A": {"source_login": "A-reader"},
            },
            (
                'flows."B->A".source_login: A-reader is a login of A, and cannot be '
                "one of B as well"
            ),
        ),
        (
            {"A->B": {"source_login": "with-registry"}},
            (
                "clusters.with-registry.schema_registry: not used by a login, whose "
                "tasks ask that of A: leave it out here, or write null after a merged "
                "anchor (<<)"
            ),
        ),
        (
            {"X->B": {"source_login": "X-reader"}},
            (
                "clusters.X-reader.principal: User:x is that of X, where mirror logs "
                "in as admin; write that of reader, or null after a merged anchor (<<)"
            ),
        ),
    ],
)
def test_what_is_no_login(flows: dict[str, Any], problem: str) -> None:
    """Each mistake has one message, which says what would be right."""
    registry = {"schema_registry": {"url": "http://r:1"}}
    clusters = {
        **CLUSTERS,
        "with-registry": section("a:1", "x", **registry),
        "X": section("x:1", "admin", principal="User:x"),
        "X-reader": section("x:1", "reader", principal="User:x"),
    }
    made = configuration({"clusters": clusters, "flows": flows})
    assert rules.problems(made) == [problem]


def test_a_login_may_be_made_of_its_cluster(tmp_path: Path) -> None:
    """A YAML anchor merged into a login brings the cluster's registry along, which is
    no mistake: the tasks ask that one anyway.
    """
    file = tmp_path / "mirror.yaml"
    file.write_text(
        "clusters:\n"
        "  A: &a\n"
        "    bootstrap_servers: a:1\n"
        "    security_protocol: SASL_SSL\n"
        "    sasl_mechanism: PLAIN\n"
        "    sasl_username: admin\n"
        "    sasl_password: of-admin\n"
        "    schema_registry: {url: 'http://r:1'}\n"
        "  A-reader: {<<: *a, sasl_username: reader, sasl_password: of-reader}\n"
        "  B: {bootstrap_servers: b:1, schema_registry: {url: 'http://s:1'}}\n"
        "flows:\n"
        "  A->B: {source_login: A-reader, schemas: require}\n"
    )
    made, _ = load(file, environ={})
    source, _ = for_tasks(made, made.flows["A->B"])
    assert source.sasl_username == "reader"
    assert source.schema_registry == made.clusters["A"].schema_registry is not None


def test_who_needs_what() -> None:
    """Only the reader reads, only the tasks' users need no right to create or alter;
    commands that read records do so as the cluster's own user.
    """

    def of(login: str, *who: Who) -> set[str]:
        return {
            f"{each.kind} {each.extent} {each.operation}"
            for each in rights(made, who=who or (Who.SERVICE,))
            if each.login == login
        }

    made = config({**BOTH, "topics": ["orders"], "groups": ["app"],
                   "heartbeats_replication": False})  # fmt: skip
    assert of("A-reader") == {"topic orders READ"}
    assert of("A") == {
        "topic orders DESCRIBE", "topic orders DESCRIBE_CONFIGS",
        "group app DESCRIBE", "cluster kafka-cluster DESCRIBE",
    }  # fmt: skip
    assert of("B-writer") == {
        "transactional-id mirror.A->B.* WRITE",
        "topic A.orders READ", "topic A.orders WRITE",
        "topic A.orders DESCRIBE_CONFIGS",
        "topic mirror-progress.A.internal READ",
        "topic mirror-progress.A.internal WRITE",
        "topic A.offset-map.internal READ", "topic A.offset-map.internal WRITE",
        "topic mirror-losses.A.internal WRITE",
    }  # fmt: skip
    assert "topic orders READ" in of("A", Who.SERVICE, Who.COMMANDS)
    assert {each.login for each in rights(config({}))} == {"A", "B"}


def test_one_user_needs_what_both_need() -> None:
    """Without logins the list is that of both users together, no line longer."""

    def listed(made: MirrorConfig) -> set[tuple[object, ...]]:
        return {(r.cluster, r.kind, r.extent, r.operation) for r in rights(made)}

    assert listed(config({})) <= listed(config())


def test_a_login_that_changes_begins_another_run_of_its_flows() -> None:
    """Its password, address, and which one a flow names; flows without it go on."""
    before = config()
    changed = {**CLUSTERS, "A-reader": section("a:2", "next")}
    after = configuration({"clusters": changed, "flows": {"A->B": BOTH}})
    assert compare(before, after).effects == {"A->B": Effect.RUN}
    assert "of-next" not in str(compare(before, after))
    assert compare(before, config({})).effects == {"A->B": Effect.RUN}
    other = configuration({"clusters": changed, "flows": {"A->B": {}}})
    assert compare(config({}), other).effects == {"A->B": Effect.NONE}
    moved = {**CLUSTERS, "A-reader": section("a:3", "reader")}
    elsewhere = configuration({"clusters": moved, "flows": {"A->B": BOTH}})
    assert compare(before, elsewhere).moved == ("A-reader",)


def test_tasks_that_copy_schemas_need_the_notes() -> None:
    """With schemas: require, the writer's list has the topic in which tasks note what
    they have copied; with schemas: copy it has not, as only the service writes there.
    """
    for schemas, wanted in (("require", {"CREATE", "READ", "WRITE"}), ("copy", set())):
        needed = rights(config({**BOTH, "schemas": schemas}), who=[Who.SERVICE])
        found = {
            each.operation.name
            for each in needed
            if each.login == "B-writer"
            and each.extent.name.startswith("mirror-schemas.")
        }
        assert found == wanted
