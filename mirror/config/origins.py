"""Where each setting's value comes from: a variable, the file, or the schema.

Main function: `origins`, which returns a `Setting` for each setting of each section.
`shown` and `hidden` put stars in place of secrets.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from pydantic import BaseModel, SecretStr

from mirror.config.document import Path, dotted
from mirror.config.mm2.convert import plain
from mirror.config.pair_settings import pair_name
from mirror.config.section_names import pair_parts
from mirror.config.traits import HIDDEN, may_hide_secrets, settings, traits

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from pydantic.fields import FieldInfo

    from mirror.config.document import Document
    from mirror.config.schema import MirrorConfig


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
    for name, pair in config.recovery.items():
        key = next((k for k in raw["recovery"] if _is_pair(k, name)), name)
        given = _entry(raw, "recovery", key)
        found += _settings(pair, ("recovery", key), given, document, {})
    given = raw.get("service") or {}
    found += _settings(config.service, ("service",), given, document, {})
    return tuple(found)


def shown(info: FieldInfo, value: Any) -> Any:
    """A setting's value in plain types, with stars in place of what may be secret."""
    pattern = traits(info).secret_keys
    if pattern is not None:
        return {k: HIDDEN if pattern.search(k) else each for k, each in value.items()}
    return hidden(info, value)


def hidden(info: FieldInfo, value: Any) -> Any:
    """The same, with stars in place of a whole mapping that may hold secrets."""
    # An empty secret is hidden, too; it counts as false.
    if isinstance(value, SecretStr) or (may_hide_secrets(info) and value):
        return HIDDEN
    if isinstance(value, BaseModel):
        inner = settings(type(value)).items()
        return {name: shown(each, getattr(value, name)) for name, each in inner}
    return plain(value)


def _settings(
    section: BaseModel,
    place: Path,
    given: Mapping[str, Any],
    document: Document,
    under: Mapping[str, Any],
) -> Iterator[Setting]:
    for name, info in settings(type(section)).items():
        path: Path | None = None
        if name in given:
            path = (*place, name)
        elif name in under:
            path = ("defaults", name)
        written = document.spelled.get(path, dotted(path)) if path else ""
        origin = "file" if path else "default"
        if written.startswith("MIRROR_"):
            origin = "variable"
        value = getattr(section, name)
        if isinstance(value, BaseModel) and not may_hide_secrets(info):
            inner = given.get(name) or {}
            yield from _settings(value, (*place, name), inner, document, {})
            continue
        yield Setting(
            setting=dotted((*place, name)),
            value=shown(info, value),
            origin=origin,
            written=written,
        )


def _is_pair(key: str, name: str) -> bool:
    parts = pair_parts(key)
    return parts is not None and pair_name(*parts) == name


def _entry(raw: Mapping[str, Any], section: str, name: str) -> Mapping[str, Any]:
    return (raw.get(section) or {}).get(name) or {}


def _named(key: str) -> str:
    arrow = "->" if "->" in key else "/"
    return "->".join(part.strip() for part in key.split(arrow, 1))
