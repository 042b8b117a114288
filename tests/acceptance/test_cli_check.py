"""`mirror check` and `mirror run` against real clusters."""

from __future__ import annotations

from contextlib import closing
import json
import time
from typing import TYPE_CHECKING, Any

from kafka import KafkaAdminClient
import pytest

from tests.harness.admin import alter_topic, create_topic
from tests.harness.commands import typed
from tests.harness.load import producer

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from tests.conftest import Clusters

pytestmark = pytest.mark.acceptance


def write_config(tmp_path: Path, *, a: str, b: str, topics: str) -> str:
    path = tmp_path / "mirror.yaml"
    path.write_text(
        f"clusters:\n"
        f"  A: {{bootstrap_servers: '{a}'}}\n"
        f"  B: {{bootstrap_servers: '{b}'}}\n"
        f"flows:\n"
        f"  A->B: {{topics: ['{topics}']}}\n"
        f"service: {{http_port: 0, state_dir: '{tmp_path / 'state'}'}}\n"
    )
    return str(path)


def create(bootstrap: str, topics: dict[str, int]) -> None:
    with closing(KafkaAdminClient(bootstrap_servers=bootstrap)) as admin:
        admin.create_topics(
            {name: {"num_partitions": count} for name, count in topics.items()}
        )
        admin.wait_for_topics(list(topics))


def checks(stdout: str) -> list[tuple[str, str, str, str]]:
    """The rows of the first table: where, what, state, detail."""
    rows = []
    for line in stdout.split("\n\n", maxsplit=1)[0].splitlines()[1:]:
        where, rest = line.split("  ", 1)
        check, rest = rest.strip().split("  ", 1)
        state, detail = rest.strip().split(" ", 1)
        rows.append((where, check, state, detail.strip()))
    return rows


def not_ok(stdout: str) -> list[tuple[str, str, str, str]]:
    return [row for row in checks(stdout) if row[2] != "ok"]


def list_topics(bootstrap: str) -> set[str]:
    with closing(KafkaAdminClient(bootstrap_servers=bootstrap)) as admin:
        return set(admin.list_topics())


def test_check_tells_what_would_be_mirrored(
    clusters: Clusters, tmp_path: Path, topic_name: str
) -> None:
    """Copies that exist, are missing or too small are distinguished, not changed."""
    source, target = clusters["a"].bootstrap, clusters["b"].bootstrap
    create(source, {f"{topic_name}-{end}": 3 for end in ("new", "same", "small")})
    create(target, {f"A.{topic_name}-same": 3, f"A.{topic_name}-small": 2})
    config = write_config(tmp_path, a=source, b=target, topics=f"{topic_name}-.*")
    before = list_topics(source), list_topics(target)

    shown = typed("check", "-c", config)
    document = typed("check", "-c", config, "-o", "json")

    assert (shown.returncode, shown.stderr) == (0, ""), shown.stdout
    assert not_ok(shown.stdout) == []
    table = shown.stdout.split("\n\n")[1]
    rows = {line.split()[1]: line.split(maxsplit=5) for line in table.splitlines()}
    assert rows[f"{topic_name}-new"][2:] == [
        *("3", f"A.{topic_name}-new", "0", "to be created"),
    ]
    assert rows[f"{topic_name}-same"][4:] == ["3", "exists"]
    assert rows[f"{topic_name}-small"][4:] == ["2", "to be grown"]
    found: dict[str, Any] = json.loads(document.stdout)
    assert found["format_version"] == 1
    assert [
        topic["copy"]
        for topic in found["flows"][0]["topics"]
        if topic["topic"].startswith(topic_name)
    ] == ["to be created", "exists", "to be grown"]
    said = {(each["where"], each["check"]): each for each in found["checks"]}
    assert {each["state"] for each in said.values()} == {"ok"}
    for alias in "AB":
        for check in ("connection", "brokers", "security", "version", "rights"):
            assert (f"cluster {alias}", check) in said
    for check in ("Java", "libraries", "cores", "state_dir", "HTTP port", "topology"):
        assert ("here", check) in said
    for check in ("topics", "copies", "replicas", "message size", "clock", "ACLs"):
        assert ("flow A->B", check) in said
    assert "v2" in said["cluster B", "transactions"]["detail"]
    assert (list_topics(source), list_topics(target)) == before


