"""Registries in switches, failovers and drills: who may register where, and when.

Real registries and brokers; the witness asks both registries over plain HTTP, as a
producer that registers does.
"""

from __future__ import annotations

import json
import socket
from typing import TYPE_CHECKING, Any

import httpx
import pytest
from typer.testing import CliRunner

from mirror.cli.main import app
from mirror.errors import MirrorError
from mirror.pairs import roles
from mirror.pairs.journal import Kind
from mirror.recovery.pending import settle_fence
from mirror.recovery.stage import Level
from mirror.schemas import modes
from mirror.schemas import sync as schemas
from mirror.schemas.claims import Before, ClaimOf, SchemaClaims
from mirror.schemas.registry.registry import Registry
from mirror.schemas.registry.values import Mode, Subject
from tests.harness.admin import create_topic
from tests.harness.application import Application
from tests.harness.drilling import Drilled
from tests.harness.load import producer
from tests.harness.registry_proxy import RegistryProxy
from tests.harness.rehearsal import Rehearsal
from tests.harness.schemas import JSON, Raw, SchemaSides, avro, ends_of
from tests.harness.switching import Switch
from tests.harness.switching import command as typed
from tests.harness.witness import read_topic

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from mirror.playground.cluster import PlaygroundCluster
    from mirror.recovery.drilling.runner import Drill
    from mirror.recovery.stage import Finding
    from tests.harness.registry_process import RegistryProcess

    Clusters = dict[str, PlaygroundCluster]

pytestmark = [pytest.mark.integration, pytest.mark.needs("registry")]


@pytest.fixture
def a(processes: tuple[RegistryProcess, RegistryProcess]) -> Raw:
    return Raw(processes[0].url)


@pytest.fixture
def b(processes: tuple[RegistryProcess, RegistryProcess]) -> Raw:
    return Raw(processes[1].url)


def takes(raw: Raw, subject: str, field: str) -> bool:
    """Whether a producer may register a version."""
    body = {"schema": avro(f"S{abs(hash(subject))}", field)}
    with httpx.Client(verify=False, timeout=60) as client:
        said = client.post(
            f"{raw.url}/subjects/{subject}/versions", json=body, headers=JSON
        )
    assert said.status_code in {200, 422}, said.text
    return said.status_code == 200


def pair(
    clusters: Clusters,
    topic: str,
    a: Raw,
    b: Raw,
    *,
    home: bool = False,
    made: Callable[..., Any] = Rehearsal,
    **more: Any,
) -> Any:
    """A pair of clusters with registries; `home`: in the other direction."""
    ends = [(f"A{topic[-6:]}", a), (f"B{topic[-6:]}", b)]
    both = [(alias, clusters[name].bootstrap)
            for (alias, _), name in zip(ends, "ab", strict=True)]  # fmt: skip
    given = {alias: {"schema_registry": {"url": raw.url}} for alias, raw in ends}
    if home:
        both.reverse()
    return made(*both, topic, clusters=given, **{"schemas": "copy", **more})


def sync(rehearsal: Rehearsal) -> None:
    """What the service's job does."""
    stage = rehearsal.stage()
    with ends_of(rehearsal.config, stage.flow, rehearsal.cluster) as ends:
        assert schemas.sync(ends).problems == ()


def copy(rehearsal: Rehearsal, one: str, other: str) -> None:
    """Ten records, from one bootstrap to the other."""
    assert Application(rehearsal.topic, 1, "app").write(one, 10)
    alias = rehearsal.stage().flow.source
    rehearsal.copy(other, f"{alias}.{rehearsal.topic}", 10)
    rehearsal.see()


def close_by_hand(rehearsal: Rehearsal, raw: Raw, subject: str, run: str = "") -> None:
    """What `mirror schema close` does of one subject, or of the whole registry; with a
    `run`, what that switch does.
    """
    flow = rehearsal.stage().reverse
    cluster = rehearsal.cluster(flow.target)
    claims = SchemaClaims(cluster, flow.source, replication_factor=1)
    given = rehearsal.config.clusters[flow.target]
    subjects, contexts = ({Subject("", subject)}, ()) if subject else ((), {""})
    with Registry(given) as registry:
        changes = modes.to_close(registry, subjects, contexts)
        assert not modes.apply(registry, claims, changes, opens=False, run=run)
    assert raw.mode(subject) == "READONLY"


