"""Schemas follow into registries that choose ids themselves: Apicurio's, and axonops'
with ids already taken.

The registries are processes, the map is a topic of a real cluster which an ordinary
consumer reads, and the witness asks both registries over plain HTTP.
"""

from __future__ import annotations

from dataclasses import replace
import json
import signal
import subprocess
import sys
from typing import TYPE_CHECKING, Any

import pytest
from typer.testing import CliRunner

from mirror.cli.main import app
from mirror.schemas import modes
from mirror.schemas.claims import topic_name, translations
from mirror.schemas.ids import IdSettler
from mirror.schemas.registry.values import Subject
from mirror.schemas.sync import look, sync
from mirror.status.states import SchemaState
from tests.harness.registries import axonops_here
from tests.harness.registry_process import apicurio
from tests.harness.registry_proxy import RegistryProxy
from tests.harness.schemas import RESERVED, Raw, SchemaSides, avro, reason, states
from tests.harness.witness import read_topic

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator
    from pathlib import Path

    from click.testing import Result

    from mirror.playground.cluster import PlaygroundCluster
    from mirror.schemas.ids import SettledId
    from tests.harness.registry_process import RegistryProcess

    Clusters = dict[str, PlaygroundCluster]

pytestmark = [pytest.mark.integration, pytest.mark.needs("registry")]

TRANSLATE = {"schemas": "require", "schemas_ids": "translate"}
TAKEN = 50
MONEY = json.dumps({"type": "record", "name": "P",
                    "fields": [{"name": "price", "type": "n.Money"}]})  # fmt: skip


@pytest.fixture
def a(tmp_path: Path) -> Iterator[Raw]:
    with axonops_here(tmp_path / "a") as process:
        yield Raw(process.url)


@pytest.fixture(params=["axonops", pytest.param("apicurio", marks=pytest.mark.full)])
def b(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Raw]:
    """In which the first ids mean something else."""
    make = apicurio if request.param == "apicurio" else axonops_here
    with make(tmp_path / "b") as process:
        raw = Raw(process.url)
        for number in range(TAKEN):
            raw.register(f"theirs-{number}", avro(f"Theirs{number}", "x"))
        if request.param == "axonops":  # Apicurio's would hold in all subjects
            raw.set_level("FULL")
        yield raw


def sides(clusters: Clusters, a: Raw, b: Raw, **settings: Any) -> SchemaSides:
    return SchemaSides(
        {"A": (clusters["a"].bootstrap, a.url), "B": (clusters["b"].bootstrap, b.url)},
        {"A->B": {**TRANSLATE, **settings}},
    )


def evolve(raw: Raw) -> None:
    """Three languages, nested references, one text in two subjects, incompatible
    versions and deletes: with the holes, version numbers differ on the target.
    """
    raw.set_level("NONE", "t-value")
    for version in range(1, 5):
        raw.register("t-value", avro("T", *(f"f{n}" for n in range(version))))
    raw.register("t-value", '{"type":"record","name":"T","namespace":"n",'
                            '"fields":[{"name":"other","type":"int"}]}')  # fmt: skip
    raw.set_level("FULL", "t-value")
    raw.register("money", avro("Money", "gone"))
    raw.forget("money", 1)
    raw.register("money", avro("Money", "currency"))
    refers = [{"name": "n.Money", "subject": "money", "version": 2}]
    raw.register("a-price", MONEY, references=refers)
    raw.register("b-price", MONEY, references=refers)
    raw.register("j-value", '{"$schema": "http://json-schema.org/draft-07/schema#", '
                 '"type": "object",  "properties": {"a": {"type": "string"}}}',
                 kind="JSON")  # fmt: skip
    raw.register_imports()
    raw.delete("t-value", 2)


def map_of(made: SchemaSides, bootstrap: str) -> dict[str, dict[str, Any]]:
    """As a consumer finds it, the last record of each key."""
    found = {}
    for messages in read_topic(bootstrap, topic_name(made.alias["A"])).values():
        for each in messages:
            found[each.key().decode()] = json.loads(each.value())
    return {
        key: said
        for key, said in found.items()
        if "target_id" in said and RESERVED not in key
    }


