"""Every setting, written from the model, and where its value comes from.

`json_schema`, `reference` (Markdown) and `example` (YAML, all settings with their
defaults as comments) are for editors, for reading, for pasting. `for_chart` is what the
Helm chart must know: it refuses secrets that would land in a ConfigMap, and restarts
pods only for settings that a running service refuses to change. The files that hold
these texts are made by `make settings`; a test sees that they are current.

`origins` returns a `Setting` for each setting of each section of a configuration: its
value comes from a variable, the file, or the schema. `shown` and `hidden` put stars in
place of secrets.
"""

from __future__ import annotations

from dataclasses import dataclass
import json
from typing import TYPE_CHECKING, Any

from pydantic import BaseModel, SecretStr
from pydantic_core import PydanticUndefined

from mirror.config.document import Path, dotted
from mirror.config.mm2.convert import as_text, plain
from mirror.config.pair_settings import pair_name
from mirror.config.schema import SECTIONS
from mirror.config.section import (
    HIDDEN,
    Effect,
    Where,
    is_mapping,
    is_secret,
    may_hide_secrets,
    section_of,
    settings,
    traits,
)
from mirror.config.section_names import flow_ends, pair_parts

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Mapping

    from pydantic.fields import FieldInfo

    from mirror.config.document import Document
    from mirror.config.schema import MirrorConfig


_ABOUT = {
    "clusters": "Each cluster, under its alias.",
    "flows": 'Each flow, under "A->B". Settings under `defaults` apply to all flows.',
    "recovery": "Each pair of clusters that `mirror switch` and `mirror failover` work "
    'on, under "A<->B"; several pairs of the same clusters, each with topics and '
    'groups of its own, under "A<->B/orders" and so on.',
    "service": "The process itself.",
}

_INNER = "The mapping `{0}`; as a variable `MIRROR_CLUSTERS__<alias>__{0}__<name>`."


def json_schema() -> str:
    """A JSON schema of the YAML file, for editors and for checks before a commit."""
    definitions: dict[str, Any] = {}
    sections = {name: _section(SECTIONS[name], definitions) for name in _ABOUT}
    document = {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "mirror's configuration",
        "type": "object",
        "additionalProperties": False,
        "required": ["clusters", "flows"],
        "properties": {
            "clusters": _mapping_of(sections["clusters"], minProperties=1),
            "defaults": _or_null(sections["flows"]),
            "flows": _mapping_of(_or_null(sections["flows"]), minProperties=1),
            "recovery": _or_null(_mapping_of(sections["recovery"])),
            "service": _or_null(sections["service"]),
        },
        "$defs": definitions,
    }
    return json.dumps(document, indent=2, ensure_ascii=False) + "\n"


def _mapping_of(section: Mapping[str, Any], **limits: int) -> dict[str, Any]:
    return {"type": "object", **limits, "additionalProperties": section}


def _or_null(schema: Mapping[str, Any]) -> dict[str, Any]:
    return {"anyOf": [schema, {"type": "null"}]}


def reference() -> str:
    """All settings as tables, for people."""
    lines = [
        "# Settings",
        "",
        "Made from the model by `make settings`; do not edit. A variable can also set",
        "each setting, and overrides the file: `MIRROR_CLUSTERS__<alias>__<name>`,",
        "`MIRROR_FLOWS__<a>__TO__<b>__<name>`, `MIRROR_DEFAULTS__<name>` or",
        "`MIRROR_SERVICE__<name>`.",
    ]
    for name, about in _ABOUT.items():
        lines += ["", f"## {name}", "", about, "", *_table(SECTIONS[name])]
        for field, inner in _inner(SECTIONS[name]).items():
            lines += ["", f"### {name}: {field}", "", _INNER.format(field), ""]
            lines += _table(inner)
    return "\n".join(lines) + "\n"


def _table(section: type[BaseModel]) -> list[str]:
    return [
        "| Setting | Default | Meaning |",
        "|---|---|---|",
        *(
            f"| `{field}` | {_in_cell(_default(info))} | {_cell(info.description)} |"
            for field, info in settings(section).items()
        ),
    ]


def _inner(section: type[BaseModel]) -> dict[str, type[BaseModel]]:
    """The sections that are settings of this one, by their names; not those that are
    described in one line.
    """
    return {
        field: inner
        for field, info in settings(section).items()
        if (inner := section_of(info)) is not None and not may_hide_secrets(info)
    }


def example() -> str:
    """A file that names every setting; those that have defaults are comments."""
    lines = [
        "# All settings with their defaults. Made by `make settings`; copy from it.",
        "clusters:",
        "  A:",
        '    bootstrap_servers: "a-1.example.com:9092"',
        *_commented(SECTIONS["clusters"], indent="    "),
        '  B: {bootstrap_servers: "b-1.example.com:9092"}',
        "",
        "# Settings under defaults apply to all flows.",
        "defaults: {}",
        "",
        "flows:",
        "  A->B:",
        "    enabled: true",
        *_commented(SECTIONS["flows"], indent="    ", besides={"enabled"}),
        "",
        "# With `policy: identity` under defaults, so that topics keep their names:",
        "# recovery:",
        "#   A<->B:",
        "#     active: A",
        *_commented(SECTIONS["recovery"], indent="#     "),
        "",
        "service:",
        '  http_host: "127.0.0.1"',
        *_commented(SECTIONS["service"], indent="  ", besides={"http_host"}),
    ]
    return "\n".join(lines) + "\n"


