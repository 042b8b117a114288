"""Reading the configuration: one call from a path to a checked `MirrorConfig`.

Main function: `load`. Layers, highest first: MIRROR_ variables, the file, the
model's defaults. A `.properties` file is read as MirrorMaker 2's. All problems
are raised together, each with the setting's name as the user wrote it.

Variables are not dynaconf's layer: its variables cannot name `us-east` or `A->B`,
create an entry where a name is misspelled, and turn a password such as 1e3 into a
number. It would also read a `mirror.local.yaml` beside the file, unasked.
"""

from __future__ import annotations

import os
import re
from typing import TYPE_CHECKING

from mirror.config import environment, rules, yaml_file
from mirror.config.build import build
from mirror.config.document import Document, Path, dotted
from mirror.config.traits import is_file, may_be_folder, settings
from mirror.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Mapping
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
    built = build(document)
    problems = [
        *built.problems,
        *rules.problems(
            built.config,
            spelled=document.spelled,
            complete=not built.problems,
        ),
        *_missing_files(built.config, document),
    ]
    if problems:
        # A cluster's setting that reaches several flows is wrong once.
        raise ConfigError(_without_echoes(list(dict.fromkeys(problems))))
    return built.config, (*document.warnings, *_idle_flows(built.config, document))


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
    return yaml_file.read(path, text)


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
