"""Real schema registries for tests, and a witness that asks them by itself.

`MAKES` are the registries that contract tests run against: Apicurio, axonops where its
program is there, and what MIRROR_TEST_REGISTRIES names, addresses with commas between
them. `running` starts one. `Witness` is an ordinary HTTP client without any of
mirror's code.
"""

from __future__ import annotations

from contextlib import contextmanager
import json
import os
from typing import TYPE_CHECKING, Any
import urllib.error
from urllib.parse import quote
import urllib.request

import pytest

from mirror.config.cluster_settings import ClusterConfig
from mirror.schemas.registry.registry import Registry
from tests import tools
from tests.harness.registry_process import (
    AXONOPS_PROGRAM,
    apicurio,
    axonops,
)

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.harness.registry_process import RegistryProcess

GIVEN = "MIRROR_TEST_REGISTRIES"
_GIVEN = [url for url in os.environ.get(GIVEN, "").split(",") if url.strip()]
_AXONOPS = pytest.param("axonops", marks=pytest.mark.needs("registry"))

KEEPING_IDS = [_AXONOPS, *_GIVEN]
"""Those that take an id with a schema."""
MAKES = ["apicurio", *KEEPING_IDS]
_JSON = "application/vnd.schemaregistry.v1+json"


@contextmanager
def running(make: str, folder: Path) -> Iterator[str]:
    """The address of a registry of this make."""
    if make in _GIVEN:
        yield make.strip()
        return
    one = apicurio(folder) if make == "apicurio" else axonops_here(folder)
    with one:
        yield one.url


def axonops_here(folder: Path, **security: Any) -> Any:
    """One that a test starts and kills; mark it with `needs("registry")`."""
    return axonops(tools.path(AXONOPS_PROGRAM), folder, security=security)


@contextmanager
def two(folder: Path) -> Iterator[tuple[RegistryProcess, RegistryProcess]]:
    """Two empty ones, as `axonops_here`."""
    with axonops_here(folder / "a") as one, axonops_here(folder / "b") as other:
        yield one, other


def registry(*urls: str, **settings: Any) -> Registry:
    """Mirror's client."""
    section = {"url": list(urls), **settings}
    config = {"alias": "A", "bootstrap_servers": "a:9092", "schema_registry": section}
    return Registry(ClusterConfig.model_validate(config))


class Witness:
    """Asks a registry without mirror's code."""

    def __init__(self, url: str, headers: dict[str, str] | None = None) -> None:
        self._url = url
        self._headers = headers or {}

    def ask(self, method: str, path: str, body: Any = None) -> tuple[int, Any]:
        """The status, and the document."""
        request = urllib.request.Request(
            f"{self._url}{path}",
            method=method,
            data=None if body is None else json.dumps(body).encode(),
            headers={"Content-Type": _JSON, **self._headers},
        )
        try:
            with urllib.request.urlopen(request, timeout=60) as answer:
                status, raw = answer.status, answer.read()
        except urllib.error.HTTPError as error:
            status, raw = error.code, error.read()
        return status, json.loads(raw) if raw else None

    def get(self, path: str) -> Any:
        status, document = self.ask("GET", path)
        assert status == 200, (path, status, document)
        return document

    def register(self, subject: str, text: str, **more: Any) -> int:
        """As a producer does; returns the id."""
        path = f"/subjects/{quote(subject, safe=':+()')}/versions"
        status, document = self.ask("POST", path, {"schema": text, **more})
        assert status == 200, (subject, status, document)
        return document["id"]

    def delete(self, subject: str, version: int | None = None) -> None:
        path = f"/subjects/{quote(subject, safe=':+()')}"
        path += "" if version is None else f"/versions/{version}"
        status, document = self.ask("DELETE", path)
        assert status == 200, (subject, status, document)
