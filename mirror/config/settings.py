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
from mirror.config.section_names import pair_parts

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
            "clusters": {
                "type": "object",
                "minProperties": 1,
                "additionalProperties": sections["clusters"],
            },
            "defaults": {"anyOf": [sections["flows"], {"type": "null"}]},
            "flows": {
                "type": "object",
                "minProperties": 1,
                "additionalProperties": {
                    "anyOf": [sections["flows"], {"type": "null"}]
                },
            },
            "recovery": {
                "anyOf": [
                    {
                        "type": "object",
                        "additionalProperties": sections["recovery"],
                    },
                    {"type": "null"},
                ]
            },
            "service": {"anyOf": [sections["service"], {"type": "null"}]},
        },
        "$defs": definitions,
    }
    return json.dumps(document, indent=2, ensure_ascii=False) + "\n"


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


# ---- what the Helm chart must know ----


if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from pydantic.fields import FieldInfo

    from mirror.config.section import Key, Section

    Asks = Callable[[type[Section], str, FieldInfo], bool]

_SECRET_KEYS = "(?i)secret|password|token|credential|(access|api|private)[-_.]?key"  # noqa: S105  names only
"""Entries of a mapping that are secrets, unless the setting itself says which."""
_JAAS = "sasl.jaas.config"
_SECTIONS = {name: each for name, each in SECTIONS.items() if name != "defaults"}
"""Flows say what is true of `defaults`."""


def for_chart() -> str:
    """The whole file, in YAML."""
    lists: dict[str, dict[str, Any]] = {
        "secret": _names(lambda _section, _name, info: is_secret(info)),
        "mappings": {
            name: {
                field: _pattern(info)
                for field, info in _with_inner(section)
                if is_mapping(info) and may_hide_secrets(info)
            }
            for name, section in _SECTIONS.items()
        },
        "restart": _names(
            # A setting of a section within one has the effect of the latter.
            lambda section, name, _info: (
                Effect.RESTART in section.effect(name.partition(".")[0])
                and "." not in name
            )
        ),
        "properties": {
            "secret": _keys(
                lambda _section, _name, info: is_secret(info),
                lambda key: Where.LOGIN not in key.where and key.name != _JAAS,
            ),
            "login": [
                "password",
                *_keys(
                    lambda _section, _name, info: is_secret(info),
                    lambda key: Where.LOGIN in key.where,
                ),
            ],
            "restart": _keys(
                lambda section, name, _info: Effect.RESTART in section.effect(name),
                lambda _key: True,
            ),
        },
    }
    lines = ["# Made from the model by `make settings`; do not edit."]
    for name, values in lists.items():
        lines.append(f"{name}:")
        lines += [f"  {key}: {json.dumps(value)}" for key, value in values.items()]
    return "\n".join(lines) + "\n"


def _names(asks: Asks) -> dict[str, list[str]]:
    return {
        name: [
            field for field, info in _with_inner(section) if asks(section, field, info)
        ]
        for name, section in _SECTIONS.items()
    }


def _with_inner(
    section: type[BaseModel], place: str = ""
) -> Iterator[tuple[str, FieldInfo]]:
    """The settings of a section, and those of sections in it with dots."""
    for name, info in settings(section).items():
        yield f"{place}{name}", info
        if (inner := section_of(info)) is not None:
            yield from _with_inner(inner, f"{place}{name}.")


def _keys(asks: Asks, counts: Callable[[Key], bool]) -> list[str]:
    """MirrorMaker 2's names of these settings."""
    found = {
        key.name
        for section in _SECTIONS.values()
        for field, info in settings(section).items()
        if asks(section, field, info)
        for key in traits(info).mm2
        if counts(key)
    }
    return sorted(found)


def _pattern(info: FieldInfo) -> str:
    own = traits(info).secret_keys
    return own.pattern if own else _SECRET_KEYS
