"""Schemas follow, from one real registry to another: ids, versions, texts, references,
levels and soft deletes; what is of others stays as it is, wherever a copy is killed.

The registries are processes, the claims are in a topic of a real cluster, and the
witness reads both registries over plain HTTP.
"""

from __future__ import annotations

from contextlib import ExitStack
import json
from typing import TYPE_CHECKING, Any

import pytest

from mirror.errors import RegistryError
from mirror.schemas.claims import Before, ClaimOf
from mirror.schemas.registry.values import Subject
from mirror.schemas.rules import RegistryWrite
from mirror.schemas.sync import look, sync
from mirror.schemas.writing import SchemaWriter
from mirror.status.states import SchemaState
from tests import tools
from tests.harness.registry_process import (
    AXONOPS_PROGRAM,
    apicurio,
    axonops,
)
from tests.harness.registry_proxy import RegistryProxy
from tests.harness.schemas import Raw, SchemaSides, avro, reason, states

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from mirror.playground.cluster import PlaygroundCluster
    from tests.harness.registry_process import RegistryProcess

    Clusters = dict[str, PlaygroundCluster]

pytestmark = [pytest.mark.integration, pytest.mark.needs("registry")]


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Callable[[], RegistryProcess]]:
    """Start registries that end with the test, each of them empty."""
    with ExitStack() as stack:
        count = iter(range(9))

        def one() -> RegistryProcess:
            folder = tmp_path / f"registry-{next(count)}"
            return stack.enter_context(axonops(tools.path(AXONOPS_PROGRAM), folder))

        yield one


@pytest.fixture
def a(start: Callable[[], RegistryProcess]) -> Raw:
    return Raw(start().url)


@pytest.fixture
def b(start: Callable[[], RegistryProcess]) -> Raw:
    return Raw(start().url)


def sides(clusters: Clusters, a: Raw, b: Raw, **settings: Any) -> SchemaSides:
    return SchemaSides(
        {"A": (clusters["a"].bootstrap, a.url), "B": (clusters["b"].bootstrap, b.url)},
        {"A->B": settings},
    )


def evolve(raw: Raw, subjects: int = 4, versions: int = 5) -> None:
    """Subjects of keys and values in three languages, with references and deletes."""
    raw.register("money", avro("Money", "currency"))
    for number in range(subjects):
        refers = [{"name": "n.Money", "subject": "money", "version": 1}]
        for version in range(1, versions + 1):
            fields = [f"f{n}" for n in range(version)]
            raw.register(f"t{number}-value", avro(f"T{number}", *fields))
        raw.register(
            f"t{number}-price",
            json.dumps(
                {
                    "type": "record",
                    "name": f"P{number}",
                    "fields": [{"name": "price", "type": "n.Money"}],
                }
            ),
            references=refers,
        )
        raw.register(f"t{number}-key", f'{{"type":"record","name":"K{number}",'
                                       '"fields":[]}')  # fmt: skip
    raw.register("j-value", '{"type": "object",  "title": "j"}', kind="JSON")
    raw.register_imports()
    raw.delete("t0-value", 2)
    raw.delete("t1-key", 1)
    raw.set_level("FULL", "t2-value")


def test_everything_is_the_same_and_a_second_round_writes_nothing(
    clusters: Clusters, a: Raw, b: Raw
) -> None:
    """Ids, numbers, types, texts, references, deletes and levels read raw are the same
    on both sides; then there is nothing to do, and later versions follow.
    """
    evolve(a)
    with sides(clusters, a, b) as made:
        first = made.sync()
        assert set(states(first).values()) == {SchemaState.SYNCED}, first.problems
        assert b.versions() == a.versions()
        assert b.level("t2-value") == "FULL"
        assert b.level("t3-value") is None
        assert b.mode("t0-value") == "IMPORT"
        assert {b.text(n) == a.text(n) for n, *_ in a.versions().values()} == {True}

        again = made.sync()
        assert again.writes == again.levels == ()

        a.register("t0-value", avro("T0", "other"))
        a.delete("t0-value", 3)
        later = made.sync()
        assert len(later.writes) == 2
        assert b.versions() == a.versions()


