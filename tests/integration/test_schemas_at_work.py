"""Schemas as users meet them: in a running service, and through the commands.

Two real registries, real brokers, and a witness that reads registries by plain HTTP.
"""

from __future__ import annotations

import json
import struct
import time
from typing import TYPE_CHECKING, Any
import uuid

import httpx
import pytest
from typer.testing import CliRunner

from mirror.checks.check import check
from mirror.checks.finding import State
from mirror.checks.plan import plan
from mirror.cli.main import app
from mirror.status.states import SchemaState
from tests.harness import registries
from tests.harness.admin import create_topic
from tests.harness.counters import counter
from tests.harness.load import producer, send
from tests.harness.registry_process import apicurio
from tests.harness.registry_proxy import RegistryProxy
from tests.harness.schemas import Raw, SchemaSides, avro
from tests.harness.service import config_for
from tests.harness.waiting import PATIENCE_SECONDS, wait_for
from tests.harness.witness import eventually

if TYPE_CHECKING:
    from pathlib import Path

    from click.testing import Result

    from mirror.playground.cluster import PlaygroundCluster
    from tests.harness.registry_process import RegistryProcess
    from tests.harness.service import RunningMirror
    from tests.harness.standing import StandingMirror

    Clusters = dict[str, PlaygroundCluster]

pytestmark = [pytest.mark.integration, pytest.mark.needs("registry")]


def test_a_service_keeps_them_in_step(
    clusters: Clusters,
    standing: StandingMirror,
    processes: tuple[RegistryProcess, RegistryProcess],
) -> None:
    """What is registered while a service runs is on the target a look later; while the
    target's registry is down the job says so and records flow; a registry that comes
    back empty is filled; a conflict is in the status and on the page, and settles once
    it is gone.
    """
    a, b = Raw(processes[0].url), Raw(processes[1].url)
    mark = uuid.uuid4().hex[:6]
    one, other = f"A{mark}", f"B{mark}"
    config = config_for(
        clusters["a"].bootstrap,
        clusters["b"].bootstrap,
        topics=[f"schemas-{mark}.*"],
        tasks=1,
        schemas="copy",
        schemas_seconds=1,
    )
    config["clusters"] = {
        one: {**config["clusters"]["A"], "schema_registry": {"url": a.url}},
        other: {**config["clusters"]["B"], "schema_registry": {"url": b.url}},
    }
    config["flows"] = {f"{one}->{other}": config["flows"]["A->B"]}
    a.register("o", avro("O", "a"))
    with standing.hosting(config) as mirror:
        mirror.wait_until(lambda s: s["flows"][0]["schemas"]["versions_copied"] == 1)
        a.register("o", avro("O", "b"))
        wait_for(lambda: b.versions() == a.versions())

        processes[1].kill()
        failed = mirror.wait_until(
            lambda s: _error(s) and s["flows"][0]["schemas"]["request_failures"]
        )
        assert processes[1].url in _error(failed)
        processes[1].start()
        wait_for(lambda: b.versions() == a.versions())
        mirror.wait_until(lambda s: not _error(s))

        b.set_mode("IMPORT", "theirs")
        b.ask("POST", "/subjects/theirs/versions",
              {"schema": avro("T"), "id": 3, "version": 1})  # fmt: skip
        a.register("p", avro("P", "a"))
        status = mirror.wait_until(
            lambda s: s["flows"][0]["schemas"]["states"].get(SchemaState.CONFLICT) == 1
        )
        [subject] = status["flows"][0]["schemas"]["subjects"]
        assert "theirs version 1" in subject["reason"]
        shown = httpx.get(
            f"{mirror.url}/flow",
            params={"flow": f"{one}->{other}"},
            timeout=PATIENCE_SECONDS,
        ).text
        assert f"theirs version 1 on {other}" in shown
        assert _counted(mirror, "subjects", state="CONFLICT") == 1
        assert _counted(mirror, "subjects", state="SYNCED") == 1
        schemas = status["flows"][0]["schemas"]
        assert _counted(mirror, "versions_copied_total") == schemas["versions_copied"]
        assert _counted(mirror, "request_failures_total") > 0
        assert time.time() - _counted(mirror, "sync_timestamp_seconds") < 60
        b.delete("theirs", 1)
        b.ask("DELETE", "/subjects/theirs/versions/1", permanent="true")
        wait_for(lambda: b.versions() == a.versions())
        mirror.wait_until(lambda s: not s["flows"][0]["schemas"]["subjects"])


