"""Where each setting's value comes from: a variable, the file, or the schema.

Main function: `origins`, one `Setting` for each setting of each section. Secrets are
shown as stars; `shown` does so for one value. It reads what `load` reads and decides
nothing.
"""

from __future__ import annotations

from dataclasses import dataclass
import re
from typing import TYPE_CHECKING, Any

from pydantic import SecretStr

from mirror.config.cluster_settings import ClusterConfig
from mirror.config.document import Path, dotted
from mirror.config.mm2.convert import plain
from mirror.config.schema import FlowConfig
from mirror.config.service_settings import ServiceConfig

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from pydantic import BaseModel

    from mirror.config.document import Document
    from mirror.config.schema import MirrorConfig

_FROM_KEY = {"alias", "source", "target"}
HIDDEN = "***"
SPARK_SECRET = re.compile(r"(?i)secret|password|token|access[.]?key")
"""Which of Spark's own settings it hides itself (`spark.redaction.regex`)."""
_MAY_HIDE = {
    name
    for model in (ClusterConfig, FlowConfig, ServiceConfig)
    for name, field in model.model_fields.items()
    if not field.repr
}
"""Settings of many values, of which one may be a password."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Setting:
    setting: str
    value: Any
    origin: str
    """variable, file or default."""
    written: str
    """The variable, or the key in the file; empty for a default."""


def origins(config: MirrorConfig, document: Document) -> tuple[Setting, ...]:
    """Every setting of the configuration that was built from this document."""
    raw = document.raw
    under = raw.get("defaults") or {}
    found: list[Setting] = []
    for alias, cluster in config.clusters.items():
        given = _entry(raw, "clusters", alias)
        found += _settings(cluster, ("clusters", alias), given, document, {})
    for name, flow in config.flows.items():
        key = next(
            (each for each in raw.get("flows", {}) if _named(each) == name), name
        )
        given = _entry(raw, "flows", key)
        found += _settings(flow, ("flows", key), given, document, under)
    given = raw.get("service") or {}
    found += _settings(config.service, ("service",), given, document, {})
    return tuple(found)


def shown(name: str, value: Any) -> Any:
    """A setting's value in plain types, or stars where it is or may hide a secret."""
    hidden = isinstance(value, SecretStr) or (name in _MAY_HIDE and value)
    return HIDDEN if hidden else plain(value)


def _settings(
    section: BaseModel,
    place: Path,
    given: Mapping[str, Any],
    document: Document,
    under: Mapping[str, Any],
) -> Iterator[Setting]:
    for name in type(section).model_fields:
        if name in _FROM_KEY:
            continue
        value = getattr(section, name)
        path: Path | None = None
        if name in given:
            path = (*place, name)
        elif name in under:
            path = ("defaults", name)
        written = document.spelled.get(path, dotted(path)) if path else ""
        origin = "file" if path else "default"
        if written.startswith("MIRROR_"):
            origin = "variable"
        if name == "spark":
            value = {
                key: HIDDEN if SPARK_SECRET.search(key) else each
                for key, each in value.items()
            }
        yield Setting(
            setting=dotted((*place, name)),
            value=shown(name, value),
            origin=origin,
            written=written,
        )


def _entry(raw: Mapping[str, Any], section: str, name: str) -> Mapping[str, Any]:
    return (raw.get(section) or {}).get(name) or {}


def _named(key: str) -> str:
    arrow = "->" if "->" in key else "/"
    return "->".join(part.strip() for part in key.split(arrow, 1))