def not_ready(drill: Drill) -> list[Finding]:
    return [each for each in drill.findings if each.level is Level.NOT_READY]


def test_a_switch_and_the_way_home(
    clusters: Clusters, topic_name: str, a: Raw, b: Raw
) -> None:
    """From the second step on nothing new is registered on the cluster that is left,
    neither in a subject nor in a new one; what was registered last is on the other one;
    there producers register, in subjects that mirror wrote and in new ones, once that
    cluster is active, and mirror alone does on the one that was left. On the way home
    the same happens in reverse, and every mode is what it was.
    """
    one, two = clusters["a"].bootstrap, clusters["b"].bootstrap
    for bootstrap in (one, two):
        create_topic(bootstrap, topic_name, 1)
    value, kept = f"{topic_name}-value", f"{topic_name}-key"
    assert takes(a, value, "f1")
    assert takes(a, kept, "f1")
    a.set_mode("READONLY", kept)
    refused: list[bool] = []

    def try_to_register(left: Raw) -> Callable[[], None]:
        return lambda: refused.extend(not takes(left, s, "x") for s in (value, "new"))

    with pair(clusters, topic_name, a, b) as there:
        copy(there, one, two)
        sync(there)
        assert b.mode(value) == "IMPORT"
        assert takes(a, value, "last")
        there.carry_out({"fence": try_to_register(a)})
        assert "takes no new schemas" in there.said["hold"].text
        assert "1 last schema copied" in there.said["drain"].text
        assert f"the registry of {there.stage().flow.target} is open" in (
            there.said["redirect"].text
        )
        assert not [w for done in there.said.values() for w in done.warnings]
    assert refused == [True, True]
    assert b.versions() == a.versions()
    for subject in (value, "new"):
        assert [takes(raw, subject, "after") for raw in (a, b)] == [False, True]

    with pair(clusters, topic_name, a, b, home=True) as home:
        copy(home, two, one)
        sync(home)
        assert a.versions() == b.versions()
        b.delete("new", 1)
        sync(home)
        assert a.versions() == b.versions()
        home.carry_out({"fence": try_to_register(b)})
    assert refused == [True] * 4
    for subject in (value, "new"):
        assert [takes(raw, subject, "home") for raw in (b, a)] == [False, True]
    assert a.mode() == "READWRITE"
    assert a.mode(value) is None
    assert a.mode(kept) == "READONLY"


@pytest.mark.full
@pytest.mark.parametrize("what", ["one subject", "everything"])
def test_a_switch_that_is_undone_opens_the_registry_again(
    clusters: Clusters, topic_name: str, a: Raw, b: Raw, what: str
) -> None:
    """A step fails, and producers register on the first cluster again, unless someone
    had closed its registry with `mirror schema close` before: then that stays closed,
    as does a subject that someone closed by other means, or an earlier switch.
    """
    by_command = "closed2" if what == "one subject" else ""
    one, two = clusters["a"].bootstrap, clusters["b"].bootstrap
    create_topic(one, topic_name, 1)
    a.register("o", avro("O", "a"))
    a.register("closed", avro("C", "a"))
    a.set_mode("READONLY", "closed")
    a.register("closed2", avro("D", "a"))

    def fail() -> None:
        assert not takes(a, "o", "meanwhile")
        raise MirrorError("planted")

    with pair(clusters, topic_name, a, b) as there:
        copy(there, one, two)
        close_by_hand(there, a, by_command)
        if by_command:
            a.register("closed3", avro("E", "a"))
            close_by_hand(there, a, "closed3", run="earlier")
        with pytest.raises(MirrorError, match=r"planted.*Everything was undone"):
            there.carry_out({"positions": fail})
    opens = bool(by_command)
    assert [takes(a, each, "b") for each in ("o", "new")] == [opens, opens]
    assert not takes(a, "closed", "b")
    assert not takes(a, "closed2", "b")
    assert a.mode("closed3") == ("READONLY" if by_command else None)
    copied = {("o", 1), ("closed", 1), ("closed2", 1)}
    assert b.versions().keys() - {("closed3", 1)} == copied


