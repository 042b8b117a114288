"""Reading the configuration: one call from a path to a checked `MirrorConfig`.

Main function: `load`. Layers, highest first: MIRROR_ variables, the file, the model's
defaults. A `.properties` file is read as MirrorMaker 2's; others are YAML 1.2
(`read_yaml`), whose messages name the line and show no values, which may be secrets.
All problems are raised together, each with the setting's name as the user wrote it.

The file's sections are dynaconf's only layer. Its others would also read a
`mirror.local.yaml` beside the file, unasked, and a `.env`. Variables are not its layer
either: its variables cannot name `us-east` or `A->B`, create an entry where a name is
misspelled, and turn a password such as 1e3 into a number.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import date
import os
import re
from typing import TYPE_CHECKING, Any

from dynaconf import Dynaconf
from ruamel.yaml import YAML
from ruamel.yaml.error import YAMLError
from ruamel.yaml.reader import ReaderError

from mirror.config import environment, rules
from mirror.config.build import build
from mirror.config.document import Document, Path, dotted
from mirror.config.schema import SECTIONS
from mirror.config.section import is_file, may_be_folder, settings
from mirror.errors import ConfigError

if TYPE_CHECKING:
    from pathlib import Path as FilePath

    from mirror.config.schema import MirrorConfig
    from mirror.config.section import Section


_YAML = re.compile(r"(\s*#[^\n]*\n|\s*\n)*(---|\s*\{|(clusters|flows|defaults):\s*\n)")
_MISSING = ": is missing"
_MM2 = "KafkaMirrorMaker2"
"""A word of each of Strimzi's manifests."""


def load(
    path: FilePath, *, environ: Mapping[str, str] | None = None
) -> tuple[MirrorConfig, tuple[str, ...]]:
    """Read and check a configuration file; returns it, and warnings to show.

    Raises:
        ConfigError: with everything that is wrong with it.
    """
    variables = os.environ if environ is None else environ
    document = environment.lay_over(read(path, variables), variables)
    config, wrong = build(document)
    problems = [
        *wrong,
        *rules.problems(config, spelled=document.spelled, complete=not wrong),
        *_missing_files(config, document),
    ]
    if problems:
        # A cluster's setting that reaches several flows is wrong once.
        raise ConfigError(_without_echoes(list(dict.fromkeys(problems))))
    return config, (*document.warnings, *_idle_flows(config, document))


def _without_echoes(problems: list[str]) -> list[str]:
    """Without those about a missing setting that could not be read."""
    return [
        text
        for text in problems
        if not any(
            other != text and other.startswith(f"{text.partition(_MISSING)[0]}: ")
            for other in problems
            if _MISSING in text
        )
    ]


def read(path: FilePath, environ: Mapping[str, str]) -> Document:
    """What a file says, before it is checked.

    Raises:
        ConfigError: it cannot be read, or is of no known format.
    """
    if path.suffix not in {".yaml", ".yml", ".json", ".properties"}:
        raise ConfigError(
            [f"{path}: the name must end in .yaml, or in .properties for MirrorMaker 2"]
        )
    raw = _bytes_of(path)
    if path.suffix == ".properties":
        from mirror.config.mm2 import properties as mm2_properties  # noqa: PLC0415

        text = _decoded(raw, path)
        if _YAML.match(text.removeprefix("\ufeff")):
            raise ConfigError([f"{path}: this looks like YAML: call the file .yaml"])
        try:
            return mm2_properties.read(text, environ)
        except ConfigError as error:
            raise ConfigError([f"{path}: {each}" for each in error.problems]) from error
    try:
        text = raw.decode("utf-8")
    except UnicodeDecodeError as error:
        raise ConfigError([f"{path}: is not UTF-8 text"]) from error
    if _MM2 in text:
        from mirror.config.mm2 import strimzi  # noqa: PLC0415  loads another parser

        if strimzi.is_manifest(text):
            return strimzi.read(text)
    if path.suffix == ".json":
        raise ConfigError([f"{path}: holds no {_MM2} manifest"])
    return read_yaml(path, text)


def _bytes_of(path: FilePath) -> bytes:
    try:
        return path.read_bytes()
    except FileNotFoundError as error:
        raise ConfigError([f"{path}: there is no such file"]) from error
    except OSError as error:
        raise ConfigError([f"{path}: cannot be read: {error.strerror}"]) from error


def _decoded(raw: bytes, path: FilePath) -> str:
    """Java reads such files as Latin-1, people write them as UTF-8."""
    if raw.startswith((b"\xff\xfe", b"\xfe\xff")) or b"\0" in raw:
        raise ConfigError(
            [f"{path}: is neither UTF-8 nor Latin-1 text; save it as UTF-8"]
        )
    try:
        return raw.decode("utf-8")
    except UnicodeDecodeError:
        return raw.decode("latin-1")


def _missing_files(config: MirrorConfig, document: Document) -> list[str]:
    sections: list[tuple[Path, Section]] = [
        *((("clusters", alias), each) for alias, each in config.clusters.items()),
        *(
            (("clusters", alias, "schema_registry"), each.schema_registry)
            for alias, each in config.clusters.items()
            if each.schema_registry is not None
        ),
        *((("flows", name), each) for name, each in config.flows.items()),
        (("service",), config.service),
    ]
    named: list[tuple[Path, FilePath | None, bool]] = [
        ((*place, name), getattr(section, name), may_be_folder(info))
        for place, section in sections
        for name, info in settings(type(section)).items()
        if is_file(info)
    ]
    return [
        f'{document.spelled.get(place, dotted(place))}: there is no file "{file}"'
        for place, file, or_folder in named
        if file is not None and not (file.is_file() or (or_folder and file.is_dir()))
    ]


def _idle_flows(config: MirrorConfig, document: Document) -> list[str]:
    return [
        f"{document.spelled.get(place, dotted(place))}: is empty, so no topic is copied"
        for name, flow in config.flows.items()
        if flow.enabled and not flow.topics
        for place in [("flows", name, "topics")]
    ]


# ---- YAML files: our own format ----


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


def read_yaml(path: FilePath, text: str) -> Document:
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