def test_what_came_and_went_between_two_looks(
    clusters: Clusters, a: Raw, b: Raw
) -> None:
    """A version that was registered and softly deleted since the last look is on the
    target, deleted, since records may have its id; of one that was deleted for good
    nothing is left to copy. Both subjects and what comes later are SYNCED.
    """
    a.register("soft", avro("Soft", "a"))
    a.register("hard", avro("Hard", "a"))
    with sides(clusters, a, b) as made:
        made.sync()
        for subject in ("soft", "hard"):
            a.register(subject, avro(subject.title(), "b"))
            a.delete(subject, 2)
        a.ask("DELETE", "/subjects/hard/versions/2", permanent="true")
        found = made.sync()
        assert set(states(found).values()) == {SchemaState.SYNCED}, found.problems
        assert b.versions() == a.versions()
        assert b.versions()["soft", 2][-1]
        assert ("hard", 2) not in b.versions()
        for subject in ("soft", "hard"):
            a.register(subject, avro(subject.title(), "c"))
        made.sync()
        assert b.versions() == a.versions()


def test_what_is_hard_to_copy(clusters: Clusters, a: Raw, b: Raw) -> None:
    """A text of 5 MB, an id beyond 2^31, and two subjects whose versions refer to each
    other's are the same on both sides.
    """
    large = {**json.loads(avro("L", "a")), "doc": "l" * 5_000_000}
    a.register("large", json.dumps(large))
    a.set_mode("IMPORT", "high")
    high = {"schema": avro("H", "a"), "id": 2**31 + 5, "version": 7}
    a.ask("POST", "/subjects/high/versions", high)
    a.set_level("NONE", "one")
    a.register("one", avro("One", "a"))
    for name, subject, other in (("Two", "two", "One"), ("Three", "one", "Two")):
        fields = [{"name": "f", "type": f"n.{other}"}]
        text = {**json.loads(avro(name)), "fields": fields}
        refers = [{"name": f"n.{other}", "subject": other.lower(), "version": 1}]
        a.register(subject, json.dumps(text), references=refers)
    with sides(clusters, a, b) as made:
        assert made.sync().problems == ()
        assert b.versions() == a.versions()
        assert ("high", 7) in b.versions()
        assert made.sync().writes == ()


def test_a_look_changes_nothing(clusters: Clusters, a: Raw, b: Raw) -> None:
    """It says what would be written, in order, and neither the registry nor the
    target's cluster has anything new.
    """
    evolve(a, subjects=2)
    with sides(clusters, a, b) as made:
        found = made.look()
        assert len(found.writes) == len(a.versions()) + 2
        assert states(found)["t0-value"] == SchemaState.PENDING
        assert b.versions() == {}
        name = f"mirror-schemas.{made.alias['A']}.internal"
        assert name not in made.reach(made.alias["B"]).topics()


def test_others_are_left_alone_and_neighbours_go_on(
    clusters: Clusters, a: Raw, b: Raw
) -> None:
    """A subject that others have on the target, and one whose id is taken there, are
    conflicts that name both sides; the subjects keep their versions and modes, and the
    neighbour is copied.
    """
    b.register("theirs-value", avro("Theirs", "x"))  # id 1
    a.register("users-value", avro("Users", "u"))  # id 1 too
    a.register("free-value", avro("Free", "f"))
    a.register("theirs-value", avro("Theirs", "y"))
    before = b.versions()
    with sides(clusters, a, b) as made:
        found = made.sync()
        assert states(found) == {
            "users-value": SchemaState.CONFLICT,
            "theirs-value": SchemaState.CONFLICT,
            "free-value": SchemaState.SYNCED,
        }
        assert "theirs-value version 1" in reason(found, "users-value")
        after = b.versions()
        assert after.pop(("free-value", 1)) == a.versions()["free-value", 1]
        assert after == before
        assert b.mode("theirs-value") in {None, "READWRITE"}
        assert b.mode("users-value") in {None, "READWRITE"}