@pytest.mark.full
@pytest.mark.parametrize("gone", [False, True])
def test_an_aborted_failover_opens_what_a_switch_closed(
    clusters: Clusters, topic_name: str, a: Raw, b: Raw, *, gone: bool
) -> None:
    """A switch dies after it has closed A's registry, a failover takes its place and is
    aborted once A is back: producers register there again. What a person or another
    run closed stays closed, and the abort says so. Aborted while A is gone, it leaves
    that to the service that meets A again.
    """
    one, two = clusters["a"].bootstrap, clusters["b"].bootstrap
    create_topic(one, topic_name, 1)
    a.register("o", avro("O", "a"))
    for other in ("by-hand", "earlier"):
        a.register(other, avro("C", "a"))

    def die() -> None:
        raise KeyboardInterrupt

    def fail() -> None:
        raise MirrorError("planted")

    with pair(clusters, topic_name, a, b) as there:
        copy(there, one, two)
        close_by_hand(there, a, "by-hand")
        close_by_hand(there, a, "earlier", run="earlier")
        with pytest.raises(KeyboardInterrupt):
            there.carry_out({"positions": die})
        with pytest.raises(MirrorError, match=r"planted.*--abort"):
            there.carry_out({"drain": fail}, kind=Kind.FAILOVER)
        assert not takes(a, "o", "b")
        said = there.abort(Kind.FAILOVER, source=not gone)["hold"]
        stage = there.stage()
        alias = stage.flow.source
        if gone:
            assert said == f"pending, as {alias} does not answer"
            assert not takes(a, "o", "b")
            ends = there.config, stage.pair, stage.source, stage.entries
            assert not settle_fence(*ends, by="service"), "it was no fence"
            assert not roles.pending(stage.entries(), stage.pair)
        else:
            closed = f"2 subjects of the registry of {alias} stay closed"
            assert said.startswith(f"undone: {closed}")
            assert f"`mirror schema open {alias}`" in said
    assert [takes(a, each, "b") for each in ("o", "new", "by-hand", "earlier")] == [
        True, True, False, False,
    ]  # fmt: skip


@pytest.mark.full
def test_a_failover_opens_the_registry_that_is_left(
    clusters: Clusters,
    topic_name: str,
    a: Raw,
    b: Raw,
    processes: tuple[RegistryProcess, RegistryProcess],
) -> None:
    """The first cluster and its registry are gone: producers register on the other one,
    and the report says how to close the first registry once it is back.
    """
    one, two = clusters["a"].bootstrap, clusters["b"].bootstrap
    create_topic(one, topic_name, 1)
    assert takes(a, f"{topic_name}-value", "f1")
    with pair(clusters, topic_name, a, b) as there:
        copy(there, one, two)
        sync(there)
        processes[0].kill()
        there.carry_out(kind=Kind.FAILOVER)
        [warning] = there.said["hold"].warnings
        assert f"mirror schema close {there.stage().flow.source}" in warning
    assert takes(b, f"{topic_name}-value", "f2")
    assert takes(b, "new", "f2")


def left_behind(
    clusters: Clusters, topic: str, folder: Path, there: Rehearsal, number: int
) -> str:
    """A failover before a record with this id was copied; the flow with its tail."""
    one = clusters["a"].bootstrap
    copy(there, one, clusters["b"].bootstrap)
    client = producer(one)
    client.produce(topic, key=b"late", value=b"\0" + number.to_bytes(4) + b"x")
    assert not client.flush(60)
    there.see()
    there.carry_out(kind=Kind.FAILOVER)
    (folder / "mirror.yaml").write_text(json.dumps(there.document))
    flow = there.stage().flow
    return f"{flow.source}/{flow.target}"


def test_a_replay_copies_the_schemas_that_it_needs(
    clusters: Clusters, topic_name: str, tmp_path: Path, a: Raw, b: Raw
) -> None:
    """The schema of a tail's record was registered after the last turn of the flow's
    schemas: the replay copies it, and applications register in its subject afterwards.
    """
    one, two = clusters["a"].bootstrap, clusters["b"].bootstrap
    for bootstrap in (one, two):
        create_topic(bootstrap, topic_name, 1)
    value = f"{topic_name}-value"
    with pair(clusters, topic_name, a, b, schemas="require") as there:
        a.register(value, avro("V", "f1"))
        sync(there)
        late = a.register(value, avro("V", "f1", "late"))
        flow = left_behind(clusters, topic_name, tmp_path, there, late)
        assert b.text(late) is None
        typed(tmp_path, "tail", "replay", flow, "--yes")
        copied = f"{there.stage().flow.source}.{topic_name}"
    [records] = read_topic(two, copied).values()
    assert [each.key() for each in records[10:]] == [b"late"]
    assert b.text(late) == a.text(late)
    b.register(value, avro("V", "f1", "late", "after"))


