"""Configuration files that unit tests write, and what mirror says to them."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from mirror.config.load import load
from mirror.errors import ConfigError

if TYPE_CHECKING:
    from pathlib import Path

    from mirror.config.cluster_settings import ClusterConfig
    from mirror.config.schema import MirrorConfig


def read(
    tmp_path: Path, text: str, *, name: str = "mirror.yaml", **environ: str
) -> tuple[MirrorConfig, tuple[str, ...]]:
    """The configuration and the warnings."""
    path = tmp_path / name
    path.write_text(text)
    return load(path, environ=environ)


def read_java(
    tmp_path: Path, text: str, **environ: str
) -> tuple[MirrorConfig, tuple[str, ...]]:
    """`read`, of a file for MirrorMaker 2."""
    return read(tmp_path, text, name="mm2.properties", **environ)


def java(tmp_path: Path, text: str) -> tuple[ClusterConfig, tuple[str, ...]]:
    """Cluster A of a file for MirrorMaker 2, and the warnings."""
    config, warnings = read_java(tmp_path, text)
    return config.clusters["A"], warnings


def problems(tmp_path: Path, text: str, **options: str) -> list[str]:
    """Why it is refused."""
    with pytest.raises(ConfigError) as caught:
        read(tmp_path, text, **options)
    return list(caught.value.problems)
