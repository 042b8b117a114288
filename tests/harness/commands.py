"""Commands typed in this process, and a configuration for those that need one."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import TYPE_CHECKING, Any

from typer.testing import CliRunner

from mirror.cli.main import app

if TYPE_CHECKING:
    from pathlib import Path

    from typer.testing import Result

SILENT = {"A": "127.0.0.1:1", "B": "127.0.0.1:2"}
"""Addresses by alias, at which no cluster answers."""


def mirror(*arguments: object, **env: str) -> Result:
    """Type a command; `env`: variables of its environment."""
    return CliRunner().invoke(app, [*map(str, arguments)], prog_name="mirror", env=env)


def config_file(folder: Path, **sections: Any) -> Path:
    """A configuration of the flow A->B between clusters that do not answer."""
    clusters = {alias: {"bootstrap_servers": at} for alias, at in SILENT.items()}
    whole = {"clusters": clusters, "flows": {"A->B": {"topics": ["orders"]}}} | sections
    file = folder / "mirror.yaml"
    file.write_text(json.dumps(whole))  # JSON is YAML
    return file


def answered(*arguments: object) -> subprocess.CompletedProcess[str]:
    """The same as `typed`, but in this process, which is quicker."""
    result = mirror(*arguments)
    return subprocess.CompletedProcess(
        arguments, result.exit_code, result.stdout, result.stderr
    )


def typed(
    *arguments: object, timeout: float = 120, **options: Any
) -> subprocess.CompletedProcess[str]:
    """A command in a process of its own, as a person types it."""
    return subprocess.run(
        [sys.executable, "-m", "mirror", *map(str, arguments)],
        stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=timeout,
        check=False, **options,
    )  # fmt: skip