def test_two_sources_in_contexts(
    clusters: Clusters, a: Raw, b: Raw, start: Callable[[], RegistryProcess]
) -> None:
    """Two sources with the same ids for other texts share one registry: each id means
    in its context what it means on its source.
    """
    c = Raw(start().url)
    a.register("o", avro("O", "a"))
    c.register("o", avro("O", "c"))
    made = SchemaSides(
        {
            "A": (clusters["a"].bootstrap, a.url),
            "C": (clusters["a"].bootstrap, c.url),
            "B": (clusters["b"].bootstrap, b.url),
        },
        {"A->B": {"schemas_context": ".a"}, "C->B": {"schemas_context": ".c"}},
    )
    with made:
        for flow in ("A->B", "C->B"):
            assert set(states(made.sync(flow)).values()) == {SchemaState.SYNCED}
        assert Raw(b.url, ".a").text(1) == a.text(1)
        assert Raw(b.url, ".c").text(1) == c.text(1)
        assert a.text(1) != c.text(1)
        assert made.sync("A->B").writes == made.sync("C->B").writes == ()


def test_both_ways_come_to_rest(clusters: Clusters, a: Raw, b: Raw) -> None:
    """Two opposite flows: after one round of each nothing is written any more, and only
    the first one copies deletes.
    """
    a.register("x", avro("X", "a"))
    a.register("x", avro("X", "b"))
    ends = {
        "A": (clusters["a"].bootstrap, a.url),
        "B": (clusters["b"].bootstrap, b.url),
    }
    with SchemaSides(ends, {"A->B": {}, "B->A": {}}) as made:
        assert len(made.sync("A->B").writes) == 2
        assert made.sync("B->A").writes == ()
        b.register("y", avro("Y", "a"))
        assert len(made.sync("B->A").writes) == 1
        assert made.sync("A->B").writes == made.sync("B->A").writes == ()
        assert a.versions() == b.versions()
        a.delete("x", 1)
        b.delete("y", 1)
        assert len(made.sync("A->B").writes) == 1
        kept = made.sync("B->A")
        assert kept.writes == ()
        assert "is deleted on" in reason(kept, "y")
        assert not a.versions()["y", 1][-1]


def test_levels_both_ways(clusters: Clusters, a: Raw, b: Raw) -> None:
    """The flow back does not undo a level that someone has set on the source, neither
    that of the registry nor that of a subject, and the flow there copies both.
    """
    a.register("x", avro("X", "a"))
    ends = {
        "A": (clusters["a"].bootstrap, a.url),
        "B": (clusters["b"].bootstrap, b.url),
    }
    with SchemaSides(ends, {"A->B": {}, "B->A": {}}) as made:
        made.sync("A->B")
        a.set_level("FULL")
        a.set_level("BACKWARD", "x")
        assert made.sync("B->A").levels == ()
        made.sync("A->B")
        for raw in (a, b):
            assert raw.level() == "FULL"
            assert raw.level("x") == "BACKWARD"


def test_a_level_that_was_noted_and_not_set(clusters: Clusters, a: Raw, b: Raw) -> None:
    """Killed between the note and the change, the next turn sets the level."""
    a.register("x", avro("X", "a"))
    with sides(clusters, a, b) as made:
        made.sync()
        a.set_level("FULL", "x")
        with made.ends() as ends:
            note = Before(before=None, set="FULL")
            ends.claims.note({}, {(Subject("", "x"), ClaimOf.LEVEL): note})
        made.sync()
        assert b.level("x") == "FULL"


def test_what_only_looks_deleted_stays(clusters: Clusters, a: Raw, b: Raw) -> None:
    """A version that was missing from a list, and that the source still has, is not
    deleted.
    """
    a.register("x", avro("X", "a"))
    with sides(clusters, a, b) as made:
        made.sync()
        with made.ends() as ends:
            [version] = ends.source.versions()
            writer = SchemaWriter(ends)
            writer.write([RegistryWrite(version=version, delete=True)])
        assert writer.done == []
        assert b.versions() == a.versions()


