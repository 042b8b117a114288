"""`mirror flow remove`: what a flow keeps goes from both clusters; the rest stays.

Witnesses are AdminClient and consumers of confluent-kafka.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from confluent_kafka.admin import AdminClient
import pytest

from mirror.checks.permissions.rights import rights
from mirror.checks.permissions.table import Who
from mirror.clusters.reach import Reach
from mirror.config.load import load
from mirror.errors import MirrorError
from mirror.schemas.claims import Before, ClaimOf, SchemaClaims
from mirror.schemas.registry.values import Mode, Subject
from mirror.service import removing
from mirror.service.removing import Removal
from tests.harness.admin import create_topic, delete_topic
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
    from collections.abc import Callable
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
        wait_for(lambda: "mirror-acls.internal" in names(target))
        mirror.wait_checkpoints("GO->B")

        refused = answered(*command, "--delete-copies", "--yes")
        assert refused.returncode == 1
        assert "runs it" in refused.stderr
        assert copies["GO"] in names(target)

        rewrite(file, whole | {"flows": {"KEEP->B": whole["flows"]["KEEP->B"]}})
        mirror.wait_until(lambda d: [f["name"] for f in d["flows"]] == ["KEEP->B"])
        there = names(source), names(target)
        dry = (*command, "--delete-copies", "--dry-run", "-o", "json")
        wait_for(lambda: answered(*dry).returncode == 0)  # its group hears of it
        shown = answered(*dry)
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
        assert again.returncode == 0
        assert "left nothing" in again.stderr

        rewrite(file, whole)
        loads["GO"].send(50)
        assert_exactly_once(
            keys_of(eventually(target, copies["GO"], 150)), loads["GO"].order
        )


def alone(
    clusters: dict[str, PlaygroundCluster], alias: str, topic: str, **settings: Any
) -> tuple[dict[str, Any], str, str]:
    """A flow of one topic, and the addresses of its clusters. The other alias is also
    the test's own: offset syncs have its name.
    """
    a, b = clusters["a"].bootstrap, clusters["b"].bootstrap
    create_topic(a, topic)
    document = {
        "clusters": {
            alias: {"bootstrap_servers": a}, f"{alias}-T": {"bootstrap_servers": b},
        },
        "flows": {
            f"{alias}->{alias}-T": {
                "topics": [topic], "tasks": 1, "lease_seconds": 2,
                "emit_heartbeats": False, "heartbeats_replication": False, **settings,
            }
        },
        "service": {"group": f"g-{alias}"},
    }  # fmt: skip
    return document, a, b


def kept(bootstrap: str, alias: str) -> set[str]:
    """What is there of flows from a source."""
    return {each for each in names(bootstrap) if alias in each.split(".")}


@pytest.mark.full
def test_a_removal_goes_on_wherever_it_was_killed(
    make_clusters: Callable[..., dict[str, PlaygroundCluster]],
    topic_name: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Killed before each request that changes something, and run again: in between no
    service can run the flow, and makes nothing; at the end nothing is left, and a
    service copies everything, as if for the first time.
    """
    monkeypatch.setattr(removing, "_WATCH_SECONDS", 0.0)  # there is no service
    document, a, b = alone(make_clusters(), "KILL", topic_name, **ALL)
    before = names(a), names(b)
    load_ = NumberedLoad(a, topic_name, 1)
    load_.send(100)
    service = RunningMirror(document, tmp_path, once=True)
    assert service.launch().wait() == 0, service.log_tail()
    assert {"heartbeats", "mm2-offset-syncs.KILL-T.internal"} <= names(a)
    whole = names(b)
    assert _of_flow("KILL", topic_name) | {"heartbeats"} <= whole
    words = ("flow", "remove", "KILL/KILL-T", "--delete-copies", "--yes")
    tried, at = False, 1
    while dies(tmp_path, *words, at=at):
        at += 1
        if not tried and len(left := names(b)) < len(whole):
            tried = True
            assert service.launch().wait() == 1
            assert "mirror flow remove" in service.log_tail(400)
            assert names(b) == left
    assert tried
    assert at > len(_of_flow("KILL", topic_name))
    known = {name for name in names(b) if not name.startswith("__")}
    assert (names(a) - {"__consumer_offsets"}, known) == before
    assert service.launch().wait() == 0, service.log_tail()
    assert_exactly_once(keys_of(eventually(b, f"KILL.{topic_name}", 100)), load_.order)


