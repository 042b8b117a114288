"""The table of faults is that of the matrix."""

from __future__ import annotations

import pytest

from tests import faults
from tests.acceptance.test_fault_matrix import CELLS

pytestmark = pytest.mark.unit


def test_every_cell_has_its_row() -> None:
    """The page shows each fault that `make faults` tries, and no other, in order."""
    shown = faults.rows(faults.PAGE.read_text())
    assert list(shown) == [cell.fault for cell in CELLS]
