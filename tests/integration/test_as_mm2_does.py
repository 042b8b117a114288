"""A file that MirrorMaker 2's classes take means the same here, or is refused.

Its own classes are asked, from Kafka's jars: which topics of a list it copies, under
which names, and which groups it translates.
"""

from __future__ import annotations

from pathlib import Path
import re
from typing import Any

import pytest
import yaml

from tests.harness.mm2_answers import ours, theirs

pytestmark = pytest.mark.integration

TOPICS = (
    *("orders", "ORDERS", "orders.eu", "Payments.x", "secret.keys", "a", "b", "foo"),
    *(
        "prod.orders",
        "east.orders",
        "west.orders",
        "x.internal",
        "x-internal",
        "x.replica",
    ),
    *("xreplica", "__consumer_offsets", "connect-configs", "orders-dlq"),
)
GROUPS = ("app", "APP", "console-consumer-7", "connect-sink", "__x", "reports")
BASE = """
clusters = east, west
east.bootstrap.servers = a:1
west.bootstrap.servers = b:1
east->west.enabled = true
"""
IDENTITY = "org.apache.kafka.connect.mirror.IdentityReplicationPolicy"
FILES = {
    "as its example": "",
    "lists": "topics = orders, a\ntopics.exclude = a\ngroups = app, reports",
    "a flag reaches further": "topics = a,(?i)orders,payments.*\ngroups = (?i)app",
    "anchors": "topics = ^orders,eu$,foo|a\ntopics.exclude = ^a$",
    "a line end in a pattern": r"topics.exclude = .*\\.internal, .*\replica, __.*",
    "another separator": "replication.policy.separator = _",
    "dots in internal names": "replication.policy.separator = _\n"
    "replication.policy.internal.topic.separator.enabled = false",
    "kept names": f"replication.policy.class = {IDENTITY}",
    "kept names, no separator": f"replication.policy.class = {IDENTITY}\n"
    "replication.policy.separator =",
    "neither alias nor separator": "replication.policy.separator =\n"
    "east->west.source.cluster.alias =",
    "the same for all flows": "replication.policy.separator =\nsource.cluster.alias =",
    "an alias for copies": "east->west.source.cluster.alias = prod",
    "an alias for all": "source.cluster.alias = prod",
    "the same alias": "east->west.source.cluster.alias = east\n"
    "target.cluster.alias = west",
    "flows of others": "east->east.enabled = true\nsouth->west.enabled = true\n"
    "south->west.topics = foo",
    "both ways": "west->east.enabled = true\nwest->east.topics = orders",
}
REFUSED = {
    "no separator": "replication.policy.separator =",
    "no alias": "east->west.source.cluster.alias =",
    "one alias for two": "source.cluster.alias = prod\nwest->east.enabled = true",
}
MANIFEST = """
apiVersion: kafka.strimzi.io/v1beta2
kind: KafkaMirrorMaker2
spec:
  connectCluster: west
  clusters:
    - {alias: east, bootstrapServers: "a:1"}
    - {alias: west, bootstrapServers: "b:1"}
  mirrors:
    - sourceCluster: east
      targetCluster: west
"""
MANIFESTS = {
    "a pattern": """
      sourceConnector: {}
      checkpointConnector: {}
      topicsPattern: "orders|a"
      groupsPattern: app
""",
    "blank fields": """
      sourceConnector: {config: {topics: }}
      checkpointConnector:
      topicsPattern:
      groupsPattern:
""",
    "connectors differ": """
      sourceConnector:
        config: {topics.exclude: "secret.*", groups.exclude: app}
      checkpointConnector:
        config: {topics.exclude: "orders.*", groups: "app,reports", topics: foo}
""",
    "a policy in one connector": """
      sourceConnector: {config: {replication.policy.separator: ""}}
      checkpointConnector: {config: {replication.policy.separator: "."}}
""",
    "kept names": f"""
      sourceConnector:
        config:
          replication.policy.class: {IDENTITY}
          replication.policy.separator: ""
      checkpointConnector: {{config: {{replication.policy.class: {IDENTITY}}}}}
""",
    "a pattern over a config": """
      sourceConnector: {config: {topics: foo}}
      topicsPattern: orders
""",
}


