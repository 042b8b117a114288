"""Schema registries beside the model's clusters, as far as mirror and producers ask.

Main type: `ModelRegistry`, which answers Confluent's API: schemas, modes and levels of
the default context. `answering` has it answer in place of HTTP: it dies with its
cluster, may fail, and may have done what it does not confirm. Source: the API's
reference, and Confluent's `KafkaSchemaRegistry` for modes and ids.
"""

from __future__ import annotations

import contextlib
from dataclasses import dataclass
import json
from typing import TYPE_CHECKING, Any
from unittest import mock
from urllib.parse import unquote

from mirror.schemas.registry.channel import HttpAnswer, HttpLine
from tests.simulation.world import sent

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from tests.simulation.world import World

_OPEN, _READONLY, _IMPORT = "READWRITE", "READONLY", "IMPORT"
_NO_MODE, _NO_LEVEL, _NO_SCHEMA, _NO_SUBJECT = 40409, 40408, 40403, 40401
_NOT_SOFTLY = 40405
_REFUSED = 42205
Reply = tuple[int, Any]


@dataclass(frozen=True, kw_only=True)
class Version:
    """A version of a subject."""

    subject: str
    version: int
    id: int
    text: str

    @property
    def row(self) -> dict[str, Any]:
        return {
            "subject": self.subject, "version": self.version, "id": self.id,
            "schema": self.text,
        }  # fmt: skip


class ModelRegistry:
    """What one registry holds."""

    def __init__(self) -> None:
        self.versions: list[Version] = []
        self.deleted: set[Version] = set()
        """Softly."""
        self.modes: dict[str, str] = {}
        """Own modes of subjects; of the whole registry under the empty name."""
        self.levels: dict[str, str] = {}

    def text(self, number: int) -> str | None:
        """The schema with this id."""
        return next((each.text for each in self.versions if each.id == number), None)

    def register(self, subject: str, text: str) -> int | None:
        """As an application; its id, or None if that is refused."""
        status, said = self._register(subject, {"schema": text})
        return said["id"] if status == 200 else None

    def may_register(self, subject: str) -> bool:
        return self._mode(subject) == _OPEN

    def reply(
        self, method: str, path: str, params: Mapping[str, str], body: Any
    ) -> Reply:
        """HTTP's status and a document."""
        match [method, *map(unquote, path.strip("/").split("/"))]:
            case ["GET", "contexts"]:
                return 200, [":.:"]
            case ["GET", "schemas"]:
                rows = [each.row for each in self._shown(params)]
                return 200, rows[int(params.get("offset", 0)) :]
            case ["GET", "schemas", "ids", number]:
                text = self.text(int(number))
                return (404, _NO_SCHEMA) if text is None else (200, {"schema": text})
            case ["GET", "schemas", "ids", number, "versions"]:
                shown = self._shown(params)
                those = [each for each in shown if each.id == int(number)]
                rows = [{"subject": e.subject, "version": e.version} for e in those]
                return (200, rows) if rows else (404, _NO_SCHEMA)
            case ["GET", "subjects", name, "versions"]:
                shown = self._shown(params)
                numbers = [each.version for each in shown if each.subject == name]
                return (200, numbers) if numbers else (404, _NO_SUBJECT)
            case ["GET", "subjects", name, "versions", number]:
                those = [e for e in self._shown(params) if e.subject == name]
                found = (e.row for e in those if e.version == int(number))
                row = next(found, None)
                return (404, _NO_SUBJECT) if row is None else (200, row)
            case ["POST", "subjects", name, "versions"]:
                return self._register(name, body)
            case ["DELETE", "subjects", name]:
                return self._delete(self._of(name), params)
            case ["DELETE", "subjects", name, "versions", number]:
                those = [e for e in self._of(name) if e.version == int(number)]
                return self._delete(those, params)
            case [_, "mode" | "config" as what, *name]:
                return self._setting(method, what, name[0] if name else "", body)
        return 404, 404

    def _of(self, subject: str) -> list[Version]:
        return [each for each in self.versions if each.subject == subject]

    def _shown(self, params: Mapping[str, str]) -> list[Version]:
        if "deleted" in params:
            return self.versions
        return [each for each in self.versions if each not in self.deleted]

    def _delete(self, those: list[Version], params: Mapping[str, str]) -> Reply:
        if not those:
            return 404, _NO_SUBJECT
        if "permanent" not in params:
            self.deleted.update(those)
            return 200, [each.version for each in those]
        if not self.deleted.issuperset(those):
            return 404, _NOT_SOFTLY
        self.versions = [each for each in self.versions if each not in those]
        return 200, [each.version for each in those]

    def _mode(self, subject: str) -> str:
        return self.modes.get(subject) or self.modes.get("", _OPEN)

    def _register(self, subject: str, body: Any) -> Reply:
        there, text = self._of(subject), body["schema"]
        if "id" not in body:
            known = next((e.id for e in there if e.text == text), None)
            if known is not None:
                return 200, {"id": known}
            if self._mode(subject) != _OPEN:
                return 422, _REFUSED
            number = next((e.id for e in self.versions if e.text == text), None)
            if number is None:
                number = max((e.id for e in self.versions), default=0) + 1
            version = max((e.version for e in there), default=0) + 1
        else:
            number, version = body["id"], body["version"]
            if self._mode(subject) != _IMPORT or self.text(number) not in {None, text}:
                return 422, _REFUSED
            there = [e for e in there if e.version != version]
        made = Version(subject=subject, version=version, id=number, text=text)
        if made not in self.versions:
            self.versions.append(made)
        return 200, {"id": number}

    def _setting(self, method: str, what: str, name: str, body: Any) -> Reply:
        if what == "mode":
            kept, missing = self.modes, _NO_MODE
            given, shown, default = "mode", "mode", _OPEN
        else:
            kept, missing = self.levels, _NO_LEVEL
            given, shown, default = "compatibility", "compatibilityLevel", "BACKWARD"
        if method == "PUT":
            kept[name] = body[given]
            return 200, body
        if name and name not in kept:
            return 404, missing
        found = kept.get(name, default)
        if method == "DELETE":
            kept.pop(name, None)
        return 200, {shown: found}


@contextlib.contextmanager
def answering(
    world: World,
    registries: Mapping[str, ModelRegistry],
    *,
    reached: Callable[[str], bool],
    troubled: Callable[[], bool],
) -> Iterator[None]:
    """HTTP lines lead to these registries, by host. `reached`: whether this process
    reaches one; `troubled`: whether something goes wrong with this request.
    """

    def ask(
        line: HttpLine,
        method: str,
        path: str,
        params: Mapping[str, str],
        content: bytes | None,
        *,
        seconds: float,
        **_: object,
    ) -> HttpAnswer:
        host = line._address.hostname or ""
        sent(world)
        if not reached(host):
            world.sleep(min(seconds, 0.5))
            raise TimeoutError
        world.sleep(world.random.uniform(0.001, 0.01))
        late = troubled()
        if late and world.random.random() < 0.5:
            return _answer(503, 50003)
        body = None if content is None else json.loads(content)
        status, said = registries[host].reply(method, path, params, body)
        if method != "GET":
            world.note(f"{host}: {method} {path} of {world.process.name}: {status}")
        if late:
            raise ConnectionResetError
        return _answer(status, said)

    with mock.patch.object(HttpLine, "ask", ask):
        yield


def _answer(status: int, said: Any) -> HttpAnswer:
    if status != 200:
        said = {"error_code": said, "message": "as the model says"}
    raw = json.dumps(said).encode()
    return HttpAnswer(status=status, reason="", kind="application/json", raw=raw)
