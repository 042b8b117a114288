"""`mirror flow remove`: what a flow keeps goes, on both clusters; what others use stays.

Witnesses are AdminClient and consumers of confluent-kafka.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from confluent_kafka.admin import AdminClient
import pytest

from mirror.checks.permissions.rights import rights
from mirror.checks.permissions.table import Who
from mirror.cli import flow as flow_command
from mirror.clusters.reach import Reach
from mirror.config.load import load
from mirror.errors import MirrorError
from mirror.service import removing
from mirror.service.removing import Removal
from tests.harness.admin import create_topic
from tests.harness.commands import answered
from tests.harness.configurations import configuration
from tests.harness.dying import dies
from tests.harness.few_rights import grant
from tests.harness.load import NumberedLoad
from tests.harness.metadata import acls_of, allow
from tests.harness.service import RunningMirror
from tests.harness.waiting import wait_for
from tests.harness.witness import assert_exactly_once, eventually, keys_of

if TYPE_CHECKING:
    from pathlib import Path
    import subprocess

    from mirror.playground.cluster import PlaygroundCluster

pytestmark = pytest.mark.integration

ALL = {"emit_heartbeats": True, "emit_offset_syncs": True, "heartbeats_on_source": True}


def names(bootstrap: str) -> set[str]:
    """All topics, by an ordinary client."""
    found = AdminClient({"bootstrap.servers": bootstrap}).list_topics(timeout=30)
    return set(found.topics)


def parts(done: subprocess.CompletedProcess[str]) -> dict[str, tuple[str, str]]:
    """By name, what a command with `-o json` does with a part, and why."""
    told = json.loads(done.stdout)["parts"]
    return {each["name"]: (each["action"], each["why"]) for each in told}


def rewrite(file: Path, document: dict[str, Any]) -> None:
    other = file.with_suffix(".new")
    other.write_text(json.dumps(document))
    other.rename(file)


def test_all_of_a_flow_goes_and_what_others_use_stays(
    secured_pair: dict[str, PlaygroundCluster], topic_name: str, tmp_path: Path
) -> None:
    """With the rights that mirror lists, a flow that its service runs is refused. Once
    the file has it no longer, all its topics, copies and ACLs are gone on both
    clusters; those of another flow between them stay, and that goes on exactly once.
    A flow under the old name then copies everything, as if for the first time.
    """
    a, b = secured_pair["a"], secured_pair["b"]
    source, target = a.admin_bootstrap, b.admin_bootstrap
    loads = {}
    for alias in ("GO", "KEEP"):
        create_topic(source, f"{topic_name}-{alias}", 2)
        loads[alias] = NumberedLoad(source, f"{topic_name}-{alias}", 2)
        loads[alias].send(100)
        allow(source, f"reader-{alias}", "READ", f"{topic_name}-{alias}")
    copies = {alias: f"{alias}.{topic_name}-{alias}" for alias in loads}
    allow(target, "writer", "WRITE", copies["GO"])
    document: dict[str, Any] = {
        "clusters": {
            alias: {"bootstrap_servers": each.bootstrap, **each.client_config}
            for alias, each in (("GO", a), ("KEEP", a), ("B", b))
        },
        "flows": {
            f"{alias}->B": {
                "topics": [f"{topic_name}-{alias}"], "tasks": 1, "lease_seconds": 2,
                "sync_topic_acls_seconds": 1, "verify": "new", **ALL,
            }
            for alias in loads
        },
        "service": {"reload_seconds": 0.2},
    }  # fmt: skip
    document["flows"]["GO->B"]["protect"] = "acl"
    before = {target: acls_of(target), source: acls_of(source)}
    for alias, bootstrap in (("GO", source), ("KEEP", source), ("B", target)):
        needed = rights(configuration(document), who=(Who.SERVICE, Who.COMMANDS))
        grant(bootstrap, [each for each in needed if each.cluster == alias])
    granted = acls_of(target)
    with RunningMirror(document, tmp_path) as mirror:
        file = tmp_path / "mirror.yaml"
        whole = json.loads(file.read_text())
        command = ("flow", "remove", "GO/B", "-c", file)
        for alias, load in loads.items():
            assert_exactly_once(
                keys_of(eventually(target, copies[alias], 100)), load.order
            )
        added = {copy: (f"reader-{alias}", copy) for alias, copy in copies.items()}

        def has_acl(principal: str, topic: str) -> bool:
            text = json.dumps(sorted(map(str, acls_of(target))))
            return principal in text and topic in text

        wait_for(lambda: all(has_acl(*each) for each in added.values()))
        wait_for(lambda: f"mirror-acls.internal" in names(target))
        mirror.wait_checkpoints("GO->B")

        refused = answered(*command, "--delete-copies", "--yes")
        assert refused.returncode == 1
        assert "runs it" in refused.stderr
        assert copies["GO"] in names(target)

        rewrite(file, whole | {"flows": {"KEEP->B": whole["flows"]["KEEP->B"]}})
        mirror.wait_until(lambda d: [f["name"] for f in d["flows"]] == ["KEEP->B"])
        there = names(source), names(target)
        shown = answered(*command, "--delete-copies", "--dry-run", "-o", "json")
        assert shown.returncode == 0, shown.stderr
        assert (names(source), names(target)) == there
        told = parts(shown)
        assert told["mm2-offset-syncs.B.internal"][0] == "stay"
        assert "KEEP->B" in told["mm2-offset-syncs.B.internal"][1]
        assert told["heartbeats"][0] == "stay"
        assert told[copies["GO"]][0] == "remove"

        done = answered(*command, "--delete-copies", "--yes", "-o", "json")
        assert done.returncode == 0, done.stderr
        gone = {name for name, (action, _) in told.items() if action == "remove"}
        wait_for(lambda: not gone & names(target))
        assert not [name for name in names(target) if "GO" in name]
        assert not [name for name in names(source) if name.startswith("mirror-")]
        assert {
            "mirror-progress.KEEP.internal", "KEEP.offset-map.internal", copies["KEEP"],
            "mirror-acls.KEEP.internal", "heartbeats", f"{topic_name}-GO",
        } <= names(source) | names(target)  # fmt: skip
        assert {"heartbeats", "mm2-offset-syncs.B.internal"} <= names(source)
        left = acls_of(target) - granted
        assert [str(each) for each in left if "GO" in str(each)] == []
        assert granted <= acls_of(target)
        assert [each for each in left if copies["KEEP"] in str(each)]
        assert acls_of(source) >= before[source]

        loads["KEEP"].send(100)
        assert_exactly_once(
            keys_of(eventually(target, copies["KEEP"], 200)), loads["KEEP"].order
        )
        mirror.assert_never_failed("KEEP->B")
        again = answered(*command, "--yes")
        assert (again.returncode, again.stdout) == (0, "")
        assert "left nothing" in again.stderr

        rewrite(file, whole)
        loads["GO"].send(50)
        assert_exactly_once(
            keys_of(eventually(target, copies["GO"], 150)), loads["GO"].order
        )