def check_map(
    made: SchemaSides,
    bootstrap: str,
    a: Raw,
    b: Raw,
    states: Collection[str] = frozenset({"copied"}),
) -> None:
    """Each version of the source is in it once, and under the target's id there is its
    text, of its type, with what it refers to.
    """
    found = map_of(made, bootstrap)
    versions = a.versions()
    assert found.keys() == {f"/{name}/{number}" for name, number in versions}
    for (name, number), (own, kind, text, references, _) in versions.items():
        said = found[f"/{name}/{number}"]
        assert said["id"] == own
        assert said["state"] in states
        there = b.ask("GET", f"/schemas/ids/{said['target_id']}")
        assert (there["schema"], there.get("schemaType", "AVRO")) == (text, kind)
        meant = {
            each["name"]: b.ask(
                "GET", f"/subjects/{each['subject']}/versions/{each['version']}"
            )["schema"]
            for each in there.get("references") or ()
        }
        assert meant == {ref: versions[subject, n][2] for ref, subject, n in references}


def theirs(b: Raw) -> dict[tuple[str, int], tuple[Any, ...]]:
    return {key: v for key, v in b.versions().items() if key[0].startswith("theirs")}


def test_the_target_chooses(clusters: Clusters, a: Raw, b: Raw) -> None:
    """Every text is on the target under an id of the target's, and the map says which;
    a second round writes nothing, later versions follow, levels are the source's, and
    subjects of others are as they were.
    """
    evolve(a)
    before = theirs(b)
    with sides(clusters, a, b) as made:
        looked = made.look()
        assert len(looked.writes) == len(a.versions())
        first = made.sync()
        assert set(states(first).values()) == {SchemaState.SYNCED}, first.problems
        assert all(each.there == each.versions for each in first.subjects)
        check_map(made, clusters["b"].bootstrap, a, b)
        assert all(
            said["target_id"] > said["id"]
            for said in map_of(made, clusters["b"].bootstrap).values()
        )
        assert b.level("t-value") == "FULL"

        again = made.sync()
        assert again.writes == again.levels == ()
        assert not any(each.reason for each in again.subjects), again.subjects

        a.register("t-value", '{"type":"record","name":"T","namespace":"n","fields":'
                   '[{"name":"other","type":"int"},'
                   '{"name":"more","type":"int","default":0}]}')  # fmt: skip
        a.set_level("NONE", "t-value")
        a.register("t-value", '{"type":"record","name":"T","namespace":"n","fields":'
                   '[{"name":"third","type":"int"}]}')  # fmt: skip
        a.set_level("FULL", "t-value")
        later = made.sync()
        written = [str(each.version.full_subject) for each in later.writes]
        assert written == ["t-value", "t-value"], later.problems
        check_map(made, clusters["b"].bootstrap, a, b)
        assert b.level("t-value") == "FULL"
        assert theirs(b) == before


@pytest.mark.parametrize("step", [4, pytest.param(1, marks=pytest.mark.full)])
def test_killed_at_each_point_and_run_again(
    clusters: Clusters, a: Raw, b: Raw, step: int
) -> None:
    """Cut off before every n-th request to the target, also between registration and
    note, then run again: the map is whole, no version is on the target twice, and no
    subject is left with the level that takes anything.
    """
    before = theirs(b)
    with sides(clusters, a, b) as made:
        for cut in range(1, 40, step):
            a.set_level("NONE", f"s{cut}")
            a.register(f"s{cut}", avro(f"S{cut}", "a"))
            a.register(f"s{cut}", f'{{"type":"record","name":"S{cut}",'
                                  '"fields":[{"name":"b","type":"int"}]}')  # fmt: skip
            a.set_level("FULL", f"s{cut}")
            if not made.is_cut_off(cut):
                break
        found = made.sync()
        assert set(states(found).values()) == {SchemaState.SYNCED}, found.problems
        check_map(made, clusters["b"].bootstrap, a, b)
        assert {key: text for key, (_, _, text, *_) in b.versions().items()} == {
            key: text for key, (_, _, text, *_) in {**a.versions(), **before}.items()
        }
        names = {name for name, _ in a.versions()}
        assert {b.level(name) for name in names} == {"FULL"}