def _of_flow(alias: str, topic: str) -> set[str]:
    kinds = ("progress", "losses", "standby")
    return {
        *(f"mirror-{kind}.{alias}.internal" for kind in kinds),
        *(f"{alias}.{name}" for name in ("offset-map.internal", topic)),
    }


def test_a_service_that_starts_meanwhile_keeps_its_flow(
    clusters: dict[str, PlaygroundCluster], topic_name: str, tmp_path: Path
) -> None:
    """A service that starts between the look and the removal keeps everything: the
    removal is refused, and the flow goes on exactly once.
    """
    document, a, b = alone(clusters, "RACE", topic_name)
    load_ = NumberedLoad(a, topic_name, 1)
    load_.send(50)
    with RunningMirror(document, tmp_path) as service:
        eventually(b, f"RACE.{topic_name}", 50)
        service.terminate()
        config, _ = load(tmp_path / "mirror.yaml")
        flow = config.flows["RACE->RACE-T"]
        with Reach(config.clusters, client_id="test") as reach:
            ends = reach(flow.source), reach(flow.target)
            removal = Removal(config, flow, *ends, copies=True)
            assert removal.runs_at() == ""
            found = removal.look()
            before = kept(b, "RACE")
            service.start()
            service.wait_running()
            with pytest.raises(MirrorError, match="nothing was changed"):
                removal.remove(found)
        assert before <= kept(b, "RACE")
        load_.send(50)
        assert_exactly_once(
            keys_of(eventually(b, f"RACE.{topic_name}", 100)), load_.order
        )


@pytest.mark.parametrize("once", [True, False])
def test_a_service_of_no_group_is_noticed(
    clusters: dict[str, PlaygroundCluster], topic_name: str, tmp_path: Path, once: bool
) -> None:
    """A service without a group shows by what it writes, also to a command with another
    file; after it has ended, the flow is taken away, and its copies stay. That is so
    without exactly-once, too.
    """
    alias = f"LONE{once}"
    document, a, b = alone(
        clusters, alias, topic_name, separator="-", exactly_once=once
    )
    document["service"] = {"group": None}
    load_ = NumberedLoad(a, topic_name, 1)
    load_.send(10)
    other = tmp_path / "other.yaml"
    elsewhere = {**document, "flows": {f"{alias}-T->{alias}": {"topics": ["none-.*"]}}}
    other.write_text(json.dumps(elsewhere))
    words = ("flow", "remove", f"{alias}/{alias}-T", "--yes", "-c", other)
    copy = f"{alias}-{topic_name}"
    with RunningMirror(document, tmp_path) as service:
        eventually(b, copy, 10)
        refused = answered(*words)
        assert refused.returncode == 1
        assert f"mirror-standby.{alias}.internal" in refused.stderr
        service.assert_never_failed()
    done = answered(*words)
    assert done.returncode == 0, done.stderr
    left = {each for each in names(b) if alias in each}
    assert left == {copy}
    assert sum(map(len, keys_of(eventually(b, copy, 10)).values())) == 10


