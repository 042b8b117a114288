"""What the client and real schema registries say to each other.

Each test is a part of the contract, and runs against every make that can keep it.
`MIRROR_TEST_REGISTRIES` names further registries by their addresses. The witness is a
plain HTTP client.
"""

from __future__ import annotations

from pathlib import Path
import time
from typing import TYPE_CHECKING
import uuid

import pytest

from mirror.errors import RegistryError
from mirror.schemas.registry import registry as lists
from mirror.schemas.registry.values import (
    Key,
    Mode,
    Reference,
    SchemaVersion,
    Subject,
)
from tests.harness.registries import (
    KEEPING_IDS,
    MAKES,
    Witness,
    registry,
    running,
)
from tests.harness.registry_abilities import abilities

if TYPE_CHECKING:
    from collections.abc import Iterator

    from mirror.schemas.registry.registry import Registry

pytestmark = pytest.mark.integration

RECORD = '{ "type":"record",  "name":"%s","doc":"gr\u00fc\u00df",\n "fields":[%s]}'
FIELD = '{"name":"%s","type":"%s"}'
JSON_SCHEMA = """{"$schema": "http://json-schema.org/draft-07/schema#",
   "type":"object", "title": "NAME"}"""
PAGE = Path(__file__).parents[2] / "docs" / "reference" / "registries.md"
PROTO = 'syntax = "proto3";\n// kept\nmessage M { string a = 1; }\n'


@pytest.fixture(scope="module", params=MAKES)
def make(request: pytest.FixtureRequest) -> str:
    return request.param


@pytest.fixture(scope="module")
def url(make: str, tmp_path_factory) -> Iterator[str]:
    with running(make, tmp_path_factory.mktemp("registry")) as address:
        yield address


@pytest.fixture(scope="module", params=KEEPING_IDS)
def keeping(request: pytest.FixtureRequest, tmp_path_factory) -> Iterator[str]:
    """A registry that takes ids along with schemas."""
    with running(request.param, tmp_path_factory.mktemp("registry")) as address:
        yield address


@pytest.fixture
def name() -> str:
    return f"t{uuid.uuid4().hex[:12]}"


@pytest.fixture
def number(name: str) -> int:
    """An id that no other test uses, in a registry that stays as well."""
    return 1_000_000 + int(name[1:], 16) % 1_000_000_000


@pytest.fixture
def client(url: str) -> Iterator[Registry]:
    with registry(url) as made:
        yield made


@pytest.fixture
def keeper(keeping: str) -> Iterator[Registry]:
    with registry(keeping) as made:
        yield made


def record(name: str, *fields: tuple[str, str]) -> str:
    return RECORD % (name, ",".join(FIELD % each for each in fields))


def listed(client: Registry, name: str) -> dict[tuple[str, int], SchemaVersion]:
    """What the list says about the subjects of a test."""
    return {
        (each.subject, each.version): each
        for each in client.versions()
        if name in each.subject
    }


def wanted(name: str, version: int, number: int, **more: object) -> SchemaVersion:
    given = {"kind": "AVRO", "text": record(f"R{number}", ("a", "int")), **more}
    return SchemaVersion(subject=name, version=version, id=number, **given)


def test_the_list_has_all_that_producers_registered(
    url: str, client: Registry, name: str
) -> None:
    """Texts byte for byte, kinds, numbers, ids, references and soft deletes."""
    witness = Witness(url)
    texts = [record(f"{name}A", ("a", "int")), record(f"{name}B", ("b", "string"))]
    part = record(f"{name}Part", ("x", "int"))
    whole = record(f"{name}Whole", ("p", f"{name}Part"))
    odd = f"{name}.a:b+c-(d)"
    ids = [witness.register(f"{name}-value", text) for text in texts]
    proto = witness.register(f"{name}-proto", PROTO, schemaType="PROTOBUF")
    schema = JSON_SCHEMA.replace("NAME", name)
    witness.register(f"{name}-json", schema, schemaType="JSON")
    witness.register(f"{name}-part", part)
    reference = {"name": f"{name}Part", "subject": f"{name}-part", "version": 1}
    witness.register(odd, whole, references=[reference])
    witness.delete(f"{name}-value", 1)

    found = listed(client, name)

    assert {key: each.text for key, each in found.items()} == {
        (f"{name}-value", 1): texts[0],
        (f"{name}-value", 2): texts[1],
        (f"{name}-proto", 1): PROTO,
        (f"{name}-json", 1): schema,
        (f"{name}-part", 1): part,
        (odd, 1): whole,
    }
    assert [found[f"{name}-value", number].id for number in (1, 2)] == ids
    assert [key for key, each in found.items() if each.deleted] == [
        (f"{name}-value", 1)
    ]
    assert found[f"{name}-proto", 1].kind == "PROTOBUF"
    assert found[f"{name}-json", 1].kind == "JSON"
    assert found[odd, 1].references == (Reference(**reference),)
    assert client.schema(Subject("", odd), 1) == found[odd, 1]
    assert client.schema(Subject("", f"{name}-value"), 1) == found[f"{name}-value", 1]
    by_id = client.by_id("", proto)
    assert by_id is not None
    assert (by_id.kind, by_id.text) == ("PROTOBUF", PROTO)
    assert client.uses("", ids[0]) == (Key(Subject("", f"{name}-value"), 1),)