def _section(model: type[BaseModel], definitions: dict[str, Any]) -> dict[str, Any]:
    made = model.model_json_schema(ref_template="#/$defs/{model}")
    definitions.update(made.pop("$defs", {}))
    for inner in _inner(model).values():
        properties = definitions[inner.__name__]["properties"]
        for name in settings(inner):
            properties[name] = _as_written(properties[name])
    known = settings(model)
    made["properties"] = {name: _as_written(made["properties"][name]) for name in known}
    required = [name for name in made.pop("required", []) if name in known]
    if required:
        made["required"] = required
    made.pop("description", None)
    return made


def _as_written(schema: dict[str, Any]) -> dict[str, Any]:
    """Lists of texts may also be one text with commas; words in any case."""
    if schema.get("type") == "array" and schema["items"].get("type") == "string":
        kept = {key: schema[key] for key in ("type", "items")}
        rest = {key: value for key, value in schema.items() if key not in kept}
        return {**rest, "anyOf": [kept, {"type": "string"}, {"type": "null"}]}
    return schema


def _default(info: FieldInfo) -> str:
    value = info.get_default(call_default_factory=True)
    if value is PydanticUndefined:
        return ""
    assert not isinstance(value, SecretStr)
    return as_text(value)


def _in_cell(text: str) -> str:
    return f"`{text}`".replace("|", "\\|") if text else "required"


def _cell(text: str | None) -> str:
    return (text or "").replace("|", "\\|").replace("<", "&lt;")


def _commented(
    model: type[BaseModel],
    *,
    indent: str,
    besides: Collection[str] = (),
) -> Iterator[str]:
    for name, info in settings(model).items():
        if info.is_required() or name in besides:
            continue
        words = (info.description or "").split()
        line = f"{indent}#"
        for word in words:
            if len(line) + 1 + len(word) > 88:
                yield line
                line = f"{indent}#"
            line += f" {word}"
        yield line
        yield f"{indent}#{name}: {_default(info)}"
        if (inner := _inner(model).get(name)) is not None:
            yield from _commented(inner, indent=f"{indent}#  ")


# ---- where each value comes from ----


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
    found: list[Setting] = []
    for section in ("clusters", "flows", "recovery"):
        raw = document.raw.get(section) or {}
        keys = {_name(section, key): key for key in raw}
        under = (document.raw.get("defaults") or {}) if section == "flows" else {}
        for name, each in getattr(config, section).items():
            key = keys.get(name, name)
            given = raw.get(key) or {}
            found += _settings(each, (section, key), given, document, under)
    given = document.raw.get("service") or {}
    found += _settings(config.service, ("service",), given, document, {})
    return tuple(found)


def _name(section: str, key: str) -> str:
    """How the configuration calls what is under this key."""
    if section == "flows":
        return "->".join(flow_ends(key) or ())
    if section == "recovery" and (parts := pair_parts(key)):
        return pair_name(*parts)
    return key


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


# ---- what the Helm chart must know ----

_SECRET_KEYS = "(?i)secret|password|token|credential|(access|api|private)[-_.]?key"  # noqa: S105  names only
"""Entries of a mapping that are secrets, unless the setting itself says which."""
_JAAS = "sasl.jaas.config"
_SECTIONS = {name: each for name, each in SECTIONS.items() if name != "defaults"}
"""Flows say what is true of `defaults`."""


def for_chart() -> str:
    """The whole file, in YAML."""
    secret: dict[str, list[str]] = {}
    mappings: dict[str, dict[str, str]] = {}
    restart: dict[str, list[str]] = {}
    secret_keys: set[str] = set()
    login_options: set[str] = set()
    restart_keys: set[str] = set()
    for name, section in _SECTIONS.items():
        whole = dict(_with_inner(section))
        own = settings(section)
        secret[name] = [field for field, info in whole.items() if is_secret(info)]
        mappings[name] = {
            field: _pattern(info)
            for field, info in whole.items()
            if is_mapping(info) and may_hide_secrets(info)
        }
        # A setting of a section within one has the effect of the latter.
        restart[name] = [each for each in own if Effect.RESTART in section.effect(each)]
        for field, info in own.items():
            for key in traits(info).mm2:
                if field in restart[name]:
                    restart_keys.add(key.name)
                if is_secret(info) and Where.LOGIN in key.where:
                    login_options.add(key.name)
                elif is_secret(info) and key.name != _JAAS:
                    secret_keys.add(key.name)
    lists: dict[str, Mapping[str, Any]] = {
        "secret": secret,
        "mappings": mappings,
        "restart": restart,
        "properties": {
            "secret": sorted(secret_keys),
            "login": ["password", *sorted(login_options)],
            "restart": sorted(restart_keys),
        },
    }
    lines = ["# Made from the model by `make settings`; do not edit."]
    for name, values in lists.items():
        lines.append(f"{name}:")
        lines += [f"  {key}: {json.dumps(value)}" for key, value in values.items()]
    return "\n".join(lines) + "\n"


def _with_inner(
    section: type[BaseModel], place: str = ""
) -> Iterator[tuple[str, FieldInfo]]:
    """The settings of a section, and those of sections in it with dots."""
    for name, info in settings(section).items():
        yield f"{place}{name}", info
        if (inner := section_of(info)) is not None:
            yield from _with_inner(inner, f"{place}{name}.")


def _pattern(info: FieldInfo) -> str:
    own = traits(info).secret_keys
    return own.pattern if own else _SECRET_KEYS
