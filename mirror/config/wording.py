"""Pydantic's findings as sentences: setting, value, and what would be right.

Main function: `sentences`. Values that may hold secrets are never repeated, nor those
of unknown settings, since a secret may have a mistyped name.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from mirror.config.document import Path, dotted
from mirror.config.schema import SECTIONS
from mirror.config.traits import entry_of, is_secret, may_hide_secrets, settings
from mirror.config.values import near

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pydantic import BaseModel, ValidationError

_CALLED = {
    "clusters": "a cluster",
    "flows": "a flow",
    "recovery": "a pair",
    "service": "service",
}
_IN_LIST = re.compile(r"\[\d+\]: ")
_KINDS = {
    "int": "is not a whole number",
    "float": "is not a number",
    "finite": "is not a number",
    "bool": "is neither true nor false",
    "string": "is not text: write it in quotes",
    "path": "is not a path: write it in quotes",
    "dict": "is not a mapping",
    "mapping": "is not a mapping",
    "model": "is not a mapping",
}
_BOUNDS = {
    "greater_than": ("too small; it must be above", "gt"),
    "greater_than_equal": ("too small; at least", "ge"),
    "less_than": ("too large; it must be below", "lt"),
    "less_than_equal": ("too large; at most", "le"),
}


def sentences(
    error: ValidationError,
    model: type[BaseModel],
    path: Path,
    spelled: Mapping[Path, str],
) -> list[str]:
    """At least one sentence for each finding about the section at `path`."""
    found = []
    for detail in error.errors(include_url=False):
        context: Mapping[str, Any] = detail.get("ctx", {})
        place, section = _place([str(part) for part in detail["loc"]], model, path)
        if detail["type"] == "mirror_section":
            place = (*place, context["field"])
        texts = context.get("each") or [
            _sentence(detail["type"], detail["input"], context, place, section)
        ]
        for text in texts:
            joint = "" if _IN_LIST.match(text) else ": "
            found.append(f"{spelled.get(place, dotted(place))}{joint}{text}")
    return found


def _place(
    parts: list[str], model: type[BaseModel], path: Path
) -> tuple[Path, type[BaseModel]]:
    """A finding's place, and the section that it is in. Below a section's settings,
    parts are pydantic's: tags of unions, positions in a list.
    """
    while len(parts) > 1 and parts[0] in model.model_fields:
        inner = entry_of(model.model_fields[parts[0]])
        if inner is None:
            break
        path, model, parts = (*path, parts[0]), inner, parts[1:]
    return (*path, *parts[:1]), model


def _sentence(
    kind: str,
    value: Any,
    context: Mapping[str, Any],
    place: Path,
    model: type[BaseModel],
) -> str:
    if kind == "mirror_section":
        return str(context["what"])
    if kind in {"extra_forbidden", "invalid_key"}:  # a name that is no text, too
        return f"unknown setting{_meant(place[-1], model)}"
    if kind == "missing":
        return "is missing" + _example(place[-1])
    info = model.model_fields[place[-1]]
    if is_secret(info):
        return "must be text: write it in quotes"
    if may_hide_secrets(info):
        return _what_is_wrong(kind)
    if kind == "literal_error":
        choices = _choices(info.annotation)
        meant = near(value, choices) if isinstance(value, str) else ""
        return f"{_shown(value)} is not one of {', '.join(choices)}{meant}"
    if kind in _BOUNDS:
        words, bound = _BOUNDS[kind]
        return f"{value} is {words} {context[bound]:g}"
    unit = (
        "; write seconds, without a unit"
        if kind == "float_parsing" and place[-1].endswith("_seconds")
        else ""
    )
    return f"{_shown(value)} {_what_is_wrong(kind)}{unit}{_comment_hint(value)}"


def _meant(name: str, model: type[BaseModel]) -> str:
    """The setting that was probably meant, or the section that has it."""
    homes = [
        called
        for section, called in _CALLED.items()
        if SECTIONS[section] is not model and name in settings(SECTIONS[section])
    ]
    return f"; it belongs to {homes[0]}" if homes else near(name, settings(model))


def _what_is_wrong(kind: str) -> str:
    if kind == "string_too_short":
        return "is empty; remove it or give it a value"
    return _KINDS.get(kind.partition("_")[0], "cannot be used")


def _choices(annotation: Any) -> tuple[str, ...]:
    """The words of a Literal, also within unions and annotations."""
    parts = getattr(annotation, "__args__", ())
    words = tuple(part for part in parts if isinstance(part, str))
    for part in parts:
        words += _choices(part)
    return words


def _example(name: str) -> str:
    if name == "bootstrap_servers":
        return '; use "broker-1.example.com:9092"'
    return ""


def _comment_hint(value: Any) -> str:
    if isinstance(value, str) and "#" in value:
        return "; a comment cannot follow a value on the same line"
    return ""


def _shown(value: Any) -> str:
    if isinstance(value, str):
        return f'"{value}"'
    if value is None:
        return "null"
    if isinstance(value, bool):
        return str(value).lower()
    return str(value)