def test_what_is_not_there_is_none(client: Registry, name: str) -> None:
    """An unknown subject, version or id is no error."""
    nowhere = Subject("", name)
    assert client.schema(nowhere, 1) is None
    assert client.by_id("", 987_654) is None
    assert client.uses("", 987_654) == ()
    assert client.level(nowhere) is None
    client.delete(nowhere, 1)


def test_levels_are_set_and_taken_away(url: str, client: Registry, name: str) -> None:
    """A subject's own level; without one, its context's holds."""
    subject = Subject("", name)
    Witness(url).register(name, record(name, ("a", "int")))
    before = client.level(subject)
    assert before in {None, "NONE"}, "some say it of a subject without a level"
    client.set_level(subject, "FULL")
    assert client.level(subject) == "FULL"
    assert Witness(url).get(f"/config/{name}")["compatibilityLevel"] == "FULL"
    client.set_level(subject, None)
    assert client.level(subject) == before
    assert client.level(Subject("", "")) is not None


def test_a_list_without_news_is_not_read_again(
    keeping: str, keeper: Registry, name: str
) -> None:
    """The same object as long as nothing changed, and then the change."""
    witness = Witness(keeping)
    witness.register(name, record(name, ("a", "int")))
    first = keeper.versions()
    assert keeper.versions() is first
    witness.register(name, record(name, ("b", "int")))
    second = keeper.versions()
    assert len(second) == len(first) + 1
    witness.delete(name, 1)
    assert [e.deleted for e in keeper.versions() if e.subject == name] == [True, False]


@pytest.mark.needs("registry")
def test_two_lists_that_are_the_same_are_kept_once(name: str, tmp_path: Path) -> None:
    """With and without what is deleted it is one list, until something is deleted."""
    with running("axonops", tmp_path) as url, registry(url) as client:
        witness = Witness(url)
        for field in "ab":
            witness.register(name, record(name, (field, "int")))
            assert not any(each.deleted for each in client.versions())
            kept = client._lists._kept
            assert kept["", True] is kept["", False]
        witness.delete(name, 1)
        assert [each.deleted for each in client.versions()] == [True, False]
        assert len(kept["", True].versions) == 1 + len(kept["", False].versions)