@pytest.mark.parametrize("schemas", ["require", "copy"])
def test_a_replay_names_records_whose_schema_cannot_be_copied(
    clusters: Clusters, topic_name: str, tmp_path: Path, a: Raw, b: Raw, schemas: str
) -> None:
    """After the failover an application has registered another schema under the number
    that the tail's has: if the flow requires schemas the replay is refused, and writes
    nothing; else it warns.
    """
    one, two = clusters["a"].bootstrap, clusters["b"].bootstrap
    for bootstrap in (one, two):
        create_topic(bootstrap, topic_name, 1)
    value = f"{topic_name}-value"
    with pair(clusters, topic_name, a, b, schemas=schemas) as there:
        a.register(value, avro("V", "f1"))
        sync(there)
        late = a.register(value, avro("V", "f1", "late"))
        flow = left_behind(clusters, topic_name, tmp_path, there, late)
        b.register(value, avro("V", "f1", "theirs"))
        replay = Switch(tmp_path, "tail", "replay", flow, "--yes")
        fails = int(schemas == "require")
        assert replay.ends() == fails
        copied = f"{there.stage().flow.source}.{topic_name}"
    said = "".join(replay.said)
    assert f"{topic_name}-0: the record at offset 10 is" in said
    assert ("export or skip it" in said) == bool(fails)
    [records] = read_topic(two, copied).values()
    assert len(records) == 11 - fails
    b.register(value, avro("V", "f1", "theirs", "after"))


@pytest.mark.full
def test_a_registry_holds_up_no_failover(
    clusters: Clusters,
    topic_name: str,
    a: Raw,
    b: Raw,
    processes: tuple[RegistryProcess, RegistryProcess],
) -> None:
    """Without any registry the failover is through, and names the command for later."""
    one, two = clusters["a"].bootstrap, clusters["b"].bootstrap
    create_topic(one, topic_name, 1)
    with pair(clusters, topic_name, a, b) as there:
        copy(there, one, two)
        a.register("o", avro("O", "a"))
        sync(there)
        for each in processes:
            each.kill()
        there.carry_out(kind=Kind.FAILOVER)
        alias = there.stage().flow.target
        [warning] = there.said["redirect"].warnings
        assert "does not answer" in warning
        assert f"mirror schema open {alias}" in warning


@pytest.mark.full
def test_a_registry_that_hangs_holds_up_no_hook(
    clusters: Clusters, topic_name: str, tmp_path: Path
) -> None:
    """The registry of the cluster that takes over accepts and never answers:
    the hook that redirects producers is called within the step's time all the same,
    and the command for later is named.
    """
    one, two = clusters["a"].bootstrap, clusters["b"].bootstrap
    create_topic(one, topic_name, 1)
    called = tmp_path / "called"
    hooks = {"redirect_producers": {"command": ["/bin/sh", "-c", f"date >{called}"]}}
    with socket.create_server(("127.0.0.1", 0)) as silent:
        raw = Raw(f"http://127.0.0.1:{silent.getsockname()[1]}")
        with pair(clusters, topic_name, raw, raw, pair={"hooks": hooks}) as there:
            copy(there, one, two)
            flow = there.stage().flow
            claims = SchemaClaims(
                there.cluster(flow.target), flow.source, replication_factor=1
            )
            note = Before(before=None, set=Mode.IMPORT)
            claims.note({}, {(Subject("", "o"), ClaimOf.MODE): note})
            there.carry_out(kind=Kind.FAILOVER, step_seconds=15.0)
    assert called.exists()
    [warning] = there.said["redirect"].warnings
    assert "does not answer" in warning
    assert f"mirror schema open {flow.target}" in warning


