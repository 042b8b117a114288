"""Resolves references in a properties file, such as `${file:/path:key}`.

Main type: `Providers`, made from a file's `config.providers` lines as Kafka Connect
reads them: files, environment variables and directories. The names `file`, `env`,
`directory` and `dir` need no declaration. A reference that cannot be resolved is a
problem that names the key, the file or the variable, never a value.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
import re
from typing import TYPE_CHECKING

import javaproperties

if TYPE_CHECKING:
    from collections.abc import Mapping

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


def is_reference(value: str) -> bool:
    return _REFERENCE.search(value) is not None


def files_named(text: str) -> tuple[Path, ...]:
    """The files that references in a text may name, whether they exist or not."""
    found = []
    for _, path, key in _REFERENCE.findall(text):
        if path:
            found += [Path(path), Path(path) / key]
    return tuple(dict.fromkeys(found))


def is_about_providers(key: str) -> bool:
    return key == _DECLARED or key.startswith(f"{_DECLARED}.")


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