@pytest.mark.parametrize("step", [1, pytest.param(2, marks=pytest.mark.full)])
def test_killed_at_each_point_and_run_again(
    clusters: Clusters, a: Raw, b: Raw, step: int
) -> None:
    """Cut off before every n-th request to the target, then run again: both registries
    are the same, the foreign subject has its version and mode, and the mode that a
    subject had before is noted once.
    """
    b.set_mode("IMPORT")
    b.ask("POST", "/subjects/foreign/versions",
          {"schema": avro("F"), "id": 900, "version": 1})  # fmt: skip
    b.set_mode("READWRITE")
    foreign = b.versions()["foreign", 1]
    with sides(clusters, a, b) as made:
        for cut in range(1, 40, step):
            a.register(f"s{cut}", avro(f"S{cut}", "a"))
            a.register(f"s{cut}", avro(f"S{cut}", "b"))
            a.delete(f"s{cut}", 1)
            if not made.is_cut_off(cut):
                break
        found = made.sync()
        assert set(states(found).values()) == {SchemaState.SYNCED}, found.problems
        theirs = b.versions()
        assert theirs.pop(("foreign", 1)) == foreign
        assert theirs == a.versions()
        assert b.mode("foreign") in {None, "READWRITE"}
        with made.ends() as ends:
            ends.claims.refresh()
            assert {(s.name, n) for s, n in ends.claims.ours} == theirs.keys()
            for subject, _ in ends.claims.ours:
                noted = ends.claims.before(subject, ClaimOf.MODE)
                assert noted is not None
                assert noted.before is None


def test_a_registry_that_lost_everything_is_filled_again(
    clusters: Clusters, a: Raw, start: Callable[[], RegistryProcess]
) -> None:
    """While the target's registry is down the turn fails with its address and nothing
    else; back and empty, as from a backup, it gets all versions again.
    """
    evolve(a, subjects=2)
    process = start()
    b = Raw(process.url)
    with sides(clusters, a, b) as made:
        made.sync()
        process.kill()
        with pytest.raises(RegistryError, match=process.url):
            made.sync()
        process.start()
        assert b.versions() == {}
        made.sync()
        assert b.versions() == a.versions()


def test_registries_from_older_backups(clusters: Clusters, a: Raw, b: Raw) -> None:
    """The target's gets again what it has lost. One of the source that has lost a
    version, and gives its number and id to another text, is in CONFLICT: the target
    keeps what records were written with, and neighbours go on.
    """
    evolve(a, subjects=2)
    with sides(clusters, a, b) as made:
        made.sync()
        b.forget("t0-value", 5)
        made.sync()
        assert b.versions() == a.versions()
        copied = b.versions()["t1-value", 5]
        a.forget("t1-value", 5)
        assert made.sync().writes == ()
        assert b.versions()["t1-value", 5] == copied
        a.set_mode("IMPORT", "t1-value", force=True)
        other = {"schema": avro("T1", "x"), "id": copied[0], "version": 5}
        a.ask("POST", "/subjects/t1-value/versions", other)
        a.register("t0-value", avro("T0", "later"))
        found = made.sync()
        assert states(found)["t1-value"] == SchemaState.CONFLICT
        assert "different texts" in reason(found, "t1-value")
        assert b.versions()["t1-value", 5] == copied
        assert b.versions()["t0-value", 6] == a.versions()["t0-value", 6]


def test_a_registry_that_fails_on_one_schema(
    clusters: Clusters, a: Raw, b: Raw
) -> None:
    """A registry that answers 5xx to one version and is well otherwise stops only that
    subject; the next look tries again.
    """
    a.register("o", avro("O", "a"))
    a.register("p", avro("P", "a"))
    with RegistryProxy(b.url) as proxy, sides(clusters, a, Raw(proxy.url)) as made:
        with proxy.fault(status=503, method="POST", times=3):
            found = made.sync()
        assert states(found) == {"o": SchemaState.REFUSED, "p": SchemaState.SYNCED}
        assert "HTTP 503" in reason(found, "o")
        made.sync()
        assert b.versions() == a.versions()


def test_only_what_is_asked_for(clusters: Clusters, a: Raw, b: Raw) -> None:
    """Some subjects bring along what they refer to, and nothing else."""
    evolve(a, subjects=2)
    with sides(clusters, a, b) as made, made.ends() as ends:
        [wanted] = [e.subject for e in look(ends).subjects
                    if str(e.subject) == "t1-price"]  # fmt: skip
        sync(ends, only={wanted})
        assert set(b.subjects()) == {"t1-price", "money"}