@pytest.fixture
def command(clusters: Clusters, tmp_path: Path, a: Raw, b: Raw) -> Iterator[Any]:
    """Runs a command on a configuration of a flow between both registries."""
    made = SchemaSides(
        {"A": (clusters["a"].bootstrap, a.url), "B": (clusters["b"].bootstrap, b.url)},
        {"A->B": {}},
    )
    file = tmp_path / "mirror.yaml"
    file.write_text(json.dumps(made.document))

    def run(*words: str) -> Any:
        said = [made.alias.get(word, word) for word in words]
        return CliRunner().invoke(app, ["schema", *said, "-c", str(file)])

    run.sides = made
    with made:
        yield run


def test_close_and_open(command: Any, a: Raw, b: Raw) -> None:
    """The commands show and change modes, and doing them again changes nothing. Closed,
    a registry takes nothing new; open, each subject has the mode that it had, also one
    that was left in IMPORT when mirror died, and one that someone changed meanwhile
    keeps that. A deletion reaches a subject that someone closed.
    """
    a.register("o", avro("O", "a"))
    a.register("own", avro("P", "a"))
    a.set_mode("READWRITE", "own")
    shown = json.loads(command("close", "A", "--dry-run", "-o", "json").stdout)
    assert [(e["subject"], e["now"], e["then"]) for e in shown["changes"]] == [
        ("(all)", "READWRITE", "READONLY"),
        ("own", "READWRITE", "READONLY"),
    ]
    assert takes(a, "o", "b")
    for _ in range(2):
        closed = command("close", "A", "--yes")
        assert closed.exit_code == 0, closed.output
    assert not any(takes(a, each, "c") for each in ("o", "own", "new"))
    for _ in range(2):
        assert command("open", "A", "--yes").exit_code == 0
    assert all(takes(a, each, "c") for each in ("o", "own", "new"))
    assert [a.mode(each) for each in ("", "o", "own")] == ["READWRITE", None,
                                                           "READWRITE"]  # fmt: skip

    command.sides.sync()
    b.set_mode("READONLY", "o")
    a.delete("o", 1)
    command.sides.sync()
    assert b.versions() == a.versions()

    b.set_mode("READWRITE", "own")
    left = Subject("", "left")
    with command.sides.ends() as ends:
        ends.claims.note({}, {(left, ClaimOf.MODE): Before(before=None, set="IMPORT")})
        ends.target.set_mode(left, Mode.IMPORT)
    assert not takes(b, "left", "a")
    opened = command("open", "B", "--yes")
    assert opened.exit_code == 0, opened.output
    assert all(takes(b, each, "later") for each in ("o", "own", "left"))
    assert b.mode("own") == "READWRITE"

    wrong = command("open", "C")
    assert wrong.exit_code == 2
    assert 'no cluster "C"' in wrong.output
    assert "no enabled flow copies schemas from" in command("close", "B").output


def test_what_was_left_in_import_is_given_back(
    clusters: Clusters, a: Raw, b: Raw
) -> None:
    """Died after a subject was put into IMPORT, and before it got its version: once
    the flow does not copy it any more, the next turn gives it back; one that the flow
    still copies is written.
    """
    a.register("o", avro("O", "a"))
    a.register("dropped", avro("D", "a"))
    ends = {
        "A": (clusters["a"].bootstrap, a.url),
        "B": (clusters["b"].bootstrap, b.url),
    }
    with SchemaSides(ends, {"A->B": {"schemas_exclude": ["dropped"]}}) as made:
        with made.ends() as sides:
            for name in ("o", "dropped"):
                subject = Subject("", name)
                note = Before(before=None, set=Mode.IMPORT)
                sides.claims.note({}, {(subject, ClaimOf.MODE): note})
                sides.target.set_mode(subject, Mode.IMPORT)
        assert not takes(b, "dropped", "theirs")
        made.sync()
        assert takes(b, "dropped", "theirs")
        assert b.mode("dropped") is None
        assert b.mode("o") == "IMPORT"