@pytest.mark.full
def test_a_process_killed_between_registration_and_note(
    clusters: Clusters, a: Raw, b: Raw, tmp_path: Path
) -> None:
    """SIGKILL right after the target has registered a version: the claim says that it
    was about to, and the next run gets the same id for the same text.
    """
    a.register("o-value", avro("O", "a"))
    with RegistryProxy(b.url) as proxy, sides(clusters, a, Raw(proxy.url)) as made:
        file = tmp_path / "mirror.yaml"
        file.write_text(json.dumps(made.document))
        process = subprocess.Popen(
            [sys.executable, "-m", "mirror", "schema", "sync", "--yes", "-c", file],
            stdout=subprocess.DEVNULL,
        )
        with proxy.watched("POST /subjects/", process.kill, forwarded=True):
            assert process.wait(120) == -signal.SIGKILL
        claimed = map_of(made, clusters["b"].bootstrap)["/o-value/1"]
        assert (claimed["state"], claimed["target_id"]) == ("claimed", -1)
        given = b.versions()["o-value", 1][0]
        made.sync()
        check_map(made, clusters["b"].bootstrap, a, b)
        copied = map_of(made, clusters["b"].bootstrap)["/o-value/1"]
        assert copied["target_id"] == given
        assert [key for key in b.versions() if key[0] == "o-value"] == [("o-value", 1)]


def test_others_are_left_alone(clusters: Clusters, a: Raw, b: Raw) -> None:
    """A subject in which the target has a version of its own is a CONFLICT and gets
    nothing; one that has the same texts already is taken as it is.
    """
    a.register("theirs-0", avro("Ours", "a"))
    b.register("same", avro("Same", "a"))
    a.register("same", avro("Same", "a"))
    a.register("same", avro("Same", "a", "b"))
    before = theirs(b)
    with sides(clusters, a, b) as made:
        for _ in range(2):
            found = made.sync()
            assert states(found) == {
                "theirs-0": SchemaState.CONFLICT,
                "same": SchemaState.SYNCED,
            }
            assert "version 1 on" in reason(found, "theirs-0")
    assert theirs(b) == before
    assert [key for key in b.versions() if key[0] == "same"] == [
        ("same", 1),
        ("same", 2),
    ]


def settled(made: SchemaSides, *numbers: int) -> list[SettledId]:
    """As one round of a slot's inquiry."""
    with made.ends() as ends:
        found = IdSettler(
            flow=ends.flow,
            source=ends.source,
            target=ends.target,
            cluster=lambda: made.reach(made.alias["B"]),
        )
        return [found.settle(number) for number in numbers]


def test_what_a_slot_gets(clusters: Clusters, a: Raw, b: Raw) -> None:
    """An id that the map lacks is copied with its whole subject and all it refers to,
    and answered with the target's, also to a slot that asks later; an id that only the
    target knows is no id, and one that cannot be copied says why.
    """
    evolve(a)
    ids = {key: each[0] for key, each in a.versions().items()}
    taken = a.register("theirs-0", avro("Ours", "a"))
    with sides(clusters, a, b) as made:
        price, theirs_only, conflict = settled(made, ids["b-price", 1], TAKEN, taken)
        assert price.reason == ""
        assert b.text(price.target_id) == MONEY
        assert theirs_only.strange
        assert theirs_only.target_id == -1
        assert "CONFLICT" in conflict.reason
        assert not conflict.unanswered
        made.sync()
        again = settled(made, *ids.values())
        target = made.reach(made.alias["B"])
        known = translations(target, made.alias["A"], "")
        assert [each.target_id for each in again] == [known[n] for n in ids.values()]
        assert again[[*ids].index(("b-price", 1))] == price
        for (key, own), found in zip(ids.items(), again, strict=True):
            assert b.text(found.target_id) == a.text(own), key