def test_check_refuses_one_cluster_as_both(clusters: Clusters, tmp_path: Path) -> None:
    """A cluster cannot be mirrored into itself, and the message names both settings."""
    bootstrap = clusters["a"].bootstrap
    other = bootstrap.replace("127.0.0.1", "localhost")
    config = write_config(tmp_path, a=bootstrap, b=other, topics=".*")

    result = typed("check", "-c", config)

    assert result.returncode == 2
    (row,) = not_ok(result.stdout)
    assert row[:3] == ("flow A->B", "clusters", "fail")
    assert f"clusters.A.bootstrap_servers: {bootstrap}" in row[3]
    assert f"clusters.B.bootstrap_servers: {other}" in row[3]
    assert "the same cluster" in row[3]
    assert result.stderr == "1 failed, 0 warnings\n"


def test_check_finds_one_source_under_two_names(
    clusters: Clusters, tmp_path: Path, topic_name: str
) -> None:
    """Two aliases that are one cluster, which no file shows, are found by asking."""
    a, b = clusters["a"].bootstrap, clusters["b"].bootstrap
    create(a, {topic_name: 1})
    path = tmp_path / "mirror.yaml"
    path.write_text(
        f"clusters:\n"
        f"  A: {{bootstrap_servers: '{a}'}}\n"
        f"  A2: {{bootstrap_servers: '{a.replace('127.0.0.1', 'localhost')}'}}\n"
        f"  B: {{bootstrap_servers: '{b}'}}\n"
        f"defaults: {{topics: ['{topic_name}'], policy: identity}}\n"
        f"flows: {{A->B: {{}}, A2->B: {{}}}}\n"
    )

    result = typed("check", "-c", str(path))

    assert result.returncode == 2
    row = next(row for row in not_ok(result.stdout) if row[1] == "topology")
    assert row[0] == "here"
    assert row[3].startswith("flows A->B and A2->B go from the same cluster (")
    assert f"both would copy {topic_name} to {topic_name}" in row[3]


def test_check_tells_what_names_leave_out(
    clusters: Clusters, tmp_path: Path, topic_name: str
) -> None:
    """A user's topic that looks like a copy from the target is not copied, and is
    reported.
    """
    a, b = clusters["a"].bootstrap, clusters["b"].bootstrap
    create(a, {topic_name: 1, f"B.{topic_name}": 1})
    config = write_config(tmp_path, a=a, b=b, topics=f"(B.)?{topic_name}")

    result = typed("check", "-c", config)

    assert result.returncode == 0
    assert f"A.{topic_name}" in result.stdout
    row = next(row for row in checks(result.stdout) if row[1] == "left out")
    assert row[0] == "flow A->B"
    assert f"B.{topic_name}" in row[3]


def test_check_names_the_cluster_that_does_not_answer(
    clusters: Clusters, tmp_path: Path
) -> None:
    """A side that is down is a failure with setting, value and fix; the other side is
    checked all the same.
    """
    config = write_config(
        tmp_path, a=clusters["a"].bootstrap, b="127.0.0.1:1", topics=".*"
    )

    result = typed("check", "-c", config)

    assert result.returncode == 1
    (row,) = not_ok(result.stdout)
    assert row[:3] == ("cluster B", "connection", "fail")
    assert row[3].startswith("clusters.B.bootstrap_servers: 127.0.0.1:1 ")
    assert "check that the address is right" in row[3]
    assert ("cluster A", "version", "ok") in [r[:3] for r in checks(result.stdout)]


