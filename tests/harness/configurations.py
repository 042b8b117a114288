"""Configurations and their files that tests make, and what mirror says to them."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

import pytest

from mirror.config import load
from mirror.config.build import build
from mirror.config.document import Document
from mirror.config.settings import origins
from mirror.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from pathlib import Path

    from pydantic import SecretStr

    from mirror.config.cluster_settings import ClusterConfig
    from mirror.config.schema import MirrorConfig

GOOD = """
clusters:
  us-east: {bootstrap_servers: "a:9092"}
  eu: {bootstrap_servers: "b:9092"}
defaults: {compression: zstd}
flows:
  "us-east->eu": {topics: [orders]}
"""
SASL = """
clusters:
  us-east:
    bootstrap_servers: a:9092
    security_protocol: SASL_PLAINTEXT
    sasl_mechanism: PLAIN
    sasl_username: u
    %s
  eu: {bootstrap_servers: "b:9092"}
flows:
  "us-east->eu":
"""
MM2 = """\
clusters = A, B
A.bootstrap.servers = a:9092
B.bootstrap.servers = b:9092
A->B.enabled = true
"""
"""The smallest file for MirrorMaker 2."""
_LACKS = re.compile(": is missing; at least one|: there is no cluster |homes: belongs")


def configuration(document: Mapping[str, Any]) -> MirrorConfig:
    """What a file with these sections would be; flows may name clusters that are not
    there, and have homes without a pair.
    """
    config, problems = build(Document(raw=document))
    if wrong := [each for each in problems if not _LACKS.search(each)]:
        raise ConfigError(wrong)
    return config


def config(
    flows: Mapping[str, Any],
    aliases: Iterable[str] = "ABC",
    *,
    clusters: Mapping[str, Mapping[str, Any]] | None = None,
    **sections: Any,
) -> MirrorConfig:
    """Flows among clusters; `clusters`: more settings of some."""
    made = {
        alias: {"bootstrap_servers": f"{alias}:9092", **(clusters or {}).get(alias, {})}
        for alias in aliases
    }
    return configuration({"clusters": made, "flows": flows, **sections})


def read(
    tmp_path: Path, text: str | bytes, *, name: str = "mirror.yaml", **environ: str
) -> tuple[MirrorConfig, tuple[str, ...]]:
    """The configuration and the warnings."""
    path = tmp_path / name
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return load.load(path, environ=environ)


def read_java(
    tmp_path: Path, text: str | bytes, **environ: str
) -> tuple[MirrorConfig, tuple[str, ...]]:
    """`read`, of a file for MirrorMaker 2."""
    return read(tmp_path, text, name="mm2.properties", **environ)


def java(tmp_path: Path, text: str) -> tuple[ClusterConfig, tuple[str, ...]]:
    """Cluster A of a file for MirrorMaker 2, and the warnings."""
    config, warnings = read_java(tmp_path, text)
    return config.clusters["A"], warnings


def shown(tmp_path: Path, text: str) -> dict[str, Any]:
    """What `mirror config show` says of each setting."""
    found, _ = read(tmp_path, text)
    document = load.read(tmp_path / "mirror.yaml", {})
    return {each.setting: each.value for each in origins(found, document)}


def problems(tmp_path: Path, text: str | bytes, **options: str) -> list[str]:
    """Why it is refused."""
    with pytest.raises(ConfigError) as caught:
        read(tmp_path, text, **options)
    return list(caught.value.problems)


def java_problems(tmp_path: Path, text: str | bytes) -> list[str]:
    """`problems`, of a file for MirrorMaker 2."""
    return problems(tmp_path, text, name="mm2.properties")


def secret(setting: SecretStr | None) -> str | None:
    """Itself."""
    return setting and setting.get_secret_value()
