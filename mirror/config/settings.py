"""Every setting, written from the model: for editors, for reading, for pasting.

Functions: `json_schema`, `reference` (Markdown) and `example` (YAML, all settings with
their defaults as comments). The files that hold these texts are made by `make
settings`; a test sees that they are current.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from pydantic import SecretStr
from pydantic_core import PydanticUndefined

from mirror.config.mm2.convert import as_text
from mirror.config.schema import SECTIONS
from mirror.config.traits import may_hide_secrets, section_of, settings

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator

    from pydantic import BaseModel
    from pydantic.fields import FieldInfo

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
