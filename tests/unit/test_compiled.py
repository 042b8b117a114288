"""Compiled loops are kept on disk, with what they inline from other modules, and read
numbers of any length.
"""

from __future__ import annotations

import subprocess
import sys
from typing import TYPE_CHECKING

from hypothesis import given
from hypothesis import strategies as st
import numpy as np
import pytest

from mirror.records.compiled import put_varint, varint, varint_size

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.unit

_LOOP = """
from mirror.records.compiled import compiled
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


@given(st.integers(0, 64), st.integers(-2, 2), st.booleans())
def test_numbers_of_any_length(bits: int, more: int, is_negative: bool) -> None:
    """Numbers around every power of two are read as they were written, and one that
    ends behind the given end, in bytes that are there, is none.
    """
    number = max(-(1 << 63), min((1 << bits) + more, (1 << 63) - 1))
    number = -number if is_negative else number
    buffer = np.full(12, 1, np.uint8)
    end = put_varint(buffer, 1, np.int64(number))
    assert end == 1 + varint_size(np.int64(number))
    assert varint(buffer, 1, end) == varint(buffer, 1, end + 1) == (number, end)
    for cut in range(1, end):
        assert varint(buffer, 1, cut) == (-2, cut + 1)
