"""The text of a properties file as pairs of key and value, ready to be understood.

Main function: `read`, which returns `Lines`. It does what Java does (escapes, joined
lines, the last of two equal keys counts), resolves references, and removes comments
after values; `unquoted` removes quotes. It does not know what keys mean.

References such as `${file:/path:key}` are resolved by `Providers`, made from a file's
`config.providers` lines as Kafka Connect reads them: files, environment variables and
directories. The names `file`, `env`, `directory` and `dir` need no declaration. A
reference that cannot be resolved is a problem that names the key, the file or the
variable, never a value.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
import re
from typing import TYPE_CHECKING

import javaproperties

from mirror.config.document import Findings
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
class Lines(Findings):
    """What a file sets, in its order; to be written by hand are secrets that could not
    be read, which stand as they were written.
    """

    settings: dict[str, str] = field(default_factory=dict)


def read(text: str, environ: Mapping[str, str]) -> Lines:
    """Read the file's text.

    Raises:
        ConfigError: the file is empty or its escapes are broken.
    """
    found = [(key, value.strip()) for key, value in pairs(text)]
    if not found:
        raise ConfigError(["the file is empty; it must hold at least clusters = A, B"])
    lines = Lines()
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
    declared = providers(lines.settings, environ)
    for key, value in list(lines.settings.items()):
        if key == _DECLARED or key.startswith(f"{_DECLARED}."):
            del lines.settings[key]
        elif _REFERENCE.search(value):
            try:
                lines.settings[key] = declared.resolve(value)
            except UnresolvedError as error:
                if is_taken_as_it_is(key):
                    lines.by_hand.append(f"{key}: {error}")
                else:
                    lines.problems.append(f"{key}: {error}")
                    del lines.settings[key]
    for name in sorted(declared.undeclared):
        lines.warnings.append(
            f"${{{name}:...}}: resolved, although config.providers does not name it: "
            "MirrorMaker 2 would take the text as it is"
        )


# ---- references such as `${file:/path:key}` ----


_REFERENCE = re.compile(r"\$\{([^}:]*):(?:([^}:]*):)?([^}]*)\}")
_DECLARED = "config.providers"
_CLASSES = {
    "FileConfigProvider": "file",
    "EnvVarConfigProvider": "env",
    "DirectoryConfigProvider": "directory",
}
_BY_NAME = {"file": "file", "env": "env", "directory": "directory", "dir": "directory"}


class UnresolvedError(Exception):
    """A reference cannot be resolved; the text says why."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Provider:
    name: str
    kind: str
    """file, env or directory; else the class, which is not supported."""
    allowed: tuple[Path, ...] = ()
    pattern: str | None = None


@dataclass(slots=True, kw_only=True)
class Providers:
    """The providers, by name."""

    environ: Mapping[str, str]
    declared: Mapping[str, _Provider]
    undeclared: set[str] = field(default_factory=set)
    """Names that were used although no line declares them."""

    def resolve(self, value: str) -> str:
        """The value with each reference replaced.

        Raises:
            UnresolvedError: a provider, file, key or variable is not there.
        """
        return _REFERENCE.sub(self._value, value)

    def _value(self, match: re.Match[str]) -> str:
        name, path, key = match[1], match[2], match[3]
        provider = self.declared.get(name)
        if provider is None:
            if name not in _BY_NAME:
                raise UnresolvedError(
                    f'there is no provider "{name}"; declare it in {_DECLARED}, or use '
                    "file, env or directory"
                )
            self.undeclared.add(name)
            provider = _Provider(name=name, kind=_BY_NAME[name])
        if provider.kind == "env":
            return self._variable(key, provider)
        if provider.kind == "file":
            return _from_file(_allowed(path or "", provider), key)
        if provider.kind == "directory":
            return _from_directory(_allowed(path or "", provider), key)
        raise UnresolvedError(
            f'the provider "{name}" is {provider.kind}, which cannot run here; '
            f"use {', '.join(_CLASSES)}"
        )

    def _variable(self, key: str, provider: _Provider) -> str:
        if provider.pattern is not None and not re.fullmatch(provider.pattern, key):
            raise UnresolvedError(
                f"{_DECLARED}.{provider.name}.param.allowlist.pattern does not allow "
                f"the variable {key}"
            )
        if key not in self.environ:
            raise UnresolvedError(f"the environment variable {key} is not set")
        return self.environ[key]


def files_named(text: str) -> tuple[Path, ...]:
    """The files that references in a text may name, whether they exist or not."""
    found = []
    for _, path, key in _REFERENCE.findall(text):
        if path:
            found += [Path(path), Path(path) / key]
    return tuple(dict.fromkeys(found))


def providers(settings: Mapping[str, str], environ: Mapping[str, str]) -> Providers:
    """The providers that these settings declare."""
    declared = {}
    for name in _words(settings.get(_DECLARED, "")):
        prefix = f"{_DECLARED}.{name}."
        full = settings.get(f"{prefix}class", "")
        kind = _CLASSES.get(full.rpartition(".")[2], full or "without a class")
        allowed = _words(settings.get(f"{prefix}param.allowed.paths", ""))
        declared[name] = _Provider(
            name=name,
            kind=kind,
            allowed=tuple(Path(each).resolve() for each in allowed),
            pattern=settings.get(f"{prefix}param.allowlist.pattern"),
        )
    return Providers(environ=environ, declared=declared)


def _allowed(path: str, provider: _Provider) -> Path:
    if not path:
        raise UnresolvedError(
            f"a reference without a path; use ${{{provider.name}:/path:key}}"
        )
    given = Path(path)
    real = given.resolve()
    if provider.allowed and not any(
        real.is_relative_to(folder) for folder in provider.allowed
    ):
        raise UnresolvedError(
            f"{_DECLARED}.{provider.name}.param.allowed.paths does not allow {path}"
        )
    return given


def _from_file(path: Path, key: str) -> str:
    try:
        pairs = javaproperties.loads(_read(path))
    except javaproperties.InvalidUEscapeError as error:
        raise UnresolvedError(f"the file {path} has a broken escape") from error
    if key not in pairs:
        raise UnresolvedError(f'the file {path} has no key "{key}"')
    return str(pairs[key])


def _from_directory(path: Path, key: str) -> str:
    if Path(key).name != key:
        raise UnresolvedError(f'"{key}" is not the name of a file in {path}')
    return _read(path / key)


def _read(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except FileNotFoundError as error:
        raise UnresolvedError(f"there is no file {path}") from error
    except OSError as error:
        raise UnresolvedError(f"{path} cannot be read: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise UnresolvedError(f"{path} is not UTF-8 text") from error


def _words(value: str) -> list[str]:
    return [word.strip() for word in value.split(",") if word.strip()]
