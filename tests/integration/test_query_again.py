"""What a query leaves behind in a service whose flows run again for weeks."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.integration

_QUERIES = 8
_OTHERS = 2
"""The JVM's garbage collector calls Python, too, from threads of its own."""


def test_ended_queries_leave_nothing_behind(tmp_path: Path) -> None:
    """Neither threads of Python nor files of the JVM grow with the number of queries
    that ran, and what their functions belong to is free at once.
    """
    ended = subprocess.run(
        [
            *(sys.executable, "-m", "tests.harness.queries_on_spark"),
            *(str(tmp_path), str(_QUERIES)),
        ],
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert ended.returncode == 0, ended.stderr[-3000:]
    threads, files, alive = zip(*json.loads(ended.stdout), strict=True)
    # The first query may meet what Spark's start has still open.
    assert max(threads[1:]) <= threads[1] + _OTHERS, threads
    assert max(files[1:]) <= files[1] + _OTHERS, files
    assert set(alive) == {0}, alive
