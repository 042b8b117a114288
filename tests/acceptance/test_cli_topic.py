"""`mirror topic` against real clusters, while no service runs."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

from tests.harness.admin import alter_topic, create_topic
from tests.harness.commands import answered, mirror, typed
from tests.harness.metadata import acls_of, allow, overrides, revoke
from tests.harness.switching import make_active, pair_of
from tests.harness.waiting import wait_for

if TYPE_CHECKING:
    from pathlib import Path

    from tests.conftest import Clusters

pytestmark = pytest.mark.acceptance


def write_config(tmp_path: Path, *, a: str, b: str, **settings: Any) -> str:
    path = tmp_path / "mirror.yaml"
    path.write_text(
        json.dumps(
            {
                "clusters": {
                    "A": {"bootstrap_servers": a},
                    "B": {"bootstrap_servers": b},
                },
                "flows": {"A->B": settings},
            }
        )
    )
    return str(path)


def test_a_cluster_that_does_not_answer_is_told(
    clusters: Clusters, tmp_path: Path
) -> None:
    """A cluster that does not answer is one sentence and exit status 1, without a
    traceback; an unknown flow is status 2.
    """
    config = write_config(tmp_path, a=clusters["a"].bootstrap, b="127.0.0.1:1")
    for command in ("list", "configs", "acls"):
        shown = (typed if command == "list" else answered)(
            "topic", command, "-c", config
        )
        assert (shown.returncode, shown.stdout) == (1, "")
        assert shown.stderr.startswith("flow A->B: cluster B: 127.0.0.1:1")
        assert "Traceback" not in shown.stderr
    shown = answered("topic", "list", "-c", config, "--flow", "A->C")
    assert shown.returncode == 2
    assert shown.stderr == (
        '--flow: there is no enabled flow "A->C"; did you mean "A->B"?\n'
    )


def test_drift_is_listed_and_corrected(
    clusters: Clusters, tmp_path: Path, topic_name: str
) -> None:
    """Differences are listed with their topic; a dry run leaves them, and so does a
    command without a terminal; --yes corrects them, although the service's
    configuration leaves configs alone.
    """
    source, target = clusters["a"].bootstrap, clusters["b"].bootstrap
    names = {end: f"{topic_name}-{end}" for end in ("bare", "config", "large", "same")}
    for name in names.values():
        create_topic(source, name, 2, retention_ms="1000000")
    create_topic(target, f"A.{names['config']}", 2, flush_messages="7")
    create_topic(target, f"A.{names['large']}", 3, retention_ms="1000000")
    create_topic(target, f"A.{names['same']}", 2, retention_ms="1000000")
    config = write_config(
        tmp_path,
        a=source,
        b=target,
        topics=[f"{topic_name}-.*"],
        sync_topic_configs=False,
    )

    shown = answered("topic", "list", "-c", config, "--flow", "A/B")
    assert (shown.returncode, shown.stderr) == (0, "")
    header, *rows = shown.stdout.splitlines()
    assert header.split() == [
        *("FLOW", "TOPIC", "PARTITIONS", "TARGET-TOPIC", "TARGET-PARTITIONS", "DIFFERS")
    ]
    found = {row.split()[1]: row.split(maxsplit=5)[2:] for row in rows}
    assert found == {
        names["bare"]: ["2", f"A.{names['bare']}", "0", "no copy yet"],
        names["config"]: [
            *("2", f"A.{names['config']}", "2"),
            (
                "flush.messages is 7, should not be set; "
                "retention.ms is not set, should be 1000000"
            ),
        ],
        names["large"]: [
            *("2", f"A.{names['large']}", "3", "more partitions than its topic")
        ],
        names["same"]: ["2", f"A.{names['same']}", "2", "-"],
    }
    document = json.loads(
        answered("topic", "list", "-c", config, "--differing", "-o", "json").stdout
    )
    assert document["format_version"] == 1
    (flow,) = document["flows"]
    topics = {topic["topic"]: topic for topic in flow["topics"]}
    assert topics.keys() == {names[end] for end in ("bare", "config", "large")}
    assert topics[names["config"]]["configs"] == [
        {"name": "flush.messages", "wanted": None, "found": "7"},
        {"name": "retention.ms", "wanted": "1000000", "found": None},
    ]

    copy = f"A.{names['config']}"
    for arguments, code in ((["--dry-run"], 0), ([], 1)):
        shown = typed("topic", "configs", "-c", config, *arguments)
        assert shown.returncode == code
        assert ("pass --yes" in shown.stderr) == bool(code)
        assert [row.split()[2] for row in shown.stdout.splitlines()[1:]] == [
            *("flush.messages", "retention.ms")
        ]
        assert overrides(target, copy) == {"flush.messages": "7"}
    shown = answered("topic", "configs", "-c", config, "--yes")
    assert shown.returncode == 0
    assert f"changed {copy}: retention.ms=1000000" in shown.stderr
    # Brokers learn of a change a moment after it is made.
    wait_for(lambda: overrides(target, copy) == {"retention.ms": "1000000"})
    shown = answered("topic", "configs", "-c", config, "--yes")
    assert (shown.returncode, shown.stdout, shown.stderr) == (0, "", "")


def test_acls_without_an_authorizer(
    clusters: Clusters, tmp_path: Path, topic_name: str
) -> None:
    """A cluster without an authorizer is reported, and is no failure."""
    config = write_config(
        tmp_path, a=clusters["a"].bootstrap, b=clusters["b"].bootstrap
    )
    shown = answered("topic", "acls", "-c", config, "--yes")
    assert (shown.returncode, shown.stdout) == (0, "")
    assert shown.stderr == "flow A->B: cluster A: listing ACLs: it has no authorizer\n"


def test_acls_are_shown_given_and_taken_back(
    make_clusters: Any, tmp_path: Path, topic_name: str
) -> None:
    """A dry run shows what would be added, kept, skipped and removed and does nothing;
    with --yes it is done, and the next run only has to keep it. ACLs of a topic that a
    pair with a name has moved stay as they are.
    """
    made = make_clusters("a", "b", secured=True)
    source, target = (made[name].admin_bootstrap for name in "ab")
    create_topic(source, topic_name)
    alter_topic(source, topic_name, retention_ms="1000000")
    allow(source, "alice", "READ", topic_name)
    allow(source, "bob", "WRITE", topic_name)
    config = write_config(tmp_path, a=source, b=target, topics=[topic_name])

    def changes(*arguments: str) -> dict[str, str]:
        shown = answered("topic", "acls", "-c", config, *arguments)
        assert shown.returncode == 0, shown.stderr
        rows = [row.split() for row in shown.stdout.splitlines()[1:]]
        return {row[4]: row[1] for row in rows}

    wanted = {"User:alice": "add", "User:bob": "skip"}
    assert changes("--dry-run") == wanted
    assert acls_of(target) == set()
    assert changes("--yes") == wanted
    given = {("User:alice", "READ", "ALLOW", f"A.{topic_name}", "LITERAL")}
    wait_for(lambda: acls_of(target) == given)
    assert changes("--yes") == {"User:alice": "keep", "User:bob": "skip"}
    revoke(source, "alice", "READ", topic_name)
    document = json.loads(
        answered("topic", "acls", "-c", config, "--dry-run", "-o", "json").stdout
    )
    (flow,) = document["flows"]
    assert flow["state"] == "PENDING"
    assert [each["principal"] for each in flow["remove"]] == ["User:alice"]
    assert acls_of(target) == given
    moved = pair_of(("A", source), ("B", target), topic_name)
    (settings,) = moved["recovery"].values()
    whole = {"topics": [topic_name], "groups": []}
    moved["recovery"] = {"A<->B/moved": settings | whole}
    make_active(moved, "A", "B", 2)
    path = tmp_path / "moved.yaml"
    path.write_text(json.dumps(moved))
    shown = answered(
        "topic", "acls", "-c", str(path), "--flow", "A/B", "--yes", "-o", "json"
    )
    (flow,) = json.loads(shown.stdout)["flows"]
    assert (flow["state"], flow["remove"]) == ("SYNCED", [])
    assert acls_of(target) == given
    assert changes("--yes") == {"User:alice": "remove", "User:bob": "skip"}
    wait_for(lambda: acls_of(target) == set())


def test_what_a_pair_with_a_name_has_moved(
    clusters: Clusters, tmp_path: Path, topic_name: str
) -> None:
    """Of two applications of a pair one has moved. `plan` creates only the copies that
    a run would create, and `topic list` shows only topics that each flow copies now.
    """
    one, other = f"A{topic_name[-6:]}", f"B{topic_name[-6:]}"
    ends = {one: clusters["a"].bootstrap, other: clusters["b"].bootstrap}
    moved, left = f"{topic_name}-moved", f"{topic_name}-left"
    for bootstrap in ends.values():
        create_topic(bootstrap, moved, 1)
        create_topic(bootstrap, left, 1)
    document = pair_of(*ends.items(), f"{topic_name}-.*")
    ((name, settings),) = document["recovery"].items()
    document["recovery"] = {
        f"{name}/moved": settings | {"topics": [moved], "groups": []}
    }
    make_active(document, one, other, 2)
    document["recovery"][f"{name}/left"] = settings | {"topics": [left], "groups": []}
    path = tmp_path / "mirror.yaml"
    path.write_text(json.dumps(document))

    def shown(*words: str) -> Any:
        run = mirror(*words, "-c", path, "-o", "json")
        assert run.exit_code == 0, run.stderr
        return json.loads(run.stdout)

    made = {
        (each["cluster"], each["topic"])
        for each in shown("plan")["create"]
        if each["purpose"] == "copy"
    }
    assert made == {(other, f"{one}.{left}"), (one, f"{other}.{moved}")}
    listed = {
        flow["name"]: [each["topic"] for each in flow["topics"]]
        for flow in shown("topic", "list")["flows"]
    }
    assert listed == {f"{one}->{other}": [left], f"{other}->{one}": [moved]}


def test_configs_come_from_the_active_cluster(
    clusters: Clusters, tmp_path: Path, topic_name: str
) -> None:
    """Of a topic that both flows of a pair write, commands take the configs from the
    cluster that the journals call active, not from the first flow of the file. If a
    journal cannot be read they say so.
    """
    ends = {f"{a}{topic_name}": clusters[a].bootstrap for a in ("a", "b")}
    (one, first), (other, second) = ends.items()
    document = pair_of((one, first), (other, second), topic_name)
    document["defaults"]["policy"] = "identity"
    create_topic(first, topic_name, 1, retention_ms="1000000")
    create_topic(second, topic_name, 1, retention_ms="2000000")
    path = tmp_path / "mirror.yaml"

    def would_set(*words: str) -> Any:
        path.write_text(json.dumps(document))
        run = mirror(*words, "-c", path, "-o", "json")
        return json.loads(run.stdout), run.stderr

    dry = ("topic", "configs", "--dry-run")
    for epoch, (source, target) in enumerate(((other, one), (one, other)), 2):
        make_active(document, source, target, epoch)
        shown, told = would_set(*dry)
        assert {each["flow"] for each in shown["changes"]} == {f"{target}->{source}"}
        assert "certain" not in told
        shown, _ = would_set("plan")
        of_topic = [each for each in shown["configs"] if each["topic"] == topic_name]
        assert {each["cluster"] for each in of_topic} == {source}
        assert shown["notes"] == []
        shown, _ = would_set("compare", one, other, "--all")
        of_topic = [e for e in shown["differences"] if e["name"] == topic_name]
        rests = f"{source}->{target} rests: {target} is active in {one}<->{other}"
        assert {each["reason"]: each["expected"] for each in of_topic} == {
            "not corrected yet": False,
            rests: True,
        }
    document["clusters"][one]["bootstrap_servers"] = "127.0.0.1:1"
    for words in (dry, ("plan",), ("check",)):
        shown, told = would_set(*words)
        text = f"{json.dumps(shown)}{told}"
        assert f"not certain, and the configs of {other} count here" in text
