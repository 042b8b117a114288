"""What tests of schemas share: real registries, flows between them, and a witness.

`SchemaSides` runs single turns of a flow's schemas without Spark. `Raw` is the witness:
it asks a registry over plain HTTP and shares no code with mirror.
"""

from __future__ import annotations

import contextlib
import json
from typing import TYPE_CHECKING, Any, Self
from urllib.parse import quote
import uuid

import httpx

from mirror.clusters.reach import Reach
from mirror.schemas.claims import SchemaClaims
from mirror.schemas.comparing import RegistryPair, copies_deletes, precedes
from mirror.schemas.registry.registry import Registry
from mirror.schemas.sync import look, sync
from tests.harness.configurations import configuration

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from mirror.clusters.cluster import Cluster
    from mirror.config.schema import FlowConfig, MirrorConfig
    from mirror.schemas.rules import SchemasResult

RESERVED = "mirror-reserved-ids"
JSON = {"Content-Type": "application/vnd.schemaregistry.v1+json"}


def avro(name: str, *fields: str, namespace: str = "n") -> str:
    """An Avro record with optional texts, spelled with line breaks that a registry may
    drop.
    """
    return json.dumps(
        {
            "type": "record",
            "name": name,
            "namespace": namespace,
            "fields": [
                {"name": field, "type": ["null", "string"], "default": None}
                for field in fields
            ],
        },
        indent=1,
    )


_IMPORTS = {
    "unit": """message Unit {
  message Code { string code = 1; } // kept
  Code code = 1;
}""",
    "price": 'import "unit.proto";\nmessage Price { Unit.Code code = 1; Unit a = 2; }',
    "p-value": """import "price.proto";
message Other {}
message P {  message Inner { Price price = 1; } Inner inner = 1; }""",
}
"""Each Protobuf file but the first imports the one before it."""


class Raw:
    """A registry as curl sees it."""

    def __init__(self, url: str, context: str = "") -> None:
        self.url = url
        self._below = f"/contexts/{quote(context)}" if context else ""

    def ask(self, method: str, path: str, body: Any = None, **params: Any) -> Any:
        """The JSON answer; an error of HTTP fails the test, except 404: None."""
        where = f"{self.url}{self._below}{path}"
        # Without TLS there is nothing to verify, and nothing to load for it.
        with httpx.Client(verify=False, timeout=60) as client:
            answer = client.request(
                method, where, json=body, params=params, headers=JSON
            )
        if answer.status_code == httpx.codes.NOT_FOUND:
            return None
        assert answer.is_success, f"{method} {path}: {answer.status_code} {answer.text}"
        return answer.json()

    def register(
        self,
        subject: str,
        text: str,
        *,
        kind: str = "AVRO",
        references: list[dict[str, Any]] | None = None,
    ) -> int:
        """Register as a producer does; the id that the registry chose."""
        body = {"schema": text, "schemaType": kind, "references": references or []}
        return int(
            self.ask("POST", f"/subjects/{quote(subject, safe='')}/versions", body)[
                "id"
            ]
        )

    def register_imports(self) -> None:
        """Protobuf files, one of which imports one that imports another."""
        references: list[dict[str, Any]] = []
        for subject, rest in _IMPORTS.items():
            text = f'syntax = "proto3";\npackage n;\n{rest}\n'
            self.register(subject, text, kind="PROTOBUF", references=references)
            name = f"{subject}.proto"
            references = [{"name": name, "subject": subject, "version": 1}]

    def forget(self, subject: str, version: int) -> None:
        """Delete a version for good, as if it had never been."""
        for permanent in ({}, {"permanent": "true"}):
            path = f"/subjects/{quote(subject, safe='')}/versions/{version}"
            self.ask("DELETE", path, **permanent)

    def delete(self, subject: str, version: int | str) -> None:
        self.ask("DELETE", f"/subjects/{quote(subject, safe='')}/versions/{version}")

    def subjects(self, *, deleted: bool = True) -> list[str]:
        """Without the one that keeps ids free."""
        params = {"deleted": "true"} if deleted else {}
        return sorted(
            name
            for name in self.ask("GET", "/subjects", **params) or ()
            if not name.endswith(RESERVED)
        )

    def versions(self) -> dict[tuple[str, int], tuple[Any, ...]]:
        """Id, type, text, references, and whether it is deleted, of every version."""
        found = {}
        for subject in self.subjects():
            path = f"/subjects/{quote(subject, safe='')}/versions"
            alive = self.ask("GET", path) or []
            for number in self.ask("GET", path, deleted="true") or []:
                said = self.ask("GET", f"{path}/{number}", deleted="true")
                references = {
                    (ref["name"], ref["subject"], ref["version"])
                    for ref in said.get("references") or ()
                }
                found[subject, number] = (
                    said["id"],
                    said.get("schemaType", "AVRO"),
                    said["schema"],
                    references,
                    number not in alive,
                )
        return found

    def text(self, number: int) -> str | None:
        said = self.ask("GET", f"/schemas/ids/{number}")
        return said and said["schema"]

    def mode(self, subject: str = "") -> str | None:
        path = f"/mode/{quote(subject, safe='')}" if subject else "/mode"
        said = self.ask("GET", path)
        return said and said["mode"]

    def set_mode(self, mode: str, subject: str = "", *, force: bool = False) -> None:
        path = f"/mode/{quote(subject, safe='')}" if subject else "/mode"
        self.ask("PUT", path, {"mode": mode}, **({"force": "true"} if force else {}))

    def level(self, subject: str = "") -> str | None:
        path = f"/config/{quote(subject, safe='')}" if subject else "/config"
        said = self.ask("GET", path)
        return said and said["compatibilityLevel"]

    def set_level(self, level: str, subject: str = "") -> None:
        path = f"/config/{quote(subject, safe='')}" if subject else "/config"
        self.ask("PUT", path, {"compatibility": level})