def test_a_service_holds_records_back(
    clusters: Clusters,
    standing: StandingMirror,
    processes: tuple[RegistryProcess, RegistryProcess],
) -> None:
    """With `schemas: require` a service's records wait while the target's registry is
    down: status and metrics tell of the partition and the schema; then it is copied,
    and a record with an id that neither registry knows is copied and counted.
    """
    a, b = Raw(processes[0].url), Raw(processes[1].url)
    mark = uuid.uuid4().hex[:6]
    one, other, topic = f"A{mark}", f"B{mark}", f"required-{mark}"
    create_topic(clusters["a"].bootstrap, topic, 1)
    config = config_for(
        clusters["a"].bootstrap,
        clusters["b"].bootstrap,
        topics=[topic],
        tasks=1,
        schemas="require",
        schemas_seconds=600,
    )
    config["clusters"] = {
        one: {**config["clusters"]["A"], "schema_registry": {"url": a.url}},
        other: {**config["clusters"]["B"], "schema_registry": {"url": b.url}},
    }
    config["flows"] = {f"{one}->{other}": config["flows"]["A->B"]}
    with standing.hosting(config) as mirror:
        mirror.wait_until(lambda s: s["flows"][0]["schemas"]["synced_at"] > 0)
        processes[1].kill()
        number = a.register("o-value", avro("O", "a"))
        value = struct.pack(">bI", 0, number) + b"content"
        send(producer(clusters["a"].bootstrap), topic, {0: [b"k"]}, value)
        status = mirror.wait_until(
            lambda s: any(p["state"] == "FAULTED" for p in s["flows"][0]["partitions"])
        )
        [held] = [
            p for p in status["flows"][0]["partitions"] if p["state"] == "FAULTED"
        ]
        assert held["topic"] == topic
        assert held["reason"].startswith(f"schema {number} of o-value")
        wait_for(lambda: _counted(mirror, "waiting_partitions") == 1)
        processes[1].start()
        [copied] = eventually(clusters["b"].bootstrap, f"{one}.{topic}", 1)[0]
        assert copied.value() == value
        strange = struct.pack(">bI", 0, 1 << 30) + b"binary"
        send(producer(clusters["a"].bootstrap), topic, {0: [b"k"]}, strange)
        found = eventually(clusters["b"].bootstrap, f"{one}.{topic}", 2)[0]
        assert [each.value() for each in found] == [value, strange]
        wait_for(lambda: _counted(mirror, "unknown_ids_total", topic=topic) == 1)
        wait_for(lambda: _counted(mirror, "waiting_partitions") == 0)
    assert b.versions() == a.versions()


def _counted(mirror: RunningMirror, name: str, **labels: str) -> float:
    return counter(mirror, f"mirror_schema_{name}", **labels)


def _error(status: dict[str, Any]) -> str:
    jobs = {job["name"]: job["error"] for job in status["flows"][0]["jobs"]}
    return str(jobs.get("schemas", ""))


@pytest.fixture
def command(
    clusters: Clusters,
    tmp_path: Path,
    processes: tuple[RegistryProcess, RegistryProcess],
) -> Any:
    """Runs a command on a configuration of a flow between both registries."""
    made = SchemaSides(
        {
            "A": (clusters["a"].bootstrap, processes[0].url),
            "B": (clusters["b"].bootstrap, processes[1].url),
        },
        {"A->B": {"topics": ["none-of-these"], "emit_heartbeats": False,
                  "heartbeats_replication": False}},
    )  # fmt: skip
    file = tmp_path / "mirror.yaml"
    file.write_text(json.dumps(made.document))

    def run(*words: str) -> Result:
        ends = [made.alias.get(word, word) for word in words]
        return CliRunner().invoke(app, [*ends, "-c", str(file)])

    return run


def test_commands(
    command: Any, processes: tuple[RegistryProcess, RegistryProcess]
) -> None:
    """list, plan, compare and check show what is missing and change nothing; sync asks,
    writes once and is then content; trace shows both texts; an unknown subject is the
    user's mistake.
    """
    a, b = Raw(processes[0].url), Raw(processes[1].url)
    a.register("base", avro("Base", "x"))
    a.register("o", avro("O", "a"))
    number = a.register("o", avro("O", "b"))

    listed = command("schema", "list")
    assert listed.exit_code == 0, listed.output
    assert "0/2" in listed.output
    assert SchemaState.PENDING in listed.output
    planned = command("plan")
    assert planned.output.count("register schema") == 3, planned.output
    compared = command("compare", "A", "B")
    assert compared.exit_code == 1
    assert "0 of 2" in compared.output
    checked = command("check")
    assert "3 to write now" in checked.output, checked.output
    shown = json.loads(command("schema", "sync", "--dry-run", "-o", "json").stdout)
    assert [each["change"] for each in shown["changes"]] == ["register"] * 3
    assert b.versions() == {}

    refused = command("schema", "sync", "bse", "--yes")
    assert refused.exit_code == 2
    assert 'did you mean "base"' in refused.output
    some = command("schema", "sync", "base", "--yes")
    assert some.exit_code == 0, some.output
    assert b.subjects() == ["base"]
    assert command("schema", "sync", "--yes").exit_code == 0
    assert b.versions() == a.versions()
    assert "register schema" not in command("plan").output
    compared = command("compare", "A", "B")
    assert not [x for x in compared.output.splitlines() if x.startswith("schema ")]

    checked = command("check")
    assert "0 to write now" in checked.output, checked.output
    assert b.versions() == a.versions()

    traced = command("schema", "trace", "--id", str(number))
    assert traced.exit_code == 0, traced.output
    assert traced.output.count(a.text(number)) == 2
    assert command("schema", "trace", "--id", "4711").exit_code == 1


