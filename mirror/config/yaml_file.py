"""YAML files: our own configuration format, read as YAML 1.2.

Main function: `read`. Messages name the line and show no values, which may be secrets.
The sections become dynaconf's only layer: its others would also read
`mirror.local.yaml` and a `.env`, and turn a password of digits into a number.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import date
import re
from typing import TYPE_CHECKING, Any

from dynaconf import Dynaconf
from ruamel.yaml import YAML
from ruamel.yaml.error import YAMLError
from ruamel.yaml.reader import ReaderError

from mirror.config.document import Document
from mirror.config.schema import SECTIONS
from mirror.errors import ConfigError

if TYPE_CHECKING:
    from pathlib import Path

_ONE_LAYER: Any = {
    "settings_files": [],
    "loaders": [],
    "envvar_prefix": None,
    "environments": False,
    "load_dotenv": False,
    "auto_cast": False,
}
_SHAPE = "a mapping with the keys clusters, flows, defaults and service"
_ITSELF = "not valid YAML: an anchor (&) is used (*) within itself"
_TOO_DEEP = "not valid YAML: nested too deeply"
_HINTS = {
    r"'\t'": "; indent with spaces, YAML does not allow tabs",
    "another document": "; keep one, and no line --- before it",
    "undefined alias": "; quote a text that begins with *",
    "for the tag": "; quote a text that begins with !",
    "tag handle": "; quote a text that begins with !",
}
_MARKED = re.compile(r"(alias|tag|tag handle|anchor) '.*'")
"""How a message names what follows a *, ! or &: it may be a password's beginning."""
_DATE = re.compile(r"\b(\d{4})-(\d{1,2})-(\d{1,2})")
_PROPERTY = re.compile(r"^\s*(clusters|[\w.>-]+\.[\w.-]+)\s*=", re.MULTILINE)


def read(path: Path, text: str) -> Document:
    """The sections of a file's text; `path` is for messages.

    Raises:
        ConfigError: the text is no YAML, is empty, or holds something else.
    """
    try:
        found = YAML(typ="safe", pure=True).load(text)
        circular = _holds_itself(found, above=set(), done=set())
    except YAMLError as error:
        raise ConfigError([f"{path}: not valid YAML: {_reason(error)}"]) from error
    except RecursionError as error:
        raise ConfigError([f"{path}: {_TOO_DEEP}"]) from error
    except ValueError as error:
        # Mostly dates: YAML reads what looks like one, also where there is no such day.
        raise ConfigError([f"{path}: {_no_date(text)}: {error}"]) from error
    if found is None or found == {}:
        raise ConfigError([f"{path}: is empty; it must hold {_SHAPE}"])
    if not isinstance(found, Mapping):
        raise ConfigError([f"{path}: must hold {_SHAPE}{_other_kind(text)}"])
    if circular:
        raise ConfigError([f"{path}: {_ITSELF}"])
    raw = {str(key).lower(): value for key, value in found.items()}
    layer = Dynaconf(**_ONE_LAYER)
    sections = SECTIONS.keys() & raw.keys()
    layer.update({key: raw[key] for key in sections}, tomlfy=False)
    return Document(raw=raw | {key: layer[key] for key in sections})


def _holds_itself(value: Any, *, above: set[int], done: set[int]) -> bool:
    """Whether aliases make a circle; what several aliases share is looked at once."""
    if not isinstance(value, (Mapping, list)) or id(value) in done:
        return False
    if id(value) in above:
        return True
    above.add(id(value))
    parts = value.values() if isinstance(value, Mapping) else value
    found = any(_holds_itself(part, above=above, done=done) for part in parts)
    above.remove(id(value))
    done.add(id(value))
    return found


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


def _no_date(text: str) -> str:
    """Which of the file's dates does not exist, or that it is something else."""
    for number, line in enumerate(text.splitlines(), 1):
        for found in _DATE.finditer(line):
            try:
                date(*map(int, found.groups()))
            except ValueError:
                return f'"{found[0]}" in line {number} is not a date'
    return "a value cannot be read; write it in quotes"


def _other_kind(text: str) -> str:
    """A hint, where the text looks like MirrorMaker 2's."""
    if not _PROPERTY.search(text):
        return ""
    return "; this looks like MirrorMaker 2's: call the file .properties"
