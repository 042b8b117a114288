"""`mirror check` and `mirror run` against real clusters."""

from __future__ import annotations

from contextlib import closing
import json
import subprocess
import sys
from typing import TYPE_CHECKING, Any

from kafka import KafkaAdminClient
import pytest

if TYPE_CHECKING:
    from pathlib import Path

    from tests.conftest import Clusters

pytestmark = pytest.mark.acceptance


def mirror(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "mirror", *arguments],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )


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


def list_topics(bootstrap: str) -> set[str]:
    with closing(KafkaAdminClient(bootstrap_servers=bootstrap)) as admin:
        return set(admin.list_topics())


def test_check_tells_what_would_be_mirrored(
    clusters: Clusters, tmp_path: Path, topic_name: str
) -> None:
    """Copies that exist, are missing or too small are told apart, and left alone."""
    source, target = clusters["a"].bootstrap, clusters["b"].bootstrap
    create(source, {f"{topic_name}-{end}": 3 for end in ("new", "same", "small")})
    create(target, {f"A.{topic_name}-same": 3, f"A.{topic_name}-small": 2})
    config = write_config(tmp_path, a=source, b=target, topics=f"{topic_name}-.*")
    before = list_topics(source), list_topics(target)

    shown = mirror("check", "-c", config)
    document = mirror("check", "-c", config, "-o", "json")

    assert (shown.returncode, shown.stderr) == (0, "")
    rows = {
        line.split()[1]: line.split(maxsplit=5) for line in shown.stdout.splitlines()
    }
    assert rows[f"{topic_name}-new"][2:] == [
        *("3", f"A.{topic_name}-new", "0", "to be created"),
    ]
    assert rows[f"{topic_name}-same"][4:] == ["3", "exists"]
    assert rows[f"{topic_name}-small"][4:] == ["2", "to be grown"]
    found: dict[str, Any] = json.loads(document.stdout)
    assert found["format_version"] == 1
    assert [topic["copy"] for topic in found["flows"][0]["topics"]] == [
        *("to be created", "exists", "to be grown"),
    ]
    assert (list_topics(source), list_topics(target)) == before


def test_check_refuses_one_cluster_as_both(clusters: Clusters, tmp_path: Path) -> None:
    """A cluster cannot be mirrored into itself, and both settings are named."""
    bootstrap = clusters["a"].bootstrap
    other = bootstrap.replace("127.0.0.1", "localhost")
    config = write_config(tmp_path, a=bootstrap, b=other, topics=".*")

    result = mirror("check", "-c", config)

    assert result.returncode == 2
    (line,) = result.stderr.splitlines()
    assert f"clusters.A.bootstrap_servers: {bootstrap}" in line
    assert f"clusters.B.bootstrap_servers: {other}" in line
    assert "one and the same cluster" in line


def test_check_finds_one_source_under_two_names(
    clusters: Clusters, tmp_path: Path, topic_name: str
) -> None:
    """What no file can tell, that two aliases are one cluster, is found by asking."""
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

    result = mirror("check", "-c", str(path))

    assert result.returncode == 2
    (line,) = result.stderr.splitlines()
    assert line.startswith("flows A->B and A2->B go from one and the same cluster (")
    assert f"both would copy {topic_name} to {topic_name}" in line


def test_check_tells_what_names_leave_out(
    clusters: Clusters, tmp_path: Path, topic_name: str
) -> None:
    """A topic of our own that looks like a copy from the target is not copied, and
    not in silence.
    """
    a, b = clusters["a"].bootstrap, clusters["b"].bootstrap
    create(a, {topic_name: 1, f"B.{topic_name}": 1})
    config = write_config(tmp_path, a=a, b=b, topics=f"(B.)?{topic_name}")

    result = mirror("check", "-c", config)

    assert result.returncode == 0
    assert f"A.{topic_name}" in result.stdout
    (note,) = result.stderr.splitlines()
    assert note.startswith(f"note: flow A->B leaves out B.{topic_name}: ")


def test_check_names_the_cluster_that_does_not_answer(
    clusters: Clusters, tmp_path: Path
) -> None:
    """One side down is a failure of the moment, told with setting and value."""
    config = write_config(
        tmp_path, a=clusters["a"].bootstrap, b="127.0.0.1:1", topics=".*"
    )

    result = mirror("check", "-c", config)

    assert result.returncode == 1
    (line,) = result.stderr.splitlines()
    assert line.startswith("clusters.B.bootstrap_servers: 127.0.0.1:1 ")
    assert result.stdout == ""
