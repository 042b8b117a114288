"""Checks that the functions named by flows can be used, before anything runs.

Main functions: `unusable`, and `read_usable` for commands that need them. Only a
configuration that names a function pays for importing it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from mirror.cli.options import read_config
from mirror.errors import ConfigError

if TYPE_CHECKING:
    from pathlib import Path

    from mirror.config.schema import MirrorConfig


def read_usable(path: Path) -> MirrorConfig:
    """The configuration, with all its functions usable; warnings go to stderr.

    Raises:
        ConfigError: the configuration, or a function, cannot be used.
    """
    config = read_config(path)
    if mistakes := unusable(config):
        raise ConfigError(mistakes)
    return config


def unusable(config: MirrorConfig) -> list[str]:
    """What is wrong with them, a line each."""
    if not any(flow.transform for flow in config.flows.values() if flow.enabled):
        return []

    from mirror.copying import transform

    return transform.problems(config)