def test_files_mean_what_they_mean_to_mirrormaker(tmp_path: Path) -> None:
    """Copies have the same names, of the same topics, and the same groups are
    translated; checkpoints and offset syncs are where its own clients look.
    """
    files = []
    for number, text in enumerate(FILES.values()):
        files.append(tmp_path / f"{number}.properties")
        files[-1].write_text(f"{BASE}{text}\n")
    for number, text in enumerate(MANIFESTS.values()):
        files.append(tmp_path / f"m{number}.yaml")
        files[-1].write_text(f"{MANIFEST}{text}")
    names = (*FILES, *MANIFESTS)
    for name, file, expected in zip(
        names, files, theirs(files, TOPICS, GROUPS), strict=True
    ):
        found = ours(file, TOPICS, GROUPS, {})
        if name == "a policy in one connector":
            assert "is empty, so that MirrorMaker 2 calls" in found.refused
            continue
        assert not found.refused, (name, found.refused)
        assert not expected.refused, (name, expected.refused)
        assert [*found.copies.values()] == [*expected.copies.values()], name
        if name != "blank fields":  # there is no checkpoint connector
            assert [*found.groups.values()] == [*expected.groups.values()], name


def test_what_would_get_other_names_is_refused(tmp_path: Path) -> None:
    """The message says what to write; MirrorMaker 2 takes these files."""
    files = []
    for number, text in enumerate(REFUSED.values()):
        files.append(tmp_path / f"{number}.properties")
        files[-1].write_text(f"{BASE}{text}\n")
    for name, file, taken in zip(
        REFUSED, files, theirs(files, TOPICS, GROUPS), strict=True
    ):
        assert not taken.refused, name
        assert "write" in ours(file, TOPICS, GROUPS, {}).refused, name


PUBLISHED = yaml.safe_load(
    (Path(__file__).parent / "published_keys.yaml").read_text(encoding="utf-8")
)
OLDER = (".blacklist", ".exclude"), (".whitelist", "")
"""Names that MirrorMaker 2 4.x no longer knows, and what they are called there."""
MEANT = {
    "italian-primary-secondary": "a comment follows a value",
    "ragingpuppies-agg": "values have quotes",
}
"""Here mirror takes what the author meant, with a warning."""


def test_published_files_mean_the_same_or_are_refused(tmp_path: Path) -> None:
    """The keys of companies', vendors' and guides' files that decide what is copied:
    the same copies and groups, or a refusal that says what to write.
    """
    files, asked = [], []
    for each in PUBLISHED:
        files.append(tmp_path / _file(each))
        files[-1].write_text(_text(each))
        asked.append(tmp_path / f"asked-{_file(each)}")
        asked[-1].write_text(_text(each, newer=True))
    refused = set()
    for each, file, expected in zip(
        PUBLISHED, files, theirs(asked, TOPICS, GROUPS), strict=True
    ):
        name = each["name"]
        found = ours(file, TOPICS, GROUPS, {})
        if found.refused:
            refused.add(name)
            assert re.search("; use |; write |is not ", found.refused), found.refused
        elif name in MEANT:
            assert found.warnings, name
        else:
            assert _by_target(found.copies) == _by_target(expected.copies), name
            assert _by_target(found.groups) == _by_target(expected.groups), name
    assert len(PUBLISHED) - len(refused) > 20, refused


def _file(published: dict[str, Any]) -> str:
    kind = "properties" if "properties" in published else "yaml"
    return f"{published['name']}.{kind}"


def _text(published: dict[str, Any], *, newer: bool = False) -> str:
    """The file; `newer`: in the words of MirrorMaker 2 4.x."""
    if "manifests" in published:
        return yaml.safe_dump_all(
            {"kind": "KafkaMirrorMaker2", "spec": spec}
            for spec in published["manifests"]
        )
    lines = []
    for key, value in published["properties"].items():
        name = key
        for old, new in OLDER if newer else ():
            name = name.replace(old, new)
        written = value.replace("\\", "\\\\").replace("\r", "\\r")
        lines.append(f"{name} = {written}\n")
    return "".join(lines)


def _by_target(found: dict[str, Any]) -> list[tuple[str, Any]]:
    """By the flow's target and what it has: a source may be called otherwise here."""
    return sorted(
        (
            (
                flow.partition("->")[2],
                sorted(each.items() if isinstance(each, dict) else each),
            )
            for flow, each in found.items()
        ),
        key=str,
    )