def test_commands(clusters: Clusters, a: Raw, b: Raw, tmp_path: Path) -> None:
    """check has nothing against this registry, list, plan and compare show what is
    missing, sync writes it once and says which ids the target gave, and trace shows
    both texts with their ids, or that an id was not copied.
    """
    a.register("o", avro("O", "a"))
    number = a.register("o", avro("O", "a", "b"))
    quiet = {"topics": ["none-of-these"], "emit_heartbeats": False,
             "heartbeats_replication": False}  # fmt: skip
    with sides(clusters, a, b, **quiet) as made:
        file = tmp_path / "mirror.yaml"
        file.write_text(json.dumps(made.document))

        def run(*words: str) -> Result:
            ends = [made.alias.get(word, word) for word in words]
            return CliRunner().invoke(app, [*ends, "-c", str(file)])

        checked = run("check")
        assert "2 to write now" in checked.output, checked.output
        assert "UNSUPPORTED" not in checked.output
        assert "0/2" in run("schema", "list").output
        assert run("plan").output.count("register schema") == 2
        assert "0 of 2" in run("compare", "A", "B").output
        missing = run("schema", "trace", "--id", str(number))
        assert missing.exit_code == 1
        assert "has no copy" in missing.output
        done = run("schema", "sync", "--yes")
        assert done.exit_code == 0, done.output
        copy = b.versions()["o", 2][0]
        assert f"o version 2, id {number}, as {copy}" in done.output
        traced = run("schema", "trace", "--id", str(number))
        assert traced.exit_code == 0, traced.output
        assert f"it is id {copy} on" in traced.output
        assert traced.output.count(a.text(number)) == 2
        assert run("schema", "list").output.count("SYNCED") == 1
        # Other tests left topics on these clusters that may well differ.
        compared = json.loads(run("compare", "A", "B", "-o", "json").stdout)
        assert not [e for e in compared["differences"] if e["what"] == "schema"]
        assert "0 to write now" in run("check").output


@pytest.mark.full
def test_a_target_that_takes_two_texts_for_one(
    clusters: Clusters, a: Raw, tmp_path: Path
) -> None:
    """A registry that answers with the id of a text with other documentation gets the
    subject UNSUPPORTED, again and again; that id is in no map, its records wait with
    the reason, and the neighbours go on.
    """
    with apicurio(tmp_path / "source") as process:
        source, b = Raw(process.url), a
        first = json.loads(avro("O", "a"))
        source.register("o", json.dumps(first))
        other = source.register("o", json.dumps({**first, "doc": "another"}))
        source.register("p", avro("P", "a"))
        with sides(clusters, source, b) as made:
            for _ in range(2):
                found = made.sync()
                assert states(found) == {
                    "o": SchemaState.UNSUPPORTED,
                    "p": SchemaState.SYNCED,
                }
                assert "version 2 got id 1 on" in reason(found, "o")
            [waits] = settled(made, other)
            assert "UNSUPPORTED" in waits.reason
            assert waits.target_id == -1
            target = made.reach(made.alias["B"])
            assert other not in translations(target, made.alias["A"], "")


@pytest.mark.full
def test_after_ids_were_kept(
    clusters: Clusters, processes: tuple[RegistryProcess, RegistryProcess]
) -> None:
    """A flow that kept ids and now translates writes nothing for what it has copied,
    and once the target is open, later versions get the target's ids.
    """
    a, b = Raw(processes[0].url), Raw(processes[1].url)
    a.register("first", avro("First", "x"))
    a.register("o", avro("O", "a"))
    a.delete("o", 1)
    with sides(clusters, a, b) as made, made.ends() as ends:
        keep = {"schemas": "copy", "schemas_ids": "keep", "schemas_id_gap": 100}
        flow = ends.flow.model_copy(update=keep)
        sync(replace(ends, flow=flow))
        assert b.versions() == a.versions()
        assert look(ends).writes == ()
        number = a.register("o", avro("O", "a", "b"))
        refused = sync(ends)
        assert states(refused)["o"] == SchemaState.REFUSED
        back = modes.to_open(ends.target, ends.claims)
        modes.apply(ends.target, ends.claims, back, opens=True)
        found = sync(ends)
        assert states(found)["o"] == SchemaState.SYNCED
        [settled_id] = settled(made, number)
        assert settled_id.target_id > 100
        check_map(made, clusters["b"].bootstrap, a, b, states={"copied", "deleted"})


