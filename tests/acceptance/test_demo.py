"""`mirror demo`, as a newcomer types it."""

from __future__ import annotations

import os
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.acceptance


def test_demo_copies_exactly_once(tmp_path: Path) -> None:
    """The demo kills workers and finds each record once; it kills the cluster, and the
    group reads each record once over both. It leaves nothing behind.
    """
    ended = subprocess.run(
        [sys.executable, "-m", "mirror", "demo", "--records", "6000"],
        capture_output=True,
        text=True,
        timeout=400,
        check=False,
        # Its temporary folder goes where we can look afterwards.
        env={**os.environ, "TMPDIR": str(tmp_path)},
    )

    assert ended.returncode == 0, ended.stdout + ended.stderr
    assert "recovered" in ended.stdout
    assert "consumer: exactly once" in ended.stdout
    assert "goes on at B, at the very next record" in ended.stdout
    assert ended.stderr == ""
    assert not list(tmp_path.glob("mirror-demo-*"))
