"""What a registry can do, found out by trying.

Main function: `abilities`, the rows of docs/reference/registries.md for one registry.
What a registry holds is seen by the witness; only modes and lists are asked for with
mirror's client, since they are what the copy rests on.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any
import uuid

from mirror.errors import RegistryError
from mirror.schemas.registry.values import Mode, SchemaVersion, Subject
from tests.harness.registries import Witness, registry

if TYPE_CHECKING:
    from mirror.schemas.registry.registry import Registry

YES, NO = "yes", "no"
_TEXT = '{"type":"record","name":"NAME","doc":"DOC","fields":[]}'
_FIRST_ID = 40_000


def abilities(url: str) -> dict[str, str]:
    """The rows, in the page's words."""
    with registry(url) as client:
        trier = _Trier(url, client)
        found = {
            "mode IMPORT": trier.imports(),
            "keeps ids and version numbers": trier.keeps_ids(),
            "ids beyond 2^31": trier.keeps_ids(2**31 + 11),
            "metadata and rule sets with a kept id": trier.keeps_metadata(),
            "contexts": trier.contexts(),
            "one list of all schemas": trier.lists(),
            "soft deletes of versions": trier.deletes_versions(),
            "versions of a deleted subject can be read": trier.deletes_subjects(),
            "another documentation is another schema": trier.tells_docs(),
            "tells a subject without a level of its own": trier.tells_levels(),
            "GUIDs of schemas": trier.tells_guids(),
            "names with a blank or a slash": trier.takes_names(),
        }
    return {row: YES if can else NO for row, can in found.items()}


class _Trier:
    """Each method tries one thing on a subject of its own."""

    def __init__(self, url: str, client: Registry) -> None:
        self._witness = Witness(url)
        self._client = client
        self._next = _FIRST_ID

    def imports(self) -> bool:
        subject = Subject("", _name())
        try:
            self._client.set_mode(subject, Mode.IMPORT)
        except RegistryError:
            return False
        return self._client.mode(subject) is Mode.IMPORT

    def keeps_ids(self, number: int | None = None) -> bool:
        name = _name()
        said = self._imported(name, number)
        return said is not None and (said["id"], said["version"]) == (self._next, 3)

    def keeps_metadata(self) -> bool:
        name = _name()
        said = self._imported(name, metadata='{"properties":{"owner":"me"}}')
        properties = ((said or {}).get("metadata") or {}).get("properties") or {}
        return properties.get("owner") == "me"

    def contexts(self) -> bool:
        name = _name()
        found = [
            self._witness.ask("POST", f"{where}/subjects/{name}/versions", _body(name))
            for where in (f"/contexts/.{name}a", f"/contexts/.{name}b")
        ]
        return [(status, said["id"]) for status, said in found if status == 200] == [
            (200, 1),
            (200, 1),
        ]

    def lists(self) -> bool:
        return self._witness.ask("GET", "/schemas?deleted=true")[0] == 200

    def deletes_versions(self) -> bool:
        name = _name()
        for doc in "ab":
            self._witness.register(name, _text(name + doc, doc))
        self._witness.delete(name, 1)
        path = f"/subjects/{name}/versions"
        return (
            self._witness.get(path) == [2]
            and self._witness.get(f"{path}?deleted=true") == [1, 2]
            and self._witness.ask("GET", f"{path}/1?deleted=true")[0] == 200
        )

    def deletes_subjects(self) -> bool:
        name = _name()
        self._witness.register(name, _text(name))
        self._witness.delete(name)
        path = f"/subjects/{name}/versions/1?deleted=true"
        return self._witness.ask("GET", path)[0] == 200

    def tells_docs(self) -> bool:
        name = _name()
        ids = {self._witness.register(name, _text(name, doc)) for doc in "ab"}
        return len(ids) == 2

    def tells_levels(self) -> bool:
        name = _name()
        self._witness.register(name, _text(name))
        tells = self._client.level(Subject("", name)) is None
        assert tells == self._client.tells_levels(Subject("", _name()))
        return tells

    def tells_guids(self) -> bool:
        name = _name()
        number = self._witness.register(name, _text(name))
        guid = self._witness.get(f"/subjects/{name}/versions/1").get("guid")
        return bool(guid) and self._client.ids_of(guid) == (("", number),)

    def takes_names(self) -> bool:
        name = f"{_name()} a/b"
        self._witness.register(name, _text("Mismatches"))
        return name in self._witness.get("/subjects")

    def _imported(
        self, name: str, number: int | None = None, **more: str
    ) -> dict[str, Any] | None:
        """What the registry then has as version 3."""
        self._next = number or self._next + 1
        version = SchemaVersion(
            subject=name,
            version=3,
            id=self._next,
            kind="AVRO",
            text=_text(name),
            **more,
        )
        try:
            self._client.set_mode(version.full_subject, Mode.IMPORT)
            self._client.register(version)
        except RegistryError:
            return None
        status, said = self._witness.ask("GET", f"/subjects/{name}/versions/3")
        return said if status == 200 else None


def _name() -> str:
    return f"t{uuid.uuid4().hex[:12]}"


def _text(name: str, doc: str = "") -> str:
    return _TEXT.replace("NAME", name).replace("DOC", doc)


def _body(name: str) -> dict[str, str]:
    return {"schema": _text(name)}