def found_by_check(clusters: Clusters, a: str, b: str) -> list[tuple[State, str]]:
    """What `check` says of the schemas of a flow between these registries."""
    made = SchemaSides(
        {"A": (clusters["a"].bootstrap, a), "B": (clusters["b"].bootstrap, b)},
        {"A->B": {"topics": ["none-of-these"], "emit_heartbeats": False}},
    )
    with made:
        found = check(made.config).findings
        return [(e.state, e.detail) for e in found if e.check == "schemas"]


def test_check_finds_one_registry_under_two_addresses(
    clusters: Clusters, processes: tuple[RegistryProcess, RegistryProcess]
) -> None:
    """A mode that is set through one address is there through the other one. Nothing is
    left of the trial.
    """
    a = Raw(processes[0].url)
    a.register("o", avro("O", "a"))
    before = a.versions()
    with RegistryProxy(a.url) as proxy:
        [(state, said)] = found_by_check(clusters, a.url, proxy.url)
        [tried] = {each.rpartition("/")[2] for each in proxy.asked if "PUT" in each}
    assert state is State.FAIL
    assert "have one registry under two addresses" in said
    assert a.mode(tried) is None
    assert a.versions() == before


def test_check_finds_registries_that_cannot_be_used_or_may_be_written_to(
    clusters: Clusters,
    processes: tuple[RegistryProcess, RegistryProcess],
    tmp_path: Path,
) -> None:
    """A registry that does not answer, and one that wants a login which mirror does not
    have, are named with what to look at; so is a target on which others may register.
    """
    a, b = (Raw(each.url) for each in processes)
    a.register("o", avro("O", "a"))
    said = found_by_check(clusters, a.url, b.url)
    assert [state for state, _ in said] == [State.WARN, State.OK]
    assert "is in mode READWRITE" in said[0][1]
    b.set_mode("READONLY")
    assert [state for state, _ in found_by_check(clusters, a.url, b.url)] == [State.OK]
    b.set_mode("READWRITE")

    first = {"enabled": True, "username": "mirror", "password": "secret"}
    auth = {"enabled": True, "methods": ["basic"], "bootstrap": first}
    with registries.axonops_here(tmp_path / "closed", auth=auth) as closed:
        [(state, text)] = found_by_check(clusters, closed.url, b.url)
        assert state is State.FAIL
        assert "it asks for a login" in text
        gone = closed.url
    [(state, text)] = found_by_check(clusters, a.url, gone)
    assert state is State.FAIL
    assert gone in text


def test_a_plan_says_that_batches_are_unpacked(
    clusters: Clusters, processes: tuple[RegistryProcess, RegistryProcess]
) -> None:
    """A flow that copies byte for byte pays for the barrier, and not with `copy`."""
    ends = {
        alias: (clusters[name].bootstrap, process.url)
        for alias, name, process in zip("AB", "ab", processes, strict=True)
    }
    for mode, unpacks in (("require", True), ("copy", False)):
        flow = {"topics": ["none-of-these"], "emit_heartbeats": False,
                "provenance": False, "schemas": mode}  # fmt: skip
        with SchemaSides(ends, {"A->B": flow}) as made:
            notes = plan(made.config).notes
        assert any("unpacks all batches" in each for each in notes) is unpacks


def test_check_finds_a_registry_that_chooses_ids(
    clusters: Clusters, processes: tuple[RegistryProcess, RegistryProcess]
) -> None:
    """It answers with another id than it was given, or refuses the write; the message
    says UNSUPPORTED, and the subject that was tried is removed.
    """
    a, b = (Raw(each.url) for each in processes)
    a.register("o", avro("O", "a"))
    with RegistryProxy(b.url) as proxy:
        for fault, why in (
            ({"status": 422, "method": "POST"}, "is refused"),
            ({"status": 200, "method": "POST", "body": b'{"id": 7}'}, "chooses ids"),
        ):
            with proxy.fault(**fault):
                [(state, said)] = found_by_check(clusters, a.url, proxy.url)
            assert state is State.FAIL
            assert "UNSUPPORTED" in said
            assert why in said
        assert b.versions() == {}
        assert {State.FAIL} & {
            e[0] for e in found_by_check(clusters, a.url, b.url)
        } == (set())


@pytest.mark.full
def test_check_finds_a_registry_without_modes(
    clusters: Clusters,
    processes: tuple[RegistryProcess, RegistryProcess],
    tmp_path: Path,
) -> None:
    """Apicurio cannot be a target, and can be a source."""
    Raw(processes[0].url).register("o", avro("O", "a"))
    with apicurio(tmp_path / "apicurio") as process:
        [(state, said)] = found_by_check(clusters, processes[0].url, process.url)
        assert state is State.FAIL
        assert "UNSUPPORTED" in said
        assert Raw(process.url).subjects() == []
        back = found_by_check(clusters, process.url, processes[0].url)
        assert State.FAIL not in {state for state, _ in back}
