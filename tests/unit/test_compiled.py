"""Compiled loops are kept on disk, with what they inline from other modules."""

from __future__ import annotations

import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.unit

_LOOP = """
from mirror.batches.compiled import compiled
from part import number

@compiled("int64()")
def loop():
    return number()

print(loop(), sum(loop._cache_hits.values()))
"""
_PART = "import numba\n@numba.njit(inline='always')\ndef number():\n    return {}\n"


def test_an_upgrade_of_what_is_inlined(tmp_path: Path) -> None:
    """A loop is compiled again when a module changes whose code is inlined into it, and
    comes from the cache when none has changed.
    """

    def printed(number: int) -> list[str]:
        (tmp_path / "part.py").write_text(_PART.format(number))
        (tmp_path / "loop.py").write_text(_LOOP)
        # Or Python would not see that a file of the same size changed within a second.
        run = [sys.executable, "-B", "loop.py"]
        done = subprocess.run(
            run, cwd=tmp_path, check=True, capture_output=True, text=True
        )
        return done.stdout.split()

    assert printed(1) == ["1", "0"]
    assert printed(1) == ["1", "1"]
    assert printed(2) == ["2", "0"]
