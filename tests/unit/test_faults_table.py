"""The table of faults is that of the matrix, and counts what a copy lacks."""

from __future__ import annotations

import pytest

from tests import faults
from tests.acceptance.test_fault_matrix import FAULTS
from tests.harness.fault_cells import SHAPES
from tests.harness.fault_mm2 import compare

pytestmark = pytest.mark.unit


def test_every_cell_has_its_row() -> None:
    """The page shows each fault that `make faults` tries, and no other, in order; of
    each shape of flows it has the seconds, or that copies stop, or why the fault
    strikes none of that shape, or nothing before it was tried.
    """
    shown = faults.rows(faults.PAGE.read_text())
    assert list(shown) == [cell.fault for cell in FAULTS]
    for cell in FAULTS:
        for shape, each in shown[cell.fault].seconds.items():
            if not cell.strikes(shape):
                assert each == cell.alone
            elif cell.of(shape).stops:
                assert each in {"", "stops"}
            else:
                assert not each or each.isdigit()


def test_rows_stay_as_they_are() -> None:
    """A row that is read and written again is the same, bars in its reason included."""
    took = dict.fromkeys(SHAPES, "3")
    row = faults.Row(said=r"FAULTED: a\|b", alerts="none", seconds=took, mm2="4")
    page = f"{faults.BEGIN}{faults.HEAD}{row.line('f')}\n{faults.END}"
    assert faults.rows(page) == {"f": row}


def test_what_is_wrong_with_a_copy_is_counted() -> None:
    """Missing, doubled and late records of MirrorMaker 2's copy are told apart."""
    sent = {0: [b"0:0", b"0:1", b"0:2", b"0:3"], 1: [b"1:0"]}
    assert str(compare(sent, sent, 2.4)) == "2"
    copy = {0: [b"0:0", b"0:2", b"0:1", b"0:2"], 1: []}
    found = compare(copy, sent, None)
    assert str(found) == "not within 120, 2 missing, 1 doubled, 1 out of order"