@pytest.mark.full
def test_what_the_target_lost_is_written_again(
    clusters: Clusters, a: Raw, b: Raw
) -> None:
    """A subject that was removed on the target for good is PENDING again, and the map
    then has what the target answers now.
    """
    evolve(a)
    with sides(clusters, a, b) as made:
        made.sync()
        b.ask("DELETE", "/subjects/p-value")
        b.ask("DELETE", "/subjects/p-value", permanent="true")
        looked = made.look()
        if b.text(map_of(made, clusters["b"].bootstrap)["/p-value/1"]["target_id"]):
            pytest.skip("this registry still answers the id of a removed subject")
        assert states(looked)["p-value"] == SchemaState.PENDING
        made.sync()
        check_map(made, clusters["b"].bootstrap, a, b)


def test_a_level_of_others_stays(clusters: Clusters, a: Raw, b: Raw) -> None:
    """A version that does not fit the level which someone else has set on the target's
    subject is REFUSED, and the level is as it was.
    """
    a.set_level("NONE", "o")
    a.register("o", avro("O", "a"))
    b.register("o", avro("O", "a"))
    b.set_level("FULL", "o")
    a.register("o", '{"type":"record","name":"O","namespace":"n",'
                    '"fields":[{"name":"other","type":"int"}]}')  # fmt: skip
    with sides(clusters, a, b) as made:
        found = made.sync()
        assert states(found) == {"o": SchemaState.REFUSED}
        assert "which this flow has not set" in reason(found, "o")
        assert b.level("o") == "FULL"


def test_a_level_that_takes_anything_stays(
    clusters: Clusters, tmp_path: Path, a: Raw
) -> None:
    """NONE that someone else has set on the target's subject is no subject without a
    level of its own: it stays, and REASON says so.
    """
    with (
        axonops_here(tmp_path / "b") as process,
        sides(clusters, a, b := Raw(process.url)) as made,
    ):
        a.set_level("FULL", "o")
        a.register("o", avro("O", "a"))
        b.register("o", avro("O", "a"))
        b.set_level("NONE", "o")
        found = made.sync()
        assert found.levels == ()
        assert "this flow has not set it" in reason(found, "o")
        assert b.level("o") == "NONE"


def test_a_level_is_given_back_although_the_version_is_refused(
    clusters: Clusters, tmp_path: Path, a: Raw
) -> None:
    """A subject that was made to take any version has its level again after the same
    round, also one for this subject alone, if the target refuses the version then.
    """
    with axonops_here(tmp_path / "b") as process, RegistryProxy(process.url) as proxy:
        b = Raw(process.url)
        a.register("o", avro("O", "a"))
        a.set_level("FULL", "o")
        with sides(clusters, a, Raw(proxy.url)) as made:
            assert set(states(made.sync()).values()) == {SchemaState.SYNCED}
            a.set_level("NONE", "o")
            a.register("o", '{"type":"record","name":"O","namespace":"n",'
                            '"fields":[{"name":"other","type":"int"}]}')  # fmt: skip
            a.set_level("FULL", "o")
            post = "/subjects/o/versions"
            with (
                made.ends() as ends,
                proxy.fault(method="POST", path=post, status=409,
                            body=b'{"error_code": 409, "message": "no"}'),
            ):  # fmt: skip
                found = sync(ends, only={Subject("", "o")}, levels_of=())
            assert states(found) == {"o": SchemaState.REFUSED}
            assert "PUT /config/o" in proxy.asked
            assert b.level("o") == "FULL"
