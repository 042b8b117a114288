"""The text of a properties file as pairs of key and value, ready to be understood.

Main function: `read`, which returns `Lines`. It does what Java does (escapes, joined
lines, the last of two equal keys counts), resolves references, and removes comments
after values; `unquoted` removes quotes. It does not know what keys mean.
"""

from __future__ import annotations

from dataclasses import dataclass, field
import re
from typing import TYPE_CHECKING

import javaproperties

from mirror.config import references
from mirror.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

_JOINED_TO_NOTHING = re.compile(r"(?:[ \t\f]*\\(?:\r\n|\r|\n))+")
_COMMENT = re.compile(r"(?:^|\s+)#.*", re.DOTALL)
_TAKEN_AS_IT_IS = (
    "sasl.jaas.config",
    "password",
    "client.secret",
    "keystore.key",
    "certificates",
    "certificate.chain",
)
_QUOTED = re.compile(r"""(["'])([^"']*)\1""")
_BIGGEST = {"Integer.MAX_VALUE": str(2**31 - 1), "Long.MAX_VALUE": str(2**63 - 1)}


@dataclass(slots=True, kw_only=True)
class Lines:
    """What a file sets, in its order, with warnings and problems."""

    settings: dict[str, str]
    references: dict[str, str] = field(default_factory=dict)
    """Values as they were written, where they hold references."""
    warnings: list[str] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)
    by_hand: list[str] = field(default_factory=list)
    """Secrets that could not be read; they stand as they were written."""


def read(text: str, environ: Mapping[str, str]) -> Lines:
    """Read the file's text.

    Raises:
        ConfigError: the file is empty or its escapes are broken.
    """
    found = [(key, value.strip()) for key, value in pairs(text)]
    if not found:
        raise ConfigError(["the file is empty; it must hold at least clusters = A, B"])
    lines = Lines(settings={})
    for key, value in found:
        if key in lines.settings:
            lines.warnings.append(f"{key}: set twice; the last one counts")
        lines.settings[key] = value
    for key, value in lines.settings.items():
        lines.settings[key] = _bare(key, value, lines)
    _resolve(lines, environ)
    return lines


def pairs(text: str) -> list[tuple[str, str]]:
    """Keys and values as Java reads them, in the file's order.

    Raises:
        ConfigError: escapes are broken.
    """
    try:
        return list(_pairs(text.removeprefix("\ufeff")))
    except javaproperties.InvalidUEscapeError as error:
        raise ConfigError(
            [
                (
                    f"the file has a broken escape: {error}; use four hex "
                    "digits after \\u, or two backslashes for one that is meant"
                )
            ]
        ) from error


def _pairs(text: str) -> Iterator[tuple[str, str]]:
    for element in javaproperties.parse(text):
        if not isinstance(element, javaproperties.KeyValue):
            continue
        if start := _JOINED_TO_NOTHING.match(element.source):
            # To Java a new line begins behind it, and may be a comment.
            yield from _pairs(element.source[start.end() :])
        else:
            yield element.key, element.value


def is_taken_as_it_is(key: str) -> bool:
    """Whether every character of the value may be meant."""
    return key.endswith(_TAKEN_AS_IT_IS)


def unquoted(value: str) -> tuple[list[str], bool]:
    """The value's parts between commas without quotes; whether there were any."""
    parts = [part.strip() for part in value.split(",")]
    if (whole := _QUOTED.fullmatch(value.strip())) and len(parts) > 1:
        return [part.strip() for part in whole[2].split(",")], True
    bare = [
        part[1:-1]
        if len(part) > 1 and part[0] == part[-1] and part[0] in "\"'"
        else part
        for part in parts
    ]
    return bare, bare != parts


def _bare(key: str, value: str, lines: Lines) -> str:
    if is_taken_as_it_is(key):
        return value
    shorter = _COMMENT.sub("", value)
    if shorter != value:
        lines.warnings.append(
            f"{key}: a comment cannot follow a value on the same line, removed"
        )
    return _BIGGEST.get(shorter, shorter)


def _resolve(lines: Lines, environ: Mapping[str, str]) -> None:
    providers = references.providers(lines.settings, environ)
    for key, value in list(lines.settings.items()):
        if references.is_about_providers(key):
            del lines.settings[key]
        elif references.is_reference(value):
            lines.references[key] = value
            try:
                lines.settings[key] = providers.resolve(value)
            except references.UnresolvedError as error:
                if is_taken_as_it_is(key):
                    lines.by_hand.append(f"{key}: {error}")
                else:
                    lines.problems.append(f"{key}: {error}")
                    del lines.settings[key]
    for name in sorted(providers.undeclared):
        lines.warnings.append(
            f"${{{name}:...}}: resolved, although config.providers does not name it: "
            "MirrorMaker 2 would take the text as it is"
        )