@pytest.mark.parametrize("policy", ["default", "identity"])
def test_what_is_not_surely_the_flows_stays(
    clusters: dict[str, PlaygroundCluster], topic_name: str, tmp_path: Path, policy: str
) -> None:
    """Topics of MirrorMaker 2 stay where no flow has run. Of a flow that has, a copy
    stays that somebody has made again, and every copy of policy identity.
    """
    alias = f"SURE{policy[:2]}"
    document, a, b = alone(clusters, alias, topic_name, policy=policy)
    service = RunningMirror(document, tmp_path, once=True)
    create_topic(b, f"{alias}.checkpoints.internal", cleanup_policy="compact")
    words = ("flow", "remove", f"{alias}/{alias}-T", "-c", tmp_path / "mirror.yaml")
    gone = answered(*words, "--yes", "-o", "json")
    assert gone.returncode == 0, gone.stderr
    assert parts(gone)[f"{alias}.checkpoints.internal"][0] == "stay"
    NumberedLoad(a, topic_name, 1).send(10)
    assert service.launch().wait() == 0, service.log_tail()
    copy = topic_name if policy == "identity" else f"{alias}.{topic_name}"
    if policy == "default":
        delete_topic(b, copy)
        create_topic(b, copy)
        NumberedLoad(b, copy, 1).send(1)
    done = answered(*words, "--delete-copies", "--yes", "-o", "json")
    assert done.returncode == 0, done.stderr
    why = "policy identity" if policy == "identity" else "not the topic that"
    assert why in parts(done)[copy][1]
    assert {each for each in names(b) if alias in each} | {copy} == {copy}
    assert {copy} <= names(b)


def test_a_source_that_is_gone_is_left_on_request(
    clusters: dict[str, PlaygroundCluster], topic_name: str, tmp_path: Path
) -> None:
    """While the source does not answer, or its alias is another cluster, nothing is
    changed; with --without-source all on the target goes, and nothing on the source.
    """
    document, a, b = alone(clusters, "AWAY", topic_name, emit_offset_syncs=True)
    NumberedLoad(a, topic_name, 1).send(10)
    service = RunningMirror(document, tmp_path, once=True)
    assert service.launch().wait() == 0, service.log_tail()
    syncs = "mm2-offset-syncs.AWAY-T.internal"
    before = kept(b, "AWAY")
    other = b.replace("127.0.0.1", "localhost")
    for address, said in (("127.0.0.1:1", "127.0.0.1:1"), (other, "--without-source")):
        document["clusters"]["AWAY"]["bootstrap_servers"] = address
        rewrite(tmp_path / "mirror.yaml", document)
        words = ("flow", "remove", "AWAY/AWAY-T", "-y", "-c", tmp_path / "mirror.yaml")
        refused = answered(*words)
        assert refused.returncode == 1
        assert said in refused.stderr
        assert kept(b, "AWAY") == before
    done = answered(*words, "--without-source")
    assert done.returncode == 0, done.stderr
    assert kept(b, "AWAY") == {f"AWAY.{topic_name}"}
    assert syncs in names(a)


def test_former_modes_of_subjects_are_not_forgotten(
    clusters: dict[str, PlaygroundCluster], topic_name: str, tmp_path: Path
) -> None:
    """What says which modes the subjects of a registry had stays until these have them
    back, and the command names what gives them back; then it goes.
    """
    document, a, b = alone(clusters, "MODE", topic_name)
    NumberedLoad(a, topic_name, 1).send(10)
    service = RunningMirror(document, tmp_path, once=True)
    assert service.launch().wait() == 0, service.log_tail()
    config, _ = load(tmp_path / "mirror.yaml")
    words = ("flow", "remove", "MODE/MODE-T", "-y", "-c", tmp_path / "mirror.yaml")
    place = Subject(".", "orders-value"), ClaimOf.MODE
    with Reach(config.clusters, client_id="test") as reach:
        claims = SchemaClaims(reach("MODE-T"), "MODE", replication_factor=1)
        claims.note({}, {place: Before(before=None, set=Mode.IMPORT)})
        done = answered(*words)
        assert done.returncode == 0, done.stderr
        assert "mirror schema open MODE-T" in done.stdout
        notes = "mirror-schemas.MODE.internal"
        assert kept(b, "MODE") == {f"MODE.{topic_name}", notes}
        claims.note({}, {place: Before(before=None, set=None)})
        assert answered(*words).returncode == 0
        assert kept(b, "MODE") == {f"MODE.{topic_name}"}