class _KilledError(Exception):
    """Stands for SIGKILL."""


class SchemaSides:
    """Flows between registries, whose clusters have aliases that no other test has: so
    their topics of claims are their own.
    """

    def __init__(
        self,
        ends: Mapping[str, tuple[str, str]],
        flows: Mapping[str, Mapping[str, Any]],
    ) -> None:
        """`ends`: the bootstrap and the registry's address of each cluster."""
        mark = uuid.uuid4().hex[:6]
        self.alias = {name: f"{name}{mark}" for name in ends}
        self.document: dict[str, Any] = {
            "clusters": {
                self.alias[name]: {
                    "bootstrap_servers": bootstrap,
                    "schema_registry": {"url": url},
                }
                for name, (bootstrap, url) in ends.items()
            },
            "flows": {
                self.name(flow): {"schemas": "copy", **settings}
                for flow, settings in flows.items()
            },
        }
        self.config = configuration(self.document)
        self.reach = Reach(self.config.clusters, client_id="test")

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.reach.__exit__(None, None, None)

    def name(self, flow: str) -> str:
        return "->".join(self.alias[end] for end in flow.split("->"))

    def flow(self, name: str = "A->B") -> FlowConfig:
        return self.config.flows[self.name(name)]

    @contextlib.contextmanager
    def ends(
        self, name: str = "A->B", *, pace: Callable[[], None] = lambda: None
    ) -> Iterator[RegistryPair]:
        """`pace` is called before each request to the target's registry."""
        with ends_of(self.config, self.flow(name), self.reach, pace=pace) as ends:
            yield ends

    def sync(self, name: str = "A->B", **options: Any) -> SchemasResult:
        with self.ends(name, **options) as ends:
            return sync(ends)

    def is_cut_off(self, requests: int) -> bool:
        """Sync, until that many requests were sent to the target's registry: nothing
        of ours runs on then, as after SIGKILL. Whether it came to that.
        """
        left = iter(range(requests))

        def pace() -> None:
            if next(left, None) is None:
                raise _KilledError

        try:
            self.sync(pace=pace)
        except _KilledError:
            return True
        return False

    def look(self, name: str = "A->B") -> SchemasResult:
        with self.ends(name) as ends:
            return look(ends)


@contextlib.contextmanager
def ends_of(
    config: MirrorConfig,
    flow: FlowConfig,
    reach: Callable[[str], Cluster],
    *,
    pace: Callable[[], None] = lambda: None,
) -> Iterator[RegistryPair]:
    """What the service's job works with."""
    with (
        Registry(config.clusters[flow.source]) as source,
        Registry(config.clusters[flow.target], pace=pace) as target,
    ):
        yield RegistryPair(
            flow=flow,
            source=source,
            target=target,
            claims=SchemaClaims(reach(flow.target), flow.source, replication_factor=1),
            deletes=copies_deletes(flow, config.enabled_flows),
            reserves=precedes(flow, config.enabled_flows),
        )


def states(found: SchemasResult) -> dict[str, str]:
    """By subject, as registries spell it."""
    return {str(each.subject): str(each.state) for each in found.subjects}


def reason(found: SchemasResult, subject: str) -> str:
    return next(e.reason for e in found.subjects if str(e.subject) == subject)