def test_of_a_large_list_the_end_is_asked_for(
    keeping: str, keeper: Registry, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One request for each of both lists as long as nothing changed, whose answers have
    a row; another version and a soft delete are seen at once. Once a minute it is the
    whole list, and what changed without another count is seen.
    """
    monkeypatch.setattr(lists, "_LARGE", 0)
    witness = Witness(keeping)

    def seen() -> list[tuple[int, bool]]:
        found = keeper.versions()
        return [(e.version, e.deleted) for e in found if e.subject == name]

    witness.register(name, record(name, ("a", "int")))
    first, asked = keeper.versions(), keeper.asked
    assert keeper.versions() is first
    assert keeper.asked == asked + 2
    witness.register(name, record(name, ("b", "int")))
    assert seen() == [(1, False), (2, False)]
    witness.delete(name, 1)
    assert seen() == [(1, True), (2, False)]
    assert seen() == [(1, True), (2, False)]

    before = keeper.versions()
    path = f"/subjects/{name}/versions/1?permanent=true"
    assert witness.ask("DELETE", path)[0] == 200
    witness.register(name, record(name, ("c", "int")))
    monkeypatch.setattr(time, "monotonic", lambda now=time.monotonic: now() + 60)
    assert keeper.versions() is not before
    assert seen() == [(2, False), (3, False)]


def test_ids_and_numbers_are_kept(
    keeping: str, keeper: Registry, name: str, number: int
) -> None:
    """In IMPORT a version keeps its id, also beyond 2^31, and its number, also after a
    gap; producers are refused meanwhile and get higher ids afterwards.
    """
    witness, subject, beyond = Witness(keeping), Subject("", name), 2**31 + number
    keeper.set_mode(subject, Mode.IMPORT)
    assert keeper.mode(subject) is Mode.IMPORT
    versions = [
        wanted(name, 2, number),
        wanted(name, 5, beyond, kind="PROTOBUF", text=PROTO),
    ]
    assert [keeper.register(each) for each in versions] == [number, beyond]
    assert keeper.register(versions[0]) == number, "a second time changes nothing"

    said = witness.get(f"/subjects/{name}/versions/5")
    assert (said["id"], said["version"], said["schema"]) == (beyond, 5, PROTO)
    assert witness.get(f"/subjects/{name}/versions") == [2, 5]
    body = {"schema": record("Other", ("z", "int"))}
    status, _ = witness.ask("POST", f"/subjects/{name}/versions", body)
    assert status == 422

    keeper.set_mode(subject, None)
    assert keeper.mode(subject) is None
    assert witness.register(name, body["schema"]) > beyond


def test_a_subject_in_use_is_imported_only_by_force(
    keeping: str, keeper: Registry, name: str
) -> None:
    """IMPORT for a subject that has versions is refused without `force`."""
    Witness(keeping).register(name, record(name, ("a", "int")))
    subject = Subject("", name)
    with pytest.raises(RegistryError) as refused:
        keeper.set_mode(subject, Mode.IMPORT)
    assert refused.value.error_code == 42205
    assert not refused.value.retriable
    assert keeper.mode(subject) is None
    keeper.set_mode(subject, Mode.IMPORT, force=True)
    assert keeper.mode(subject) is Mode.IMPORT
    keeper.set_mode(subject, None)


def test_an_id_with_another_text_is_refused(
    keeper: Registry, name: str, number: int
) -> None:
    """A registry must not give an id that is taken to another text."""
    subject = Subject("", name)
    keeper.set_mode(subject, Mode.IMPORT)
    keeper.register(wanted(name, 1, number))
    with pytest.raises(RegistryError):
        keeper.register(wanted(name, 2, number, text=record("X", ("y", "string"))))
    keeper.set_mode(subject, None)
    assert keeper.uses("", number) == (Key(subject, 1),)


def test_contexts_keep_ids_apart(keeping: str, keeper: Registry, name: str) -> None:
    """The same id means another schema in another context, whose subjects, modes and
    levels are its own.
    """
    one, other = Subject(f".{name}a", "orders"), Subject(f".{name}b", "orders")
    for subject, field in ((one, "a"), (other, "b")):
        keeper.set_mode(subject, Mode.IMPORT)
        keeper.register(
            wanted(
                "orders",
                1,
                7,
                context=subject.context,
                text=record("Orders", (field, "int")),
            )
        )
    assert {one.context, other.context} < set(keeper.contexts())
    assert keeper.contexts()[0] == ""
    texts = [keeper.by_id(each.context, 7).text for each in (one, other)]
    assert ['"a"' in text for text in texts] == [True, False]
    [only] = keeper.versions(one.context)
    assert only.full_subject == one
    assert keeper.uses(other.context, 7) == (Key(other, 1),)
    raw = Witness(keeping).get(f"/subjects/:{one.context}:orders/versions/1")
    assert raw["schema"] == texts[0]
    keeper.set_level(one, "FULL")
    assert keeper.level(other) is None
    assert keeper.mode(Subject(one.context, "")) is Mode.READWRITE


def test_a_text_of_megabytes(keeper: Registry, name: str, number: int) -> None:
    """A text of 5 MB is registered, listed and read back."""
    text = record(name, ("a", "int")).replace(
        "gr\u00fc\u00df", "gr\u00fc\u00df" * 1_300_000
    )
    assert len(text) > 5_000_000
    subject = Subject("", name)
    keeper.set_mode(subject, Mode.IMPORT)
    keeper.register(wanted(name, 1, number, text=text))
    again = keeper.schema(subject, 1)
    assert again is not None
    assert again.text == text
    assert listed(keeper, name)[name, 1].sha256 == again.sha256


def test_a_registry_without_modes_says_so(url: str, client: Registry) -> None:
    """A registry that knows no modes is told from one with a mode that is not set."""
    if Witness(url).ask("GET", "/mode")[0] == 200:
        pytest.skip("it has modes")
    for subject in (Subject("", "orders"), Subject("", "")):
        with pytest.raises(RegistryError, match="has no modes, so it cannot keep ids"):
            client.mode(subject)
    with pytest.raises(RegistryError, match="has no modes"):
        client.set_mode(Subject("", "orders"), Mode.IMPORT)


def test_the_page_says_what_a_registry_can_do(url: str, make: str) -> None:
    """The table of docs/reference/registries.md is what trying each row finds."""
    found = abilities(url)
    lines = PAGE.read_text().splitlines()
    head, _, *rows = [
        [cell.strip() for cell in line.split("|")[1:-1]]
        for line in lines[lines.index("") :]
        if line.startswith("|")
    ][: len(found) + 2]
    if make not in head:
        pytest.skip(f"{make} has no column; it would say {found}")
    column = head.index(make)
    assert {row[0]: row[column] for row in rows} == found