def test_a_drill_finds_schemas_that_the_target_lacks(
    clusters: Clusters, topic_name: str, a: Raw, b: Raw
) -> None:
    """Ids of values, keys and headers in the last records are looked up on both sides:
    sound while the target has them all, and each that it lacks, or has for another
    text, is named. Other binary data is not taken for an id; what follows an id is not
    decoded, as the drill says; and topics that `schemas_topics` leaves out are not
    looked at.
    """
    one, two = clusters["a"].bootstrap, clusters["b"].bootstrap
    create_topic(one, topic_name, 2)
    ids = [
        a.register("s0", avro("S0", "a")),
        a.register("s1", '{"title": "s1"}', kind="JSON"),
        a.register("s2", 'syntax = "proto3";\nmessage S2 { }', kind="PROTOBUF"),
    ]
    with pair(clusters, topic_name, a, b, made=Drilled) as there:
        there.prepare(one, two)
        client = producer(one)
        framed = [b"\0" + number.to_bytes(4) for number in ids]
        client.produce(topic_name, key=b"k", value=framed[0] + b"\x60", partition=0)
        client.produce(topic_name, key=framed[1] + b"{", value=None, partition=1)
        client.produce(topic_name, value=b"x", partition=1,
                       headers=[("__value_schema_id", framed[2])])  # fmt: skip
        client.produce(topic_name, key=b"\0", value=b"\0\0\0\xff\xff..", partition=1)
        assert client.flush(30) == 0
        there.copy(two, there.copied, 104)
        there.round()
        sync(there)
        sound = there.drill()
        assert sound.findings == ()
        assert sound.unseen == ("contents of records: a drill does not decode them",)

        for name in ("s0", "s1", "s2"):
            b.forget(name, 1)
        b.set_mode("IMPORT", "other")
        b.ask("POST", "/subjects/other/versions",
              {"schema": avro("Other", "a"), "id": ids[1], "version": 1})  # fmt: skip
        # Beside what differs between the registries.
        found = not_ready(there.drill())
    assert {each.subject for each in found} == {f"schema {number}" for number in ids}
    reasons = sorted(each.reason for each in found)
    assert ["does not have" in each for each in reasons] == [True, True, False]
    assert "another schema" in reasons[2]
    with pair(
        clusters, topic_name, a, b, made=Drilled, schemas_topics=["other"]
    ) as there:
        assert not_ready(there.drill()) == []


@pytest.mark.full
def test_a_drill_goes_by_what_ids_mean(
    clusters: Clusters, topic_name: str, a: Raw, b: Raw
) -> None:
    """With `schemas_ids: translate` copies have the target's ids, and a drill knows by
    the map what they mean on the source: sound although other schemas have these
    numbers there. A schema is named whose reference the target does not have.
    """
    one, two = clusters["a"].bootstrap, clusters["b"].bootstrap
    create_topic(one, topic_name, 2)
    for number in range(5):
        b.register(f"theirs-{number}", avro(f"Theirs{number}", "x"))
    a.register("unused", avro("Unused", "a"))
    a.register("money", avro("Money", "currency"))
    text = json.dumps({"type": "record", "name": "P",
                       "fields": [{"name": "price", "type": "n.Money"}]})  # fmt: skip
    refers = [{"name": "n.Money", "subject": "money", "version": 1}]
    id_ = a.register("price", text, references=refers)
    with (
        RegistryProxy(b.url) as proxy,
        pair(
            clusters, topic_name, a, Raw(proxy.url), made=Drilled,
            schemas="require", schemas_ids="translate",
        ) as there,
    ):  # fmt: skip
        there.prepare(one, two)
        sync(there)
        copied = b.ask("GET", "/subjects/price/versions/1")["id"]
        assert a.text(id_) == b.text(copied) != a.text(copied)
        client = producer(one)
        client.produce(
            topic_name, value=b"\0" + id_.to_bytes(4) + b"\2\2x", partition=0
        )
        assert client.flush(30) == 0
        there.copy(two, there.copied, 101)
        there.round()
        last = read_topic(two, there.copied)[0][-1].value()
        assert last == b"\0" + copied.to_bytes(4) + b"\2\2x"
        assert there.drill().findings == ()

        gone = {"status": 404, "body": b'{"error_code": 40401, "message": "gone"}'}
        with proxy.fault(**gone, path="/subjects/money"):
            [found] = there.drill().findings
    assert (found.level, found.subject) == (Level.NOT_READY, f"schema {copied}")
    assert "not money version 1, which it needs" in found.reason
    assert found.command.endswith(f"--id {id_}")
