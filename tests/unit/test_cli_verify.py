"""What `mirror verify` refuses before it connects to anything."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from typer.testing import CliRunner

from mirror.cli.main import app

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.unit

_CONFIG = """
clusters: {A: {bootstrap_servers: "a:1"}, B: {bootstrap_servers: "b:1"}}
flows: {A->B: {topics: [t]}}
"""


@pytest.mark.parametrize(
    ("words", "why"),
    [
        (("--since", "2999-01-01T00:00:00Z"), "2999-01-01T00:00:00Z is in the future"),
        (("--since", "yesterday"), "yesterday"),
        (("--flow", "B/A"), "there is no enabled flow"),
        (("--by", "guess"), "guess"),
        (("--tasks", "0"), "--tasks"),
    ],
)
def test_a_wrong_command_line(words: tuple[str, str], why: str, tmp_path: Path) -> None:
    """One message that names it, and exit code 2."""
    file = tmp_path / "mirror.yaml"
    file.write_text(_CONFIG)

    done = CliRunner().invoke(app, ["verify", "-c", str(file), *words])

    assert done.exit_code == 2
    assert why in done.stderr
