"""What a service's Spark does without."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

pytestmark = pytest.mark.integration


@pytest.mark.parametrize("extensions", ["", "org.example.NoSuchExtension"])
def test_a_session_leaves_out_what_no_flow_needs(extensions: str) -> None:
    """Neither pandas nor extensions that only lie on the class path are loaded; with
    extensions that the user names, Spark loads all, as it does elsewhere.
    """
    ended = subprocess.run(
        [sys.executable, "-m", "tests.harness.lean_spark", extensions],
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )

    assert ended.returncode == 0, ended.stderr[-3000:]
    found = json.loads(ended.stdout.splitlines()[-1])
    assert found == {"pandas": False, "functions": bool(extensions)}