def test_check_tells_every_problem_at_once(
    clusters: Clusters, tmp_path: Path, topic_name: str
) -> None:
    """Names that no copy can have, too many replicas, copies that could not be written
    to, records that are too large, clocks that differ, groups that have members: each
    is reported with a fix, none hides another, and nothing is changed.
    """
    a, b = clusters["a"].bootstrap, clusters["b"].bootstrap
    start = topic_name[-8:]
    source = f"A{start}"  # no checkpoints are on the target
    flow = f"flow {source}->B"
    long = f"{start}-{'x' * 240}"
    for topic in (long, f"{start}.one", f"{start}-large", f"{start}-later"):
        create_topic(a, topic, 1)
    alter_topic(a, f"{start}-large", max_message_bytes="5000000")
    create_topic(b, f"{source}.{start}-large", 1, min_insync_replicas="2")
    # The copy of one.one differs by . and _ from this one.
    create_topic(b, f"{source}.{start}_one", 1)
    client = producer(a)
    client.produce(f"{start}-later", b"v", timestamp=int(time.time() * 1000) + 600_000)
    assert client.flush(30) == 0
    path = tmp_path / "mirror.yaml"
    path.write_text(
        json.dumps(
            {
                "clusters": {
                    source: {"bootstrap_servers": a},
                    "B": {"bootstrap_servers": b},
                    "C": {"bootstrap_servers": "127.0.0.1:1"},
                },
                "defaults": {
                    "topics": [f"{start}.*"],
                    "sync_topic_configs": False,
                    "checkpoints_replication_factor": 3,
                    "heartbeats_replication": False,
                },
                "flows": {f"{source}->B": {}, f"{source}->C": {}},
                "service": {"http_port": 0},
            }
        )
    )
    before = list_topics(a), list_topics(b)

    result = typed("check", "-c", str(path))

    assert result.returncode == 1
    rows = {(row[0], row[1], row[2]): row[3] for row in not_ok(result.stdout)}
    assert set(rows) == {
        ("cluster C", "connection", "fail"),
        (flow, "topic", "fail"),
        (flow, "creation", "fail"),
        (flow, "in sync", "fail"),
        (flow, "message size", "warn"),
        (flow, "clock", "warn"),
    }
    assert "has 259 characters; Kafka allows 249" in rows[flow, "topic", "fail"]
    creation = [row[3] for row in not_ok(result.stdout) if row[1] == "creation"]
    assert any(f"{source}.checkpoints.internal" in text and "replication_factor" in text
               for text in creation)  # fmt: skip
    assert any(f"{source}.{start}.one" in text and "differ only in . and _" in text
               for text in creation)  # fmt: skip
    assert f"{source}.{start}-large" in rows[flow, "in sync", "fail"]
    assert "5000000" in rows[flow, "message size", "warn"]
    assert "s ahead of this machine" in rows[flow, "clock", "warn"]
    # The others go on: their rows and their topics are there.
    assert f"{start}-later" in result.stdout.split("\n\n")[1]
    assert (list_topics(a), list_topics(b)) == before


def test_check_of_a_fresh_cluster_leaves_no_trace(
    make_clusters: Callable[..., Clusters], tmp_path: Path
) -> None:
    """A check creates no topic, not even those that brokers create for themselves."""
    made = make_clusters("a", "b")
    a, b = made["a"].bootstrap, made["b"].bootstrap
    create_topic(a, "orders", 1)
    config = write_config(tmp_path, a=a, b=b, topics="orders")

    result = typed("check", "-c", config)
    plan = typed("plan", "-c", config)

    assert (result.returncode, plan.returncode) == (0, 0), result.stdout + plan.stderr
    assert (list_topics(a), list_topics(b)) == ({"orders"}, set())


@pytest.mark.full
def test_copies_of_mirrormaker_2_are_to_be_adopted(
    clusters: Clusters, topic_name: str, tmp_path: Path
) -> None:
    """Where MirrorMaker 2 has copied, and this flow has not, check says where a run
    would begin and names `mirror adopt`; once the flow has progress, it does not.
    """
    alias = topic_name.replace("-", "")
    a, b = clusters["a"].bootstrap, clusters["b"].bootstrap
    create(a, {topic_name: 1})
    create(b, {f"{alias}.{topic_name}": 1})
    config = tmp_path / "mirror.yaml"
    config.write_text(
        f"clusters:\n"
        f"  {alias}: {{bootstrap_servers: '{a}'}}\n"
        f"  B: {{bootstrap_servers: '{b}'}}\n"
        f"flows:\n"
        f"  {alias}->B: {{topics: ['{topic_name}'], replication_factor: 1}}\n"
        f"service: {{http_port: 0}}\n"
    )

    def told() -> list[str]:
        rows = checks(typed("check", "-c", str(config)).stdout)
        return [detail for _, what, _, detail in rows if what == "MirrorMaker 2"]

    assert told() == []
    create(b, {f"mm2-offsets.{alias}.internal": 1})
    (detail,) = told()
    assert f"copied into {alias}.{topic_name}" in detail
    assert "mirror adopt before mirror run" in detail
    create(b, {f"mirror-progress.{alias}.internal": 1})
    assert told() == []
