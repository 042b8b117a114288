"""YAML files: our own configuration format, read by dynaconf.

Main function: `read`. Dynaconf's own layers are all switched off: it would also
read `mirror.local.yaml`, included files and a `.env`, evaluate values that begin
with `@`, and turn a password of digits into a number. `environment` is our layer.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from dynaconf import Dynaconf
from dynaconf.loaders import yaml_loader
from dynaconf.vendor.ruamel.yaml import YAMLError
from dynaconf.vendor.ruamel.yaml.constructor import DuplicateKeyError

from mirror.config.document import Document
from mirror.errors import ConfigError

if TYPE_CHECKING:
    from pathlib import Path

_load: Any = yaml_loader.load
_SHAPE = "a mapping with the keys clusters, flows, defaults and service"


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
    except (AttributeError, TypeError) as error:
        raise ConfigError([f"{path}: must hold {_SHAPE}"]) from error
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
    problem = problem.splitlines()[0].partition(" with value")[0]
    return f"{problem}{where}"
