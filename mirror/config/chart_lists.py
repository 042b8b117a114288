"""What the Helm chart must know about settings: which are secret, which need a restart.

Main function: `for_chart`, the text of `deploy/helm/mirror/settings.yaml`. The chart
refuses secrets that would land in a ConfigMap, and restarts pods only for settings that
a running service refuses to change. `make settings` writes the file; a test sees that
it is current.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from mirror.config.schema import SECTIONS
from mirror.config.traits import (
    Effect,
    Where,
    is_mapping,
    is_secret,
    may_hide_secrets,
    section_of,
    settings,
    traits,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from pydantic import BaseModel
    from pydantic.fields import FieldInfo

    from mirror.config.section import Section
    from mirror.config.traits import Key

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