@pytest.mark.full
def test_from_one_make_into_another(clusters: Clusters, b: Raw, tmp_path: Path) -> None:
    """Apicurio's schemas keep their ids and texts in axonops' registry. That one takes
    a text with other documentation for the same schema: such a version is reported,
    what was there stays as it was, however often it is tried.
    """
    with apicurio(tmp_path / "apicurio") as process:
        a = Raw(process.url)
        first = json.loads(avro("O", "a"))
        a.register("o", json.dumps(first))
        a.register("o", json.dumps({**first, "doc": "another text"}))
        a.register("p", avro("P", "a"))
        with sides(clusters, a, b) as made:
            for _ in range(2):
                found = made.sync()
                there = states(found)
                assert there["p"] == SchemaState.SYNCED, found.problems
                assert there["o"] not in {SchemaState.SYNCED, SchemaState.PENDING}
                assert "version 2" in reason(found, "o")
                ours, theirs = a.versions(), b.versions()
                assert theirs["p", 1] == ours["p", 1]
                assert theirs["o", 1] == ours["o", 1]


@pytest.mark.full
def test_a_registry_that_keeps_no_ids(
    clusters: Clusters, a: Raw, tmp_path: Path
) -> None:
    """A registry without modes gets nothing, not even under other ids, and each subject
    says why.
    """
    a.register("o", avro("O", "a"))
    with apicurio(tmp_path / "apicurio") as process:
        b = Raw(process.url)
        with sides(clusters, a, b) as made:
            found = made.sync()
            assert states(found) == {"o": SchemaState.UNSUPPORTED}
            assert "IMPORT" in reason(found, "o")
        assert b.subjects() == []


def test_ids_are_reserved(clusters: Clusters, a: Raw, b: Raw) -> None:
    """The target's registry goes on above what the source will issue next, further up
    as the source's ids grow and without a placeholder in their way; a second round
    writes nothing, and no registry copies the other's placeholder.
    """
    with SchemaSides(
        {"A": (clusters["a"].bootstrap, a.url), "B": (clusters["b"].bootstrap, b.url)},
        {"A->B": {"schemas_id_gap": 10}, "B->A": {"schemas_id_gap": 10}},
    ) as made:
        a.register("o", avro("O", "f0"))
        made.sync()
        assert b.register("theirs", avro("T")) == 12
        b.forget("theirs", 1)
        for number in range(1, 13):
            a.register("o", avro("O", *(f"f{n}" for n in range(number + 1))))
            assert made.sync().problems == ()
        assert b.versions() == a.versions()
        assert b.register("more", avro("M")) > 13 + 5
        before = b.ask("GET", "/schemas", deleted="true")
        made.sync()
        made.sync("B->A")
        assert a.ask("GET", "/subjects", deleted="true") == ["more", "o"]
        assert b.ask("GET", "/schemas", deleted="true") == before


def test_the_level_of_a_whole_registry(clusters: Clusters, a: Raw, b: Raw) -> None:
    """It holds for everyone, so only a flow that copies every subject sets it, and only
    while no one else has a subject in any context of the target. The level of another
    context asks for that context alone. A closed registry gets it once it is open.
    """
    a.register("o", avro("O", "a"))
    a.set_level("FULL")
    level = b.level()
    assert level != "FULL"
    other = Raw(b.url, ".theirs")
    other.register("x", avro("X", "a"))
    with sides(clusters, a, b) as made:
        assert made.sync().levels == ()
        assert b.level() == level
        other.forget("x", 1)
        b.set_mode("READONLY")
        assert made.sync().levels == ()
        b.set_mode("READWRITE")
        assert len(made.sync().levels) == 1
        assert b.level() == "FULL"
    narrow = sides(clusters, a, b, schemas_context=".n", schemas_subjects=["o"])
    with narrow as made:
        assert made.sync().levels == ()
    with sides(clusters, a, b, schemas_context=".m") as made:
        a.set_level("FORWARD")
        assert len(made.sync().levels) == 1
        assert Raw(b.url, ".m").level() == "FORWARD"
        assert b.level() == "FULL"
