"""YAML files: our own configuration format, read by dynaconf.

Main function: `read`. Dynaconf's own layers are all switched off: it would also
read `mirror.local.yaml`, included files and a `.env`, evaluate values that begin
with `@`, and turn a password of digits into a number. `environment` is our layer.
"""

from __future__ import annotations

from datetime import date
import re
from typing import TYPE_CHECKING, Any

from dynaconf import Dynaconf
from dynaconf.loaders import yaml_loader
from dynaconf.vendor.ruamel.yaml import YAMLError
from dynaconf.vendor.ruamel.yaml.constructor import DuplicateKeyError
from dynaconf.vendor.ruamel.yaml.reader import ReaderError

from mirror.config.document import Document
from mirror.errors import ConfigError

if TYPE_CHECKING:
    from pathlib import Path

_load: Any = yaml_loader.load
_SHAPE = "a mapping with the keys clusters, flows, defaults and service"
_ITSELF = "not valid YAML: an anchor (&) is used (*) within itself"
_HINTS = {
    r"'\t'": "; indent with spaces, YAML takes no tabs",
    "another document": "; keep one, and no line --- before it",
    "undefined alias": "; a text that begins with * has to stand in quotes",
    "for the tag": "; a text that begins with ! has to stand in quotes",
    "tag handle": "; a text that begins with ! has to stand in quotes",
}
_MARKED = re.compile(r"(alias|tag|tag handle|anchor) '.*'")
"""How a message names what follows a *, ! or &: it may be a password's beginning."""
_DATE = re.compile(r"\b(\d{4})-(\d{1,2})-(\d{1,2})")
_PROPERTY = re.compile(r"^\s*(clusters|[\w.>-]+\.[\w.-]+)\s*=", re.MULTILINE)


def read(path: Path) -> Document:
    """Read the file's sections.

    Raises:
        ConfigError: the file is no YAML, is empty, or holds something else.
    """
    settings: Any = Dynaconf(  # type: ignore[no-untyped-call]
        settings_files=[],
        loaders=[],
        envvar_prefix=None,
        environments=False,
        load_dotenv=False,
        auto_cast=False,
    )
    own = set(settings.as_dict())
    try:
        _load(settings, filename=[str(path)], silent=False)
    except (YAMLError, DuplicateKeyError, UnicodeDecodeError) as error:
        raise ConfigError([f"{path}: not valid YAML: {_reason(error)}"]) from error
    except RecursionError as error:
        raise ConfigError([f"{path}: {_ITSELF}"]) from error
    except ValueError as error:
        # YAML makes dates of what looks like one, also where there is no such day.
        raise ConfigError([f"{path}: {_no_date(path)}: {error}"]) from error
    except (AttributeError, TypeError) as error:
        raise ConfigError([f"{path}: must hold {_SHAPE}{_other_kind(path)}"]) from error
    raw = {
        str(key).lower(): value
        for key, value in settings.as_dict().items()
        if key not in own
    }
    if not raw:
        raise ConfigError([f"{path}: is empty; it must hold {_SHAPE}"])
    return Document(raw=raw)


def _reason(error: Exception) -> str:
    """The parser's finding in one line: it shows no values, so no secrets."""
    mark = getattr(error, "problem_mark", None)
    problem = str(getattr(error, "problem", None) or "unreadable characters")
    where = f" in line {mark.line + 1}, column {mark.column + 1}" if mark else ""
    if mark is None and isinstance(error, ReaderError):
        where = f": U+{error.character:04X} at position {error.position}"
    problem = problem.splitlines()[0].partition(" with value")[0]
    problem = _MARKED.sub(r"\1", problem)
    hint = next((text for part, text in _HINTS.items() if part in problem), "")
    return f"{problem}{where}{hint}"


def _no_date(path: Path) -> str:
    """Which of the file's dates cannot be."""
    for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
        for found in _DATE.finditer(line):
            try:
                date(*map(int, found.groups()))
            except ValueError:
                return f'"{found[0]}" in line {number} is no date'
    return "holds what is no date, and no text in quotes"


def _other_kind(path: Path) -> str:
    """A hint, where the text looks like MirrorMaker 2's."""
    if not _PROPERTY.search(path.read_text(encoding="utf-8")):
        return ""
    return "; this looks like MirrorMaker 2's: call the file .properties"
